from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.catalog_access import SparkJobFailedError, SparkJobLostError
from calve_airflow.operators import spark_job
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.submitting.job_process import JobProcess
from catalog import Catalog
from catalog.operations.records import JobRun, JobState, OperationKind

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


def test_links_to_the_application_on_the_history_server(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.write("""
        catalog.operations.heartbeat(*attempt, spark_application="local-1", spark_ui="http://host:4040")
        catalog.operations.finish_job(*attempt, {})
        """)
    monkeypatch.setenv("CALVE_SPARK_HISTORY", "http://history:18080/")
    task = jobs.task()
    task.execute(context())
    (link,) = task.operator_extra_links
    assert link.get_link(task, ti_key=mock.ANY) == "http://history:18080/history/local-1"
    assert link.get_link(jobs.task(), ti_key=mock.ANY) == ""


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
