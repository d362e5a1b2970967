"""The rule that a location belongs to one table: no location of another table or its partitions overlaps it.

Partitions may lie outside their table's location; several tables may have partitions in such a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, bindparam, or_, select

from catalog.errors import InvalidLocationError, InvalidTableError, LocationInUseError
from catalog.files.locations import (
    LONGEST_KEY,
    end_of_keys_inside,
    folder_keys,
    is_plainly_within,
    keys_above,
    location_key,
    name_nodes,
    overlapping,
    parent_key,
    readings,
    spellings,
)
from catalog.model import Table, TableKind
from catalog.settings.places import is_own_place, refuse_around_warehouse, require_location
from catalog.storage.bulk import among, batched
from catalog.storage.locks import hold
from catalog.storage.schema import DatabaseRow, PartitionVersionRow, TableRow, VersionState
from catalog.tables.neighbours import find_neighbour
from catalog.tables.normalising import normalise_location
from catalog.tables.purged_folders import refuse_purged

LOCATIONS = "calve locations"
"""The lock on tables' locations: shared by transactions that check them, exclusive for one that adds a location."""

_OWNERS = (
    select(DatabaseRow.name.label("database"), TableRow.name)
    .join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
    .where(TableRow.id != bindparam("table"))
)
"""Query of the names of all other tables."""


def is_own_folder(location: str, *, is_usual: bool) -> bool:
    """Return whether a new table will own all files of a folder, so that PURGE may delete them.

    Args:
        location: A location from `normalise_location`.
        is_usual: The catalog chose the folder, below the database's folder. Any other folder counts as external on an
            object store, as it does for Spark; on a local disk, only if it is not empty. So does, anywhere, a folder of
            sources or of quality pages, in which others will write.
    """
    if not is_own_place(location):
        return False
    if not is_usual and "://" in location and not location.startswith("file:"):
        return False
    try:
        # Imported late: PyArrow takes longer than most commands.
        from catalog.files.filesystem import Folder

        return Folder(location).is_empty("")
    except (OSError, ValueError, InvalidLocationError):
        return False


def new_location(usual: str, location: str | None, kind: TableKind) -> str:
    """Return the location of a new table; empty for a view.

    Args:
        usual: The location of a table that is created without one.
        location: The requested location.
    """
    if kind is TableKind.VIEW:
        return ""
    location = normalise_location(usual if location is None else location)
    if location != usual:
        require_location(location)
    refuse_around_warehouse(location)
    return location


def new_kind(usual: str, location: str, kind: TableKind, *, owns_usual: bool) -> TableKind:
    """Return the kind of a new table, which says whether Calve owns its files.

    Args:
        usual: The location of a table that is created without one.
        location: Its location, which it has claimed.
        owns_usual: The table owns the files of the usual location, even if there are some already: as in a metastore,
            where an engine writes the rows first, and then creates the table.
    """
    is_usual = location == usual
    if kind is not TableKind.MANAGED:
        return kind
    is_own = is_own_place(location) if is_usual and owns_usual else is_own_folder(location, is_usual=is_usual)
    return kind if is_own else TableKind.EXTERNAL


def claim_location(connection: Connection, location: str, table: str, table_id: int = 0) -> bytes | None:
    """Lock the locations of all tables, and then claim one; see `claim_held_location`."""
    hold(connection, LOCATIONS)
    return claim_held_location(connection, location, table, table_id)


def claim_held_location(
    connection: Connection, location: str, table: str, table_id: int = 0, *, stored_name: str | None = None
) -> bytes | None:
    """Check that no other table uses a new location, and return its key; the caller has locked `LOCATIONS`.

    Iceberg tables of engines and custom locations of other tables' partitions count, too. The lock keeps the location
    free until the commit.

    Args:
        location: Empty for a view, which has no key.
        table: The name of the table that gets the location.
        table_id: Its id, if it exists.
        stored_name: Its name among Iceberg tables, if `table` has another spelling.

    Raises:
        InvalidTableError: The location is too long.
        LocationInUseError: The location of another table, or a folder that a purge deletes, overlaps it.
    """
    if not location:
        return None
    key = location_key(location)
    if len(key) > LONGEST_KEY:
        raise InvalidTableError(
            f"table {table}: its location {location[:100]}… has {len(key):,} bytes, more than the maximum of "
            f"{LONGEST_KEY:,} bytes; choose a shorter one"
        )
    for reading in readings(location):
        if (owner := find_neighbour(connection, reading, without_table=table_id)) is not None:
            raise LocationInUseError(table, location, owner.table, owner.location)
    LocationInUseError.raise_first(_homes_near(connection, table, location, without_table=table_id))
    engines = _engine_tables_near(connection, table, _keys_as_read([location]), without=stored_name or table)
    LocationInUseError.raise_first(islice(engines, 1))
    refuse_purged(connection, table, [location])
    return key


def _homes_near(
    connection: Connection, table: str, location: str, *, without_table: int
) -> Iterator[LocationInUseError]:
    """Yield the errors of folders of other tables' partitions to which vacuum will copy files, if not at once."""
    row = PartitionVersionRow
    query = (
        select(row.home, DatabaseRow.name.label("database"), TableRow.name)
        .join(TableRow, TableRow.id == row.table_id + 0)
        .join(DatabaseRow, DatabaseRow.id == TableRow.database_id)
        .where(row.state == VersionState.CURRENT, TableRow.id != without_table)
        .limit(1)
    )
    for spelling in spellings(location_key(location), name_nodes([location])):
        here = or_(row.home == spelling, (row.home > f"{spelling}/") & (row.home < f"{spelling}0"))
        for home, database, name in connection.execute(query.where(here)):
            owner = f"{database}.{name}"
            reason = (
                f"files of a partition of {owner} in {home} were replaced, and are not exchanged yet; choose another "
                f"location, or create the table after `calve vacuum {owner}`, which exchanges the files of changes "
                "that are older than the grace period"
            )
            yield LocationInUseError(table, location, owner, home, reason=reason)


def refuse_locations_in_use(connection: Connection, table: Table, locations: Sequence[str]) -> None:
    """Check that custom locations of partitions do not overlap another table's location.

    The caller has locked the table; no other table gets such a location before the commit. Folders of purges are
    refused afterwards, by `catalog.partitions.folders.refuse_shared_folders`.

    Raises:
        LocationInUseError: One overlaps another table's location.
    """
    by_key = _keys_elsewhere(table, locations)
    if not by_key:
        return
    hold(connection, LOCATIONS, is_shared=True)
    LocationInUseError.raise_first(_in_use(connection, table, by_key))


def find_locations_in_use(
    connection: Connection, table: Table, locations: Iterable[str]
) -> Iterator[LocationInUseError]:
    """Yield the custom locations of partitions that overlap another table's location."""
    by_key = _keys_elsewhere(table, locations)
    return _in_use(connection, table, by_key) if by_key else iter(())


def _keys_elsewhere(table: Table, locations: Iterable[str]) -> dict[bytes, str]:
    return _keys_as_read(location for location in locations if not is_plainly_within(location, table.location))


def _keys_as_read(locations: Iterable[str]) -> dict[bytes, str]:
    """Return the keys of locations as the catalog reads them, and as engines do that decode escapes in them."""
    read = {reading: location for location in locations for reading in readings(location)}
    return {key: read[reading] for key, reading in folder_keys(read).items()}


def _in_use(connection: Connection, table: Table, by_key: Mapping[bytes, str]) -> Iterator[LocationInUseError]:
    for location, owner in _tables_near(connection, table, by_key):
        yield LocationInUseError(table.full_name, location, f"{owner.database}.{owner.name}", owner.location)
    yield from _engine_tables_near(connection, table.full_name, by_key, without=table.full_name)


def _engine_tables_near(
    connection: Connection, table: str, by_key: Mapping[bytes, str], *, without: str
) -> Iterator[LocationInUseError]:
    # Imported late: most commands add no location.
    from catalog.iceberg.own_folders import tables_near

    for location, owner in tables_near(connection, by_key, without=without):
        yield LocationInUseError(table, location, owner.table, owner.location)


def _tables_near(
    connection: Connection, table: Table, locations: Mapping[bytes, str]
) -> Iterator[tuple[str, Row[Any]]]:
    """Yield the locations that overlap another table's location, each with such a table."""
    row, around = TableRow.location_key, set[bytes]()
    for parent in set(map(parent_key, locations)):
        around.update(keys_above(parent))
    query = _OWNERS.add_columns(TableRow.location, row)
    between = (row >= min(locations)) & (row < end_of_keys_inside(max(locations)))
    conditions = [*(among(connection, row, batch) for batch in batched(sorted(around))), between]
    owners = (owner for near in conditions for owner in connection.execute(query.where(near), {"table": table.id}))
    return overlapping(locations, {bytes(owner.location_key): owner for owner in owners})
