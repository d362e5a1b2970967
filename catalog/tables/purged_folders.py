"""Claims of purges and moves on folders; tables and partitions cannot get locations that overlap such a folder.

A purge claims its folders in a transaction that has checked that no other table or partition lies there, deletes the
files outside of transactions, and releases the folders in the transaction that ends its operation. A purge that was
killed keeps its claims until vacuum has finished it. `catalog.tables.moving` tells how moves use their claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from catalog.errors import FolderBeingMovedError, FolderBeingPurgedError, LocationInUseError
from catalog.files.locations import LONGEST_KEY, folder_keys, keys_above
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.storage.schema import OperationRow, PurgedFolderRow


class Claim(NamedTuple):
    """A claim on a folder, with the id, number and kind of its operation."""

    operation: str
    location: str
    number: int
    kind: str


def claim_folders(connection: Connection, operation_number: int, folders: Iterable[str]) -> None:
    """Claim folders for an operation in the caller's transaction.

    Does nothing for folders that the operation has claimed before, or if another process has finished it.
    """
    row = PurgedFolderRow
    this = OperationRow.number == operation_number
    state = connection.scalar(select(OperationRow.state).where(this).with_for_update())
    if state not in (OperationState.RUNNING, OperationState.COMMITTED):
        return
    claimed = set(
        map(bytes, connection.scalars(select(row.location_key).where(row.operation_number == operation_number)))
    )
    # For a path that is too long for the index, claim its nearest parent folder that fits.
    keys = {
        max(key for key in keys_above(whole) if len(key) <= LONGEST_KEY): folder
        for whole, folder in folder_keys(folders).items()
    }
    new = [
        {"location_key": key, "operation_number": operation_number, "location": folder}
        for key, folder in keys.items()
        if key not in claimed
    ]
    if new:
        connection.execute(insert(row), new)


def release_folders(connection: Connection, operation_number: int) -> None:
    """Release the folders of an operation in the caller's transaction, which ends its operation."""
    connection.execute(delete(PurgedFolderRow).where(PurgedFolderRow.operation_number == operation_number))


def refuse_purged(connection: Connection, table: str, locations: Iterable[str]) -> None:
    """Check that no purge or move has claimed folders that a table or its partitions will get.

    Callers look for tables and partitions in the folders first: a folder belongs to one until a purge claims it, so
    the opposite order could miss both. Moves of killed processes are undone.

    Args:
        table: The table that will get them, `database.name`.

    Raises:
        FolderBeingPurgedError: A purge is deleting a folder that overlaps one of them.
        FolderBeingMovedError: A folder that overlaps one of them is being moved.
    """
    # Imported late, because moves claim folders.
    from catalog.tables.moving import settle_claim

    errors: list[LocationInUseError] = []
    for location, claim in list(find_purged(connection, locations)):
        if claim.kind != OperationKind.MOVE_FOLDERS:
            errors.append(FolderBeingPurgedError(table, location, claim.operation, claim.location))
        elif not settle_claim(connection, claim.number):
            errors.append(FolderBeingMovedError(table, location, claim.operation, claim.location))
    LocationInUseError.raise_first(errors)


def find_purged(connection: Connection, locations: Iterable[str]) -> Iterator[tuple[str, Claim]]:
    """Yield the folders that overlap a claimed folder, each with the claim."""
    of_operation = OperationRow.id, OperationRow.number, OperationRow.kind
    query = select(PurgedFolderRow.location_key, PurgedFolderRow.location, *of_operation).join(
        OperationRow, OperationRow.number == PurgedFolderRow.operation_number
    )
    claims = {
        bytes(row.location_key): Claim(row.id, row.location, row.number, row.kind) for row in connection.execute(query)
    }
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
