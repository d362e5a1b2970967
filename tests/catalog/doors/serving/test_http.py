"""What the HTTP front doors share: ids, limits, headers, errors, `/health` and `/metrics`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from sqlalchemy import text

from catalog import Catalog
from catalog.doors.serving.access import ANONYMOUS, Access, Client, Key, Role
from catalog.doors.serving.bodies import CLIENT, prove
from catalog.doors.serving.context import Serving
from catalog.doors.serving.http import OPERATION, STATUS, Wrapped
from catalog.doors.serving.http_server import http_door
from catalog.doors.serving.limits import Limits
from catalog.doors.serving.metrics import Metrics
from catalog.storage.upgrade import VERSION_TABLE

LIMITS = Limits(body_bytes=1_000, nesting=5, request_seconds=0.5)
KEYS = Access({"SPARK": Key("SPARK", "a-long-secret-key", Client("spark", Role.READER))})


@pytest.fixture
def catalog(sqlite_url: str) -> Iterator[Catalog]:
    with Catalog.open(sqlite_url) as catalog:
        yield catalog


@pytest.fixture
def serving(catalog: Catalog, tmp_path: Path) -> Serving:
    return Serving(catalog, Metrics(tmp_path), limits=LIMITS)


def application() -> FastAPI:
    app = FastAPI()

    @app.post("/echo")
    async def echo(request: Request) -> Any:
        request.scope[OPERATION], request.scope[CLIENT] = "Echo", ANONYMOUS
        return json.loads(await request.body())

    @app.get("/databases")
    async def databases(request: Request) -> Any:
        prove(request.scope, Client(request.headers["name"], Role.READER))

    @app.get("/fails")
    async def fails(request: Request) -> Any:
        raise RuntimeError("a secret of the server")

    @app.get("/fails-slowly")
    async def fails_slowly(request: Request) -> Any:
        raise TimeoutError("a secret of the server")

    @app.get("/slow")
    def slow() -> None:
        time.sleep(2)

    @app.get("/named")
    async def named(request: Request) -> None:
        request.scope[STATUS] = "EntityNotFoundException"

    return app


def ask(serving: Serving, method: str, path: str, app: Any = None, **options: Any) -> httpx.Response:
    wrapped = Wrapped(app or application(), "rest", serving)

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app=wrapped)  # type: ignore[arg-type]  # httpx types scopes more loosely
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8181") as client:
            return await client.request(method, path, **options)

    return asyncio.run(request())


def test_an_answer_has_an_id_and_headers_and_is_counted_and_logged(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "calve.doors")
    response = ask(serving, "POST", "/echo", json={"a": [1]}, headers={"X-Request-Id": "run-7"})
    assert response.json() == {"a": [1]}
    assert response.headers["x-request-id"] == "run-7"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert 'requests_total{door="rest",operation="Echo",status="ok"} 1' in serving.metrics.text()
    fields = caplog.records[-1].fields  # type: ignore[attr-defined]  # set by `extra`
    assert {"request_id": "run-7", "operation": "Echo", "client": "anonymous", "status": "ok"}.items() <= fields.items()


def test_an_id_that_would_break_a_log_is_replaced(serving: Serving) -> None:
    response = ask(serving, "POST", "/echo", json=1, headers={"X-Request-Id": "a b" * 100})
    assert len(response.headers["x-request-id"]) == 32


@pytest.mark.parametrize("path", ["/fails", "/fails-slowly"])
def test_an_unexpected_error_shows_nothing(serving: Serving, path: str, caplog: pytest.LogCaptureFixture) -> None:
    response = ask(serving, "GET", path)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    assert response.headers["x-request-id"] in response.json()["error"]["message"]
    assert "a secret of the server" in caplog.text


@pytest.mark.parametrize(
    ("body", "status"),
    [(b'"' + b"x" * 998 + b'"', 200), (b"x" * 1_001, 413), (b"[" * 5 + b"]" * 5, 200), (b"[" * 6 + b"]" * 6, 413)],
)
def test_bodies_have_a_size_and_a_nesting(serving: Serving, body: bytes, status: int) -> None:
    assert ask(serving, "POST", "/echo", content=body).status_code == status

    async def chunks() -> Any:
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    assert ask(serving, "POST", "/echo", content=chunks()).status_code == status


def test_a_request_has_a_time(serving: Serving) -> None:
    since = time.monotonic()
    response = ask(serving, "GET", "/slow")
    assert response.status_code == 504
    assert "no answer within 0.5 seconds" in response.json()["error"]["message"]
    assert time.monotonic() - since < 3


def test_rates(catalog: Catalog, tmp_path: Path) -> None:
    serving = Serving(catalog, Metrics(tmp_path), limits=Limits(requests_per_second=1))
    wrapped = Wrapped(application(), "rest", serving)

    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(app=wrapped)  # type: ignore[arg-type]  # httpx types scopes more loosely
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [(await client.get("/named")).status_code for _ in range(4)]

    assert asyncio.run(statuses()) == [200, 200, 429, 429]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example:8181"}, {"Host": ""}],
)
def test_pages_of_the_web_cannot_use_a_server_without_credentials(serving: Serving, headers: dict[str, str]) -> None:
    assert ask(serving, "POST", "/echo", json=1, headers=headers).status_code == 403


def test_hosts_are_free_where_credentials_are_set(catalog: Catalog, tmp_path: Path) -> None:
    serving = Serving(catalog, Metrics(tmp_path), access=KEYS)
    assert ask(serving, "POST", "/echo", json=1, headers={"Host": "calve.example"}).status_code == 200


def test_health_is_that_of_the_catalog(serving: Serving) -> None:
    response = ask(serving, "GET", "/health")
    assert (response.status_code, response.json()["status"]) == (200, "ok")
    with serving.catalog.storage.write() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0001'"))
    response = ask(serving, "GET", "/health")
    assert (response.status_code, response.json()["problem"]) == (503, "CatalogVersionError")
    assert "sqlite" not in response.text


def test_metrics_need_the_keys_of_a_client_where_there_are_some(catalog: Catalog, tmp_path: Path) -> None:
    serving = Serving(catalog, Metrics(tmp_path), access=KEYS)
    assert ask(serving, "GET", "/metrics").status_code == 401
    for user in ("SPARK:wrong", "OTHER:a-long-secret-key", "SPARK", "\N{SNOWMAN}:x"):
        header = f"Basic {b64encode(user.encode()).decode()}"
        assert ask(serving, "GET", "/metrics", headers={"Authorization": header}).status_code == 401
    response = ask(serving, "GET", "/metrics", auth=("SPARK", "a-long-secret-key"))
    assert response.status_code == 200
    assert "# TYPE calve_door_requests_total counter" in response.text


def test_the_status_of_a_protocol_is_counted(serving: Serving) -> None:
    ask(serving, "GET", "/named")
    ask(serving, "GET", "/unknown/path")
    text = serving.metrics.text()
    assert 'requests_total{door="rest",operation="named",status="EntityNotFoundException"} 1' in text
    assert 'requests_total{door="rest",operation="unknown",status="404"} 1' in text


class Answering:
    """A door's server on a free port, with the limits of connections."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        serve = http_door("rest", lambda _serving: application())(serving)  # type: ignore[arg-type, return-value]
        self.thread = threading.Thread(target=serve, args=(self.listener,), daemon=True)

    def __enter__(self) -> int:
        self.thread.start()
        return int(self.listener.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self.serving.stop.set()
        self.thread.join(30)


def is_answered(port: int, address: str = "127.0.0.1") -> bool:
    transport = httpx.HTTPTransport(local_address=address)
    with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
        try:
            return client.get("/health").status_code == 200
        except httpx.TransportError:
            return False


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1"])
def test_half_sent_requests_of_one_address_leave_places_and_end_soon(
    catalog: Catalog, tmp_path: Path, sent: bytes
) -> None:
    limits = Limits(connections=16, proof_seconds=1.0, stop_seconds=1.0)
    serving = Serving(catalog, Metrics(tmp_path), KEYS, limits)
    with Answering(serving) as port, contextlib.ExitStack() as stack:
        began = time.monotonic()
        halves = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)) for _ in range(12)]
        for half in halves:
            with contextlib.suppress(OSError):
                half.sendall(sent)
        assert not is_answered(port)
        assert is_answered(port, "127.0.0.2")
        for half in halves:
            with contextlib.suppress(ConnectionError):
                while half.recv(10_000):
                    pass
        assert time.monotonic() - began < 5
        assert is_answered(port)


def test_idle_connections_of_one_client_leave_places_for_others(catalog: Catalog, tmp_path: Path) -> None:
    serving = Serving(catalog, Metrics(tmp_path), KEYS, Limits(connections=16, stop_seconds=1.0))
    with Answering(serving) as port, contextlib.ExitStack() as stack:

        def opened(name: str) -> httpx.Client:
            client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"name": name}))
            assert client.get("/databases").status_code == 200
            return client

        for _ in range(40):
            opened("reader")
        owners = [opened("owner") for _ in range(5)]
        assert [owner.get("/databases").status_code for owner in owners] == [200] * 5
