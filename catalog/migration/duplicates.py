"""Which of the staged files an Iceberg table has already.

Paths go into a temporary SQLite database on disk, so that memory grows neither with the staged files nor with the
table's: no more than one manifest and one batch of paths are held.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from catalog.errors import DuplicateFilesError
from catalog.migration.requests import OnDuplicate
from catalog.migration.staging import Staged
from catalog.migration.targets import Target
from catalog.storage.bulk import batched

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from catalog.iceberg.manifests import WrittenManifest

_SHOWN = 10
_BATCH = 500
"""Paths in one query: SQLite takes 999 parameters everywhere."""


class NewFiles(NamedTuple):
    """Staged files that are new to a table.

    Attributes:
        manifests: Of the new files.
        size_bytes: Their size.
        duplicate_count: How many files the table has already.
    """

    manifests: Sequence[WrittenManifest]
    size_bytes: int
    duplicate_count: int


def new_files(
    target: Target, staged: Staged, metadata: TableMetadata, on_duplicate: OnDuplicate, path_prefix: str
) -> NewFiles:
    """Return the staged files that an Iceberg table does not have; manifests with others are written again.

    Args:
        path_prefix: What the paths of those manifests begin with.

    Raises:
        DuplicateFilesError: It has some, and they are not to be skipped.
    """
    from catalog.iceberg.appending import known_files, without_files

    # A database without a name is on disk once it is large, and gone when it is closed.
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
    """Write path, manifest and size of the staged files into a table `staged`, a manifest in memory at a time."""
    from catalog.iceberg.appending import files_of

    paths.execute("CREATE TABLE staged (path TEXT, manifest INTEGER, size_bytes INTEGER, is_known INTEGER DEFAULT 0)")
    for number, manifest in enumerate(staged.manifests):
        files = (entry.data_file for entry in files_of(manifest, target.layout.spec))
        paths.executemany(
            "INSERT INTO staged (path, manifest, size_bytes) VALUES (?, ?, ?)",
            ((file.file_path, number, file.file_size_in_bytes) for file in files),
        )
    paths.execute("CREATE INDEX staged_path ON staged (path)")
    paths.execute("CREATE INDEX staged_manifest ON staged (manifest) WHERE is_known")


def _mark_known(paths: sqlite3.Connection, known: Iterable[str]) -> None:
    for batch in batched(known, _BATCH):
        marks = ", ".join("?" * len(batch))
        paths.execute(f"UPDATE staged SET is_known = 1 WHERE path IN ({marks})", list(batch))


def _number(paths: sqlite3.Connection, query: str) -> int:
    return paths.execute(query).fetchone()[0] or 0
