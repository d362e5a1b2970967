"""Statements run through Airflow: in the catalog, by Spark, and deletions with a person's approval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog import Catalog
from catalog.operations.records import OperationState
from standalone.errors import AirflowApiError
from tests.support.delays import make_delays, read_delays, row_counts
from tests.support.killing import kill_task, wait_until_running

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

RUN = "run_statement"
TABLE, DROPPED, SPARED = "statement.delays", "statement.dropped", "statement.spared"
JOB = "run_statement"

on_postgresql = pytest.mark.parametrize("stack", ["postgresql"], indirect=True)
"""For tests that do not depend on the catalog's database."""


@pytest.fixture(scope="module")
def runs(stack: Any, catalog: Catalog, start_dag: Callable[..., Any]) -> dict[str, Any]:
    """Concurrent runs; on one database, the task of the INSERT is killed while its job runs."""
    for table in (TABLE, DROPPED, SPARED):
        make_delays(catalog, table)

    def start(statement: str) -> Any:
        return start_dag(RUN, {"statement": statement})

    runs = {
        "insert": start(f"INSERT INTO {TABLE} VALUES (1000, 5), (1001, 40);"),
        "show": start(f"SHOW PARTITIONS {SPARED}"),
        "drop": start(f"ALTER TABLE {DROPPED} DROP PARTITION (2) WITH DATA"),
    }
    if catalog.storage.is_postgresql:
        runs["purge"] = start(f"DROP TABLE {SPARED} PURGE")
        runs["wrong"] = start(f"ALTER TABLE {SPARED} MERGE PARTITION (1, 9)")
        wait_until_running(catalog, runs["insert"], JOB)
        kill_task(runs["insert"], stack, "run")
        runs["purge"].answer("Reject")
    runs["drop"].answer("Approve")
    return runs


def test_catalog_answers_without_spark(runs: dict[str, Any], catalog: Catalog) -> None:
    run = runs["show"].wait()
    assert run.result("run")["rows"][2][:2] == ["2, 0 <= delay < 30", 300]
    assert "| 2, 0 <= delay < 30 | 300 |" in run.log("run", is_aligned=False)
    assert catalog.operations.get_job(run.operation_id, JOB) is None


def test_rows_are_added_once(runs: dict[str, Any], catalog: Catalog) -> None:
    run = runs["insert"].wait()
    assert [row for row in read_delays(catalog, TABLE) if row[0] >= 1000] == [(1000, 5), (1001, 40)]
    assert run.result("run") == {"columns": ["rows"], "rows": [[2]], "limited": False}
    assert catalog.operations.get(run.operation_id).state is OperationState.CLEANED


@on_postgresql
def test_task_that_was_killed_joined_its_job(runs: dict[str, Any], catalog: Catalog) -> None:
    run = runs["insert"].wait()
    job = catalog.operations.get_job(run.operation_id, JOB)
    assert job is not None
    assert (run.tries("run"), job.attempt) == (2, 1)


def test_approved_deletion_is_carried_out(runs: dict[str, Any], catalog: Catalog) -> None:
    runs["drop"].wait()
    assert row_counts(catalog, DROPPED) == {0: 100, 1: 200, 3: 300}


@on_postgresql
def test_rejected_deletion_changes_nothing(runs: dict[str, Any], catalog: Catalog) -> None:
    assert runs["purge"].wait().states() == {"check": "success", "approve": "success", "run": "skipped"}
    assert row_counts(catalog, SPARED) == {0: 100, 1: 200, 2: 300, 3: 300}


@on_postgresql
def test_error_fails_the_run_at_once_and_shows_the_place(runs: dict[str, Any]) -> None:
    run = runs["wrong"].wait("failed")
    assert run.tries("run") == 1
    log = run.log("run")
    assert "PartitionNotFoundError: there is no partition 9" in log
    assert "MERGE PARTITION (1, 9)" in log
    assert any(line.strip() == "^" for line in log.splitlines())


@on_postgresql
def test_form_needs_a_statement(start_dag: Callable[..., Any]) -> None:
    with pytest.raises(AirflowApiError) as refused:
        start_dag(RUN, {"statement": ""})
    assert refused.value.status == 400
