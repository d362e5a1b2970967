"""Rewriting of the files of a rebalancing plan, which have rows of several partitions."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.operations.attempts import attempt_folder
from catalog.rebalancing.changes import PartitionChange
from catalog.rebalancing.planning import RebalancePlan
from catalog.rebalancing.rebalancing import COMMIT
from spark_jobs.reading.iceberg import read_live_rows
from spark_jobs.sessions.session import attempt_here
from spark_jobs.writing.scheme_files import write_rows

log = logging.getLogger("spark_jobs.writing.rebalancing")

_MOST_FILES = 4
"""Maximum ratio, without a shuffle, of written files to the number of files that the rows' size needs."""


def rebalance(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    change: PartitionChange,
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Change the partitions of a table and move the affected rows; a repeated call returns the same report.

    Readers see the table before or after the change, never in between; replaced files stay for them until vacuum.

    Raises:
        TableNotFoundError, PartitionNotFoundError, InvalidSchemeError: The change does not fit the table.
        OperationConflictError: Another operation works on the table.
        VerificationFailedError: The new files do not have as many rows as the old ones; nothing was changed.
    """
    operation = catalog.rebalancing.begin(operation_id, table, change, requested_by=requested_by)
    if operation.is_committed:
        return dict(operation.report[COMMIT])
    with attempt_here(catalog, operation, COMMIT) as attempt:
        plan = catalog.rebalancing.plan_of(operation)
        folder = row_count = None
        if plan.needs_spark:
            folder = attempt_folder(operation, attempt)
            row_count = rewrite(spark, plan, folder)
        return catalog.rebalancing.commit(operation_id, COMMIT, attempt, plan, folder, row_count=row_count)


def rewrite(spark: SparkSession, plan: RebalancePlan, folder: str) -> int:
    """Write the rows of a plan's files to files of their new partitions, with a manifest; return the number of rows.

    Args:
        folder: A folder below the table's location that does not exist yet.

    Raises:
        VerificationFailedError: A file has rows that cannot belong to its partition.
    """
    rows = read_live_rows(spark, plan.table, plan.rewritten)
    without_shuffle = len(plan.rewritten) * len(plan.targets)
    shuffle = without_shuffle > _MOST_FILES * plan.estimated_files
    log.info("%s: moving %d rows of %d files", plan.table.full_name, plan.moved.row_count, len(plan.rewritten))
    return write_rows(
        rows,
        plan.table,
        plan.scheme,
        folder,
        shuffle=shuffle,
        is_counted=plan.has_deletes,
        among=plan.targets,
        size=plan.moved,
    )
