"""Index items: written, counted, deleted."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, select, text, tuple_

from catalog.storage import Storage
from catalog.storage.bulk import insert_rows
from catalog.storage.schema import IndexItemRow

_COLUMNS = ("index_id", "key", "partition_id")
_DELETE_BATCH = 20_000

Item = tuple[bytes, int]
"""A cut index key and a partition id."""


def insert_missing_items(connection: Connection, index_id: int, items: Sequence[Item]) -> None:
    """Insert the items that are not there yet."""
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


def insert_items(connection: Connection, index_id: int, items: Sequence[Item]) -> None:
    """Insert items of which none is there."""
    rows = ((index_id, key, partition_id) for key, partition_id in items)
    insert_rows(connection, IndexItemRow, _COLUMNS, rows)


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
    """Return how many items an index has."""
    query = select(func.count()).select_from(IndexItemRow).where(IndexItemRow.index_id == index_id)
    return connection.scalar(query) or 0


def delete_all_items(storage: Storage, index_id: int) -> None:
    """Delete the items of an index that nobody writes to any more, a short transaction at a time."""
    order = (IndexItemRow.key, IndexItemRow.partition_id)
    own = select(*order).where(IndexItemRow.index_id == index_id).order_by(*order)
    while True:
        with storage.write() as connection:
            last = connection.execute(own.offset(_DELETE_BATCH - 1).limit(1)).one_or_none()
            batch = delete(IndexItemRow).where(IndexItemRow.index_id == index_id)
            connection.execute(batch if last is None else batch.where(tuple_(*order) <= tuple(last)))
        if last is None:
            return
