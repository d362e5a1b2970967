"""Search for tables and partitions whose locations equal, contain or lie inside given folders.

Only partitions with custom locations are looked up; all others lie in their table's location.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, TextClause, text

from catalog.files.locations import (
    end_of_keys_inside,
    folder_keys,
    keys_above,
    locations_with_keys,
    name_nodes,
    spellings,
)
from catalog.storage.bulk import batched, list_of_texts, listed


class Neighbour(NamedTuple):
    """A location that equals, contains or lies inside a folder.

    Attributes:
        folder: The folder that the caller asked about.
        path: The location relative to the folder, empty if they are equal; None if the location contains the folder.
        location: The location as it is stored.
        table: The table that owns the location, or whose partition does: `database.name`.
        table_id: Its id.
        is_partition: Whether the location belongs to a partition.
    """

    folder: str
    path: str | None
    location: str
    table: str
    table_id: int
    is_partition: bool


def neighbours(connection: Connection, folders: Iterable[str], *, without_table: int = 0) -> Iterator[Neighbour]:
    """Yield the neighbours of folders, each at least once, with symbolic links resolved.

    Args:
        without_table: The id of a table to ignore, with its partitions.
    """
    places, crowded = _Places(folder_keys(folders)), set[str]()
    for neighbour in places.near(_nearest(connection, places, without_table)):
        yield neighbour
        if neighbour.path:
            crowded.add(neighbour.folder)
    for key in [key for key, folder in places.keys.items() if folder in crowded]:
        yield from places.near(_inside(connection, key, places, without_table))


def find_neighbour(connection: Connection, location: str, *, without_table: int = 0) -> Neighbour | None:
    """Return one neighbour of a folder; None if it has none."""
    places = _Places(folder_keys([location]))
    return next(places.near(_nearest(connection, places, without_table)), None)


class _Places:
    """Folders, indexed for comparison with stored locations."""

    def __init__(self, keys: Mapping[bytes, str]) -> None:
        self.keys = keys
        self._nodes = name_nodes(keys.values())
        self._around: dict[bytes, set[str]] = {}
        for key, folder in keys.items():
            for above in keys_above(key):
                self._around.setdefault(above, set()).add(folder)

    def spellings(self, key: bytes) -> list[str]:
        """Return the spellings under which partitions may store a folder, given by its key."""
        return spellings(key, self._nodes)

    def near(self, rows: Iterable[Row[Any]]) -> Iterator[Neighbour]:
        """Yield the neighbours of the folders among the locations of rows."""
        for batch in batched(rows):
            locations = locations_with_keys(row.location for row in batch)
            for row, (location, keys) in zip(batch, locations, strict=True):
                owner = location, f"{row.database}.{row.name}", row.table_id, bool(row.is_partition)
                for key in keys:
                    for above in keys_above(key):
                        if above in self.keys:
                            yield Neighbour(self.keys[above], key.removeprefix(above).decode().rstrip("/"), *owner)
                    if key not in self.keys:
                        for folder in self._around.get(key, ()):
                            yield Neighbour(folder, None, *owner)


def _nearest(connection: Connection, places: _Places, without_table: int) -> Sequence[Row[Any]]:
    """Return the locations that contain the folders, and the first one inside each folder."""
    keys = places.keys
    above = {around for key in keys for around in keys_above(key)}
    lists = {
        "keys": [_plain(key) for key in keys],
        "keys_above": [_plain(key) for key in above],
        "spellings": [spelling for key in keys for spelling in places.spellings(key)],
        "spellings_above": [spelling for key in above for spelling in places.spellings(key)],
    }
    values = {name: list_of_texts(connection, texts) for name, texts in lists.items()}
    query = _nearest_query(connection.dialect.name)
    return connection.execute(query, {**values, "without_table": without_table}).all()


def _inside(connection: Connection, key: bytes, places: _Places, without_table: int) -> Iterator[Row[Any]]:
    """Yield all locations inside a folder."""
    partitions = [(_PARTITIONS_INSIDE, f"{spelling}/", f"{spelling}0") for spelling in places.spellings(key)]
    ranges: list[tuple[TextClause, Any, Any]] = [(_TABLES_INSIDE, key, end_of_keys_inside(key)), *partitions]
    for query, low, high in ranges:
        yield from connection.execute(query, {"low": low, "high": high, "without_table": without_table})


def _plain(key: bytes) -> str:
    return key[:-1].decode()


_TABLE = (
    "SELECT d.name AS database, t.name AS name, t.id AS table_id, t.location AS location, false AS is_partition "
    "FROM calve_table t JOIN calve_database d ON d.id = t.database_id WHERE t.id <> :without_table AND"
)
# The join skips partitions of dropped tables, whose rows may not be deleted yet. The sum `+ 0` keeps SQLite from
# starting with the table, which would read all partitions of each table.
_PARTITION = (
    "SELECT d.name AS database, t.name AS name, t.id AS table_id, p.location AS location, true AS is_partition "
    "FROM calve_partition p JOIN calve_table t ON t.id = p.table_id + 0 JOIN calve_database d ON d.id = t.database_id "
    "WHERE t.id <> :without_table AND"
)
_TABLES_INSIDE = text(f"{_TABLE} t.location_key > :low AND t.location_key < :high")
_PARTITIONS_INSIDE = text(f"{_PARTITION} p.location > :low AND p.location < :high")


@cache
def _nearest_query(dialect: str) -> TextClause:
    """Return the query of `_nearest`; each part is one index look-up per folder."""

    def among(select: str, name: str) -> str:
        rows = f"{select} FROM {listed(dialect, name)}"
        return f"= ANY (ARRAY({rows}))" if dialect == "postgresql" else f"IN ({rows})"

    def key(end: str) -> str:
        return f"convert_to(value || '{end}', 'UTF8')" if dialect == "postgresql" else f"CAST(value || '{end}' AS BLOB)"

    # ORDER BY forces an index scan: for any one row of many, PostgreSQL's planner would scan the table instead.
    first_table = (
        f"SELECT i.id FROM calve_table i WHERE i.location_key > {key('/')} AND i.location_key < {key('0')} "
        "AND i.id <> :without_table ORDER BY i.location_key LIMIT 1"
    )
    # A range even for a single location: PostgreSQL ignores ORDER BY on a column that is compared for equality.
    first_inside, first_there = (
        f"SELECT i.id FROM calve_partition i WHERE {condition} "
        "AND EXISTS (SELECT 1 FROM calve_table o WHERE o.id = i.table_id AND o.id <> :without_table) "
        "ORDER BY i.location LIMIT 1"
        for condition in (
            "i.location > value || '/' AND i.location < value || '0'",
            "i.location >= value AND i.location <= value",
        )
    )
    own_key = key("/")
    parts = (
        f"{_TABLE} t.location_key {among(f'SELECT {own_key}', 'keys_above')}",
        f"{_TABLE} t.id {among(f'SELECT ({first_table})', 'keys')}",
        f"{_PARTITION} p.id {among(f'SELECT ({first_there})', 'spellings_above')}",
        f"{_PARTITION} p.id {among(f'SELECT ({first_inside})', 'spellings')}",
    )
    return text(" UNION ALL ".join(parts))
