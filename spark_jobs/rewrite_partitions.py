"""Writing of the new files of a rebalancing plan to a staging folder; a later step makes them visible."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.operations.attempts import attempt_folder
from catalog.operations.job_requests import RewritePartitionsJob
from spark_jobs.sessions.session import run_job
from spark_jobs.writing.rebalancing import rewrite


def rewrite_partitions(spark: SparkSession, catalog: Catalog, job: RewritePartitionsJob) -> dict[str, Any]:
    """Write the files of the operation's plan, and their manifest, to a folder of this attempt.

    Returns:
        `folder` below the table's location, `rows`, and the plan's `fingerprint`.

    Raises:
        PlanConflictError: The table changed after the plan was made.
    """
    operation = catalog.operations.get(job.operation_id)
    plan = catalog.rebalancing.plan_of(operation)
    folder = attempt_folder(operation, job.attempt)
    row_count = rewrite(spark, plan, folder)
    return {"folder": folder, "rows": row_count, "fingerprint": plan.fingerprint}


if __name__ == "__main__":
    raise SystemExit(run_job(RewritePartitionsJob, rewrite_partitions))
