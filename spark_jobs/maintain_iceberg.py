"""Maintenance of one table through Iceberg's JDBC catalog on the catalog's database.

Iceberg's own procedures run as they are, except those that delete files: Iceberg expires the snapshots, and Calve
deletes the files (`catalog.maintenance.iceberg_files`).
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import CatalogError
from catalog.iceberg.jdbc import CATALOG, catalog_settings
from catalog.iceberg.metadata import read_metadata
from catalog.iceberg.pointers import require_metadata
from catalog.maintenance.iceberg_files import delete_superseded, delete_unreached
from catalog.maintenance.iceberg_upkeep import Deletion, changes_spec, deletion_of
from catalog.operations.failpoints import Point, reached
from catalog.operations.job_requests import MaintainIcebergJob
from catalog.operations.records import JobState
from spark_jobs.reading.iceberg import require_allowed_files
from spark_jobs.sessions.answers import engine_errors
from spark_jobs.sessions.java_classes import java_class
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
        LocationNotAllowedError: A file of the table is outside all folders that the settings allow.
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
    """Run a statement and return its result."""
    deletion = deletion_of(statement)
    # What an earlier attempt has committed is found by the state before the first attempt.
    first = _before_first_attempt(catalog, job, step) if deletion is not None or changes_spec(statement) else {}
    with catalog.operations.attempt(job.operation_id, step) as attempt:
        if deletion is not None:
            rows, count = _delete(spark, catalog, job, deletion, first["metadata_location"])
        else:
            rows, count = _execute(spark, catalog, job, statement, first)
        answer = {"statement": statement, "rows": rows, "row_count": count}
        reached(Point.COMMITTED)
        catalog.operations.finish_job(job.operation_id, step, attempt, answer)
    return answer


def _execute(
    spark: SparkSession, catalog: Catalog, job: MaintainIcebergJob, statement: str, first: dict[str, Any]
) -> tuple[list[dict[str, Any]], int]:
    """Run a statement by Spark; accept a spec change that a killed attempt has already committed."""
    table = catalog.get_table(job.table)
    require_allowed_files(spark, catalog, table, require_metadata(table))
    try:
        with engine_errors(statement):
            returned = spark.sql(statement)
            rows = [row.asDict(recursive=True) for row in returned.take(SHOWN + 1)]
            return rows[:SHOWN], returned.count() if len(rows) > SHOWN else len(rows)
    except CatalogError:
        # Iceberg refuses a spec change that an earlier attempt has committed.
        if not first.get("is_repeated") or _state(catalog, job.table)["spec"] == first["spec"]:
            raise
        log.info("An earlier attempt has already changed the partition spec")
        return [], 0


def _delete(
    spark: SparkSession, catalog: Catalog, job: MaintainIcebergJob, deletion: Deletion, before: str
) -> tuple[list[dict[str, Any]], int]:
    """Expire snapshots and delete the files that only they had, or delete orphan files."""
    table = catalog.get_table(job.table)
    if deletion.retain_last is None:
        paths = delete_unreached(catalog.storage, table, deletion.before_ms)
        return [{"orphan_file_location": path} for path in paths[:SHOWN]], len(paths)
    with engine_errors("expire_snapshots"):
        name = f"{CATALOG}.`{table.database}`.`{table.name}`"
        util = java_class(spark.sparkContext, "org.apache.iceberg.spark.Spark3Util")
        iceberg = util.loadIcebergTable(spark._jsparkSession, name)
        expiry = iceberg.expireSnapshots().retainLast(deletion.retain_last).cleanExpiredFiles(False)
        expiry.expireOlderThan(deletion.before_ms).commit()
    count = delete_superseded(catalog.storage, catalog.get_table(job.table), before)
    return [{"deleted_files_count": count}], 1


def _before_first_attempt(catalog: Catalog, job: MaintainIcebergJob, step: str) -> dict[str, Any]:
    """Return the state of the table before the first attempt at a statement, and whether this attempt `is_repeated`."""
    recorded = f"{step}-before"
    earlier = catalog.operations.get_job(job.operation_id, recorded)
    if earlier is not None and earlier.state is JobState.SUCCEEDED:
        return {**earlier.result, "is_repeated": True}
    state = _state(catalog, job.table)
    with catalog.operations.attempt(job.operation_id, recorded) as attempt:
        catalog.operations.finish_job(job.operation_id, recorded, attempt, state)
    return state


def _state(catalog: Catalog, table: str) -> dict[str, Any]:
    """Return the location of a table's current metadata, and the id of its partition spec."""
    location = require_metadata(catalog.get_table(table))
    return {"metadata_location": location, "spec": read_metadata(location).default_spec_id}


def _maintain_and_record(spark: SparkSession, catalog: Catalog, job: MaintainIcebergJob) -> None:
    finish_operation(catalog, job, maintain_iceberg(spark, catalog, job))


def _settings(catalog: Catalog) -> dict[str, str]:
    return catalog_settings(catalog.storage.url)


if __name__ == "__main__":
    raise SystemExit(run_job(MaintainIcebergJob, _maintain_and_record, settings=_settings))
