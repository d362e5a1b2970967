"""Tasks that wait for Spark jobs without a worker, and outages of the catalog meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout, TaskDeferred
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.serde import deserialize, serialize

from calve_airflow.catalog_access import SparkJobLostError
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.submitting import attempts
from calve_airflow.submitting.job_process import JobProcess
from calve_airflow.triggers.spark_jobs import SparkJobTrigger
from catalog import Catalog
from catalog.errors import CatalogUnavailableError, InvalidConfigurationError
from catalog.operations.records import JobState, OperationKind
from catalog.settings.environment import job_patience
from standalone.postgres import PostgresServer
from tests.plugins.operators.test_spark_job import OPERATION, Jobs, context, wait_until
from tests.plugins.operators.test_spark_job import catalog as catalog
from tests.plugins.operators.test_spark_job import jobs as jobs

FINISHES_WHEN_ALLOWED = """
    print("started")
    if request["attempt"] == 1:
        wait_for("go")
    print("finished")
    catalog.operations.finish_job(*attempt, {"attempt": request["attempt"]})
"""


def passed_through_airflow(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as they are after Airflow has stored them for a deferred task."""
    stored: dict[str, Any] = deserialize(json.loads(json.dumps(serialize(values))))
    return stored


class Deferred:
    """A task that was deferred, its trigger as the triggerer recreates it, and what it resumes with."""

    def __init__(self, task: SparkJobOperator, run: Callable[[], object]) -> None:
        with pytest.raises(TaskDeferred) as deferred:
            run()
        self.task = task
        path, arguments = deferred.value.trigger.serialize()
        assert path == "calve_airflow.triggers.spark_jobs.SparkJobTrigger"
        self.trigger = SparkJobTrigger(**passed_through_airflow(arguments))
        self.values = passed_through_airflow(deferred.value.kwargs or {})
        assert deferred.value.method_name == "resume"

    def event(self) -> dict[str, Any]:
        """Wait in a triggerer."""
        event = asyncio.run(asyncio.wait_for(anext(aiter(self.trigger.run())), 120))
        payload: dict[str, Any] = event.payload
        return payload

    def resume(self) -> Any:
        """Continue in a new process of the task."""
        return self.task.resume(context(), self.event(), **self.values)


def defer(jobs: Jobs, **changes: Any) -> Deferred:
    """Defer a task that follows a job, and return it as another process sees it."""
    task = jobs.task(deferrable=True, **changes)
    deferred = Deferred(task, lambda: task.execute(context()))
    deferred.task = jobs.task(deferrable=True, **changes)
    wait_until(jobs.is_running)
    return deferred


class TestDeferral:
    """Tasks that wait for their job in the triggerer."""

    def test_a_deferred_task_returns_the_result_of_its_job(
        self, jobs: Jobs, capsys: pytest.CaptureFixture[str]
    ) -> None:
        jobs.write(FINISHES_WHEN_ALLOWED)
        deferred = defer(jobs)
        jobs.allow("go")
        assert deferred.resume() == {"attempt": 1}
        assert jobs.runs == [1]
        shown = capsys.readouterr().out
        assert [shown.count(text) for text in ("started", "finished")] == [1, 1]

    def test_the_default_is_that_of_airflow(self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not jobs.task().deferrable
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
        assert jobs.task().deferrable
        assert not jobs.task(deferrable=False).deferrable

    def test_a_deferred_task_raises_the_error_of_its_job(self, jobs: Jobs) -> None:
        jobs.write("wait_for('go'); catalog.operations.fail_job(*attempt, 'SourceFileError', 'line 7'); sys.exit(1)")
        deferred = defer(jobs)
        jobs.allow("go")
        with pytest.raises(AirflowFailException, match="SourceFileError: line 7"):
            deferred.resume()

    @pytest.mark.long
    def test_a_job_that_is_killed_while_its_task_is_deferred_is_submitted_again_in_the_same_try(
        self, jobs: Jobs
    ) -> None:
        jobs.write(FINISHES_WHEN_ALLOWED)
        request = {**jobs.arguments()["request"], "table": "{{ not rendered }}"}
        deferred = defer(jobs)
        # As the subclasses, which set these in `prepare`.
        deferred.values["settings"]["request"] = request
        assert jobs.row is not None
        JobProcess(Path(str(jobs.row.log_path))).terminate(grace_seconds=0)
        again = Deferred(deferred.task, deferred.resume)
        assert again.trigger.attempt.resubmitted == 1
        assert again.resume() == {"attempt": 2}
        assert jobs.runs == [1, 2]

    def test_a_job_that_is_lost_more_often_than_allowed_fails_the_try(self, jobs: Jobs) -> None:
        jobs.write("wait_for('never')")
        deferred = defer(jobs, resubmissions=0)
        assert jobs.row is not None
        JobProcess(Path(str(jobs.row.log_path))).terminate(grace_seconds=0)
        with pytest.raises(SparkJobLostError, match=r"attempt 1 .* is lost: .*exit code unknown"):
            deferred.resume()

    def test_a_job_of_another_host_is_lost_when_it_falls_silent(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs.write(FINISHES_WHEN_ALLOWED)
        jobs.catalog.operations.start_job(OPERATION, "step_one", log_path="/on/another/host/log")
        task = jobs.task(deferrable=True)
        deferred = Deferred(task, lambda: task.execute(context()))
        job = jobs.row
        assert job is not None
        assert not deferred.trigger.is_over(job)
        monkeypatch.setattr(attempts, "QUEUED_SECONDS", 0)
        assert deferred.trigger.is_over(job)
        assert Deferred(task, deferred.resume).resume() == {"attempt": 2}

    def test_the_trigger_fires_when_another_attempt_replaced_its_own(self, jobs: Jobs) -> None:
        jobs.write(FINISHES_WHEN_ALLOWED)
        deferred = defer(jobs)
        jobs.catalog.operations.start_job(OPERATION, "step_one", log_path="/on/another/host/log")
        with pytest.raises(SparkJobLostError, match="another attempt replaced attempt 1"):
            deferred.resume()

    @pytest.mark.long
    def test_the_timeout_of_the_task_includes_the_time_in_the_triggerer(self, jobs: Jobs) -> None:
        jobs.write("wait_for('never')")
        deferred = defer(jobs, execution_timeout=timedelta(seconds=5))
        began = time.time()
        with pytest.raises(AirflowTaskTimeout, match="ran for longer than 0:00:05"):
            deferred.resume()
        assert time.time() - began < 60
        assert jobs.row is not None
        assert (jobs.row.state, jobs.row.error_class) == (JobState.FAILED, "CANCELLED")
        assert not JobProcess(Path(str(jobs.row.log_path))).is_alive()

    @pytest.mark.parametrize(("state", "is_cancelled"), [("failed", True), (None, True), ("deferred", False)])
    def test_a_user_who_ends_the_task_cancels_the_job_and_another_triggerer_does_not(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, state: str | None, is_cancelled: bool
    ) -> None:
        asked: list[dict[str, Any]] = []

        def get_task_states(**query: Any) -> dict[str, dict[str, str | None]]:
            asked.append(query)
            return {query["run_ids"][0]: {f"{query['task_ids'][0]}_{query['map_index']}": state}}

        monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", get_task_states)
        jobs.write("wait_for('never')")
        deferred = defer(jobs)
        instance: Any = SimpleNamespace(dag_id="demo", run_id="manual", task_id="task", map_index=3)
        deferred.trigger.task_instance = instance
        asyncio.run(deferred.trigger.on_kill())
        assert asked == [{"dag_id": "demo", "task_ids": ["task"], "run_ids": ["manual"], "map_index": 3}]
        assert jobs.row is not None
        assert jobs.row.is_alive is not is_cancelled
        assert JobProcess(Path(str(jobs.row.log_path))).is_alive() is not is_cancelled

    @pytest.mark.long
    @pytest.mark.airflow
    @pytest.mark.filterwarnings("ignore")  # Airflow's own
    def test_a_dag_run_defers_and_resumes(
        self, jobs: Jobs, load_dag: Callable[[str, str], DAG], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs.write("time.sleep(1); catalog.operations.finish_job(*attempt, {'rows': 3})")
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
        dag = load_dag(DEFERRING_DAG.format(jobs.arguments()), "deferring")
        with mock.patch.object(SparkJobTrigger, "run", autospec=True, side_effect=SparkJobTrigger.run) as run:
            assert dag.test().state == "success"
        assert run.call_count == 1
        assert jobs.runs == [1]


DEFERRING_DAG = """\
from airflow.sdk import DAG, task
from calve_airflow.operators.spark_job import SparkJobOperator

with DAG("deferring", schedule=None):

    @task
    def check(result):
        assert result == {{"rows": 3}}, result

    check(SparkJobOperator(task_id="run", **{}).output)
"""


class TestOutage:
    """The catalog's server stops and starts again while a job runs."""

    @pytest.fixture
    def catalog(self, stoppable_catalog: Catalog) -> Catalog:
        stoppable_catalog.operations.begin(OPERATION, OperationKind.ADD_PARTITIONS, "demo.flights")
        return stoppable_catalog

    @pytest.mark.long
    def test_a_task_follows_its_job_through_the_outage(
        self, jobs: Jobs, stoppable_server: PostgresServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        jobs.write(
            """
            from catalog.operations.patience import patiently
            (Path(request["folder"]) / "started").touch()
            wait_for("stopped")
            patiently(lambda: catalog.operations.finish_job(*attempt, {"rows": 3}), "the job")
            """
        )

        def interrupt() -> None:
            while not (jobs.folder / "started").exists():
                time.sleep(0.02)
            stoppable_server.stop()
            jobs.allow("stopped")
            time.sleep(4)
            stoppable_server.start()

        outage = threading.Thread(target=interrupt)
        outage.start()
        try:
            assert jobs.task().execute(context()) == {"rows": 3}
        finally:
            outage.join()
        assert jobs.runs == [1]
        assert "the task of Spark job step_one waits for the catalog" in caplog.text

    @pytest.mark.long
    def test_a_task_that_starts_in_an_outage_waits_for_its_end(
        self, jobs: Jobs, stoppable_server: PostgresServer
    ) -> None:
        jobs.write("catalog.operations.finish_job(*attempt, {'rows': 3})")
        stoppable_server.stop()
        end = threading.Timer(3, stoppable_server.start)
        end.start()
        try:
            assert jobs.task().execute(context()) == {"rows": 3}
        finally:
            end.join()
        assert jobs.runs == [1]

    @pytest.mark.long
    def test_a_task_gives_up_after_its_patience(
        self, jobs: Jobs, stoppable_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CALVE_JOB_PATIENCE_SECONDS", "1")
        jobs.write('(Path(request["folder"]) / "started").touch(); wait_for("end")')

        def stop() -> None:
            while not (jobs.folder / "started").exists():
                time.sleep(0.02)
            stoppable_server.stop()

        stopping = threading.Thread(target=stop)
        stopping.start()
        try:
            with pytest.raises(CatalogUnavailableError, match="cannot be reached"):
                jobs.task().execute(context())
        finally:
            stopping.join()
            stoppable_server.start()
        # The job is healthy: nobody has fenced it, and the next try joins it.
        assert jobs.is_running()
        jobs.allow("end")


def test_a_wrong_patience_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_JOB_PATIENCE_SECONDS", "soon")
    with pytest.raises(InvalidConfigurationError, match="CALVE_JOB_PATIENCE_SECONDS is 'soon'"):
        job_patience()
