"""Heartbeats of attempts that end, or are cancelled, while one is sent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from catalog import Catalog
from catalog.errors import FencedError, PlanConflictError
from catalog.operations.job_requests import JobRequest
from catalog.operations.records import JobState, OperationKind, OperationState
from tests.support.iceberg_tables import sql_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The recorded exit codes of the process, with frequent heartbeats."""
    from spark_jobs.sessions import session

    codes: list[int] = []
    monkeypatch.setattr(session, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited for two minutes"
        time.sleep(0.01)


def begin(catalog: Catalog) -> JobRequest:
    catalog.operations.begin("load", OperationKind.APPEND_ROWS, "demo.flights")
    attempt = catalog.operations.start_job("load", "commit")
    return JobRequest(operation_id="load", step="commit", attempt=attempt, table="demo.flights")


@on_sqlite
@pytest.mark.parametrize("ends_process", [True, False])
def test_a_process_that_has_committed_may_come_to_its_end(
    catalog: Catalog, exits: list[int], ends_process: bool
) -> None:
    from spark_jobs.sessions.session import Heartbeat

    request = begin(catalog)
    with Heartbeat(catalog, request, ends_process=ends_process) as life:
        catalog.operations.finish_job("load", "commit", request.attempt, {"rows": 1})
        # The thread ends at the first refused heartbeat.
        wait_for(lambda: not life._thread.is_alive())
    assert exits == []


@on_sqlite
def test_a_process_that_was_cancelled_ends_at_once(catalog: Catalog, exits: list[int]) -> None:
    from spark_jobs.sessions.session import Heartbeat

    request = begin(catalog)

    def be_cancelled() -> None:
        with Heartbeat(catalog, request, ends_process=True):
            second = catalog.operations.start_job("load", "commit")
            catalog.operations.finish_job("load", "commit", second, {"rows": 1})
            # The process continues, because the exit is only recorded.
            wait_for(lambda: bool(exits))

    with pytest.raises(FencedError):
        be_cancelled()
    assert exits[:1] == [1]


@on_sqlite
def test_an_attempt_records_its_application_once_it_runs(catalog: Catalog, spark: SparkSession) -> None:
    from spark_jobs.sessions.session import Heartbeat

    with Heartbeat(catalog, begin(catalog)) as life:
        assert catalog.operations.jobs_of("load")[0].spark_application is None
        with life.watching(spark):
            life.require()
        life.require()
    (job,) = catalog.operations.jobs_of("load")
    assert job.spark_application == spark.sparkContext.applicationId
    assert job.spark_ui == spark.sparkContext.uiWebUrl


def test_a_users_process_survives_a_fenced_attempt(catalog: Catalog, spark: SparkSession, exits: list[int]) -> None:
    """Only its Spark jobs are cancelled, not those of others in the same session."""
    from pyspark import InheritableThread

    from spark_jobs.sessions.session import attempt_here

    context = spark.sparkContext
    # A task that notices its cancellation: a sleeping one would keep its core.
    endless = spark.range(0, 10**15, 1, numPartitions=1).where("id < 0")
    cancelled: list[Exception] = []
    # Other tests may have left a stage that Spark still counts as active.
    before = set(context.statusTracker().getActiveStageIds())

    def run_other() -> None:
        context.addJobTag("other")
        try:
            endless.collect()
        except Exception as error:
            cancelled.append(error)

    def active() -> int:
        return len(set(context.statusTracker().getActiveStageIds()) - before)

    other = InheritableThread(target=run_other)
    other.start()
    wait_for(lambda: active() == 1)
    operation = catalog.operations.begin("load", OperationKind.APPEND_ROWS, "demo.flights")

    def cancel() -> None:
        wait_for(lambda: active() == 2)
        catalog.operations.fail("load", "CANCELLED", "cancelled by a test")

    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    with pytest.raises(FencedError), attempt_here(catalog, operation, "commit"):
        endless.collect()
    cancelling.join()
    wait_for(lambda: active() == 1)
    assert cancelled == []
    context.cancelJobsWithTag("other")
    other.join()
    assert len(cancelled) == 1
    assert exits == []
    assert catalog.operations.get("load").state is OperationState.FAILED
    assert spark.range(3).count() == 3


@on_sqlite
def test_the_recorded_error_of_a_write_has_its_causes_and_no_stack(
    catalog: Catalog, spark: SparkSession, tmp_path: Path
) -> None:
    from spark_jobs.sessions.session import attempt_here

    operation = catalog.operations.begin("load", OperationKind.APPEND_ROWS, "demo.flights")
    # No file system has folders with names as long as this key's.
    rows = spark.range(1).selectExpr("id", "repeat('x', 300) AS key")
    with pytest.raises(Exception, match=r"\tat "), attempt_here(catalog, operation, "commit"):
        rows.write.partitionBy("key").parquet(f"{tmp_path}/rows")
    message = catalog.operations.get("load").failure_detail
    assert message is not None
    assert "Task failed while writing rows" in message
    assert "\nCaused by: java.io.IOException: " in message
    assert "\tat " not in message


@on_sqlite
@pytest.mark.parametrize("is_overtaken", [True, False])
def test_a_file_that_an_engine_has_deleted_since_it_was_planned_is_a_conflict(
    catalog: Catalog, catalog_url: str, spark: SparkSession, tmp_path: Path, is_overtaken: bool
) -> None:
    from spark_jobs.sessions.session import attempt_here

    catalog.create_database("demo")
    catalog.create_table("demo.t", columns=[("v", "int")], format="iceberg", partition_keys=[("c", "int")])
    spark.range(3).write.parquet(f"{tmp_path}/rows")
    planned = spark.read.parquet(f"{tmp_path}/rows")
    for file in (tmp_path / "rows").glob("*.parquet"):
        file.unlink()
    operation = catalog.operations.begin("change", OperationKind.CHANGE_ROWS, "demo.t", is_exclusive=True)
    expected = "files that were still being read" if is_overtaken else "NOT_EXIST|FileNotFoundException"

    def read() -> None:
        if is_overtaken:
            with sql_catalog(catalog_url) as iceberg:
                values = pa.array([1], pa.int32())
                iceberg.load_table("demo.t").append(pa.table({"v": values, "c": values}))
        planned.collect()

    with pytest.raises(Exception, match=expected) as caught, attempt_here(catalog, operation, "change_rows"):
        read()
    assert isinstance(caught.value, PlanConflictError) is is_overtaken


SECRET = "planted-90210-secret"

RUN = """
import sys
from catalog.operations.job_requests import RunStatementJob
from spark_jobs.run_statement import run_statement
from spark_jobs.sessions.session import run_job
sys.exit(sum(run_job(RunStatementJob, run_statement, [name, "run_statement", "1"]) for name in sys.argv[1:]))
"""


@pytest.mark.long
@on_sqlite
def test_the_log_of_a_job_has_no_text_literal_of_its_statement(catalog: Catalog) -> None:
    catalog.create_database("demo")
    catalog.create_table("demo.flights", columns=[("id", "int"), ("name", "string")])
    statements = {
        f"SELECT missing, '{SECRET}' FROM demo.flights": "function parameter with name `missing` cannot be resolved",
        f"SELECT '{SECRET}' FRM demo.flights WHERE (": "Syntax error at or near",
    }
    names = [f"run_statement/{number}" for number in range(len(statements))]
    for name, statement in zip(names, statements, strict=True):
        catalog.operations.begin(name, OperationKind.RUN_STATEMENT, "demo.flights")
        request = {"operation_id": name, "step": "run_statement", "table": "demo.flights", "statements": statement}
        catalog.operations.start_job(name, "run_statement", request=request)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "CALVE_CATALOG_URL": str(catalog.storage.url), "PYTHONPATH": str(root)}
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *names],
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ended.returncode == len(statements), ended.stderr
    for number, message in enumerate(statements.values()):
        assert message in ended.stderr
        run = catalog.operations.get_job(f"run_statement/{number}", "run_statement")
        assert run is not None
        assert (run.state, run.error_class) == (JobState.FAILED, "InvalidQueryError")
        assert message in str(run.error_message)
    assert SECRET not in ended.stdout + ended.stderr
