"""Proposals of a partition index for an expression.

An index serves an expression best if its first keys are those that the expression binds to single values, and the next
one a key that it binds to a range: then one range of items for each combination of values has all matches, and nothing
else that these keys could exclude. What an index would read is counted on a sample of the table's partitions, with the
planner that will use the index.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from math import prod

from catalog.expressions.tree import ALL, NONE, Expression, conjuncts, keys_of
from catalog.indexes.bounds import bounds_of
from catalog.indexes.keys import cut_key
from catalog.indexes.planner import ScanPlan, Skip, candidate_plans
from catalog.indexes.skipping import FEW_LOOK_UPS, ITEMS_OF_A_LOOK_UP, Span, resolve
from catalog.model import IndexState, PartitionIndex, Table
from catalog.types.ranges import Ranges, intersection

_FEW = 20
"""Fewer partitions of a sample than this tell too little about the table."""

_CLEARLY_FEWER = 2
"""A proposed index reads at most the part 1 / `_CLEARLY_FEWER` of the items that are read without it."""


@dataclass(frozen=True)
class IndexProposal:
    """An index that would serve an expression better than those of the table.

    Attributes:
        name: A name that no index of the table has.
        keys: Partition keys in the index's order.
        items: The items that a search would read, estimated unless `is_exact`.
        items_now: The same for what is read today: by the best index, or all partitions.
        is_exact: Whether all partitions were looked at, and not a sample.
    """

    name: str
    keys: tuple[str, ...]
    items: int
    items_now: int
    is_exact: bool


@dataclass(frozen=True)
class Sample:
    """Partitions of a table, as the bytes of their values.

    Attributes:
        columns: For each partition key, its encoded value in each partition of the sample.
        unfit: Positions of keys with a value that an index would refuse.
        partition_count: The number of the table's partitions, of which the sample may be a part.
    """

    columns: Sequence[Sequence[bytes]]
    unfit: AbstractSet[int]
    partition_count: int

    @property
    def size(self) -> int:
        """The number of partitions in the sample."""
        return len(self.columns[0]) if self.columns else 0

    @property
    def is_whole(self) -> bool:
        """Whether the sample has all partitions."""
        return self.size >= self.partition_count

    def scaled(self, count: float) -> int:
        """Return a count in the sample as one in the whole table, at least 1 for a part of the table."""
        if self.is_whole:
            return round(count)
        return max(1, round(count * self.partition_count / max(1, self.size)))


def propose_index(
    table: Table, indexes: Iterable[PartitionIndex], expression: Expression, sample: Sample
) -> IndexProposal | None:
    """Return an index that reads clearly fewer items than those of a table; None if there is none.

    Args:
        table: A table with partition keys.
        indexes: Its indexes; only ACTIVE ones are read today.
        expression: The condition.
        sample: Some or all of its partitions.
    """
    if expression in (ALL, NONE):
        return None
    known = list(indexes)
    reading = _Reading(table, expression, sample)
    now = min([sample.size, *(reading.items(index) for index in known)])
    best: tuple[float, tuple[str, ...]] | None = None
    for positions in _orders(table, expression, sample):
        keys = tuple(table.key_names[position] for position in positions)
        is_known = any(index.keys == keys and index.state is not IndexState.FAILED for index in known)
        if is_known or not sample.unfit.isdisjoint(positions):
            continue
        items = reading.items(PartitionIndex("proposed", keys, IndexState.ACTIVE))
        if best is None or items < best[0]:
            best = items, keys
    if best is None or best[0] * _CLEARLY_FEWER > now or best[0] >= now:
        return None
    items, keys = best
    name = _new_name(keys, {index.name for index in known})
    return IndexProposal(name, keys, sample.scaled(items), sample.scaled(now), sample.is_whole)


def _new_name(keys: Sequence[str], taken: set[str]) -> str:
    name = f"by_{'_'.join(keys)}"[:100]
    number = 2
    while (candidate := name if number == 2 else f"{name}_{number - 1}") in taken:
        number += 1
    return candidate


def _orders(table: Table, expression: Expression, sample: Sample) -> Iterator[tuple[int, ...]]:
    """Yield orders of keys: those bound to single values, one bound to a range, and the others with a condition.

    Of the keys bound to single values, those with the fewest values come first: searches that do not bind them can
    skip through them.
    """
    bounds = _bounds(table, expression)
    points = [key for key, ranges in bounds.items() if all(key_range.is_point for key_range in ranges)]
    points.sort(key=lambda key: (len(set(sample.columns[key])), key))
    between = sorted(bounds.keys() - set(points))
    used = sorted(keys_of(expression) - set(points))
    if not between and points:
        yield (*points, *used)
    for key in between:
        yield (*points, key, *(other for other in used if other != key))


def _bounds(table: Table, expression: Expression) -> Mapping[int, Ranges]:
    """Return the ranges that all conditions together allow for each bound key."""
    parts = [bounds_of(part, table).keys for part in conjuncts(expression)]
    keys = dict.fromkeys(key for part in parts for key in part)
    return {key: intersection([part[key] for part in parts if key in part]) for key in keys}


class _Reading:
    """The items that searches for one expression read in the partitions of a sample."""

    def __init__(self, table: Table, expression: Expression, sample: Sample) -> None:
        self._table = table
        self._expression = expression
        self._sample = sample

    def items(self, index: PartitionIndex) -> float:
        """Return the number of items that a search reads in an index; all of them if it does not use the index.

        If a sample has only few of them, it is the product of the parts that the conditions on single keys leave.
        """
        plans, _ = candidate_plans(self._table, [index], self._expression)
        ranges = self._ranges(plans[0]) if plans else None
        if ranges is None:
            return self._sample.size
        columns = [self._sample.columns[self._table.key_names.index(key)] for key in index.keys]
        stored = sorted(cut_key(b"".join(values)) for values in zip(*columns, strict=True))
        found = sum(bisect_left(stored, part.high) - bisect_left(stored, part.low) for part in ranges)
        return found if self._sample.is_whole or found >= _FEW else self._product(plans[0])

    def _product(self, plan: ScanPlan) -> float:
        """Return the number of items as if the values of the keys did not depend on each other."""
        assert plan.index is not None
        size, bounds = self._sample.size, _bounds(self._table, self._expression)
        positions = [self._table.key_names.index(key) for key in plan.index.keys]
        bound = [position for position in positions if position in bounds][: plan.bound_keys]
        return size * prod(self._part(position, bounds[position]) for position in bound)

    def _part(self, position: int, ranges: Ranges) -> float:
        """Return the part of the partitions whose value of a key lies in some ranges."""
        values = sorted(self._sample.columns[position])
        found = sum(bisect_left(values, part.high) - bisect_left(values, part.low) for part in ranges)
        return max(found, 0.5) / len(values)

    def _ranges(self, plan: ScanPlan) -> Ranges | None:
        """Return the ranges that a plan reads; None if it reads all partitions."""
        reading = resolve(plan, partial(self._values, plan))
        return None if reading is None else reading.ranges

    def _values(self, plan: ScanPlan, skip: Skip, spans: Sequence[Span]) -> Sequence[bytes] | None:
        """Return the values of a skipped key with the values before it; None if the look-ups would not pay."""
        assert plan.index is not None
        names = self._table.key_names
        last = plan.index.keys.index(skip.name)
        columns = [self._sample.columns[names.index(key)] for key in plan.index.keys[: last + 1]]
        keys = sorted(map(cut_key, map(b"".join, zip(*columns, strict=True))))
        found = [key for span in spans for key in keys[bisect_left(keys, span.low) : bisect_left(keys, span.high)]]
        values = sorted(set(found))
        ranges = len(values) * len(skip.tails)
        pays = ranges <= FEW_LOOK_UPS or self._sample.scaled(len(found)) >= ITEMS_OF_A_LOOK_UP * ranges
        return values if pays else None
