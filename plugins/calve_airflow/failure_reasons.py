"""Reasons of failed tasks, which Airflow has only in their logs, for the pages of runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context

FAILURE = "failure"
"""The XCom with the reason for which a task has failed."""

_LONGEST = 2_000

log = logging.getLogger(__name__)


def record_reason(context: Context) -> None:
    """Record why a task has failed after its last try; for `on_failure_callback`."""
    error, task = context.get("exception"), context.get("ti")
    if error is None or task is None:
        return
    try:
        task.xcom_push(key=FAILURE, value=(str(error) or type(error).__name__)[:_LONGEST])
    except Exception as lost:
        log.warning("The reason of this failure is only in this log: %s: %s", type(lost).__name__, lost)
