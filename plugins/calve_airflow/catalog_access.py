"""Access of tasks to the catalog, and translation of catalog and Spark job errors to Airflow's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from catalog import Catalog


class SparkJobFailedError(RuntimeError):
    """A Spark job failed with an error that may be transient; a retry submits it again."""


class SparkJobLostError(RuntimeError):
    """A Spark job ended without a result or was cancelled; a retry submits it again or joins its successor."""


@contextmanager
def catalog_errors() -> Iterator[None]:
    """Translate catalog errors so that Airflow retries only those that may be transient.

    Raises:
        AirflowFailException: Instead of a `CatalogError` that is not retryable; of a table that does not exist, with
            similar names that do. Other errors propagate unchanged.
    """
    from catalog.errors import CatalogError

    try:
        yield
    except CatalogError as error:
        if error.retryable:
            raise
        from catalog.catalog.suggestions import described

        raise AirflowFailException(described(error)) from error


@contextmanager
def open_catalog() -> Iterator[Catalog]:
    """Open the installation's catalog for a task, and wait for it if it cannot be reached (`patiently`).

    Errors are translated by `catalog_errors`.

    Yields:
        The catalog that `CALVE_CATALOG_URL` names.
    """
    # Imported late: Airflow parses DAG files repeatedly, and parsing does not need the catalog.
    from catalog import Catalog
    from catalog.operations.patience import patiently

    with catalog_errors(), patiently(Catalog.open, "the task") as catalog:
        yield catalog


def job_error(job: str, error_class: str | None, message: str | None) -> Exception:
    """Return the exception to raise for a failed Spark job.

    Args:
        job: The job's name.
        error_class: Name of the exception's class, as the job recorded it. Names outside the catalog's error tree (a
            lost executor, memory, the network) count as transient.
        message: The exception's message.

    Returns:
        An `AirflowFailException` for a catalog error that is not retryable, otherwise a `SparkJobFailedError`.
    """
    from catalog import errors

    text = f"Spark job {job}: {error_class}: {message}"
    known = getattr(errors, error_class or "", None)
    if isinstance(known, type) and issubclass(known, errors.CatalogError) and not known.retryable:
        return AirflowFailException(text)
    return SparkJobFailedError(text)
