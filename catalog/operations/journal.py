"""The journal of operations and of the jobs that run their steps.

The caller chooses an operation's id, so a retry continues the operation instead of starting a second one. Each attempt
at a step gets a number; only the latest attempt may report or commit (`guard`), even if an earlier one is still
running.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, insert, or_, select, update

from catalog.errors import FencedError, OperationConflictError
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.operations.applications import SparkApplications
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import (
    ABANDONED,
    ALIVE,
    DRY_RUN,
    FINISHED,
    UNFINISHED,
    JobRun,
    JobState,
    Operation,
    OperationKind,
    OperationState,
)
from catalog.operations.rows import (
    fenced_error,
    hold_table,
    hold_table_of,
    is_abandoned,
    operation_row,
    require_same,
    select_job,
    select_operation,
    select_operations,
    set_state,
    silence,
    silent_ms,
    to_job,
    to_operation,
    update_job,
)
from catalog.operations.tables import belongs_to, find_table_id
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.clock import CurrentMs, read_clock_ms
from catalog.storage.schema import JobRow, OperationRow


class Operations:
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
                self._fail_abandoned(connection, table_id, table, operation_id)
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
        self._others(connection, find_table_id(connection, table), str(TableName.parse(table)), operation_id)

    def record(
        self,
        connection: Connection,
        operation_id: str,
        kind: OperationKind,
        table: Table,
        request: Mapping[str, Any],
        *,
        requested_by: str | None = None,
    ) -> Operation:
        """Journal a change that the caller's transaction makes and that has work left after the commit."""
        connection.execute(
            insert(OperationRow).values(
                id=operation_id,
                kind=kind,
                table_id=table.id,
                table_name=table.full_name,
                is_exclusive=False,
                request=dict(request),
                requested_by=requested_by,
                state=OperationState.COMMITTED,
                progress_done=0,
                report={},
                created_at_ms=CurrentMs(),
                heartbeat_at_ms=CurrentMs(),
            )
        )
        return to_operation(operation_row(connection, operation_id))

    def committed(self, kind: OperationKind) -> list[Operation]:
        """Return the operations of a kind that have work left after their commit, oldest first."""
        query = select_operations().where(OperationRow.kind == kind, OperationRow.state == OperationState.COMMITTED)
        with self._storage.read() as connection:
            return [to_operation(row) for row in connection.execute(query.order_by(OperationRow.number))]

    def get(self, operation_id: str) -> Operation:
        """Return an operation.

        Raises:
            OperationNotFoundError: There is no operation of this id.
        """
        with self._storage.read() as connection:
            return to_operation(operation_row(connection, operation_id))

    def find(self, operation_id: str) -> Operation | None:
        """Return an operation; None when there is no operation of this id."""
        with self._storage.read() as connection:
            row = connection.execute(select_operation(operation_id)).one_or_none()
        return None if row is None else to_operation(row)

    def find_by_number(self, number: int) -> Operation | None:
        """Return the operation of a number; None when there is none."""
        with self._storage.read() as connection:
            row = connection.execute(select_operations().where(OperationRow.number == number)).one_or_none()
        return None if row is None else to_operation(row)

    def get_states(self, operation_ids: Iterable[str]) -> dict[str, OperationState]:
        """Return the states of many operations by id, with one statement; those that do not exist are missing."""
        row, states = OperationRow, dict[str, OperationState]()
        with self._storage.read() as connection:
            for batch in batched(operation_ids):
                query = select(row.id, row.state).where(among(connection, row.id, batch))
                states |= {number: OperationState(state) for number, state in connection.execute(query)}
        return states

    def list(
        self,
        table: str | None = None,
        *,
        states: Sequence[OperationState] = (),
        kinds: Sequence[OperationKind] = (),
        since_ms: int | None = None,
        before: int | None = None,
        within: str | None = None,
        with_dry_runs: bool = True,
        limit: int = 50,
    ) -> list[Operation]:
        """Return the latest operations, newest first; of all tables, or of one (`database.name`).

        Those of a table include operations that started under this name and those of the table that has it now.

        Args:
            states: Only operations in one of these states; empty for all.
            kinds: Only operations of one of these kinds; empty for all.
            since_ms: Only operations that began at this time or later, in milliseconds since 1970 UTC.
            before: Only operations with a number below this one, for the next page.
            within: Only the operation of this id, and those whose id continues it after a slash: `dag/run` for the
                operations of one run in Airflow, `dag` for those of all runs.
            with_dry_runs: Whether to include the plans of dry runs (`catalog.operations.dry_runs`).
        """
        query = select_operations().order_by(OperationRow.number.desc()).limit(limit)
        if kinds:
            query = query.where(OperationRow.kind.in_(kinds))
        if since_ms is not None:
            query = query.where(OperationRow.created_at_ms >= since_ms)
        if before is not None:
            query = query.where(OperationRow.number < before)
        if not with_dry_runs:
            query = query.where(func.coalesce(OperationRow.failure_code, "") != DRY_RUN)
        if within is not None:
            # Not LIKE, which ignores the case on SQLite.
            start = func.substr(OperationRow.id, 1, len(within) + 1)
            query = query.where(or_(OperationRow.id == within, start == f"{within}/"))
        with self._storage.read() as connection:
            return [to_operation(row) for row in connection.execute(query.where(*_chosen(connection, table, states)))]

    def count(self, table: str | None = None, *, states: Sequence[OperationState] = ()) -> int:
        """Return the number of operations that `list` returns without a limit."""
        with self._storage.read() as connection:
            query = select(func.count()).select_from(OperationRow).where(*_chosen(connection, table, states))
            return connection.scalar(query) or 0

    def fail(self, operation_id: str, code: str, detail: str) -> None:
        """Fail an unfinished operation, so that none of its jobs can commit. A retry resumes it."""
        with self._storage.write() as connection:
            row = operation_row(connection, operation_id)
            if row.state in UNFINISHED:
                self._fail(connection, row.number, code, detail)

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

    def is_running(self, operation_id: str) -> bool:
        """Return whether an operation is unfinished, and not abandoned."""
        query = select(OperationRow.number).where(
            OperationRow.id == operation_id, OperationRow.state.in_(UNFINISHED), ~is_abandoned()
        )
        with self._storage.read() as connection:
            return connection.scalar(query) is not None

    def oldest_unfinished_ms(self, table: Table) -> int | None:
        """Return the time at which the oldest unfinished operation on a table began; None when there is none."""
        row = OperationRow
        query = select(func.min(row.created_at_ms)).where(
            belongs_to(table.id, table.full_name), row.state.in_(UNFINISHED)
        )
        with self._storage.read() as connection:
            return connection.scalar(query)

    def abandoned(self) -> Sequence[Operation]:
        """Return the abandoned unfinished operations, oldest first.

        They had no heartbeat for `LEASE_MS`; or for `SILENT_LEASE_MS`, where an attempt never sent one.
        """
        query = select_operations().where(is_abandoned()).order_by(OperationRow.number)
        with self._storage.read() as connection:
            return [to_operation(row) for row in connection.execute(query)]

    def fail_if_abandoned(self, operation: Operation) -> bool:
        """Fail an operation if it is still abandoned; return whether it was."""
        with self._storage.write() as connection:
            query = select_operation(operation.id).where(is_abandoned()).with_for_update()
            row = connection.execute(query).one_or_none()
            if row is not None:
                self._fail(connection, row.number, ABANDONED, silence(read_clock_ms(connection) - row.heartbeat_at_ms))
        return row is not None

    # --- jobs ---------------------------------------------------------------------------------------------------

    def start_job(
        self, operation_id: str, step: str, *, request: Mapping[str, Any] | None = None, log_path: str | None = None
    ) -> int:
        """Start a new attempt at a step and return its number; from now on no earlier attempt can commit.

        Args:
            request: The fields of the job's request but `attempt`; None for an attempt in this process.
            log_path: The file to which the job logs, on this host.

        Raises:
            OperationNotFoundError: There is no operation of this id.
            OperationConflictError: The operation was abandoned, and another one is running on the table.
            TableNotFoundError: The table was dropped since the operation started.
        """
        with self._storage.write() as connection:
            row = hold_table_of(connection, operation_row(connection, operation_id))
            if row.is_exclusive and row.state not in FINISHED:
                self._fail_abandoned(connection, row.table_id, row.current_name or row.table_name, operation_id)
            row = operation_row(connection, operation_id, lock=True)
            if row.state in (OperationState.PLANNED, OperationState.FAILED):
                set_state(connection, row.number, OperationState(row.state), OperationState.RUNNING)
            job = connection.execute(select_job(row.number, step).with_for_update()).one_or_none()
            attempt = 1 if job is None else job.attempt + 1
            values: dict[str, Any] = {
                "attempt": attempt,
                "state": JobState.SUBMITTED,
                "started_at_ms": CurrentMs(),
                "heartbeat_at_ms": CurrentMs(),
                "request": None if request is None else json.dumps({**request, "attempt": attempt}),
                "result": {},
                "error_class": None,
                "error_message": None,
                "log_path": log_path,
                "host": socket.gethostname(),
                "spark_application": None,
                "spark_ui": None,
            }
            if job is None:
                connection.execute(insert(JobRow).values(operation_number=row.number, step=step, **values))
            else:
                connection.execute(update_job(row.number, step).values(**values))
            connection.execute(
                update(OperationRow)
                .where(OperationRow.number == row.number)
                .values(heartbeat_at_ms=CurrentMs(), progress_done=0, progress_total=None, progress_note=None)
            )
        return attempt

    @contextmanager
    def attempt(self, operation_id: str, step: str) -> Iterator[int]:
        """Run a step in this process: start an attempt, and record its failure if an error is raised.

        Raises:
            OperationNotFoundError: There is no operation of this id.
        """
        number = self.start_job(operation_id, step)
        reached(Point.STARTED)
        try:
            yield number
        except Exception as error:
            self.fail_job(operation_id, step, number, type(error).__name__, str(error))
            raise

    def job_request(self, operation_id: str, step: str, attempt: int) -> str:
        """Return the request of an attempt as JSON.

        Raises:
            OperationNotFoundError: There is no operation of this id.
            FencedError: The attempt is not the latest one, or was not started with a request.
        """
        with self._storage.read() as connection:
            number = operation_row(connection, operation_id).number
            row = connection.execute(select_job(number, step)).one_or_none()
        if row is None or row.attempt != attempt:
            reason = "it was never started" if row is None else f"the latest attempt is {row.attempt}"
        elif row.request is None:
            reason = "it was started without one"
        else:
            return str(row.request)
        raise FencedError(f"attempt {attempt} at step {step} of operation {operation_id} has no request: {reason}")

    def get_job(self, operation_id: str, step: str) -> JobRun | None:
        """Return the latest attempt at a step; None when there was none.

        Raises:
            OperationNotFoundError: There is no operation of this id.
        """
        with self._storage.read() as connection:
            number = operation_row(connection, operation_id).number
            row = connection.execute(select_job(number, step).add_columns(silent_ms())).one_or_none()
        return None if row is None else to_job(operation_id, row)

    def jobs_of(self, operation_id: str) -> Sequence[JobRun]:
        """Return the latest attempts at all steps of an operation, in the order in which they started.

        Raises:
            OperationNotFoundError: There is no operation of this id.
        """
        started = func.coalesce(JobRow.started_at_ms, JobRow.heartbeat_at_ms)
        with self._storage.read() as connection:
            number = operation_row(connection, operation_id).number
            query = select(JobRow.__table__, silent_ms()).where(JobRow.operation_number == number)
            return [to_job(operation_id, row) for row in connection.execute(query.order_by(started, JobRow.step))]

    def get_jobs(self, steps: Iterable[tuple[str, str]]) -> dict[tuple[str, str], JobRun]:
        """Return the latest attempts at many steps, with one statement.

        Args:
            steps: Pairs of an operation's id and a step.

        Returns:
            (operation id, step) → its latest attempt; steps without an attempt are missing.
        """
        wanted, jobs = set(steps), {}
        query = select(OperationRow.id.label("operation_id"), JobRow.__table__, silent_ms())
        query = query.join(JobRow, JobRow.operation_number == OperationRow.number)
        for batch in batched({operation_id for operation_id, _ in wanted}):
            with self._storage.read() as connection:
                for row in connection.execute(query.where(among(connection, OperationRow.id, batch))):
                    if (key := (row.operation_id, row.step)) in wanted:
                        jobs[key] = to_job(row.operation_id, row)
        return jobs

    def heartbeat(
        self,
        operation_id: str,
        step: str,
        attempt: int,
        *,
        done: int | None = None,
        total: int | None = None,
        note: str | None = None,
        spark_application: str | None = None,
        spark_ui: str | None = None,
    ) -> None:
        """Record an attempt's heartbeat and progress; `note` names the unit, for instance `partitions`.

        None for values that have not changed.

        Raises:
            FencedError: The attempt is fenced.
        """
        progress = {"progress_done": done, "progress_total": total, "progress_note": note}
        changed = {name: value for name, value in progress.items() if value is not None}
        application = {"spark_application": spark_application, "spark_ui": spark_ui}
        found = {name: value for name, value in application.items() if value is not None}
        with self._storage.write() as connection:
            # Lock the operation's row before the job's, as everywhere: two different orders could deadlock.
            number = operation_row(connection, operation_id, lock=True).number
            connection.execute(
                update(OperationRow).where(OperationRow.number == number).values(heartbeat_at_ms=CurrentMs(), **changed)
            )
            updated = connection.execute(
                update_job(number, step)
                .where(JobRow.attempt == attempt, JobRow.state.in_(ALIVE))
                .values(state=JobState.RUNNING, heartbeat_at_ms=CurrentMs(), host=socket.gethostname(), **found)
            )
            if updated.rowcount == 0:
                raise fenced_error(operation_id, step, attempt)

    def guard(
        self, connection: Connection, operation_id: str, step: str, attempt: int, *, hold: bool = True
    ) -> Operation:
        """Check that this is the latest attempt of a running operation, and lock out others until the commit.

        Args:
            hold: False does not lock, for work that is harmless if another attempt takes over before the commit.
                Otherwise processes with one transaction after the other would lock out all others indefinitely.

        Raises:
            FencedError: The attempt is fenced, or the operation has failed.
        """
        operation = operation_row(connection, operation_id, lock=hold)
        query = select_job(operation.number, step)
        job = connection.execute(query.with_for_update() if hold else query).one_or_none()
        is_live = operation.state not in (OperationState.PLANNED, OperationState.FAILED)
        if job is None or job.attempt != attempt or job.state not in ALIVE or not is_live:
            raise fenced_error(operation_id, step, attempt)
        return to_operation(operation)

    def finish_job(
        self,
        operation_id: str,
        step: str,
        attempt: int,
        result: Mapping[str, Any],
        *,
        connection: Connection | None = None,
    ) -> None:
        """Record an attempt's result, in the caller's transaction if one is given.

        Raises:
            FencedError: The attempt is fenced.
        """
        with self._joined(connection) as joined:
            operation = self.guard(joined, operation_id, step, attempt)
            ended = {"state": JobState.SUCCEEDED, "result": dict(result), "heartbeat_at_ms": CurrentMs()}
            joined.execute(update_job(operation.number, step).values(**ended))
            joined.execute(
                update(OperationRow)
                .where(OperationRow.number == operation.number)
                .values(report={**operation.report, step: dict(result)}, heartbeat_at_ms=CurrentMs())
            )

    def fail_job(self, operation_id: str, step: str, attempt: int, error_class: str, error_message: str) -> None:
        """Record that an attempt failed; do nothing if it has ended or a later one has started."""
        with self._storage.write() as connection:
            number = operation_row(connection, operation_id).number
            connection.execute(
                update_job(number, step)
                .where(JobRow.attempt == attempt, JobRow.state.in_(ALIVE))
                .values(state=JobState.FAILED, error_class=error_class, error_message=error_message)
            )

    # --- inside -------------------------------------------------------------------------------------------------

    @contextmanager
    def _joined(self, connection: Connection | None) -> Iterator[Connection]:
        if connection is not None:
            yield connection
        else:
            with self._storage.write() as own:
                yield own

    def _fail_abandoned(self, connection: Connection, table_id: int | None, table: str, operation_id: str) -> None:
        """Fail other exclusive operations that are abandoned.

        Raises:
            OperationConflictError: Another one is still running.
        """
        for other in self._others(connection, table_id, table, operation_id):
            self._fail(connection, other.number, ABANDONED, silence(read_clock_ms(connection) - other.heartbeat_at_ms))

    @staticmethod
    def _others(
        connection: Connection, table_id: int | None, table: str, operation_id: str | None
    ) -> Sequence[Row[Any]]:
        """Return other unfinished exclusive operations, all of them abandoned.

        Raises:
            OperationConflictError: One is still running.
        """
        others = connection.execute(
            select_operations()
            .add_columns(is_abandoned().label("is_abandoned"))
            .where(
                belongs_to(table_id, table),
                OperationRow.is_exclusive,
                OperationRow.state.in_(UNFINISHED),
                OperationRow.id != (operation_id or ""),
            )
        ).all()
        for other in others:
            if not other.is_abandoned:
                age_ms = read_clock_ms(connection) - other.heartbeat_at_ms
                raise OperationConflictError(
                    f"table {table}: operation {other.id} ({other.kind}, {other.state}) is running on it, last "
                    f"heartbeat {age_ms // 1000} s ago; wait for it to end, or cancel it: calve give-up '{other.id}'",
                    other.id,
                )
        return others

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

    @staticmethod
    def _fail(connection: Connection, number: int, code: str, detail: str) -> None:
        connection.execute(
            update(OperationRow)
            .where(OperationRow.number == number, OperationRow.state.in_(UNFINISHED))
            .values(state=OperationState.FAILED, failure_code=code, failure_detail=detail)
        )
        connection.execute(
            update(JobRow)
            .where(JobRow.operation_number == number, JobRow.state.in_(ALIVE))
            .values(state=JobState.FAILED, error_class=code, error_message=detail)
        )


def _chosen(
    connection: Connection, table: str | None, states: Sequence[OperationState]
) -> Iterator[ColumnElement[bool]]:
    if states:
        yield OperationRow.state.in_(states)
    if table is not None:
        is_its = OperationRow.table_id == find_table_id(connection, table)
        yield or_(OperationRow.table_name == str(TableName.parse(table)), is_its)
