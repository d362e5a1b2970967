"""Whether metadata that an engine has written may follow those that a table has."""

from __future__ import annotations

from catalog.engine_tables.model import Loaded
from catalog.engine_tables.names import Identifier
from catalog.errors import InvalidRequestError
from catalog.files.locations import comparable
from catalog.iceberg.documents.schemas import Json
from catalog.iceberg.documents.updates import MOST_SKIPPED


def require_successor(identifier: Identifier, before: Loaded, after: Json, folder: str | None) -> None:
    """Refuse metadata of another table, and those that were not written on top of the table's: they undo commits.

    Args:
        before: The table.
        folder: The location that the client names for the table; None for the one that it has.

    Raises:
        InvalidRequestError: They are refused.
    """
    _require_same_table(identifier, before.document, after, folder)
    known, given = (document.get("last-sequence-number", 0) for document in (before.document, after))
    current = before.document.get("current-snapshot-id")
    is_known = current in (None, *(snapshot["snapshot-id"] for snapshot in after.get("snapshots") or ()))
    # A commit may also expire the snapshot that it replaces.
    is_logged = before.location in [entry["metadata-file"] for entry in after.get("metadata-log") or ()]
    if given < known or not (is_known or is_logged):
        raise InvalidRequestError(
            f"table {identifier} is at the sequence number {known}, with the snapshot {current}, and the metadata, of "
            f"the sequence number {given}, would undo commits; load the table again, and commit on top of it"
        )
    for name in ("last-column-id", "last-partition-id"):
        if after[name] < (counted := before.document.get(name) or 0):
            raise InvalidRequestError(
                f"table {identifier} has the {name} {counted}, and the metadata {after[name]}, so that later commits "
                f"would give ids again; write {counted} or more"
            )
    if given > known + MOST_SKIPPED:
        raise InvalidRequestError(
            f"table {identifier} is at the sequence number {known}, and the metadata at {given}, more than "
            f"{MOST_SKIPPED:,} above it, which leaves too few for later commits; use the next one"
        )


def _require_same_table(identifier: Identifier, before: Json, after: Json, folder: str | None) -> None:
    known, given = before.get("table-uuid"), after.get("table-uuid")
    if known is not None and str(known).lower() != str(given).lower():
        raise InvalidRequestError(
            f"table {identifier} has the uuid {known}, and the metadata that of another table: {given}; commit the "
            "table's own metadata"
        )
    if comparable(after["location"]) not in {comparable(before["location"]), comparable(folder or before["location"])}:
        raise InvalidRequestError(
            f"table {identifier} is in {before['location']}, and the metadata are those of a table in "
            f"{after['location']}; to move the table, name that location in its entry, too"
        )
