"""Metrics through Airflow's own StatsD or OpenTelemetry; nothing is sent where Airflow sends none."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from enum import StrEnum
from typing import Any

log = logging.getLogger(__name__)


class Metric(StrEnum):
    """The metrics, by their names after Airflow's prefix; those that end in `_duration` are timings, others counters.

    All have the tag `table`, unless a change concerns no single table.
    """

    LOADS = "calve.loads"
    ROWS_LOADED = "calve.rows_loaded"
    PARTITIONS_ADDED = "calve.partitions_added"
    PARTITIONS_QUARANTINED = "calve.partitions_quarantined"
    LOAD_DURATION = "calve.load_duration"
    REBALANCES = "calve.rebalances"
    ROWS_MOVED = "calve.rows_moved"
    REBALANCE_DURATION = "calve.rebalance_duration"
    MIGRATIONS = "calve.migrations"
    ROWS_MIGRATED = "calve.rows_migrated"
    MIGRATION_DURATION = "calve.migration_duration"
    REVERTS = "calve.reverts"
    REVERT_DURATION = "calve.revert_duration"
    INDEX_BUILDS = "calve.index_builds"
    INDEX_BUILD_DURATION = "calve.index_build_duration"
    FAILURES = "calve.failures"
    """Tasks of Calve's DAGs that failed after their last try; also with the tags `dag_id` and `task_id`."""
    QUALITY_FAILURES = "calve.quality_failures"
    """Partitions that failed their quality check."""
    APPROVALS_ASKED = "calve.approvals_asked"
    APPROVALS_ANSWERED = "calve.approvals_answered"
    """Also those that were rejected because nobody answered in time."""


def count(metric: Metric, number: int = 1, *, table: str | None = None, **tags: str) -> None:
    """Add a number to a counter; an error of the metrics fails nothing."""
    from airflow.sdk.observability import stats

    if number > 0:
        _send(lambda: stats.incr(metric.value, number, tags=_tags(table, tags)), metric)


def record_duration(metric: Metric, since_ms: int, *, until_ms: int | None = None, table: str | None = None) -> None:
    """Record the time since a moment.

    Args:
        since_ms: The moment, in milliseconds since 1970 UTC.
        until_ms: The end of the time; None for now.
    """
    from airflow.sdk.observability import stats

    duration = timedelta(milliseconds=max(0, (until_ms or time.time() * 1000) - since_ms))
    _send(lambda: stats.timing(metric.value, duration, tags=_tags(table, {})), metric)


def _tags(table: str | None, tags: dict[str, str]) -> dict[str, str]:
    return {**({"table": table} if table else {}), **tags}


def _send(send: Any, metric: Metric) -> None:
    try:
        send()
    except Exception as error:
        log.warning("The metric %s could not be sent: %s", metric, error)
