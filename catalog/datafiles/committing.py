"""Commit of a job's new and replaced data files, in one transaction with the table's scheme."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, select, update

from catalog.datafiles.files import NewFile, Total, insert_files, read_files, relabel_files, retire_files
from catalog.datafiles.history import next_revision, record_changed_partitions
from catalog.datafiles.intake import lock_as_read, lock_current, reading_current
from catalog.datafiles.manifest import read_manifest, require_columns, require_manifest, written_columns
from catalog.datafiles.pruning import FileScan, place_files, scan_files
from catalog.datafiles.publishing import FileSwap, are_deletes_changed, publish
from catalog.errors import ExpressionError, PlanConflictError, VerificationFailedError
from catalog.iceberg.pointers import move_pointer
from catalog.model import Table
from catalog.operations.attempts import require_own
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.patience import planned_again
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.schemes.model import UNPLACED, Scheme
from catalog.storage import Storage
from catalog.storage.schema import DataFileRow, TableRow
from catalog.tables.checks import require_scheme
from catalog.tables.definitions import Definitions
from catalog.tables.schemes import scheme_from_json

CHANGE_ROWS = "change_rows"
"""The step of an operation that deletes, updates, overwrites, merges or compacts rows."""

OPERATION_MARK = "calve.operation"
"""The entry of a snapshot's summary with the id of the operation that made it."""


@dataclass(frozen=True)
class FileChange:
    """A change of a table's files and scheme.

    Attributes:
        before: The scheme that the table must still have.
        after: The new scheme.
        folder: The folder of the new files, relative to the table's location; None without new files.
        row_count: The expected number of rows in the new files; None if unknown.
        relabelled: File id → its new partition.
        retired: Ids of the files to remove.
        read_from: The metadata of the table when the rows of the retired files were read; None if they were not read.
        had_deletes: Whether there were delete files then.
        where: A filter on columns that is true for all rows on which the change depends; None for all rows.
        revision: The state of the table's files when they were searched for such rows; None if the change depends only
            on rows of the retired files.
        targets: Partition → the partitions of the new scheme that its rows may belong to, where this differs; for files
            that came after the plan was made.
        is_overwrite: Other rows replace those of the retired files (`SnapshotChange.is_overwrite`).
        is_of_itself: The new rows were read from the table, with the metadata `read_from`, which it must still have.
    """

    before: Scheme
    after: Scheme
    folder: str | None = None
    row_count: int | None = None
    relabelled: Mapping[int, int] = field(default_factory=dict)
    retired: Iterable[int] = ()
    targets: Mapping[int, Sequence[int]] = field(default_factory=dict)
    read_from: str | None = None
    is_overwrite: bool = False
    is_of_itself: bool = False
    had_deletes: bool = True
    where: str | None = None
    revision: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the change as JSON values, for a load that writes its files in one step and commits them in another.

        Lists of pairs, because keys of JSON objects are strings.
        """
        return {
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "folder": self.folder,
            "row_count": self.row_count,
            "relabelled": list(self.relabelled.items()),
            "retired": list(self.retired),
            "targets": [[partition_id, list(ids)] for partition_id, ids in self.targets.items()],
            "read_from": self.read_from,
            "is_overwrite": self.is_overwrite,
            "is_of_itself": self.is_of_itself,
            "had_deletes": self.had_deletes,
            "where": self.where,
            "revision": self.revision,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> FileChange:
        """Return the change that `as_json` has returned."""
        return cls(
            **{
                **stored,
                "before": scheme_from_json(stored["before"]),
                "after": scheme_from_json(stored["after"]),
                "relabelled": dict(stored["relabelled"]),
                "targets": dict(stored["targets"]),
            }
        )


class Committer:
    """Commits changes of data files of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    def commit(
        self,
        operation_id: str,
        step: str,
        attempt: int,
        change: FileChange,
        report: Mapping[str, Any] | Callable[[Connection, Table], Mapping[str, Any]],
        prepare: Callable[[Connection], object] = lambda connection: None,
    ) -> dict[str, Any]:
        """Commit a change of files, the operation's report and its state, all or nothing.

        Args:
            report: Further fields of the report; or a function that computes them from the table after the change.
            prepare: Called at the beginning of the transaction; it may change the table's columns.

        Returns:
            The report, with `files_written`, `rows_written` and `bytes_written`.

        Raises:
            FencedError: The attempt is fenced.
            PlanConflictError: The table changed after the plan was made.
            ConflictError: It changed since its rows were read to overwrite others.
            VerificationFailedError: The new files do not contain the expected number of rows, or their folder was not
                written by an attempt at this operation.
        """
        # A list of many files takes as long to read as to commit, so it is read before the table is locked.
        added, columns = self._added(operation_id, step, attempt, change.folder)
        with self._storage.write() as connection:
            operation = self._operations.guard(connection, operation_id, step, attempt)
            if change.is_of_itself:
                lock_as_read(connection, self._definitions, operation.table, change.read_from)
            prepare(connection)
            table = lock_current(connection, self._definitions, operation.table)
            if change.folder is not None:
                require_manifest(table, change.folder)
            written = self._change(connection, table, change, added, columns, operation)
            full_report = {
                **(report(connection, table) if callable(report) else report),
                "files_written": written.file_count,
                "rows_written": written.row_count,
                "bytes_written": written.size_bytes,
            }
            self._operations.finish_job(operation_id, step, attempt, full_report, connection=connection)
            self._operations.advance(connection, operation_id, OperationState.COMMITTED)
            reached(Point.CHANGED)
        reached(Point.COMMITTED)
        return full_report

    def commit_metadata(
        self,
        operation_id: str,
        step: str,
        attempt: int,
        table: Table,
        location: str,
        report: Mapping[str, Any],
        prepare: Callable[[Connection], object] = lambda connection: None,
    ) -> None:
        """Commit new metadata of an Iceberg table, the operation's report and its end, all or nothing.

        Args:
            table: The table as it was read, with the metadata that the new ones follow.
            location: The new metadata; those of `table` if nothing changed.
            prepare: Called in the transaction.

        Raises:
            FencedError: The attempt is fenced.
            PlanConflictError: Another commit was first.
        """
        with self._storage.write() as connection:
            operation = self._operations.guard(connection, operation_id, step, attempt)
            current = self._definitions.lock_table(connection, table, exclusive=True, or_iceberg=True)
            before = table.metadata_location
            is_same = current.is_iceberg and current.metadata_location == before and before is not None
            names = table.database, table.name
            if not is_same or (location != before and not move_pointer(connection, *names, str(before), location)):
                raise PlanConflictError(
                    f"another engine has committed to the Iceberg table {table.full_name} since the statement began; "
                    "nothing was changed. Run the statement again"
                )
            prepare(connection)
            self._operations.finish_job(operation_id, step, attempt, report, connection=connection)
            # No file is left to be moved or removed.
            for state in () if operation.is_committed else (OperationState.COMMITTED, OperationState.CLEANED):
                self._operations.advance(connection, operation_id, state)
            reached(Point.CHANGED)
        reached(Point.COMMITTED)

    def delete_files(
        self, operation_id: str, table: str, expression: str | None = None, *, requested_by: str | None = None
    ) -> dict[str, Any] | None:
        """Delete the rows that match a filter without reading them; a repeated call returns the same report.

        Args:
            operation_id: The operation, which reserves the table.
            expression: The filter, as for `scan_files`; None for all rows.

        Returns:
            The report, with `rows` and `files_removed`; None, with nothing changed, if the statistics do not tell
            whether all rows of a file match, so that a Spark job has to read it under the same operation id.

        Raises:
            InvalidSchemeError: The table has no partition scheme.
            ExpressionError: The expression is invalid.
            OperationConflictError: Another operation works on the table.
        """
        earlier = self._operations.find(operation_id)
        if earlier is None or not earlier.is_committed:
            scan = self._scan(table, expression)
            if len(scan.matching) < len(scan.files):
                return None
        request = {"change": "delete", "where": expression}
        operation = self._operations.begin(
            operation_id, OperationKind.CHANGE_ROWS, table, request, is_exclusive=True, requested_by=requested_by
        )
        if operation.is_committed:
            return dict(operation.report[CHANGE_ROWS])
        return planned_again(lambda: self._delete_files(operation_id, table, expression))

    def _delete_files(self, operation_id: str, table: str, expression: str | None) -> dict[str, Any] | None:
        with self._operations.attempt(operation_id, CHANGE_ROWS) as attempt:
            scan = self._scan(table, expression)
            if len(scan.matching) < len(scan.files):
                return None
            change = FileChange(
                scan.scheme,
                scan.scheme,
                retired=[file.id for file in scan.files],
                is_overwrite=True,
                where=expression,
                revision=scan.revision,
            )
            report = {"rows": scan.read.row_count, "files_removed": scan.read.file_count}
            return self.commit(operation_id, CHANGE_ROWS, attempt, change, report)

    def _scan(self, table: str, expression: str | None) -> FileScan:
        with reading_current(self._storage, self._definitions, table, is_strict=True) as (connection, definition):
            return scan_files(connection, require_scheme(definition), expression)

    def _added(
        self, operation_id: str, step: str, attempt: int, folder: str | None
    ) -> tuple[list[NewFile], Collection[int] | None]:
        """Return the files of a folder, and their columns, after checking that the operation may commit it."""
        if folder is None:
            return [], None
        with self._storage.read() as connection:
            operation = self._operations.guard(connection, operation_id, step, attempt, hold=False)
            require_own(self._storage, operation, folder)
            table = self._definitions.get_table(operation.table, connection)
            return list(read_manifest(table, folder)), written_columns(table, folder)

    @staticmethod
    def _change(
        connection: Connection,
        table: Table,
        change: FileChange,
        added: Sequence[NewFile],
        columns: Collection[int] | None,
        operation: Operation,
    ) -> Total:
        retired, removed = list(change.retired), []
        if retired:
            require_columns(table, columns)
        is_as_expected = (
            table.scheme == change.before
            and not _has_later_rows(connection, table, change)
            and relabel_files(connection, table, change.relabelled) == len(change.relabelled)
        )
        if is_as_expected and _place_late_files(connection, table, change, {*retired, *change.relabelled}):
            removed = retire_files(connection, table, retired)
            is_as_expected = not are_deletes_changed(
                table,
                change.read_from,
                removed,
                had_deletes=change.had_deletes,
                is_serializable=change.revision is not None,
            )
        if not is_as_expected or len(removed) != len(retired):
            raise PlanConflictError(
                f"the partitions or files of table {table.full_name} changed after the plan was made; nothing was "
                "changed. Make a new plan"
            )
        written = insert_files(connection, table, added, operation.number)
        if change.row_count is not None and written.row_count != change.row_count:
            raise VerificationFailedError(
                f"table {table.full_name}: {change.row_count:,} rows were read, but {written.row_count:,} rows were "
                "written; nothing was changed. Run the operation again"
            )
        connection.execute(update(TableRow).where(TableRow.id == table.id).values(scheme=change.after.as_json()))
        filled = {file.partition_id for file in added} | {*change.relabelled.values()}
        record_changed_partitions(connection, table, change.after, filled, operation.number)
        swap = None
        if written.file_count or removed or change.relabelled or change.after != change.before:
            marks = {OPERATION_MARK: operation.id}
            swap = FileSwap(added, removed=removed, marks=marks, is_overwrite=change.is_overwrite)
        if table.published_location is not None:
            # Tables of earlier versions are published by `calve init`.
            publish(connection, replace(table, scheme=change.after), swap)
        return written


def _has_later_rows(connection: Connection, table: Table, change: FileChange) -> bool:
    """Return whether files that may have rows on which a change depends came after these were searched for."""
    if change.revision is None or next_revision(connection, table) == change.revision + 1:
        return False
    row = DataFileRow
    query = select(row.id).where(row.table_id == table.id, row.revision > change.revision)
    later = set(connection.scalars(query))
    try:
        return bool(later) and any(file.id in later for file in scan_files(connection, table, change.where).files)
    except ExpressionError:
        # An engine has dropped or renamed a column that the filter names.
        return True


def _place_late_files(connection: Connection, table: Table, change: FileChange, planned: Collection[int]) -> bool:
    """Relabel the files of changed partitions that other engines have added since the plan was made.

    A file whose rows may belong to several partitions is unplaced until a later change rewrites it.

    Returns:
        Whether only other engines have added such files.
    """
    if not change.targets:
        return True
    files = [file for file in read_files(connection, table, change.targets) if file.id not in planned]
    placing = place_files(change.after, files, change.targets)
    relabelled = {**placing.relabelled, **{file.id: UNPLACED for file in placing.rewritten}}
    relabel_files(connection, table, relabelled)
    return not any(file.is_own and file.id in relabelled for file in files)
