"""The number of open connections of each door, over all processes of a server."""

from __future__ import annotations

import resource
from collections import Counter
from threading import Lock

from catalog.doors.serving.shared import SharedRecords

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
    others are for clients that have.
    """

    def __init__(self, door: str, limit: int, counts: SharedRecords, process: int, processes: int = 1) -> None:
        """Begin without connections, as a process does that takes the place of another.

        Args:
            limit: The number of connections that the door may have in all processes.
            process: The number of the process.
            processes: Their number, which share the places of unknown clients.
        """
        self._key = _DOORS.index(door).to_bytes(8)
        self._limit = limit
        self._counts = counts
        self._process = process
        self._unknown: Counter[str] = Counter()
        self._most_unknown = max(1, limit // (2 * processes))
        self._most_of_address = max(1, limit // (4 * processes))
        self._lock = Lock()
        with counts.bucket(self._key) as bucket:
            bucket.put(process, 0)

    def open(self, address: str) -> Place | None:
        """Count a connection of an unknown client; return None, and count none, if there are too many."""
        with self._lock:
            if self._unknown[address] >= self._most_of_address or self._unknown.total() >= self._most_unknown:
                return None
            with self._counts.bucket(self._key) as bucket:
                if sum(count for (count,) in bucket.records) >= self._limit:
                    return None
                bucket.put(self._process, bucket.records[self._process][0] + 1)
            self._unknown[address] += 1
        return Place(self, address)

    def forget(self, address: str) -> None:
        """Count a connection no longer as that of an unknown client."""
        with self._lock:
            self._unknown[address] -= 1
            if not self._unknown[address]:
                del self._unknown[address]

    def close(self) -> None:
        """Count a connection less."""
        with self._counts.bucket(self._key) as bucket:
            bucket.put(self._process, bucket.records[self._process][0] - 1)


class Place:
    """The place of one connection."""

    def __init__(self, connections: Connections, address: str) -> None:
        """Keep the place of an unknown client, who connects from an address."""
        self._connections = connections
        self._address = address
        self.is_proved = False

    def prove(self) -> None:
        """Note that the client has proved who it is."""
        if not self.is_proved:
            self.is_proved = True
            self._connections.forget(self._address)

    def close(self) -> None:
        """Count the connection no longer."""
        self.prove()
        self._connections.close()
