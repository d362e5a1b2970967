"""Complete migration of a Hive table to Iceberg in one process: stage, verify and flip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import MigrationConflictError, VerificationFailedError
from catalog.migration.migrations import FLIP, STAGE, VERIFY
from catalog.migration.requests import MigrationOperation, MigrationRequest
from catalog.model import FileFormat
from catalog.operations.job_requests import StageMigrationJob, VerifyMigrationJob
from catalog.operations.records import JobState
from spark_jobs.sessions.packages import require_packages
from spark_jobs.sessions.session import attempt_here
from spark_jobs.stage_migration import stage_migration
from spark_jobs.verify_migration import verify_migration

_USUAL_REQUEST = MigrationRequest()

_PLANS = 3
"""Maximum number of plans for a table that changes during its migration."""


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
    """Migrate a Hive table to Iceberg, in place by default.

    Readers see the Hive table until the Iceberg table is complete and verified. A repeated call continues where the
    earlier one stopped, and returns the same report. If files or partitions arrive during the migration, it makes a new
    plan, unless the request has the fingerprint of an approved one.

    Args:
        verified_partitions: Number of partitions to compare, evenly spread; None for all.

    Returns:
        The report of `Migrations.flip`, with `partitions_verified` and `partitions_total`, `warnings` about files, and
        `problem_count` and `problems`, the skipped files.

    Raises:
        MigrationRefusedError: The table cannot become an Iceberg table; subclasses say why.
        OperationConflictError: Another operation works on the table.
        UnusableFilesError, NestedFolderError: Files or folders of the table cannot be migrated.
        VerificationFailedError: The Iceberg table would not have the same rows; nothing was changed.
        MigrationConflictError: The table changed during its migration.
        InvalidConfigurationError: Spark was started without the packages to read Iceberg tables.
    """
    if request.verify:
        # Checked first, because the verification follows hours of work.
        require_packages(spark)
    for number in range(1, _PLANS + 1):
        operation = catalog.migrations.begin(operation_id, table, request, requested_by=requested_by)
        if operation.is_committed:
            return dict(operation.report[FLIP])
        try:
            return _migrate(spark, catalog, MigrationOperation.of(operation), verified_partitions)
        except MigrationConflictError:
            if number == _PLANS or request.fingerprint is not None:
                raise
    raise AssertionError("the last plan returns or raises")


def _migrate(
    spark: SparkSession, catalog: Catalog, operation: MigrationOperation, verified_partitions: int | None
) -> dict[str, Any]:
    staged = _stage(spark, catalog, operation)
    names = ("partitions", "manifests", "warnings", "problem_count", "problems")
    report = {name: staged[name] for name in names if name in staged}
    if operation.parsed_request.verify:
        verified = _verify(spark, catalog, operation, staged, verified_partitions)
        report |= {"partitions_verified": verified["partitions"], "partitions_total": verified["partitions_total"]}
    return catalog.migrations.flip(operation.id, report=report)


def _stage(spark: SparkSession, catalog: Catalog, operation: MigrationOperation) -> Mapping[str, Any]:
    if not catalog.migrations.is_staged(operation.id):
        with attempt_here(catalog, operation, STAGE) as attempt:
            job = StageMigrationJob(operation_id=operation.id, step=STAGE, attempt=attempt, table=operation.table)
            stage_migration(spark, catalog, job)
    job_run = catalog.operations.get_job(operation.id, STAGE)
    assert job_run is not None
    return job_run.result


def _verify(
    spark: SparkSession,
    catalog: Catalog,
    operation: MigrationOperation,
    staged: Mapping[str, Any],
    partitions: int | None,
) -> Mapping[str, Any]:
    earlier = catalog.operations.get_job(operation.id, VERIFY)
    if earlier is not None and earlier.state is JobState.SUCCEEDED and earlier.result.get("folder") == staged["folder"]:
        return earlier.result
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
        raise
    return result


def _has_avro(catalog: Catalog, operation: MigrationOperation) -> bool:
    pages = catalog.migrations.folders(operation)
    return any(folder.format is FileFormat.AVRO for page in pages for folder in page)
