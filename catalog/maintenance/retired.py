"""Deletion of retired files, after the grace period for readers.

The file is deleted before its row: after a kill in between, the next vacuum finds the row again, and a missing file is
no error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, select

from catalog.errors import CatalogError, UnreadableMetadataError
from catalog.files.filesystem import Folder, in_parallel
from catalog.maintenance.reports import TableVacuum, Tally
from catalog.model import Table
from catalog.storage import Storage
from catalog.storage.bulk import among
from catalog.storage.schema import RetiredFileRow

if TYPE_CHECKING:
    from catalog.iceberg.reachability import Reachability

_BATCH = 1_000
_SHOWN = 5


def retired_folders(connection: Connection) -> set[str]:
    """Return the locations of existing and dropped tables that have retired files."""
    return set(connection.scalars(select(RetiredFileRow.folder).distinct()))


def delete_retired_files(
    storage: Storage,
    reachability: Reachability,
    table: Table | None,
    cutoff_ms: int,
    tally: Tally,
    *,
    is_dry_run: bool,
) -> None:
    """Delete the files that were retired before a time, of one table or of all, including dropped ones.

    A table is identified by its id, so its files are found after it was renamed. Files that an Iceberg table refers to
    stay.
    """
    condition = _condition(table, cutoff_ms)
    if is_dry_run:
        _count(storage, condition, tally)
        return
    failures: list[str] = []
    blocked: dict[str, str] = {}
    count = 0
    for batch in _batches(storage, condition):
        batch = _unreached(reachability, batch, blocked)
        outcomes = list(in_parallel(_delete_file, batch))
        deleted = [row for row, problem in zip(batch, outcomes, strict=True) if problem is None]
        with storage.write() as connection:
            ids = [row.id for row in deleted]
            connection.execute(delete(RetiredFileRow).where(among(connection, RetiredFileRow.id, ids)))
        sizes: Counter[str] = Counter()
        for row in deleted:
            sizes[row.table_name] += row.size_bytes
        for name, files in Counter(row.table_name for row in deleted).items():
            tally.add(TableVacuum(name, retired_files=files, retired_bytes=sizes[name]))
        problems = [problem for problem in outcomes if problem is not None]
        count += len(problems)
        failures += problems[: _SHOWN - len(failures)]
    tally.problems += blocked.values()
    if count:
        tally.problems.append(f"{count:,} replaced file(s) could not be deleted: {'; '.join(failures)}")


def _unreached(reachability: Reachability, batch: Sequence[Row[Any]], blocked: dict[str, str]) -> Sequence[Row[Any]]:
    """Return the files that no Iceberg table refers to, without folders for which this is unknown."""
    folders: dict[str, list[Row[Any]]] = {}
    for row in batch:
        folders.setdefault(row.folder, []).append(row)
    unreached = []
    for folder, rows in folders.items():
        try:
            reached = reachability.reached(f"{folder}/{row.path}" for row in rows)
        except UnreadableMetadataError as error:
            blocked[folder] = f"{folder}: replaced files stay: {error}"
            continue
        unreached += [row for row in rows if f"{folder}/{row.path}" not in reached]
    return unreached


def _condition(table: Table | None, cutoff_ms: int) -> ColumnElement[bool]:
    is_old = RetiredFileRow.retired_at_ms <= cutoff_ms
    if table is None:
        return is_old
    return is_old & (RetiredFileRow.table_id == table.id)


def _count(storage: Storage, condition: ColumnElement[bool], tally: Tally) -> None:
    query = select(RetiredFileRow.table_name, func.count(), func.sum(RetiredFileRow.size_bytes)).where(condition)
    with storage.read() as connection:
        for name, files, size in connection.execute(query.group_by(RetiredFileRow.table_name)):
            tally.add(TableVacuum(name, retired_files=files, retired_bytes=int(size)))


def _batches(storage: Storage, condition: ColumnElement[bool]) -> Iterator[Sequence[Row[Any]]]:
    query = select(RetiredFileRow.__table__).where(condition).order_by(RetiredFileRow.id).limit(_BATCH)
    after = 0
    while True:
        with storage.read() as connection:
            batch = connection.execute(query.where(RetiredFileRow.id > after)).all()
        if not batch:
            return
        yield batch
        after = batch[-1].id


def _delete_file(row: Row[Any]) -> str | None:
    """Delete a file, which may be missing already; return an error message, or None."""
    try:
        _folder(row.folder).delete_file(row.path)
    except (CatalogError, OSError, ValueError) as error:
        return f"{row.folder}/{row.path}: {error}"
    return None


@lru_cache(maxsize=64)
def _folder(location: str) -> Folder:
    return Folder(location)
