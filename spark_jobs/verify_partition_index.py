"""Online verification, and optional repair, of an ACTIVE partition index."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

from pyspark.sql import SparkSession
from sqlalchemy import Connection

from catalog import Catalog
from catalog.indexes import verifying
from catalog.indexes.verifying import CheckedRange, Findings
from catalog.operations.job_requests import VerifyPartitionIndexJob
from catalog.storage import Storage
from spark_jobs.sessions.executor_catalog import address_of, executor_url
from spark_jobs.sessions.python_tasks import connecting_task_count, in_tasks
from spark_jobs.sessions.session import finish_operation, run_job

log = logging.getLogger("spark_jobs.verify_partition_index")


def verify_partition_index(spark: SparkSession, catalog: Catalog, job: VerifyPartitionIndexJob) -> None:
    """Compare all ranges in the executors, repair in the driver, and record the verification with the operation.

    A repeated call verifies the index again.

    Raises:
        IndexNotFoundError: The index does not exist.
        ConflictError: The index is not ACTIVE, or was deleted during the verification.
    """
    table, index = catalog.get_table(job.table), catalog.get_partition_index(job.table, job.index)
    address = address_of(catalog.storage.url)

    def check_own(ranges: Iterable[CheckedRange]) -> Iterator[Findings]:
        with closing(Storage(executor_url(address))) as storage:
            for checked_range in ranges:
                yield verifying.check_range(storage, table, index, checked_range)

    def check(ranges: Sequence[CheckedRange]) -> Iterable[Findings]:
        return in_tasks(spark, ranges, connecting_task_count(spark, len(ranges)), check_own).collect()

    @contextmanager
    def guarded() -> Iterator[Connection]:
        with catalog.storage.write() as connection:
            catalog.operations.guard(connection, job.operation_id, job.step, job.attempt)
            yield connection

    # Repairs run in the driver: they lock the table, so concurrent repairs would only wait for each other.
    verification = verifying.verify(
        catalog.storage, table, index, repair=job.repair, check=check, transaction=guarded, size=verifying.RANGE_SIZE
    )
    log.info("%s", verification)
    finish_operation(catalog, job, verification.as_dict())


if __name__ == "__main__":
    raise SystemExit(run_job(VerifyPartitionIndexJob, verify_partition_index))
