"""Base class of operators whose Spark jobs verify staged files before a later task commits them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

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

    def execute(self, context: Context) -> dict[str, Any]:
        """Verify the staged files.

        Raises:
            AirflowFailException: The files differ, or the verification failed with another error that is not retryable.
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
