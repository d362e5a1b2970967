"""Where the files of an Iceberg table may be, before Iceberg's Java classes open them.

Metadata name files by their complete paths, which any writer may choose, and Calve's processes open files that the
writer cannot. The catalog's own readers check each file of the metadata when they open it (`catalog.iceberg.storage`).
"""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.files.locations import comparable
from catalog.iceberg.avro import snapshot_manifests
from catalog.iceberg.metadata import read_metadata
from catalog.iceberg.pointers import shared_locations
from catalog.iceberg.storage import file_io, table_folder
from catalog.model import Table
from catalog.settings.places import require_files
from catalog.storage import Storage


def folders_of_files(storage: Storage, table: Table) -> list[str]:
    """Return the folders in which the catalog has files of an Iceberg table: its own, and those that it shares."""
    with storage.read() as connection:
        shared = shared_locations(connection)
    own = [comparable(table.location), *(table_folder(path) for path in (table.metadata_location,) if path)]
    return [*own, *(location for location, *name in shared if name == [table.database, table.name])]


def require_allowed_metadata(
    metadata_location: str, folders: Collection[str], *, all_snapshots: bool = False
) -> TableMetadata:
    """Check the files that a table's metadata name, except data files and delete files; return the metadata.

    Args:
        folders: In which the catalog has the table's files.
        all_snapshots: Check the manifests of all snapshots, and not only of the current one.

    Raises:
        LocationNotAllowedError: One is outside of them, and outside all allowed folders.
    """
    metadata = read_metadata(metadata_location)
    statistics = (*metadata.statistics, *getattr(metadata, "partition_statistics", ()))
    require_files((entry.statistics_path for entry in statistics), folders)
    current = metadata.current_snapshot()
    snapshots = metadata.snapshots if all_snapshots else [] if current is None else [current]
    for snapshot in snapshots:
        require_files(_metadata_files(snapshot, metadata_location), folders)
    return metadata


def _metadata_files(snapshot: Snapshot, metadata_location: str) -> list[str]:
    io = file_io(metadata_location)
    return [snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot_manifests(io, snapshot))]
