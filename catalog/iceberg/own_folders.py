"""The folders of Iceberg tables and views, which no folder of another table may overlap.

The folder of a table is usually that in which its folder of metadata is; so it is also found where other catalogs and
clients of this database commit. The other folders, of tables whose properties or locations name some, are kept in rows,
written when a front door accepts the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, or_, select

from catalog.files.locations import (
    comparable,
    end_of_keys_inside,
    is_within,
    keys_above,
    location_key,
    locations_with_keys,
    name_nodes,
    overlapping,
    parent_key,
    readings,
    spellings,
)
from catalog.iceberg.places import METADATA
from catalog.iceberg.pointers import find_pointers
from catalog.storage.bulk import among, batched
from catalog.storage.schema import IcebergFolderRow, IcebergTableRow

_FEW = 100
"""The maximum number of conditions in one query, and of locations that are looked up one by one."""


class OwnedFolder(NamedTuple):
    """A folder, and the full name of the Iceberg table that has it."""

    location: str
    table: str


def folders_elsewhere(metadata_location: str, folders: Iterable[str]) -> list[str]:
    """Return the folders of a table that do not follow from the location of its metadata.

    A location with escapes is also that without them, as which some engines read it.
    """
    home, _, name = metadata_location.rpartition("/")[0].rpartition("/")
    read = dict.fromkeys(reading for folder in folders for reading in readings(folder))
    return [folder for folder in read if name != METADATA or not is_within(comparable(folder), comparable(home))]


def keep_folders(connection: Connection, database: str, table: str, folders: Iterable[str]) -> None:
    """Write the folders of an Iceberg table that `folders_elsewhere` returns, in place of earlier ones."""
    names = {"table_namespace": database, "table_name": table}
    connection.execute(delete(IcebergFolderRow).filter_by(**names))
    rows = [
        {**names, "number": number, "location_key": location_key(folder), "location": folder}
        for number, folder in enumerate(folders)
    ]
    if rows:
        connection.execute(insert(IcebergFolderRow), rows)


def tables_near(
    connection: Connection, locations: Mapping[bytes, str], *, without: str
) -> Iterator[tuple[str, OwnedFolder]]:
    """Yield the locations that equal, contain or lie inside a folder of an Iceberg table, each with such a folder.

    Args:
        locations: By their keys (`catalog.files.locations.folder_keys`), at least one.
        without: The full name of a table to ignore.
    """
    around = {above for key in locations for above in keys_above(key)}
    homes = _homes_near(connection, locations, around)
    # The conditions of the query also find tables in a folder of metadata, and on SQLite other cases of letters.
    owned = {
        key: homes[home]
        for home, keys in locations_with_keys(home for home in homes if homes[home].table != without)
        for key in keys
    }
    owned |= {key: own for key, own in _kept_near(connection, locations, around) if own.table != without}
    return overlapping(locations, owned)


def _homes_near(
    connection: Connection, locations: Mapping[bytes, str], around: Iterable[bytes]
) -> dict[str, OwnedFolder]:
    """Return the folders that have folders of metadata, among them those near the locations."""
    # Many locations share few parents; all tables in these are compared.
    inside = locations.keys() if len(locations) <= _FEW else set(map(parent_key, locations))
    nodes = name_nodes(locations.values())
    starts = [f"{spelling}/" for key in inside for spelling in spellings(key, nodes)]
    starts += [f"{spelling}/{METADATA}/" for key in around for spelling in spellings(key, nodes)]
    named, homes = IcebergTableRow.metadata_location, dict[str, OwnedFolder]()
    for batch in batched(starts, _FEW):
        near = or_(*(named.startswith(start, autoescape=True) for start in batch))
        for pointer in find_pointers(connection, near, with_views=True):
            home = _home(pointer.location)
            homes[home] = OwnedFolder(home, pointer.full_name)
    return homes


def _kept_near(
    connection: Connection, locations: Iterable[bytes], around: Iterable[bytes]
) -> Iterator[tuple[bytes, OwnedFolder]]:
    """Yield the kept folders that may be near the locations, with their keys."""
    row = IcebergFolderRow
    query = select(row.location_key, row.location, row.table_namespace, row.table_name)
    between = (row.location_key >= min(locations)) & (row.location_key < end_of_keys_inside(max(locations)))
    for near in (*(among(connection, row.location_key, batch) for batch in batched(sorted(around))), between):
        for key, location, database, table in connection.execute(query.where(near)):
            yield bytes(key), OwnedFolder(location, f"{database}.{table}")


def _home(metadata_location: str) -> str:
    """Return the folder that has a table's folder of metadata."""
    folder = metadata_location.rpartition("/")[0]
    return folder.removesuffix(f"/{METADATA}")
