"""Retries of tasks that run Spark jobs, and jobs that are lost, joined or repeated."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from calve_airflow.catalog_access import SparkJobFailedError, SparkJobLostError
from calve_airflow.operators import spark_job
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.submitting import attempts
from calve_airflow.submitting.job_process import JobProcess
from catalog import Catalog
from catalog.errors import OperationConflictError
from catalog.operations.records import JobRun, JobState
from tests.plugins.operators.test_spark_job import (
    OPERATION,
    Jobs,
    context,
    instead_of_waiting,
    kill_task_when,
    wait_until,
)
from tests.plugins.operators.test_spark_job import catalog as catalog
from tests.plugins.operators.test_spark_job import jobs as jobs


@pytest.mark.long
def test_a_retry_submits_a_failed_job_again(jobs: Jobs) -> None:
    jobs.write(
        """
        if request["attempt"] == 1:
            catalog.operations.fail_job(*attempt, "OSError", "no space left")
        else:
            catalog.operations.finish_job(*attempt, {"attempt": 2})
        """
    )
    with pytest.raises(SparkJobFailedError):
        jobs.task().execute(context())
    assert jobs.task().execute(context()) == {"attempt": 2}
    assert jobs.runs == [1, 2]


@pytest.mark.long
def test_a_retry_ends_the_job_that_was_cancelled_before_it_submits_another(jobs: Jobs) -> None:
    jobs.write(
        """
        if request["attempt"] == 1:
            wait_for("never")
        catalog.operations.finish_job(*attempt, {"attempt": request["attempt"]})
        """
    )
    kill_task_when(jobs, jobs.is_running, jobs.arguments())
    jobs.catalog.operations.fail(OPERATION, "ABANDONED", "no heartbeat")
    assert jobs.row is not None
    first = JobProcess(Path(str(jobs.row.log_path)))
    assert first.is_alive()
    assert jobs.task().execute(context()) == {"attempt": 2}
    assert not first.is_alive()


@pytest.mark.long
def test_a_repeated_task_takes_the_result_of_the_job_that_succeeded(jobs: Jobs) -> None:
    jobs.write("catalog.operations.finish_job(*attempt, {'rows': 3})")
    results = [jobs.task().execute(context()) for _ in range(2)]
    assert results == [{"rows": 3}] * 2
    assert jobs.runs == [1]


def test_an_index_build_is_counted_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []
    monkeypatch.setattr(spark_job, "_BUILD", "step_one")
    monkeypatch.setattr(spark_job, "count", lambda metric, **tags: counted.append((metric, tags)))
    jobs.write("catalog.operations.finish_job(*attempt, {})")
    for _ in range(2):
        jobs.task().execute(context())
    assert counted == [("calve.index_builds", {"table": "demo.flights"})]


@pytest.mark.long
def test_a_repeated_task_repeats_a_job_whose_result_is_outdated(jobs: Jobs) -> None:
    class OutdatedOperator(SparkJobOperator):
        def is_current(self, catalog: Catalog, job: JobRun) -> bool:
            return bool(job.attempt > 1)

    jobs.write("catalog.operations.finish_job(*attempt, {'rows': request['attempt']})")
    task = OutdatedOperator(task_id="task", **jobs.arguments())
    assert [task.execute(context()) for _ in range(3)] == [{"rows": 1}, {"rows": 2}, {"rows": 2}]
    assert jobs.runs == [1, 2]


def test_a_retry_joins_the_job_that_outlived_the_killed_task(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.write(
        """
        print("started")
        wait_for("go")
        catalog.operations.finish_job(*attempt, {'rows': 3})
        """
    )
    kill_task_when(jobs, jobs.is_running, jobs.arguments())
    retry = jobs.task()
    with instead_of_waiting(lambda: jobs.allow("go")):
        assert retry.execute(context()) == {"rows": 3}
    assert jobs.runs == [1]
    assert "started" in capsys.readouterr().out


@pytest.mark.long
def test_a_retry_joins_a_job_whose_task_was_killed_right_after_submitting(jobs: Jobs) -> None:
    jobs.write("wait_for('go'); catalog.operations.finish_job(*attempt, {'rows': 3})")
    kill_task_when(jobs, lambda: any((jobs.folder / "home" / "jobs").glob("*/*/log")), jobs.arguments())
    jobs.allow("go")
    assert jobs.task().execute(context()) == {"rows": 3}
    assert len(jobs.runs) == len(set(jobs.runs)) <= 2


@pytest.mark.long
def test_a_retry_takes_the_result_of_a_job_that_finished_without_its_task(jobs: Jobs) -> None:
    jobs.write("wait_for('go'); catalog.operations.finish_job(*attempt, {'rows': 3})")
    kill_task_when(jobs, jobs.is_running, jobs.arguments())
    jobs.allow("go")
    wait_until(lambda: not jobs.is_running())
    assert jobs.task().execute(context()) == {"rows": 3}
    assert jobs.runs == [1]


@pytest.mark.long
def test_a_job_that_dies_without_a_word_is_lost_and_submitted_again(jobs: Jobs) -> None:
    jobs.write(
        """
        if request["attempt"] == 1:
            os.kill(os.getpid(), 9)
        catalog.operations.finish_job(*attempt, {"attempt": request["attempt"]})
        """
    )
    task = jobs.task(resubmissions=0)
    with pytest.raises(SparkJobLostError, match=r"attempt 1 of Spark job step_one is lost: .*exit code -9.*/log"):
        task.execute(context())
    assert jobs.row is not None
    assert (jobs.row.state, jobs.row.error_class) == (JobState.FAILED, "SparkJobLostError")
    assert task.execute(context()) == {"attempt": 2}


@pytest.mark.long
def test_a_job_whose_processes_are_killed_is_submitted_again_in_the_same_try(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.write(
        """
        if request["attempt"] == 1:
            print("ready")
            wait_for("never")
        catalog.operations.finish_job(*attempt, {"attempt": request["attempt"]})
        """
    )

    def kill_first_attempt() -> None:
        if jobs.row is not None and jobs.row.attempt == 1 and jobs.is_running():
            JobProcess(Path(str(jobs.row.log_path))).terminate(grace_seconds=0)

    with instead_of_waiting(kill_first_attempt):
        assert jobs.task().execute(context()) == {"attempt": 2}
    assert jobs.runs == [1, 2]
    shown = capsys.readouterr().out
    assert re.search(r"attempt 1 of Spark job step_one is lost: .*; submitting another \(1 of 2\)", shown)


@pytest.mark.long
def test_a_job_that_is_lost_each_time_fails_the_try(jobs: Jobs) -> None:
    jobs.write("os.kill(os.getpid(), 9)")
    with pytest.raises(SparkJobLostError, match="attempt 3 of Spark job step_one is lost"):
        jobs.task().execute(context())
    assert jobs.runs == [1, 2, 3]


@pytest.mark.long
def test_a_job_that_an_outage_of_the_catalog_ended_is_submitted_again_in_the_same_try(jobs: Jobs) -> None:
    jobs.write(
        """
        if request["attempt"] == 1:
            catalog.operations.fail_job(*attempt, "CatalogUnavailableError", "the server is down")
            sys.exit(1)
        catalog.operations.finish_job(*attempt, {"attempt": request["attempt"]})
        """
    )
    assert jobs.task().execute(context()) == {"attempt": 2}
    assert jobs.runs == [1, 2]


@pytest.mark.long
def test_a_job_that_outages_end_each_time_fails_the_try(jobs: Jobs) -> None:
    jobs.write("catalog.operations.fail_job(*attempt, 'CatalogUnavailableError', 'it is down'); sys.exit(1)")
    with pytest.raises(SparkJobFailedError, match="CatalogUnavailableError: it is down"):
        jobs.task(resubmissions=1).execute(context())
    assert jobs.runs == [1, 2]


def test_a_job_that_failed_with_an_error_is_not_submitted_again_in_the_same_try(jobs: Jobs) -> None:
    jobs.write("catalog.operations.fail_job(*attempt, 'OSError', 'no space left'); sys.exit(1)")
    with pytest.raises(SparkJobFailedError, match="OSError: no space left"):
        jobs.task().execute(context())
    assert jobs.runs == [1]


@pytest.mark.long
def test_a_job_that_died_with_its_task_is_submitted_again(jobs: Jobs) -> None:
    jobs.write(
        """
        if request["attempt"] == 1:
            wait_for("never")
        catalog.operations.finish_job(*attempt, {"attempt": request["attempt"]})
        """
    )
    kill_task_when(jobs, jobs.is_running, jobs.arguments())
    assert jobs.row is not None
    job = JobProcess(Path(str(jobs.row.log_path)))
    job.terminate(grace_seconds=0)
    wait_until(lambda: not job.is_alive())
    assert jobs.task().execute(context()) == {"attempt": 2}
    assert jobs.runs == [1, 2]


def test_a_silent_job_of_another_host_is_lost(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.write("catalog.operations.finish_job(*attempt, {'attempt': request['attempt']})")
    jobs.catalog.operations.start_job(OPERATION, "step_one", log_path="/on/another/host/log")
    monkeypatch.setattr(attempts, "QUEUED_SECONDS", 0)
    assert jobs.task().execute(context()) == {"attempt": 2}


def test_a_job_of_another_host_that_falls_silent_is_submitted_again_in_the_same_try(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.write("catalog.operations.finish_job(*attempt, {'attempt': request['attempt']})")
    jobs.catalog.operations.start_job(OPERATION, "step_one", log_path="/on/another/host/log")
    with instead_of_waiting(lambda: monkeypatch.setattr(attempts, "QUEUED_SECONDS", 0)):
        assert jobs.task().execute(context()) == {"attempt": 2}
    assert "attempt 1 of Spark job step_one is lost: no heartbeat for 0 s from its host" in capsys.readouterr().out


@pytest.mark.parametrize("state", ["FAILED", "RUNNING"])
@pytest.mark.parametrize("place", ["secrets", "home/jobs/../../secrets"])
def test_a_recorded_path_outside_the_folder_of_jobs_is_left_alone(
    jobs: Jobs,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    state: str,
    place: str,
) -> None:
    # Whoever may write to the catalog could otherwise read the worker's files in a task's log, and end its processes.
    monkeypatch.setattr(attempts, "SILENCE_SECONDS", 0)
    monkeypatch.setattr(attempts, "QUEUED_SECONDS", 0)
    jobs.write("catalog.operations.finish_job(*attempt, {'attempt': request['attempt']})")
    (tmp_path / "home" / "jobs").mkdir(parents=True)
    other = JobProcess.in_new_folder(tmp_path / "secrets", "job-")
    other.start(["sleep", "60"], os.environ)
    other.settings_path.write_text("kept")
    other.log_path.write_text("a secret line\n")
    recorded = str(tmp_path / place / other.log_path.parent.name / "log")
    number = jobs.catalog.operations.start_job(OPERATION, "step_one", log_path=recorded)
    if state == "FAILED":
        jobs.catalog.operations.fail_job(OPERATION, "step_one", number, "SparkError", "it failed")
    try:
        assert jobs.task().execute(context()) == {"attempt": 2}
        assert other.is_alive()
        assert other.settings_path.read_text() == "kept"
        assert "a secret line" not in capsys.readouterr().out
    finally:
        other.terminate(grace_seconds=0)


def test_settings_with_passwords_do_not_stay_when_no_attempt_starts(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def command(script: Path, *, settings_path: Path, **_others: Any) -> list[str]:
        settings_path.write_text("a password")
        return ["true"]

    monkeypatch.setattr(spark_job, "submit_command", command)
    jobs.write("")
    with (
        mock.patch.object(type(jobs.catalog.operations), "start_job", side_effect=OperationConflictError("held")),
        pytest.raises(OperationConflictError),
    ):
        jobs.task().execute(context())
    assert not list((tmp_path / "home").rglob("settings"))


def test_settings_of_a_lost_attempt_do_not_stay(jobs: Jobs, tmp_path: Path) -> None:
    jobs.write("catalog.operations.finish_job(*attempt, {'attempt': request['attempt']})")
    lost = JobProcess.in_new_folder(tmp_path / "home" / "jobs" / "operation", "job-")
    lost.settings_path.write_text("a password")
    jobs.catalog.operations.start_job(OPERATION, "step_one", log_path=str(lost.log_path))
    assert jobs.task().execute(context()) == {"attempt": 2}
    assert not lost.settings_path.exists()


@pytest.mark.long
@pytest.mark.parametrize("log_name", [None, "log"])
def test_files_beside_the_log_of_a_failed_job_are_kept(jobs: Jobs, tmp_path: Path, log_name: str | None) -> None:
    # A change of the catalog alone is a job without a log.
    beside = tmp_path / "beside"
    beside.touch()
    jobs.write("catalog.operations.finish_job(*attempt, {'attempt': request['attempt']})")
    log_path = str(tmp_path / log_name) if log_name else None
    number = jobs.catalog.operations.start_job(OPERATION, "step_one", log_path=log_path)
    jobs.catalog.operations.fail_job(OPERATION, "step_one", number, "SparkError", "it failed")
    assert jobs.task().execute(context()) == {"attempt": 2}
    assert beside.exists()


def test_joins_a_job_of_another_host_that_gives_signs_of_life(jobs: Jobs) -> None:
    number = jobs.catalog.operations.start_job(OPERATION, "step_one", log_path="/on/another/host/log")

    def finish() -> None:
        jobs.catalog.operations.finish_job(OPERATION, "step_one", number, {"rows": 3})

    with instead_of_waiting(finish):
        assert jobs.task().execute(context()) == {"rows": 3}
    assert jobs.runs == []
