"""The catalog as tasks open it, and its errors and those of Spark jobs as Airflow's: to be retried, or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from catalog import Catalog


class SparkJobFailedError(RuntimeError):
    """A Spark job ended in an error that may pass; a retry submits it again."""


class SparkJobLostError(RuntimeError):
    """A Spark job is gone without a result, or was given up; a retry submits it again or joins its successor."""


@contextmanager
def catalog_errors() -> Iterator[None]:
    """Let Airflow retry what may pass, and nothing else.

    Raises:
        AirflowFailException: Instead of a `CatalogError` that a retry cannot mend. Every other error stays as it is.
    """
    from catalog.errors import CatalogError

    try:
        yield
    except CatalogError as error:
        if error.retryable:
            raise
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error


@contextmanager
def open_catalog() -> Iterator[Catalog]:
    """Open the installation's catalog for a task; errors are those of `catalog_errors`.

    Yields:
        The catalog that `CALVE_CATALOG_URL` names.
    """
    # Imported late: DAG files are read again and again, and none of that needs the catalog.
    from catalog import Catalog

    with catalog_errors(), Catalog.open() as catalog:
        yield catalog


def job_error(job: str, error_class: str | None, message: str | None) -> Exception:
    """Return the error that a failed Spark job stands for.

    Args:
        job: The job's name.
        error_class: Name of the exception's class, as the job recorded it. Names that are not in the catalog's error
            tree (a lost executor, memory, the network) count as passing.
        message: The exception's message.

    Returns:
        An `AirflowFailException` for an error of the catalog that a retry cannot mend, otherwise a
        `SparkJobFailedError`.
    """
    from catalog import errors

    text = f"Spark job {job}: {error_class}: {message}"
    known = getattr(errors, error_class or "", None)
    if isinstance(known, type) and issubclass(known, errors.CatalogError) and not known.retryable:
        return AirflowFailException(text)
    return SparkJobFailedError(text)
