"""Deletion of the files of a dropped table.

The transaction that drops the table journals the deletion and claims the folder (`catalog.tables.purged_folders`); the
folder is deleted after the commit (`catalog.tables.dropping`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from sqlalchemy import Connection

from catalog.errors import CatalogError, FilesNeededError, FilesNotDeletedError, UnreadableMetadataError
from catalog.files.locations import comparable, is_within
from catalog.iceberg.pointers import shared_locations
from catalog.model import Table, TableKind
from catalog.operations.journal import Operations
from catalog.operations.records import Operation
from catalog.storage import Storage
from catalog.storage.locks import hold
from catalog.tables.neighbours import neighbours
from catalog.tables.own_files import ALL_FILES, PurgedFiles, delete_own_files
from catalog.tables.ownership import LOCATIONS
from catalog.tables.purged_folders import claim_folders, is_unfinished

log = logging.getLogger(__name__)


def refuse_needed_files(connection: Connection, table: Table) -> None:
    """Refuse to delete the files of an Iceberg table, and files that another Iceberg table shares.

    Raises:
        FilesNeededError: The table is an Iceberg table, or an Iceberg table shares its files.
    """
    if table.is_iceberg:
        raise FilesNeededError(
            f"table {table.full_name} is an Iceberg table, whose files cannot be purged, because another table may use "
            "them; drop it without PURGE and delete its files by hand, or revert it to Hive first"
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
    """Refuse to delete the folder of a managed table if the metadata of an Iceberg table refer to files in it.

    Reads the metadata of all Iceberg tables; call it outside of transactions.

    Raises:
        FilesNeededError: An Iceberg table needs files.
        UnreadableMetadataError: Metadata of an Iceberg table cannot be read, so whether it needs files is unknown.
    """
    if table.kind is TableKind.MANAGED and not table.is_iceberg:
        refuse_reached_folders(storage, table.full_name, [table.location], without_table=table.id)


def refuse_reached_folders(storage: Storage, name: str, folders: Collection[str], *, without_table: int = 0) -> None:
    """Refuse to delete folders of a table if the metadata of an Iceberg table refer to files in them.

    Args:
        without_table: The id of the table if its own locations and metadata do not protect files, because it is
            dropped, too.

    Raises:
        FilesNeededError, UnreadableMetadataError: As for `refuse_reached_files`.
    """
    from catalog.iceberg.reachability import Reachability

    with storage.read() as connection:
        near = neighbours(connection, folders, without_table=without_table)
        spared = {neighbour.location for neighbour in near if neighbour.path}
    reachability = Reachability(storage)
    besides = (name,) if without_table else ()
    for folder, owner in reachability.reached(folders, spared, besides=besides).items():
        raise FilesNeededError(
            f"table {name}: the metadata of the Iceberg table {owner} refer to files in {folder}, which PURGE would "
            f"delete; drop without PURGE, or {owner} first"
        )
    for unreadable in reachability.unreadable:
        if unreadable.table in besides:
            continue
        raise UnreadableMetadataError(unreadable.table, unreadable.path, unreadable.reason)


def purge(storage: Storage, operations: Operations, operation: Operation) -> PurgedFiles:
    """Delete the files of a dropped table, except those of other tables and, unless all were meant, those of others.

    The transaction that dropped the table claimed the folder, so no table or partition was added there since. Safe to
    repeat, and to run in several processes at once.

    Returns:
        The files that stay, because Calve did not write them, and what was deleted.

    Raises:
        FilesNotDeletedError: The file system refused, or an Iceberg table needs the files.
    """
    name, location = operation.table, operation.request["location"]
    writer = None if operation.request.get(ALL_FILES) else storage.identity
    try:
        refuse_reached_folders(storage, name, [location])
    except (FilesNeededError, UnreadableMetadataError) as error:
        raise FilesNotDeletedError(f"table {name} is dropped, but its files stay: {error}") from error
    with storage.write() as connection:
        hold(connection, LOCATIONS)
        others = list(neighbours(connection, [location]))
        if covering := [other.location for other in others if not other.path]:
            log.warning("kept %s, because another table has its files in %s", location, covering[0])
            return PurgedFiles()
        # Earlier versions dropped the table without claiming its folder.
        claim_folders(connection, operation.number, [location])
    try:
        kept = [other.path for other in others if other.path]
        others_files = delete_own_files(location, writer, kept, may_go_on=partial(is_unfinished, operations, operation))
    except (CatalogError, OSError, ValueError) as error:
        raise FilesNotDeletedError(
            f"table {name} is dropped, but {location} could not be deleted: {error}; delete it by hand, or fix "
            "the cause and run vacuum"
        ) from error
    if others_files.count:
        log.warning("table %s is dropped; kept %s", name, others_files)
    return others_files
