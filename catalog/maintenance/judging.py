"""Decision whether the files of an operation's attempt may still be needed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection, select

from catalog.model import GRACE, Table
from catalog.operations.records import FINISHED, JobState, OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import JobRow, OperationRow, TableRow


class Verdict(StrEnum):
    """The decision about an attempt's folder."""

    KEEP = "keep"
    SWEEP = "sweep"
    """Delete only files that are not known."""
    DELETE = "delete"


@dataclass(frozen=True)
class Writer:
    """An operation that wrote files.

    Attributes:
        touched_at_ms: The time of its last heartbeat or change.
        attempts: The number and state of the latest attempt at each of its steps.
    """

    state: OperationState
    created_at_ms: int
    touched_at_ms: int
    attempts: tuple[tuple[int, JobState], ...] = ()


def judge(
    attempt: int, writer: Writer | None, *, has_known_files: bool, table_created_at_ms: int, cutoff_ms: int
) -> Verdict:
    """Return the decision about the folder of an attempt.

    Args:
        attempt: The number of the attempt; its step is unknown.
        writer: The operation; None if the journal does not have it.
        has_known_files: A table of the catalog refers to files in the folder.
        table_created_at_ms: The creation time of the table; older operations belong to another table.
        cutoff_ms: The start of the grace period.
    """
    if writer is None or writer.created_at_ms < table_created_at_ms or writer.touched_at_ms > cutoff_ms:
        return Verdict.KEEP
    if writer.state in FINISHED:
        if not has_known_files:
            return Verdict.DELETE
        return Verdict.SWEEP if writer.state is OperationState.COMMITTED else Verdict.KEEP
    return Verdict.KEEP if has_known_files or _may_commit(attempt, writer) else Verdict.DELETE


def _may_commit(attempt: int, writer: Writer) -> bool:
    """Return whether an attempt may still commit its files; a retry of a FAILED operation writes new files."""
    if attempt > max((number for number, _ in writer.attempts), default=0):
        return True
    if writer.state is OperationState.FAILED:
        return False
    return any(number == attempt and state is not JobState.FAILED for number, state in writer.attempts)


def usual_cutoff_ms(storage: Storage, cutoff_ms: int) -> int:
    """Return the start of the usual grace period, or of the asked one if that is longer.

    It is for files that do not name the operation that writes them, because one that runs may have written them.
    """
    return min(cutoff_ms, storage.now_ms() - int(GRACE.total_seconds() * 1_000))


def created_at_ms(connection: Connection, table: Table) -> int:
    """Return the creation time of a table."""
    return connection.scalar(select(TableRow.created_at_ms).where(TableRow.id == table.id)) or 0


def committed_operations(
    connection: Connection, table: Table, kinds: Collection[OperationKind], after_ms: int, cutoff_ms: int
) -> set[int]:
    """Return the committed operations on a table, which become CLEANED if none of their files is left to delete.

    Args:
        after_ms: The creation time of the table; older operations belong to another table.
        cutoff_ms: The start of the grace period.
    """
    query = select(OperationRow.number).where(
        OperationRow.table_id == table.id,
        OperationRow.kind.in_(kinds),
        OperationRow.state == OperationState.COMMITTED,
        OperationRow.created_at_ms >= after_ms,
        OperationRow.heartbeat_at_ms <= cutoff_ms,
    )
    return set(connection.scalars(query))


def read_writers(connection: Connection, numbers: Collection[int], *, hold: bool = False) -> dict[int, Writer]:
    """Return the operations with these numbers that the journal has.

    Args:
        hold: Lock them, so that none of their steps begins or commits before the end of the transaction.
    """
    writers = {}
    for batch in batched(sorted(numbers)):
        query = select(
            OperationRow.number, OperationRow.state, OperationRow.created_at_ms, OperationRow.heartbeat_at_ms
        ).where(among(connection, OperationRow.number, batch))
        rows = connection.execute(query.with_for_update() if hold else query).all()
        attempts: dict[int, list[tuple[int, JobState]]] = {}
        jobs = select(JobRow.operation_number, JobRow.attempt, JobRow.state)
        for number, attempt, state in connection.execute(jobs.where(among(connection, JobRow.operation_number, batch))):
            attempts.setdefault(number, []).append((attempt, JobState(state)))
        for number, state, created, touched in rows:
            writers[number] = Writer(OperationState(state), created, touched, tuple(attempts.get(number, ())))
    return writers
