"""Partitions are changed by a DAG and Spark. Deletions, which a person approves, and kills need a scheduler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from catalog.operations.dry_runs import plan_of
from catalog.operations.records import OperationState
from catalog.rebalancing.rebalancing import REWRITE
from tests.support.delays import make_delays, read_delays, row_counts

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
]

REBALANCE = "rebalance_partitions"
SPLIT = {"operation": "split", "partition_ids": [2], "items": ["15", "30"]}
BEFORE = {0: 100, 1: 200, 2: 300, 3: 300}


def test_rows_of_a_split_are_those_of_before(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    table = "rebalance.split"
    make_delays(catalog, table)
    run = run_dag(REBALANCE, {"table": table, **SPLIT, "dry_run": False})
    assert {task for task, state in run.states().items() if state == "skipped"} == {"approve"}
    assert row_counts(catalog, table) == {0: 100, 1: 200, 4: 150, 5: 150, 3: 300}
    assert read_delays(catalog, table) == [(number, number % 90 - 20) for number in range(900)]
    assert {delay for _, delay in read_delays(catalog, table, "_partition_id = 5")} == set(range(15, 30))
    said = run.result("summarise")
    assert (said["rows_moved"], said["approved_by"]) == (300, None)
    assert "| 5 | 15 <= delay < 30 | - → 150 |" in run.log("summarise")
    assert run.result("verify")["rows"] == 300
    assert catalog.operations.get(run.operation_id).state is not OperationState.RUNNING


@pytest.mark.long
def test_change_of_the_catalog_alone_needs_no_spark(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    table = "rebalance.merge"
    make_delays(catalog, table)
    run = run_dag(REBALANCE, {"table": table, "operation": "merge", "partition_ids": [1, 2], "dry_run": False})
    skipped = {task for task, state in run.states().items() if state == "skipped"}
    assert skipped == {"approve", "rewrite", "verify"}
    assert row_counts(catalog, table) == {0: 100, 4: 500, 3: 300}
    folder = catalog.operations.get(run.operation_id).folder
    assert not list(Path(catalog.get_table(table).location).glob(f"{folder}-*"))


def test_dry_run_shows_the_plan_and_changes_nothing(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    table = "rebalance.dry"
    make_delays(catalog, table)
    run = run_dag(REBALANCE, {"table": table, **SPLIT})
    assert {task for task, state in run.states().items() if state == "success"} == {"plan"}
    assert run.result("plan")["rows_moved"] == 300
    assert "partition 2 (0 <= delay < 30): 300 rows" in run.log("plan")
    assert row_counts(catalog, table) == BEFORE
    # The journal keeps the plan for the page of the run; no job has begun.
    operation = catalog.operations.get(run.operation_id)
    plan = plan_of(operation)
    assert plan is not None
    assert (plan["rows_moved"], operation.is_committed) == (300, False)
    assert catalog.operations.get_job(operation.id, REWRITE) is None


@pytest.mark.long
def test_wrong_field_fails_the_plan_at_once(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    table = "rebalance.wrong"
    make_delays(catalog, table)
    run = run_dag(REBALANCE, {"table": table, **SPLIT, "items": ["15", "29"], "dry_run": False}, "failed")
    assert run.tries("plan") == 1
    assert "items: BoundOutsideRangeError" in run.log("plan")
    assert row_counts(catalog, table) == BEFORE
