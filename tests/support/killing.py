"""Functions that find and kill the processes of an operation at a certain point."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog import Catalog
from catalog.operations.records import JobRun, JobState

if TYPE_CHECKING:
    from standalone.stack import Stack

PATIENCE_SECONDS = 900.0


def wait_until(condition: Callable[[], Any], what: str, poll_seconds: float = 0.05) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"timeout while waiting until {what}"
        time.sleep(poll_seconds)
    return found


def processes(*words: str) -> list[int]:
    """Return the processes whose command lines have all of these words, one of which must be unique to this stack."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if all(word in command for word in words):
                    found.append(int(entry.name))
    return found


def jvm_of(operation_id: str, step: str) -> int:
    """Return the JVM of a step's running job. It is a session leader; the job's Python process is in its session."""
    # The last arguments of the job are those with which it finds its request.
    (leader,) = {os.getsid(pid) for pid in processes(f" {operation_id} {step} ")}
    return leader


def leader_of(job: JobRun | None) -> int:
    """Return the process of a job's Spark application, as its lock names it: a session leader, with Python in it."""
    assert job is not None
    return int(Path(str(job.log_path)).with_name("lock").read_text().split()[1])


def kill_task(run: Any, stack: Stack, task_id: str) -> None:
    """Kill the process in which Airflow runs the task's code with SIGKILL."""
    tasks = stack.api.task_instances(run.dag_id, run.id)
    instance = next(task["id"] for task in tasks if task["task_id"] == task_id)
    for pid in processes(f"airflow worker -- {instance}"):
        os.kill(pid, signal.SIGKILL)


def job_of(catalog: Catalog, run: Any, step: str) -> JobRun | None:
    """Return the step's job; None if the job or the operation does not exist yet."""
    operation = catalog.operations.find(run.operation_id)
    return None if operation is None else catalog.operations.get_job(run.operation_id, step)


def wait_until_running(catalog: Catalog, run: Any, step: str, attempt: int = 1) -> None:
    def is_running() -> bool:
        job = job_of(catalog, run, step)
        return job is not None and (job.attempt, job.state) == (attempt, JobState.RUNNING)

    wait_until(is_running, f"attempt {attempt} at {step} runs")
