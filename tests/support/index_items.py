"""The expected items of indexes, computed from the partitions independently of Calve's code."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import text

from catalog import Catalog, Table
from catalog.indexes.keys import MAXIMUM_KEY_BYTES
from catalog.model.partition_names import unpack_values
from catalog.types.key_types import NULL_BYTES, KeyType, KeyValue


def encode_key(types: Sequence[KeyType], values: Sequence[KeyValue | None]) -> bytes:
    """Return the index key of typed values, or its prefix if there are fewer values than types."""
    return b"".join(
        NULL_BYTES if value is None else key_type.encode(value) for key_type, value in zip(types, values, strict=False)
    )


def stored_items(catalog: Catalog, index_id: int) -> list[tuple[bytes, int]]:
    """Return the items of an index as they are stored."""
    query = text("SELECT key, partition_id FROM calve_index_item WHERE index_id = :id ORDER BY partition_id, key")
    with catalog.storage.read() as connection:
        return [(bytes(row.key), row.partition_id) for row in connection.execute(query, {"id": index_id})]


def expected_items(catalog: Catalog, table: Table, keys: tuple[str, ...]) -> list[tuple[bytes, int]]:
    """Return one item for each partition of the table."""
    query = text("SELECT id, packed_values FROM calve_partition WHERE table_id = :id ORDER BY id")
    with catalog.storage.read() as connection:
        rows = connection.execute(query, {"id": table.id}).all()
    positions = [table.key_names.index(key) for key in keys]
    types = [table.key_types[position] for position in positions]
    items = []
    for partition_id, packed in rows:
        values = unpack_values(packed)
        texts = [values[position] for position in positions]
        typed = [None if text is None else kind.parse(text) for kind, text in zip(types, texts, strict=True)]
        items.append((encode_key(types, typed)[:MAXIMUM_KEY_BYTES], partition_id))
    return items


def assert_every_partition_has_its_item(catalog: Catalog, table: str) -> None:
    """Compare the items of all indexes of a table with its partitions."""
    definition = catalog.get_table(table)
    for index in catalog.get_partition_indexes(table):
        assert stored_items(catalog, index.id) == expected_items(catalog, definition, index.keys), index
