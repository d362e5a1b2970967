"""Detection of writes to a migrated Iceberg table, which a revert would lose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

OPERATION_MARK = "calve.operation"
"""The field in the summary of a migration's snapshot that contains the number of the operation."""

_ADDED_ROWS, _DELETED_ROWS = "added-records", "deleted-records"
_ADDED_FILES, _DELETED_FILES = "added-data-files", "deleted-data-files"
_DELETES = ("added-position-deletes", "added-equality-deletes")


@dataclass(frozen=True)
class Written:
    """The writes of Iceberg commits since a migration, without compactions, which change no rows.

    Attributes:
        snapshot_count: The number of commits that wrote data.
        files_added, files_deleted, rows_added, rows_deleted: Totals from their summaries; an updated row counts as
            deleted and added.
        is_traceable: Whether the history leads back to the migration's own snapshot, which may have expired. If not,
            the figures are incomplete, and files that the Hive table needs may have been deleted.
    """

    snapshot_count: int = 0
    files_added: int = 0
    files_deleted: int = 0
    rows_added: int = 0
    rows_deleted: int = 0
    is_traceable: bool = True

    @property
    def is_nothing(self) -> bool:
        """Whether both tables have the same rows."""
        return self.is_traceable and not self.snapshot_count

    def __str__(self) -> str:
        """Return a one-line summary."""
        figures = (
            f"{self.snapshot_count:,} commit(s) wrote data since the migration: {self.rows_added:,} row(s) in "
            f"{self.files_added:,} file(s) added, {self.rows_deleted:,} row(s) in {self.files_deleted:,} file(s) "
            "deleted"
        )
        if self.is_traceable:
            return figures
        return (
            "the migration's own snapshot is no longer an ancestor of the current one (expired or replaced), so files "
            f"of the Hive table may be missing; at least {figures}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {
            "snapshots": self.snapshot_count,
            "files_added": self.files_added,
            "files_deleted": self.files_deleted,
            "rows_added": self.rows_added,
            "rows_deleted": self.rows_deleted,
            "is_traceable": self.is_traceable,
        }


def written_since_migration(metadata_location: str) -> Written:
    """Return the writes to a table since it became an Iceberg table, including branches and tags."""
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
        # The chain must end at the migration's own snapshot, or at one that an earlier chain has visited.
        is_traceable = is_traceable and current is not None
    return _written(count, totals, is_traceable=is_traceable)


def _written_by(snapshot: Snapshot) -> dict[str, int] | None:
    """Return the figures in a commit's summary; None if it changed no rows."""
    from pyiceberg.table.snapshots import Operation

    summary = snapshot.summary
    if summary is not None and summary.operation is Operation.REPLACE:
        return None
    properties = {} if summary is None else summary.additional_properties
    figures = {name: _number(properties, name) for name in (_ADDED_ROWS, _DELETED_ROWS, _ADDED_FILES, _DELETED_FILES)}
    figures[_DELETED_ROWS] += sum(_number(properties, name) for name in _DELETES)
    # A commit without a summary may have changed anything.
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
