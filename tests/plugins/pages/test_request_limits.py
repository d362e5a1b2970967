"""Requests for pages leave threads of Airflow's API server for its own requests, and do not last for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI, Form
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from calve_airflow.pages import request_limits
from calve_airflow.pages.request_limits import AT_ONCE, LARGEST_BODY, BodyLimits, RequestLimits, was_interrupted
from catalog import Catalog
from catalog.errors import CatalogUnavailableError

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i % 7 + 1 FROM n) SELECT count(*) FROM n"


FORM = {"content-type": "application/x-www-form-urlencoded"}


def application(answer: Callable[[Request], Response]) -> FastAPI:
    app = FastAPI(dependencies=[Depends(RequestLimits().work, scope="function")])
    app.add_middleware(BodyLimits)
    app.add_api_route("/", answer, response_model=None)

    @app.post("/")
    def release(reason: Annotated[str, Form()]) -> Response:
        return PlainTextResponse(f"{len(reason)} characters")

    return app


def served(answer: Callable[[Request], Response]) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(application(answer)), base_url="http://calve", timeout=60)


def answer_at_once(request: Request) -> Response:
    return PlainTextResponse("done")


async def half_a_body() -> AsyncIterator[bytes]:
    yield b"reason="
    await asyncio.sleep(60)


def test_some_requests_are_worked_on_and_others_wait_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "WAIT_SECONDS", 0.5)
    lock, is_over, running, most = threading.Lock(), threading.Event(), 0, 0

    def answer(request: Request) -> Response:
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


def test_bodies_that_do_not_arrive_take_no_turn_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(request_limits, "BODY_SECONDS", 1.0)

    async def ask() -> tuple[int, list[int]]:
        async with served(answer_at_once) as client:
            halves = [
                asyncio.create_task(client.post("/", content=half_a_body(), headers=FORM)) for _ in range(AT_ONCE + 1)
            ]
            await asyncio.sleep(0.1)
            assert not any(half.done() for half in halves)
            status = (await client.get("/")).status_code
            return status, [answer.status_code for answer in await asyncio.gather(*halves)]

    assert asyncio.run(ask()) == (200, [408] * (AT_ONCE + 1))


def test_a_large_body_is_refused_before_it_is_kept() -> None:
    async def ask(size: int) -> tuple[int, str]:
        async with served(answer_at_once) as client:
            answer = await client.post("/", content=b"reason=" + b"a" * size, headers=FORM)
            return answer.status_code, answer.text

    assert asyncio.run(ask(LARGEST_BODY - 10)) == (200, f"{LARGEST_BODY - 10} characters")
    assert asyncio.run(ask(LARGEST_BODY))[0] == 413


def test_answers_that_are_not_read_keep_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "WAIT_SECONDS", 0.1)
    app = application(answer_at_once)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"", "root_path": ""}

    async def receive() -> dict[str, object]:
        return {"type": "http.request"}

    async def ask() -> int:
        begun: asyncio.Queue[int] = asyncio.Queue()

        async def send(message: dict[str, object]) -> None:
            begun.put_nowait(int(str(message["status"])))
            await asyncio.sleep(60)

        unread = [asyncio.create_task(app(dict(scope), receive, send)) for _ in range(AT_ONCE)]  # type: ignore[arg-type]
        assert [await begun.get() for _ in unread] == [200] * AT_ONCE
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://calve") as client:
            status = (await client.get("/")).status_code
        for request in unread:
            request.cancel()
        return status

    assert asyncio.run(ask()) == 200
