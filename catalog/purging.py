"""Deleting the files of a dropped table.

That a table's folder has to go is journaled, and the folder claimed (`catalog.purged_folders`), in the transaction that
drops the table; the folder goes after the commit (`catalog.dropping`).
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Collection, Iterator
from functools import partial

from sqlalchemy import Connection, exists, or_, select

from catalog.errors import CatalogError, FilesNeededError, FilesNotDeletedError, UnreadableMetadataError
from catalog.iceberg.pointers import shared_locations
from catalog.locations import comparable, is_within
from catalog.model import Table, TableKind
from catalog.operations import Operation, Operations
from catalog.own_files import OthersFiles, delete_own_files
from catalog.ownership import LOCATIONS
from catalog.purged_folders import claim_folders, is_unfinished
from catalog.storage import Storage
from catalog.storage.locks import hold
from catalog.storage.schema import PartitionRow, TableRow

log = logging.getLogger(__name__)


def refuse_needed_files(connection: Connection, table: Table) -> None:
    """Refuse to delete the files of an Iceberg table, and files that another table has as Iceberg.

    Raises:
        FilesNeededError: Such files should be deleted.
    """
    if table.is_iceberg:
        raise FilesNeededError(
            f"table {table.full_name} is an Iceberg table, and dropping it deletes no file, because its files may be "
            "another table's, too; drop it without PURGE and delete its files by hand, or take it back to Hive first"
        )
    if table.kind is not TableKind.MANAGED:
        return
    root = comparable(table.location)
    for location, database, name in shared_locations(connection):
        if is_within(location, root) or is_within(root, location):
            raise FilesNeededError(
                f"table {table.full_name}: the Iceberg table {database}.{name} reads files of {location}, which PURGE "
                f"would delete; drop {table.full_name} without PURGE, or {database}.{name} first"
            )


def refuse_reached_files(storage: Storage, table: Table) -> None:
    """Refuse to delete the folder of a managed table when the metadata of an Iceberg table name files in it.

    All metadata are read for it; call this outside of transactions.

    Raises:
        FilesNeededError: An Iceberg table needs files.
        UnreadableMetadataError: It is not known, because metadata of an Iceberg table cannot be read.
    """
    if table.kind is TableKind.MANAGED and not table.is_iceberg:
        refuse_reached_folders(storage, table.full_name, [table.location])


def refuse_reached_folders(storage: Storage, name: str, folders: Collection[str]) -> None:
    """Refuse to delete folders of a table when the metadata of an Iceberg table name files in them; as above."""
    from catalog.iceberg.reachability import Reachability

    spared: set[str] = set()
    with storage.read() as connection:
        for root in map(comparable, folders):
            around = locations_around(connection, root)
            spared.update(location for location in around if location != root and is_within(location, root))
    reachability = Reachability(storage)
    for folder, owner in reachability.reached(folders, spared).items():
        raise FilesNeededError(
            f"table {name}: the metadata of the Iceberg table {owner} name files in {folder}, which PURGE would "
            f"delete; drop without PURGE, or {owner} first"
        )
    for unreadable in reachability.unreadable:
        raise UnreadableMetadataError(unreadable.table, unreadable.path, unreadable.reason)


def purge(storage: Storage, operations: Operations, operation: Operation) -> OthersFiles:
    """Delete the files of a dropped table, except what other tables have in its folder, and what Calve did not write.

    The folder was claimed in the transaction that dropped the table, so nothing new lies there. Does no harm when done
    again, or by several at once.

    Returns:
        The files that stay, because Calve did not write them.

    Raises:
        FilesNotDeletedError: The file system refuses, or an Iceberg table needs the files.
    """
    name, location = operation.table, operation.request["location"]
    try:
        refuse_reached_folders(storage, name, [location])
    except (FilesNeededError, UnreadableMetadataError) as error:
        raise FilesNotDeletedError(f"table {name} is dropped, and its files stay: {error}") from error
    root = comparable(location)
    with storage.write() as connection:
        hold(connection, LOCATIONS)
        others = set(locations_around(connection, root))
        if covering := [other for other in others if is_within(root, other)]:
            log.warning("%s stays, because another table has its files in %s", location, covering[0])
            return OthersFiles()
        # Earlier versions did not claim it when they dropped the table.
        claim_folders(connection, operation, [location])
    try:
        kept = [posixpath.relpath(other, root) for other in others if is_within(other, root)]
        others_files = delete_own_files(
            location, storage.identity, kept, may_go_on=partial(is_unfinished, operations, operation)
        )
    except (CatalogError, OSError, ValueError) as error:
        raise FilesNotDeletedError(
            f"table {name} is dropped, but {location} could not be deleted: {error}; delete it by hand, or correct "
            "that and run vacuum"
        ) from error
    if others_files.count:
        log.warning("table %s is dropped; left %s", name, others_files)
    return others_files


def locations_around(connection: Connection, root: str) -> Iterator[str]:
    """Yield the locations of tables and partitions that hold a folder or are in it, and perhaps others."""
    for location in connection.scalars(select(TableRow.location).where(TableRow.kind != TableKind.VIEW)):
        yield comparable(location)
    yield from partition_locations_around(connection, root)


def partition_locations_around(connection: Connection, root: str) -> Iterator[str]:
    """Yield the own locations of partitions that hold a folder or are in it, and perhaps others."""
    parts = root.split("/")
    above = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    column = PartitionRow.location
    near = [
        condition
        for start in (("", "file:", "file://") if root.startswith("/") else ("",))
        for condition in (
            column.in_([f"{start}{each}" for each in above]),
            column.startswith(f"{start}{root}/", autoescape=True),
        )
    ]
    # Rows of dropped tables may still be there.
    is_there = exists().where(TableRow.id == PartitionRow.table_id)
    for own in connection.scalars(select(column).where(or_(*near), is_there)):
        if own is not None:
            yield comparable(own)
