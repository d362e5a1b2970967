"""Whether a submitted job still runs, judged from its process, or from its heartbeats if it runs on another host."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from calve_airflow.submitting.job_process import JobProcess

if TYPE_CHECKING:
    from catalog.operations.records import JobRun

SILENCE_SECONDS = 120
"""A job on another host counts as lost after this time without a heartbeat."""

_OUTAGE_SECONDS = 10
"""A poll of the catalog that takes longer has waited for it."""


def is_running(job: JobRun, process: JobProcess) -> bool:
    """Return whether a job runs, from one poll."""
    if process.is_visible:
        return process.is_alive()
    return job.silent_ms < SILENCE_SECONDS * 1000


class Liveness:
    """Whether a job runs, for an observer that polls it repeatedly and may have to wait for the catalog.

    During an outage of the catalog, a job cannot send heartbeats either, so its silence counts from the outage's end.
    """

    def __init__(self, poll_seconds: float) -> None:
        """Begin to observe a job with one poll every `poll_seconds`."""
        self._poll_seconds = poll_seconds
        self._polled_at = time.monotonic()
        self._outage_ended_at = -math.inf

    def is_running(self, job: JobRun, process: JobProcess) -> bool:
        """Return whether the job runs, after a poll of the catalog."""
        now = time.monotonic()
        if now - self._polled_at > self._poll_seconds + _OUTAGE_SECONDS:
            self._outage_ended_at = now
        self._polled_at = now
        return is_running(job, process) or (not process.is_visible and now - self._outage_ended_at < SILENCE_SECONDS)
