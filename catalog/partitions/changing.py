"""Removal of partitions with their index items, and changes of their visibility."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, select, update

from catalog.indexes.definitions import IdRange, hold_ranges, maintained_indexes
from catalog.indexes.items import delete_items, item_keys
from catalog.model import Table
from catalog.operations.changes import record_changed, record_dropped
from catalog.operations.failpoints import Point, reached
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import ColumnStatisticsRow, PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions

BATCH = 10_000
"""The number of partitions that one transaction drops."""


def drop_partitions(connection: Connection, table: Table, ids: Iterable[int]) -> int:
    """Delete partitions and their items in the caller's transaction, which has a shared lock on the table's row.

    Returns:
        The number of partitions that still existed.
    """
    # One encoder per index: a partition that one index does not admit still has its item in the others.
    encoders = [(index, ValueEncoder(table, [index])) for index in maintained_indexes(connection, table.id)]
    dropped = 0
    # One order for all transactions: two that drop the same partitions could deadlock otherwise.
    for chunk in batched(sorted(ids)):
        hold_ranges(connection, table.id, IdRange(chunk[0], chunk[-1]))
        rows = connection.execute(
            delete(PartitionRow)
            .where(PartitionRow.table_id == table.id, among(connection, PartitionRow.id, chunk))
            .returning(PartitionRow.id, PartitionRow.packed_values, PartitionRow.is_quarantined)
        ).all()
        dropped += len(rows)
        forget_statistics(connection, table, chunk)
        record_dropped(connection, table, [row.packed_values for row in rows if not row.is_quarantined])
        for index, encoder in encoders:
            keys = item_keys(encoder, [row.packed_values for row in rows])
            items = [(key, row.id) for key, row in zip(keys, rows, strict=True) if key is not None]
            delete_items(connection, index.id, items)
    return dropped


def forget_statistics(connection: Connection, table: Table, ids: Sequence[int]) -> None:
    """Delete the column statistics of dropped partitions."""
    statistics = ColumnStatisticsRow
    is_of_dropped = statistics.table_id == table.id, among(connection, statistics.partition_id, ids)
    connection.execute(delete(statistics).where(*is_of_dropped))


def hold_locations(connection: Connection, table: Table, ids: Iterable[int]) -> dict[int, str]:
    """Return the locations of existing partitions by id, locked against changes until the transaction ends."""
    row = PartitionRow
    held: dict[int, str] = {}
    for chunk in batched(sorted(ids)):
        hold_ranges(connection, table.id, IdRange(chunk[0], chunk[-1]))
        condition = row.table_id == table.id, among(connection, row.id, chunk)
        query = select(row.id, row.packed_values, row.location).where(*condition).order_by(row.id).with_for_update()
        for partition in connection.execute(query):
            held[partition.id] = table.partition_location(partition.packed_values, partition.location)
    return held


def drop_partitions_in_batches(storage: Storage, definitions: Definitions, name: str, ids: Iterable[int]) -> int:
    """Delete partitions and their items, one transaction per batch; return the number that still existed.

    Raises:
        TableNotFoundError: The table was dropped.
    """
    dropped = 0
    # Sort across batches, so that each batch locks few ranges of an index that is being built.
    for batch in batched(sorted(ids), BATCH):
        with storage.write() as connection:
            held = definitions.lock_table(connection, name, exclusive=False)
            dropped += drop_partitions(connection, held, batch)
        reached(Point.PARTLY_COMMITTED)
    return dropped


def set_quarantined(
    connection: Connection,
    table: Table,
    ids: Sequence[int],
    is_quarantined: bool,
    operation_number: int | None = None,
) -> int:
    """Hide partitions from all readers, or make them visible; return the number of changed partitions.

    Args:
        operation_number: The operation that does it, if there is one.
    """
    changed = 0
    for chunk in batched(sorted(ids)):
        rows = connection.scalars(
            update(PartitionRow)
            .where(
                PartitionRow.table_id == table.id,
                among(connection, PartitionRow.id, chunk),
                PartitionRow.is_quarantined != is_quarantined,
            )
            .values(is_quarantined=is_quarantined)
            .returning(PartitionRow.id)
        ).all()
        changed += len(rows)
        if not is_quarantined:
            record_changed(connection, table, rows, operation_number)
    return changed
