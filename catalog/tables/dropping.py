"""Dropping a table: at once for every reader, and its rows a short transaction at a time.

The table and its indexes go in one short transaction, with the first rows of each kind. What is left is journaled in
the same transaction: from then on nobody finds these rows, because nothing has the ids of their table and indexes
again. They are deleted after the commit; who is killed meanwhile leaves an operation in the state COMMITTED, which
vacuum finishes. The files of a table that is dropped with PURGE go last (`catalog.tables.purging`).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from sqlalchemy import Connection, delete, select

from catalog.indexes.items import ITEMS
from catalog.model import Table
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.bulk import Rows
from catalog.storage.schema import (
    BackfillRangeRow,
    DataFileRow,
    OperationRow,
    PartitionIndexRow,
    PartitionRow,
    SourceFileRow,
    StagedPartitionRow,
    TableRow,
)
from catalog.tables.definitions import Definitions
from catalog.tables.own_files import OthersFiles
from catalog.tables.purged_folders import claim_folders, release_folders
from catalog.tables.purging import purge

BATCH = 10_000
"""Rows of a kind that are deleted in the first transaction."""

_ROWS_OF_TABLES = (
    Rows(PartitionRow, PartitionRow.table_id, (PartitionRow.id,)),
    Rows(DataFileRow, DataFileRow.table_id, (DataFileRow.partition_id, DataFileRow.id)),
    Rows(SourceFileRow, SourceFileRow.table_id, (SourceFileRow.path,)),
    Rows(
        StagedPartitionRow,
        StagedPartitionRow.table_id,
        (StagedPartitionRow.identity, StagedPartitionRow.operation_number, StagedPartitionRow.attempt),
    ),
)


def drop_table(
    connection: Connection, definitions: Definitions, operations: Operations, table: Table, *, with_files: bool
) -> str | None:
    """Drop a table that the caller holds exclusively, in the caller's transaction.

    Args:
        with_files: Journal that its folder has to go.

    Returns:
        The id of the operation that `finish_drop` has to finish after the commit; None when nothing is left.

    Raises:
        ConflictError: An operation is changing the table.
    """
    definitions.refuse_if_busy(connection, table)
    index_ids = connection.scalars(select(PartitionIndexRow.id).where(PartitionIndexRow.table_id == table.id)).all()
    # The ranges first: that waits for builds at work, and none begins again.
    connection.execute(delete(BackfillRangeRow).where(BackfillRangeRow.index_id.in_(index_ids)))
    connection.execute(delete(PartitionIndexRow).where(PartitionIndexRow.table_id == table.id))
    connection.execute(delete(TableRow).where(TableRow.id == table.id))
    last_keys = [rows.delete_batch(connection, owner_id, size=BATCH) for rows, owner_id in _rows(table.id, index_ids)]
    if not with_files and not any(last_keys):
        return None
    operation_id = f"drop-{table.full_name}-{uuid4().hex}"
    request = {"location": table.location if with_files else None, "index_ids": list(index_ids)}
    operation = operations.record(connection, operation_id, OperationKind.DROP_TABLE, table, request)
    if with_files:
        claim_folders(connection, operation, [table.location])
    return operation_id


def _rows(table_id: int, index_ids: Sequence[int]) -> list[tuple[Rows, int]]:
    """Return the kinds of rows with the ids of their owners."""
    return [*((ITEMS, index_id) for index_id in index_ids), *((rows, table_id) for rows in _ROWS_OF_TABLES)]


def finish_drop(storage: Storage, operations: Operations, operation: Operation) -> OthersFiles:
    """Delete the rows that a dropped table has left, and its files if they have to go; see `purging.purge`.

    Does no harm when done again, or by several at once.

    Returns:
        The files that stay, because Calve did not write them.

    Raises:
        FilesNotDeletedError: The file system refuses, or an Iceberg table needs the files.
    """
    turn = select(OperationRow.number).where(OperationRow.number == operation.number)
    # Earlier versions journaled only the location, and deleted the rows at once.
    if operation.table_id is not None:
        for rows, owner_id in _rows(operation.table_id, operation.request.get("index_ids", ())):
            for _ in rows.delete_all(storage, owner_id, turn, BATCH):
                reached(Point.PARTLY_COMMITTED)
    others = OthersFiles() if operation.request["location"] is None else purge(storage, operations, operation)
    with storage.write() as connection:
        release_folders(connection, operation.number)
        operations.advance(connection, operation.id, OperationState.CLEANED)
    return others


def finish_drops(storage: Storage, operations: Operations) -> int:
    """Finish the drops of tables that were interrupted; return their number."""
    interrupted = operations.committed(OperationKind.DROP_TABLE)
    for operation in interrupted:
        finish_drop(storage, operations, operation)
    return len(interrupted)
