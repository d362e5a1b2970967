"""Maintenance of one table with Iceberg's own procedures, through Iceberg's JDBC catalog on the catalog's database."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import CatalogError
from catalog.iceberg.jdbc import catalog_settings
from catalog.iceberg.metadata import read_metadata
from catalog.iceberg.pointers import find_pointer
from catalog.maintenance.iceberg_upkeep import changes_spec
from catalog.model.identifiers import TableName
from catalog.operations.failpoints import Point, reached
from catalog.operations.job_requests import MaintainIcebergJob
from catalog.operations.records import JobState
from spark_jobs.sessions.answers import engine_errors
from spark_jobs.sessions.packages import require_packages
from spark_jobs.sessions.session import finish_operation, run_job

log = logging.getLogger("spark_jobs.maintain_iceberg")

SHOWN = 20
"""Maximum number of stored rows of a result: `remove_orphan_files` returns one row for each file."""


def maintain_iceberg(spark: SparkSession, catalog: Catalog, job: MaintainIcebergJob) -> dict[str, Any]:
    """Run the statements of a request in order, except those that an earlier attempt has finished.

    Each statement commits to Iceberg by itself, and readers see it at once.

    Args:
        spark: A session with the Iceberg catalog `calve`, see `catalog.iceberg.jdbc.catalog_settings`.

    Returns:
        `answers`: for each statement its text, the first `rows` of its result, and `row_count`, the number of all
        rows; Iceberg itself returns at most 20,000 files.

    Raises:
        InvalidConfigurationError: Spark was started without Iceberg's runtime.
        EngineError: A statement fails.
    """
    require_packages(spark)
    answers = []
    for number, statement in enumerate(job.statements, 1):
        step = f"{job.step}-{number}"
        earlier = catalog.operations.get_job(job.operation_id, step)
        if earlier is None or earlier.state is not JobState.SUCCEEDED or earlier.result["statement"] != statement:
            log.info("%s", statement)
            answer = _run(spark, catalog, job, step, statement)
            log.info("%s", answer)
        else:
            answer = dict(earlier.result)
        answers.append(answer)
    return {"answers": answers}


def _run(spark: SparkSession, catalog: Catalog, job: MaintainIcebergJob, step: str, statement: str) -> dict[str, Any]:
    """Run a statement and return its result; accept a spec change that a killed attempt has already committed."""
    answer: dict[str, Any] = {"statement": statement, "rows": [], "row_count": 0}
    first_spec = _first_spec(catalog, job, step) if changes_spec(statement) else None
    with catalog.operations.attempt(job.operation_id, step) as attempt:
        try:
            with engine_errors(statement):
                returned = spark.sql(statement)
                rows = [row.asDict(recursive=True) for row in returned.take(SHOWN + 1)]
                answer["rows"] = rows[:SHOWN]
                answer["row_count"] = returned.count() if len(rows) > SHOWN else len(rows)
        except CatalogError:
            # Iceberg refuses a spec change that an earlier attempt has committed.
            if first_spec is None or _spec(catalog, job.table) == first_spec:
                raise
            log.info("An earlier attempt has already changed the partition spec")
        reached(Point.COMMITTED)
        catalog.operations.finish_job(job.operation_id, step, attempt, answer)
    return answer


def _first_spec(catalog: Catalog, job: MaintainIcebergJob, step: str) -> int | None:
    """Return the id of the partition spec before the first attempt at a statement; None if this is the first."""
    recorded = f"{step}-spec"
    earlier = catalog.operations.get_job(job.operation_id, recorded)
    if earlier is not None and earlier.state is JobState.SUCCEEDED:
        spec: int | None = earlier.result["spec"]
        return spec
    with catalog.operations.attempt(job.operation_id, recorded) as attempt:
        catalog.operations.finish_job(job.operation_id, recorded, attempt, {"spec": _spec(catalog, job.table)})
    return None


def _spec(catalog: Catalog, table: str) -> int | None:
    """Return the id of a table's partition spec."""
    with catalog.storage.read() as connection:
        location = find_pointer(connection, *TableName.parse(table))
    return None if location is None else read_metadata(location).default_spec_id


def _maintain_and_record(spark: SparkSession, catalog: Catalog, job: MaintainIcebergJob) -> None:
    finish_operation(catalog, job, maintain_iceberg(spark, catalog, job))


def _settings(catalog: Catalog) -> dict[str, str]:
    return catalog_settings(catalog.storage.url)


if __name__ == "__main__":
    raise SystemExit(run_job(MaintainIcebergJob, _maintain_and_record, settings=_settings))
