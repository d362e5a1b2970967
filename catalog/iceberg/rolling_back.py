"""Roll-backs of tables by their metadata alone, as other engines make them."""

from __future__ import annotations

from operator import itemgetter

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from catalog.iceberg.metadata import dashed, lineage
from catalog.iceberg.places import METADATA
from catalog.iceberg.snapshots import Definition, known_metadata, write_metadata
from catalog.iceberg.storage import file_io


def current_snapshots(location: str) -> list[tuple[int, int]]:
    """Return the existing snapshots that are or were current: id and time since when, in the order of times.

    Raises:
        UnreadableFileError: The metadata are damaged.
    """
    metadata = known_metadata(location)
    existing = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    history = [(entry.snapshot_id, entry.timestamp_ms) for entry in metadata.snapshot_log]
    logged = {snapshot_id for snapshot_id, _ in history}
    # Source: Iceberg's TableMetadata.updateSnapshotLog, which forgets what was before an expired snapshot.
    for snapshot in lineage(metadata):
        if snapshot.snapshot_id not in logged:
            history.append((snapshot.snapshot_id, snapshot.timestamp_ms))
    return sorted((entry for entry in history if entry[0] in existing), key=itemgetter(1))


def write_rolled_back(before: str, definition: Definition, snapshot_id: int) -> str:
    """Write metadata in which another snapshot is the current one, and nothing else differs; they are not visible yet.

    Args:
        before: The location of the current metadata, which engines may have changed since the last publication.
        definition: For the place and the time of the new metadata.
        snapshot_id: A snapshot of these metadata.

    Returns:
        The location of the new metadata; `before` if the snapshot is the current one.

    Raises:
        UnreadableFileError: The current metadata are damaged.
        OSError: The file system refused.
    """
    metadata = known_metadata(before)
    if metadata.current_snapshot_id == snapshot_id:
        return before
    folder = f"{definition.location}/{METADATA}"
    reference = dashed(ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id)
    update = SetSnapshotRefUpdate(**reference)
    return write_metadata(file_io(folder), folder, before, metadata, [update], definition)
