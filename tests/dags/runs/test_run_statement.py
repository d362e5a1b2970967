"""Statements run by a DAG: in the catalog, and as a Spark job. Deletions, which a person approves, need a scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog import Catalog
from catalog.operations.records import OperationState
from tests.support.delays import make_delays, read_delays, row_counts

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
]

RUN = "run_statement"
TABLE, JOB = "statement.delays", "run_statement"


@pytest.fixture(scope="module", autouse=True)
def delays(catalog: Catalog) -> None:
    make_delays(catalog, TABLE)


def test_catalog_answers_without_spark(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    run = run_dag(RUN, {"statement": f"SHOW PARTITIONS {TABLE}"})
    assert run.states() == {"check": "success", "approve": "skipped", "run": "success"}
    assert run.result("run")["rows"][2][:2] == ["2, 0 <= delay < 30", 300]
    assert "| 2, 0 <= delay < 30 | 300 |" in run.log("run")
    assert catalog.operations.get_job(run.operation_id, JOB) is None


def test_error_fails_the_run_at_once_and_shows_the_place(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    run = run_dag(RUN, {"statement": f"ALTER TABLE {TABLE} MERGE PARTITION (1, 9)"}, "failed")
    assert run.tries("run") == 1
    log = run.log("run")
    assert "PartitionNotFoundError: there is no partition 9" in log
    assert "MERGE PARTITION (1, 9)" in log
    assert any(line.strip() == "^" for line in log.splitlines())
    assert row_counts(catalog, TABLE) == {0: 100, 1: 200, 2: 300, 3: 300}


@pytest.mark.long
def test_rows_are_added_by_spark(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    run = run_dag(RUN, {"statement": f"INSERT INTO {TABLE} VALUES (1000, 5), (1001, 40);"})
    assert [row for row in read_delays(catalog, TABLE) if row[0] >= 1000] == [(1000, 5), (1001, 40)]
    assert run.result("run") == {"columns": ["rows"], "rows": [[2]], "limited": False}
    assert catalog.operations.get(run.operation_id).state is OperationState.CLEANED
