"""Deletion of Iceberg metadata of migrations that failed or were reverted.

A migration's stage writes into the folder of its attempt (`catalog.migration.staging`), and a metadata file next to it.
The folder is judged by its operation:

| the operation | the committed attempt | other attempts |
| --- | --- | --- |
| COMMITTED, CLEANED | kept while an Iceberg table refers to it; deleted after a revert | deleted |
| FAILED | | deleted: a retry writes into another folder |
| running | | deleted if the attempt has failed |
| unknown, or older than the table | kept: it belongs to others | kept |

In a kept folder, metadata that no Iceberg table refers to are deleted: they belong to appends that were killed or lost
to a conflicting commit. Everything that any table refers to is kept, wherever that table is
(`catalog.iceberg.reachability`), and so is everything that the table's entry in a metastore may refer to. Files younger
than the grace period are kept. Only these folders are examined: data files and files of engines are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from catalog.files.filesystem import FileInfo, Folder
from catalog.maintenance.judging import Verdict, created_at_ms, judge, read_writers
from catalog.maintenance.reports import TableVacuum, Tally
from catalog.migration.source_entries import PREPARE
from catalog.migration.staging import attempt_metadata, attempt_names, forget_staged
from catalog.model import Table
from catalog.operations.records import OperationKind
from catalog.storage import Storage
from catalog.storage.schema import OperationRow

if TYPE_CHECKING:
    from catalog.iceberg.reachability import Reachability

_METADATA = (".avro", ".metadata.json")
_KINDS = (OperationKind.SNAPSHOT, OperationKind.ADD_FILES)


@dataclass(frozen=True)
class _Attempt:
    """The folder of an attempt, relative to a location."""

    location: str
    name: str
    number: int
    attempt: int


def metadata_locations(connection: Connection, table: Table) -> set[str]:
    """Return the locations where migrations of a table have written metadata: its own, and those of their targets."""
    query = select(OperationRow.request).where(OperationRow.table_id == table.id, OperationRow.kind.in_(_KINDS))
    return {table.location, *(location for request in connection.scalars(query) if (location := request["location"]))}


def operation_numbers(storage: Storage, location: Folder) -> set[int]:
    """Return the numbers of migrations that have an attempt's folder below a location."""
    return {number for _, number, _ in attempt_names(storage, location)}


def delete_old_metadata(
    storage: Storage, reachability: Reachability, table: Table, cutoff_ms: int, tally: Tally, *, is_dry_run: bool
) -> None:
    """Delete metadata written by migrations of a table that no Iceberg table refers to.

    Args:
        cutoff_ms: Keep folders that were written or used after this time.

    Raises:
        OSError, ValueError: The file system refused.
        UnreadableMetadataError: Metadata of an Iceberg table that may refer to these files cannot be read.
    """
    with storage.read() as connection:
        locations = metadata_locations(connection, table)
    sweeper = _Sweeper(storage, reachability, table, cutoff_ms)
    for location in sorted(locations):
        folder = Folder(location)
        for name, number, attempt in list(attempt_names(storage, folder)):
            count, size = sweeper.clear(folder, _Attempt(location, name, number, attempt), is_dry_run)
            tally.add(TableVacuum(table.full_name, orphan_files=count, orphan_bytes=size))


class _Sweeper:
    """Deletes obsolete metadata in the folders of attempts."""

    def __init__(self, storage: Storage, reachability: Reachability, table: Table, cutoff_ms: int) -> None:
        self._storage = storage
        self._reachability = reachability
        self._table = table
        self._cutoff_ms = cutoff_ms

    def clear(self, folder: Folder, attempt: _Attempt, is_dry_run: bool) -> tuple[int, int]:
        """Clear the folder of an attempt; return the number and bytes of the files that were, or would be, deleted."""
        files = folder.all_files(attempt.name)
        first = folder.file_info(attempt_metadata(attempt.location, attempt.name))
        all_files = [*files, *([] if first is None else [first])]
        if any(file.modified_at_ms > self._cutoff_ms for file in all_files):
            return 0, 0
        with self._storage.read() as connection:
            # A folder that is kept without references is kept in any case.
            if self._judge(connection, attempt, is_named=False) is Verdict.KEEP:
                return 0, 0
        named = self._reachability.reached(f"{attempt.location}/{file.path}" for file in all_files)
        if not named:
            return self._delete(folder, attempt, all_files, is_dry_run)
        with self._storage.read() as connection:
            if self._judge(connection, attempt, is_named=True) is Verdict.KEEP:
                return 0, 0
        # No future commit can refer to them: it refers only to files of the current metadata and to its own.
        unnamed = [
            file for file in files if file.path.endswith(_METADATA) and f"{attempt.location}/{file.path}" not in named
        ]
        for file in () if is_dry_run else unnamed:
            folder.delete_file(file.path)
        return _size(unnamed)

    def _delete(
        self, folder: Folder, attempt: _Attempt, files: Iterable[FileInfo], is_dry_run: bool
    ) -> tuple[int, int]:
        if not is_dry_run:
            with self._storage.write() as connection:
                if self._judge(connection, attempt, is_named=False, hold=True) is not Verdict.DELETE:
                    return 0, 0
                # Without the list of staged files the attempt cannot be committed, even if the operation continues.
                forget_staged(folder, attempt.name)
            folder.delete_file(attempt_metadata(attempt.location, attempt.name))
            folder.delete(attempt.name)
        return _size(files)

    def _judge(self, connection: Connection, attempt: _Attempt, *, is_named: bool, hold: bool = False) -> Verdict:
        writer = read_writers(connection, {attempt.number}, hold=hold).get(attempt.number)
        report = connection.scalar(select(OperationRow.report).where(OperationRow.number == attempt.number)) or {}
        if PREPARE in report and self._table.is_iceberg:
            # Engines commit through the table's entry in a metastore, and reachability does not read those metadata.
            return Verdict.KEEP
        return judge(
            attempt.attempt,
            writer,
            has_known_files=is_named,
            table_created_at_ms=self._since(connection, attempt),
            cutoff_ms=self._cutoff_ms,
        )

    def _since(self, connection: Connection, attempt: _Attempt) -> int:
        # Only folders in the Hive table's own location can be older than the table; for targets its age is irrelevant.
        is_own = attempt.location == self._table.location and not self._table.is_iceberg
        return created_at_ms(connection, self._table) if is_own else 0


def _size(files: Iterable[FileInfo]) -> tuple[int, int]:
    sizes = [file.size_bytes for file in files]
    return len(sizes), sum(sizes)
