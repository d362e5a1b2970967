"""Where the files of an Iceberg table may be, before Iceberg's Java classes open them.

Metadata name files by their complete paths, which any writer may choose, and Calve's processes open files that the
writer cannot. The catalog's own readers check each file of the metadata when they open it (`catalog.iceberg.storage`).
"""

from __future__ import annotations

from collections.abc import Collection

from catalog.files.locations import comparable
from catalog.iceberg.avro import listed_manifests
from catalog.iceberg.documents.files import read_document
from catalog.iceberg.documents.schemas import Json
from catalog.iceberg.documents.tables import normalised
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
) -> int | None:
    """Check the files that a table's metadata name, except data files and delete files.

    Columns may have types that only Iceberg's Java classes know.

    Args:
        folders: In which the catalog has the table's files.
        all_snapshots: Check the manifests of all snapshots, and not only of the current one.

    Returns:
        The id of the current snapshot; None without one.

    Raises:
        LocationNotAllowedError: One is outside of them, and outside all allowed folders.
        MissingFileError, StorageError, InvalidTableError: The metadata file cannot be read, or is damaged.
    """
    document = normalised(read_document(metadata_location))
    statistics = (*document["statistics"], *document["partition-statistics"])
    require_files((entry["statistics-path"] for entry in statistics), folders)
    current: int | None = document["current-snapshot-id"]
    for snapshot in document["snapshots"]:
        if all_snapshots or snapshot["snapshot-id"] == current:
            require_files(_metadata_files(snapshot, metadata_location), folders)
    return current


def _metadata_files(snapshot: Json, metadata_location: str) -> list[str]:
    listed = snapshot.get("manifest-list")
    if listed is None:
        return list(snapshot.get("manifests") or ())
    return [listed, *(manifest.manifest_path for manifest in listed_manifests(file_io(metadata_location), listed))]
