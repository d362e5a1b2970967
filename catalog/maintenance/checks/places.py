"""Checks of locations: no table and no partition may have files in the place of another."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, select

from catalog.maintenance.findings import SHOWN, Finding, FindingKind, found
from catalog.model import Table
from catalog.partitions.folders import find_shared_folders
from catalog.partitions.versions import is_version
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.storage.schema import PartitionRow
from catalog.tables.neighbours import neighbours
from catalog.tables.ownership import find_locations_in_use

_BATCH = 1_000


def find_shared_places(storage: Storage, table: Table) -> Iterator[Finding]:
    """Yield the locations of a table, and of its partitions, that are also those of another table or partition."""
    count, places = 0, list[str]()
    with storage.read() as connection:
        for place in _shared(connection, table):
            count += 1
            places += [place] * (count <= SHOWN)
    remedy = (
        f"Both return the rows there: move the files of one to another folder, and set it by ALTER TABLE "
        f"{table.full_name} [PARTITION (…)] SET LOCATION, or drop one of them without PURGE"
    )
    yield from found(FindingKind.SHARED_LOCATION, table, places, remedy, count)


def _shared(connection: Connection, table: Table) -> Iterator[str]:
    for neighbour in neighbours(connection, [table.location], without_table=table.id):
        if not neighbour.is_partition:
            yield f"{table.location} overlaps {neighbour.location} of table {neighbour.table}"
    row = PartitionRow
    query = select(row.location).where(row.table_id == table.id, row.location.is_not(None)).order_by(row.id)
    locations = connection.scalars(query, execution_options={"yield_per": _BATCH})
    for batch in batched(locations, _BATCH):
        own = [location for location in batch if location is not None and not is_version(location)]
        for error in (*find_locations_in_use(connection, table, own), *find_shared_folders(connection, table, own)):
            yield f"{error.location} overlaps {error.owner_location} of {error.owner}"
