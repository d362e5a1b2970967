"""A task of an index build in an executor.

A separate module with few imports: the Python process of an executor starts without modules, and a second of imports
would be a large part of the build.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from catalog.errors import CatalogError
from catalog.indexes import building
from catalog.indexes.building import BackfillReport
from catalog.operations.journal import Operations
from catalog.storage import Storage
from spark_jobs.sessions.executor_catalog import executor_url

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.indexes.definitions import IdRange
    from catalog.model import PartitionIndex, Table
    from catalog.operations.job_requests import BuildPartitionIndexJob


def backfill_ranges(
    storage: Storage, job: BuildPartitionIndexJob, table: Table, index: PartitionIndex, ranges: Iterable[IdRange]
) -> BackfillReport:
    """Backfill ranges while no other attempt has replaced the job's.

    Raises:
        FencedError: The attempt is fenced.
        IndexBuildEndedError: The index was deleted, cancelled, or has FAILED.
    """
    operations = Operations(storage)

    def guard(connection: Connection) -> None:
        # No lock is needed: a fenced attempt writes the same items as its successor.
        operations.guard(connection, job.operation_id, job.step, job.attempt, hold=False)

    return building.backfill(storage, table, index, ranges, guard)


def run_task(
    address: str, job: BuildPartitionIndexJob, table: Table, index: PartitionIndex, ranges: Iterable[IdRange]
) -> Iterator[BackfillReport | CatalogError]:
    """Backfill the ranges of one task.

    Args:
        address: The database, without a password (`spark_jobs.sessions.executor_catalog`).

    Yields:
        The report; or an error that is not retryable, because Spark would wrap a raised one in a JVM stack trace.
    """
    storage = Storage(executor_url(address))
    try:
        yield backfill_ranges(storage, job, table, index, ranges)
    except CatalogError as error:
        if error.retryable:
            raise
        yield error
    finally:
        storage.close()
