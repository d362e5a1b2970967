"""Manifests: the list of the data files that a Spark job has written, stored next to them for the commit.

A manifest has one JSON line with the ids of the columns in the files, and one line per file. The job writes it last; a
job that died leaves no manifest or an incomplete one, and its folder is never committed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from catalog.datafiles.files import NewFile
from catalog.errors import PlanConflictError, VerificationFailedError
from catalog.files.filesystem import Folder
from catalog.model import Table
from catalog.operations.failpoints import Point, reached

_MANIFEST = "_manifest.jsonl"
_COLUMNS, _END = "columns", "end"
_FIELDS = 7


def write_manifest(table: Table, folder: str, files: Iterable[NewFile]) -> int:
    """Write the manifest of a folder; return the number of files.

    Args:
        table: The table with the columns that the files have.
    """
    count = 0
    with Folder(table.location).writing(f"{folder}/{_MANIFEST}") as lines:
        lines.write(json.dumps([_COLUMNS, [column.id for column in table.in_files.columns]]) + "\n")
        for file in files:
            lines.write(json.dumps(file.as_json()) + "\n")
            count += 1
        reached(Point.LISTED)
        lines.write(json.dumps([_END, count]) + "\n")
    reached(Point.MANIFEST_WRITTEN)
    return count


def is_manifest(path: str) -> bool:
    """Return whether a file is the manifest of its folder."""
    return path.rpartition("/")[2] == _MANIFEST


def has_manifest(table: Table, folder: str) -> bool:
    """Return whether a folder has a manifest."""
    return Folder(table.location).exists(f"{folder}/{_MANIFEST}")


def delete_manifest(table: Table, folder: str) -> None:
    """Delete the manifest of a folder, so that the folder no longer counts as complete."""
    Folder(table.location).delete_file(f"{folder}/{_MANIFEST}")


def require_manifest(table: Table, folder: str) -> None:
    """Check that a folder still has the manifest that was read; vacuum deletes it before the files.

    Raises:
        VerificationFailedError: It has none.
    """
    if not has_manifest(table, folder):
        raise _incomplete(table, folder)


def written_columns(table: Table, folder: str) -> Collection[int] | None:
    """Return the ids of the columns in the files of a folder; None if an earlier version has written its manifest.

    Raises:
        VerificationFailedError: The manifest is missing or incomplete.
    """
    name, ids, *_ = next(_lines(table, folder))
    return ids if name == _COLUMNS else None


def require_columns(table: Table, written: Collection[int] | None) -> None:
    """Check that files whose rows take the place of others have all columns that the table has now.

    While a job writes files, other engines may add columns, also under the name of one that they have dropped, and rows
    with values in them. If the job has read such rows as the table was before, its files lack these values.

    Args:
        table: Locked by the caller's transaction, which has taken in what other engines have committed.
        written: As `written_columns` returns them.

    Raises:
        PlanConflictError: The files lack a column.
    """
    missing = [column.name for column in table.in_files.columns if written is not None and column.id not in written]
    if missing:
        raise PlanConflictError(
            f"table {table.full_name}: the column {', '.join(missing)} was added while rows were written without it; "
            "nothing was changed. Run the statement or load again"
        )


def read_manifest(table: Table, folder: str) -> Iterator[NewFile]:
    """Yield the data files in the manifest of a folder.

    Raises:
        VerificationFailedError: The manifest is missing or incomplete.
    """
    return (NewFile.from_json(line) for line in _lines(table, folder) if len(line) == _FIELDS)


def _lines(table: Table, folder: str) -> Iterator[list[Any]]:
    """Yield the lines of the manifest of a folder: of the columns, the files, and the end."""
    location = Folder(table.location)
    name = f"{folder}/{_MANIFEST}"
    count = 0
    if location.exists(name):
        with location.open_text(name) as lines:
            for line in lines:
                # A truncated line lacks the closing bracket or the line break.
                fields = json.loads(line) if line.endswith("]\n") else []
                if len(fields) != _FIELDS and fields[:1] != [_COLUMNS] and fields != [_END, count]:
                    break
                yield fields
                if fields[0] == _END:
                    return
                count += len(fields) == _FIELDS
    raise _incomplete(table, folder)


def _incomplete(table: Table, folder: str) -> VerificationFailedError:
    return VerificationFailedError(
        f"table {table.full_name}: {table.location}/{folder}/{_MANIFEST} is missing or incomplete; nothing was "
        "changed. Run the operation again"
    )
