"""Source files that loads have set aside, because they cannot be loaded: they are tried again when they change.

A file is also tried again when the settings with which it is read change, or the columns of its table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from catalog.files.filesystem import FileInfo
from catalog.files.locations import file_spellings
from catalog.model import SetAsideFile, Table
from catalog.operations.records import Operation
from catalog.operations.tables import name_of
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.clock import read_clock_ms
from catalog.storage.schema import OperationRow, SetAsideFileRow

_PATHS = 1_000
"""Number of files in one statement, each with the paths under which it may be recorded."""

_LONGEST_REASON = 1_000
_OF_READING = (
    "source_format",
    "source_options",
    "columns",
    "required",
    "null_keys",
    "invalid_partitions",
    "indexes",
    "key_expressions",
    "contract",
    "mode",
    "merge",
)
"""The fields of a load's request (`SourceJob`) that decide whether a file can be loaded."""


def reading_digest(table: Table, request: Mapping[str, Any]) -> str:
    """Return the digest of what decides whether a file can be loaded, besides its content.

    Args:
        request: The fields of `SourceJob`.
    """
    settings = {name: request.get(name) for name in _OF_READING}
    columns = [(column.name, column.type) for column in (*table.columns, *table.partition_keys)]
    return hashlib.sha256(json.dumps([settings, columns], sort_keys=True).encode()).hexdigest()


def not_set_aside(
    storage: Storage, table: Table, files: Sequence[FileInfo], request: Mapping[str, Any]
) -> list[FileInfo]:
    """Return the files without those that were set aside and have not changed since, nor has their reading."""
    digest, unchanged = reading_digest(table, request), set[tuple[str, int, int]]()
    with storage.read() as connection:
        for batch in batched(files, _PATHS):
            query = select(SetAsideFileRow.__table__).where(
                SetAsideFileRow.table_id == table.id,
                SetAsideFileRow.settings_digest == digest,
                among(connection, SetAsideFileRow.path, _spellings(file.path for file in batch)),
            )
            for row in connection.execute(query):
                unchanged.add((file_spellings(row.path)[0], row.size_bytes, row.modified_at_ms))
    return [
        file for file in files if (file_spellings(file.path)[0], file.size_bytes, file.modified_at_ms) not in unchanged
    ]


def set_aside(
    connection: Connection,
    table: Table,
    operation: Operation,
    files: Sequence[FileInfo],
    refused: Iterable[SetAsideFile],
    request: Mapping[str, Any],
) -> None:
    """Record which files of a load are set aside, instead of what earlier loads, or attempts, recorded about them.

    Args:
        files: All files that the load has found.
        request: The fields of `SourceJob` with which they were read.
    """
    for batch in batched(files, _PATHS):
        connection.execute(
            delete(SetAsideFileRow).where(
                SetAsideFileRow.table_id == table.id,
                among(connection, SetAsideFileRow.path, _spellings(file.path for file in batch)),
            )
        )
    row = {
        "table_id": table.id,
        "settings_digest": reading_digest(table, request),
        "operation_number": operation.number,
        "set_aside_at_ms": read_clock_ms(connection),
    }
    for some in batched(refused, _PATHS):
        rows = [
            {
                **row,
                "path": file.path,
                "size_bytes": file.size_bytes,
                "modified_at_ms": file.modified_at_ms,
                "reason": file.reason[:_LONGEST_REASON],
                "bad_row_count": file.bad_row_count,
            }
            for file in some
        ]
        connection.execute(insert(SetAsideFileRow), rows)


def paths_set_aside_by(connection: Connection, operation: Operation) -> set[str]:
    """Return the paths of the files that an operation has set aside, as it found them."""
    # Not by the operation's table id, which is unknown until a load has created its table.
    query = select(SetAsideFileRow.path).where(SetAsideFileRow.operation_number == operation.number)
    return set(connection.scalars(query))


def files_set_aside(connection: Connection, table: Table | None = None) -> list[SetAsideFile]:
    """Return the files that loads of a table, or of all tables, have set aside, by table and path."""
    row, name = SetAsideFileRow, name_of(SetAsideFileRow.table_id)
    query = (
        select(row.__table__, OperationRow.id.label("operation_id"), name.label("table"))
        .outerjoin(OperationRow, OperationRow.number == row.operation_number)
        .where(name.is_not(None) if table is None else row.table_id == table.id)
        .order_by("table", row.path)
    )
    return [
        SetAsideFile(
            found.path,
            found.size_bytes,
            found.modified_at_ms,
            found.reason,
            found.bad_row_count,
            found.operation_id,
            found.set_aside_at_ms,
            found.table,
        )
        for found in connection.execute(query)
    ]


def _spellings(paths: Iterable[str]) -> list[str]:
    """Return all paths under which files may be recorded."""
    return list({spelling for path in paths for spelling in (path, *file_spellings(path))})
