"""Rewriting of the files of a rebalancing plan, which have rows of several partitions."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from catalog.rebalancing.planning import RebalancePlan
from spark_jobs.reading.iceberg import read_live_rows
from spark_jobs.writing.scheme_files import write_rows

log = logging.getLogger("spark_jobs.writing.rebalancing")

_MOST_FILES = 4
"""Maximum ratio, without a shuffle, of written files to the number of files that the rows' size needs."""


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
