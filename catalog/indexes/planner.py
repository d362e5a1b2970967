"""Plans for reading partition indexes: which ranges of which index answer an expression.

An index can serve an expression that binds one of its keys. Its ranges are those of the keys that the expression binds,
in the order of the index, up to the last of them. Each of these keys but the last must have single values: where the
expression binds one to a range, or not at all, its values are looked up first, and the ranges follow each of them
(`Skip`, `catalog.indexes.skipping`). Conditions on further keys of the index are checked on the index key, before a
partition is fetched; everything else is residual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from catalog.expressions.tree import ALL, Expression, Operator, Or, conditions, conjunction, conjuncts, keys_of
from catalog.indexes.bounds import Bounds, bounds_of
from catalog.indexes.keys import after_prefix, cut_key, is_cut
from catalog.model import IndexState, PartitionIndex, Table
from catalog.types.key_types import KeyType
from catalog.types.ranges import END, EVERYTHING, KeyRange, Ranges, intersection, union

MAXIMUM_RANGES = 5_000
"""Maximum number of ranges in a plan. More values of a key become one enclosing range, whose items are checked."""

FILTERING_PROPERTY = "partition_filtering.enabled"
"""Table property that disables the use of its indexes with `false`. Source: AWS Glue, table properties."""

_ANY_VALUE: Ranges = (KeyRange(b"", END),)


@dataclass(frozen=True)
class Skip:
    """A key without single values in the expression, of which the values in the index are looked up.

    Attributes:
        name, key_type: The key.
        within: The ranges that contain its values.
        tails: The ranges of the next keys, which follow each of its values.
        otherwise: The plan if looking up its values would take longer than it saves; None for a full scan.
    """

    name: str
    key_type: KeyType
    within: Ranges
    tails: Ranges
    otherwise: ScanPlan | None


@dataclass(frozen=True)
class ScanPlan:
    """The plan for finding partitions.

    Attributes:
        index: The index to read; None for a full scan.
        expression: The whole condition, for partitions whose index key is cut.
        residual: The condition to check on fetched partitions; `ALL` when the index answers everything.
        not_used: Index → reason why it is not read.
        ranges: Ranges of stored index keys to read; with skips, the values of the keys before the first of them.
        conditions: (key, operator) pairs that the index answers, by its ranges or on the index key.
        checked_in_index: The condition to check on index keys; `ALL` when the ranges answer it.
        skips: The keys whose values are looked up, in the order of the index.
        bound_keys: Number of keys that the ranges bind.
    """

    index: PartitionIndex | None
    expression: Expression
    residual: Expression
    not_used: dict[str, str] = field(default_factory=dict)
    ranges: Ranges = ()
    conditions: tuple[tuple[str, str], ...] = ()
    checked_in_index: Expression = ALL
    skips: tuple[Skip, ...] = ()
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
    plans.sort(key=lambda plan: (len(plan.skips), -plan.bound_keys, len(plan.index.keys if plan.index else ())))
    return plans, not_used


def full_scan(expression: Expression, not_used: dict[str, str]) -> ScanPlan:
    """Return the plan that reads all partitions."""
    return ScanPlan(None, expression, expression, not_used)


def stored_ranges(ranges: Iterable[KeyRange]) -> Ranges:
    """Return ranges of keys as ranges of stored keys: cut, and including ends that are cut to the same bytes."""
    stored = list(map(stored_range, ranges))
    # Values that differ only after the cut have the same range.
    return union(stored) if any(is_cut(key_range.low) for key_range in stored) else stored


def stored_range(whole: KeyRange) -> KeyRange:
    """Return a range of keys as a range of stored keys."""
    high = after_prefix(cut_key(whole.high)) if is_cut(whole.high) else whole.high
    return KeyRange(cut_key(whole.low), high, whole.is_point, whole.text)


def _index_plan(table: Table, index: PartitionIndex, expression: Expression) -> ScanPlan | str:
    """Return the plan of an index for an expression, or the reason why it has none."""
    if table.properties.get(FILTERING_PROPERTY, "").strip().lower() == "false":
        return f"table property {FILTERING_PROPERTY} is false"
    if index.state is not IndexState.ACTIVE:
        return f"is {index.state}"
    if expression == ALL:
        return "no condition"
    plan = _IndexPlanner(table, index).plan(expression)
    return plan or "none of its keys is bound in the top-level AND"


class _IndexPlanner:
    """Planner for one index."""

    def __init__(self, table: Table, index: PartitionIndex) -> None:
        self._table = table
        self._index = index
        self._positions = tuple(table.key_names.index(name) for name in index.keys)

    def plan(self, expression: Expression) -> ScanPlan | None:
        """Return the plan; None when the index does not serve the expression."""
        plan, alternatives = self._one_way(expression), self._alternatives(expression)
        return plan if alternatives is None or (plan and plan.bound_keys > alternatives.bound_keys) else alternatives

    def _alternatives(self, expression: Expression) -> ScanPlan | None:
        """Return the plan for an OR whose operands all have their own ranges: the union of these."""
        if not isinstance(expression, Or) or len(keys_of(expression)) == 1:
            return None
        usable: list[ScanPlan] = []
        for operand in expression.operands:
            plan = self._one_way(operand)
            while plan is not None and plan.skips:
                plan = plan.skips[0].otherwise
            if plan is None:
                return None
            usable.append(plan)
        ranges = union(key_range for plan in usable for key_range in plan.ranges)
        if len(ranges) > MAXIMUM_RANGES:
            return None
        answers_all = all(plan.checked_in_index == ALL and plan.residual == ALL for plan in usable)
        bound_keys = min(plan.bound_keys for plan in usable)
        return self._made(expression, () if answers_all else (expression,), ranges, bound_keys=bound_keys)

    def _one_way(self, expression: Expression) -> ScanPlan | None:
        parts = [(part, bounds_of(part, self._table)) for part in conjuncts(expression)]
        bounds = {
            position: intersection([implied.keys[position] for _, implied in parts if position in implied.keys])
            for position in self._positions
            if any(position in implied.keys for _, implied in parts)
        }
        plan = None
        shorter: list[ScanPlan | None] = []
        for place, position in enumerate(self._positions):
            if position in bounds:
                plan = self._up_to(place, expression, parts, bounds, shorter)
            shorter.append(plan)
        return plan

    def _up_to(
        self,
        last: int,
        expression: Expression,
        parts: Sequence[tuple[Expression, Bounds]],
        bounds: Mapping[int, Ranges],
        shorter: Sequence[ScanPlan | None],
    ) -> ScanPlan:
        """Return the plan whose ranges end with the bound key at a place in the index.

        Args:
            shorter: For each place before, the plan whose ranges end there or before.
        """
        runs = [_Run()]
        skipped: list[tuple[int, int, Ranges]] = []
        loosely: set[int] = set()
        for place, position in enumerate(self._positions[: last + 1]):
            key_ranges = bounds.get(position, _ANY_VALUE)
            if runs[-1].has_too_many(key_ranges):
                key_ranges = [_hull(key_ranges)]
                loosely.add(position)
            if place < last and not all(key_range.is_point for key_range in key_ranges):
                skipped.append((place, position, key_ranges))
                runs.append(_Run())
            else:
                runs[-1].append(key_ranges)
        bound = {position for position in self._positions[: last + 1] if position in bounds}
        left = [part for part, implied in parts if not (implied.is_exact and set(implied.keys) <= bound - loosely)]
        heads, *tails = [run.ranges for run in runs]
        skips = tuple(
            Skip(
                self._table.key_names[position],
                self._table.key_types[position],
                within,
                after,
                # It may end with a range of this key, which needs no look-up.
                shorter[place],
            )
            for (place, position, within), after in zip(skipped, tails, strict=True)
        )
        return self._made(expression, left, heads if skips else stored_ranges(heads), skips, bound_keys=len(bound))

    def _made(
        self,
        expression: Expression,
        unanswered: Sequence[Expression],
        ranges: Ranges,
        skips: tuple[Skip, ...] = (),
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
            skips=skips,
            bound_keys=bound_keys,
        )


class _Run:
    """Ranges that are extended key by key, of which all but the last are bound to single values."""

    def __init__(self) -> None:
        self.ranges: Ranges = [EVERYTHING]

    def has_too_many(self, key_ranges: Ranges) -> bool:
        """Return whether there would be too many ranges with those of another key."""
        return len(self.ranges) * len(key_ranges) > MAXIMUM_RANGES

    def append(self, key_ranges: Ranges) -> None:
        """Append the ranges of the next key."""
        self.ranges = [prefix.extended(key_range) for prefix in self.ranges for key_range in key_ranges]


def _hull(ranges: Ranges) -> KeyRange:
    first, last = ranges[0], ranges[-1]
    return KeyRange(first.low, last.high, text=f"{first.text} … {last.text}")
