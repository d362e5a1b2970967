"""Dropping partitions with their index items, and hiding or releasing them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, update

from catalog.errors import RefusedPartition
from catalog.indexes.definitions import IdRange, hold_ranges, maintained_indexes
from catalog.indexes.items import delete_items
from catalog.indexes.keys import cut_key
from catalog.model import Table
from catalog.partition_names import given_values
from catalog.storage.bulk import among, batched
from catalog.storage.schema import PartitionRow
from catalog.values import ValueEncoder


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
            encoded = ((row.id, encoder.encode(given_values(row.packed_values))) for row in rows)
            delete_items(
                connection,
                index.id,
                [
                    (cut_key(values.index_keys[0]), partition_id)
                    for partition_id, values in encoded
                    if not isinstance(values, RefusedPartition)
                ],
            )
    return dropped


def set_quarantined(connection: Connection, table: Table, ids: Sequence[int], is_quarantined: bool) -> int:
    """Hide partitions from every reader, or release them; return how many changed."""
    changed = 0
    for chunk in batched(ids):
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
