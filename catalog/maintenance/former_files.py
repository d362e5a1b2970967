"""Deletion of data files that no snapshot refers to.

Expiry removes the revisions of expired snapshots (`catalog.maintenance.snapshots`); the former rows that no revision
has then name the files. A file is deleted before its row: after a kill in between, the next vacuum finds the row again,
and a missing file is no error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Row, func, select, tuple_

from catalog.datafiles.history import forget_files, former_files
from catalog.errors import CatalogError, UnreadableMetadataError
from catalog.files.filesystem import Folder, in_parallel
from catalog.files.locations import OwnFiles, complete_path
from catalog.maintenance.reports import TableVacuum, Tally, of_former_files
from catalog.model import Table
from catalog.operations.failpoints import Point, reached
from catalog.storage import Storage
from catalog.storage.schema import FormerFileRow

if TYPE_CHECKING:
    from catalog.iceberg.reachability import Reachability

_Row: TypeAlias = Row[int, int, str, int, bool]

_BATCH = 1_000
_SHOWN = 5
_DROPPED = "dropped tables"


def delete_former_files(
    storage: Storage,
    reachability: Reachability,
    table: Table | None,
    cutoff_ms: int,
    tally: Tally,
    *,
    kept_snapshot_ids: Collection[int] | None = None,
    is_dry_run: bool,
) -> None:
    """Delete the files that left a table before a time, and that none of its revisions has.

    Files that an Iceberg table refers to stay.

    Args:
        table: None for tables that were dropped by an earlier version.
        kept_snapshot_ids: In a dry run, the snapshots that would not be expired.
    """
    deletion = _Deletion(storage, reachability, table, tally)
    if is_dry_run:
        deletion.count(cutoff_ms, kept_snapshot_ids)
        return
    for batch in deletion.batches(cutoff_ms):
        deletion.run(batch)
    tally.problems += deletion.problems()


class _Deletion:
    """Deletes the former files of one table."""

    def __init__(self, storage: Storage, reachability: Reachability, table: Table | None, tally: Tally) -> None:
        self._storage = storage
        self._reachability = reachability
        self._id, self._name, self._location = (
            (0, _DROPPED, "") if table is None else (table.id, table.full_name, table.location)
        )
        self._tally = tally
        self._failures: list[str] = []
        self._failure_count = 0
        self._blocked: str | None = None

    def count(self, cutoff_ms: int, kept_snapshot_ids: Collection[int] | None) -> None:
        with self._storage.read() as connection:
            rows = former_files(connection, self._id, cutoff_ms, kept_snapshot_ids).order_by(None).subquery()
            files = select(rows.c.path, func.max(rows.c.size_bytes).label("size")).where(~rows.c.is_live)
            distinct = files.group_by(rows.c.path).subquery()
            count, size = connection.execute(select(func.count(), func.sum(distinct.c.size))).one()
        self._tally.add(TableVacuum(self._name, retired_files=count, retired_bytes=int(size or 0)))

    def batches(self, cutoff_ms: int) -> Iterator[Sequence[_Row]]:
        key, after = tuple_(FormerFileRow.until_revision, FormerFileRow.number), (-1, 0)
        while True:
            with self._storage.read() as connection:
                query = former_files(connection, self._id, cutoff_ms).where(key > after).limit(_BATCH)
                batch = connection.execute(query).all()
            if not batch:
                return
            yield batch
            after = (batch[-1].until_revision, batch[-1].number)

    def run(self, rows: Sequence[_Row]) -> None:
        unneeded = self._unreached({self._path(row): row.size_bytes for row in rows if not row.is_live})
        own = self._own_files(unneeded)
        outcomes = dict(zip(own, in_parallel(_delete_file, own), strict=True))
        for path in unneeded:
            outcomes.setdefault(path, f"{path}: a link leads out of the table's folder; remove the link")
        reached(Point.FILES_DELETED)
        problems = [problem for problem in outcomes.values() if problem is not None]
        self._failure_count += len(problems)
        self._failures += problems[: _SHOWN - len(self._failures)]
        deleted = {path for path, problem in outcomes.items() if problem is None}
        done = [row.number for row in rows if row.is_live or self._path(row) in deleted]
        with self._storage.write() as connection:
            forget_files(connection, done)
        sizes = {row.path: row.size_bytes for row in rows if self._path(row) in deleted}
        self._tally.add(of_former_files(self._name, sizes))

    def problems(self) -> Iterator[str]:
        if self._blocked is not None:
            yield self._blocked
        if self._failure_count:
            yield f"{self._failure_count:,} replaced file(s) could not be deleted: {'; '.join(self._failures)}"

    def _own_files(self, paths: Iterable[str]) -> list[str]:
        """Return the files in the table's folder; all those of a table that was dropped."""
        return OwnFiles([self._location]).among(paths) if self._location else [*paths]

    def _path(self, row: _Row) -> str:
        return complete_path(self._location, row.path)

    def _unreached(self, sizes: dict[str, int]) -> dict[str, int]:
        """Return the files that no Iceberg table refers to; none if this is unknown."""
        try:
            reached_paths = self._reachability.reached(sizes)
        except UnreadableMetadataError as error:
            self._blocked = f"{self._location or self._name}: replaced files stay: {error}"
            return {}
        return {path: size for path, size in sizes.items() if path not in reached_paths}


def _delete_file(path: str) -> str | None:
    """Delete a file, which may be missing already; return an error message, or None."""
    folder, _, name = path.rpartition("/")
    try:
        _folder(folder).delete_file(name)
    except (CatalogError, OSError, ValueError) as error:
        return f"{path}: {error}"
    return None


@lru_cache(maxsize=1_024)
def _folder(location: str) -> Folder:
    return Folder(location)
