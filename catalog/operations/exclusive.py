"""Exclusive operations: one at a time runs on a table, and abandoned ones fail when the next one starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, update

from catalog.errors import OperationConflictError
from catalog.operations.records import ABANDONED, ALIVE, UNFINISHED, JobState, OperationState
from catalog.operations.rows import is_abandoned, select_operations, silence
from catalog.operations.tables import belongs_to
from catalog.storage.clock import CurrentMs, read_clock_ms
from catalog.storage.schema import JobRow, OperationRow
from catalog.storage.texts import storable


def fail_abandoned(connection: Connection, table_id: int | None, table: str, operation_id: str) -> None:
    """Fail other exclusive operations that are abandoned.

    Raises:
        OperationConflictError: Another one is still running.
    """
    for other in require_abandoned(connection, table_id, table, operation_id):
        fail_operation(connection, other.number, ABANDONED, silence(read_clock_ms(connection) - other.heartbeat_at_ms))


def require_abandoned(
    connection: Connection, table_id: int | None, table: str, operation_id: str | None
) -> Sequence[Row[Any]]:
    """Return the other unfinished exclusive operations of a table, all of which must be abandoned.

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


def fail_operation(connection: Connection, number: int, code: str, detail: str) -> None:
    """Set an unfinished operation and its jobs to FAILED."""
    detail = storable(detail)
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


def end_running(connection: Connection, number: int) -> bool:
    """Set a running operation without jobs to CLEANED; return False if it has ended, for instance by others."""
    ended = connection.execute(
        update(OperationRow)
        .where(OperationRow.number == number, OperationRow.state == OperationState.RUNNING)
        .values(state=OperationState.CLEANED, heartbeat_at_ms=CurrentMs())
    )
    return ended.rowcount > 0
