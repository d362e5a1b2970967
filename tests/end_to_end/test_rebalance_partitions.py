"""Partitions are changed through Airflow and Spark; deletions need a person's approval.

All runs are concurrent, each on its own table.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.operations.dry_runs import plan_of
from catalog.operations.records import JobState, OperationState
from catalog.rebalancing.rebalancing import REWRITE
from standalone.errors import AirflowApiError
from tests.support.delays import load_delays, make_delays, read_delays, row_counts
from tests.support.killing import job_of, jvm_of, wait_until_running

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

REBALANCE = "rebalance_partitions"
SPLIT, DROPPED, SPARED, MOVING, FREE = (
    f"rebalance.{each}" for each in ("split", "dropped", "spared", "moving", "free")
)
DROP = {"operation": "drop", "partition_ids": [2], "with_data": True, "dry_run": False}
BEFORE = {0: 100, 1: 200, 2: 300, 3: 300}


on_postgresql = pytest.mark.parametrize("stack", ["postgresql"], indirect=True)
"""For tests that do not depend on the catalog's database."""


@dataclass
class Runs:
    """The runs, and the approval question of the deletion."""

    started: dict[str, Any]
    question: tuple[str, str] = ("", "")

    def __getattr__(self, name: str) -> Any:
        return self.started[name]


@pytest.fixture(scope="module")
def runs(stack: Stack, catalog: Catalog, start_dag: Callable[..., Any]) -> Runs:
    for table in (SPLIT, DROPPED, SPARED, MOVING, FREE):
        make_delays(catalog, table)

    def start(table: str, **form: Any) -> Any:
        return start_dag(REBALANCE, {"table": table, **form})

    split = {"operation": "split", "partition_ids": [2], "items": ["15", "30"]}
    runs = Runs({"split": start(SPLIT, **split, dry_run=False), "dropped": start(DROPPED, **DROP)})
    if catalog.storage.is_postgresql:
        runs.started |= {
            "spared": start(SPARED, **DROP),
            "moving": start(MOVING, **DROP),
            "free": start(FREE, operation="merge", partition_ids=[1, 2], dry_run=False),
            "dry": start(FREE, **split),
            "wrong": start(FREE, operation="split", partition_ids=[2], items=["15", "29"], dry_run=False),
        }
        wait_until_running(catalog, runs.split, REWRITE)
        os.killpg(jvm_of(runs.split.operation_id, REWRITE), signal.SIGKILL)
        runs.moving.question()
        load_delays(catalog, MOVING, [10] * 5)
        runs.spared.answer("Reject")
        runs.moving.answer("Approve")
    runs.question = runs.dropped.question()
    runs.dropped.answer("Approve")
    return runs


def test_rows_of_a_split_are_those_of_before(runs: Runs, catalog: Catalog) -> None:
    runs.split.wait()
    assert set(runs.split.states().values()) == {"success", "skipped"}
    assert row_counts(catalog, SPLIT) == {0: 100, 1: 200, 4: 150, 5: 150, 3: 300}
    assert read_delays(catalog, SPLIT) == [(number, number % 90 - 20) for number in range(900)]
    assert {delay for _, delay in read_delays(catalog, SPLIT, "_partition_id = 5")} == set(range(15, 30))


def test_run_says_what_was_moved(runs: Runs) -> None:
    said = runs.split.wait().result("summarise")
    assert (said["rows_moved"], said["approved_by"]) == (300, None)
    assert "| 5 | 15 <= delay < 30 | - → 150 |" in runs.split.log("summarise", is_aligned=False)
    assert runs.split.result("verify")["rows"] == 300


@on_postgresql
def test_killed_job_was_done_again_and_its_files_are_not_read(runs: Runs, catalog: Catalog) -> None:
    runs.split.wait()
    job = job_of(catalog, runs.split, REWRITE)
    assert job is not None
    assert (job.attempt, job.state) == (2, JobState.SUCCEEDED)
    assert runs.split.tries("rewrite") == 1
    folder = catalog.operations.get(runs.split.operation_id).folder
    folders = {file.path.partition("/")[0] for file in catalog.scan_files(SPLIT, "_partition_id in (4, 5)").files}
    assert folders == {f"{folder}-2"}


def test_deletion_is_carried_out_when_it_is_approved(runs: Runs, catalog: Catalog) -> None:
    subject, body = runs.question
    assert subject == f"Delete 300 rows of {DROPPED}?"
    assert "partition 2, `0 <= delay < 30`: 300 rows" in body
    assert "**admin** requests" in body
    said = runs.dropped.wait().result("summarise")
    assert (said["rows_deleted"], said["approved_by"]) == (300, "admin")
    assert row_counts(catalog, DROPPED) == {each: count for each, count in BEFORE.items() if each != 2}
    assert runs.dropped.states()["rewrite"] == "skipped"


@on_postgresql
def test_reject_ends_the_run_and_changes_nothing(runs: Runs, catalog: Catalog) -> None:
    states = runs.spared.wait().states()
    assert {task for task, state in states.items() if state == "skipped"} == states.keys() - {"plan", "approve"}
    assert row_counts(catalog, SPARED) == BEFORE
    assert catalog.operations.find(runs.spared.operation_id) is None


@on_postgresql
def test_approval_does_not_count_for_rows_that_came_later(runs: Runs, catalog: Catalog, stack: Stack) -> None:
    runs.moving.wait("failed")
    assert runs.moving.tries("rewrite") == 1
    assert "would delete 305 rows" in runs.moving.log("rewrite")
    assert row_counts(catalog, MOVING) == {**BEFORE, 2: 305}
    # For a cleared task, Airflow shows the first question, which is not about 305 rows.
    cleared = {"dag_run_id": runs.moving.id, "task_ids": ["plan"], "include_downstream": True, "dry_run": False}
    stack.api.post(f"/dags/{REBALANCE}/clearTaskInstances", {**cleared, "only_failed": False})
    runs.moving.wait("failed")
    assert "start the DAG again" in runs.moving.log("approve", runs.moving.tries("approve"))
    assert row_counts(catalog, MOVING) == {**BEFORE, 2: 305}


@on_postgresql
def test_change_of_the_catalog_alone_needs_no_spark(runs: Runs, catalog: Catalog) -> None:
    states = runs.free.wait().states()
    assert {task for task, state in states.items() if state == "skipped"} == {"approve", "rewrite", "verify"}
    assert row_counts(catalog, FREE) == {0: 100, 4: 500, 3: 300}
    folder = catalog.operations.get(runs.free.operation_id).folder
    assert not list(Path(catalog.get_table(FREE).location).glob(f"{folder}-*"))


@on_postgresql
def test_dry_run_shows_the_plan_and_changes_nothing(runs: Runs, catalog: Catalog) -> None:
    states = runs.dry.wait().states()
    assert {task for task, state in states.items() if state == "success"} == {"plan"}
    assert runs.dry.result("plan")["rows_moved"] == 300
    assert "partition 2 (0 <= delay < 30): 300 rows" in runs.dry.log("plan")
    # The journal keeps the plan for the page of the run; no job has begun.
    operation = catalog.operations.get(runs.dry.operation_id)
    plan = plan_of(operation)
    assert plan is not None
    assert (plan["rows_moved"], operation.is_committed) == (300, False)
    assert catalog.operations.get_job(operation.id, REWRITE) is None


@on_postgresql
def test_wrong_field_fails_the_plan_at_once(runs: Runs) -> None:
    runs.wrong.wait("failed")
    assert runs.wrong.tries("plan") == 1
    assert "items: BoundOutsideRangeError" in runs.wrong.log("plan")


@on_postgresql
@pytest.mark.parametrize(
    ("field", "value"), [("operation", "rename"), ("partition_ids", ["two"]), ("items", "15, 30"), ("table", "delays")]
)
def test_form_refuses_what_is_not_of_its_type(start_dag: Callable[..., Any], field: str, value: object) -> None:
    form = {"table": FREE, "operation": "drop", "partition_ids": [2], field: value}
    with pytest.raises(AirflowApiError) as refused:
        start_dag(REBALANCE, form)
    assert refused.value.status == 400
    assert field in str(refused.value)


def test_table_is_free_when_a_run_has_ended(runs: Runs, catalog: Catalog) -> None:
    for run in (runs.split, runs.dropped):
        assert catalog.operations.get(run.wait().operation_id).state is not OperationState.RUNNING
