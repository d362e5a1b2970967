"""The number of open connections of each door, over all processes of a server."""

from __future__ import annotations

import resource

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
    """The connections of one door in one process, which knows those of the others; thread-safe."""

    def __init__(self, door: str, limit: int, counts: SharedRecords, process: int) -> None:
        """Begin without connections, as a process does that takes the place of another.

        Args:
            limit: The number of connections that the door may have in all processes.
            process: The number of the process.
        """
        self._key = _DOORS.index(door).to_bytes(8)
        self._limit = limit
        self._counts = counts
        self._process = process
        with counts.bucket(self._key) as bucket:
            bucket.put(process, 0)

    def open(self) -> bool:
        """Count a connection; return False, and count none, if there are too many."""
        with self._counts.bucket(self._key) as bucket:
            if sum(count for (count,) in bucket.records) >= self._limit:
                return False
            bucket.put(self._process, bucket.records[self._process][0] + 1)
            return True

    def close(self) -> None:
        """Count a connection less."""
        with self._counts.bucket(self._key) as bucket:
            bucket.put(self._process, bucket.records[self._process][0] - 1)
