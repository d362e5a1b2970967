"""Build a CREATING partition index on a table that stays readable and writable."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog, IndexState
from catalog.indexes import building
from catalog.indexes.building import IdRange, RangeReport
from catalog.jobs import BuildPartitionIndexJob
from catalog.model import PartitionIndex, Table
from catalog.operations import OperationState
from spark_jobs.session import run_job

log = logging.getLogger("spark_jobs.build_partition_index")


def build_partition_index(spark: SparkSession, catalog: Catalog, job: BuildPartitionIndexJob) -> dict[str, Any] | None:
    """Write the items of all partitions that existed when the index was created, and make it ACTIVE or FAILED.

    On PostgreSQL the executors read, encode and write ranges of partitions in parallel; on SQLite, which has one
    writer, the driver does. Done again, it writes what is missing.

    Raises:
        IndexNotFoundError: The index was deleted.
        ConflictError: It was deleted, or another build of it ended, meanwhile.
    """
    table, index = catalog.get_table(job.table), catalog.get_partition_index(job.table, job.index)
    if index.state is IndexState.CREATING:
        ranges = building.plan_ranges(catalog.storage, table, index)
        if catalog.storage.is_postgresql:
            reports = _backfill_in_executors(spark, catalog, job, table, index, ranges)
        else:
            reports = list(_backfill(catalog, job, table, index, ranges))
        log.info("%s: %d items for index %s", job.table, sum(each.item_count for each in reports), index.name)
        if any(report.code for report in reports):
            building.fail_build(catalog.storage, table, index, reports)
    return _finish(catalog, job, table, index)


def _backfill(
    catalog: Catalog, job: BuildPartitionIndexJob, table: Table, index: PartitionIndex, ranges: Iterable[IdRange]
) -> Iterator[RangeReport]:
    """Backfill ranges one after the other, each in a transaction that only the latest attempt can commit."""
    for ids in ranges:
        with catalog.storage.write() as connection:
            catalog.operations.guard(connection, job.operation_id, job.step, job.attempt, is_shared=True)
            report = building.backfill_range(connection, table, index, ids)
        yield report


def _backfill_in_executors(
    spark: SparkSession,
    catalog: Catalog,
    job: BuildPartitionIndexJob,
    table: Table,
    index: PartitionIndex,
    ranges: Sequence[IdRange],
) -> list[RangeReport]:
    url = catalog.storage.url.render_as_string(hide_password=False)

    def backfill(own: Iterable[IdRange]) -> Iterable[RangeReport]:
        with Catalog.open(url) as executors_catalog:
            yield from _backfill(executors_catalog, job, table, index, own)

    if not ranges:
        return []
    return spark.sparkContext.parallelize(ranges, len(ranges)).mapPartitions(backfill).collect()


def _finish(
    catalog: Catalog, job: BuildPartitionIndexJob, table: Table, index: PartitionIndex
) -> dict[str, Any] | None:
    with catalog.storage.write() as connection:
        catalog.operations.guard(connection, job.operation_id, job.step, job.attempt)
        ended = building.finish_build(catalog.storage, connection, table, index)
        result = {
            "index": ended.name,
            "state": ended.state,
            "failure_code": ended.failure_code,
            "failure_detail": ended.failure_detail,
        }
        catalog.operations.finish_job(job.operation_id, job.step, job.attempt, result, connection=connection)
        catalog.operations.advance(connection, job.operation_id, OperationState.COMMITTED)
        catalog.operations.advance(connection, job.operation_id, OperationState.CLEANED)
    return None


if __name__ == "__main__":
    raise SystemExit(run_job(BuildPartitionIndexJob, build_partition_index))
