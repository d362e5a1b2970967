"""Requests for pages leave threads of Airflow's API server for its own requests, and do not last for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from calve_airflow.pages import request_limits
from calve_airflow.pages.request_limits import AT_ONCE, RequestLimits, was_interrupted
from catalog import Catalog
from catalog.errors import CatalogUnavailableError

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i % 7 + 1 FROM n) SELECT count(*) FROM n"


def served(answer: Callable[[Request], Response]) -> httpx.AsyncClient:
    def refuse(_: Request) -> Response:
        return PlainTextResponse("busy", 503)

    app = Starlette(routes=[Route("/", answer)])
    app.add_middleware(RequestLimits, refuse=refuse)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://calve", timeout=60)


def test_some_requests_are_worked_on_and_others_wait_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "WAIT_SECONDS", 0.5)
    lock, is_over, running, most = threading.Lock(), threading.Event(), 0, 0

    def answer(_: Request) -> Response:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        assert is_over.wait(60)
        with lock:
            running -= 1
        return PlainTextResponse("done")

    async def ask() -> tuple[list[int], int]:
        async with served(answer) as client:
            asked = [asyncio.create_task(client.get("/")) for _ in range(3 * AT_ONCE)]
            refusals = asyncio.as_completed(asked, timeout=30)
            assert [(await next(refusals)).status_code for _ in range(2 * AT_ONCE)] == [503] * (2 * AT_ONCE)
            is_over.set()
            statuses = sorted(answer.status_code for answer in await asyncio.gather(*asked))
            return statuses, (await client.get("/")).status_code

    statuses, later = asyncio.run(ask())
    assert (statuses.count(200), later, most) == (AT_ONCE, 200, AT_ONCE)
    assert statuses.count(503) == 2 * AT_ONCE


def test_the_queries_of_a_long_request_are_interrupted(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "WORK_SECONDS", 0.5)

    def answer(request: Request) -> Response:
        try:
            with catalog.storage.read() as connection:
                connection.exec_driver_sql(ENDLESS)
        except CatalogUnavailableError:
            return PlainTextResponse(str(was_interrupted(request)))
        return PlainTextResponse("has an end")

    async def ask() -> str:
        async with served(answer) as client:
            return (await client.get("/")).text

    assert asyncio.run(ask()) == "True"
    # Other requests keep their connections.
    assert catalog.list_databases() is not None
