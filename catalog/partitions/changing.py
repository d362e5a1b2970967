"""Dropping partitions with their index items, and hiding or releasing them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, select, update

from catalog.indexes.definitions import IdRange, hold_ranges, maintained_indexes
from catalog.indexes.items import delete_items, item_keys
from catalog.model import Table
from catalog.operations.failpoints import Point, reached
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions

BATCH = 10_000
"""Partitions that are dropped in one transaction."""


def drop_partitions(connection: Connection, table: Table, ids: Iterable[int]) -> int:
    """Delete partitions and their items in the caller's transaction, which holds the table's row shared.

    Returns:
        How many of them were still there.
    """
    # One encoder an index: a partition that one index does not admit still has its item in the others.
    encoders = [(index, ValueEncoder(table, [index])) for index in maintained_indexes(connection, table.id)]
    dropped = 0
    # In one order for everybody: two who drop the same partitions would otherwise wait for each other for ever.
    for chunk in batched(sorted(ids)):
        hold_ranges(connection, table.id, IdRange(chunk[0], chunk[-1]))
        rows = connection.execute(
            delete(PartitionRow)
            .where(PartitionRow.table_id == table.id, among(connection, PartitionRow.id, chunk))
            .returning(PartitionRow.id, PartitionRow.packed_values)
        ).all()
        dropped += len(rows)
        for index, encoder in encoders:
            keys = item_keys(encoder, [row.packed_values for row in rows])
            items = [(key, row.id) for key, row in zip(keys, rows, strict=True) if key is not None]
            delete_items(connection, index.id, items)
    return dropped


def hold_locations(connection: Connection, table: Table, ids: Iterable[int]) -> dict[int, str]:
    """Return where partitions are, by id, and let nobody move, rename or drop them before the transaction ends.

    Those that are gone are left out.
    """
    row = PartitionRow
    held: dict[int, str] = {}
    for chunk in batched(sorted(ids)):
        hold_ranges(connection, table.id, IdRange(chunk[0], chunk[-1]))
        these = row.table_id == table.id, among(connection, row.id, chunk)
        query = select(row.id, row.packed_values, row.location).where(*these).order_by(row.id).with_for_update()
        for known in connection.execute(query):
            held[known.id] = table.partition_location(known.packed_values, known.location)
    return held


def drop_partitions_in_batches(storage: Storage, definitions: Definitions, name: str, ids: Iterable[int]) -> int:
    """Delete partitions and their items, each batch in a transaction of its own; return how many were still there.

    Raises:
        TableNotFoundError: The table was dropped.
    """
    dropped = 0
    # Sorted as a whole: a batch then holds few ranges of an index that is being built.
    for batch in batched(sorted(ids), BATCH):
        with storage.write() as connection:
            held = definitions.lock_table(connection, name, exclusive=False)
            dropped += drop_partitions(connection, held, batch)
        reached(Point.PARTLY_COMMITTED)
    return dropped


def set_quarantined(connection: Connection, table: Table, ids: Sequence[int], is_quarantined: bool) -> int:
    """Hide partitions from every reader, or release them; return how many changed."""
    changed = 0
    for chunk in batched(sorted(ids)):
        changed += connection.execute(
            update(PartitionRow)
            .where(
                PartitionRow.table_id == table.id,
                among(connection, PartitionRow.id, chunk),
                PartitionRow.is_quarantined != is_quarantined,
            )
            .values(is_quarantined=is_quarantined)
        ).rowcount
    return changed
