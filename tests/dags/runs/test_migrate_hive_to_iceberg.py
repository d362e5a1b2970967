"""One table is migrated by a DAG and Spark; another one, with an empty file, is refused and stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from catalog.operations.records import OperationState
from tests.support.iceberg_tables import expected_rows, iceberg_rows, make_orders

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
]

MIGRATE = "migrate_hive_to_iceberg"
GOOD, DAMAGED = "migration.good", "migration.damaged"
FORM = {"tables": ["migration.*"]}


def outcomes(run: Any) -> dict[str, dict[str, Any]]:
    return {row["table"]: row for row in run.result("report")}


def files_of(catalog: Catalog, table: str) -> dict[Path, tuple[int, int]]:
    """The data files of a table, with their sizes and times."""
    paths = Path(catalog.get_table(table).location).glob("country=*/**/*.parquet")
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


@pytest.fixture(scope="module")
def tables(catalog: Catalog) -> None:
    """A valid table and one with an empty file."""
    catalog.create_database("migration")
    make_orders(catalog, GOOD)
    make_orders(catalog, DAMAGED)
    Path(catalog.get_partition(DAMAGED, ("nl", "2025")).location, "empty.parquet").touch()


@pytest.mark.long
@pytest.mark.usefixtures("tables")
def test_the_form_is_a_dry_run_that_reads_every_footer(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    looked = run_dag(MIGRATE, FORM, "failed")
    said = outcomes(looked)
    assert (said[GOOD]["files"], said[GOOD]["rows"], said[GOOD]["outcome"]) == (4, 7, "can be migrated")
    assert "empty.parquet" in said[DAMAGED]["outcome"]
    assert "(EMPTY)" in said[DAMAGED]["outcome"]
    log = looked.log("plan")
    assert "year: int → int, partition key" in log
    assert f"| {GOOD} | 4 | 4 parquet |" in log
    assert not catalog.get_table(GOOD).is_iceberg
    assert {state for (task, _), state in looked.named_states().items() if task in ("verify", "flip")} == {"skipped"}
    for table in (GOOD, DAMAGED):
        assert catalog.operations.get(f"{looked.operation_id}/{table}").failure_code == "DRY_RUN"


@pytest.mark.usefixtures("tables")
def test_one_table_is_migrated_and_the_other_is_as_it_was(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    files = {table: files_of(catalog, table) for table in (GOOD, DAMAGED)}
    partitions = list(catalog.get_partitions(DAMAGED))
    migrated = run_dag(MIGRATE, {**FORM, "dry_run": False}, "failed")
    said = outcomes(migrated)
    assert said[GOOD]["outcome"].startswith("Iceberg table now; metadata: ")
    assert (said[GOOD]["rows"], said[GOOD]["partitions verified"]) == (7, 4)
    assert said[DAMAGED]["outcome"].startswith("not migrated: UnusableFilesError: ")
    assert "empty.parquet" in said[DAMAGED]["outcome"]
    assert iceberg_rows(catalog.storage.url.render_as_string(hide_password=False), GOOD) == expected_rows()
    assert {table: files_of(catalog, table) for table in (GOOD, DAMAGED)} == files
    assert list(catalog.get_partitions(DAMAGED)) == partitions
    assert not catalog.get_table(DAMAGED).is_iceberg
    assert catalog.operations.get(f"{migrated.operation_id}/{DAMAGED}").state is OperationState.FAILED
    assert migrated.named_states() == {
        ("plan", None): "success",
        ("stage", GOOD): "success",
        ("verify", GOOD): "success",
        ("flip", GOOD): "success",
        ("stage", DAMAGED): "failed",
        # Tasks that never ran are named by their index.
        ("verify", "0"): "upstream_failed",
        ("flip", "0"): "upstream_failed",
        ("report", None): "failed",
    }
