"""Pages of the partitions that match an expression, in the order of their ids.

A page begins after a position that its caller keeps, so that any process can return the next one at any time. All
partitions that exist while the pages are read are on exactly one page; those that are added or dropped meanwhile may be
missing.

The ids of a search that fills more than one page are kept for some minutes, because finding them again takes as long as
the first page does; a process that does not have them finds them again.
"""

from __future__ import annotations

import secrets
import threading
import time
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from catalog.errors import InvalidRequestError
from catalog.model import Partition, PartitionState, Table
from catalog.partitions.scanning import Scanner
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.partition_rows import PartitionFactory, partition_query
from catalog.storage.schema import PartitionRow
from catalog.tables.definitions import Definitions

_KEPT_SECONDS = 300.0
_KEPT_IDS = 8_000_000
"""Maximum number of ids that one process keeps, at 8 bytes each."""

_START = 0


@dataclass(frozen=True)
class Segment:
    """One of several disjoint parts of a table's partitions, which together are all of them.

    Attributes:
        number: From 0 to `total` - 1.
    """

    number: int
    total: int

    def has(self, partition_id: int) -> bool:
        """Return whether a partition belongs to the segment."""
        return partition_id % self.total == self.number


WHOLE = Segment(0, 1)


@dataclass(frozen=True)
class Position:
    """Where a page begins.

    Attributes:
        after: The id of the last partition of the page before.
        search: A random number of the search that the pages belong to; 0 for one that needs none.
    """

    after: int = _START
    search: int = 0


FIRST = Position()


@dataclass(frozen=True)
class Page:
    """Some of the partitions that match an expression.

    Attributes:
        table: The table as it was read.
        following: The position of the next page; None on the last one.
    """

    table: Table
    partitions: Sequence[Partition]
    following: Position | None


class PartitionPages:
    """Pages of the partitions of one catalog's tables; thread-safe."""

    def __init__(
        self, storage: Storage, definitions: Definitions, scanner: Scanner, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Set the storage, the definitions in it, and the search for partitions."""
        self._storage = storage
        self._definitions = definitions
        self._scanner = scanner
        self._kept = _KeptIds(clock)

    def page(
        self, name: str, expression: str | None, *, limit: int, position: Position = FIRST, segment: Segment = WHOLE
    ) -> Page:
        """Return a page of visible partitions; see `Catalog.partition_page`."""
        if limit < 1:
            raise InvalidRequestError(f"a page of {limit} partitions was requested; request 1 or more")
        table = self._definitions.get_hive_table(name)
        if not (expression or "").strip():
            return self._page_of_all(table, limit, position, segment)
        if position.search:
            ids = self._kept.get(position.search)
            if ids is None:
                ids = array("q", sorted(partition.id for partition in self._matches(name, expression, segment)))
                self._kept.add(position.search, ids)
            return self._page_of(table, ids, limit, position)
        matches = self._matches(name, expression, segment)
        first = list(islice(matches, limit + 1))
        if len(first) <= limit:
            return Page(table, sorted(first, key=lambda partition: partition.id), None)
        ids = array("q", (partition.id for partition in first))
        ids.extend(partition.id for partition in matches)
        ids = array("q", sorted(ids))
        position = Position(_START, secrets.randbits(63) | 1)
        self._kept.add(position.search, ids)
        return self._page_of(table, ids, limit, position)

    def _matches(self, name: str, expression: str | None, segment: Segment) -> Iterator[Partition]:
        scan = self._scanner.scan(name, expression, use_indexes=True, state=PartitionState.VISIBLE)
        if segment == WHOLE:
            return scan.partitions
        return (partition for partition in scan.partitions if segment.has(partition.id))

    def _page_of_all(self, table: Table, limit: int, position: Position, segment: Segment) -> Page:
        query = partition_query(table).where(PartitionRow.id > position.after, PartitionRow.is_quarantined.is_(False))
        if segment != WHOLE:
            query = query.where(PartitionRow.id % segment.total == segment.number)
        with self._storage.read() as connection:
            rows = connection.execute(query.order_by(PartitionRow.id).limit(limit + 1)).all()
        following = Position(rows[limit - 1].id) if len(rows) > limit else None
        return Page(table, PartitionFactory(table).make_all(rows[:limit]), following)

    def _page_of(self, table: Table, ids: array[int], limit: int, position: Position) -> Page:
        start = bisect_right(ids, position.after)
        chosen = ids[start : start + limit]
        rows = []
        with self._storage.read() as connection:
            for batch in batched(chosen):
                query = partition_query(table).where(among(connection, PartitionRow.id, list(batch)))
                rows += connection.execute(query.where(PartitionRow.is_quarantined.is_(False))).all()
        rows.sort(key=lambda row: row.id)
        has_more = start + limit < len(ids)
        following = Position(chosen[-1], position.search) if has_more else None
        return Page(table, PartitionFactory(table).make_all(rows), following)


class _KeptIds:
    """The ids that recent searches have found, by the random numbers of the searches; thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[float, array[int]]] = OrderedDict()
        self._count = 0

    def get(self, search: int) -> array[int] | None:
        with self._lock:
            self._forget()
            if search not in self._kept:
                return None
            _, ids = self._kept[search]
            self._kept[search] = (self._clock() + _KEPT_SECONDS, ids)
            self._kept.move_to_end(search)
            return ids

    def add(self, search: int, ids: array[int]) -> None:
        with self._lock:
            if search not in self._kept:
                self._count += len(ids)
            self._kept[search] = (self._clock() + _KEPT_SECONDS, ids)
            self._forget()

    def _forget(self) -> None:
        while self._kept:
            search, (expires_at, ids) = next(iter(self._kept.items()))
            if expires_at > self._clock() and self._count <= _KEPT_IDS:
                return
            del self._kept[search]
            self._count -= len(ids)
