"""Translation of conditions in Spark's plans to catalog filters that they imply."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Any

from catalog import Table
from catalog.types.key_types import CharType, DateType, KeyValueError, StringType, TimestampType
from spark_jobs.queries.catalyst import items, kind_of, operands
from spark_jobs.queries.partition_ids import plain_name

_LONGEST_CONDITION = 30_000
"""Longer conditions are ignored, in characters: the catalog refuses filters of more than 65,536."""

_IS_NULL, _IS_NOT_NULL = " is null", " is not null"

# Catalyst's expressions in the syntax of catalog filters.
_COMPARISONS = {
    "EqualTo": "{key} = {literal}",
    "EqualNullSafe": "{key} = {literal} and {key} is not null",
    "LessThan": "{key} < {literal}",
    "LessThanOrEqual": "{key} <= {literal}",
    "GreaterThan": "{key} > {literal}",
    "GreaterThanOrEqual": "{key} >= {literal}",
    **dict.fromkeys(("Like", "StartsWith", "EndsWith", "Contains"), "{key} like {literal}"),
}
_PATTERNS = {"StartsWith": "{}%", "EndsWith": "%{}", "Contains": "%{}%"}
_MIRRORED = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
_WILDCARD = re.compile(r"[\\%_]")


def implied_filter(expression: Any, table: Table) -> str | None:
    """Return a filter on pruning columns that is true wherever a Catalyst expression is; None if there is none."""
    kind = kind_of(expression)
    if kind == "And":
        parts = [implied_filter(operand, table) for operand in operands(expression, kind)]
        return _all([part for part in parts if part is not None and len(part) <= _LONGEST_CONDITION])
    if kind == "Or":
        return any_of([implied_filter(operand, table) for operand in operands(expression, kind)])
    return _predicate(expression, table)


def _all(conditions: Sequence[str]) -> str | None:
    # Drop the `is not null` that Spark adds for each compared key: the comparison implies it.
    plain = [condition for condition in conditions if not condition.endswith(_IS_NOT_NULL)]
    needed = [
        condition
        for condition in dict.fromkeys(conditions)
        if condition in plain or not any(condition.removesuffix(_IS_NOT_NULL) in other for other in plain)
    ]
    return " and ".join(condition if len(needed) == 1 else f"({condition})" for condition in needed) or None


def any_of(conditions: Sequence[str | None]) -> str | None:
    """Return the disjunction of filters; None if one of them is None."""
    if None in conditions:
        return None
    distinct = list(dict.fromkeys(conditions))
    return distinct[0] if len(distinct) == 1 else " or ".join(f"({condition})" for condition in distinct)


def _predicate(expression: Any, table: Table) -> str | None:
    """Return the catalog filter of a condition on one key; None if it would have another meaning."""
    kind = kind_of(expression)
    if kind == "Not":
        negated = _predicate(expression.child(), table)
        return None if negated is None else f"not ({negated})"
    if kind in ("IsNull", "IsNotNull"):
        key = _key(expression.child(), table)
        return key and key + (_IS_NULL if kind == "IsNull" else _IS_NOT_NULL)
    if kind in ("In", "InSet"):
        key = _key(expression.children().head(), table)
        return key and _in(key, _members(expression, kind, table))
    if kind in _COMPARISONS:
        return _comparison(expression, kind, table)
    # A boolean column is a condition by itself: Spark simplifies its comparison with true or false.
    key = _key(expression, table)
    return key and f"{key} = 'true'"


def _comparison(expression: Any, kind: str, table: Table) -> str | None:
    left, right = expression.left(), expression.right()
    if kind_of(left) == "Literal" and kind in _MIRRORED:
        left, right, kind = right, left, _MIRRORED[kind]
    key = _key(left, table)
    if key is None or kind_of(right) != "Literal" or not right.dataType().equals(left.dataType()):
        return None
    if kind == "Like" and expression.escapeChar() != "\\":
        return None
    value = right.value()
    if kind in _PATTERNS:
        value = _PATTERNS[kind].format(_WILDCARD.sub(r"\\\g<0>", str(value)))
    is_pattern = "like" in _COMPARISONS[kind]
    literal = _pattern_literal(value) if is_pattern else _literal(value, left, table)
    return literal and _COMPARISONS[kind].format(key=key, literal=literal)


def _in(key: str, literals: Sequence[str | None]) -> str | None:
    known = [literal for literal in literals if literal is not None]
    return f"{key} in ({', '.join(known)})" if known and len(known) == len(literals) else None


def _members(expression: Any, kind: str, table: Table) -> list[str | None]:
    """Return the members of an IN as literals; None for one that has no literal."""
    attribute = expression.children().head()
    if kind == "InSet":
        # Fetch all members in one call. A null becomes the string "null", so that the filter may match more: harmless.
        values = expression.hset().mkString("\0").split("\0")
        return (
            [_literal(value, attribute, table) for value in values] if len(values) == expression.hset().size() else []
        )
    return [
        _literal(member.value(), attribute, table)
        if kind_of(member) == "Literal" and member.dataType().equals(attribute.dataType())
        else None
        for member in items(expression.list())
    ]


def _key(expression: Any, table: Table) -> str | None:
    """Return the quoted name of the pruning column that an expression refers to; None for all else."""
    if kind_of(expression) != "AttributeReference":
        return None
    name = plain_name(str(expression.name()).lower())
    return f"`{name}`" if name in table.pruning_columns else None


def _pattern_literal(value: Any) -> str | None:
    return None if value is None else StringType().format(str(value))


def _literal(value: Any, attribute: Any, table: Table) -> str | None:
    """Return Spark's value as a literal for the key that it is compared with; None if it has none.

    Args:
        value: A number, Spark's string, or the days or microseconds since 1970; or one of these as a string.
    """
    view = table.filter_view
    position = view.key_position(plain_name(attribute.name()))
    if value is None or position is None:
        return None
    key_type = view.key_types[position]
    try:
        if isinstance(key_type, DateType):
            value = date.fromordinal(date(1970, 1, 1).toordinal() + int(value))
        if isinstance(key_type, TimestampType):
            return key_type.format(int(value))
        # Spark pads literals that are compared with a char, except in BETWEEN. A longer literal may continue with
        # characters below the blank.
        if isinstance(key_type, CharType) and len(str(value)) != key_type.length:
            return None
        return key_type.format(key_type.parse_literal(str(value)))
    except (KeyValueError, ValueError, OverflowError):
        return None
