"""SQL statements as a Spark job of Airflow."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.operations.job_requests import RunStatementJob
from catalog.statements.scripts import run_script
from catalog.statements.session import Session
from spark_jobs.sessions.session import run_job
from spark_jobs.statement_engine import SparkEngine

log = logging.getLogger("spark_jobs.run_statement")


def run_statement(spark: SparkSession, catalog: Catalog, job: RunStatementJob) -> dict[str, Any]:
    """Run the statements of a request, except those that an earlier attempt has finished.

    Returns:
        `outcomes`: the result of each statement with its first rows.

    Raises:
        CatalogError: The error of the first statement that failed.
    """
    requested_by = catalog.operations.get(job.operation_id).requested_by
    with Session(
        catalog,
        database=job.database,
        start=lambda opened: SparkEngine(opened, spark),
        requested_by=requested_by,
    ) as session:
        outcomes = run_script(catalog, session, job.operation_id, job.statements, keep_going=job.keep_going)
    log.info("Ran %d statement(s)", len(outcomes))
    return {"outcomes": outcomes}


if __name__ == "__main__":
    raise SystemExit(run_job(RunStatementJob, run_statement))
