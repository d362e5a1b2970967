"""Files that cannot be loaded, by a DAG; and files that change a table, or lose rows, by its contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from catalog.schemes.ranges import RangeScheme

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]

TABLE = "lake.orders"


@pytest.mark.long
def test_a_bad_file_is_set_aside_and_loaded_when_it_is_corrected(
    home: Path, catalog: Catalog, run_dag: Callable[..., Any]
) -> None:
    landing = home / "landing" / "orders"
    landing.mkdir(parents=True)
    for day in range(1, 4):
        (landing / f"{day}.csv").write_text(f"day,id,amount\n2026-01-0{day},{day},1.5\n")
    form = {"table": TABLE, "source": str(landing), "keys": ["day date"], "bad_files": "skip", "dry_run": False}
    run_dag("add_partitions", form)
    (landing / "4.csv").write_text("day,id,amount\n2026-01-04,4,1.5\n")
    bad = landing / "5.csv"
    bad.write_text("day,id,amount\n2026-01-05,5,1.5\n2026-01-05,six,1.5\n")

    run = run_dag("add_partitions", form)
    report = run.result("register")
    assert (report["partitions"], report["row_count"]) == (1, 1)
    expected = {"file": str(bad), "line": 3, "column": "id", "value": "six", "type": "bigint"}
    assert report["set_aside"] == {
        "files": 1,
        "rows": 1,
        "problems": [{**expected, "problem": "column id: 'six' is no bigint"}],
    }
    assert "1 file(s) are set aside until they change" in run.log("validate")
    [aside] = catalog.set_aside_files(TABLE)
    assert (aside.path, aside.bad_row_count, aside.operation_id) == (str(bad), 1, run.operation_id)

    again = run_dag("add_partitions", form)
    assert again.states()["validate"] == "skipped"
    assert "or has set them aside" in again.log("discover")

    bad.write_text("day,id,amount\n2026-01-05,5,1.5\n2026-01-05,6,1.5\n")
    corrected = run_dag("add_partitions", form)
    assert corrected.result("register")["row_count"] == 2
    assert catalog.set_aside_files(TABLE) == []
    assert sum(partition.row_count or 0 for partition in catalog.get_partitions(TABLE)) == 6


@pytest.mark.long
def test_keys_are_computed_and_the_contract_of_a_run_is_followed(
    home: Path, catalog: Catalog, run_dag: Callable[..., Any]
) -> None:
    landing = home / "landing" / "visits"
    landing.mkdir(parents=True)
    (landing / "1.csv").write_text("id,at\n1,2026-01-01 10:00:00\n2,2026-01-02 11:00:00\n")
    keys = ["day date from to_date(at)"]
    form = {"table": "lake.visits", "source": str(landing), "keys": keys, "mode": "append", "dry_run": False}
    run_dag("add_partitions", form)
    assert sorted(partition.values for partition in catalog.get_partitions("lake.visits")) == [
        ("2026-01-01",),
        ("2026-01-02",),
    ]
    (landing / "2.csv").write_text("id,at,page\n3,2026-01-02 12:00:00,/home\nfour,2026-01-03 12:00:00,/\n")
    run = run_dag("add_partitions", {**form, "contract_columns": "evolve", "contract_types": "discard_row"})
    report = run.result("register")
    assert (report["row_count"], report["partitions"], report["partitions_extended"]) == (1, 0, 1)
    assert report["evolution"]["added"] == [{"name": "page", "type": "string", "id": 4}]
    assert (report["discarded"]["rows"], report["discarded"]["values"]) == (1, 0)
    [example] = report["discarded"]["examples"]
    assert (example["file"], example["line"], example["value"]) == (str(landing / "2.csv"), 3, "four")
    assert "1 row(s) and 0 value(s) of 1 file(s) are left out" in run.log("validate")
    assert [column.name for column in catalog.get_table("lake.visits").columns] == ["id", "at", "page"]


@pytest.mark.long
def test_files_are_loaded_into_a_table_with_a_partition_scheme(
    home: Path, catalog: Catalog, run_dag: Callable[..., Any]
) -> None:
    landing, table = home / "landing" / "ranges", "lake.ranges"
    landing.mkdir(parents=True)
    (landing / "1.csv").write_text("id,amount\n1,5\n2,15\n3,25\n")
    (landing / "2.csv").write_text("id,amount\n4,5\n5,\n")
    catalog.create_database("lake", if_not_exists=True)
    scheme = RangeScheme("amount", "int", next_id=3, bounds=((1, "10"), (2, "20")))
    catalog.create_table(table, columns=[("id", "int"), ("amount", "int")], scheme=scheme)

    form = {"table": table, "source": str(landing), "bad_files": "skip", "dry_run": False}
    run = run_dag("add_partitions", form)
    report = run.result("register")
    assert (report["row_count"], report["partitions_extended"], report["set_aside"]["rows"]) == (3, 3, 1)
    assert (run.result("check_quality")["checked"], run.states()["announce"]) == (3, "success")
    assert "change" not in run.result("write")
    assert {partition.id: partition.row_count for partition in catalog.scheme_partitions(table)} == {0: 1, 1: 1, 2: 1}

    (landing / "1.csv").write_text("id,amount\n1,5\n6,6\n")
    run_dag("add_partitions", {**form, "source": str(landing / "1.csv"), "mode": "replace"})
    assert {partition.id: partition.row_count for partition in catalog.scheme_partitions(table)} == {0: 1, 1: 2, 2: 1}
