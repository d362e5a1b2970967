"""Attempts at Spark jobs: whether they still run, judged from their process or heartbeats, and their cancellation."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from calve_airflow.submitting.job_process import JobProcess
from catalog.operations.records import LEASE_MS
from catalog.settings.environment import jobs_folder

if TYPE_CHECKING:
    from catalog import Catalog
    from catalog.operations.records import JobRun

SILENCE_SECONDS = 120
"""A job on another host counts as lost after this time without a heartbeat."""

QUEUED_SECONDS = LEASE_MS // 1000
"""The same before its first heartbeat: a cluster may let it wait, and download its image and packages."""

_FIRST_PAUSE_SECONDS = 0.1
_OUTAGE_SECONDS = 10
"""A poll of the catalog that takes longer has waited for it."""


CANCELLED = "CANCELLED"
"""Error class of an attempt whose task was killed."""


def recorded_process(log_path: str | None, log_position: int = 0) -> JobProcess:
    """Return the process of a job by its recorded log path; one outside of this host's folder of jobs is not seen."""
    return JobProcess.recorded(log_path, jobs_folder(), log_position)


def cancel(catalog: Catalog, operation_id: str, step: str, attempt: int) -> None:
    """Fence an attempt whose task was killed, so that it can no longer commit; its next heartbeat ends it."""
    catalog.operations.fail_job(operation_id, step, attempt, CANCELLED, "its Airflow task was killed")


def is_running(job: JobRun, process: JobProcess) -> bool:
    """Return whether a job runs, from one poll.

    On this host, its process decides. Its heartbeats decide if it runs on another one, also where the process is only
    that of spark-submit, which may die before a driver on the cluster.
    """
    if process.is_visible and process.is_alive():
        return True
    if _is_here(job, process):
        return False
    limit = QUEUED_SECONDS if job.state == "SUBMITTED" else SILENCE_SECONDS
    return job.silent_ms < limit * 1000


def _is_here(job: JobRun, process: JobProcess) -> bool:
    return process.is_visible and job.host == socket.gethostname()


@dataclass
class FollowedAttempt:
    """An attempt that a task follows, with what the task keeps while it is deferred.

    Attributes:
        progress: The progress that was logged last.
        resubmitted: Number of times that this try has submitted a lost job again.
        deadline: The end of the task's `execution_timeout`, in seconds since 1970; None for no timeout.
    """

    number: int
    process: JobProcess
    progress: str | None = None
    resubmitted: int = 0
    deadline: float | None = None

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline is over."""
        return self.deadline is not None and time.time() >= self.deadline

    def as_json(self) -> dict[str, Any]:
        """Return the values from which `from_json` recreates this object."""
        log = {"log_path": str(self.process.log_path), "log_position": self.process.log_position}
        return {name: value for name, value in vars(self).items() if name != "process"} | log

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the attempt of these values."""
        others = dict(values)
        process = recorded_process(others.pop("log_path"), others.pop("log_position"))
        return cls(process=process, **others)


class Liveness:
    """Whether a job runs, for an observer that polls it repeatedly and may have to wait for the catalog.

    During an outage of the catalog, a job cannot send heartbeats either, so its silence counts from the outage's end.
    """

    def __init__(self, poll_seconds: float) -> None:
        """Begin to observe a job with at least one poll every `poll_seconds`."""
        self._poll_seconds = poll_seconds
        self._began_at = self._polled_at = time.monotonic()
        self._outage_ended_at = -math.inf

    @property
    def pause_seconds(self) -> float:
        """The time until the next poll: short at first, because small jobs end soon."""
        return min(self._poll_seconds, _FIRST_PAUSE_SECONDS + (time.monotonic() - self._began_at) / 20)

    def is_running(self, job: JobRun, process: JobProcess) -> bool:
        """Return whether the job runs, after a poll of the catalog."""
        now = time.monotonic()
        if now - self._polled_at > self._poll_seconds + _OUTAGE_SECONDS:
            self._outage_ended_at = now
        self._polled_at = now
        if is_running(job, process):
            return True
        return not _is_here(job, process) and now - self._outage_ended_at < SILENCE_SECONDS
