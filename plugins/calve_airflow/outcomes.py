"""Reports of committed operations to the outside: events of assets with counts, and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from calve_airflow.assets import Change, announce_change
from calve_airflow.catalog_access import open_catalog
from calve_airflow.metrics import Metric, count, record_duration

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog.operations.records import Operation


@dataclass(frozen=True)
class _Told:
    """The report of one kind of change.

    Attributes:
        counts: Field of an operation's report → name of the count.
        number: The metric of the number of operations.
        duration: The metric of their duration.
        metrics: Name of a count → its metric.
    """

    counts: Mapping[str, str]
    number: Metric
    duration: Metric
    metrics: Mapping[str, Metric] = field(default_factory=dict)


def _same(*names: str) -> Mapping[str, str]:
    return {name: name for name in names}


_TOLD: Mapping[Change, _Told] = {
    Change.LOADED: _Told(
        {
            "partitions": "partitions_added",
            "partitions_extended": "partitions_extended",
            "partitions_replaced": "partitions_replaced",
            "partitions_removed": "partitions_removed",
            "row_count": "rows",
            "file_count": "files",
            "size_bytes": "bytes",
            "refused": "partitions_refused",
            "quarantined": "partitions_quarantined",
        },
        Metric.LOADS,
        Metric.LOAD_DURATION,
        {
            "rows": Metric.ROWS_LOADED,
            "partitions_added": Metric.PARTITIONS_ADDED,
            "partitions_quarantined": Metric.PARTITIONS_QUARANTINED,
        },
    ),
    Change.REBALANCED: _Told(
        _same("rows_moved", "bytes_moved", "files_written", "files_reassigned", "rows_deleted"),
        Metric.REBALANCES,
        Metric.REBALANCE_DURATION,
        {"rows_moved": Metric.ROWS_MOVED},
    ),
    Change.MIGRATED: _Told(
        _same("partitions", "rows", "files", "bytes"),
        Metric.MIGRATIONS,
        Metric.MIGRATION_DURATION,
        {"rows": Metric.ROWS_MIGRATED},
    ),
    Change.REVERTED: _Told({}, Metric.REVERTS, Metric.REVERT_DURATION),
}


def report_outcome(
    context: Context,
    change: Change,
    operation: Operation,
    report: Mapping[str, Any],
    table: str | None = None,
    *,
    until_ms: int | None = None,
) -> None:
    """Emit the event and the metrics of an operation that the running task has completed, and record that it has.

    A retry repeats no event, because Airflow keeps only those of tries that succeed.

    Args:
        report: The operation's report.
        table: The changed table, if it is not that of the operation.
        until_ms: When the operation ended, in milliseconds since 1970 UTC; None for now.
    """
    table, told = table or operation.table, _TOLD[change]
    counts = {name: int(report[field]) for field, name in told.counts.items() if report.get(field) is not None}
    announce_change(context, table, change, {"operation": operation.id, **counts})
    count(told.number, table=table)
    record_duration(told.duration, operation.created_at_ms, until_ms=until_ms, table=table)
    for name, metric in told.metrics.items():
        count(metric, counts.get(name, 0), table=table)
    with open_catalog() as catalog:
        catalog.outcomes.mark([operation.id])


_CHANGES: Mapping[str, Change] = {"rebalance": Change.REBALANCED, "migrate": Change.MIGRATED, "revert": Change.REVERTED}


_NAMES = {
    "row_count": ("rows", "rows_loaded"),
    "file_count": ("files", "files_written"),
    "size_bytes": ("bytes", "bytes_written"),
    "partitions": ("partitions_added", "partitions_created"),
}
"""The names of a load's counts → those that statements give to them, into Hive-style tables and into schemes."""


def outcome_of(operation: Operation) -> tuple[Change, Mapping[str, Any], str]:
    """Return the change that a committed operation has made, its report, and the changed table."""
    change = _CHANGES.get(operation.kind, Change.LOADED)
    steps = [step for step in operation.report.values() if isinstance(step, Mapping)]
    if change is Change.LOADED:
        report = next((step for step in steps if {"partitions_extended", "rows_loaded"} & step.keys()), {})
        named = {name: report[other] for name, others in _NAMES.items() for other in others if other in report}
        return change, {**named, **report}, operation.table
    if change is Change.MIGRATED:
        report = operation.report.get("flip", {})
        return change, report, str(report.get("target", operation.table))
    return change, operation.report.get("commit", {}), operation.table
