"""Limits of the front doors: sizes, times, connections and rates."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from catalog.doors.serving.shared import SharedRecords
from catalog.errors import InvalidConfigurationError
from catalog.errors.doors import RequestTooLargeError, TooManyRequestsError
from catalog.settings.environment import whole_number

_BUCKETS, _RECORDS = 2**11, 8
"""The rates of 16,000 clients. In a full bucket, the one that has been idle for longest is forgotten."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Attributes:
        body_bytes: Size of a request.
        nesting: Levels of lists and objects in JSON, and of structures in Thrift.
        connections: Open connections of one door in all processes.
        requests_per_second: Of one client in all processes, by its address; 0 for any number. Short bursts may have
            twice as many.
        idle_seconds: How long a connection may be open without a request.
        body_seconds: How long the rest of a request, or of an answer, may take to be transferred.
        proof_seconds: How long a connection may be open before its client has proved who it is.
        request_seconds: How long an HTTP request may take in all.
        stop_seconds: How long requests may go on after the server was told to stop.
    """

    body_bytes: int = 128 * 1024 * 1024
    nesting: int = 100
    connections: int = 1_000
    requests_per_second: float = 0.0
    idle_seconds: float = 3_600.0
    body_seconds: float = 60.0
    proof_seconds: float = 10.0
    request_seconds: float = 600.0
    stop_seconds: float = 20.0

    @classmethod
    def from_settings(cls) -> Limits:
        """Return the limits of the settings `CALVE_DOOR_…`.

        Raises:
            InvalidConfigurationError: A setting is not a whole number, or 0 where one is needed.
        """
        return cls(
            body_bytes=_least_one("CALVE_DOOR_BODY_BYTES", cls.body_bytes),
            connections=_least_one("CALVE_DOOR_CONNECTIONS", cls.connections),
            requests_per_second=whole_number("CALVE_DOOR_RATE", 0),
            request_seconds=_least_one("CALVE_DOOR_SECONDS", int(cls.request_seconds)),
        )

    @property
    def unknown_bytes(self) -> int:
        """The bytes that a door of one process holds of requests whose clients are not known yet."""
        return 2 * self.body_bytes

    def require_size(self, size_bytes: int) -> None:
        """Refuse a request that is too large.

        Raises:
            RequestTooLargeError: It is.
        """
        if size_bytes > self.body_bytes:
            raise RequestTooLargeError(
                f"the request has {size_bytes:,} bytes or more, {self.body_bytes:,} are allowed; send it in parts, "
                "or raise CALVE_DOOR_BODY_BYTES on the server"
            )

    def require_flat(self, json: bytes) -> None:
        """Refuse JSON that is nested too deeply, before a parser sees it; other errors in it are the parser's.

        Raises:
            RequestTooLargeError: It is.
        """
        if json.count(b"[") + json.count(b"{") <= self.nesting:
            return
        depth = 0
        for token in _TOKEN.finditer(json):
            first = json[token.start()]
            depth += first in b"[{"
            depth -= first in b"]}"
            if depth > self.nesting:
                raise RequestTooLargeError(
                    f"lists and objects of the request are nested more than {self.nesting} levels deep; reduce the "
                    "nesting"
                )


def _least_one(variable: str, default: int) -> int:
    number = whole_number(variable, default)
    if not number:
        raise InvalidConfigurationError(f"{variable} is 0, expected 1 or more")
    return number


def rate_records() -> SharedRecords:
    """Return the memory of the rates of clients, for all processes of a server."""
    return SharedRecords("<dd16s", buckets=_BUCKETS, records=_RECORDS)


class Rates:
    """The rates of requests of all clients of one door; thread-safe."""

    def __init__(
        self,
        requests_per_second: float,
        door: str = "",
        known: SharedRecords | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the rate that each client may have; 0 for any.

        Args:
            known: What all processes of the server know of the clients' rates; None for a single process.
            clock: Returns seconds, the same ones in all processes.
        """
        self._rate = requests_per_second
        self._burst = max(1.0, 2 * requests_per_second)
        self._door = door
        self._known = known or rate_records()
        self._clock = clock

    def take(self, client: str) -> None:
        """Count a request.

        Raises:
            TooManyRequestsError: The client has sent too many.
        """
        if not self._rate:
            return
        key = blake2b(f"{self._door} {client}".encode(errors="replace"), digest_size=16).digest()
        with self._known.bucket(key) as bucket:
            now = self._clock()
            records = bucket.records
            number = next((number for number, record in enumerate(records) if record[2] == key), None)
            left, since = (self._burst, now) if number is None else records[number][:2]
            left = min(self._burst, left + (now - since) * self._rate)
            if number is None:
                # In the place of the client that has been idle for longest.
                number = min(range(_RECORDS), key=lambda number: records[number][1])
            bucket.put(number, left - 1 if left >= 1 else left, now, key)
        if left < 1:
            raise TooManyRequestsError(
                f"the client sends more than {self._rate:g} requests a second; wait, or raise CALVE_DOOR_RATE on the "
                "server"
            )
