"""Queries, locks and updates of the rows of operations and jobs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Label, Row, exists, select, update

from catalog.errors import ConflictError, FencedError, OperationNotFoundError, OperationReusedError, TableNotFoundError
from catalog.operations.records import (
    FINISHED,
    LEASE_MS,
    SILENT_LEASE_MS,
    TRANSITIONS,
    UNFINISHED,
    JobRun,
    JobState,
    Operation,
    OperationKind,
    OperationState,
)
from catalog.operations.tables import current_name, find_table_id, hold_name, hold_operations
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import CatalogRow, JobRow, OperationRow


def silence(age_ms: int) -> str:
    """Return the time since the last heartbeat, in words."""
    return f"no heartbeat for {age_ms // 60_000} minutes"


def is_abandoned() -> ColumnElement[bool]:
    """Return the condition that an operation is abandoned (`Operations.abandoned`)."""
    age_ms = CurrentMs() - OperationRow.heartbeat_at_ms
    is_silent = exists().where(JobRow.operation_number == OperationRow.number, JobRow.state == JobState.SUBMITTED)
    return OperationRow.state.in_(UNFINISHED) & (age_ms >= LEASE_MS) & ((age_ms >= SILENT_LEASE_MS) | ~is_silent)


def hold_table(connection: Connection, table: str) -> int | None:
    """Lock the operations of a table, which may not exist yet, until the transaction ends; return its id."""
    hold_name(connection, table)
    table_id = find_table_id(connection, table)
    if table_id is not None:
        hold_operations(connection, table_id)
    return table_id


def hold_table_of(connection: Connection, row: Row[Any]) -> Row[Any]:
    """Lock the operations of an operation's table; return the operation as it is after that.

    Raises:
        TableNotFoundError: The table was dropped.
    """
    hold_name(connection, row.current_name or row.table_name)
    if row.table_id is not None:
        hold_operations(connection, row.table_id)
    row = operation_row(connection, row.id)
    if row.is_exclusive and row.table_id is not None and row.current_name is None and row.state not in FINISHED:
        raise TableNotFoundError(
            f"table {row.table_name}, on which operation {row.id} was started, was dropped; start a new operation"
        )
    return row


@cache
def select_operations() -> Any:
    """Return the query of operations, whose rows `to_operation` converts."""
    catalog = select(CatalogRow.identity).scalar_subquery().label("catalog")
    return select(OperationRow.__table__, current_name(), catalog)


def select_operation(operation_id: str) -> Any:
    """Return the query of one operation."""
    return select_operations().where(OperationRow.id == operation_id)


def operation_row(connection: Connection, operation_id: str, *, lock: bool = False) -> Row[Any]:
    """Return the row of an operation.

    Args:
        lock: Lock it until the transaction ends.

    Raises:
        OperationNotFoundError: There is no such operation.
    """
    query = select_operation(operation_id)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise OperationNotFoundError(f"there is no operation {operation_id}; `calve operations` lists the latest ones")
    return row


def require_same(row: Row[Any], kind: OperationKind, table: tuple[str, int | None], request: Mapping[str, Any]) -> None:
    """Check that an operation has this kind, table and request.

    Raises:
        OperationReusedError: It has not.
    """
    name, table_id = table
    is_its_table = row.table_name == name or (table_id is not None and row.table_id == table_id)
    if row.kind != kind or not is_its_table or row.request != request:
        raise OperationReusedError(row.id, f"{row.kind} of table {row.current_name or row.table_name}")


def set_state(connection: Connection, number: int, old: OperationState, new: OperationState) -> None:
    """Move an operation from one state to another.

    Raises:
        ConflictError: The transition is not allowed, or the operation is in another state by now.
    """
    if new not in TRANSITIONS[old]:
        raise ConflictError(f"operation number {number} is {old} and cannot become {new}")
    changed = connection.execute(
        update(OperationRow)
        .where(OperationRow.number == number, OperationRow.state == old)
        .values(state=new, failure_code=None, failure_detail=None, heartbeat_at_ms=CurrentMs())
    )
    if changed.rowcount == 0:
        raise ConflictError(f"operation number {number} is no longer {old}; read its state again")


def select_job(number: int, step: str) -> Any:
    """Return the query of a step's job."""
    return select(JobRow.__table__).where(JobRow.operation_number == number, JobRow.step == step)


def silent_ms() -> Label[int]:
    """Return a column for queries of jobs: the milliseconds since the last heartbeat, by the database's clock."""
    return (CurrentMs() - JobRow.heartbeat_at_ms).label("silent_ms")


def update_job(number: int, step: str) -> Any:
    """Return an update of a step's job."""
    return update(JobRow).where(JobRow.operation_number == number, JobRow.step == step)


def fenced_error(operation_id: str, step: str, attempt: int) -> FencedError:
    """Return the error for an attempt that may not commit."""
    return FencedError(
        f"attempt {attempt} at step {step} of operation {operation_id} is fenced; nothing was committed. "
        "Leave the work to the latest attempt, or start the operation again"
    )


def to_operation(row: Row[Any]) -> Operation:
    """Return the operation of a row."""
    return Operation(
        id=row.id,
        number=row.number,
        kind=OperationKind(row.kind),
        table=row.current_name or row.table_name,
        table_id=row.table_id,
        table_exists=row.current_name is not None,
        folder=f"{row.catalog}-{row.number}",
        state=OperationState(row.state),
        request=row.request,
        report=row.report,
        progress_done=row.progress_done,
        progress_total=row.progress_total,
        progress_note=row.progress_note,
        failure_code=row.failure_code,
        failure_detail=row.failure_detail,
        requested_by=row.requested_by,
        created_at_ms=row.created_at_ms,
        heartbeat_at_ms=row.heartbeat_at_ms,
    )


def to_job(operation_id: str, row: Row[Any]) -> JobRun:
    """Return the job of a row."""
    return JobRun(
        operation_id=operation_id,
        step=row.step,
        attempt=row.attempt,
        state=JobState(row.state),
        heartbeat_at_ms=row.heartbeat_at_ms,
        silent_ms=row.silent_ms,
        result=row.result,
        error_class=row.error_class,
        error_message=row.error_message,
        log_path=row.log_path,
        host=row.host,
        started_at_ms=row.started_at_ms,
        spark_application=row.spark_application,
        spark_ui=row.spark_ui,
    )
