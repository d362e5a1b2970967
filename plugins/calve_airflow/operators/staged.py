"""Base class of operators whose Spark jobs verify staged files before a later task commits them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from calve_airflow.operators.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations.records import JobRun


class VerifyStagedOperator(SparkJobOperator):
    """Task that runs a job that verifies staged files, and discards them if they differ."""

    @abstractmethod
    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether the files that a job verified are still the staged ones."""

    @abstractmethod
    def discard(self, catalog: Catalog, reason: str) -> None:
        """Discard the staged files of the operation."""

    def explain(self, context: Context, catalog: Catalog, error: Exception) -> None:
        """Discard the staged files if they differ."""
        from catalog.errors import VerificationFailedError

        job = catalog.operations.get_job(self.operation_id, self.step)
        if job is not None and job.error_class == VerificationFailedError.__name__:
            self.discard(catalog, str(error))
