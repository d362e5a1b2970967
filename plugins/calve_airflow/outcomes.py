"""What operations have done, for those outside of Calve: events of assets with counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calve_airflow.assets import Change, announce_change

if TYPE_CHECKING:
    from airflow.sdk import Context

_COUNTS: Mapping[Change, Mapping[str, str]] = {
    Change.LOADED: {
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
    Change.REBALANCED: {
        name: name for name in ("rows_moved", "bytes_moved", "files_written", "files_reassigned", "rows_deleted")
    },
    Change.MIGRATED: {name: name for name in ("partitions", "rows", "files", "bytes")},
}
"""Change → field of an operation's report → name of the count."""


def counts_of(change: Change, report: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts in an operation's report that are told outside, by their names there."""
    return {name: int(report[field]) for field, name in _COUNTS[change].items() if report.get(field) is not None}


def report_outcome(context: Context, table: str, change: Change, operation_id: str, report: Mapping[str, Any]) -> None:
    """Emit the event of an operation that the running task has completed.

    A retry repeats nothing, because Airflow keeps only the events of tries that succeed.

    Args:
        report: The operation's report, see `counts_of`.
    """
    announce_change(context, table, change, {"operation": operation_id, **counts_of(change, report)})
