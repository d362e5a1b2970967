"""Detection of staged files that an Iceberg table already has.

Paths go into a temporary SQLite database on disk, which bounds the memory: at most one manifest and one batch of paths
are loaded at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from catalog.errors import DuplicateFilesError
from catalog.files.locations import file_spellings
from catalog.migration.requests import OnDuplicate
from catalog.migration.staging import Staged
from catalog.migration.targets import Target
from catalog.storage.bulk import batched

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from catalog.iceberg.manifests import WrittenManifest

_SHOWN = 10
_BATCH = 500
"""The number of paths in one query: every build of SQLite allows at least 999 parameters."""


class NewFiles(NamedTuple):
    """Staged files that are new to a table.

    Attributes:
        manifests: The manifests of the new files.
        size_bytes: The total size of the new files.
        duplicate_count: The number of staged files that the table already has.
    """

    manifests: Sequence[WrittenManifest]
    size_bytes: int
    duplicate_count: int


def new_files(
    target: Target, staged: Staged, metadata: TableMetadata, on_duplicate: OnDuplicate, path_prefix: str
) -> NewFiles:
    """Return the staged files that an Iceberg table does not have; rewrite manifests that contain others.

    Args:
        path_prefix: The prefix of the paths of rewritten manifests.

    Raises:
        DuplicateFilesError: The table has some of the files, and `on_duplicate` is FAIL.
    """
    from catalog.iceberg.appending import known_files, without_files

    # SQLite spills a database without a name to disk if it is large, and deletes it when it is closed.
    with closing(sqlite3.connect("")) as paths:
        take_staged(paths, staged, target)
        _mark_known(paths, known_files(metadata))
        count = _number(paths, "SELECT count(DISTINCT path) FROM staged WHERE is_known")
        if count and on_duplicate is OnDuplicate.FAIL:
            query = f"SELECT DISTINCT path FROM staged WHERE is_known ORDER BY path LIMIT {_SHOWN}"
            raise DuplicateFilesError(target.full_name, [path for (path,) in paths.execute(query)], count)
        kept = []
        for number, manifest in enumerate(staged.manifests):
            query = "SELECT path FROM staged WHERE manifest = ? AND is_known"
            known = {path for (path,) in paths.execute(query, [number])}
            rest: WrittenManifest | None = manifest
            if known:
                rest = without_files(manifest, target.layout, known, f"{path_prefix}-m{number}.avro")
            if rest is not None:
                kept.append(rest)
        size_bytes = _number(paths, "SELECT sum(size_bytes) FROM staged WHERE NOT is_known")
    return NewFiles(kept, size_bytes, count)


def take_staged(paths: sqlite3.Connection, staged: Staged, target: Target) -> None:
    """Write path, manifest number and size of the staged files into a table `staged`, one manifest at a time.

    `spelling` is the path in its normalized spelling.
    """
    from catalog.iceberg.appending import files_of

    paths.execute(
        "CREATE TABLE staged "
        "(path TEXT, spelling TEXT, manifest INTEGER, size_bytes INTEGER, is_known INTEGER DEFAULT 0)"
    )
    for number, manifest in enumerate(staged.manifests):
        files = (entry.data_file for entry in files_of(manifest, target.layout.spec))
        paths.executemany(
            "INSERT INTO staged (path, spelling, manifest, size_bytes) VALUES (?, ?, ?, ?)",
            ((file.file_path, file_spellings(file.file_path)[0], number, file.file_size_in_bytes) for file in files),
        )
    paths.execute("CREATE INDEX staged_path ON staged (path)")
    paths.execute("CREATE INDEX staged_spelling ON staged (spelling)")
    paths.execute("CREATE INDEX staged_manifest ON staged (manifest) WHERE is_known")


def _mark_known(paths: sqlite3.Connection, known: Iterable[str]) -> None:
    for batch in batched(known, _BATCH):
        marks = ", ".join("?" * len(batch))
        spellings = [file_spellings(path)[0] for path in batch]
        paths.execute(f"UPDATE staged SET is_known = 1 WHERE spelling IN ({marks})", spellings)


def _number(paths: sqlite3.Connection, query: str) -> int:
    return paths.execute(query).fetchone()[0] or 0
