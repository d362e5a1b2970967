"""Filters of tests as conditions of PyIceberg and of Spark."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    Or,
    StartsWith,
)
from pyiceberg.expressions.literals import (
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimestampLiteral,
)

from tests.support.scheme_values import Tree, Value, plain, stored
from tests.support.strategies import Day

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

_COMPARISONS: dict[str, Any] = {
    "=": EqualTo,
    "<>": NotEqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}


def has_nan(tree: Tree) -> bool:
    """Return whether a filter compares with NaN, for which PyIceberg has no literal."""
    return any(has_nan(part) if isinstance(part, tuple) else part != part for part in tree)


def pyiceberg_condition(tree: Tree) -> BooleanExpression:
    """Return a filter of PyIceberg."""
    match tree:
        case ("not", part):
            return Not(pyiceberg_condition(part))
        case ("and", *parts):
            return And(*map(pyiceberg_condition, parts))
        case ("or", *parts):
            return Or(*map(pyiceberg_condition, parts))
        case ("null", name):
            return IsNull(name)
        case ("in", name, *members):
            return In(name, {_literal(value) for value in members})  # type: ignore[arg-type]
        case ("begins", name, prefix):
            return StartsWith(name, prefix)
        case (operator, name, value):
            condition: BooleanExpression = _COMPARISONS[operator](name, _literal(value))
            return condition
    raise TypeError(tree)


def _literal(value: Value) -> Literal[Any]:
    match value:
        case bool():
            return BooleanLiteral(value)
        case int():
            return LongLiteral(value)
        case float():
            return DoubleLiteral(value)
        case Decimal():
            return DecimalLiteral(value)
        case Day():
            return DateLiteral(stored(value))
        case datetime():
            return TimestampLiteral(stored(value))
    return StringLiteral(value)


def spark_condition(tree: Tree, kinds: Mapping[str, str]) -> Column:
    """Return a filter of Spark.

    Args:
        kinds: Column → Spark's type.
    """
    from pyspark.sql import functions as f

    def literal(name: str, value: Value) -> Column:
        return f.lit(value if isinstance(value, str) else plain(value)).cast(kinds[name])

    match tree:
        case ("not", part):
            return ~spark_condition(part, kinds)
        case ("and", first, *parts):
            condition = spark_condition(first, kinds)
            for part in parts:
                condition &= spark_condition(part, kinds)
            return condition
        case ("or", first, *parts):
            condition = spark_condition(first, kinds)
            for part in parts:
                condition |= spark_condition(part, kinds)
            return condition
        case ("null", name):
            return f.col(name).isNull()
        case ("in", name, *members):
            return f.col(name).isin([literal(name, value) for value in members])
        case ("begins", name, prefix):
            return f.col(name).startswith(prefix)
    operator, name, value = tree
    column, other = f.col(name), literal(name, value)
    comparisons = {"=": column.__eq__, "<>": column.__ne__, "<": column.__lt__, "<=": column.__le__}
    compare = {**comparisons, ">": column.__gt__, ">=": column.__ge__}[operator]
    return compare(other)
