"""What one task of an index build does in an executor.

A module of its own that imports little: the Python of an executor begins with nothing, and a second of imports would be
a good part of the whole build.
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
    """Backfill ranges for as long as nobody has taken the job's place.

    Raises:
        FencedError: The attempt was given up.
        IndexBuildEndedError: The index was deleted, cancelled, or has FAILED.
    """
    operations = Operations(storage)

    def guard(connection: Connection) -> None:
        # What a given-up attempt still writes is what its successor would have written.
        operations.guard(connection, job.operation_id, job.step, job.attempt, hold=False)

    return building.backfill(storage, table, index, ranges, guard)


def run_task(
    address: str, job: BuildPartitionIndexJob, table: Table, index: PartitionIndex, ranges: Iterable[IdRange]
) -> Iterator[BackfillReport | CatalogError]:
    """Backfill the ranges of one task.

    Args:
        address: The database, without a password (`spark_jobs.sessions.executor_catalog`).

    Yields:
        The report; or an error that no repetition mends, as it is: Spark would wrap it into a stack of the JVM's.
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
