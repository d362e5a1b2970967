"""Metrics of the front doors in the text format of Prometheus, over all processes that serve.

A process keeps its numbers in a file that is mapped into its memory. Any of them can answer for all by reading the
files of the others; the numbers of a process that has died stay, and the one that takes its place goes on with them.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_MOST_SERIES = 4_000
"""Combinations of label values of a process; further ones are counted as `other`."""

_RESERVED = 400
_OPEN = frozenset({"operation", "status", "table"})
"""Labels of many values, which become `other`; the slots reserved suffice for all combinations of the others."""

_MOST_TABLES = 500
_HEADER, _SLOT = struct.Struct("<Q"), struct.Struct("<dH")
_WIDTH = 512
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

_REQUESTS, _DURATION = "calve_door_requests_total", "calve_door_request_seconds"
_CONNECTIONS, _SEARCHES = "calve_door_connections", "calve_door_searches_total"
_HELP = {
    _REQUESTS: ("counter", "Requests by door, operation and status."),
    _DURATION: ("histogram", "Seconds from a request to its answer."),
    _CONNECTIONS: ("gauge", "Open connections."),
    _SEARCHES: ("counter", "Searches of partitions, by table and by whether an index was used or all were read."),
}

Series = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a metric, and its labels with their values."""


class Metrics:
    """The numbers of one process; thread-safe."""

    def __init__(self, folder: Path, process: int = 0) -> None:
        """Open or create the file of a process.

        Args:
            folder: A folder for the files of all processes of one server.
            process: The number of the process.
        """
        self._folder = folder
        self._lock = threading.Lock()
        size = _HEADER.size + _MOST_SERIES * _WIDTH
        # The file is sparse: only the slots that are used take space.
        descriptor = os.open(folder / f"{process}.metrics", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._places: dict[Series, int] = {}
        self._tables: set[str] = set()
        for place, series, _ in _read(self._map):
            self._places[series] = place
            if series[0] == _CONNECTIONS:
                self._put(place, 0.0)

    def request(self, door: str, operation: str, status: str, seconds: float) -> None:
        """Count a request and its time.

        Args:
            operation: A name of the protocol; never text of a client.
            status: `ok`, or the name of an error of the protocol.
        """
        labels = (("door", door), ("operation", operation))
        bound = bisect_left(_SECONDS, seconds)
        bucket = str(_SECONDS[bound]) if bound < len(_SECONDS) else "+Inf"
        with self._lock:
            self._add((_REQUESTS, (*labels, ("status", status))), 1)
            self._add((f"{_DURATION}_bucket", (*labels, ("le", bucket))), 1)
            self._add((f"{_DURATION}_sum", labels), seconds)

    def connected(self, door: str, change: int) -> None:
        """Count connections that were opened, or closed if the change is negative."""
        with self._lock:
            self._add((_CONNECTIONS, (("door", door),)), change)

    def searched(self, table: str, by_index: bool) -> None:
        """Count a search of a table's partitions.

        Args:
            table: `database.table`; an existing one.
        """
        with self._lock:
            if table not in self._tables:
                if len(self._tables) >= _MOST_TABLES:
                    table = "other"
                self._tables.add(table)
            self._add((_SEARCHES, (("table", table), ("way", "index" if by_index else "all"))), 1)

    def text(self) -> str:
        """Return the numbers of all processes in the text format of Prometheus."""
        sums: dict[Series, float] = defaultdict(float)
        for path in sorted(self._folder.glob("*.metrics")):
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as numbers:
                for _, series, value in _read(numbers):
                    sums[series] += value
        return "".join(f"{line}\n" for line in _lines(sums))

    def _add(self, series: Series, value: float) -> None:
        place = self._places.get(series)
        if place is None:
            place = self._new_place(series)
        (before,) = struct.unpack_from("<d", self._map, place)
        self._put(place, before + value)

    def _put(self, place: int, value: float) -> None:
        struct.pack_into("<d", self._map, place, value)

    def _new_place(self, series: Series) -> int:
        count: int = _HEADER.unpack_from(self._map)[0]
        name = json.dumps(series, separators=(",", ":")).encode()
        if count >= _MOST_SERIES - _RESERVED or len(name) > _WIDTH - _SLOT.size:
            series = (series[0], tuple((label, "other" if label in _OPEN else text) for label, text in series[1]))
            if series in self._places:
                return self._places[series]
            name = json.dumps(series, separators=(",", ":")).encode()
        place = _HEADER.size + count * _WIDTH
        _SLOT.pack_into(self._map, place, 0.0, len(name))
        self._map[place + _SLOT.size : place + _SLOT.size + len(name)] = name
        # The slot counts when it is complete, as other processes may read at any moment.
        _HEADER.pack_into(self._map, 0, count + 1)
        self._places[series] = place
        return place


def _read(numbers: mmap.mmap) -> Iterator[tuple[int, Series, float]]:
    (count,) = _HEADER.unpack_from(numbers)
    for place in range(_HEADER.size, _HEADER.size + count * _WIDTH, _WIDTH):
        value, length = _SLOT.unpack_from(numbers, place)
        name, labels = json.loads(numbers[place + _SLOT.size : place + _SLOT.size + length])
        yield place, (name, tuple((label, text) for label, text in labels)), value


def _lines(sums: dict[Series, float]) -> Iterator[str]:
    for metric, (kind, meaning) in _HELP.items():
        yield f"# HELP {metric} {meaning}"
        yield f"# TYPE {metric} {kind}"
        if kind == "histogram":
            yield from _histogram(metric, sums)
            continue
        for (name, labels), value in sorted(sums.items()):
            if name == metric:
                yield f"{name}{_labels(labels)} {value:.17g}"


def _histogram(metric: str, sums: dict[Series, float]) -> Iterator[str]:
    for (name, labels), seconds in sorted(sums.items()):
        if name != f"{metric}_sum":
            continue
        count = 0.0
        for bound in (*map(str, _SECONDS), "+Inf"):
            count += sums.get((f"{metric}_bucket", (*labels, ("le", bound))), 0.0)
            yield f"{metric}_bucket{_labels((*labels, ('le', bound)))} {count:.17g}"
        yield f"{metric}_sum{_labels(labels)} {seconds:.17g}"
        yield f"{metric}_count{_labels(labels)} {count:.17g}"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{label}="{_escaped(text)}"' for label, text in labels) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
