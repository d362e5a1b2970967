"""Committed operations whose outcome nobody has reported to the outside: those that no task of Airflow has made.

Tasks of Airflow report what they commit, and mark it here. What statements, the command line, the API and reverts
commit is reported by the DAG `announce_changes`.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Select, func, select, update

from catalog.operations.changes import ANNOUNCES
from catalog.operations.records import FINISHED, Operation, OperationKind
from catalog.operations.rows import select_operations, to_operation
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import OperationRow

KINDS = (
    OperationKind.ADD_PARTITIONS,
    OperationKind.LOAD_ROWS,
    OperationKind.APPEND_ROWS,
    OperationKind.REBALANCE,
    OperationKind.MIGRATE,
    OperationKind.REVERT,
)
"""The kinds of operations whose outcomes are reported."""

_PATIENCE_MS = 60_000
"""The time that a task has to report what it has committed."""


class Outcomes:
    """The outcomes of operations that are still to be reported."""

    def __init__(self, storage: Storage) -> None:
        """Use the catalog's database."""
        self._storage = storage

    def pending(self) -> int | None:
        """Return the number of the newest operation to be reported; None if there is none."""
        with self._storage.read() as connection:
            return connection.scalar(select(func.max(OperationRow.number)).where(*_is_unreported()))

    def list(self, *, limit: int = 100) -> list[Operation]:
        """Return the operations to be reported, oldest first."""
        query: Select[tuple[int]] = select_operations().where(*_is_unreported()).order_by(OperationRow.number)
        with self._storage.read() as connection:
            return [to_operation(row) for row in connection.execute(query.limit(limit))]

    def is_pending(self, operation_id: str) -> bool:
        """Return whether an operation is to be reported."""
        with self._storage.read() as connection:
            found = select(OperationRow.number).where(OperationRow.id == operation_id, *_is_unreported())
            return connection.scalar(found) is not None

    def mark(self, operation_ids: Iterable[str]) -> int:
        """Record that operations are reported; return the number of those that were not before."""
        row, count = OperationRow, 0
        for batch in batched(operation_ids):
            with self._storage.write() as connection:
                chosen = (among(connection, row.id, batch), row.reported_at_ms.is_(None))
                count += connection.execute(update(row).where(*chosen).values(reported_at_ms=CurrentMs())).rowcount
        return count


def _is_unreported() -> tuple[ColumnElement[bool], ...]:
    row = OperationRow
    return (
        row.reported_at_ms.is_(None),
        row.kind.in_(KINDS),
        row.state.in_(FINISHED),
        row.heartbeat_at_ms < CurrentMs() - _PATIENCE_MS,
        # Such a load is reported by its DAG, after its quality check.
        func.coalesce(row.request["settings"][ANNOUNCES].as_boolean(), False).is_(False),
    )
