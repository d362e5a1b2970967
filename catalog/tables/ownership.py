"""The rule that a location belongs to one table: no other table, and no partition of one, is in it or around it.

Partitions may lie outside their table's location; several tables may have partitions in such a folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from catalog.errors import InvalidLocationError, InvalidTableError, LocationInUseError
from catalog.files.filesystem import Folder
from catalog.files.locations import (
    LONGEST_KEY,
    end_of_keys_inside,
    folder_keys,
    is_plainly_within,
    keys_above,
    location_key,
)
from catalog.model import Table
from catalog.storage.bulk import among, batched
from catalog.storage.locks import hold
from catalog.storage.schema import DatabaseRow, TableRow
from catalog.tables.neighbours import find_neighbour
from catalog.tables.purged_folders import refuse_purged

LOCATIONS = "calve locations"
"""The lock that keeps tables' locations as they are: shared by those that look, and alone for one that adds one."""

_OWNERS = (
    select(DatabaseRow.name.label("database"), TableRow.name)
    .join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
    .where(TableRow.id != bindparam("table"))
)
"""The names of other tables."""


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
    owner = find_neighbour(connection, location, without_table=table_id)
    if owner is not None:
        raise LocationInUseError(table, location, owner.table, owner.location)
    refuse_purged(connection, table, [location])
    return key


def refuse_locations_in_use(connection: Connection, table: Table, locations: Sequence[str]) -> None:
    """Make sure that partitions' own locations are not, are not inside and do not hold another table's.

    The caller holds the table; no other table gets such a location before the commit.

    Raises:
        LocationInUseError: One of them is, or a purge deletes the files there.
    """
    by_key = folder_keys(location for location in locations if not is_plainly_within(location, table.location))
    if not by_key:
        return
    hold(connection, LOCATIONS, is_shared=True)
    LocationInUseError.raise_first(
        LocationInUseError(table.full_name, location, f"{owner.database}.{owner.name}", owner.location)
        for location, owner in _tables_near(connection, table, by_key)
    )
    refuse_purged(connection, table.full_name, by_key.values())


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
