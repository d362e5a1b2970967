"""Ranges of one key's encoded values: what a condition admits, intersected by AND and united by OR.

The bytes of a key's values sort as the values do (`catalog.key_types`), so what a condition admits is a few ranges of
bytes. A null is the range that begins with `00`; every other value begins above it, and none with `ff`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from catalog.expressions.tree import And, Condition, Expression, LikePattern, Operator, Or
from catalog.indexes.keys import after_prefix
from catalog.key_types import NULL_BYTES, CharType, KeyType, KeyValue, StringType
from catalog.model import Table

_VALUES = b"\x01"
"""No encoded value begins below this, and null does."""

_END = b"\xff"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Bytes from `low`, inclusive, to `high`, exclusive.

    Attributes:
        is_point: The bytes are those of one value, so that the next key's bytes follow.
        text: The range as the filter language writes it.
    """

    low: bytes
    high: bytes
    is_point: bool = False
    text: str = ""

    @property
    def is_empty(self) -> bool:
        """Say whether no bytes can be inside."""
        return self.low >= self.high

    def extended(self, tail: KeyRange) -> KeyRange:
        """Return the range of the next key's values behind this point."""
        text = f"{self.text} and {tail.text}" if self.text and tail.text else self.text or tail.text
        return KeyRange(self.low + tail.low, self.low + tail.high, tail.is_point, text)


EVERYTHING = KeyRange(b"", _END, is_point=True)
"""The empty prefix: behind it the first key's bytes follow."""

Ranges: TypeAlias = Sequence[KeyRange]
"""Ascending, and none overlaps another."""


@dataclass(frozen=True)
class Bounds:
    """What an expression implies for single keys.

    Attributes:
        keys: For each key that is bound, the ranges in which its value must be.
        is_exact: The expression says no more than that.
    """

    keys: Mapping[int, Ranges]
    is_exact: bool


def bounds_of(expression: Expression, table: Table) -> Bounds:
    """Return what an expression implies for single keys of a table."""
    match expression:
        case Condition():
            return _condition_bounds(expression, table)
        case And(operands=operands):
            parts = [bounds_of(operand, table) for operand in operands]
            keys = dict.fromkeys(key for part in parts for key in part.keys)
            return Bounds(
                {key: intersection([part.keys[key] for part in parts if key in part.keys]) for key in keys},
                all(part.is_exact for part in parts),
            )
        case Or(operands=operands):
            parts = [bounds_of(operand, table) for operand in operands]
            common = [key for key in parts[0].keys if all(key in part.keys for part in parts)]
            return Bounds(
                {key: union([each for part in parts for each in part.keys[key]]) for key in common},
                all(part.is_exact and len(part.keys) == 1 for part in parts) and len(common) == 1,
            )
    return Bounds({}, False)


def _condition_bounds(condition: Condition, table: Table) -> Bounds:
    name, key_type = table.key_names[condition.key], table.key_types[condition.key]
    text = condition.describe(name, key_type)
    is_exact = True
    match condition.operator:
        case Operator.IS_NULL:
            ranges = [KeyRange(NULL_BYTES, _VALUES, is_point=True, text=text)]
        case Operator.IS_NOT_NULL:
            ranges = [KeyRange(_VALUES, _END, text=text)]
        case Operator.LIKE:
            assert isinstance(condition.operand, LikePattern)
            ranges, is_exact = _like(condition.operand, key_type, name, text)
        case Operator.NOT_LIKE:
            ranges, is_exact = [KeyRange(_VALUES, _END, text=f"{name} is not null")], False
        case Operator.IN:
            points = (_points(value, key_type, name) for value in _members(condition))
            ranges = sorted((point for each in points for point in each), key=lambda point: point.low)
        case Operator.NOT_EQUAL | Operator.NOT_IN:
            ranges = _gaps(condition, key_type, text)
        case Operator.EQUAL:
            [value] = _members(condition)
            ranges = _points(value, key_type, name)
        case operator:
            [value] = _members(condition)
            ranges = [_inequality(operator, value, key_type, text)]
    return Bounds({condition.key: [each for each in ranges if not each.is_empty]}, is_exact)


def _members(condition: Condition) -> Iterable[KeyValue]:
    operand = condition.operand
    if isinstance(operand, frozenset):
        return operand
    assert isinstance(operand, int | str)
    return (operand,)


def _points(value: KeyValue, key_type: KeyType, name: str) -> list[KeyRange]:
    if _first_reserved(value, key_type) is not None:
        return []
    low = key_type.encode(value)
    return [KeyRange(low, after_prefix(low), is_point=True, text=f"{name} = {key_type.format(value)}")]


def _first_reserved(value: KeyValue, key_type: KeyType) -> int | None:
    return key_type.first_reserved(str(value)) if isinstance(key_type, StringType) else None


def _gaps(condition: Condition, key_type: KeyType, text: str) -> list[KeyRange]:
    """Return what lies between values that are not wanted."""
    points = sorted(point.low for value in _members(condition) for point in _points(value, key_type, ""))
    lows = [_VALUES, *map(after_prefix, points)]
    return [KeyRange(low, high, text=text) for low, high in zip(lows, [*points, _END], strict=True)]


def _inequality(operator: Operator, value: KeyValue, key_type: KeyType, text: str) -> KeyRange:
    is_less = operator in (Operator.LESS, Operator.LESS_OR_EQUAL)
    includes = operator in (Operator.LESS_OR_EQUAL, Operator.GREATER_OR_EQUAL)
    reserved = _first_reserved(value, key_type)
    if reserved is not None:
        # No value has the reserved character, so none lies between the text before it and the whole text. Of a char,
        # the text before it goes on with blanks, which are above the character.
        is_padded = isinstance(key_type, CharType) and reserved < key_type.length
        value, includes = str(value)[:reserved], is_less != is_padded
    encoded = key_type.encode(value)
    if is_less:
        return KeyRange(_VALUES, after_prefix(encoded) if includes else encoded, text=text)
    return KeyRange(encoded if includes else after_prefix(encoded), _END, text=text)


def _like(pattern: LikePattern, key_type: KeyType, name: str, text: str) -> tuple[list[KeyRange], bool]:
    prefix, rest = pattern.split()
    assert isinstance(key_type, StringType)
    if not rest:
        # A char is as long as its type, and a shorter pattern is not padded.
        return _points(prefix, key_type, name) if key_type.parse_literal(prefix) == prefix else [], True
    length = key_type.length if isinstance(key_type, CharType) else None
    if _first_reserved(prefix, key_type) is not None or (length is not None and len(prefix) > length):
        return [], True
    low = key_type.encode_start(prefix)
    is_exact = rest == "%" and (length is None or not prefix.endswith(" "))
    return [KeyRange(low or _VALUES, after_prefix(low), text=text)], is_exact


def intersection(lists: Sequence[Ranges]) -> Ranges:
    """Return the ranges inside one range of each list."""
    first, *others = lists
    for other in others:
        first = _common(first, other)
    return first


def _common(left: Ranges, right: Ranges) -> Ranges:
    found: list[KeyRange] = []
    at_left = at_right = 0
    while at_left < len(left) and at_right < len(right):
        one, two = left[at_left], right[at_right]
        both = _overlap(one, two)
        if not both.is_empty:
            found.append(both)
        if one.high < two.high:
            at_left += 1
        else:
            at_right += 1
    return found


def _overlap(one: KeyRange, two: KeyRange) -> KeyRange:
    for each in (one, two):
        if each.is_point:
            other = two if each is one else one
            # A value's bytes are inside a range or outside of it, never across its end.
            return each if other.low <= each.low < other.high else replace(each, high=each.low)
    text = one.text if one.text == two.text else f"{one.text} and {two.text}"
    return KeyRange(max(one.low, two.low), min(one.high, two.high), text=text)


def union(ranges: Iterable[KeyRange]) -> Ranges:
    """Return the ranges in order; those that overlap as one. Points that only touch stay what they are."""
    found: list[KeyRange] = []
    for each in sorted(ranges, key=lambda each: (each.low, each.high)):
        if found and each.low < found[-1].high:
            last = found[-1]
            if last.low == each.low and last.high == each.high:
                continue
            text = f"{last.text} or {each.text}" if len(last.text) < _LONGEST_TEXT else last.text
            found[-1] = KeyRange(last.low, max(last.high, each.high), text=text)
        else:
            found.append(each)
    return found


_LONGEST_TEXT = 200
