"""The number of open connections of each door, over all processes of a server."""

from __future__ import annotations

import resource
from collections import Counter, defaultdict
from collections.abc import Callable
from threading import Lock

from catalog.doors.serving.access import ANONYMOUS, Client
from catalog.doors.serving.shared import Bucket, SharedRecords
from catalog.errors.doors import TooManyRequestsError

MOST_PROCESSES = 257
"""The processes that `calve serve` allows, and the successor of one of them."""

_DOORS = ("hms", "glue", "rest", "metrics")


def connection_records() -> SharedRecords:
    """Return the memory of the numbers of connections: a bucket for each door, with a record for each process."""
    return SharedRecords("<q", buckets=len(_DOORS), records=MOST_PROCESSES)


def allow_open_files(count: int) -> None:
    """Raise the number of files that this process and its children may have open, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class Connections:
    """The connections of one door in one process, which knows those of the others; thread-safe.

    Clients that have not proved yet who they are may have half of the places, and those of one address a quarter: the
    others are for clients that have. While more than half of the places are taken, a client that has half of those of
    a process gets another one only for the connection that it has not used for longest. Anonymous clients, which cannot
    be told apart, share all places.
    """

    def __init__(self, door: str, limit: int, counts: SharedRecords, process: int, processes: int = 1) -> None:
        """Begin without connections, as a process does that takes the place of another.

        Args:
            limit: The number of connections that the door may have in all processes.
            process: The number of the process.
            processes: Their number, which share the places of unknown clients, and those of each known one.
        """
        self._key = _DOORS.index(door).to_bytes(8)
        self._limit = limit
        self._counts = counts
        self._process = process
        self._unknown: Counter[str] = Counter()
        self._most_unknown = max(1, limit // (2 * processes))
        self._most_of_address = max(1, limit // (4 * processes))
        self._known: Counter[str] = Counter()
        # Those that wait for a request; the one that has waited for longest is the first.
        self._idle: defaultdict[str, dict[Place, None]] = defaultdict(dict)
        self._most_of_client = max(1, limit // (2 * processes))
        self._lock = Lock()
        with counts.bucket(self._key) as bucket:
            bucket.put(process, 0)

    def open(self, address: str) -> Place | None:
        """Count a connection of an unknown client; return None, and count none, if there are too many."""
        with self._lock:
            if self._unknown[address] >= self._most_of_address or self._unknown.total() >= self._most_unknown:
                return None
            with self._counts.bucket(self._key) as bucket:
                if _total(bucket) >= self._limit:
                    return None
                bucket.put(self._process, bucket.records[self._process][0] + 1)
            self._unknown[address] += 1
        return Place(self, address)

    def prove(self, place: Place, client: Client) -> None:
        """Count a connection as that of a known client.

        Raises:
            TooManyRequestsError: The client has too many connections, and none that is idle.
        """
        with self._lock:
            ended = self._surplus(client) if client is not ANONYMOUS else None
            self._known[client.name] += 1
            self._forget(place.address)
        if ended is not None:
            ended.end()

    def rest(self, place: Place, client: Client) -> None:
        """Note that a connection of a known client waits for a request."""
        with self._lock:
            self._idle[client.name][place] = None

    def work(self, place: Place, client: Client) -> None:
        """Note that a connection of a known client waits no longer."""
        with self._lock:
            self._idle[client.name].pop(place, None)

    def close(self, place: Place, client: Client | None) -> None:
        """Count a connection less; its client is None if it is unknown."""
        with self._lock:
            if client is None:
                self._forget(place.address)
            else:
                self._known[client.name] -= 1
                self._idle[client.name].pop(place, None)
        with self._counts.bucket(self._key) as bucket:
            bucket.put(self._process, bucket.records[self._process][0] - 1)

    def _forget(self, address: str) -> None:
        """Count a connection no longer as that of an unknown client."""
        self._unknown[address] -= 1
        if not self._unknown[address]:
            del self._unknown[address]

    def _surplus(self, client: Client) -> Place | None:
        """Return the connection that has to end for another one of its client; None if there is a place for it."""
        if self._known[client.name] < self._most_of_client:
            return None
        with self._counts.bucket(self._key) as bucket:
            if _total(bucket) <= self._limit // 2:
                return None
        idle = self._idle[client.name]
        if not idle:
            raise TooManyRequestsError(
                f"{client.name} has {self._known[client.name]} connections to a process of the server, all of them in "
                "use; close some, or raise CALVE_DOOR_CONNECTIONS on the server"
            )
        longest = next(iter(idle))
        del idle[longest]
        return longest


def _total(bucket: Bucket) -> int:
    return sum(count for (count,) in bucket.records)


class Place:
    """The place of one connection.

    Attributes:
        address: From which the client connects.
        end: Closes the connection, which is idle, for another one; called by any thread.
    """

    def __init__(self, connections: Connections, address: str) -> None:
        """Keep the place of an unknown client."""
        self.address = address
        self.end: Callable[[], None] = lambda: None
        self._connections = connections
        self._client: Client | None = None

    @property
    def is_proved(self) -> bool:
        """Whether the client is known."""
        return self._client is not None

    def prove(self, client: Client = ANONYMOUS) -> None:
        """Note that the client has proved who it is; one connection may have the requests of several, and counts once.

        Raises:
            TooManyRequestsError: The client has too many connections, and none that is idle.
        """
        if self._client is None:
            self._connections.prove(self, client)
            self._client = client

    def rest(self) -> None:
        """Note that the connection waits for a request, and may end for another one of its client."""
        if self._client is not None:
            self._connections.rest(self, self._client)

    def work(self) -> None:
        """Note that a request has begun."""
        if self._client is not None:
            self._connections.work(self, self._client)

    def close(self) -> None:
        """Count the connection no longer."""
        self._connections.close(self, self._client)
