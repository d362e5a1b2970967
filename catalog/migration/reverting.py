"""What would be lost when an Iceberg table became the Hive table again that it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

OPERATION_MARK = "calve.operation"
"""What the summary of a migration's snapshot says: the number of the operation."""

_ADDED_ROWS, _DELETED_ROWS = "added-records", "deleted-records"
_ADDED_FILES, _DELETED_FILES = "added-data-files", "deleted-data-files"
_DELETES = ("added-position-deletes", "added-equality-deletes")


@dataclass(frozen=True)
class Written:
    """What Iceberg commits have written since a migration; compactions, which change no row, do not count.

    Attributes:
        snapshot_count: How many commits wrote data.
        files_added, files_deleted, rows_added, rows_deleted: As their summaries say; a row that was changed is among
            both.
        is_traceable: Whether the commits lead back to the migration's own, which may have expired. If not, the figures
            are a part, and files that the Hive table needs may be gone.
    """

    snapshot_count: int = 0
    files_added: int = 0
    files_deleted: int = 0
    rows_added: int = 0
    rows_deleted: int = 0
    is_traceable: bool = True

    @property
    def is_nothing(self) -> bool:
        """Say whether both tables have the same rows."""
        return self.is_traceable and not self.snapshot_count

    def __str__(self) -> str:
        """Say what it is in one line."""
        figures = (
            f"{self.snapshot_count:,} commit(s) wrote data since the migration: {self.rows_added:,} row(s) in "
            f"{self.files_added:,} file(s) added, {self.rows_deleted:,} row(s) in {self.files_deleted:,} file(s) "
            "deleted"
        )
        if self.is_traceable:
            return figures
        return (
            f"the migration's own snapshot is no ancestor of the current one any more (expired, or replaced), so files "
            f"of the Hive table may be gone; at least {figures}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "snapshots": self.snapshot_count,
            "files_added": self.files_added,
            "files_deleted": self.files_deleted,
            "rows_added": self.rows_added,
            "rows_deleted": self.rows_deleted,
            "is_traceable": self.is_traceable,
        }


def written_since_migration(metadata_location: str) -> Written:
    """Return what was written into a table since it became an Iceberg table, into branches and tags, too."""
    from catalog.iceberg.metadata import read_metadata

    metadata = read_metadata(metadata_location)
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    heads = [metadata.current_snapshot_id, *(ref.snapshot_id for ref in metadata.refs.values())]
    totals = dict.fromkeys((_ADDED_ROWS, _DELETED_ROWS, _ADDED_FILES, _DELETED_FILES), 0)
    count, is_traceable = 0, True
    seen: set[int | None] = set()
    for head in heads:
        current = snapshots.get(head) if head is not None else None
        while current is not None and current.snapshot_id not in seen:
            seen.add(current.snapshot_id)
            properties = {} if current.summary is None else current.summary.additional_properties
            if OPERATION_MARK in properties and current.parent_snapshot_id is None:
                break
            if figures := _written_by(current):
                count += 1
                totals = {name: totals[name] + figures[name] for name in totals}
            parent = current.parent_snapshot_id
            current = snapshots.get(parent) if parent is not None else None
        # Without the migration's own snapshot at its end, or one that leads there.
        is_traceable = is_traceable and current is not None
    return _written(count, totals, is_traceable=is_traceable)


def _written_by(snapshot: Snapshot) -> dict[str, int] | None:
    """Return what a commit has written, as far as it says; None for one that changed no row."""
    from pyiceberg.table.snapshots import Operation

    summary = snapshot.summary
    if summary is not None and summary.operation is Operation.REPLACE:
        return None
    properties = {} if summary is None else summary.additional_properties
    figures = {name: _number(properties, name) for name in (_ADDED_ROWS, _DELETED_ROWS, _ADDED_FILES, _DELETED_FILES)}
    figures[_DELETED_ROWS] += sum(_number(properties, name) for name in _DELETES)
    # A commit that says nothing of rows or files may have changed any.
    return figures if any(figures.values()) or summary is None else None


def _written(count: int, totals: Mapping[str, int], *, is_traceable: bool) -> Written:
    return Written(
        count,
        totals[_ADDED_FILES],
        totals[_DELETED_FILES],
        totals[_ADDED_ROWS],
        totals[_DELETED_ROWS],
        is_traceable,
    )


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "0")
    return int(text) if text.isdigit() else 0
