"""A migration, step by step, without Airflow."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from catalog import Catalog
from catalog.migration.migrations import STAGE, VERIFY
from catalog.migration.requests import MigrationRequest
from catalog.operations.job_requests import StageMigrationJob, VerifyMigrationJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Migrator:
    """Runs the steps of migrations like the DAG."""

    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        from spark_jobs.sessions.session import configure

        self.spark = configure(spark)
        self.catalog = catalog
        self._numbers = itertools.count(1)

    def begin(self, table: str, **request: Any) -> str:
        operation_id = f"migrate-{next(self._numbers)}"
        self.catalog.migrations.begin(operation_id, table, MigrationRequest(**request))
        return operation_id

    def stage(self, operation_id: str, **changes: Any) -> dict[str, Any]:
        """Run the stage step; return its report."""
        from spark_jobs.stage_migration import stage_migration

        operations = self.catalog.operations
        with operations.attempt(operation_id, STAGE) as attempt:
            table = operations.get(operation_id).table
            job = StageMigrationJob(operation_id=operation_id, step=STAGE, attempt=attempt, table=table, **changes)
            report = stage_migration(self.spark, self.catalog, job)
            if report is not None:
                operations.finish_job(operation_id, STAGE, attempt, report)
        found = operations.get_job(operation_id, STAGE)
        assert found is not None
        return dict(found.result)

    def verify(self, operation_id: str, **changes: Any) -> dict[str, Any]:
        from spark_jobs.verify_migration import verify_migration

        operations = self.catalog.operations
        with operations.attempt(operation_id, VERIFY) as attempt:
            table = operations.get(operation_id).table
            job = VerifyMigrationJob(operation_id=operation_id, step=VERIFY, attempt=attempt, table=table, **changes)
            report = verify_migration(self.spark, self.catalog, job)
            operations.finish_job(operation_id, VERIFY, attempt, report)
        return report

    def migrate(self, table: str, **request: Any) -> Mapping[str, Any]:
        """Migrate a table; return the report of the flip."""
        operation_id = self.begin(table, **request)
        self.stage(operation_id)
        if request.get("verify", True):
            self.verify(operation_id)
        return self.catalog.migrations.flip(operation_id)
