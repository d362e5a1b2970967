from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout, TaskDeferred
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.serde import deserialize, serialize

from calve_airflow.catalog_access import SparkJobFailedError, SparkJobLostError
from calve_airflow.operators import spark_job
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.submitting import attempts
from calve_airflow.submitting.job_process import JobProcess
from calve_airflow.triggers.spark_jobs import SparkJobTrigger
from catalog import Catalog
from catalog.errors import CatalogUnavailableError, InvalidConfigurationError, OperationConflictError
from catalog.operations.records import JobRun, JobState, OperationKind
from catalog.settings.environment import job_patience
from standalone.postgres import PostgresServer

OPERATION = "manual__2026-11-05T00:00:00+00:00/demo"


def instead_of_waiting(function: Callable[[], object]) -> Any:
    """Call a function whenever the operator waits before it polls its job."""

    def sleep(_seconds: float) -> None:
        function()
        time.sleep(0.02)

    return mock.patch.object(spark_job, "time", mock.Mock(wraps=time, sleep=sleep))


# Replaces spark-submit in tests that need no JVM: it runs the script without Spark's options.
SUBMIT = """\
#!/bin/sh
while [ "${1%.py}" = "$1" ]; do shift; done
exec "$PYSPARK_PYTHON" -u "$@"
"""

JOB_START = """\
import json, os, sys, time
from pathlib import Path
from catalog import Catalog
catalog = Catalog.open()
attempt = sys.argv[1], sys.argv[2], int(sys.argv[3])
request = json.loads(catalog.operations.job_request(*attempt))
def wait_for(name):
    while not (Path(request["folder"]) / name).exists():
        time.sleep(0.02)
with (Path(request["folder"]) / "runs").open("a") as runs:
    runs.write(f"{request['attempt']}\\n")
catalog.operations.heartbeat(*attempt)
"""

KILLED_TASK = """\
import json, sys
from calve_airflow.operators.spark_job import SparkJobOperator
SparkJobOperator(task_id="task", **json.loads(sys.argv[1])).execute({})
"""


@pytest.fixture
def catalog(empty_catalog: Catalog) -> Catalog:
    empty_catalog.operations.begin(OPERATION, OperationKind.ADD_PARTITIONS, "demo.flights")
    return empty_catalog


class Jobs:
    """The job scripts of one test, run in sequence in tasks of the same kind."""

    def __init__(self, catalog: Catalog, folder: Path) -> None:
        self.catalog = catalog
        self.folder = folder

    def write(self, code: str) -> None:
        """Write the script; it may use `catalog`, `request`, `attempt` and `wait_for(name)`."""
        scripts = self.folder / "scripts"
        scripts.mkdir(exist_ok=True)
        (scripts / "step_one.py").write_text(JOB_START + textwrap.dedent(code))

    def arguments(self, **changes: Any) -> dict[str, Any]:
        request = {"folder": str(self.folder), "table": "demo.flights"}
        return {"job": "step_one", "operation_id": OPERATION, "request": request, "poll_seconds": 0.02, **changes}

    def task(self, **changes: Any) -> SparkJobOperator:
        return SparkJobOperator(task_id="task", **self.arguments(**changes))

    def allow(self, name: str) -> None:
        """Continue the job that waits for this name."""
        (self.folder / name).touch()

    @property
    def row(self) -> JobRun | None:
        return self.catalog.operations.get_job(OPERATION, "step_one")

    def is_running(self) -> bool:
        return self.row is not None and self.row.state is JobState.RUNNING

    @property
    def runs(self) -> list[int]:
        """The attempts that ran, in order."""
        path = self.folder / "runs"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.fixture
def jobs(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    submit = tmp_path / "bin" / "spark3-submit"
    submit.parent.mkdir()
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    connection = {"conn_type": "spark", "host": "local[1]", "extra": {"spark-binary": "spark3-submit"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("PATH", f"{submit.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CALVE_SPARK_JOBS", str(tmp_path / "scripts"))
    started: list[JobProcess] = []

    def start(process: JobProcess, *arguments: Any) -> None:
        started.append(process)
        start_really(process, *arguments)

    start_really = JobProcess.start
    monkeypatch.setattr(JobProcess, "start", start)
    yield Jobs(catalog, tmp_path)
    for process in started:
        process.terminate(grace_seconds=0)
        if process._child is not None:
            process._child.wait(120)


def context() -> Context:
    return Context()


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def kill_task_when(jobs: Jobs, condition: Callable[[], bool], arguments: dict[str, Any]) -> None:
    """Run a task in a separate process, and kill only that process when the condition holds."""
    command = [sys.executable, "-c", KILLED_TASK, json.dumps(arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as task:
        # Spark starts slowly during other tests.
        wait_until(lambda: condition() or task.poll() is not None, 600.0)
        assert task.poll() is None, "the task ended before it could be killed"
        task.kill()


def test_returns_the_result_of_the_job(jobs: Jobs) -> None:
    jobs.write("catalog.operations.finish_job(*attempt, {'rows': 3, 'table': request['table']})")
    assert jobs.task().execute(context()) == {"rows": 3, "table": "demo.flights"}
    assert jobs.runs == [1]


def test_submits_through_the_connection_with_defaults_for_small_jobs(jobs: Jobs) -> None:
    jobs.write("catalog.operations.finish_job(*attempt, {})")
    with mock.patch.object(JobProcess, "start", autospec=True, side_effect=JobProcess.start) as start:
        jobs.task(conf={"spark.ui.enabled": "true"}).execute(context())
    command = start.call_args.args[1]
    assert command[:3] == [str(jobs.folder / "bin" / "spark3-submit"), "--master", "local[1]"]
    assert {"spark.ui.enabled=true", "spark.log.level=WARN", "spark.sql.session.timeZone=UTC"} <= set(command)
    assert command[command.index("--deploy-mode") + 1] == "client"
    assert command[-3:] == [OPERATION, "step_one", "1"]
    assert json.loads(jobs.catalog.operations.job_request(OPERATION, "step_one", 1)) == {
        **jobs.arguments()["request"],
        "operation_id": OPERATION,
        "step": "step_one",
        "attempt": 1,
    }


def test_a_job_gets_nothing_of_airflows_environment(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AIRFLOW__CORE__FERNET_KEY",
        "AIRFLOW_CONN_OTHER",
        "_AIRFLOW_TOKEN",
        "MY_PASSWORD",
        "EXTRA_ONE",
        "EXTRA",
    ):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("CALVE_JOB_ENVIRONMENT", "EXTRA_*, AIRFLOW__CORE__FERNET_KEY")
    jobs.write("catalog.operations.finish_job(*attempt, {'names': sorted(os.environ)})")
    names = jobs.task().execute(context())["names"]
    assert {"PATH", "PYTHONPATH", "CALVE_CATALOG_URL", "PYSPARK_PYTHON", "EXTRA_ONE"} <= set(names)
    assert not [name for name in names if "AIRFLOW" in name or name in ("MY_PASSWORD", "EXTRA")]


def test_a_request_stands_in_no_command_line_and_in_no_file(jobs: Jobs) -> None:
    jobs.write(
        """
        said = Path("/proc/self/cmdline").read_text() + Path(f"/proc/{os.getppid()}/cmdline").read_text()
        catalog.operations.finish_job(*attempt, {"said": said, "request": request["statements"]})
        """
    )
    request = {**jobs.arguments()["request"], "statements": "SELECT 'planted'"}
    answer = jobs.task(request=request).execute(context())
    assert "planted" not in answer["said"]
    assert answer["request"] == request["statements"]
    assert jobs.row is not None
    assert jobs.row.log_path is not None
    folder = Path(jobs.row.log_path).parent
    assert {path.name for path in folder.iterdir()} == {"log", "lock"}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_shows_each_line_of_the_job_and_its_progress_once(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.write(
        """
        print("first line")
        catalog.operations.heartbeat(*attempt, done=12, total=35, note="partitions")
        time.sleep(0.2)
        print("last line")
        catalog.operations.finish_job(*attempt, {})
        """
    )
    jobs.task().execute(context())
    shown = capsys.readouterr().out
    assert [shown.count(text) for text in ("first line", "last line", "12 of 35 partitions, 34 %")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("error_class", "raised"),
    [
        ("SourceFileError", AirflowFailException),
        ("OperationConflictError", SparkJobFailedError),
        ("Py4JJavaError", SparkJobFailedError),
        ("TableName", SparkJobFailedError),
    ],
)
def test_a_failed_job_fails_the_task_as_its_error_says(jobs: Jobs, error_class: str, raised: type[Exception]) -> None:
    jobs.write(f"catalog.operations.fail_job(*attempt, {error_class!r}, 'flights.csv, line 7'); sys.exit(1)")
    with pytest.raises(raised, match=f"^Spark job step_one: {error_class}: flights.csv, line 7$"):
        jobs.task().execute(context())


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


def test_a_retry_joins_a_job_whose_task_was_killed_right_after_submitting(jobs: Jobs) -> None:
    jobs.write("wait_for('go'); catalog.operations.finish_job(*attempt, {'rows': 3})")
    kill_task_when(jobs, lambda: any((jobs.folder / "home" / "jobs").glob("*/*/log")), jobs.arguments())
    jobs.allow("go")
    assert jobs.task().execute(context()) == {"rows": 3}
    assert len(jobs.runs) == len(set(jobs.runs)) <= 2


def test_a_retry_takes_the_result_of_a_job_that_finished_without_its_task(jobs: Jobs) -> None:
    jobs.write("wait_for('go'); catalog.operations.finish_job(*attempt, {'rows': 3})")
    kill_task_when(jobs, jobs.is_running, jobs.arguments())
    jobs.allow("go")
    wait_until(lambda: not jobs.is_running())
    assert jobs.task().execute(context()) == {"rows": 3}
    assert jobs.runs == [1]


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


def test_a_job_that_is_lost_each_time_fails_the_try(jobs: Jobs) -> None:
    jobs.write("os.kill(os.getpid(), 9)")
    with pytest.raises(SparkJobLostError, match="attempt 3 of Spark job step_one is lost"):
        jobs.task().execute(context())
    assert jobs.runs == [1, 2, 3]


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


def test_killing_the_task_ends_the_job_which_can_no_longer_commit(jobs: Jobs) -> None:
    jobs.write(
        """
        import signal
        from catalog.errors import FencedError
        def commit_late(*_):
            try:
                catalog.operations.finish_job(*attempt, {"late": True})
            except FencedError:
                (Path(request["folder"]) / "refused").touch()
            sys.exit(1)
        signal.signal(signal.SIGTERM, commit_late)
        print("ready")
        wait_for("never")
        """
    )
    task = jobs.task()

    def kill_when_ready() -> None:
        if jobs.row is not None and "ready" in Path(str(jobs.row.log_path)).read_text():
            task.on_kill()

    with (
        instead_of_waiting(kill_when_ready),
        pytest.raises(SparkJobFailedError, match="its Airflow task was killed"),
    ):
        task.execute(context())
    assert (jobs.folder / "refused").exists()
    assert jobs.row is not None
    assert jobs.row.state is JobState.FAILED
    assert not JobProcess(Path(str(jobs.row.log_path))).is_alive()


def test_killing_a_task_that_follows_no_job_does_nothing(jobs: Jobs) -> None:
    jobs.task().on_kill()
    assert jobs.row is None


def test_a_task_whose_attempt_is_fenced_leaves_the_job_to_the_other(jobs: Jobs) -> None:
    jobs.write("wait_for('never')")

    def take_over() -> None:
        jobs.catalog.operations.start_job(OPERATION, "step_one", log_path="/on/another/host/log")

    with (
        instead_of_waiting(take_over),
        pytest.raises(SparkJobLostError, match="another attempt replaced attempt 1 of Spark job step_one"),
    ):
        jobs.task().execute(context())


def test_a_missing_connection_is_an_error_and_not_yarn(jobs: Jobs) -> None:
    jobs.write("")
    with pytest.raises(AirflowFailException, match=r"'no_such' does not exist.*AIRFLOW_CONN_SPARK_DEFAULT="):
        jobs.task(conn_id="no_such").execute(context())
    assert jobs.row is None


def test_a_missing_program_is_an_error(jobs: Jobs) -> None:
    jobs.write("")
    (jobs.folder / "bin" / "spark3-submit").unlink()
    with pytest.raises(AirflowFailException, match="spark3-submit is not on the PATH"):
        jobs.task().execute(context())


def test_a_missing_script_is_an_error(jobs: Jobs) -> None:
    with pytest.raises(
        AirflowFailException,
        match=r"/scripts/no_such.py of Spark job no_such does not exist; set CALVE_SPARK_JOBS",
    ):
        jobs.task(job="no_such").execute(context())


def test_a_request_that_its_job_would_refuse_starts_no_attempt(jobs: Jobs) -> None:
    task = jobs.task(job="verify_rewrite", request={"table": "demo.flights"})
    with pytest.raises(AirflowFailException, match="folder"):
        task.execute(context())
    assert jobs.catalog.operations.get_job(OPERATION, "verify_rewrite") is None


def test_a_missing_operation_is_not_retried(jobs: Jobs) -> None:
    with pytest.raises(AirflowFailException, match=r"OperationNotFoundError: .*no_such"):
        jobs.task(operation_id="no_such").execute(context())


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


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_with_the_real_spark_submit_a_retry_joins_the_job(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, java_home: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    jobs.write(
        """
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.getOrCreate()
        (Path(request["folder"]) / "session").touch()
        wait_for("go")
        catalog.operations.finish_job(*attempt, {"rows": spark.range(3).count(), "master": spark.sparkContext.master})
        spark.stop()
        """
    )
    kill_task_when(jobs, (jobs.folder / "session").exists, jobs.arguments())
    assert jobs.row is not None
    assert JobProcess(Path(str(jobs.row.log_path))).is_alive()
    jobs.allow("go")
    assert jobs.task().execute(context()) == {"rows": 3, "master": "local[1]"}
    assert jobs.runs == [1]


class TestOutage:
    """The catalog's server stops and starts again while a job runs."""

    @pytest.fixture
    def catalog(self, stoppable_catalog: Catalog) -> Catalog:
        stoppable_catalog.operations.begin(OPERATION, OperationKind.ADD_PARTITIONS, "demo.flights")
        return stoppable_catalog

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
