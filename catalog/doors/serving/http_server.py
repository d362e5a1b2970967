"""The server of an HTTP front door in one process: uvicorn on a listening socket that several processes share."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from catalog.doors.serving.bodies import PLACE
from catalog.doors.serving.connections import Connections, Place
from catalog.doors.serving.context import Serving
from catalog.doors.serving.http import Application, ErrorBody, Wrapped, plain_error

_HEAD_BYTES = 65_536
"""Bytes of the first line and the headers of a request."""

_KEEP_ALIVE_SECONDS = 75
_FIRST_SECONDS = 1.0
"""How long a server that stops waits for the first request of a new connection."""

_LOOK_SECONDS = 0.2


def http_door(
    door: str, application: Callable[[Serving], Application] | None, error_body: ErrorBody = plain_error
) -> Callable[[Serving], Callable[[socket.socket], None]]:
    """Return the function that prepares an HTTP door in a process, and returns the one that serves until the stop.

    Args:
        application: Creates the application of the protocol; None for `/health` and `/metrics` only.
        error_body: How the protocol writes errors that occur outside its application.
    """

    def prepare(serving: Serving) -> Callable[[socket.socket], None]:
        app = application(serving) if application is not None else None
        config = _config(Wrapped(app, door, serving, error_body), door, serving)

        def serve(listener: socket.socket) -> None:
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                runner.run(_serve(config, serving, listener))

        return serve

    return prepare


def _config(application: Wrapped, door: str, serving: Serving) -> uvicorn.Config:
    tls = serving.tls
    config = uvicorn.Config(
        application,
        ws="none",
        lifespan="auto",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(serving.limits.stop_seconds),
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )
    config.load()
    config.http_protocol_class = _guarded(config.http_protocol_class, door, serving)
    return config


async def _serve(config: uvicorn.Config, serving: Serving, listener: socket.socket) -> None:
    server = uvicorn.Server(config)

    async def stop() -> None:
        while not serving.stop.is_set():
            await asyncio.sleep(_LOOK_SECONDS)
        server.should_exit = True

    watching = asyncio.create_task(stop())
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


def _guarded(protocol: Any, door: str, serving: Serving) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a limit of connections, and of the size and time of a request's headers."""
    members = {"door": door, "serving": serving, "counted": serving.connections(door)}
    return type("GuardedProtocol", (_Guard, protocol), members)


class _Guard:
    """A mix-in for uvicorn's protocol, as its first base class."""

    door: str
    serving: Serving
    counted: Connections
    _waiting: asyncio.TimerHandle | None = None
    _proof: asyncio.TimerHandle | None = None
    _place: Place | None = None
    _head_bytes = 0
    _is_last = False

    def connection_made(self: Any, transport: asyncio.Transport) -> None:
        """Count a connection, or close it if there are too many."""
        super().connection_made(transport)  # type: ignore[misc]  # of uvicorn's protocol
        self._place = self.counted.open(str(self.client[0]) if self.client else "")
        if self._place is None:
            transport.abort()
            return
        self._place.end = lambda: self.loop.call_soon_threadsafe(self._end_idle)
        self.serving.metrics.connected(self.door, +1)
        self._wait()
        self._proof = self.loop.call_later(self.serving.limits.proof_seconds, self._require_proof)

    def connection_lost(self: Any, error: Exception | None) -> None:
        """Count a connection less."""
        self._wait_no_longer()
        if self._proof is not None:
            self._proof.cancel()
        if self._place is not None:
            self._place.close()
            self.serving.metrics.connected(self.door, -1)
        super().connection_lost(error)  # type: ignore[misc]  # of uvicorn's protocol

    def data_received(self: Any, data: bytes) -> None:
        """Take data, and close a connection whose headers are too long."""
        super().data_received(data)  # type: ignore[misc]  # of uvicorn's protocol
        if self.cycle is not None:
            # The application has not begun yet.
            self.cycle.scope[PLACE] = self._place
        if self._is_last and self.cycle is not None:
            self.cycle.keep_alive = False
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_no_longer()
            self._head_bytes = 0
            self._place.work()
            return
        self._head_bytes += len(data)
        if self._head_bytes > _HEAD_BYTES:
            self.transport.abort()
        elif self._waiting is None:
            self._wait()

    def on_response_complete(self: Any) -> None:
        """Note that the connection is idle, unless a further request has come already."""
        super().on_response_complete()  # type: ignore[misc]  # of uvicorn's protocol
        if self.cycle.response_complete:
            self._place.rest()

    def shutdown(self: Any) -> None:
        """Close the connection after its current request; that of a new connection may be on its way."""
        if self.cycle is None and not self._is_last:
            self._is_last = True
            self.loop.call_later(_FIRST_SECONDS, self.shutdown)
        else:
            super().shutdown()  # type: ignore[misc]  # of uvicorn's protocol

    def _end_idle(self: Any) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def _require_proof(self: Any) -> None:
        """Close a connection whose client has not proved yet who it is, after the request that is being answered."""
        if self._place.is_proved:
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
        else:
            self._proof = self.loop.call_later(_FIRST_SECONDS, self._require_proof)

    def _wait(self: Any) -> None:
        self._waiting = self.loop.call_later(self.serving.limits.body_seconds, self.transport.abort)

    def _wait_no_longer(self: Any) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
