"""Attempts at the steps of operations, and the jobs that run them.

Each attempt at a step gets a number; only the latest attempt may report or commit (`guard`), even if an earlier one is
still running.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from catalog.errors import CatalogError, FencedError
from catalog.operations.exclusive import fail_abandoned
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import ALIVE, FINISHED, JobRun, JobState, Operation, OperationState
from catalog.operations.rows import (
    fenced_error,
    hold_table_of,
    operation_row,
    select_job,
    set_state,
    silent_ms,
    to_job,
    to_operation,
    update_job,
)
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import JobRow, OperationRow
from catalog.storage.texts import storable

log = logging.getLogger(__name__)


class Jobs:
    """The latest attempts at all steps of the operations of one catalog."""

    _storage: Storage

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
                fail_abandoned(connection, row.table_id, row.current_name or row.table_name, operation_id)
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
            FencedError: Another attempt has taken over, which may be why the error was raised.
        """
        number = self.start_job(operation_id, step)
        reached(Point.STARTED)
        try:
            yield number
        except (Exception, KeyboardInterrupt) as error:
            self._end_failed((operation_id, step, number), error)
            raise

    def _end_failed(self, attempt: tuple[str, str, int], error: BaseException) -> None:
        """Record the failure of an attempt that an error has ended.

        Raises:
            FencedError: Another attempt has taken over.
        """
        try:
            self.fail_job(*attempt, type(error).__name__, str(error))
            latest = self.get_job(*attempt[:2])
        except CatalogError as unavailable:
            log.warning(
                "the failure of step %s of operation %s is not recorded: %s", attempt[1], attempt[0], unavailable
            )
            return
        if latest is not None and latest.attempt != attempt[2] and not isinstance(error, FencedError):
            raise fenced_error(*attempt) from error

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
                .values(state=JobState.FAILED, error_class=error_class, error_message=storable(error_message))
            )

    @contextmanager
    def _joined(self, connection: Connection | None) -> Iterator[Connection]:
        if connection is not None:
            yield connection
        else:
            with self._storage.write() as own:
                yield own
