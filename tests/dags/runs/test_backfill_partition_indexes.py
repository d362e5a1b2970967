"""Indexes of several tables are built by a DAG and Spark; a failed one does not affect the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog import Catalog, IndexDefinition, IndexState, NewPartition
from catalog.errors import PartitionProblem
from catalog.operations.records import OperationState
from tests.support.unfit_values import unfit_values

pytestmark = [
    pytest.mark.long,
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
]

BACKFILL = "backfill_partition_indexes"
INDEX = "by_number"
FIRST, UNFIT, LAST, THERE, GONE = (f"backfill.{name}" for name in ("first", "unfit", "last", "there", "gone"))
FORM = {"tables": [FIRST, UNFIT, LAST, THERE, GONE], "indexes": [f"{INDEX}: number, source"]}
COUNT = 50


@pytest.fixture(scope="module")
def failed(catalog: Catalog, run_dag: Callable[..., Any]) -> Any:
    """The run over five tables: an invalid one between two to build, one with an index, and one that does not exist."""
    catalog.create_database("backfill")
    keys = [("source", "string"), ("number", "int")]
    for name in (FIRST, UNFIT, LAST, THERE):
        indexes = [IndexDefinition(INDEX, ("number", "source"))] if name == THERE else []
        catalog.create_table(name, columns=[("id", "int")], partition_keys=keys, indexes=indexes)
        catalog.add_partitions(name, (NewPartition(("s", str(number))) for number in range(COUNT)))
    with unfit_values():
        catalog.add_partitions(UNFIT, [NewPartition(("s", "many"))])
    return run_dag(BACKFILL, FORM, "failed")


def outcomes(run: Any) -> dict[str, str]:
    return {row["table"]: row["outcome"] for row in run.result("summarise")}


@pytest.mark.long
def test_tables_before_and_behind_the_failing_one_have_their_index(
    failed: Any, catalog: Catalog, items_of: Callable[..., Any]
) -> None:
    for table in (FIRST, LAST, THERE):
        assert catalog.get_partition_index(table, INDEX).state is IndexState.ACTIVE
        assert items_of(table, INDEX) == {partition.id: 1 for partition in catalog.get_partitions(table)}


def test_summary_says_what_became_of_each(failed: Any) -> None:
    said = outcomes(failed)
    assert list(said) == FORM["tables"]
    assert said[FIRST] == said[LAST] == "ACTIVE, built by this run"
    assert said[THERE] == "ACTIVE before"
    assert said[UNFIT].startswith(f"FAILED: {PartitionProblem.INVALID_TYPE}: ")
    assert "many" in said[UNFIT]
    assert said[GONE].startswith("not created: TableNotFoundError: ")


def test_log_shows_the_table_and_names_what_failed(failed: Any) -> None:
    log = failed.log("summarise")
    assert "| table | index | keys | outcome |" in log
    assert f"| {FIRST} | {INDEX} | number, source | ACTIVE, built by this run |" in log
    assert "2 of 5 failed" in log
    assert f"partition index {INDEX} of {UNFIT}: FAILED" in log


def test_each_table_has_tasks_of_its_own_under_its_name(failed: Any) -> None:
    expected = {("plan", None): "success", ("summarise", None): "failed"}
    for table, build, wait in (
        (FIRST, "success", "success"),
        (UNFIT, "success", "failed"),
        (LAST, "success", "success"),
        (GONE, "failed", "upstream_failed"),
    ):
        expected[("build", table)] = build
        # Tasks that never ran are named by their index.
        expected[("wait_until_active", "3" if table == GONE else table)] = wait
    assert failed.named_states() == expected


@pytest.mark.long
def test_second_run_builds_only_what_is_missing(failed: Any, catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    # A value that is not a number is compared as null.
    assert catalog.drop_partitions(UNFIT, "number is null") == 1
    run = run_dag(BACKFILL, {**FORM, "tables": [FIRST, UNFIT, LAST, THERE]})
    assert outcomes(run) == {
        FIRST: "ACTIVE before",
        UNFIT: "ACTIVE, built by this run",
        LAST: "ACTIVE before",
        THERE: "ACTIVE before",
    }
    assert [name for task, name in run.named_states() if task == "build"] == [UNFIT]
    (operation,) = [each for each in catalog.operations.list(UNFIT) if each.id.startswith(run.operation_id)]
    assert operation.state is OperationState.CLEANED


def test_run_with_nothing_to_build_succeeds(failed: Any, run_dag: Callable[..., Any]) -> None:
    run = run_dag(BACKFILL, {**FORM, "tables": [THERE]})
    assert outcomes(run) == {THERE: "ACTIVE before"}
    assert run.states() == {
        "plan": "success",
        "build": "skipped",
        "wait_until_active": "skipped",
        "summarise": "success",
    }


def test_form_that_cannot_be_read_fails_the_plan_at_once(run_dag: Callable[..., Any]) -> None:
    run = run_dag(BACKFILL, {"tables": ["backfill.unlisted"]}, "failed")
    assert "has no indexes for backfill.unlisted" in run.log("plan")
    assert (run.tries("plan"), run.states()["summarise"]) == (1, "failed")
