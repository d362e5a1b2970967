"""Discarding what loads of tables without a partition scheme have left in their staging folders.

The next load of a table begins with that, too (`Loading.discard_staging`), but perhaps none comes. Here the table is in
use: a folder is withdrawn in a transaction that keeps its operation from going on, and everybody else from publishing.
"""

from __future__ import annotations

from sqlalchemy import Connection

from catalog.attempts import attempts_among
from catalog.files import Folder
from catalog.loading import STAGING, Loading
from catalog.maintenance.judging import Verdict, committed_operations, created_at_ms, judge, read_writers
from catalog.maintenance.reports import TableVacuum, Tally
from catalog.model import Table
from catalog.operations import OperationKind, Operations
from catalog.storage import Storage

_KINDS = (OperationKind.ADD_PARTITIONS, OperationKind.APPEND_ROWS)


def staged_operations(storage: Storage, location: Folder) -> set[int]:
    """Return the operations that have something staged below a table's location."""
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
    """Discard what loads have staged that were given up, or have committed; return how many operations are CLEANED now.

    Args:
        cutoff_ms: What somebody has worked on since stays.

    Raises:
        OSError, ValueError: The file system refuses.
    """
    location = Folder(table.location)
    staged = list(attempts_among(storage, location.folders(STAGING)))
    kept = set()
    for name, number, attempt in staged:
        if is_dry_run:
            with storage.read() as connection:
                is_over = _is_over(connection, table, number, attempt, cutoff_ms)
        else:
            with storage.write() as connection:
                is_over = _is_over(connection, table, number, attempt, cutoff_ms, hold=True)
                if is_over and storage.lock_table(connection, table.id, exclusive=True):
                    loading.withdraw(table, name, number)
            if is_over:
                location.delete(f"{STAGING}/{name}")
        if is_over:
            tally.add(TableVacuum(table.full_name, staging_folders=1))
        else:
            kept.add(number)
    if staged and not is_dry_run and location.is_empty(STAGING):
        location.delete(STAGING)
    with storage.read() as connection:
        since = created_at_ms(connection, table)
        done = committed_operations(connection, table, _KINDS, since, cutoff_ms) - kept
    return len(done) if is_dry_run else operations.clean(sorted(done))


def _is_over(
    connection: Connection, table: Table, number: int, attempt: int, cutoff_ms: int, *, hold: bool = False
) -> bool:
    writer = read_writers(connection, {number}, hold=hold).get(number)
    since = created_at_ms(connection, table)
    verdict = judge(attempt, writer, has_known_files=False, table_created_at_ms=since, cutoff_ms=cutoff_ms)
    return verdict is Verdict.DELETE
