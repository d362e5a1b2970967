"""Claims of unfinished purges on folders; tables and partitions cannot get locations that overlap such a folder.

A purge claims its folders in a transaction that has checked that no other table or partition lies there, deletes the
files outside of transactions, and releases the folders in the transaction that ends its operation. A purge that was
killed keeps its claims until vacuum has finished it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, delete, insert, select

from catalog.errors import FolderBeingPurgedError, LocationInUseError
from catalog.files.locations import LONGEST_KEY, folder_keys, keys_above
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationState
from catalog.storage.schema import OperationRow, PurgedFolderRow


def claim_folders(connection: Connection, operation: Operation, folders: Iterable[str]) -> None:
    """Claim folders for a purge in the caller's transaction.

    Does nothing for folders that the purge has claimed before, or if another process has finished the purge.
    """
    row = PurgedFolderRow
    this = OperationRow.number == operation.number
    if connection.scalar(select(OperationRow.state).where(this).with_for_update()) != OperationState.COMMITTED:
        return
    claimed = set(
        map(bytes, connection.scalars(select(row.location_key).where(row.operation_number == operation.number)))
    )
    # For a path that is too long for the index, claim its nearest parent folder that fits.
    keys = {
        max(key for key in keys_above(whole) if len(key) <= LONGEST_KEY): folder
        for whole, folder in folder_keys(folders).items()
    }
    new = [
        {"location_key": key, "operation_number": operation.number, "location": folder}
        for key, folder in keys.items()
        if key not in claimed
    ]
    if new:
        connection.execute(insert(row), new)


def release_folders(connection: Connection, operation_number: int) -> None:
    """Release the folders of a purge in the caller's transaction, which ends its operation."""
    connection.execute(delete(PurgedFolderRow).where(PurgedFolderRow.operation_number == operation_number))


def refuse_purged(connection: Connection, table: str, locations: Iterable[str]) -> None:
    """Check that no purge is deleting folders that a table or its partitions will get.

    Callers look for tables and partitions in the folders first: a folder belongs to one until a purge claims it, so
    the opposite order could miss both.

    Args:
        table: The table that will get them, `database.name`.

    Raises:
        FolderBeingPurgedError: A purge is deleting a folder that overlaps one of them.
    """
    LocationInUseError.raise_first(
        FolderBeingPurgedError(table, location, operation, purged_location)
        for location, (operation, purged_location) in find_purged(connection, locations)
    )


def find_purged(connection: Connection, locations: Iterable[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the folders that overlap a purged folder, each with the purge's operation and the purged folder."""
    row = PurgedFolderRow
    query = select(row.location_key, OperationRow.id, row.location).join(
        OperationRow, OperationRow.number == row.operation_number
    )
    claims = {bytes(key): (operation, location) for key, operation, location in connection.execute(query)}
    # Usually there are no claims; then skip `folder_keys`, which reads the disk.
    if not claims:
        return
    keys = folder_keys(locations)
    for key, location in keys.items():
        for above in keys_above(key):
            if above in claims:
                yield location, claims[above]
    for key, claim in claims.items():
        for above in keys_above(key):
            if above in keys:
                yield keys[above], claim


def is_unfinished(operations: Operations, operation: Operation) -> bool:
    """Return whether a purge still owns its folders, that is, no other process has finished it."""
    current = operations.find(operation.id)
    return current is not None and current.state is OperationState.COMMITTED
