"""Tables are migrated through Airflow and Spark, a refused one does not affect others, and Iceberg maintenance runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.operations.records import OperationState
from tests.support.iceberg_tables import append, expected_rows, iceberg_rows, make_orders

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

MIGRATE, MAINTAIN = "migrate_hive_to_iceberg", "maintain_iceberg"
GOOD, DAMAGED = "migration.good", "migration.damaged"
FORM = {"tables": ["migration.*"]}


def outcomes(run: Any, task: str = "report") -> dict[str, dict[str, Any]]:
    return {row["table"]: row for row in run.result(task)}


def states(stack: Stack, run: Any) -> dict[tuple[str, str | None], str]:
    """The state of each task, by its id and its name in Airflow's UI."""
    tasks = stack.api.task_instances(MIGRATE, run.id)
    return {(task["task_id"], task["rendered_map_index"]): task["state"] for task in tasks}


def files_of(catalog: Catalog, table: str) -> dict[Path, tuple[int, int]]:
    """The data files of a table, with their sizes and times."""
    paths = Path(catalog.get_table(table).location).glob("country=*/**/*.parquet")
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


@pytest.fixture(scope="module")
def looked(catalog: Catalog, run_dag: Callable[..., Any]) -> Any:
    """The run with the form's defaults: a dry run, over a valid table and one with an empty file."""
    catalog.create_database("migration")
    make_orders(catalog, GOOD)
    make_orders(catalog, DAMAGED)
    Path(catalog.get_partition(DAMAGED, ("nl", "2025")).location, "empty.parquet").touch()
    return run_dag(MIGRATE, FORM, "failed")


def test_the_form_is_a_dry_run_that_reads_every_footer(looked: Any, catalog: Catalog, stack: Stack) -> None:
    said = outcomes(looked)
    assert (said[GOOD]["files"], said[GOOD]["rows"], said[GOOD]["outcome"]) == (4, 7, "can be migrated")
    assert "empty.parquet" in said[DAMAGED]["outcome"]
    assert "(EMPTY)" in said[DAMAGED]["outcome"]
    log = looked.log("plan", is_aligned=False)
    assert "year: int → int, partition key" in log
    assert f"| {GOOD} | 4 | 4 parquet |" in log
    assert not catalog.get_table(GOOD).is_iceberg
    assert {state for (task, _), state in states(stack, looked).items() if task in ("verify", "flip")} == {"skipped"}
    for table in (GOOD, DAMAGED):
        assert catalog.operations.get(f"{looked.operation_id}/{table}").failure_code == "DRY_RUN"


def test_one_table_is_migrated_and_the_other_is_as_it_was(
    looked: Any, catalog: Catalog, stack: Stack, run_dag: Callable[..., Any]
) -> None:
    files = {table: files_of(catalog, table) for table in (GOOD, DAMAGED)}
    partitions = list(catalog.get_partitions(DAMAGED))
    migrated = run_dag(MIGRATE, {**FORM, "dry_run": False}, "failed")
    said = outcomes(migrated)
    assert said[GOOD]["outcome"].startswith("Iceberg table now; metadata: ")
    assert (said[GOOD]["rows"], said[GOOD]["partitions verified"]) == (7, 4)
    assert said[DAMAGED]["outcome"].startswith("not migrated: UnusableFilesError: ")
    assert "empty.parquet" in said[DAMAGED]["outcome"]
    assert iceberg_rows(stack.catalog_url, GOOD) == expected_rows()
    assert {table: files_of(catalog, table) for table in (GOOD, DAMAGED)} == files
    assert list(catalog.get_partitions(DAMAGED)) == partitions
    assert not catalog.get_table(DAMAGED).is_iceberg
    assert catalog.operations.get(f"{migrated.operation_id}/{DAMAGED}").state is OperationState.FAILED
    assert states(stack, migrated) == {
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


def test_icebergs_own_procedures_put_small_files_together(
    looked: Any, catalog: Catalog, stack: Stack, run_dag: Callable[..., Any], start_dag: Callable[..., Any]
) -> None:
    url = stack.catalog_url
    assert catalog.get_table(GOOD).is_iceberg
    for number in (8, 9, 10, 11, 12):
        append(url, [number], GOOD)
    before = iceberg_rows(url, GOOD)
    form = {"tables": [GOOD], "older_than_days": 0}
    said = run_dag(MAINTAIN, form).result("summarise")
    assert [row["outcome"] for row in said] == ["would be run"] * 2
    expiring = start_dag(MAINTAIN, {**form, "dry_run": False})
    assert expiring.question()[0] == "Delete files of 1 Iceberg table(s)?"
    expiring.answer("Approve")
    said = expiring.wait().result("summarise")
    assert "'rewritten_data_files_count': 5, 'added_data_files_count': 1" in said[0]["outcome"]
    [deleted] = re.findall(r"'deleted_files_count': (\d+)", said[1]["outcome"])
    assert int(deleted) > 5  # the files that were put together, and metadata
    assert iceberg_rows(url, GOOD) == before
    assert len(before) == 12
