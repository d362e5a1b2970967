"""Deletion of staging folders left by loads of tables without a partition scheme.

The next load of a table also does this (`Loading.discard_staging`), but there may be none. The table may be in use
here: a short transaction withdraws the attempt, so that no process can publish its folder; then the files are deleted.
"""

from __future__ import annotations

from sqlalchemy import Connection

from catalog.files.filesystem import Folder
from catalog.loading.loading import Loading
from catalog.loading.publishing import staged_attempts
from catalog.maintenance.judging import Verdict, committed_operations, created_at_ms, judge, read_writers
from catalog.maintenance.reports import TableVacuum, Tally
from catalog.model import Table
from catalog.operations.attempts import AttemptName, attempts_among, withdraw_attempt
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind
from catalog.operations.staging import STAGING
from catalog.storage import Storage

_KINDS = (OperationKind.ADD_PARTITIONS, OperationKind.APPEND_ROWS, OperationKind.CHANGE_ROWS)


def staged_operations(storage: Storage, location: Folder) -> set[int]:
    """Return the numbers of operations that have staging folders below a table's location."""
    return {number for _, number, _ in attempts_among(storage, location.folders(STAGING))}


def discard_old_staging(
    storage: Storage,
    operations: Operations,
    loading: Loading,
    table: Table,
    cutoff_ms: int,
    tally: Tally,
    *,
    is_dry_run: bool,
) -> int:
    """Delete staging folders of failed and committed loads; return the number of CLEANED operations.

    Args:
        cutoff_ms: Keep folders of operations that were active after this time.

    Raises:
        OSError, ValueError: The file system refused.
    """
    location = Folder(table.location)
    staged = staged_attempts(storage, table)
    kept = set()
    for attempt in staged:
        if is_dry_run:
            with storage.read() as connection:
                is_over = _is_over(connection, table, attempt, cutoff_ms)
        else:
            with storage.write() as connection:
                is_over = _is_over(connection, table, attempt, cutoff_ms, hold=True)
                if is_over:
                    withdraw_attempt(connection, attempt, f"{STAGING}/{attempt.name}")
            reached(Point.WITHDRAWN)
            if is_over:
                loading.withdraw(table, attempt)
        if is_over:
            tally.add(TableVacuum(table.full_name, staging_folders=1))
        else:
            kept.add(attempt.number)
    if staged and not is_dry_run:
        location.inside(STAGING).delete_if_empty()
    with storage.read() as connection:
        since = created_at_ms(connection, table)
        done = committed_operations(connection, table, _KINDS, since, cutoff_ms) - kept
    return len(done) if is_dry_run else operations.clean(sorted(done))


def _is_over(connection: Connection, table: Table, attempt: AttemptName, cutoff_ms: int, *, hold: bool = False) -> bool:
    writer = read_writers(connection, {attempt.number}, hold=hold).get(attempt.number)
    since = created_at_ms(connection, table)
    verdict = judge(attempt.attempt, writer, has_known_files=False, table_created_at_ms=since, cutoff_ms=cutoff_ms)
    return verdict is Verdict.DELETE
