"""Manifests: the list of the data files that a Spark job has written, stored next to them for the commit.

A manifest has one JSON line per file, and the job writes it last; a job that died leaves no manifest or an incomplete
one, and its folder is never committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from catalog.datafiles.files import NewFile
from catalog.errors import VerificationFailedError
from catalog.files.filesystem import Folder
from catalog.model import Table
from catalog.operations.failpoints import Point, reached

_MANIFEST = "_manifest.jsonl"
_END = "end"
_FIELDS = 7


def write_manifest(table: Table, folder: str, files: Iterable[NewFile]) -> int:
    """Write the manifest of a folder; return the number of files."""
    count = 0
    with Folder(table.location).writing(f"{folder}/{_MANIFEST}") as lines:
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


def read_manifest(table: Table, folder: str) -> Iterator[NewFile]:
    """Yield the data files in the manifest of a folder.

    Raises:
        VerificationFailedError: The manifest is missing or incomplete.
    """
    location = Folder(table.location)
    name = f"{folder}/{_MANIFEST}"
    count = 0
    if location.exists(name):
        with location.open_text(name) as lines:
            for line in lines:
                # A truncated line lacks the closing bracket or the line break.
                fields = json.loads(line) if line.endswith("]\n") else []
                if fields == [_END, count]:
                    return
                if len(fields) != _FIELDS:
                    break
                yield NewFile.from_json(fields)
                count += 1
    raise _incomplete(table, folder)


def _incomplete(table: Table, folder: str) -> VerificationFailedError:
    return VerificationFailedError(
        f"table {table.full_name}: {table.location}/{folder}/{_MANIFEST} is missing or incomplete; nothing was "
        "changed. Run the operation again"
    )
