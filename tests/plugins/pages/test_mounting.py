"""The pages are made once: when the server starts, or at the first request."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from calve_airflow.pages.mounting import Pages, Preparation


async def receive() -> dict[str, Any]:
    return {"type": "lifespan.startup"}


async def send(_: Any) -> None:
    """Ignore what the application sends."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to make the pages, and what they are asked for."""
    done: list[str] = []

    async def pages(scope: Any, *_: Any) -> None:
        done.append(scope["type"])

    def created() -> Any:
        done.append("created")
        return pages

    # The real module imports the API server, which takes seconds.
    module = SimpleNamespace(create_application=created, read_ahead=lambda: done.append("read ahead"))
    monkeypatch.setitem(sys.modules, "calve_airflow.pages.application", module)
    return done


def test_pages_are_prepared_when_the_server_starts(calls: list[str]) -> None:
    pages, heard = Pages(), []

    async def server(scope: Any, *_: Any) -> None:
        heard.append(scope["type"])

    async def started() -> None:
        await Preparation(server, pages)({"type": "lifespan"}, receive, send)
        await Preparation(server, pages)({"type": "http"}, receive, send)
        for thread in threading.enumerate():
            if thread.name == "calve-pages":
                thread.join()
        await pages({"type": "http"}, receive, send)

    asyncio.run(started())
    assert heard == ["lifespan", "http"]
    assert calls == ["created", "read ahead", "http"]


def test_a_request_before_makes_them_once(calls: list[str]) -> None:
    pages = Pages()

    async def asked() -> None:
        await asyncio.gather(*(pages({"type": "http"}, receive, send) for _ in range(3)))

    asyncio.run(asked())
    assert calls == ["created", "http", "http", "http"]
