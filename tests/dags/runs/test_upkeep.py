"""The DAGs that keep tables in order, each on its own: compaction, maintenance, Iceberg's procedures, advice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog, NewPartition
from tests.dags.runs.conftest import COMPACTED
from tests.support.delays import load_delays, make_delays, row_counts
from tests.support.iceberg_tables import make_orders, migrate
from tests.support.written_files import Load, data_files, hashed_table, on_disk

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
]


def make_small_files(catalog: Catalog) -> None:
    """Create a table with small files in two of three partitions."""
    catalog.create_database("lake", if_not_exists=True)
    table = catalog.create_table(COMPACTED, columns=[("id", "bigint")], partition_keys=[("day", "int")])
    new = []
    for day, count in ((1, 4), (2, 4), (3, 1)):
        folder = Path(table.location) / f"day={day}"
        folder.mkdir(parents=True)
        for number in range(count):
            pq.write_table(pa.table({"id": pa.array([day * 10 + number])}), folder / f"part-{number}.parquet")
        size = sum(path.stat().st_size for path in folder.iterdir())
        new.append(NewPartition((str(day),), file_count=count, row_count=count, size_bytes=size))
    catalog.add_partitions(COMPACTED, new)


@pytest.mark.long
def test_small_files_are_compacted_by_a_policy(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    make_small_files(catalog)
    planned = run_dag("compact_partitions", {"tables": [COMPACTED], "dry_run": True})
    assert planned.states()["compact"] == "skipped"
    run = run_dag("compact_partitions", {"tables": [COMPACTED]})
    [row] = run.result("summarise")
    assert row["outcome"] == "8 file(s) of 2 partition(s) became 2"
    after = {partition.values[0]: partition for partition in catalog.get_partitions(COMPACTED)}
    counts = {day: (after[day].file_count, after[day].row_count) for day in sorted(after)}
    assert counts == {"1": (1, 4), "2": (1, 4), "3": (1, 1)}
    # The former files stay for the grace time.
    tables = [pq.read_table(path) for path in Path(after["1"].location).glob("*.parquet")]
    assert [sorted(table.column("id").to_pylist()) for table in tables] == [[10, 11, 12, 13]]
    again = run_dag("compact_partitions", {"tables": [COMPACTED]})
    assert again.result("summarise")[0]["outcome"] == "nothing to do"


@pytest.mark.long
def test_a_maintenance_says_what_it_would_delete_and_leaves_what_is_in_use(
    catalog: Catalog, run_dag: Callable[..., Any]
) -> None:
    catalog.create_database("maintenance")
    table = hashed_table(catalog, "maintenance.h")
    Load(catalog, table, "maintenance-1").run()
    Load(catalog, table, "maintenance-2").run(retired=data_files(catalog, table))
    Load(catalog, table, "maintenance-3").begin().write().fail()
    Load(catalog, table, "maintenance-4").begin().write()
    before = on_disk(table.location)
    tasks = ("approve", "vacuum", "expire_operations", "clear_failed_builds", "check_catalog", "summarise")

    would = run_dag("catalog_maintenance", {"grace_hours": 0, "dry_run": True})
    (said,) = [row for row in would.result("summarise") if row["table"] == table.full_name]
    assert said["outcome"].startswith("would be deleted: 2 replaced file(s), 200 bytes; 8 orphan(s), ")
    done = run_dag("catalog_maintenance")
    assert done.states() == {**dict.fromkeys(tasks, "success"), "approve": "skipped"}
    assert on_disk(table.location) == before


@pytest.mark.long
def test_a_maintenance_of_iceberg_tables_shows_its_statements(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    catalog.create_database("upkeep")
    make_orders(catalog, "upkeep.orders")
    migrate(catalog, "upkeep.orders", "upkeep/orders")
    run = run_dag("maintain_iceberg", {"tables": ["upkeep.*"], "older_than_days": 0})
    assert [row["outcome"] for row in run.result("summarise")] == ["would be run"] * 2
    assert (run.states()["approve"], run.states()["maintain"]) == ("skipped", "skipped")


@pytest.mark.long
def test_the_advisor_counts_values_and_proposes_a_split(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    table, form = "advisor.delays", {"tables": ["advisor.delays"]}
    make_delays(catalog, table)
    quiet = run_dag("rebalance_advisor", form)
    assert (quiet.states()["count_values"], quiet.result("summarise")) == ("skipped", [])
    catalog.alter_table(table, properties={"calve.target_file_bytes": "4000"})
    load_delays(catalog, table, (30 + number % 30 for number in range(4000)))
    before = row_counts(catalog, table)
    run = run_dag("rebalance_advisor", form)
    assert run.states()["count_values"] == "success"
    (said,) = run.result("summarise")
    assert (said["table"], said["outcome"]) == (table, "proposed")
    assert said["proposal"].startswith(f"ALTER TABLE {table} SPLIT PARTITION (3) INTO ('3")
    assert row_counts(catalog, table) == before
