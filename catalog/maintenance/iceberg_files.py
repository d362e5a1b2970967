"""Deletion of files of Iceberg tables that no metadata reach: those of expired snapshots, and orphan files.

Iceberg's own procedures delete every file that an expired snapshot named, and every file below a table's location that
the table does not have, even if another table needs it. Here a file is deleted only if it is in the table's own folder,
where no other table and no partition of one has its location, and no Iceberg table in the database reaches it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from contextlib import suppress

from sqlalchemy import Connection, select

from catalog.datafiles.history import unknown_files
from catalog.errors import FilesNeededError, InvalidTableError, MissingFileError
from catalog.files.filesystem import FileInfo, Folder, in_parallel, is_hidden
from catalog.files.locations import OwnFiles, comparable, overlap, reach_key
from catalog.iceberg.documents.files import read_document
from catalog.iceberg.places import HIDDEN, METADATA
from catalog.iceberg.pointers import all_pointers, require_metadata
from catalog.maintenance.judging import usual_cutoff_ms
from catalog.migration.source_entries import PREPARE
from catalog.model import Table, TableKind
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.storage.schema import OperationRow
from catalog.tables.iceberg_purging import delete_with_checksum
from catalog.tables.neighbours import find_neighbour
from catalog.tables.own_files import is_own_file

log = logging.getLogger(__name__)

_OF_ATTEMPT = re.compile("(?:^|/)(?:calve-)?[0-9a-f]{16}-[1-9][0-9]*-[1-9][0-9]*/")
"""A folder of an attempt of any catalog, which vacuum judges by its operation."""
_METADATA_FILE = re.compile(r"\.metadata\.json(\.gz)?$")
_COMMITTED = (OperationState.COMMITTED, OperationState.CLEANED)
_DATA = "data"
"""Iceberg's standard folder of data files."""


def obstacle(connection: Connection, table: Table) -> str | None:
    """Return why no file in a table's folder may be deleted; None if files that no metadata reach may be.

    Others may write there what the catalog does not know: other tables, and engines that commit through the table's
    entry in the metastore that it was imported from.
    """
    if (other := _table_beside(connection, table)) is not None:
        return f"table {other} has files in {table.location} or around it; move one of them to a folder of its own"
    row = OperationRow
    latest = select(row.report).where(row.table_id == table.id, row.kind == OperationKind.MIGRATE)
    report = connection.scalar(latest.where(row.state.in_(_COMMITTED)).order_by(row.number.desc()).limit(1))
    if table.is_iceberg and report is not None and PREPARE in report:
        return "engines may commit through its entry in the metastore that it was imported from, unknown to Calve"
    return None


def _table_beside(connection: Connection, table: Table) -> str | None:
    """Return another table that has files in the folder of a table, or whose folder contains it; None if none has."""
    from catalog.iceberg.named_files import home

    neighbour = find_neighbour(connection, table.location, without_table=table.id)
    if neighbour is not None:
        return neighbour.table
    root = reach_key(table.location)
    names = (pointer.full_name for pointer in all_pointers(connection) if overlap(home(pointer.location), root))
    return next((name for name in names if name != table.full_name), None)


def delete_superseded(storage: Storage, table: Table, before: str) -> int:
    """Delete the files that only snapshots of earlier metadata of a table had; return their number.

    Safe to repeat.

    Args:
        table: With its current metadata.
        before: The earlier metadata; if they cannot be read, their files stay.

    Raises:
        FilesNeededError: Others may need files in the table's folder (`obstacle`).
        UnreadableMetadataError: Metadata of a table that may need the files cannot be read.
        StorageError: The file system refused.
    """
    from catalog.iceberg.named_files import UnreadableFileError, superseded_files
    from catalog.iceberg.reachability import Reachability

    _require_deletable(storage, table)
    try:
        steps = superseded_files(before, require_metadata(table))
    except UnreadableFileError as error:
        log.warning("Files of expired snapshots of %s stay: %s: %s", table.full_name, error.path, error.reason)
        return 0
    own = OwnFiles([table.location])
    files = [own.among(paths) for paths in steps]
    needed = Reachability(storage).reached(path for paths in files for path in paths)
    count = 0
    for paths in files:
        count += _delete([path for path in paths if path not in needed])
        reached(Point.FILES_DELETED)
    return count


def delete_unreached(storage: Storage, table: Table, before_ms: int) -> list[str]:
    """Delete the files in a table's folder, written before a time, that no metadata reach; return their paths.

    Hidden files stay, and those in folders of attempts at operations.

    Raises:
        CatalogError: As for `delete_superseded`.
    """
    from catalog.iceberg.reachability import Reachability

    _require_deletable(storage, table)
    files = [file.path for file in Folder(table.location).all_files("") if file.modified_at_ms <= before_ms]
    visible = [path for path in files if not any(map(is_hidden, path.removeprefix(f"{HIDDEN}/").split("/")))]
    # The pointers are read after the files were listed, so files committed meanwhile are reached.
    written = (f"{table.location}/{path}" for path in visible if not _OF_ATTEMPT.search(path))
    paths = OwnFiles([table.location]).among(written)
    needed = Reachability(storage).reached(paths)
    unneeded = [path for path in paths if path not in needed]
    _delete(unneeded)
    return unneeded


def delete_leftovers(storage: Storage, table: Table, cutoff_ms: int, *, is_dry_run: bool) -> list[FileInfo]:
    """Delete the files that engines have left in a published table without committing them; return them.

    These are files in Iceberg's standard folders that the catalog does not have and that no metadata reach, neither the
    current ones nor earlier ones in their log. A file does not name the engine that writes it, so a grace period that
    is shorter than usual does not apply, and nothing is deleted in a folder that the table may share: that of an
    external table, and one with metadata of another table or view, such as another catalog's.

    Raises:
        CatalogError: As for `delete_superseded`; if others may need files in the folder, nothing is deleted.
    """
    if table.live_location is None or table.kind is TableKind.EXTERNAL:
        return []
    cutoff_ms = usual_cutoff_ms(storage, cutoff_ms)
    folder = Folder(table.location)
    files = {
        file.path: file
        for name in (_DATA, METADATA)
        for file in folder.all_files(name)
        if file.modified_at_ms <= cutoff_ms and not _is_judged_elsewhere(storage, file.path)
    }
    with storage.read() as connection:
        unknown = [path for batch in batched(files.items()) for path in unknown_files(connection, table, dict(batch))]
        if not unknown or obstacle(connection, table) is not None:
            return []
    paths = OwnFiles([table.location]).among(f"{table.location}/{path}" for path in unknown)
    unneeded = _without_reached(storage, table, paths)
    if (foreign := _metadata_of_others(table, unneeded)) is not None:
        log.warning("%s: nothing is deleted in its folder, which has other metadata: %s", table.full_name, foreign)
        return []
    if not is_dry_run:
        _delete(unneeded)
    return [files[path.removeprefix(f"{table.location}/")] for path in unneeded]


def _without_reached(storage: Storage, table: Table, paths: Collection[str]) -> list[str]:
    """Return the files that no live metadata reach, nor earlier metadata of the table.

    Raises:
        UnreadableMetadataError: Metadata of a table that may need them cannot be read.
    """
    from catalog.iceberg.named_files import UnreadableFileError, logged_files
    from catalog.iceberg.reachability import Reachability

    needed = Reachability(storage).reached(paths)
    rest = {reach_key(path): path for path in paths if path not in needed}
    assert table.live_location is not None
    try:
        for path in logged_files(table.live_location) if rest else ():
            rest.pop(reach_key(path), None)
    except UnreadableFileError as error:
        raise error.of_table(table.full_name) from error
    return list(rest.values())


def _metadata_of_others(table: Table, paths: Iterable[str]) -> str | None:
    """Return one of the files that has metadata of another table, or of a view; None if there is none.

    Raises:
        CatalogError: The table's own metadata cannot be read.
    """
    assert table.live_location is not None
    named = [path for path in paths if _METADATA_FILE.search(path)]
    uuid = read_document(table.live_location).get("table-uuid") if named else None
    for path in named:
        # What is no metadata file, such as half of one, is of nobody.
        with suppress(InvalidTableError, MissingFileError):
            if read_document(path).get("table-uuid") != uuid:
                return path
    return None


def _require_deletable(storage: Storage, table: Table) -> None:
    with storage.read() as connection:
        reason = obstacle(connection, table)
    if reason is not None:
        raise FilesNeededError(f"no file of table {table.full_name} is deleted, because {reason}")


def _is_judged_elsewhere(storage: Storage, path: str) -> bool:
    """Return whether Calve wrote a file, or a hidden one is of others, such as a checksum."""
    if any(map(is_hidden, path.split("/"))):
        return True
    return bool(_OF_ATTEMPT.search(path)) or (storage.identity in path and is_own_file(path, storage.identity))


def _delete(paths: Collection[str]) -> int:
    """Delete files; return their number."""

    def delete(path: str) -> None:
        folder, _, name = comparable(path).rpartition("/")
        delete_with_checksum(Folder(folder), name)

    return sum(1 for _ in in_parallel(delete, paths))
