"""Late files: files that arrived in a Hive table's folders during the commit of its migration.

The catalog cannot stop other writers. The flip lists the files immediately before it commits. Files that arrive between
this listing and the commit are missing in the Iceberg table; another listing after the commit finds and reports them.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from sqlalchemy import Connection

from catalog.errors import ColumnsDifferError, NotIcebergTableError, TableNotFoundError
from catalog.files.filesystem import REMOTE_THREADS, FileInfo, in_parallel
from catalog.files.locations import is_local
from catalog.migration.duplicates import take_staged
from catalog.migration.requests import MigrationOperation, MigrationRequest
from catalog.migration.sources import SourceFolder, source_folders
from catalog.migration.staging import ListingDigest, Staged
from catalog.migration.targets import Target, committed_target, skipped_folders
from catalog.model import Table
from catalog.operations.records import OperationKind
from catalog.storage.bulk import batched
from catalog.tables.definitions import Definitions

log = logging.getLogger(__name__)

_SHOWN = 100
_BATCH = 500
"""The number of paths in one query."""


def listed_files(connection: Connection, table: Table, request: MigrationRequest, target: Target) -> Iterator[FileInfo]:
    """Yield the data files in the folders of a migration's source table, before or after the flip.

    Remote folders are listed many at a time: the table of a migration may have a million.
    """
    from catalog.iceberg.folders import Recursion, data_files

    recursion, skip = Recursion(request.recursive_directory), skipped_folders(table)

    def files(folder: SourceFolder) -> list[FileInfo]:
        return list(data_files(folder.location, recursion, skip))

    folders = source_folders(connection, table, target.selection)
    for folder_files in in_parallel(files, folders, 1 if is_local(table.location) else REMOTE_THREADS):
        yield from folder_files


def digest_of(files: Iterable[FileInfo]) -> ListingDigest:
    """Return the digest of files without keeping them in memory."""
    digest = ListingDigest()
    for file in files:
        digest.add(file)
    return digest


def late_files(files: Iterable[FileInfo], staged: Staged, target: Target) -> tuple[int, list[str]]:
    """Return the number of listed files that the Iceberg table does not have in this size, and the first paths.

    Ignores files that the stage refused or skipped. Compares paths in a temporary database on disk.
    """
    refused = {file.path for file in staged.problems}
    count, shown = 0, list[str]()
    with closing(sqlite3.connect("")) as paths:
        take_staged(paths, staged, target)
        for batch in batched(files, _BATCH):
            marks = ", ".join("?" * len(batch))
            query = f"SELECT path, size_bytes FROM staged WHERE path IN ({marks})"
            known = set(paths.execute(query, [file.path for file in batch]))
            for file in batch:
                if (file.path, file.size_bytes) not in known and file.path not in refused:
                    count += 1
                    shown += [file.path] if len(shown) < _SHOWN else []
    return count, shown


def late_report(
    connection: Connection, definitions: Definitions, operation: MigrationOperation, staged: Staged
) -> dict[str, Any] | None:
    """Log and return late files: their `count`, the first `paths`, and `advice` on how to add them.

    Args:
        operation: A committed migration.

    Returns:
        None if the table was dropped or reverted, or the target's columns were changed since, so that the comparison
        no longer makes sense.
    """
    request = operation.parsed_request
    try:
        table = definitions.get_table(operation.table, connection)
        target = committed_target(connection, definitions, table, request)
    except (TableNotFoundError, NotIcebergTableError, ColumnsDifferError):
        return None
    if table.id != operation.table_id or (request.kind is OperationKind.MIGRATE and not table.is_iceberg):
        return None
    advice = _advice(table, request, target)
    if str(digest_of(listed_files(connection, table, request, target))) == staged.listing:
        return {"count": 0, "paths": [], "advice": advice}
    count, paths = late_files(listed_files(connection, table, request, target), staged, target)
    if count:
        log.warning(
            "Table %s: %d file(s) arrived during the commit of its migration, and %s does not have them: %s; %s",
            *(table.full_name, count, target.full_name, ", ".join(paths), advice),
        )
    return {"count": count, "paths": paths, "advice": advice}


def _advice(table: Table, request: MigrationRequest, target: Target) -> str:
    if request.kind is OperationKind.MIGRATE:
        return (
            f"move them into a table of the same columns and add its files to {target.full_name} (EXECUTE "
            "add_files_from_table), or stop all writers, then revert and migrate again"
        )
    return (
        f"add them: ALTER TABLE {target.full_name} EXECUTE add_files_from_table(schema_name => '{table.database}', "
        f"table_name => '{table.name}', duplicate_file => 'skip')"
    )
