"""The bodies of HTTP requests: received when the application asks for them, within the limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from catalog.doors.serving.limits import Limits
from catalog.errors.doors import RequestTooLargeError, TooManyRequestsError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

CLIENT = "calve.client"
"""Key of a request's scope: its client. An application sets it as soon as it is known, best before the body is read."""

_FORM = b"application/x-www-form-urlencoded"
_LARGE = 1024 * 1024
"""Larger bodies are checked in a thread, while the server goes on with other requests."""

_FREE = 65_536
"""Bytes of each body that do not count as held for an unknown client: connections are limited, too."""


class ClientVanished(Exception):
    """The client has closed the connection before its request was complete."""


class UnknownBodies:
    """The bytes that one door of a process holds for clients that have not proved yet who they are."""

    def __init__(self, most_bytes: int) -> None:
        """Set how many bytes that may be."""
        self._left = most_bytes

    def hold(self, size_bytes: int) -> None:
        """Count bytes.

        Raises:
            TooManyRequestsError: They would be too many.
        """
        if size_bytes > self._left:
            raise TooManyRequestsError(
                "the server holds as many bytes of requests as it may whose clients are known only by the whole "
                "request; try again later, or send fewer or smaller ones at once"
            )
        self._left -= size_bytes

    def release(self, size_bytes: int) -> None:
        """Count bytes no longer."""
        self._left += size_bytes


class Body:
    """The body of one request, which the application receives in one piece by calling it."""

    def __init__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, limits: Limits, unknown: UnknownBodies
    ) -> None:
        """Receive nothing yet.

        Args:
            unknown: Counts the body unless its client is known when it is received.
        """
        self._scope = scope
        self._headers = headers
        self._receive = receive
        self._limits = limits
        self._unknown = unknown
        self._held = 0
        self._is_begun = False

    async def __call__(self) -> Message:
        """Return the whole body, and afterwards what the server sends.

        Raises:
            RequestTooLargeError: It is too large, too slow or nested too deeply.
            TooManyRequestsError: Too much is held for unknown clients.
            ClientVanished: The client closes the connection.
        """
        if self._is_begun:
            return await self._receive()
        parts: list[bytes] = []
        await self._receive_all(parts)
        body = b"".join(parts)
        parts.clear()
        await self._require_flat(body)
        return {"type": "http.request", "body": body, "more_body": False}

    async def skip(self) -> None:
        """Receive and forget a body that the application has not asked for: its client sends all of it, then reads."""
        if self._is_begun or self._headers.get(b"expect", b"").lower() == b"100-continue":
            return
        with contextlib.suppress(ClientVanished, RequestTooLargeError):
            # The answer is sent all the same.
            await self._receive_all(None)

    def close(self) -> None:
        """Count the body no longer."""
        self._unknown.release(self._held)
        self._held = 0

    async def _receive_all(self, parts: list[bytes] | None) -> None:
        """Receive the parts of the body, and append them to a list; None to forget them."""
        self._is_begun = True
        length = self._headers.get(b"content-length", b"")
        if length.isdigit():
            self._limits.require_size(int(length))
        is_counted, size, has_more = parts is not None and CLIENT not in self._scope, 0, True
        refusal: TooManyRequestsError | None = None
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while has_more:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientVanished
                    part = message.get("body", b"")
                    size += len(part)
                    self._limits.require_size(size)
                    has_more = bool(message.get("more_body"))
                    if parts is None:
                        continue
                    parts.append(part)
                    if is_counted:
                        try:
                            self._hold(size)
                        except TooManyRequestsError as error:
                            # The client sends all of its request before it reads the answer.
                            parts, refusal = None, error
        except TimeoutError:
            raise RequestTooLargeError(
                f"the body did not arrive within {self._limits.body_seconds:g} seconds; send it in parts"
            ) from None
        if refusal is not None:
            raise refusal

    def _hold(self, size_bytes: int) -> None:
        if (more := size_bytes - _FREE - self._held) > 0:
            self._unknown.hold(more)
            self._held += more

    async def _require_flat(self, body: bytes) -> None:
        if self._headers.get(b"content-type", b"").startswith(_FORM):
            return
        if len(body) > _LARGE:
            await asyncio.to_thread(self._limits.require_flat, body)
        else:
            self._limits.require_flat(body)
