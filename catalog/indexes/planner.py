"""Which items of which index answer an expression.

An index serves an expression when its first key is bound, or can be skipped. Its ranges are then those of the longest
run of keys bound to single values, each followed by the ranges of the next key. One key inside, or the first one, may
be unbound: then its distinct values are looked up first, and the ranges follow behind each (`Skip`). Conditions on
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
"""Ranges in one search. More values of a key become one range around them, inside which items are checked."""

FILTERING_PROPERTY = "partition_filtering.enabled"
"""Table property that turns the use of its indexes off, by `false`. Source: AWS Glue, table properties."""


@dataclass(frozen=True)
class Skip:
    """An unbound key whose distinct values are looked up before the ranges are known.

    Attributes:
        name, key_type: The key.
        tails: Ranges of the next keys, behind each of its values.
        otherwise: The plan for a key with too many values; None when all partitions have to be read then.
    """

    name: str
    key_type: KeyType
    tails: Ranges
    otherwise: ScanPlan | None

    def prefix(self, found: bytes, heads: Ranges) -> KeyRange:
        """Return the range of one of the heads with a value of the skipped key behind it."""
        if is_cut(found):
            return KeyRange(found, after_prefix(found), text=f"a {self.name} too long for an index key")
        head = next(head for head in heads if found.startswith(head.low))
        piece = found[len(head.low) :]
        value = decode_value(self.key_type, piece)
        text = f"{self.name} is null" if value is None else f"{self.name} = {self.key_type.format(value)}"
        return head.extended(KeyRange(piece, after_prefix(piece), is_point=True, text=text))


@dataclass(frozen=True)
class ScanPlan:
    """How partitions are found.

    Attributes:
        index: The index that is read; None when all partitions are.
        expression: The whole condition, for partitions whose index key is cut.
        residual: What is checked on the partitions fetched; `ALL` when the index answers everything.
        not_used: Reason for each index that is not read.
        ranges: Index keys that are read, as items store them; with a skip, the prefixes before the skipped key.
        conditions: (key, operator) pairs that the index answers, by its ranges or on the index key.
        checked_in_index: What is checked on the index key; `ALL` when the ranges answer it.
        bound_keys: How many keys the ranges bind.
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
    """Return a plan for each index that serves an expression, the most promising first, and why others do not."""
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
    """Return the ranges of the keys as items store them: cut, and what was cut to the same bytes as an end included."""
    stored = list(map(_stored, ranges))
    # Where values differ behind the cut, their ranges are the same.
    return union(stored) if any(is_cut(each.low) for each in stored) else stored


def _stored(whole: KeyRange) -> KeyRange:
    high = after_prefix(cut_key(whole.high)) if is_cut(whole.high) else whole.high
    return KeyRange(cut_key(whole.low), high, whole.is_point, whole.text)


def ranges_behind(prefixes: Sequence[KeyRange], skip: Skip) -> Ranges:
    """Return the ranges of a plan with a skip, once the skipped key's values are known."""
    tails = skip.tails
    if len(prefixes) * len(tails) > MAXIMUM_RANGES:
        tails = [_hull(tails)]
    # Behind a value that was cut there is no next key to look at.
    behind = ([prefix] if is_cut(prefix.low) else map(prefix.extended, tails) for prefix in prefixes)
    return stored_ranges(chain.from_iterable(behind))


def _index_plan(table: Table, index: PartitionIndex, expression: Expression) -> ScanPlan | str:
    """Return how an index serves an expression, or why it does not."""
    if table.properties.get(FILTERING_PROPERTY, "").strip().lower() == "false":
        return f"table property {FILTERING_PROPERTY} is false"
    if index.state is not IndexState.ACTIVE:
        return f"is {index.state}"
    if expression == ALL:
        return "no condition"
    plan = _IndexPlanner(table, index).plan(expression)
    return plan or f"its first key {index.keys[0]} is not bound in the top-level AND"


class _IndexPlanner:
    """Plans how one index serves expressions."""

    def __init__(self, table: Table, index: PartitionIndex) -> None:
        self._table = table
        self._index = index
        self._positions = tuple(table.key_names.index(name) for name in index.keys)

    def plan(self, expression: Expression) -> ScanPlan | None:
        """Return the plan; None when the index does not serve."""
        return self._alternatives(expression) or self._one_way(expression)

    def _alternatives(self, expression: Expression) -> ScanPlan | None:
        """Return the plan of an OR of which each operand has ranges of its own: all of these."""
        if not isinstance(expression, Or) or len(keys_of(expression)) == 1:
            return None
        plans = [self._one_way(operand) for operand in expression.operands]
        found = [plan for plan in plans if plan is not None and plan.skip is None]
        ranges = union(each for plan in found for each in plan.ranges)
        if len(found) < len(plans) or len(ranges) > MAXIMUM_RANGES:
            return None
        answers_all = all(plan.checked_in_index == ALL and plan.residual == ALL for plan in found)
        return self._made(expression, () if answers_all else (expression,), ranges, bound_keys=1)

    def _one_way(self, expression: Expression) -> ScanPlan | None:
        parts = [(part, bounds_of(part, self._table)) for part in conjuncts(expression)]
        bounds = {
            position: intersection([each.keys[position] for _, each in parts if position in each.keys])
            for position in self._positions
            if any(position in each.keys for _, each in parts)
        }

        def left_by(run: _Run) -> list[Expression]:
            return [part for part, each in parts if not run.answers(each)]

        heads = _Run()
        heads.follow(self._positions, bounds)
        plain = None
        if heads.bound:
            plain = self._made(expression, left_by(heads), stored_ranges(heads.ranges), bound_keys=len(heads.bound))
        unbound, *behind = self._positions[len(heads.bound) :] or (None,)
        if unbound is None or not heads.is_open or not behind or behind[0] not in bounds:
            return plain
        tails = _Run()
        tails.follow(behind, bounds)
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
            ranges=[each for each in ranges if not each.is_empty],
            conditions=tuple(
                (self._table.key_names[key], operator.value)
                for key, operator in sorted(pairs, key=lambda pair: (positions.index(pair[0]), order.index(pair[1])))
            ),
            checked_in_index=conjunction(in_index),
            skip=skip,
            bound_keys=bound_keys,
        )


class _Run:
    """Ranges that grow key by key, as long as each key is bound to single values."""

    def __init__(self) -> None:
        self.ranges: Ranges = [EVERYTHING]
        self.bound: set[int] = set()
        self._loosely: set[int] = set()
        self.is_open = True

    def follow(self, positions: Sequence[int], bounds: Mapping[int, Ranges]) -> None:
        """Add the keys at these positions, up to the first that is not bound, or not to single values."""
        for position in positions:
            if position not in bounds or not self.is_open:
                return
            found = bounds[position]
            if len(self.ranges) * len(found) > MAXIMUM_RANGES:
                found = [_hull(found)]
                self._loosely.add(position)
            self.ranges = [prefix.extended(each) for prefix in self.ranges for each in found]
            self.bound.add(position)
            self.is_open = all(each.is_point for each in found)

    def together_with(self, other: _Run) -> _Run:
        """Return a run that binds what both bind."""
        both = _Run()
        both.bound = self.bound | other.bound
        both._loosely = self._loosely | other._loosely
        return both

    def answers(self, bounds: Bounds) -> bool:
        """Say whether the ranges say all that a part of the expression says."""
        return bounds.is_exact and set(bounds.keys) <= self.bound - self._loosely


def _hull(ranges: Ranges) -> KeyRange:
    first, last = ranges[0], ranges[-1]
    return KeyRange(first.low, last.high, text=f"{first.text} … {last.text}")
