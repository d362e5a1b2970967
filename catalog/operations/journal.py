"""The journal of operations.

The caller chooses an operation's id, so a retry continues the operation instead of starting a second one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Row, insert, update

from catalog.errors import CatalogError, FencedError, OperationConflictError, OperationReusedError
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.operations.applications import SparkApplications
from catalog.operations.exclusive import fail_abandoned, fail_operation, require_abandoned
from catalog.operations.failpoints import Point, reached
from catalog.operations.jobs import Jobs
from catalog.operations.reading import JournalReader
from catalog.operations.records import ABANDONED, UNFINISHED, JobState, Operation, OperationKind, OperationState
from catalog.operations.rows import (
    hold_table,
    is_abandoned,
    operation_row,
    require_same,
    select_operation,
    set_state,
    silence,
    to_operation,
)
from catalog.operations.tables import find_table_id
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.clock import CurrentMs, read_clock_ms
from catalog.storage.schema import JobRow, OperationRow

_DETAIL_LENGTH = 2_000

log = logging.getLogger(__name__)


def failure_detail(error: BaseException) -> str:
    """Return the text that the journal keeps of an error that has ended an operation."""
    return "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])[:_DETAIL_LENGTH]


class Operations(JournalReader, Jobs):
    """The operations of one catalog.

    Attributes:
        applications: The Spark applications that accept jobs.
    """

    def __init__(self, storage: Storage) -> None:
        """Use the catalog's database."""
        self._storage = storage
        self.applications = SparkApplications(storage)

    def begin(
        self,
        operation_id: str,
        kind: OperationKind,
        table: str,
        request: Mapping[str, Any] | None = None,
        *,
        is_exclusive: bool = False,
        is_fixed: bool = False,
        requested_by: str | None = None,
    ) -> Operation:
        """Journal an operation before its first step, or return it if it was started before.

        Args:
            is_fixed: An operation that was started before must have the same request.
            is_exclusive: No other exclusive operation may run on the table. Abandoned ones (`abandoned`) become FAILED.

        Raises:
            OperationConflictError: Another operation is running on the table.
            OperationReusedError: It was started on another table, with another kind, or with another fixed request.
        """
        table = str(TableName.parse(table))
        with self._storage.write() as connection:
            table_id = hold_table(connection, table)
            if is_exclusive:
                fail_abandoned(connection, table_id, table, operation_id)
            row = connection.execute(select_operation(operation_id)).one_or_none()
            if row is not None:
                require_same(row, kind, (table, table_id), dict(request or {}) if is_fixed else row.request)
            if row is None:
                connection.execute(
                    insert(OperationRow).values(
                        id=operation_id,
                        kind=kind,
                        table_id=table_id,
                        table_name=table,
                        is_exclusive=is_exclusive,
                        request=dict(request or {}),
                        state=OperationState.PLANNED,
                        progress_done=0,
                        report={},
                        requested_by=requested_by,
                        created_at_ms=CurrentMs(),
                        heartbeat_at_ms=CurrentMs(),
                    )
                )
            elif row.state in (*UNFINISHED, OperationState.FAILED):
                self._begin_again(connection, row, table_id, dict(request or {}))
            operation = to_operation(connection.execute(select_operation(operation_id)).one())
        reached(Point.JOURNALED)
        return operation

    def refuse_if_held(self, connection: Connection, table: str, operation_id: str | None = None) -> None:
        """Check that an exclusive operation could start on a table now.

        Args:
            operation_id: The operation that may hold the table; None for none.

        Raises:
            OperationConflictError: Another operation is running on the table.
        """
        require_abandoned(connection, find_table_id(connection, table), str(TableName.parse(table)), operation_id)

    def record(
        self,
        connection: Connection,
        operation_id: str,
        kind: OperationKind,
        table: Table,
        request: Mapping[str, Any],
        *,
        requested_by: str | None = None,
        state: OperationState = OperationState.COMMITTED,
    ) -> Operation:
        """Journal a change in the caller's transaction; by default one that it makes, and that has work left then."""
        connection.execute(
            insert(OperationRow).values(
                id=operation_id,
                kind=kind,
                table_id=table.id,
                table_name=table.full_name,
                is_exclusive=False,
                request=dict(request),
                requested_by=requested_by,
                state=state,
                progress_done=0,
                report={},
                created_at_ms=CurrentMs(),
                heartbeat_at_ms=CurrentMs(),
            )
        )
        return to_operation(operation_row(connection, operation_id))

    def fail(self, operation_id: str, code: str, detail: str) -> None:
        """Fail an unfinished operation, so that none of its jobs can commit. A retry resumes it."""
        with self._storage.write() as connection:
            row = operation_row(connection, operation_id)
            if row.state in UNFINISHED:
                fail_operation(connection, row.number, code, detail)

    @contextmanager
    def failing(self, operation_id: str, detail: Callable[[BaseException], str] = failure_detail) -> Iterator[None]:
        """Fail an operation if an error ends the block, so that it no longer holds its table; a retry continues it.

        Nothing is failed if the operation was not begun, has ended, or belongs to another request, or if an attempt of
        the block was fenced: the operation is that of the attempt's successor then.

        Args:
            detail: Returns the text of an error.
        """
        try:
            yield
        except (FencedError, OperationReusedError):
            raise
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            try:
                if self.find(operation_id) is not None:
                    self.fail(operation_id, type(error).__name__, detail(error))
            except CatalogError as unavailable:
                log.warning("operation %s holds its table until it counts as abandoned: %s", operation_id, unavailable)
            raise

    def advance(self, connection: Connection, operation_id: str, state: OperationState) -> None:
        """Move an operation to a state in the caller's transaction; do nothing when it is in that state.

        Raises:
            ConflictError: Its current state does not allow the transition.
        """
        row = operation_row(connection, operation_id)
        if row.state != state:
            set_state(connection, row.number, OperationState(row.state), state)

    def clean(self, numbers: Sequence[int]) -> int:
        """Mark COMMITTED operations as having nothing left to remove; return their number."""
        count = 0
        for batch in batched(numbers):
            with self._storage.write() as connection:
                count += connection.execute(
                    update(OperationRow)
                    .where(
                        among(connection, OperationRow.number, batch), OperationRow.state == OperationState.COMMITTED
                    )
                    .values(state=OperationState.CLEANED)
                ).rowcount
        return count

    def fail_if_abandoned(self, operation: Operation) -> bool:
        """Fail an operation if it is still abandoned; return whether it was."""
        with self._storage.write() as connection:
            query = select_operation(operation.id).where(is_abandoned()).with_for_update()
            row = connection.execute(query).one_or_none()
            if row is not None:
                fail_operation(
                    connection, row.number, ABANDONED, silence(read_clock_ms(connection) - row.heartbeat_at_ms)
                )
        return row is not None

    @staticmethod
    def _begin_again(connection: Connection, row: Row[Any], table_id: int | None, request: Mapping[str, Any]) -> None:
        """Continue an operation; results of its jobs for another request or a dropped table are invalidated.

        Raises:
            OperationConflictError: It was started on a table that has another name now.
        """
        if row.current_name is not None and row.table_id != table_id:
            raise OperationConflictError(
                f"operation {row.id} was started on table {row.table_name}, which is now named {row.current_name}; "
                "start a new operation with an id of its own"
            )
        if row.state == OperationState.FAILED:
            set_state(connection, row.number, OperationState.FAILED, OperationState.PLANNED)
        connection.execute(
            update(OperationRow)
            .where(OperationRow.number == row.number)
            .values(request=request, table_id=table_id, heartbeat_at_ms=CurrentMs())
        )
        if row.request != request or row.table_id not in (None, table_id):
            connection.execute(
                update(JobRow)
                .where(JobRow.operation_number == row.number)
                .values(state=JobState.FAILED, error_class="REPLACED", error_message="the operation's request changed")
            )
