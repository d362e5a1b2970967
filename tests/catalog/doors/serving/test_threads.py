"""Requests that run out of time: their threads stop, give their connections back, and do not pile up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import text

from catalog import Catalog
from catalog.doors.serving.threads import RequestThreads
from catalog.errors import CatalogError
from catalog.errors.doors import TooManyRequestsError

LONG = {
    "postgresql": "SELECT pg_sleep(60)",
    "sqlite": "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
}


def run_out_of_time(threads: RequestThreads, function: Callable[[], object], seconds: float = 0.3) -> None:
    async def run() -> None:
        async with asyncio.timeout(seconds):
            await threads.run(function)

    with pytest.raises(TimeoutError):
        asyncio.run(run())


def soon(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["read", "write", "fetch"])
def test_a_statement_of_a_request_that_runs_out_of_time_is_interrupted(catalog: Catalog, kind: str) -> None:
    statement = LONG[catalog.storage.url.get_backend_name()]
    ended: list[BaseException] = []

    def work() -> None:
        try:
            if kind == "fetch":
                catalog.storage.fetch(statement, ())
            else:
                with getattr(catalog.storage, kind)() as connection:
                    connection.execute(text(statement))
            # What comes afterwards begins no more.
            catalog.get_database("demo")
        except CatalogError as error:
            ended.append(error)
            raise

    run_out_of_time(RequestThreads(), work)
    soon(lambda: ended)
    assert catalog.storage.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert catalog.get_database("demo").name == "demo"


def test_other_requests_are_not_interrupted(catalog: Catalog) -> None:
    statement = {
        "postgresql": "SELECT pg_sleep(2)",
        "sqlite": LONG["sqlite"].replace("FROM n)", "FROM n LIMIT 3000000)"),
    }
    threads, answers = RequestThreads(), []

    def other() -> object:
        with catalog.storage.read() as connection:
            answers.append(connection.execute(text(statement[catalog.storage.url.get_backend_name()])).all())
        return None

    async def both() -> None:
        running = asyncio.create_task(threads.run(other))
        long = LONG[catalog.storage.url.get_backend_name()]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await threads.run(lambda: catalog.storage.fetch(long, ()))
        await running

    asyncio.run(both())
    assert len(answers) == 1


def test_requests_that_cannot_be_interrupted_do_not_pile_up() -> None:
    threads, go_on, begun = RequestThreads(threads=2), threading.Event(), []

    def stuck() -> None:
        begun.append(1)
        go_on.wait(30)

    for _ in range(2):
        run_out_of_time(threads, stuck, 0.1)
    with pytest.raises(TooManyRequestsError, match="busy with 2 requests that have run out of time"):
        asyncio.run(threads.run(stuck))
    assert len(begun) == 2
    go_on.set()
    soon(lambda: not threads._interrupted)
    assert asyncio.run(threads.run(lambda: "answer")) == "answer"


def test_a_request_that_waits_for_a_thread_and_runs_out_of_time_does_not_begin() -> None:
    threads, go_on, begun = RequestThreads(threads=1), threading.Event(), []

    async def run() -> None:
        running = asyncio.create_task(threads.run(lambda: go_on.wait(30)))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await threads.run(lambda: begun.append(1))
        go_on.set()
        await running

    asyncio.run(run())
    assert not begun
