"""Bounds that an expression implies for single keys, as ranges of encoded values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from catalog.expressions.tree import And, Condition, Expression, LikePattern, Operator, Or
from catalog.indexes.keys import after_prefix
from catalog.model import Table
from catalog.types.key_types import NULL_BYTES, CharType, KeyType, KeyValue, StringType
from catalog.types.ranges import END, FIRST_VALUE, KeyRange, Ranges, intersection, union


@dataclass(frozen=True)
class Bounds:
    """The bounds that an expression implies for single keys.

    Attributes:
        keys: For each bound key, the ranges that contain its value.
        is_exact: The bounds are equivalent to the expression.
    """

    keys: Mapping[int, Ranges]
    is_exact: bool


def bounds_of(expression: Expression, table: Table) -> Bounds:
    """Return the bounds that an expression implies for single keys of a table."""
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
                {key: union([key_range for part in parts for key_range in part.keys[key]]) for key in common},
                all(part.is_exact and len(part.keys) == 1 for part in parts) and len(common) == 1,
            )
    return Bounds({}, False)


def _condition_bounds(condition: Condition, table: Table) -> Bounds:
    name, key_type = table.key_names[condition.key], table.key_types[condition.key]
    text = condition.describe(name, key_type)
    is_exact = True
    match condition.operator:
        case Operator.IS_NULL:
            ranges = [KeyRange(NULL_BYTES, FIRST_VALUE, is_point=True, text=text)]
        case Operator.IS_NOT_NULL:
            ranges = [KeyRange(FIRST_VALUE, END, text=text)]
        case Operator.LIKE:
            assert isinstance(condition.operand, LikePattern)
            ranges, is_exact = _like(condition.operand, key_type, name, text)
        case Operator.NOT_LIKE:
            ranges, is_exact = [KeyRange(FIRST_VALUE, END, text=f"{name} is not null")], False
        case Operator.IN:
            members = (_points(value, key_type, name) for value in _members(condition))
            ranges = sorted((point for points in members for point in points), key=lambda point: point.low)
        case Operator.NOT_EQUAL | Operator.NOT_IN:
            ranges = _gaps(condition, key_type, text)
        case Operator.EQUAL:
            [value] = _members(condition)
            ranges = _points(value, key_type, name)
        case operator:
            [value] = _members(condition)
            ranges = [_inequality(operator, value, key_type, text)]
    return Bounds({condition.key: [key_range for key_range in ranges if not key_range.is_empty]}, is_exact)


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
    """Return the ranges between excluded values."""
    points = sorted(point.low for value in _members(condition) for point in _points(value, key_type, ""))
    lows = [FIRST_VALUE, *map(after_prefix, points)]
    return [KeyRange(low, high, text=text) for low, high in zip(lows, [*points, END], strict=True)]


def _inequality(operator: Operator, value: KeyValue, key_type: KeyType, text: str) -> KeyRange:
    is_less = operator in (Operator.LESS, Operator.LESS_OR_EQUAL)
    includes = operator in (Operator.LESS_OR_EQUAL, Operator.GREATER_OR_EQUAL)
    reserved = _first_reserved(value, key_type)
    if reserved is not None:
        # No value contains the reserved character, so none lies between the prefix before it and the whole string. A
        # char continues after the prefix with blanks, which are greater than the character.
        is_padded = isinstance(key_type, CharType) and reserved < key_type.length
        value, includes = str(value)[:reserved], is_less != is_padded
    encoded = key_type.encode(value)
    if is_less:
        return KeyRange(FIRST_VALUE, after_prefix(encoded) if includes else encoded, text=text)
    return KeyRange(encoded if includes else after_prefix(encoded), END, text=text)


def _like(pattern: LikePattern, key_type: KeyType, name: str, text: str) -> tuple[list[KeyRange], bool]:
    prefix, rest = pattern.split()
    assert isinstance(key_type, StringType)
    if not rest:
        # A char value has the length of its type, and a shorter pattern is not padded.
        return _points(prefix, key_type, name) if key_type.parse_literal(prefix) == prefix else [], True
    length = key_type.length if isinstance(key_type, CharType) else None
    if _first_reserved(prefix, key_type) is not None or (length is not None and len(prefix) > length):
        return [], True
    low = key_type.encode_start(prefix)
    is_exact = rest == "%" and (length is None or not prefix.endswith(" "))
    return [KeyRange(low or FIRST_VALUE, after_prefix(low), text=text)], is_exact
