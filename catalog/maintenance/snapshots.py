"""Expiry of the snapshots of tables with a partition scheme, and deletion of their obsolete metadata.

A snapshot stays for the grace period after another one replaced it, like the data files that only it has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from catalog.datafiles.history import ended_revisions, forget_revisions
from catalog.datafiles.intake import lock_current
from catalog.datafiles.publishing import expire, find_expired
from catalog.errors import UnreadableMetadataError
from catalog.files.filesystem import FileInfo, Folder, in_parallel
from catalog.files.locations import reach_key
from catalog.iceberg.places import METADATA
from catalog.iceberg.pointers import CATALOG, Pointer, all_pointers
from catalog.maintenance.reports import TableVacuum, Tally
from catalog.model import Table
from catalog.operations.failpoints import Point, reached
from catalog.storage import Storage
from catalog.tables.definitions import Definitions
from catalog.tables.own_files import is_own_file

if TYPE_CHECKING:
    from catalog.iceberg.named_files import Expired


def expire_table(
    storage: Storage, definitions: Definitions, table: Table, cutoff_ms: int, tally: Tally, *, is_dry_run: bool
) -> Collection[int]:
    """Expire the snapshots that were replaced before a time, and delete metadata that nothing refers to.

    The revisions of expired snapshots are removed in the same transaction.

    Args:
        table: A table with a partition scheme.

    Returns:
        The ids of the other snapshots.

    Raises:
        TableNotFoundError: The table was dropped meanwhile.
        StorageError: Metadata cannot be read or written.
        UnreadableMetadataError: The table's metadata are damaged.
    """
    with storage.read() as connection:
        table = definitions.get_table(table.full_name, connection)
        if table.published_location is None:
            return ()
        expired, obsolete = _find_old(connection, storage, table, cutoff_ms)
        ended = ended_revisions(connection, table, expired.kept_snapshot_ids)
    if not is_dry_run and (expired or obsolete or ended):
        with storage.write() as connection:
            # Under the lock no commit is under way, so files that nothing refers to now are never referred to later.
            table = lock_current(connection, definitions, table)
            expired, obsolete = _find_old(connection, storage, table, cutoff_ms)
            expire(connection, table, expired)
            forget_revisions(connection, table, ended_revisions(connection, table, expired.kept_snapshot_ids))
            reached(Point.CHANGED)
        reached(Point.COMMITTED)
        for _ in in_parallel(Folder(table.location).delete_file, [file.path for file in obsolete]):
            pass
    size_bytes = sum(file.size_bytes for file in obsolete)
    tally.add(TableVacuum(table.full_name, metadata_files=len(obsolete), metadata_bytes=size_bytes))
    return expired.kept_snapshot_ids


def _find_old(connection: Connection, storage: Storage, table: Table, cutoff_ms: int) -> tuple[Expired, list[FileInfo]]:
    """Return the expired snapshots of a published table, and its obsolete metadata files."""
    expired = find_expired(table, cutoff_ms)
    # Under earlier versions, two tables could have one folder. The other one may be committing now.
    is_shared = any(pointer.full_name != table.full_name for pointer in _pointers_at(connection, table))
    return expired, [] if is_shared else _obsolete_files(storage, table, expired)


def _pointers_at(connection: Connection, table: Table) -> list[Pointer]:
    """Return the Iceberg tables whose metadata are in a table's folder."""
    from catalog.iceberg.named_files import home

    return [pointer for pointer in all_pointers(connection) if home(pointer.location) == reach_key(table.location)]


def _obsolete_files(storage: Storage, table: Table, expired: Expired) -> list[FileInfo]:
    """Return the files in the metadata folder that Calve wrote and the current metadata do not refer to for long."""
    from catalog.iceberg.named_files import UnreadableFileError, metadata_paths

    assert table.published_location is not None
    files = Folder(table.location).all_files(METADATA)
    pointer = Pointer(CATALOG, table.database, table.name, table.published_location)
    try:
        known = {reach_key(path) for path in metadata_paths(pointer, expired)}
    except UnreadableFileError as error:
        raise UnreadableMetadataError(table.full_name, error.path, error.reason) from error
    return [
        file
        for file in files
        if storage.identity in file.path
        and reach_key(f"{table.location}/{file.path}") not in known
        and is_own_file(file.path, storage.identity)
    ]
