"""Deletion of metadata files that a commit has removed from the metadata log, where the table's properties ask for it.

Iceberg's clients of a REST catalog leave this to the server.
"""

from __future__ import annotations

from sqlalchemy import func, or_, select

from catalog.errors import InvalidTableError, MissingFileError
from catalog.iceberg.documents.files import delete_documents, read_document
from catalog.iceberg.documents.schemas import Json
from catalog.storage import Storage
from catalog.storage.schema import IcebergTableRow

_DELETE = "write.metadata.delete-after-commit.enabled"


def delete_obsolete(storage: Storage, before: Json, after: Json, location: str) -> None:
    """Delete the metadata files that only the metadata before name.

    Files in other folders stay, and all of them while another table has metadata in the folder. So do files that are no
    metadata of this table: clients bring the log along, and it may name any file.

    Args:
        location: Of the new metadata.

    Raises:
        CatalogError: The catalog or the storage cannot be reached.
    """
    if after["properties"].get(_DELETE, "false").lower() != "true":
        return
    kept = {entry["metadata-file"] for entry in after["metadata-log"]}
    folder = location.rpartition("/")[0]
    obsolete = [entry["metadata-file"] for entry in before["metadata-log"] if entry["metadata-file"] not in kept]
    obsolete = [path for path in obsolete if path.rpartition("/")[0] == folder]
    if not obsolete:
        return
    row = IcebergTableRow
    there = or_(
        *(column.startswith(f"{folder}/", autoescape=True) for column in (row.metadata_location,)),
        row.previous_metadata_location.in_(obsolete),
    )
    with storage.read() as connection:
        is_alone = connection.scalar(select(func.count()).select_from(row).where(there)) == 1
    if is_alone:
        delete_documents(path for path in obsolete if _is_of(after.get("table-uuid"), path))


def _is_of(uuid: str | None, path: str) -> bool:
    """Return whether a file has metadata of the table with a UUID."""
    try:
        return uuid is not None and read_document(path).get("table-uuid") == uuid
    except (MissingFileError, InvalidTableError):
        return False
