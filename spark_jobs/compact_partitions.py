"""Compaction of a table's partitions by its policy, as `ALTER TABLE … COMPACT` does it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import OperationConflictError
from catalog.maintenance.compaction import partitions_to_compact
from catalog.operations.job_requests import CompactPartitionsJob
from spark_jobs.changing.row_changes import compact_partitions, compact_scheme_partitions
from spark_jobs.sessions.session import finish_operation, run_job

log = logging.getLogger("spark_jobs.compact_partitions")

_MOST_PARTITIONS, _MOST_BYTES = 1_000, 16 * 2**30
"""The size of a transaction: other operations on the table may run between two, and a killed job repeats one."""

_TOTALS = ("partitions", "files_before", "files", "bytes")


def compact_planned(spark: SparkSession, catalog: Catalog, job: CompactPartitionsJob) -> dict[str, Any]:
    """Compact the planned partitions that still exist, except those that an earlier attempt has compacted.

    Returns:
        `partitions`, `files_before`, `files` and `bytes` (of the new files), and `skipped`: None, or the operation that
        holds the table, so that the other partitions are left to the next run.
    """
    operation = catalog.operations.get(job.operation_id)
    table, target_bytes = catalog.get_table(job.table), int(operation.request["target_bytes"])
    report: dict[str, Any] = {**dict.fromkeys(_TOTALS, 0), "skipped": None}
    for number, ids in enumerate(_batches(operation.request["partitions"]), 1):
        change = f"{operation.id}/{number}"
        partitions = [] if table.scheme is not None else partitions_to_compact(catalog.storage, table, ids)
        if table.scheme is None and not partitions and catalog.operations.find(change) is None:
            continue
        to_do: dict[str, Any] = {"target_bytes": target_bytes, "requested_by": operation.requested_by}
        try:
            with catalog.operations.failing(change):
                if table.scheme is not None:
                    batch = compact_scheme_partitions(spark, catalog, change, table.full_name, ids, **to_do)
                else:
                    batch = compact_partitions(spark, catalog, change, table.full_name, partitions, **to_do)
        except OperationConflictError as conflict:
            report["skipped"] = str(conflict)
            break
        for total, value in zip(_TOTALS, (batch["partitions_replaced"], *map(batch.get, _TOTALS[1:])), strict=True):
            report[total] += value
        count = batch["partitions_replaced"]
        log.info("%s: compacted %d partition(s) in transaction %d", table.full_name, count, number)
    return report


def _batches(planned: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield the ids of the partitions of one transaction after the other.

    Args:
        planned: Id and bytes of each partition.
    """
    batch, size = list[int](), 0
    for number, own_size in planned:
        if batch and (len(batch) == _MOST_PARTITIONS or size + own_size > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(number)
        size += own_size
    if batch:
        yield batch


def compact_and_record(spark: SparkSession, catalog: Catalog, job: CompactPartitionsJob) -> None:
    """Compact as `compact_planned` does, and record that the operation has nothing left to do."""
    finish_operation(catalog, job, compact_planned(spark, catalog, job))


if __name__ == "__main__":
    raise SystemExit(run_job(CompactPartitionsJob, compact_and_record))
