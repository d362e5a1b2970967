"""Publication of loads into tables stored as Iceberg: one transaction per load, with one snapshot.

Jobs write data files into the folder of their attempt, where they stay, and list them in its manifest. One transaction
adds file rows, partitions with index items, and the snapshot. Vacuum deletes folders of attempts that did not commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from catalog.datafiles.committing import OPERATION_MARK
from catalog.datafiles.files import NewFile, Total
from catalog.datafiles.intake import lock_as_read, lock_current
from catalog.datafiles.manifest import read_manifest, require_columns, written_columns
from catalog.datafiles.publishing import FileSwap, publish
from catalog.errors import InvalidPartitionError, PartitionAlreadyExistsError, RefusedPartition
from catalog.files.filesystem import Folder
from catalog.indexes.definitions import maintained_indexes
from catalog.loading.attempts import MOST_REASONS, PublishAttempt
from catalog.model import LoadMode, OnInvalid, Table
from catalog.model.partition_names import partition_path
from catalog.operations.attempts import require_own
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import Operation
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.quarantine import HIDDEN_FILES, add_hidden_partitions
from catalog.partitions.snapshots import (
    AddedFiles,
    add_partition_files,
    partition_ids,
    remove_partition_files,
    remove_partitions,
    replace_files,
    require_unchanged,
)
from catalog.storage.values import ValueEncoder

Values = tuple[str | None, ...]


@dataclass
class _Refused:
    """The partitions that a load skips, and the files that it has set aside."""

    reasons: dict[Values, RefusedPartition] = field(default_factory=dict)
    total: Total = field(default_factory=Total)


class SnapshotPublication:
    """One attempt at publishing the files in an attempt's folder."""

    def __init__(self, attempt: PublishAttempt) -> None:
        """Set the attempt at publishing its folder."""
        self._attempt, self._table = attempt, attempt.table
        self._refused = _Refused()

    def set_aside(self) -> None:
        """Move the files of partitions that an index does not admit, if they are to be skipped; safe to repeat.

        Raises:
            InvalidPartitionError: There are such partitions, and they are not to be skipped.
            VerificationFailedError: The folder's manifest is missing or incomplete.
        """
        with self._attempt.storage.read() as connection:
            encoder = ValueEncoder(self._table, maintained_indexes(connection, self._table.id), every_key=True)
        refused = self._refused
        for values in {file.values for file in read_manifest(self._table, self._attempt.folder)}:
            if isinstance(encoded := encoder.encode(values), RefusedPartition):
                refused.reasons[values] = encoded
        if not refused.reasons:
            return
        if self._attempt.options.on_invalid is OnInvalid.REFUSE:
            shown = list(refused.reasons.values())
            raise InvalidPartitionError(self._table.full_name, shown[:MOST_REASONS], count=len(shown))
        folder = Folder(self._table.location)
        for file in read_manifest(self._table, self._attempt.folder):
            if file.values in refused.reasons:
                source, _, name = file.path.rpartition("/")
                folder.move_files(source, folder.inside(self._rejected(file.values)), [name])
                refused.total += Total(1, file.row_count, file.size_bytes)
        reached(Point.MOVED)

    def _rejected(self, values: Values) -> str:
        path = partition_path(self._table.key_names, values)
        return f"{self._attempt.rejected_folder}/{path}"

    def commit(self, connection: Connection) -> tuple[Operation, dict[str, Any]]:
        """Make the files visible in the caller's transaction; return the operation and the report.

        Raises:
            FencedError: The attempt is fenced.
            InvalidPartitionError: An index that was created meanwhile does not admit a partition.
            ConflictError: A partition is quarantined, or the table was changed after its rows were read.
            PlanConflictError: Another engine's commit concerns the files that were read, or has added a column that the
                new ones lack.
            PartitionAlreadyExistsError: A partition exists, and the mode is NEW or the partitions are to be
                quarantined.
        """
        operation = self._attempt.guard(connection)
        require_own(self._attempt.storage, operation, self._attempt.folder)
        lock_as_read(connection, self._attempt.definitions, self._table, self._attempt.options.read_from)
        self._attempt.evolve(connection)
        table = lock_current(connection, self._attempt.definitions, self._table)
        if (read := self._attempt.options.replaced) is not None:
            require_unchanged(connection, table, read)
        if self._attempt.options.mode is LoadMode.REPLACE:
            require_columns(table, written_columns(table, self._attempt.folder))
        adder = None
        if table.partition_keys:
            is_hidden = self._attempt.options.is_quarantined
            number = operation.number
            adder = PartitionAdder(
                connection,
                self._attempt.definitions,
                table,
                is_quarantined=is_hidden,
                operation_number=number,
            )
            if is_hidden:
                total = sum((Total(1, file.row_count, file.size_bytes) for file in self._files()), Total())
                hidden = AddedFiles(add_hidden_partitions(adder, self._files()), 0, total)
                removed, dropped = self._remove_after(connection, table)
                if removed:
                    marks = {OPERATION_MARK: operation.id}
                    publish(connection, table, FileSwap(removed=removed, marks=marks, is_overwrite=True))
                return operation, {**self._report(hidden, dropped), HIDDEN_FILES: self._attempt.folder}
        removed = self._remove_replaced(connection, table)
        added = add_partition_files(connection, adder, table, self._files(), operation.number)
        if added.extended and self._attempt.options.mode is LoadMode.NEW:
            raise PartitionAlreadyExistsError(
                f"table {table.full_name} has had {added.extended:,} of the load's partitions since it was validated; "
                "nothing was added. Set the load's `mode` to append, or run the load again to see which they are"
            )
        others, dropped = self._remove_after(connection, table)
        removed += others
        if added.total.file_count or removed:
            swap = FileSwap(self._files(), removed=removed, marks={OPERATION_MARK: operation.id}, is_overwrite=True)
            publish(connection, table, swap)
        return operation, self._report(added, dropped)

    def _remove_replaced(self, connection: Connection, table: Table) -> list[str]:
        """Remove the files of existing partitions that new ones replace as a whole; return their paths."""
        options = self._attempt.options
        if options.mode is not LoadMode.REPLACE or options.replaced is not None:
            return []
        encoder = ValueEncoder(table)
        ids = partition_ids(connection, table, {encoder.identity(file.values) for file in self._files()})
        return remove_partition_files(connection, table, ids.values())

    def _remove_after(self, connection: Connection, table: Table) -> tuple[list[str], int]:
        """Remove the files that were read, or whole partitions; return paths, and the number of dropped partitions."""
        options = self._attempt.options
        if options.replaced is not None:
            return replace_files(connection, table, options.replaced.ids)
        return remove_partitions(connection, table, options.removed), len(options.removed)

    def _files(self) -> Iterator[NewFile]:
        skipped: Collection[Values] = self._refused.reasons
        return (file for file in read_manifest(self._table, self._attempt.folder) if file.values not in skipped)

    def _report(self, added: AddedFiles, dropped: int) -> dict[str, Any]:
        total, is_replacing = added.total, self._attempt.options.mode is LoadMode.REPLACE
        if not self._attempt.options.is_load:
            return {
                "rows": total.row_count,
                "files": total.file_count,
                "bytes": total.size_bytes,
                "partitions_added": added.added,
                "partitions_extended": 0 if is_replacing else added.extended,
                **({"partitions_replaced": added.extended} if is_replacing else {}),
                **({"partitions_removed": dropped} if is_replacing else {}),
            }
        refused = self._refused
        folder = f"{self._table.location}/{self._attempt.rejected_folder}"
        return {
            "partitions": added.added,
            "partitions_extended": 0 if is_replacing else added.extended,
            "partitions_replaced": added.extended if is_replacing else 0,
            "partitions_removed": dropped,
            "row_count": total.row_count,
            "file_count": total.file_count,
            "size_bytes": total.size_bytes,
            "refused": len(refused.reasons),
            "refused_rows": refused.total.row_count,
            "refused_reasons": _shown(refused.reasons.values()),
            "refused_folder": folder if refused.reasons else None,
        }


def _shown(reasons: Iterable[RefusedPartition]) -> list[str]:
    return sorted(map(str, reasons))[:MOST_REASONS]
