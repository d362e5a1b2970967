"""Run Iceberg's own procedures on one table, through its JDBC catalog over the catalog's database."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.iceberg.jdbc import catalog_settings
from catalog.jobs import MaintainIcebergJob
from catalog.operations import JobState, OperationState
from spark_jobs.answers import engine_errors
from spark_jobs.packages import require_packages
from spark_jobs.session import run_job

log = logging.getLogger("spark_jobs.maintain_iceberg")


def maintain_iceberg(spark: SparkSession, catalog: Catalog, job: MaintainIcebergJob) -> dict[str, Any]:
    """Run the statements of a request one after the other, those that an earlier attempt has finished not again.

    Each is a commit of Iceberg's own, which readers see at once.

    Args:
        spark: Knows the Iceberg catalog `calve`, see `catalog.iceberg.jdbc.catalog_settings`.

    Returns:
        `answers`: of each statement, its text and the rows that it returned.

    Raises:
        InvalidConfigurationError: Spark was started without Iceberg's runtime.
        EngineError: A statement fails.
    """
    require_packages(spark)
    answers = []
    for number, statement in enumerate(job.statements, 1):
        step = f"{job.step}-{number}"
        known = catalog.operations.get_job(job.operation_id, step)
        if known is None or known.state is not JobState.SUCCEEDED or known.result["statement"] != statement:
            log.info("%s", statement)
            with catalog.operations.attempt(job.operation_id, step) as attempt, engine_errors(statement):
                rows = [row.asDict(recursive=True) for row in spark.sql(statement).collect()]
                answer = {"statement": statement, "rows": rows}
                catalog.operations.finish_job(job.operation_id, step, attempt, answer)
            log.info("%s", rows)
        else:
            answer = dict(known.result)
        answers.append(answer)
    return {"answers": answers}


def _maintain_and_record(spark: SparkSession, catalog: Catalog, job: MaintainIcebergJob) -> None:
    found = maintain_iceberg(spark, catalog, job)
    with catalog.storage.write() as connection:
        catalog.operations.finish_job(job.operation_id, job.step, job.attempt, found, connection=connection)
        catalog.operations.advance(connection, job.operation_id, OperationState.CLEANED)


def _settings(catalog: Catalog) -> dict[str, str]:
    return catalog_settings(catalog.storage.url)


if __name__ == "__main__":
    raise SystemExit(run_job(MaintainIcebergJob, _maintain_and_record, settings=_settings))
