"""Expiry of the snapshots of tables with a partition scheme, and deletion of their obsolete metadata.

A snapshot stays for the grace period after another one replaced it, like the data files that only it has.

Calve's own metadata are found by listing their folder, and its data files by their rows. The files that other engines
have left in expired snapshots get rows of former files (`catalog.maintenance.former_files` deletes them) before the
snapshots expire: after a kill in between, the next vacuum finds the rows. A file that a snapshot still has stays,
whatever its row.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from posixpath import basename
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from catalog.datafiles.history import add_former_files, ended_revisions, forget_revisions, unknown_files
from catalog.datafiles.intake import catch_up, lock_current
from catalog.datafiles.publishing import expire, find_expired, translated_errors
from catalog.errors import UnsupportedCommitError
from catalog.files.filesystem import FileInfo, Folder, in_parallel
from catalog.files.locations import OwnFiles, reach_key
from catalog.iceberg.places import METADATA
from catalog.iceberg.pointers import CATALOG, Pointer, all_pointers
from catalog.maintenance.reports import TableVacuum, Tally, of_former_files
from catalog.model import Table
from catalog.operations.attempts import attempts_among
from catalog.operations.failpoints import Point, reached
from catalog.operations.staging import REJECTED, STAGING
from catalog.storage import Storage
from catalog.storage.bulk import batched
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
    if not is_dry_run:
        # If there is something to expire, such commits are refused below.
        with suppress(UnsupportedCommitError):
            catch_up(storage, definitions, table)
    with storage.read() as connection:
        table = definitions.get_table(table.full_name, connection)
        if table.published_location is None:
            return ()
        expired, obsolete = _find_old(connection, storage, table, cutoff_ms)
        ended = ended_revisions(connection, table, expired.kept_snapshot_ids)
    if expired:
        _queue_others_files(storage, definitions, table, expired, cutoff_ms, tally, is_dry_run=is_dry_run)
    if not is_dry_run and (expired or obsolete or ended):
        with storage.write() as connection:
            # Under the lock no commit is under way, so files that nothing refers to now are never referred to later.
            table = lock_current(connection, definitions, table)
            # What expires only now because another engine has committed may have files without rows.
            expired, obsolete = _find_old(connection, storage, table, cutoff_ms, among=expired)
            expire(connection, table, expired)
            forget_revisions(connection, table, ended_revisions(connection, table, expired.kept_snapshot_ids))
            reached(Point.CHANGED)
        reached(Point.COMMITTED)
        for _ in in_parallel(Folder(table.location).delete_file, [file.path for file in obsolete]):
            pass
    size_bytes = sum(file.size_bytes for file in obsolete)
    tally.add(TableVacuum(table.full_name, metadata_files=len(obsolete), metadata_bytes=size_bytes))
    return expired.kept_snapshot_ids


def _queue_others_files(
    storage: Storage,
    definitions: Definitions,
    table: Table,
    expired: Expired,
    cutoff_ms: int,
    tally: Tally,
    *,
    is_dry_run: bool,
) -> None:
    """Add rows of former files for what other engines have left in expired snapshots; a dry run counts the files."""
    from catalog.iceberg.named_files import expired_files

    assert table.published_location is not None
    sizes = {
        reach_key(f"{table.location}/{file.path}"): file.size_bytes
        for file in Folder(table.location).all_files(METADATA)
    }
    found = expired_files(table.published_location, expired, sizes, lambda path: storage.identity in basename(path))
    start = len(table.location) + 1
    own = OwnFiles([table.location])
    inside = ((path[start:], size) for path, size in found if path.startswith(f"{table.location}/") and path in own)
    # Files of attempts have rows of their own, or belong to a load that is quarantined or not published yet.
    others = ((path, size) for path, size in inside if not _is_of_attempt(storage, path))
    with translated_errors(table):
        for chunk in batched(others):
            with storage.read() if is_dry_run else storage.write() as connection:
                if not is_dry_run:
                    definitions.lock_table(connection, table, exclusive=False)
                unknown = unknown_files(connection, table, dict(chunk))
                if is_dry_run:
                    tally.add(of_former_files(table.full_name, unknown))
                else:
                    add_former_files(connection, table, unknown, cutoff_ms)
            reached(Point.PARTLY_COMMITTED)


def _is_of_attempt(storage: Storage, path: str) -> bool:
    """Return whether a file, relative to its table's location, is in a folder that an attempt of Calve has written."""
    folder = path.partition("/")[0]
    return folder in (STAGING, REJECTED) or any(attempts_among(storage, [folder]))


def _find_old(
    connection: Connection, storage: Storage, table: Table, cutoff_ms: int, among: Expired | None = None
) -> tuple[Expired, list[FileInfo]]:
    """Return the expired snapshots of a published table, if they are among some, and its obsolete metadata files."""
    expired = find_expired(table, cutoff_ms)
    expired = expired if among is None else expired.within(among)
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
        raise error.of_table(table.full_name) from error
    return [
        file
        for file in files
        if storage.identity in file.path
        and reach_key(f"{table.location}/{file.path}") not in known
        and is_own_file(file.path, storage.identity)
    ]
