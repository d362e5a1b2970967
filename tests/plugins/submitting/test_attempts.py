"""Whether a job runs: its process decides on this host, its heartbeats elsewhere."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from pathlib import Path

import pytest

from calve_airflow.submitting.attempts import QUEUED_SECONDS, SILENCE_SECONDS, is_running
from calve_airflow.submitting.job_process import JobProcess
from catalog.operations.records import JobRun, JobState

HERE, ELSEWHERE = socket.gethostname(), "node-7"


def job(state: JobState, silent_seconds: float, host: str) -> JobRun:
    return JobRun("load", "write", 1, state, 0, int(silent_seconds * 1000), {}, None, None, None, host)


@pytest.mark.parametrize(
    ("host", "silent_seconds", "runs"),
    [(HERE, 0, False), (ELSEWHERE, 0, True), (ELSEWHERE, SILENCE_SECONDS + 1, False)],
)
def test_a_driver_on_the_cluster_outlives_the_process_that_submitted_it(
    tmp_path: Path, host: str, silent_seconds: float, runs: bool
) -> None:
    process = JobProcess.in_new_folder(tmp_path, "job-")
    assert process.is_visible
    assert not process.is_alive()
    assert is_running(job(JobState.RUNNING, silent_seconds, host), process) == runs


def test_a_process_on_this_host_decides(tmp_path: Path) -> None:
    process = JobProcess.in_new_folder(tmp_path, "job-")
    process.start([sys.executable, "-c", "import time; time.sleep(600)"], os.environ)
    assert is_running(job(JobState.RUNNING, 10 * SILENCE_SECONDS, ELSEWHERE), process)
    process.terminate(grace_seconds=0)
    assert process._child is not None
    process._child.wait()


def test_a_job_that_waits_for_the_cluster_is_not_lost(tmp_path: Path) -> None:
    unseen = JobProcess(tmp_path / "elsewhere" / "log")
    assert is_running(job(JobState.SUBMITTED, SILENCE_SECONDS + 1, ELSEWHERE), unseen)
    assert not is_running(job(JobState.SUBMITTED, QUEUED_SECONDS + 1, ELSEWHERE), unseen)
    assert not is_running(job(JobState.RUNNING, SILENCE_SECONDS + 1, ELSEWHERE), unseen)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_of_another_user_is_not_visible(tmp_path: Path) -> None:
    process = JobProcess.in_new_folder(tmp_path, "job-")
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        assert not process.is_visible
        assert is_running(job(JobState.RUNNING, 0, HERE), process)
    finally:
        os.seteuid(0)


def test_what_a_program_was_given_is_deleted_when_it_ends(tmp_path: Path) -> None:
    process = JobProcess.in_new_folder(tmp_path, "job-")
    folder = process.log_path.parent
    process.settings_path.write_text("a password")
    (folder / "of others").touch()
    process.log_path.touch()
    process.terminate()
    assert {path.name for path in folder.iterdir()} == {"log", "lock", "of others"}
