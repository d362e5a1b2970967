"""Online build of a CREATING partition index."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog, IndexState
from catalog.errors import CatalogError, OperationReusedError
from catalog.indexes import building
from catalog.indexes.building import BackfillReport
from catalog.indexes.definitions import IdRange, IndexFailure
from catalog.model import PartitionIndex, Table
from catalog.operations.job_requests import BuildPartitionIndexJob
from catalog.operations.records import OperationKind, OperationState
from spark_jobs.sessions.executor_catalog import address_of
from spark_jobs.sessions.python_tasks import connecting_task_count, in_tasks
from spark_jobs.sessions.session import run_job
from spark_jobs.writing.index_backfill import backfill_ranges, run_task

log = logging.getLogger("spark_jobs.build_partition_index")


def build_partition_index(spark: SparkSession, catalog: Catalog, job: BuildPartitionIndexJob) -> dict[str, Any] | None:
    """Write the items of all partitions that existed when the index was created, and set it to ACTIVE or FAILED.

    On PostgreSQL, the executors read, encode and write ranges of partitions in parallel; on SQLite, which has one
    writer, the driver does. A repeated build continues with the ranges that are not done.

    Raises:
        IndexNotFoundError: The index was deleted.
        IndexBuildEndedError: The index was deleted, cancelled or FAILED during the build.
        FencedError: The attempt is fenced.
        OperationReusedError: The operation is not an index build, and this job would commit it.
    """
    operation = catalog.operations.get(job.operation_id)
    if operation.kind is not OperationKind.BUILD_INDEX:
        raise OperationReusedError(operation.id, f"{operation.kind} of table {operation.table}")
    table, index = catalog.get_table(job.table), catalog.get_partition_index(job.table, job.index)
    building.clear_ended(catalog.storage, table)
    if index.state is not IndexState.CREATING:
        return _finish(catalog, job, table, index, None)
    ranges = building.ranges_to_do(catalog.storage, index)
    log.info("%s: %d ranges to build for index %s", job.table, len(ranges), index.name)
    if catalog.storage.is_postgresql and ranges:
        report = _backfill_in_executors(spark, catalog, job, table, index, ranges)
    else:
        report = backfill_ranges(catalog.storage, job, table, index, ranges)
    log.info("%s: wrote %d items for index %s", job.table, report.item_count, index.name)
    return _finish(catalog, job, table, index, building.check_build(catalog.storage, table, index, report))


def _backfill_in_executors(
    spark: SparkSession,
    catalog: Catalog,
    job: BuildPartitionIndexJob,
    table: Table,
    index: PartitionIndex,
    ranges: Sequence[IdRange],
) -> BackfillReport:
    task = partial(run_task, address_of(catalog.storage.url), job, table, index)
    outcomes = in_tasks(spark, ranges, connecting_task_count(spark, len(ranges)), task).collect()
    report = BackfillReport()
    for outcome in outcomes:
        if isinstance(outcome, CatalogError):
            raise outcome
        report += outcome
    return report


def _finish(
    catalog: Catalog,
    job: BuildPartitionIndexJob,
    table: Table,
    index: PartitionIndex,
    failure: IndexFailure | None,
) -> dict[str, Any] | None:
    with catalog.storage.write() as connection:
        catalog.operations.guard(connection, job.operation_id, job.step, job.attempt)
        ended = building.end_build(catalog.storage, connection, table, index, failure)
        result = {
            "index": ended.name,
            "state": ended.state,
            "failure_code": ended.failure_code,
            "failure_detail": ended.failure_detail,
        }
        catalog.operations.finish_job(job.operation_id, job.step, job.attempt, result, connection=connection)
        catalog.operations.advance(connection, job.operation_id, OperationState.COMMITTED)
        catalog.operations.advance(connection, job.operation_id, OperationState.CLEANED)
    building.clear_ended(catalog.storage, table)
    return None


if __name__ == "__main__":
    raise SystemExit(run_job(BuildPartitionIndexJob, build_partition_index))
