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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from catalog.errors import InvalidRequestError
from catalog.model import Partition, PartitionState, Table
from catalog.partitions.scanning import Scanner
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.partition_rows import PartitionFactory, partition_query, partitions_in_order
from catalog.storage.schema import PartitionRow
from catalog.tables.definitions import Definitions

_KEPT_SECONDS = 300.0
_KEPT_IDS = 8_000_000
"""Maximum number of ids that one process keeps, at 8 bytes each."""


@dataclass(frozen=True)
class Segment:
    """One of several disjoint parts of a table's partitions, which together are all of them.

    Attributes:
        number: From 0 to `total` - 1.
    """

    number: int
    total: int

    def has(self, partition: Partition) -> bool:
        """Return whether a partition belongs to the segment."""
        return partition.id % self.total == self.number


_WHOLE = Segment(0, 1)


@dataclass(frozen=True)
class Position:
    """Where a page begins.

    Attributes:
        after: The id of the last partition of the page before.
        search: A random number of the search that the pages belong to; 0 for one that needs none.
    """

    after: int = 0
    search: int = 0


_FIRST = Position()


@dataclass(frozen=True)
class Page:
    """Some of the partitions that match an expression.

    Attributes:
        table: The table as it was read.
        following: The position of the next page; None on the last one.
        is_by_index: Whether an index was used, if partitions were searched for this page; None if not.
    """

    table: Table
    partitions: Sequence[Partition]
    following: Position | None
    is_by_index: bool | None = None


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
        self,
        name: str,
        expression: str | None,
        *,
        limit: int,
        position: Position | None = None,
        segment: Segment | None = None,
        nulls_are_texts: bool = False,
    ) -> Page:
        """Return a page of visible partitions; see `Catalog.partition_page`."""
        position, segment = position or _FIRST, segment or _WHOLE
        if limit < 1:
            raise InvalidRequestError(f"a page of {limit} partitions was requested; request 1 or more")
        if not (expression or "").strip():
            return self._page_of_all(self._definitions.get_hive_table(name), limit, position, segment)
        if position.search and (ids := self._kept.get(position.search)) is not None:
            return self._page_of(self._definitions.get_hive_table(name), ids, limit, position)
        scan = self._scanner.scan(
            name, expression, use_indexes=True, state=PartitionState.VISIBLE, nulls_are_texts=nulls_are_texts
        )
        matches = scan.partitions if segment == _WHOLE else filter(segment.has, scan.partitions)
        first = list(islice(matches, limit + 1))
        is_by_index = scan.plan.index is not None
        if len(first) <= limit and not position.search:
            return Page(scan.table, sorted(first, key=attrgetter("id")), None, is_by_index)
        ids = array("q", sorted(partition.id for partition in chain(first, matches)))
        position = Position(position.after, position.search or secrets.randbits(63) | 1)
        self._kept.add(position.search, ids)
        return replace(self._page_of(scan.table, ids, limit, position), is_by_index=is_by_index)

    def _page_of_all(self, table: Table, limit: int, position: Position, segment: Segment) -> Page:
        query = partitions_in_order(table, position.after).where(PartitionRow.is_quarantined.is_(False))
        if segment != _WHOLE:
            query = query.where(PartitionRow.id % segment.total == segment.number)
        with self._storage.read() as connection:
            rows = connection.execute(query.limit(limit + 1)).all()
        following = Position(rows[limit - 1].id) if len(rows) > limit else None
        return Page(table, PartitionFactory(table).make_all(rows[:limit]), following)

    def _page_of(self, table: Table, ids: array[int], limit: int, position: Position) -> Page:
        start = bisect_right(ids, position.after)
        chosen = ids[start : start + limit]
        rows: list[Any] = []
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
