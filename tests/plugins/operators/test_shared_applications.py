"""Steps that share a Spark application: real processes, locks and hand-overs, without a JVM."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.catalog_access import SparkJobFailedError
from calve_airflow.operators import spark_job
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.submitting import applications
from calve_airflow.submitting.job_process import JobProcess
from catalog import Catalog
from catalog.errors import InvalidConfigurationError
from catalog.operations.records import JobKey, JobRun, JobState, OperationKind, OperationState
from catalog.settings import code_archive
from catalog.settings.environment import SessionScope, jobs_folder

OPERATION, OTHER = "add_partitions/run-1", "add_partitions/run-2"

# Replaces spark-submit: it runs the script without Spark's options, and without a JVM.
SUBMIT = """\
#!/bin/sh
while [ "${1%.py}" = "$1" ]; do shift; done
exec "$PYSPARK_PYTHON" -u "$@"
"""

APPLICATION = """\
import logging, os, signal, sys, time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from catalog import errors
from catalog.operations.job_requests import JobRequest
from spark_jobs.sessions import application, session

session.HEARTBEAT_SECONDS = 0.2
session.submitted_settings = lambda url: {}

@contextmanager
def no_session(self, request, settings):
    yield None

application._Application._session = no_session

@dataclass(frozen=True, kw_only=True)
class FirstJob(JobRequest):
    script = "first"
    folder: str

@dataclass(frozen=True, kw_only=True)
class SecondJob(JobRequest):
    script = "second"
    folder: str

log = logging.getLogger("spark_jobs.test")

def function(spark, catalog, request):
    folder = Path(request.folder)
    is_held = (folder / f"hold {request.step}").exists()
    # After the look at the mark, which tests remove when they see this line.
    with (folder / "runs").open("a") as runs:
        runs.write(f"{request.operation_id} {request.step} {request.attempt}\\n")
    log.info("line of %s", request.step)
    print(f"output of {request.step}", flush=True)
    while is_held and not (folder / "continue").exists():
        time.sleep(0.02)
    if (folder / f"fail {request.step}").exists():
        raise OSError("no space left")
    for path in folder.glob(f"refuse {request.step}"):
        raise getattr(errors, path.read_text())("refused")
    return {"pid": os.getpid(), "step": request.step}

sys.exit(application.run_jobs(sys.argv[1], lambda step: function, {"first": ("colorsys", "no_such_module")}))
"""


class Steps:
    """The tasks of loads, and what their jobs leave."""

    def __init__(self, catalog: Catalog, folder: Path) -> None:
        self.catalog = catalog
        self.folder = folder

    def task(self, step: str, operation_id: str = OPERATION, **changes: Any) -> SparkJobOperator:
        request = {"folder": str(self.folder), "table": "demo.flights"}
        return SparkJobOperator(
            task_id=step, job=step, operation_id=operation_id, request=request, poll_seconds=0.05, **changes
        )

    def run(self, step: str, operation_id: str = OPERATION, **changes: Any) -> int:
        """Run a task; return the process of its job."""
        result: dict[str, int] = self.task(step, operation_id, **changes).execute(Context())
        return result["pid"]

    def job(self, step: str, operation_id: str = OPERATION) -> JobRun:
        job = self.catalog.operations.get_job(operation_id, step)
        assert job is not None
        return job

    def log_of(self, step: str) -> str:
        return Path(str(self.job(step).log_path)).read_text()

    def mark(self, name: str) -> Path:
        (self.folder / name).touch()
        return self.folder / name

    @property
    def runs(self) -> list[str]:
        """The attempts that ran: operation, step and attempt."""
        path = self.folder / "runs"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def steps(empty_catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    submit = tmp_path / "bin" / "spark3-submit"
    submit.parent.mkdir()
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "run_jobs.py").write_text(APPLICATION)
    connection = {"conn_type": "spark", "host": "local[1]", "extra": {"spark-binary": "spark3-submit"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("PATH", f"{submit.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CALVE_SPARK_JOBS", str(scripts))
    monkeypatch.delenv("CALVE_SPARK_SESSION", raising=False)
    for scope in (SessionScope.LOAD, SessionScope.SHARED):
        monkeypatch.setitem(applications.JOBS, scope, frozenset({"first", "second"}))
    monkeypatch.setenv("CALVE_SPARK_IDLE_SECONDS", "30")
    started: list[JobProcess] = []

    def start(process: JobProcess, *arguments: Any) -> None:
        started.append(process)
        start_really(process, *arguments)

    start_really = JobProcess.start
    monkeypatch.setattr(JobProcess, "start", start)
    for operation_id, table in ((OPERATION, "demo.flights"), (OTHER, "demo.delays")):
        empty_catalog.operations.begin(operation_id, OperationKind.ADD_PARTITIONS, table)
    yield Steps(empty_catalog, tmp_path)
    for process in started:
        if process._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(process._child.pid, signal.SIGKILL)
            process._child.wait(120)


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, also if its parent has not asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def rows_of(catalog: Catalog) -> list[str | None]:
    """Return the steps that the applications in the catalog run."""
    with catalog.storage.read() as connection:
        return [row.step for row in connection.exec_driver_sql("SELECT step FROM calve_spark_application")]


def test_the_steps_of_a_load_run_in_one_application(steps: Steps) -> None:
    assert steps.run("first") == steps.run("second")
    assert steps.runs == [f"{OPERATION} first 1", f"{OPERATION} second 1"]
    assert {steps.job(step).state for step in ("first", "second")} == {JobState.SUCCEEDED}
    assert steps.job("second").result["step"] == "second"


def test_each_step_has_a_log_of_its_own(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    steps.run("first")
    assert "line of first" in capsys.readouterr().out
    steps.run("second")
    assert "line of second" in capsys.readouterr().out
    wait_until(lambda: "output of second" in steps.log_of("second"))
    for step, other in (("first", "second"), ("second", "first")):
        text = steps.log_of(step)
        assert text.count(f"line of {step}") == text.count(f"output of {step}") == 1
        assert other not in text
        # Nothing of the folder refers to the application, whose process another step may use.
        assert not JobProcess(Path(str(steps.job(step).log_path))).is_alive()


@pytest.mark.long
def test_a_cleared_task_shows_the_log_of_its_own_step_only(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    steps.run("first")
    steps.run("second")
    capsys.readouterr()
    steps.run("first")
    shown = capsys.readouterr().out
    assert "line of first" in shown
    assert "line of second" not in shown
    assert len(steps.runs) == 2


@pytest.mark.long
def test_a_step_starts_another_application_if_the_first_was_killed_between_them(steps: Steps) -> None:
    first = steps.run("first")
    wait_until(lambda: rows_of(steps.catalog) == [None])
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: has_ended(first))
    assert steps.run("second") != first
    assert steps.runs == [f"{OPERATION} first 1", f"{OPERATION} second 1"]


@pytest.mark.long
def test_a_step_whose_application_is_killed_runs_again_in_another(steps: Steps) -> None:
    first = steps.run("first")
    held = steps.mark("hold second")

    def kill() -> None:
        wait_until(lambda: f"{OPERATION} second 1" in steps.runs)
        held.unlink()
        os.kill(first, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    assert steps.run("second") != first
    killing.join()
    assert steps.runs[1:] == [f"{OPERATION} second 1", f"{OPERATION} second 2"]


@pytest.mark.long
def test_a_retried_task_joins_the_step_that_still_runs(steps: Steps) -> None:
    first = steps.run("first")
    steps.mark("hold second")
    submitted = steps.task("second")._submit(steps.catalog)
    wait_until(lambda: f"{OPERATION} second 1" in steps.runs)
    assert submitted.process.is_alive()
    steps.mark("continue")
    assert steps.run("second") == first
    assert len(steps.runs) == 2


@pytest.mark.parametrize("is_seen", [False, True], ids=["before the look", "after the look"])
def test_a_step_that_ends_while_a_task_looks_for_it_is_not_repeated(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    operations, task = steps.catalog.operations, steps.task("first")
    process = JobProcess.in_new_folder(jobs_folder() / "load", "first-")
    attempt = operations.start_job(OPERATION, "first", log_path=str(process.log_path))
    operations.heartbeat(OPERATION, "first", attempt)

    def end(job: JobRun, process: JobProcess) -> bool:
        if not steps.job("first").is_alive:
            return False
        operations.finish_job(OPERATION, "first", attempt, {"pid": 7})
        return is_seen

    monkeypatch.setattr(spark_job, "is_running", end)
    assert task.execute(Context()) == {"pid": 7}
    assert steps.runs == []


@pytest.mark.long
def test_a_step_that_was_handed_over_by_a_killed_task_runs_once_at_a_time(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is killed after the hand-over, before its folder refers to the application."""
    first = steps.run("first")
    held = steps.mark("hold second")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JobProcess, "join", die)
        with pytest.raises(KeyboardInterrupt):
            steps.run("second")
    wait_until(lambda: f"{OPERATION} second 1" in steps.runs)
    held.unlink()
    assert steps.run("second") != first
    assert steps.job("second").attempt == 2
    # The first attempt is fenced, and ends its application.
    wait_until(lambda: has_ended(first))


@pytest.mark.long
def test_a_cancelled_task_ends_its_application_and_the_next_starts_another(steps: Steps) -> None:
    first = steps.run("first")
    held = steps.mark("hold second")
    task = steps.task("second")
    task._submit(steps.catalog)
    wait_until(lambda: f"{OPERATION} second 1" in steps.runs)
    task.on_kill()
    wait_until(lambda: has_ended(first))
    assert steps.job("second").error_class == "CANCELLED"
    held.unlink()
    assert steps.run("second") != first
    assert steps.job("second").attempt == 2


def test_cancelling_a_step_that_has_ended_does_not_end_the_next_one(steps: Steps) -> None:
    first = steps.task("first")
    attempt = first._submit(steps.catalog)
    wait_until(lambda: steps.job("first").state is JobState.SUCCEEDED)
    steps.mark("hold second")
    steps.task("second")._submit(steps.catalog)
    wait_until(lambda: f"{OPERATION} second 1" in steps.runs)
    first.on_kill()
    attempt.process.terminate()
    steps.mark("continue")
    assert steps.run("second") == steps.job("first").result["pid"]


@pytest.mark.long
def test_a_failed_step_ends_its_application(steps: Steps) -> None:
    first = steps.run("first")
    failing = steps.mark("fail second")
    with pytest.raises(SparkJobFailedError, match="OSError: no space left"):
        steps.run("second")
    assert "no space left" in steps.log_of("second")
    wait_until(lambda: has_ended(first) and rows_of(steps.catalog) == [])
    failing.unlink()
    assert steps.run("second") != first
    assert steps.job("second").attempt == 2


@pytest.mark.long
def test_an_application_ends_when_it_is_idle(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_SPARK_IDLE_SECONDS", "1")
    first = steps.run("first")
    wait_until(lambda: has_ended(first) and rows_of(steps.catalog) == [])
    assert steps.run("second") != first


def test_an_application_ends_with_its_operation(steps: Steps) -> None:
    with steps.catalog.storage.write() as connection:
        for state in (OperationState.RUNNING, OperationState.COMMITTED):
            steps.catalog.operations.advance(connection, OPERATION, state)
    first = steps.run("first")
    wait_until(lambda: has_ended(first) and rows_of(steps.catalog) == [])


@pytest.mark.long
def test_an_application_that_was_ended_by_a_signal_takes_no_job(steps: Steps) -> None:
    first = steps.run("first")
    os.kill(first, signal.SIGTERM)
    wait_until(lambda: has_ended(first))
    assert steps.run("second") != first


@pytest.mark.long
@pytest.mark.parametrize("change", ["conf", "environment", "code"])
def test_a_step_with_other_settings_has_an_application_of_its_own(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    first = steps.run("first")
    if change == "environment":
        monkeypatch.setenv("CALVE_WAREHOUSE", str(steps.folder / "other"))
    elif change == "code":
        monkeypatch.setattr(code_archive, "code_digest", lambda: "another version")
    conf = {"spark.executor.memory": "3g"} if change == "conf" else {}
    assert steps.run("second", conf=conf) != first


def test_a_changed_password_is_not_in_the_catalog(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for password in ("first-secret", "second-secret"):
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", password)
        keys.append(applications.application_key("1", ["spark-submit"], {"AWS_SECRET_ACCESS_KEY": password}, OPERATION))
    assert keys[0] == keys[1]


@pytest.mark.long
def test_loads_do_not_share_an_application_by_default(steps: Steps) -> None:
    assert steps.run("first") != steps.run("first", OTHER)


def test_loads_share_an_application_one_after_another(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_SPARK_SESSION", "shared")
    first = steps.run("first")
    wait_until(lambda: rows_of(steps.catalog) == [None])
    assert steps.run("first", OTHER) == first
    assert steps.job("first", OTHER).result["step"] == "first"


@pytest.mark.parametrize(
    ("error", "scope", "is_sound"),
    [
        ("InvalidTableError", "shared", True),
        pytest.param("InvalidTableError", "load", False, marks=pytest.mark.long),
        pytest.param("StorageError", "shared", False, marks=pytest.mark.long),
        pytest.param("CatalogUnavailableError", "shared", False, marks=pytest.mark.long),
    ],
)
def test_an_error_about_files_ends_no_application_of_several_operations(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, error: str, scope: str, is_sound: bool
) -> None:
    monkeypatch.setenv("CALVE_SPARK_SESSION", scope)
    first = steps.run("first")
    refusing = steps.mark("refuse second")
    refusing.write_text(error)
    with pytest.raises((AirflowFailException, SparkJobFailedError), match=f"{error}: refused"):
        steps.run("second", resubmissions=0)
    wait_until(lambda: rows_of(steps.catalog) == ([None] if is_sound else []))
    refusing.unlink()
    assert (steps.run("second") == first) is is_sound


@pytest.mark.long
def test_loads_at_the_same_time_do_not_share_an_application(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_SPARK_SESSION", "shared")
    steps.mark("hold first")
    tasks = [steps.task("first"), steps.task("first", OTHER)]
    for task, operation_id in zip(tasks, (OPERATION, OTHER), strict=True):
        task._submit(steps.catalog)
        wait_until(lambda operation_id=operation_id: f"{operation_id} first 1" in steps.runs)  # type: ignore[misc]
    tasks[0].on_kill()
    steps.mark("continue")
    # The other one is not concerned.
    assert steps.run("first", OTHER)
    assert steps.job("first").error_class == "CANCELLED"
    assert steps.job("first", OTHER).attempt == 1


@pytest.mark.long
@pytest.mark.parametrize(("name", "value"), [("CALVE_SPARK_SESSION", "step"), ("CALVE_SPARK_IDLE_SECONDS", "0")])
def test_each_step_starts_spark_if_the_settings_say_so(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    script = """
        import sys
        from catalog import Catalog
        with Catalog.open() as catalog:
            attempt = sys.argv[1], sys.argv[2], int(sys.argv[3])
            catalog.operations.heartbeat(*attempt)
            catalog.operations.finish_job(*attempt, {"pid": 1})
    """
    (steps.folder / "scripts" / "first.py").write_text(textwrap.dedent(script))
    assert steps.run("first") == 1
    assert rows_of(steps.catalog) == []


def test_jobs_whose_packages_are_not_known_here_start_spark_themselves(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> str:
        raise InvalidConfigurationError("package spark_jobs is not installed as a folder")

    monkeypatch.setattr(code_archive, "code_digest", fail)
    assert applications.shared_version("first") is None


@pytest.mark.long
def test_an_application_of_another_host_takes_no_job(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    first = steps.run("first")
    monkeypatch.setattr(socket, "gethostname", lambda: "another-host")
    assert not applications.hand_over(
        steps.catalog.operations.applications,
        "key",
        JobKey(OPERATION, "second", 1, "second"),
        JobProcess.in_new_folder(steps.folder, "second-"),
    )
    assert not JobProcess(Path(str(steps.job("first").log_path))).is_application_alive
    assert not has_ended(first)


@pytest.mark.long
def test_a_log_outside_of_the_folder_of_jobs_is_not_written(steps: Steps, tmp_path: Path) -> None:
    """Who may write to the catalog may record any path."""
    steps.run("first")
    wait_until(lambda: rows_of(steps.catalog) == [None])
    victim = tmp_path / "victim" / "log"
    victim.parent.mkdir()
    victim.write_text("kept")
    operations = steps.catalog.operations
    request = {**steps.task("second").request, "operation_id": OPERATION, "step": "second"}
    attempt = operations.start_job(OPERATION, "second", request=request, log_path=str(victim))
    with operations._storage.read() as connection:
        (name,) = connection.exec_driver_sql("SELECT id FROM calve_spark_application").scalars()
    assert operations.applications.hand_over(name, JobKey(OPERATION, "second", attempt, "second"))
    wait_until(lambda: steps.job("second").state is JobState.SUCCEEDED)
    assert [path.name for path in victim.parent.iterdir()] == ["log"]
    assert victim.read_text() == "kept"
