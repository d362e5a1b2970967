"""Finding and killing what works on an operation, when it is at a certain point."""

from __future__ import annotations

import os
import re
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
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(poll_seconds)
    return found


def processes(*words: str) -> list[int]:
    """The processes whose command lines hold all of these words, of which one has to be unique to this stack."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if all(word in command for word in words):
                    found.append(int(entry.name))
    return found


def jvm_of(operation_id: str, step: str) -> int:
    """The JVM of a step's job, which runs already. It leads a session; the job's Python is a process in it."""
    # The request is a file in the folder of the operation.
    folder = re.sub(r"[^A-Za-z0-9_-]+", "_", operation_id)[:120]
    (leader,) = {os.getsid(pid) for pid in processes(f"/jobs/{folder}/{step}-")}
    return leader


def kill_task(run: Any, stack: Stack, task_id: str) -> None:
    """`kill -9` the process in which Airflow runs the task's code."""
    tasks = stack.api.task_instances(run.dag_id, run.id)
    instance = next(task["id"] for task in tasks if task["task_id"] == task_id)
    for pid in processes(f"airflow worker -- {instance}"):
        os.kill(pid, signal.SIGKILL)


def job_of(catalog: Catalog, run: Any, step: str) -> JobRun | None:
    """The step's job; None while there is none, or not even the operation."""
    operation = catalog.operations.find(run.operation_id)
    return None if operation is None else catalog.operations.get_job(run.operation_id, step)


def wait_until_running(catalog: Catalog, run: Any, step: str, attempt: int = 1) -> None:
    def is_running() -> bool:
        job = job_of(catalog, run, step)
        return job is not None and (job.attempt, job.state) == (attempt, JobState.RUNNING)

    wait_until(is_running, f"attempt {attempt} at {step} runs")
