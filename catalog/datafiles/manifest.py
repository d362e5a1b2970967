"""What a Spark job wrote: the list of its data files, beside them, for whoever makes them visible.

It is one JSON line a file, and the last thing a job writes; a job that died leaves none, or one that nobody asks for.
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
_FIELDS = 5


def write_manifest(table: Table, folder: str, files: Iterable[NewFile]) -> int:
    """Write the list of the data files of a folder; return how many there are."""
    count = 0
    with Folder(table.location).writing(f"{folder}/{_MANIFEST}") as lines:
        for file in files:
            lines.write(json.dumps(file.as_json()) + "\n")
            count += 1
        reached(Point.LISTED)
        lines.write(json.dumps([_END, count]) + "\n")
    reached(Point.MANIFEST_WRITTEN)
    return count


def has_manifest(table: Table, folder: str) -> bool:
    """Say whether the list of a folder's data files is there."""
    return Folder(table.location).exists(f"{folder}/{_MANIFEST}")


def delete_manifest(table: Table, folder: str) -> None:
    """Delete the list of a folder's data files, so that nobody takes the folder for a whole one any more."""
    Folder(table.location).delete_file(f"{folder}/{_MANIFEST}")


def read_manifest(table: Table, folder: str) -> Iterator[NewFile]:
    """Yield the data files of a folder.

    Raises:
        VerificationFailedError: The list is not there, or not whole.
    """
    location = Folder(table.location)
    name = f"{folder}/{_MANIFEST}"
    count = 0
    if location.exists(name):
        with location.open_text(name) as lines:
            for line in lines:
                # A line that was cut off is none of JSON, or ends elsewhere.
                fields = json.loads(line) if line.endswith("]\n") else []
                if fields == [_END, count]:
                    return
                if len(fields) != _FIELDS:
                    break
                yield NewFile.from_json(fields)
                count += 1
    raise VerificationFailedError(
        f"table {table.full_name}: {table.location}/{name} is not there, or not whole; nothing was changed. Run the "
        "operation again"
    )
