"""The bodies of HTTP requests: received when the application asks for them, within the limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from catalog.doors.serving.access import Client
from catalog.doors.serving.limits import Limits
from catalog.errors.doors import RequestTooLargeError, SlowRequestError, TooManyRequestsError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

CLIENT, PLACE = "calve.client", "calve.place"
"""Keys of a request's scope: its client (`prove`), and the place of its connection."""

_FORM = b"application/x-www-form-urlencoded"
_LARGE = 1024 * 1024
"""Larger bodies are checked in a thread, while the server goes on with other requests."""

_SLOWEST = 262_144
"""Bytes a second that a client must send to get more time for a request that proves who it is."""

_FREE = 65_536
"""Bytes of each body that do not count as held for an unknown client: connections are limited, too."""


class ClientVanished(Exception):
    """The client has closed the connection before its request was complete."""


def prove(scope: Scope, client: Client) -> None:
    """Set the client of a request as soon as it is known, best before the body is read.

    Raises:
        TooManyRequestsError: The client has too many connections, and none that is idle.
    """
    scope[CLIENT] = client
    if (place := scope.get(PLACE)) is not None:
        place.prove(client)


class UnknownBodies:
    """The bytes that one door of a process holds for clients that have not proved yet who they are.

    Those of one address may have half of them.
    """

    def __init__(self, most_bytes: int) -> None:
        """Set how many bytes that may be."""
        self._left = most_bytes
        self._most_of_address = most_bytes // 2
        self._held: Counter[str] = Counter()

    def hold(self, address: str, size_bytes: int) -> None:
        """Count bytes.

        Raises:
            TooManyRequestsError: They would be too many.
        """
        if size_bytes > self._left or self._held[address] + size_bytes > self._most_of_address:
            raise TooManyRequestsError(
                "the server holds as many bytes of requests as it may whose clients are known only by the whole "
                "request; try again later, or send fewer or smaller ones at once"
            )
        self._left -= size_bytes
        self._held[address] += size_bytes

    def release(self, address: str, size_bytes: int) -> None:
        """Count bytes no longer."""
        self._left += size_bytes
        self._held[address] -= size_bytes
        if not self._held[address]:
            del self._held[address]


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
        self._address = str((scope.get("client") or ("", 0))[0])
        self._held = 0
        self._is_begun = False

    async def __call__(self) -> Message:
        """Return the whole body, and afterwards what the server sends.

        Raises:
            RequestTooLargeError: It is too large, or nested too deeply.
            SlowRequestError: It does not arrive in time.
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
        with contextlib.suppress(ClientVanished, RequestTooLargeError, SlowRequestError):
            # The answer is sent all the same.
            await self._receive_all(None)

    def close(self) -> None:
        """Count the body no longer."""
        self._unknown.release(self._address, self._held)
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
            async with asyncio.timeout(self._seconds(0)) as deadline:
                began = asyncio.get_running_loop().time()
                while has_more:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientVanished
                    part = message.get("body", b"")
                    size += len(part)
                    deadline.reschedule(began + self._seconds(size))
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
            raise SlowRequestError(
                f"the body of the request did not arrive within {self._seconds(size):g} seconds; send it again, faster"
            ) from None
        if refusal is not None:
            raise refusal

    def _seconds(self, size_bytes: int) -> float:
        """Return how long the body may take of which some bytes have arrived."""
        if CLIENT in self._scope:
            return self._limits.body_seconds
        return min(self._limits.body_seconds, self._limits.proof_seconds + size_bytes // _SLOWEST)

    def _hold(self, size_bytes: int) -> None:
        if (more := size_bytes - _FREE - self._held) > 0:
            self._unknown.hold(self._address, more)
            self._held += more

    async def _require_flat(self, body: bytes) -> None:
        if self._headers.get(b"content-type", b"").startswith(_FORM):
            return
        if len(body) > _LARGE:
            await asyncio.to_thread(self._limits.require_flat, body)
        else:
            self._limits.require_flat(body)
