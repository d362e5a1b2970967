"""Limits of the requests for pages: Airflow's API server answers them and its own requests with the same threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from catalog.storage.interrupting import Task, begin

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

AT_ONCE = 8
"""The number of requests that are worked on; each needs one of the server's 40 threads at a time."""

WAIT_SECONDS = 10.0
WORK_SECONDS = 30.0
"""The time after which the queries of a request are interrupted."""

_INTERRUPTED = "calve.is_interrupted"


def was_interrupted(request: Request) -> bool:
    """Return whether a request has taken longer than `WORK_SECONDS`."""
    return bool(request.scope.get(_INTERRUPTED))


class RequestLimits:
    """A middleware that works on some requests at a time, lets others wait, and interrupts those that take too long.

    Args:
        refuse: Makes the answer to a request that has waited in vain.
    """

    def __init__(self, app: ASGIApp, refuse: Callable[[Request], Response]) -> None:
        self._app = app
        self._refuse = refuse
        self._free = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on when it is its turn."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await asyncio.wait_for(self._free.acquire(), WAIT_SECONDS)
        except TimeoutError:
            await self._refuse(Request(scope))(scope, receive, send)
            return
        try:
            await self._work(self._app(scope, receive, send), scope)
        finally:
            self._free.release()

    @staticmethod
    async def _work(answer: Awaitable[None], scope: Scope) -> None:
        """Answer a request; its threads inherit the context, and with it the task that is interrupted."""
        task = Task()
        begin(task)

        def interrupt() -> None:
            scope[_INTERRUPTED] = True
            # In a thread, because it waits for the database.
            threading.Thread(target=task.interrupt, name="calve-interrupt", daemon=True).start()

        timer = asyncio.get_running_loop().call_later(WORK_SECONDS, interrupt)
        try:
            await answer
        finally:
            timer.cancel()
