"""Plans for reading partition indexes: which ranges of which index answer an expression.

An index can serve an expression if its first key is bound, or can be skipped. Its ranges consist of the longest prefix
of keys bound to single values, followed by the ranges of the next key. One key in the middle, or the first one, may be
unbound: then its distinct values are looked up first, and the ranges follow each of them (`Skip`). Conditions on
further keys of the index are checked on the index key, before a partition is fetched; everything else is residual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from catalog.expressions.tree import ALL, Expression, Operator, Or, conditions, conjunction, conjuncts, keys_of
from catalog.indexes.bounds import Bounds, bounds_of
from catalog.indexes.keys import after_prefix, cut_key, decode_value, is_cut
from catalog.model import IndexState, PartitionIndex, Table
from catalog.types.key_types import KeyType
from catalog.types.ranges import EVERYTHING, KeyRange, Ranges, intersection, union

MAXIMUM_RANGES = 5_000
"""Maximum number of ranges in one search. More values of a key become one enclosing range, whose items are checked."""

MAXIMUM_SKIPPED = 256
"""The maximum number of distinct values of a key that a search skips through."""

FILTERING_PROPERTY = "partition_filtering.enabled"
"""Table property that disables the use of its indexes with `false`. Source: AWS Glue, table properties."""


@dataclass(frozen=True)
class Skip:
    """An unbound key whose distinct values are looked up before the ranges are known.

    Attributes:
        name, key_type: The key.
        tails: Ranges of the next keys, which follow each of its values.
        otherwise: The plan if the key has too many values; None for a full scan.
    """

    name: str
    key_type: KeyType
    tails: Ranges
    otherwise: ScanPlan | None

    def prefix(self, stored: bytes, heads: Ranges) -> KeyRange:
        """Return the range of a prefix with a value of the skipped key, of which `stored` has the bytes."""
        if is_cut(stored):
            return KeyRange(stored, after_prefix(stored), text=f"a {self.name} too long for an index key")
        head = next(head for head in heads if stored.startswith(head.low))
        piece = stored[len(head.low) :]
        value = decode_value(self.key_type, piece)
        text = f"{self.name} is null" if value is None else f"{self.name} = {self.key_type.format(value)}"
        return head.extended(KeyRange(piece, after_prefix(piece), is_point=True, text=text))


@dataclass(frozen=True)
class ScanPlan:
    """The plan for finding partitions.

    Attributes:
        index: The index to read; None for a full scan.
        expression: The whole condition, for partitions whose index key is cut.
        residual: The condition to check on fetched partitions; `ALL` when the index answers everything.
        not_used: Index → reason why it is not read.
        ranges: Ranges of stored index keys to read; with a skip, the prefixes before the skipped key.
        conditions: (key, operator) pairs that the index answers, by its ranges or on the index key.
        checked_in_index: The condition to check on index keys; `ALL` when the ranges answer it.
        bound_keys: Number of keys that the ranges bind.
    """

    index: PartitionIndex | None
    expression: Expression
    residual: Expression
    not_used: dict[str, str] = field(default_factory=dict)
    ranges: Ranges = ()
    conditions: tuple[tuple[str, str], ...] = ()
    checked_in_index: Expression = ALL
    skip: Skip | None = None
    bound_keys: int = 0


def candidate_plans(
    table: Table, indexes: Iterable[PartitionIndex], expression: Expression
) -> tuple[list[ScanPlan], dict[str, str]]:
    """Return a plan per index that serves an expression, the most promising first, and why the others do not."""
    plans: list[ScanPlan] = []
    not_used: dict[str, str] = {}
    for index in indexes:
        plan = _index_plan(table, index, expression)
        if isinstance(plan, str):
            not_used[index.name] = plan
        else:
            plans.append(plan)
    plans.sort(key=lambda plan: (plan.skip is not None, -plan.bound_keys, len(plan.index.keys if plan.index else ())))
    return plans, not_used


def full_scan(expression: Expression, not_used: dict[str, str]) -> ScanPlan:
    """Return the plan that reads all partitions."""
    return ScanPlan(None, expression, expression, not_used)


def stored_ranges(ranges: Iterable[KeyRange]) -> Ranges:
    """Return ranges of keys as ranges of stored keys: cut, and including ends that are cut to the same bytes."""
    stored = list(map(_stored, ranges))
    # Values that differ only after the cut have the same range.
    return union(stored) if any(is_cut(key_range.low) for key_range in stored) else stored


def _stored(whole: KeyRange) -> KeyRange:
    high = after_prefix(cut_key(whole.high)) if is_cut(whole.high) else whole.high
    return KeyRange(cut_key(whole.low), high, whole.is_point, whole.text)


def ranges_behind(prefixes: Sequence[KeyRange], skip: Skip) -> Ranges:
    """Return the ranges of a plan with a skip, given the values of the skipped key."""
    tails = skip.tails
    if len(prefixes) * len(tails) > MAXIMUM_RANGES:
        tails = [_hull(tails)]
    # A cut value is not followed by a next key.
    continued = ([prefix] if is_cut(prefix.low) else map(prefix.extended, tails) for prefix in prefixes)
    return stored_ranges(chain.from_iterable(continued))


def _index_plan(table: Table, index: PartitionIndex, expression: Expression) -> ScanPlan | str:
    """Return the plan of an index for an expression, or the reason why it has none."""
    if table.properties.get(FILTERING_PROPERTY, "").strip().lower() == "false":
        return f"table property {FILTERING_PROPERTY} is false"
    if index.state is not IndexState.ACTIVE:
        return f"is {index.state}"
    if expression == ALL:
        return "no condition"
    plan = _IndexPlanner(table, index).plan(expression)
    return plan or f"its first key {index.keys[0]} is not bound in the top-level AND"


class _IndexPlanner:
    """Planner for one index."""

    def __init__(self, table: Table, index: PartitionIndex) -> None:
        self._table = table
        self._index = index
        self._positions = tuple(table.key_names.index(name) for name in index.keys)

    def plan(self, expression: Expression) -> ScanPlan | None:
        """Return the plan; None when the index does not serve the expression."""
        return self._alternatives(expression) or self._one_way(expression)

    def _alternatives(self, expression: Expression) -> ScanPlan | None:
        """Return the plan for an OR whose operands all have their own ranges: the union of these."""
        if not isinstance(expression, Or) or len(keys_of(expression)) == 1:
            return None
        plans = [self._one_way(operand) for operand in expression.operands]
        usable = [plan for plan in plans if plan is not None and plan.skip is None]
        ranges = union(key_range for plan in usable for key_range in plan.ranges)
        if len(usable) < len(plans) or len(ranges) > MAXIMUM_RANGES:
            return None
        answers_all = all(plan.checked_in_index == ALL and plan.residual == ALL for plan in usable)
        return self._made(expression, () if answers_all else (expression,), ranges, bound_keys=1)

    def _one_way(self, expression: Expression) -> ScanPlan | None:
        parts = [(part, bounds_of(part, self._table)) for part in conjuncts(expression)]
        bounds = {
            position: intersection([implied.keys[position] for _, implied in parts if position in implied.keys])
            for position in self._positions
            if any(position in implied.keys for _, implied in parts)
        }

        def left_by(run: _Run) -> list[Expression]:
            return [part for part, implied in parts if not run.answers(implied)]

        heads = _Run()
        heads.follow(self._positions, bounds)
        plain = None
        if heads.bound:
            plain = self._made(expression, left_by(heads), stored_ranges(heads.ranges), bound_keys=len(heads.bound))
        unbound, *rest = self._positions[len(heads.bound) :] or (None,)
        if unbound is None or not heads.is_open or not rest or rest[0] not in bounds:
            return plain
        tails = _Run()
        tails.follow(rest, bounds)
        both = heads.together_with(tails)
        skip = Skip(self._table.key_names[unbound], self._table.key_types[unbound], tails.ranges, plain)
        return self._made(expression, left_by(both), heads.ranges, skip, bound_keys=len(both.bound))

    def _made(
        self,
        expression: Expression,
        unanswered: Sequence[Expression],
        ranges: Ranges,
        skip: Skip | None = None,
        *,
        bound_keys: int,
    ) -> ScanPlan:
        positions = self._positions
        in_index = [part for part in unanswered if keys_of(part) <= set(positions)]
        residual = [part for part in unanswered if part not in in_index]
        answered = [part for part in conjuncts(expression) if part not in residual]
        pairs = {(condition.key, condition.operator) for part in answered for condition in conditions(part)}
        order = list(Operator)
        return ScanPlan(
            index=self._index,
            expression=expression,
            residual=conjunction(residual),
            ranges=[key_range for key_range in ranges if not key_range.is_empty],
            conditions=tuple(
                (self._table.key_names[key], operator.value)
                for key, operator in sorted(pairs, key=lambda pair: (positions.index(pair[0]), order.index(pair[1])))
            ),
            checked_in_index=conjunction(in_index),
            skip=skip,
            bound_keys=bound_keys,
        )


class _Run:
    """Ranges that are extended key by key, as long as each key is bound to single values."""

    def __init__(self) -> None:
        self.ranges: Ranges = [EVERYTHING]
        self.bound: set[int] = set()
        self._loosely: set[int] = set()
        self.is_open = True

    def follow(self, positions: Sequence[int], bounds: Mapping[int, Ranges]) -> None:
        """Append the keys at these positions, up to the first that is unbound or not bound to single values."""
        for position in positions:
            if position not in bounds or not self.is_open:
                return
            key_ranges = bounds[position]
            if len(self.ranges) * len(key_ranges) > MAXIMUM_RANGES:
                key_ranges = [_hull(key_ranges)]
                self._loosely.add(position)
            self.ranges = [prefix.extended(key_range) for prefix in self.ranges for key_range in key_ranges]
            self.bound.add(position)
            self.is_open = all(key_range.is_point for key_range in key_ranges)

    def together_with(self, other: _Run) -> _Run:
        """Return a run that binds the keys of both."""
        both = _Run()
        both.bound = self.bound | other.bound
        both._loosely = self._loosely | other._loosely
        return both

    def answers(self, bounds: Bounds) -> bool:
        """Return whether the ranges are equivalent to a part of the expression."""
        return bounds.is_exact and set(bounds.keys) <= self.bound - self._loosely


def _hull(ranges: Ranges) -> KeyRange:
    first, last = ranges[0], ranges[-1]
    return KeyRange(first.low, last.high, text=f"{first.text} … {last.text}")
