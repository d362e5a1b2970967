"""Insertion, counting and deletion of index items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, exists, func, select, text

from catalog.indexes.keys import cut_key
from catalog.model.partition_names import given_values
from catalog.storage import Storage
from catalog.storage.bulk import Rows
from catalog.storage.schema import IndexItemRow, PartitionIndexRow
from catalog.storage.values import ValueEncoder

_DELETE_BATCH = 20_000
_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"
_INT8_SIZE = (8).to_bytes(4)

Item = tuple[bytes, int]
"""A cut index key and a partition id."""


def item_keys(encoder: ValueEncoder, packed_values: Sequence[str]) -> list[bytes | None]:
    """Return the key of each partition's item in the encoder's only index; None for a refused partition."""
    if not packed_values:
        return []
    encoded = encoder.encode_all(list(map(given_values, packed_values)))
    [keys] = encoded.index_keys
    return [None if number in encoded.refused else cut_key(key) for number, key in enumerate(keys)]


def insert_items(connection: Connection, index_id: int, keys: pa.BinaryArray, partition_ids: pa.Int64Array) -> None:
    """Insert an item for each partition; existing items are kept.

    Args:
        keys: The partitions' cut index keys.
    """
    if connection.dialect.name != "postgresql":
        insert_missing_items(connection, index_id, list(zip(keys.to_pylist(), partition_ids.to_pylist(), strict=True)))
        return
    driver = connection.connection.driver_connection
    assert driver is not None
    # Sorted, because neighbouring B-tree entries are written faster together.
    order = pc.array_sort_indices(keys)
    rows = _copy_rows(index_id, keys.take(order), partition_ids.take(order))
    try:
        with (
            connection.begin_nested(),
            driver.cursor() as cursor,
            cursor.copy("COPY calve_index_item (index_id, key, partition_id) FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.write(_COPY_HEADER)
            copy.write(rows)
            copy.write(_COPY_END)
    except Exception as error:
        if getattr(error, "sqlstate", None) != "23505":
            raise
        insert_missing_items(connection, index_id, list(zip(keys.to_pylist(), partition_ids.to_pylist(), strict=True)))


def _copy_rows(index_id: int, keys: pa.BinaryArray, partition_ids: pa.Int64Array) -> memoryview:
    """Return the rows (index_id, key, partition_id) of a binary COPY; there must be at least one item.

    Source: PostgreSQL, COPY, binary format: the number of fields in 2 bytes, then each field after its size in 4.
    """
    sizes = pc.binary_length(keys).to_numpy().astype(">i4")
    ids = np.empty(len(keys), [("size", ">i4"), ("id", ">i8")])
    ids["size"], ids["id"] = 8, partition_ids.to_numpy()
    head = pa.scalar((3).to_bytes(2) + _INT8_SIZE + index_id.to_bytes(8), pa.binary())
    rows = pc.binary_join_element_wise(head, _as_binary(sizes), keys, _as_binary(ids), b"")
    # Arrow stores the values of an array without gaps, so its buffer is the stream.
    return memoryview(rows.buffers()[2])


def _as_binary(rows: np.ndarray) -> pa.BinaryArray:
    width = pa.binary(rows.itemsize)
    return pa.Array.from_buffers(width, len(rows), [None, pa.py_buffer(rows)]).cast(pa.binary())


def insert_missing_items(connection: Connection, index_id: int, items: Sequence[Item]) -> None:
    """Insert the items that do not exist yet."""
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("CREATE TEMPORARY TABLE calve_new_item (key bytea, partition_id bigint) ON COMMIT DROP")
        )
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor, cursor.copy("COPY calve_new_item FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["bytea", "int8"])
            for item in items:
                copy.write_row(item)
        connection.execute(
            text(
                "INSERT INTO calve_index_item (index_id, key, partition_id) "
                "SELECT :index_id, key, partition_id FROM calve_new_item ON CONFLICT DO NOTHING"
            ),
            {"index_id": index_id},
        )
        return
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.executemany(
        "INSERT OR IGNORE INTO calve_index_item (index_id, key, partition_id) VALUES (?, ?, ?)",
        ((index_id, key, partition_id) for key, partition_id in items),
    ).close()


def delete_items(connection: Connection, index_id: int, items: Sequence[Item]) -> None:
    """Delete items of one index."""
    if not items:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(
            text(
                "DELETE FROM calve_index_item AS item USING unnest(CAST(:keys AS bytea[]), CAST(:ids AS bigint[])) "
                "AS gone (key, partition_id) WHERE item.index_id = :index_id AND item.key = gone.key "
                "AND item.partition_id = gone.partition_id"
            ),
            {"index_id": index_id, "keys": [key for key, _ in items], "ids": [partition for _, partition in items]},
        )
        return
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.executemany(
        "DELETE FROM calve_index_item WHERE index_id = ? AND key = ? AND partition_id = ?",
        ((index_id, key, partition_id) for key, partition_id in items),
    ).close()


def count_items(connection: Connection, index_id: int) -> int:
    """Return the number of an index's items."""
    query = select(func.count()).select_from(IndexItemRow).where(IndexItemRow.index_id == index_id)
    return connection.scalar(query) or 0


def has_items(connection: Connection, index_id: int) -> bool:
    """Return whether an index has any item."""
    return bool(connection.scalar(select(exists().where(IndexItemRow.index_id == index_id))))


ITEMS = Rows(IndexItemRow, IndexItemRow.index_id, (IndexItemRow.key, IndexItemRow.partition_id))
"""The items of an index, for their deletion in batches."""


def delete_all_items(storage: Storage, index_id: int) -> None:
    """Delete the items of an index that is no longer written, in short transactions."""
    turn = select(PartitionIndexRow.id).where(PartitionIndexRow.id == index_id)
    for _ in ITEMS.delete_all(storage, index_id, turn, _DELETE_BATCH):
        pass
