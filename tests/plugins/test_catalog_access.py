from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.catalog_access import SparkJobFailedError, catalog_errors, job_error, open_catalog
from catalog import Catalog
from catalog.errors import ConflictError, TableNotFoundError


def test_what_a_retry_cannot_mend_is_not_retried() -> None:
    error = TableNotFoundError("there is no table demo.flights")
    with (
        pytest.raises(AirflowFailException, match=r"^TableNotFoundError: there is no table demo.flights$") as raised,
        catalog_errors(),
    ):
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("name", ["demo.flihgts", "flights"])
def test_a_missing_table_is_told_with_similar_names(catalog: Catalog, name: str) -> None:
    with pytest.raises(AirflowFailException, match=r" does not exist.* Did you mean demo\.flights\?$"), open_catalog():
        catalog.get_table(name)


@pytest.mark.parametrize("error", [ConflictError("somebody else is at it"), OSError("no space left")])
def test_what_may_pass_stays_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, catalog_errors():
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("error_class", "expected"),
    [
        ("SourceFileError", AirflowFailException),
        ("FencedError", AirflowFailException),
        ("ConflictError", SparkJobFailedError),
        ("OutOfMemoryError", SparkJobFailedError),
        ("Sequence", SparkJobFailedError),
        (None, SparkJobFailedError),
    ],
)
def test_a_job_error_is_retried_unless_the_catalog_says_no(error_class: str | None, expected: type[Exception]) -> None:
    error = job_error("write_partitions", error_class, "what happened")
    assert type(error) is expected
    assert str(error) == f"Spark job write_partitions: {error_class}: what happened"
