"""A whole migration in one process: what a Hive table's files are, verified, as an Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import MigrationConflictError, VerificationFailedError
from catalog.migration.migrations import FLIP, STAGE, VERIFY
from catalog.migration.requests import MigrationRequest
from catalog.model import FileFormat
from catalog.operations.job_requests import StageMigrationJob, VerifyMigrationJob
from catalog.operations.records import JobState, Operation
from spark_jobs.sessions.packages import require_packages
from spark_jobs.sessions.session import attempt_here
from spark_jobs.stage_migration import stage_migration
from spark_jobs.verify_migration import verify_migration

_USUAL_REQUEST = MigrationRequest()

_PLANS = 3
"""How often a plan is made anew for a table that changes meanwhile."""


def migrate(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    request: MigrationRequest = _USUAL_REQUEST,
    *,
    verified_partitions: int | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Make a Hive table's files an Iceberg table's, in place unless the request says otherwise.

    Everybody sees the Hive table until all of it is there and verified. Done again, it goes on where it stopped, and
    then returns the same report. When files or partitions arrive meanwhile, the plan is made anew, unless the request
    has the fingerprint of one that was agreed to.

    Args:
        verified_partitions: How many partitions are compared, evenly spread; None for all.

    Returns:
        The report of `Migrations.flip`, with `partitions_verified` and `partitions_total`, `warnings` about files, and
        `problem_count` and `problems`, the files that were passed over.

    Raises:
        MigrationRefusedError: The table cannot become an Iceberg table; subclasses say why.
        OperationConflictError: Another operation is at work on it.
        UnusableFilesError, NestedFolderError: Its files are not as they should be.
        VerificationFailedError: The Iceberg table would not have the same rows; nothing was changed.
        MigrationConflictError: The table changed while it was being migrated.
        InvalidConfigurationError: Spark was started without what it needs to read Iceberg tables.
    """
    if request.verify:
        # Not to be missed after hours of work.
        require_packages(spark)
    for number in range(1, _PLANS + 1):
        operation = catalog.migrations.begin(operation_id, table, request, requested_by=requested_by)
        if operation.is_committed:
            return dict(operation.report[FLIP])
        try:
            return _migrate(spark, catalog, operation, verified_partitions)
        except MigrationConflictError:
            if number == _PLANS or request.fingerprint is not None:
                raise
    raise AssertionError("the last plan returns or raises")


def _migrate(
    spark: SparkSession, catalog: Catalog, operation: Operation, verified_partitions: int | None
) -> dict[str, Any]:
    staged = _stage(spark, catalog, operation)
    names = ("partitions", "manifests", "warnings", "problem_count", "problems")
    report = {name: staged[name] for name in names if name in staged}
    if MigrationRequest.from_json(operation.request).verify:
        verified = _verify(spark, catalog, operation, staged, verified_partitions)
        report |= {"partitions_verified": verified["partitions"], "partitions_total": verified["partitions_total"]}
    return catalog.migrations.flip(operation.id, report=report)


def _stage(spark: SparkSession, catalog: Catalog, operation: Operation) -> Mapping[str, Any]:
    if not catalog.migrations.is_staged(operation.id):
        with attempt_here(catalog, operation, STAGE) as attempt:
            job = StageMigrationJob(operation_id=operation.id, step=STAGE, attempt=attempt, table=operation.table)
            stage_migration(spark, catalog, job)
    job_run = catalog.operations.get_job(operation.id, STAGE)
    assert job_run is not None
    return job_run.result


def _verify(
    spark: SparkSession, catalog: Catalog, operation: Operation, staged: Mapping[str, Any], partitions: int | None
) -> Mapping[str, Any]:
    known = catalog.operations.get_job(operation.id, VERIFY)
    if known is not None and known.state is JobState.SUCCEEDED and known.result.get("folder") == staged["folder"]:
        return known.result
    try:
        with attempt_here(catalog, operation, VERIFY) as attempt:
            require_packages(spark, avro=_has_avro(catalog, operation))
            job = VerifyMigrationJob(
                operation_id=operation.id, step=VERIFY, attempt=attempt, table=operation.table, partitions=partitions
            )
            result = {**verify_migration(spark, catalog, job), "folder": staged["folder"]}
            catalog.operations.finish_job(operation.id, VERIFY, attempt, result)
    except VerificationFailedError as error:
        # The files may have changed since they were staged.
        catalog.migrations.discard_staged(operation.id, str(error))
        catalog.operations.fail(operation.id, type(error).__name__, str(error))
        raise
    return result


def _has_avro(catalog: Catalog, operation: Operation) -> bool:
    pages = catalog.migrations.folders(operation)
    return any(folder.format is FileFormat.AVRO for page in pages for folder in page)
