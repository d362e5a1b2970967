"""Waiting for a catalog that cannot be reached, and for vacuum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from catalog import Catalog
from catalog.errors import (
    CatalogNotConfiguredError,
    CatalogUnavailableError,
    CatalogVersionError,
    OperationConflictError,
)
from catalog.operations.patience import after_vacuum, patiently
from catalog.operations.records import OperationKind


def answering(*answers: Exception | str) -> Callable[[], str]:
    """Return a function that raises or returns one answer after the other."""
    left: Iterator[Exception | str] = iter(answers)

    def act() -> str:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return act


def test_work_waits_for_a_catalog_that_cannot_be_reached() -> None:
    pauses: list[float] = []
    act = answering(CatalogUnavailableError("away"), CatalogUnavailableError("away"), "done")
    assert patiently(act, "work", sleep=pauses.append) == "done"
    assert pauses == sorted(pauses)
    assert len(pauses) == 2


@pytest.mark.parametrize("error", [CatalogNotConfiguredError("no URL"), CatalogVersionError("newer")])
def test_work_does_not_wait_for_what_a_person_must_correct(error: CatalogUnavailableError) -> None:
    with pytest.raises(type(error)):
        patiently(answering(error, "done"), "work", sleep=lambda _: None)


def settling(catalog: Catalog) -> str:
    catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("k", "int")])
    catalog.operations.begin("settle", OperationKind.SETTLE_VERSIONS, "demo.t", is_exclusive=True)
    catalog.operations.start_job("settle", "settle")
    return "settle"


def test_a_drop_waits_for_a_vacuum_of_its_table(catalog: Catalog) -> None:
    holder = settling(catalog)
    drop = Thread(target=catalog.drop_table, args=("demo.t",), kwargs={"purge": True})
    drop.start()
    drop.join(0.2)
    assert drop.is_alive()
    catalog.operations.fail(holder, "DONE", "done")
    drop.join(30)
    assert catalog.list_tables("demo") == []


def test_a_wait_for_a_vacuum_ends_and_names_it(catalog: Catalog) -> None:
    holder = settling(catalog)

    def refused() -> Any:
        raise OperationConflictError("in use", holder)

    with pytest.raises(OperationConflictError, match="in use"):
        after_vacuum(catalog.operations, refused, seconds=0)


def test_a_drop_does_not_wait_for_other_operations(catalog: Catalog) -> None:
    catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("k", "int")])
    catalog.operations.begin("load", OperationKind.ADD_PARTITIONS, "demo.t", is_exclusive=True)
    catalog.operations.start_job("load", "write")
    with pytest.raises(OperationConflictError, match="give-up 'load'"):
        catalog.drop_table("demo.t", purge=True)
