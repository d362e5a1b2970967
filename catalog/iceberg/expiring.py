"""Expiry of snapshots and metadata of the tables that Calve places."""

from __future__ import annotations

from itertools import pairwise

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from catalog.iceberg.metadata import dashed
from catalog.iceberg.named_files import Expired
from catalog.iceberg.places import METADATA
from catalog.iceberg.snapshots import Definition, known_metadata, write_metadata
from catalog.iceberg.storage import file_io


def find_expired(location: str, cutoff_ms: int) -> Expired:
    """Return what other metadata and snapshots have replaced before a time.

    Snapshots stay that are current or have a reference.

    Raises:
        UnreadableFileError: The metadata are damaged.
    """
    metadata = known_metadata(location)
    changed_at = [*(entry.timestamp_ms for entry in metadata.metadata_log), metadata.last_updated_ms][1:]
    log = zip(metadata.metadata_log, changed_at, strict=True)
    files = frozenset(entry.metadata_file for entry, at_ms in log if at_ms <= cutoff_ms)
    snapshot_ids = frozenset(_replaced_snapshots(metadata, cutoff_ms))
    kept = frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots) - snapshot_ids
    # Each write adds an entry to the log: to remove only one would never end.
    return Expired(snapshot_ids, files if snapshot_ids or len(files) > 1 else frozenset(), kept)


def write_expired(before: str, definition: Definition, expired: Expired) -> str:
    """Write the metadata without expired snapshots and metadata, if there are any; it is not visible yet.

    No file is deleted.

    Returns:
        The location of the new metadata; `before` if nothing is expired.

    Raises:
        UnreadableFileError: The metadata are damaged.
        OSError: The file system refused.
    """
    if not expired:
        return before
    metadata = known_metadata(before)
    folder = f"{definition.location}/{METADATA}"
    removal = RemoveSnapshotsUpdate(**dashed(snapshot_ids=sorted(expired.snapshot_ids)))
    updates: list[TableUpdate] = [removal] if expired.snapshot_ids else []
    log = [entry for entry in metadata.metadata_log if entry.metadata_file not in expired.metadata_files]
    kept = metadata.model_copy(update={"metadata_log": log})
    return write_metadata(file_io(folder), folder, before, kept, updates, definition)


def _replaced_snapshots(metadata: TableMetadata, cutoff_ms: int) -> list[int]:
    kept = {reference.snapshot_id for reference in metadata.refs.values()}
    log = sorted(metadata.snapshot_log, key=lambda entry: entry.timestamp_ms)
    # Snapshots that were never current are staged, or of another branch, where their children replace them.
    replaced_at = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    for snapshot in metadata.snapshots:
        if (parent := snapshot.parent_snapshot_id) in replaced_at:
            replaced_at[parent] = max(replaced_at[parent], snapshot.timestamp_ms)
    replaced_at |= {entry.snapshot_id: later.timestamp_ms for entry, later in pairwise(log)}
    ids = {snapshot.snapshot_id for snapshot in metadata.snapshots} - kept
    return sorted(number for number in ids if replaced_at[number] <= cutoff_ms)
