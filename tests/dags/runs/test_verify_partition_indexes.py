"""Damaged indexes are found, reported and repaired by a DAG and Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from catalog import Catalog, IndexDefinition, NewPartition

pytestmark = [
    pytest.mark.long,
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
]

VERIFY = "verify_partition_indexes"
INDEX = "by_number"
EXACT, DAMAGED, WITHOUT = (f"verify.{name}" for name in ("exact", "damaged", "without"))
TABLES = [EXACT, DAMAGED, WITHOUT]
COUNT = 50


@pytest.fixture(scope="module")
def found(catalog: Catalog, run_dag: Callable[..., Any]) -> Any:
    """The run that found a partition without an item, one with a wrong item, and an item without a partition."""
    catalog.create_database("verify")
    for name in TABLES:
        indexes = [] if name == WITHOUT else [IndexDefinition(INDEX, ("number",))]
        catalog.create_table(name, columns=[("id", "int")], partition_keys=[("number", "int")], indexes=indexes)
        catalog.add_partitions(name, (NewPartition((str(number),)) for number in range(COUNT)))
    index_id = catalog.get_partition_index(DAMAGED, INDEX).id
    taken, moved = (catalog.get_partition(DAMAGED, (number,)).id for number in ("7", "8"))
    with catalog.storage.write() as connection:
        for statement in (
            f"DELETE FROM calve_index_item WHERE index_id = {index_id} AND partition_id = {taken}",
            f"INSERT INTO calve_index_item (index_id, key, partition_id) VALUES ({index_id}, :key, {moved + 100_000})",
            f"UPDATE calve_index_item SET key = :key WHERE index_id = {index_id} AND partition_id = {moved}",
        ):
            connection.execute(text(statement), {"key": b"\x01\xff"} if ":key" in statement else {})
    return run_dag(VERIFY, {"tables": TABLES}, "failed")


def rows(run: Any) -> dict[str, dict[str, Any]]:
    return {row["table"]: row for row in run.result("summarise")}


@pytest.mark.long
def test_run_fails_and_says_where_and_how_to_repair(found: Any) -> None:
    log = found.log("summarise")
    assert "1 of 2 failed" in log
    assert f"partition index {INDEX} of {DAMAGED} has 3 difference(s)" in log
    assert f"calve verify {DAMAGED} {INDEX} --repair" in log
    assert f"| {EXACT} | {INDEX} | exact | {COUNT} | {COUNT} | 0 | 0 | 0 | 0 | |" in log


def test_counts_are_those_of_the_damage(found: Any) -> None:
    said = rows(found)
    assert list(said) == [EXACT, DAMAGED]
    damaged = {name: said[DAMAGED][name] for name in ("outcome", "missing", "wrong", "superfluous", "repaired")}
    assert damaged == {"outcome": "DIFFERS", "missing": 1, "wrong": 1, "superfluous": 1, "repaired": None}
    assert said[EXACT]["outcome"] == "exact"


def test_only_the_task_of_the_damaged_index_failed(found: Any) -> None:
    states = {name: state for (task, name), state in found.named_states().items() if task == "verify"}
    assert states == {f"{EXACT} {INDEX}": "success", f"{DAMAGED} {INDEX}": "failed"}


def test_report_is_kept_with_the_operation(found: Any, catalog: Catalog) -> None:
    (operation,) = catalog.operations.list(DAMAGED)
    assert operation.id == f"{found.operation_id}/{DAMAGED}/{INDEX}"
    differences = operation.report["verify_partition_index"]["differences"]
    assert {each["kind"]: each["values"] for each in differences} == {
        "MISSING": ["7"],
        "WRONG": ["8"],
        "SUPERFLUOUS": None,
    }


@pytest.mark.long
def test_repair_makes_the_index_exact(
    found: Any, catalog: Catalog, run_dag: Callable[..., Any], items_of: Callable[..., Any]
) -> None:
    run = run_dag(VERIFY, {"tables": [DAMAGED], "repair": True})
    assert (rows(run)[DAMAGED]["outcome"], rows(run)[DAMAGED]["repaired"]) == ("repaired", 3)
    assert items_of(DAMAGED, INDEX) == {partition.id: 1 for partition in catalog.get_partitions(DAMAGED)}
    assert catalog.verify_partition_index(DAMAGED, INDEX).is_exact


def test_run_without_an_index_to_verify_succeeds(found: Any, run_dag: Callable[..., Any]) -> None:
    run = run_dag(VERIFY, {"tables": [WITHOUT]})
    assert run.states() == {"plan": "success", "verify": "skipped", "summarise": "success"}
    assert "There was nothing to do." in run.log("summarise")


def test_unknown_table_fails_the_plan_at_once(run_dag: Callable[..., Any]) -> None:
    run = run_dag(VERIFY, {"tables": ["verify.nothing"]}, "failed")
    assert "TableNotFoundError" in run.log("plan")
    assert run.tries("plan") == 1
