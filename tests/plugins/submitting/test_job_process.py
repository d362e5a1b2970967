from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from calve_airflow.submitting.job_process import NO_LOG, JobProcess


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[JobProcess]:
    process = JobProcess.in_new_folder(tmp_path / "operation", "step-")
    yield process
    process.terminate(grace_seconds=0)
    if process._child is not None:
        process._child.wait(120)


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def test_is_not_alive_before_start(process: JobProcess) -> None:
    assert process.is_visible
    assert not process.is_alive()
    assert list(process.new_log_lines()) == []


DAY = timedelta(days=1)


def aged(process: JobProcess, age: timedelta) -> Path:
    """Make a process log its last line some time ago; return its folder."""
    process.log_path.touch()
    time_of_line = time.time() - age.total_seconds()
    os.utime(process.log_path, (time_of_line, time_of_line))
    return process.log_path.parent


def test_folders_of_programs_that_ended_long_ago_are_deleted(tmp_path: Path) -> None:
    old, young, other = (JobProcess.in_new_folder(tmp_path / name, "step-") for name in ("one", "one", "two"))
    old.settings_path.write_text("a password")
    folders = [aged(old, 11 * DAY), aged(young, 9 * DAY), aged(other, 11 * DAY)]
    (tmp_path / "note").touch()
    assert JobProcess.delete_old(tmp_path, 10 * DAY, is_dry_run=True) == 2
    assert all(folder.exists() for folder in folders)
    assert JobProcess.delete_old(tmp_path, 10 * DAY) == 2
    assert [folder.exists() for folder in folders] == [False, True, False]
    assert {path.name for path in tmp_path.iterdir()} == {"one", "note"}


def test_a_folder_stays_as_long_as_its_program_runs(tmp_path: Path, process: JobProcess) -> None:
    process.start(python("import time; time.sleep(600)"), os.environ)
    folder = aged(process, 11 * DAY)
    JobProcess.delete_old(tmp_path, 10 * DAY)
    assert folder.exists()


def test_a_program_that_was_never_started_counts_from_its_folder(tmp_path: Path) -> None:
    new = JobProcess.in_new_folder(tmp_path / "operation", "step-")
    JobProcess.delete_old(tmp_path, 10 * DAY)
    assert new.is_visible
    JobProcess.delete_old(tmp_path, -DAY)
    assert not new.is_visible


def test_folders_that_cannot_be_read_are_left(tmp_path: Path) -> None:
    JobProcess.delete_old(tmp_path / "missing", DAY)
    (tmp_path / "operation" / "step-without-a-lock").mkdir(parents=True)
    JobProcess.delete_old(tmp_path, -DAY)
    assert (tmp_path / "operation" / "step-without-a-lock").exists()


def test_an_attempt_without_a_log_has_no_files() -> None:
    process = JobProcess(NO_LOG)
    assert not process.is_visible
    assert list(process.new_log_lines()) == []
    process.terminate()
    # Not beside os.devnull, where files belong to others.
    assert not process.settings_path.parent.is_dir()


def test_is_alive_until_the_program_ends(process: JobProcess) -> None:
    process.start(python("import sys; sys.stdin.read(); print('done')"), os.environ)
    wait_until(lambda: not process.is_alive())
    wait_until(lambda: process.exit_code == 0)
    assert list(process.new_log_lines()) == ["done"]


def test_is_found_through_its_folder(process: JobProcess) -> None:
    process.start(python("import time; time.sleep(600)"), os.environ)
    assert JobProcess(process.log_path).is_alive()
    assert JobProcess(process.log_path).exit_code is None


def test_lives_on_when_its_starter_is_killed(tmp_path: Path) -> None:
    starter = (
        "import os, sys, time; from pathlib import Path; from calve_airflow.submitting.job_process import JobProcess\n"
        f"p = JobProcess.in_new_folder(Path({str(tmp_path)!r}), 'step-')\n"
        "p.start([sys.executable, '-c', 'import time; time.sleep(600)'], os.environ); print(p.log_path, flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen(python(starter), stdout=subprocess.PIPE, text=True, env=_environment()) as parent:
        assert parent.stdout is not None
        process = JobProcess(Path(parent.stdout.readline().strip()))
        parent.kill()
    assert process.is_alive()
    process.terminate()
    wait_until(lambda: not process.is_alive())


def test_is_alive_as_long_as_a_child_that_holds_the_lock(process: JobProcess) -> None:
    # spark-submit is a script that starts the JVM; the job runs while one of them does.
    code = "import os, time; os.fork() and os._exit(0); time.sleep(600)"
    process.start(python(code), os.environ)
    wait_until(lambda: process.exit_code == 0)
    assert process.is_alive()
    process.terminate()
    wait_until(lambda: not process.is_alive())


def test_terminate_kills_what_ignores_the_signal(process: JobProcess) -> None:
    process.start(
        python("import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(600)"), os.environ
    )
    wait_until(lambda: list(process.new_log_lines()) == ["deaf"])
    process.terminate(grace_seconds=0.2)
    wait_until(lambda: process.exit_code == -signal.SIGKILL)


def test_terminate_leaves_a_program_of_another_host_alone(process: JobProcess) -> None:
    process.start(python("import time; print('up'); time.sleep(600)"), os.environ)
    wait_until(lambda: list(process.new_log_lines()) == ["up"])
    lock = process.log_path.with_name("lock")
    record = lock.read_text()
    lock.write_text(f"elsewhere {record.split()[1]}")
    process.terminate()
    assert process.is_alive()
    lock.write_text(record)


def test_terminate_does_nothing_when_the_folder_is_gone(tmp_path: Path) -> None:
    process = JobProcess(tmp_path / "gone" / "log")
    process.terminate()
    assert not process.is_visible
    assert list(process.new_log_lines()) == []


def test_new_log_lines_come_once_and_complete(process: JobProcess) -> None:
    with process.log_path.open("wb") as log:
        log.write("one\r\nzwei ü\nthr".encode())
        log.flush()
        assert list(process.new_log_lines()) == ["one", "zwei ü"]
        assert list(process.new_log_lines()) == []
        log.write(b"ee\n\xff\n")
        log.flush()
    assert list(process.new_log_lines()) == ["three", "�"]


def test_a_program_that_does_not_exist_is_named_in_the_log(process: JobProcess) -> None:
    process.start(["/no/such/program"], os.environ)
    wait_until(lambda: process.exit_code == 127)
    assert "/no/such/program" in process.log_path.read_text()


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (
            'WARNING: first\nException in thread "main" org.apache.spark.SparkException: Executor memory must be a '
            "positive number\n\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:640)\n",
            "org.apache.spark.SparkException: Executor memory must be a positive number",
        ),
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 1\nModuleNotFoundError: No module named 'x'\n",
            "ModuleNotFoundError: No module named 'x'",
        ),
        ("/bin/sh: 1: exec: spark-submit: not found\n", "/bin/sh: 1: exec: spark-submit: not found"),
        ("JAVA_HOME is not set\n", "JAVA_HOME is not set"),
        ("26/11/25 INFO all is well\n", None),
        ("", None),
    ],
)
def test_the_last_error_is_found_in_the_log(process: JobProcess, log: str, error: str | None) -> None:
    process.log_path.write_text(log)
    assert process.last_error() == error


def test_a_log_that_is_gone_has_no_error(process: JobProcess) -> None:
    process.log_path.unlink(missing_ok=True)
    assert process.last_error() is None


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_the_end_of_a_log_has_whole_lines(process: JobProcess) -> None:
    assert process.end_of_log(100) is None
    process.log_path.write_text("first\nsecond\nthird")
    assert process.end_of_log(100) == "first\nsecond\nthird"
    assert process.end_of_log(10) == "third"


def test_only_logs_below_the_folder_of_jobs_are_read(tmp_path: Path, process: JobProcess) -> None:
    jobs, secret = tmp_path / "operation", tmp_path / "log"
    secret.write_text("secret")
    process.log_path.symlink_to(secret)
    for path in (secret, jobs / ".." / "log", process.log_path, jobs / "passwd"):
        assert JobProcess.recorded(str(path), jobs).end_of_log(100) is None
    process.log_path.unlink()
    os.mkfifo(process.log_path)
    assert JobProcess.recorded(str(process.log_path), jobs).end_of_log(100) is None
