"""The rule that a location belongs to one table: no other table, and no partition of one, is in it or around it.

Partitions may lie outside their table's location; several tables may have partitions in such a folder.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Executable, Row, bindparam, select, union_all

from catalog.errors import InvalidLocationError, InvalidTableError, LocationInUseError
from catalog.files import Folder
from catalog.locations import end_of_keys_inside, is_plainly_within, keys_above, location_key, location_keys
from catalog.model import Table
from catalog.purged_folders import LONGEST_KEY, refuse_purged
from catalog.storage.bulk import among, batched
from catalog.storage.locks import hold
from catalog.storage.schema import DatabaseRow, PartitionRow, TableRow

LOCATIONS = "calve locations"
"""The lock that keeps tables' locations as they are: shared by those that look, and alone for one that adds one."""

_OWNERS = (
    select(DatabaseRow.name.label("database"), TableRow.name)
    .join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
    .where(TableRow.id != bindparam("table"))
)
"""The names of other tables."""

_SCHEMES_OF_S3 = ("s3", "s3a", "s3n")
_LOCAL = re.compile("file:/+")


def is_own_folder(location: str, *, is_usual: bool) -> bool:
    """Return whether all files of a folder will be a new table's own, so that PURGE may delete them.

    Args:
        location: As `normalise_location` returns it.
        is_usual: The catalog chose the folder, below the database's. On an object store every other folder counts as
            somebody else's, as it does for Spark; on a local disk, one with anything in it.
    """
    if not is_usual and "://" in location and not location.startswith("file:"):
        return False
    try:
        return Folder(location).is_empty("")
    except (OSError, ValueError, InvalidLocationError):
        return False


def claim_location(connection: Connection, location: str, table: str, table_id: int = 0) -> bytes | None:
    """Hold the locations of all tables, and do the same as `claim_held_location`."""
    hold(connection, LOCATIONS)
    return claim_held_location(connection, location, table, table_id)


def claim_held_location(connection: Connection, location: str, table: str, table_id: int = 0) -> bytes | None:
    """Return the key of a table's new location, which no other table gets, or a part of it, before the commit.

    Partitions of other tables that do not lie in their table's location count, too.

    Args:
        location: Empty for a view, which has no key.
        table: The table that gets the location.
        table_id: Its identity if it exists.

    Raises:
        InvalidTableError: The location is too long.
        LocationInUseError: Another table has the location, or a folder around or inside it; or a purge deletes one.
    """
    if not location:
        return None
    key = location_key(location)
    if len(key) > LONGEST_KEY:
        raise InvalidTableError(
            f"table {table}: its location {location[:100]}… has {len(key):,} bytes, and {LONGEST_KEY:,} bytes are "
            "the most; choose a shorter one"
        )
    owner = _near(connection, key, location, table_id)
    if owner is not None:
        raise LocationInUseError(table, location, f"{owner.database}.{owner.name}", owner.location)
    refuse_purged(connection, table, {key: location})
    return key


def _near(connection: Connection, key: bytes, location: str, table_id: int) -> Row[Any] | None:
    """Return another table that is in a location or around it, or has a partition there that is elsewhere."""
    texts = sorted(spellings(location))
    above = [
        spelling[:end]
        for spelling in texts
        for end in range(1, len(spelling) + 1)
        if spelling[end : end + 1] in ("/", "")
    ]
    inside = {f"spelling_{number}": spelling for number, spelling in enumerate(texts)}
    bounds = {"key": key, "end": end_of_keys_inside(key), "keys_above": list(keys_above(key))}
    return connection.execute(_near_query(len(texts)), {"table": table_id, "above": above, **inside, **bounds}).first()


@cache
def _near_query(spelling_count: int) -> Executable:
    """Return the query of a table, and of a partition, in each way of being near; each is one look into an index."""
    key, column = TableRow.location_key, PartitionRow.location
    is_inside = (key > bindparam("key")) & (key < bindparam("end"))
    tables = (
        _OWNERS.add_columns(TableRow.location).where(condition)
        for condition in (is_inside, key.in_(bindparam("keys_above", expanding=True)))
    )
    spellings = [bindparam(f"spelling_{number}", type_=column.type) for number in range(spelling_count)]
    partitions = (
        # Partitions of dropped tables, whose rows may still be there, do not count.
        _OWNERS.add_columns(column)
        .join(PartitionRow, PartitionRow.table_id == TableRow.id)
        # In the index's order, because PostgreSQL would rather scan the table for any one of many estimated rows.
        .where(column.is_not(None), condition)
        .order_by(column)
        for condition in (
            column.in_(bindparam("above", expanding=True)),
            *((column > spelling + "/") & (column < spelling + "0") for spelling in spellings),
        )
    )
    first = [query.limit(1).subquery() for query in (*tables, *partitions)]
    return union_all(*(select(rows.c.database, rows.c.name, rows.c.location) for rows in first)).limit(1)


def refuse_locations_in_use(connection: Connection, table: Table, locations: Sequence[str]) -> None:
    """Make sure that partitions' own locations are not, are not inside and do not hold another table's.

    The caller holds the table; no other table gets such a location before the commit.

    Raises:
        LocationInUseError: One of them is, or a purge deletes the files there.
    """
    by_key = location_keys(location for location in locations if not is_plainly_within(location, table.location))
    if not by_key:
        return
    hold(connection, LOCATIONS, is_shared=True)
    LocationInUseError.raise_first(
        LocationInUseError(table.full_name, location, f"{owner.database}.{owner.name}", owner.location)
        for location, owner in _tables_near(connection, table, by_key)
    )
    refuse_purged(connection, table.full_name, by_key)


def _tables_near(
    connection: Connection, table: Table, locations: Mapping[bytes, str]
) -> Iterator[tuple[str, Row[Any]]]:
    """Yield those of locations that other tables are in or around, each with such a table."""
    row, around = TableRow.location_key, set[bytes]()
    for parent in {key[: key.rfind(b"/", 0, -1) + 1] for key in locations}:
        around.update(keys_above(parent))
    owners = _OWNERS.add_columns(TableRow.location, row)
    above: dict[bytes, Row[Any]] = {}
    for batch in batched(sorted(around)):
        rows = connection.execute(owners.where(among(connection, row, batch)), {"table": table.id})
        above |= {bytes(owner.location_key): owner for owner in rows}
    if above:
        for key, location in locations.items():
            if owner := next(filter(None, map(above.get, keys_above(key))), None):
                yield location, owner
    between = (row >= min(locations)) & (row < end_of_keys_inside(max(locations)))
    for owner in connection.execute(owners.where(between), {"table": table.id}).all():
        for key in keys_above(bytes(owner.location_key)):
            if key in locations:
                yield locations[key], owner


def spellings(location: str, key: bytes | None = None) -> set[str]:
    """Return a location as partitions may have it, without a slash at the end.

    Args:
        key: Its key, where that is known.
    """
    text = (key or location_key(location)).decode().rstrip("/")
    scheme, mark, rest = text.partition("://")
    if mark:
        return {f"{name}://{rest}" for name in (_SCHEMES_OF_S3 if scheme == "s3" else (scheme,))}
    paths = {text, posixpath.normpath(_LOCAL.sub("/", location, count=1))}
    return {f"{form}{path.rstrip('/')}" for path in paths for form in ("", "file:", "file://")}
