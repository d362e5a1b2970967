"""Changes of a table's partitions in the caller's process: the steps of the DAG `rebalance_partitions`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.operations.attempts import attempt_folder
from catalog.rebalancing.changes import PartitionChange
from catalog.rebalancing.rebalancing import COMMIT
from spark_jobs.sessions.session import attempt_here
from spark_jobs.verify_rewrite import verify_plan
from spark_jobs.writing.rebalancing import rewrite


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
        VerificationFailedError: The new files do not have the rows of the old ones; nothing was changed.
    """
    operation = catalog.rebalancing.begin(operation_id, table, change, requested_by=requested_by)
    if operation.is_committed:
        return dict(operation.report[COMMIT])
    with attempt_here(catalog, operation, COMMIT) as attempt:
        plan = catalog.rebalancing.plan_of(operation)
        if not plan.needs_spark:
            return catalog.rebalancing.commit(operation_id, COMMIT, attempt, plan)
        folder = attempt_folder(operation, attempt)
        rewrite(spark, plan, folder)
        # Of this plan: a plan of now may include files that engines have added since.
        verified = verify_plan(spark, plan, folder)
        return catalog.rebalancing.commit(operation_id, COMMIT, attempt, plan, folder, row_count=verified["rows"])
