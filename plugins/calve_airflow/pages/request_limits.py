"""Limits of the requests for pages: Airflow's API server answers them and its own requests with the same threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from fastapi import HTTPException, Request

from catalog.storage.interrupting import Task, begin

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = 8
"""The number of requests that are worked on; each needs one of the server's 40 threads at a time."""

WAIT_SECONDS = 10.0
WORK_SECONDS = 30.0
"""The time after which the queries of a request are interrupted."""

BODY_SECONDS = 10.0
"""The time in which the body of a request must arrive."""

LARGEST_BODY = 1 << 20
"""The number of bytes of a body; the pages send a few hundred names at most."""

_INTERRUPTED = "calve.is_interrupted"


def was_interrupted(request: Request) -> bool:
    """Return whether a request has taken longer than `WORK_SECONDS`."""
    return bool(request.scope.get(_INTERRUPTED))


class RequestLimits:
    """Works on some requests at a time, lets others wait, and interrupts those that take too long."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    async def work(self, request: Request) -> AsyncIterator[None]:
        """Wait for the request's turn, and count it until its answer is made: a dependency of scope `function`.

        FastAPI reads the body before it solves the dependencies, and solves them in their order. So a request takes no
        turn while its body arrives, its user is checked by the dependencies before this one, or its answer is sent.

        Raises:
            HTTPException: 503; it has waited for `WAIT_SECONDS`.
        """
        try:
            await asyncio.wait_for(self._free.acquire(), WAIT_SECONDS)
        except TimeoutError:
            raise HTTPException(503, "Calve's pages answer other requests; load this page again") from None
        # The threads of the request inherit the context, and with it the task that is interrupted.
        task = Task()
        begin(task)

        def interrupt() -> None:
            request.scope[_INTERRUPTED] = True
            # In a thread, because it waits for the database.
            threading.Thread(target=task.interrupt, name="calve-interrupt", daemon=True).start()

        timer = asyncio.get_running_loop().call_later(WORK_SECONDS, interrupt)
        try:
            yield
        finally:
            timer.cancel()
            self._free.release()


class BodyLimits:
    """A middleware that refuses bodies that are too large, or do not arrive in time."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; reading its body raises `HTTPException` with 408 or 413 beyond the limits."""
        deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        size, is_complete = 0, False

        async def limited() -> Message:
            nonlocal size, is_complete
            if is_complete:
                # What comes next is the end of the connection.
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    408, f"the request's body did not arrive within {BODY_SECONDS:g} seconds; send it again"
                ) from None
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise HTTPException(413, f"the request's body exceeds {LARGEST_BODY:,} bytes; send less at a time")
            is_complete = not message.get("more_body", False)
            return message

        await self._app(scope, limited if scope["type"] == "http" else receive, send)
