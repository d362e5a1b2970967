"""Spark jobs that stage files, and those that verify staged files before a later task commits them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.operators.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from calve_airflow.submitting.job_process import JobProcess
    from catalog import Catalog
    from catalog.operations.records import JobRun


class StagingJobOperator(SparkJobOperator):
    """Runs a job whose result counts only as long as the files that it staged, or verified, are the staged ones."""

    @abstractmethod
    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether the result of a job that succeeded still counts; otherwise the job runs again."""

    def _existing_job(self, catalog: Catalog) -> tuple[int, JobProcess] | None:
        job = catalog.operations.get_job(self.operation_id, self.step)
        if job is not None and job.state == "SUCCEEDED" and not self.is_current(catalog, job):
            return None
        return super()._existing_job(catalog)


class VerifyStagedOperator(StagingJobOperator):
    """Runs a job that verifies staged files; those that differ are discarded, and the staging task stages new ones."""

    @abstractmethod
    def discard(self, catalog: Catalog, reason: str) -> None:
        """Discard the staged files of the operation."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Verify.

        Raises:
            AirflowFailException: They differ, or the verification failed otherwise for good.
        """
        try:
            return super().execute(context)
        except AirflowFailException as error:
            self._discard_if_different(str(error))
            raise

    def _discard_if_different(self, reason: str) -> None:
        from catalog import Catalog
        from catalog.errors import VerificationFailedError

        with Catalog.open() as catalog:
            operation = catalog.operations.find(self.operation_id)
            job = operation and catalog.operations.get_job(self.operation_id, self.step)
            if job and job.error_class == VerificationFailedError.__name__:
                self.discard(catalog, reason)
