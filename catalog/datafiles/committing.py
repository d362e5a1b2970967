"""Making what a job wrote visible, and what it replaced invisible, in one transaction with the table's scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, update

from catalog.datafiles.files import Total, insert_files, relabel_files, retire_files
from catalog.datafiles.manifest import read_manifest
from catalog.errors import PlanConflictError, VerificationFailedError
from catalog.model import Table
from catalog.operations.attempts import require_own
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import OperationState
from catalog.schemes.model import Scheme
from catalog.storage import Storage
from catalog.storage.schema import TableRow
from catalog.tables.definitions import Definitions


@dataclass(frozen=True)
class FileChange:
    """What changes in a table's files.

    Attributes:
        before: The scheme that the table must have still.
        after: The scheme from then on.
        folder: The folder of the new files, below the table's location; None for none.
        row_count: How many rows they have to hold; None if that is not known.
        relabelled: File → its new partition.
        retired: Files that go.
        still_fits: Whether the table, which is held, is as whoever planned this expects it.
    """

    before: Scheme
    after: Scheme
    folder: str | None = None
    row_count: int | None = None
    relabelled: Mapping[int, int] = field(default_factory=dict)
    retired: Iterable[int] = ()
    still_fits: Callable[[Connection, Table], bool] | None = None


class Committer:
    """Commits operations on the tables with a partition scheme of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Take the database, the definitions in it, and the journal."""
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
    ) -> dict[str, Any]:
        """Commit an operation with its only change, its report, and its state, all or nothing.

        Args:
            report: What it says besides; or a function that looks at the table's files as they are now.

        Returns:
            The report, with `files_written`, `rows_written` and `bytes_written`.

        Raises:
            FencedError: The attempt was given up.
            PlanConflictError: The table is not as the change expects it.
            VerificationFailedError: The new files do not hold as many rows as they have to, or no attempt at the
                operation has written their folder.
        """
        with self._storage.write() as connection:
            operation = self._operations.guard(connection, operation_id, step, attempt)
            if change.folder is not None:
                require_own(self._storage, operation, change.folder)
            table = self._definitions.lock_table(connection, operation.table, exclusive=True)
            written = self._change(connection, table, change, operation.number)
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

    @staticmethod
    def _change(connection: Connection, table: Table, change: FileChange, operation_number: int) -> Total:
        retired = list(change.retired)
        is_as_expected = (
            table.scheme == change.before
            and (change.still_fits is None or change.still_fits(connection, table))
            and relabel_files(connection, table, change.relabelled) == len(change.relabelled)
            and retire_files(connection, table, retired) == len(retired)
        )
        if not is_as_expected:
            raise PlanConflictError(
                f"table {table.full_name} has other partitions or files than when the change was planned; nothing was "
                "changed. Make a new plan"
            )
        written = Total()
        if change.folder is not None:
            written = insert_files(connection, table, read_manifest(table, change.folder), operation_number)
        if change.row_count is not None and written.row_count != change.row_count:
            raise VerificationFailedError(
                f"table {table.full_name}: {change.row_count:,} rows were read and {written.row_count:,} are in the "
                "files written; nothing was changed. Run the operation again"
            )
        connection.execute(update(TableRow).where(TableRow.id == table.id).values(scheme=change.after.as_json()))
        return written
