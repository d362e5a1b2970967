"""Signs of life of attempts that end while one is being given."""

from __future__ import annotations

import os
import time

import pytest

from catalog import Catalog
from catalog.jobs import JobRequest
from catalog.operations import OperationKind

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which the process would have ended itself, with signs of life all the time."""
    from spark_jobs import session

    found: list[int] = []
    monkeypatch.setattr(session, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(os, "_exit", found.append)
    return found


def begin(catalog: Catalog) -> JobRequest:
    catalog.operations.begin("load", OperationKind.APPEND_ROWS, "demo.flights")
    attempt = catalog.operations.start_job("load", "commit")
    return JobRequest(operation_id="load", step="commit", attempt=attempt, table="demo.flights")


@on_sqlite
def test_a_process_that_has_committed_may_come_to_its_end(catalog: Catalog, exits: list[int]) -> None:
    from spark_jobs.session import SignOfLife

    request = begin(catalog)
    with SignOfLife(catalog, request):
        catalog.operations.finish_job("load", "commit", request.attempt, {"rows": 1})
        time.sleep(0.2)
    assert exits == []


@on_sqlite
def test_a_process_that_was_given_up_ends_at_once(catalog: Catalog, exits: list[int]) -> None:
    from spark_jobs.session import SignOfLife

    request = begin(catalog)
    with SignOfLife(catalog, request):
        second = catalog.operations.start_job("load", "commit")
        catalog.operations.finish_job("load", "commit", second, {"rows": 1})
        deadline = time.monotonic() + 10
        while not exits and time.monotonic() < deadline:
            time.sleep(0.01)
    assert exits[:1] == [1]
