"""Which items of which index answer an expression.

An index serves an expression when its first key is bound in the top-level AND. Its range of index keys is then the
longest prefix of keys bound by equality, and one range over the next key. Conditions on further keys of the index
are checked on the decoded index key, before a partition is fetched; everything else is residual.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalog.expressions.tree import (
    ALL,
    And,
    Comparison,
    Expression,
    InList,
    IsNull,
    Like,
    Not,
    Operator,
    conjuncts,
    keys_of,
)
from catalog.indexes.keys import after_prefix, cut_key, encode_key, is_cut
from catalog.key_types import NULL_BYTES, KeyType
from catalog.model import IndexState, PartitionIndex, Table

_LEAST_VALUE = b"\x01"
"""No encoded value begins below this, and null does."""


@dataclass(frozen=True)
class KeyRange:
    """Index keys from `low`, inclusive, to `high`, exclusive."""

    low: bytes
    high: bytes

    @property
    def is_empty(self) -> bool:
        """Say whether no key can be inside."""
        return self.low >= self.high


@dataclass(frozen=True)
class ScanPlan:
    """How partitions are found.

    Attributes:
        index: The index that is read; None when all partitions are.
        key_range: The items that are read.
        conditions: (key, operator) pairs that the index answers, by its range or on the decoded key.
        range_text: The range in words.
        checked_in_index: What is checked on the decoded index key; None when the range answers it all.
        residual: What is checked on the partitions fetched; None when the index answers it all.
        expression: The whole condition, for partitions whose index key is cut.
        not_used: Reason for each index that is not read.
    """

    index: PartitionIndex | None
    expression: Expression
    residual: Expression | None
    not_used: dict[str, str]
    key_range: KeyRange | None = None
    conditions: tuple[tuple[str, str], ...] = ()
    range_text: str = ""
    checked_in_index: Expression | None = None
    bound_keys: int = 0
    has_range: bool = False


FILTERING_PROPERTY = "partition_filtering.enabled"
"""Table property that turns the use of its indexes off, by `false`. Source: AWS Glue, table properties."""


def plan_scan(table: Table, indexes: Iterable[PartitionIndex], expression: Expression) -> ScanPlan:
    """Return the plan that reads the fewest items, as far as the number of bound keys tells."""
    parts = tuple(conjuncts(expression))
    not_used: dict[str, str] = {}
    candidates: list[ScanPlan] = []
    for index in indexes:
        reason = _reason_against(table, index, parts)
        if reason is None:
            candidates.append(_index_plan(table, index, expression, parts))
        else:
            not_used[index.name] = reason
    if not candidates:
        return ScanPlan(None, expression, None if expression == ALL else expression, not_used)
    best = max(
        candidates, key=lambda plan: (plan.bound_keys, plan.has_range, -len(plan.index.keys if plan.index else ()))
    )
    for plan in candidates:
        if plan is not best and plan.index and best.index:
            not_used[plan.index.name] = f"{best.index.name} binds as many keys or more"
    best.not_used.update(not_used)
    return best


def _reason_against(table: Table, index: PartitionIndex, parts: Sequence[Expression]) -> str | None:
    if table.properties.get(FILTERING_PROPERTY, "").lower() == "false":
        return f"table property {FILTERING_PROPERTY} is false"
    if index.state is not IndexState.ACTIVE:
        return f"is {index.state}"
    if not parts:
        return "no condition"
    first = table.key_names.index(index.keys[0])
    if not any(_bound_key(part, table.key_types) == first for part in parts):
        return f"its first key {index.keys[0]} is not bound in the top-level AND"
    return None


def _bound_key(part: Expression, types: Sequence[KeyType]) -> int | None:
    """Return the key that a condition binds to one range of values; None when it binds none."""
    match part:
        case IsNull(key=key):
            return key
        case Comparison(key=key, operator=operator, value=value) if operator is not Operator.NOT_EQUAL:
            # A text that no indexed value may hold would upset the order of the bytes behind it.
            if isinstance(value, str) and any(character in value for character in "\x00\x01\x02"):
                return None
            return key
    return None


def _index_plan(table: Table, index: PartitionIndex, expression: Expression, parts: Sequence[Expression]) -> ScanPlan:
    types = table.key_types
    positions = [table.key_names.index(name) for name in index.keys]
    prefix = b""
    answered: list[Expression] = []
    words: list[str] = []
    bounds: list[Expression] = []
    for position in positions:
        bounds = [part for part in parts if _bound_key(part, types) == position]
        equal = next((part for part in bounds if _is_equality(part)), None)
        if equal is None:
            break
        answered.append(equal)
        prefix += _equal_bytes(equal, types[position])
        words.append(_words(equal, table))
        bounds = []
    bound_keys = len(answered)
    key_range = _range(prefix, bounds, types)
    answered += bounds
    words += [_words(part, table) for part in bounds]
    others = [part for part in parts if part not in answered]
    in_index = [part for part in others if keys_of(part) and keys_of(part) <= set(positions)]
    residual = [part for part in others if part not in in_index]
    conditions = [
        (table.key_names[key], _operator(part)) for part in (*answered, *in_index) for key in sorted(keys_of(part))
    ]
    return ScanPlan(
        index=index,
        expression=expression,
        residual=_conjunction(residual),
        not_used={},
        key_range=key_range,
        conditions=tuple(conditions),
        range_text=" and ".join(words),
        checked_in_index=_conjunction(in_index),
        bound_keys=bound_keys,
        has_range=bool(bounds),
    )


def _is_equality(part: Expression) -> bool:
    return isinstance(part, IsNull) or (isinstance(part, Comparison) and part.operator is Operator.EQUAL)


def _equal_bytes(part: Expression, key_type: KeyType) -> bytes:
    return key_type.encode(part.value) if isinstance(part, Comparison) else NULL_BYTES


def _words(part: Expression, table: Table) -> str:
    if isinstance(part, Comparison):
        return f"{table.key_names[part.key]} {part.operator} {table.key_types[part.key].format(part.value)}"
    assert isinstance(part, IsNull)
    return f"{table.key_names[part.key]} is null"


def _operator(part: Expression) -> str:
    match part:
        case Comparison(operator=operator):
            return operator.value
        case InList():
            return "in"
        case Like():
            return "like"
        case IsNull():
            return "is null"
        case Not(operand=operand):
            return f"not {_operator(operand)}"
        case And():
            return "and"
    return "or"


def _range(prefix: bytes, bounds: Sequence[Expression], types: Sequence[KeyType]) -> KeyRange:
    low, high = prefix, after_prefix(prefix)
    if bounds:
        low = prefix + _LEAST_VALUE
    for part in bounds:
        assert isinstance(part, Comparison)
        value = prefix + encode_key([types[part.key]], [part.value])
        match part.operator:
            case Operator.LESS:
                high = min(high, value)
            case Operator.LESS_OR_EQUAL:
                high = min(high, after_prefix(value))
            case Operator.GREATER:
                low = max(low, after_prefix(value))
            case Operator.GREATER_OR_EQUAL:
                low = max(low, value)
    # Items hold cut keys: a cut upper bound has to include what was cut to the same bytes.
    return KeyRange(cut_key(low), after_prefix(cut_key(high)) if is_cut(high) else high)


def _conjunction(parts: Sequence[Expression]) -> Expression | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(tuple(parts))
