"""Removal of tables: atomic for readers, while the rows are deleted in batches.

One short transaction deletes the table, its indexes and the first rows of each kind, and journals the rest. No reader
finds the remaining rows, because the ids of their table and indexes are never used again. They are deleted after the
commit; a process that is killed meanwhile leaves an operation in the state COMMITTED, which vacuum finishes. The files
of a table that is dropped with PURGE are deleted last (`catalog.tables.purging`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, delete, func, select

from catalog.errors import UnsupportedChangeError
from catalog.indexes.items import ITEMS
from catalog.model import Table, TableKind
from catalog.model.partition_names import given_values, partition_path
from catalog.operations.changes import record_dropped, record_names_dropped
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.bulk import Rows
from catalog.storage.schema import (
    BackfillRangeRow,
    ColumnStatisticsRow,
    DataFileRow,
    DescriptorRow,
    FormerFileRow,
    OperationRow,
    PartitionIndexRow,
    PartitionRow,
    PartitionVersionRow,
    RevisionRow,
    SetAsideFileRow,
    SourceFileRow,
    StagedPartitionRow,
    TableRow,
    TableVersionRow,
    VersionState,
)
from catalog.tables.definitions import Definitions
from catalog.tables.own_files import ALL_FILES, PurgedFiles
from catalog.tables.purged_folders import claim_folders, release_folders
from catalog.tables.purging import purge

BATCH = 10_000
"""The number of rows of each kind that one transaction deletes."""

_ROWS_OF_TABLES = (
    Rows(
        PartitionRow,
        PartitionRow.table_id,
        (PartitionRow.id,),
        (PartitionRow.packed_values, PartitionRow.is_quarantined),
    ),
    Rows(DescriptorRow, DescriptorRow.table_id, (DescriptorRow.id,)),
    Rows(
        ColumnStatisticsRow,
        ColumnStatisticsRow.table_id,
        (ColumnStatisticsRow.partition_id, ColumnStatisticsRow.column_name),
    ),
    Rows(TableVersionRow, TableVersionRow.table_id, (TableVersionRow.number,)),
    Rows(DataFileRow, DataFileRow.table_id, (DataFileRow.partition_id, DataFileRow.id)),
    Rows(FormerFileRow, FormerFileRow.table_id, (FormerFileRow.until_revision, FormerFileRow.number)),
    Rows(RevisionRow, RevisionRow.table_id, (RevisionRow.revision,)),
    Rows(PartitionVersionRow, PartitionVersionRow.table_id, (PartitionVersionRow.number,)),
    Rows(SourceFileRow, SourceFileRow.table_id, (SourceFileRow.path,)),
    Rows(SetAsideFileRow, SetAsideFileRow.table_id, (SetAsideFileRow.path,)),
    Rows(
        StagedPartitionRow,
        StagedPartitionRow.table_id,
        (StagedPartitionRow.identity, StagedPartitionRow.operation_number, StagedPartitionRow.attempt),
    ),
)


@dataclass(frozen=True)
class TableDrop:
    """A dropped table, whose transaction may not be committed yet.

    Attributes:
        operation_id: The operation that `finish_drop` must finish after the commit; None if nothing remains to delete.
        has_metadata_only: Whether nothing but Iceberg's metadata is in the table's folder.
    """

    table: Table
    operation_id: str | None
    has_metadata_only: bool


def drop_table(
    connection: Connection,
    definitions: Definitions,
    operations: Operations,
    table: Table,
    *,
    with_files: bool,
    all_files: bool = False,
) -> str | None:
    """Drop a table that the caller has locked exclusively, in the caller's transaction.

    Args:
        with_files: Journal that its folder must be deleted.
        all_files: Including the files that Calve did not write.

    Returns:
        The id of the operation that `finish_drop` must finish after the commit; None if nothing remains to delete.

    Raises:
        ConflictError: An operation is changing the table.
        UnsupportedChangeError: Its files stay, and those of partitions that were replaced are not in their folders yet.
    """
    definitions.refuse_if_busy(connection, table)
    if not with_files:
        _refuse_unsettled(connection, table)
    index_ids = connection.scalars(select(PartitionIndexRow.id).where(PartitionIndexRow.table_id == table.id)).all()
    # Backfill ranges first: this waits for running index builds, and prevents new ones.
    connection.execute(delete(BackfillRangeRow).where(BackfillRangeRow.index_id.in_(index_ids)))
    connection.execute(delete(PartitionIndexRow).where(PartitionIndexRow.table_id == table.id))
    connection.execute(delete(TableRow).where(TableRow.id == table.id))
    if table.scheme is not None:
        record_dropped(connection, table, [str(partition_id) for partition_id in table.scheme.ids])
    then = _announcing(table.id, table.full_name, table.key_names)
    last_keys = [
        rows.delete_batch(connection, owner_id, size=BATCH, then=then) for rows, owner_id in _rows(table.id, index_ids)
    ]
    if not with_files and not any(last_keys):
        return None
    operation_id = f"drop-{table.full_name}-{uuid4().hex}"
    request: dict[str, Any] = {
        "location": table.location if with_files else None,
        "index_ids": list(index_ids),
        "partition_keys": list(table.key_names),
    }
    if with_files and all_files:
        request[ALL_FILES] = True
    operation = operations.record(connection, operation_id, OperationKind.DROP_TABLE, table, request)
    if with_files:
        claim_folders(connection, operation.number, [table.location])
    return operation_id


def _refuse_unsettled(connection: Connection, table: Table) -> None:
    """Refuse to forget the versions of partitions, without which the former files would remain in their folders."""
    row = PartitionVersionRow
    unsettled = select(func.count()).where(row.table_id == table.id, row.state == VersionState.CURRENT)
    if count := connection.scalar(unsettled):
        # PURGE keeps the files of external tables.
        purge = "" if table.kind is TableKind.EXTERNAL else ", or drop it with PURGE"
        raise UnsupportedChangeError(
            f"table {table.full_name} has {count:,} partition(s) whose folders still have the files from before their "
            f"replacement; run `calve vacuum {table.full_name} --grace-hours 0` when no reader is running, and "
            f"drop the table then{purge}"
        )


def _rows(table_id: int, index_ids: Sequence[int]) -> list[tuple[Rows, int]]:
    """Return the kinds of rows of a table, each with the id of its owner (the table or an index)."""
    return [*((ITEMS, index_id) for index_id in index_ids), *((rows, table_id) for rows in _ROWS_OF_TABLES)]


def _announcing(
    table_id: int, table: str, keys: Sequence[str]
) -> Callable[[Connection, Sequence[Row[Any]]], None] | None:
    """Return the function that records deleted partitions, in each transaction those that it deletes."""

    def record(connection: Connection, rows: Sequence[Row[Any]]) -> None:
        names = (partition_path(keys, given_values(row.packed_values)) for row in rows if not row.is_quarantined)
        record_names_dropped(connection, table_id, table, names)

    return record if keys else None


def finish_drop(storage: Storage, operations: Operations, operation: Operation) -> PurgedFiles:
    """Delete the remaining rows of a dropped table, and its files if requested; see `purging.purge`.

    Safe to repeat, and to run in several processes at once.

    Returns:
        The files that stay, because Calve did not write them, and what was deleted.

    Raises:
        FilesNotDeletedError: The file system refused, or an Iceberg table needs the files.
    """
    turn = select(OperationRow.number).where(OperationRow.number == operation.number)
    # Operations of earlier versions have no table id: those versions deleted the rows in the drop itself.
    if operation.table_id is not None:
        then = _announcing(operation.table_id, operation.table, operation.request.get("partition_keys", ()))
        for rows, owner_id in _rows(operation.table_id, operation.request.get("index_ids", ())):
            for _ in rows.delete_all(storage, owner_id, turn, BATCH, then=then):
                reached(Point.PARTLY_COMMITTED)
    others = PurgedFiles()
    if operation.request["location"] is not None:
        others = purge(storage, operations, operation)
    elif operation.request.get("metadata_location") is not None:
        # Imported late, because few commands need it.
        from catalog.tables.iceberg_purging import purge_named_files

        others = purge_named_files(storage, operation)
    with storage.write() as connection:
        release_folders(connection, operation.number)
        operations.advance(connection, operation.id, OperationState.CLEANED)
    return others


def finish_drops(storage: Storage, operations: Operations) -> int:
    """Finish interrupted drops of tables; return their number."""
    interrupted = operations.committed(OperationKind.DROP_TABLE)
    for operation in interrupted:
        finish_drop(storage, operations, operation)
    return len(interrupted)
