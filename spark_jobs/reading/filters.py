"""Filter expressions and statistics of files as Spark SQL, for conditions on rows that the catalog cannot prune by."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from catalog.datafiles.files import ColumnStatistics
from catalog.expressions.tree import NONE, And, Condition, Expression, LikePattern, Operator, Or
from catalog.model import PARTITION_ID, Table
from catalog.types.key_types import DateType, DecimalType, FloatingType, KeyType, KeyValue, StringType
from spark_jobs.rows.placement import literal_sql, partition_id_sql, value_sql

_ESCAPE = "!"
_CONTROLS = re.compile(rb"[\x00-\x02]")
"""Bytes of encoded strings that are no characters: terminators and escapes (`catalog.types.column_types`)."""
_AFTER_CONTROLS = b"\x03"
_FIRST_DATE, _LAST_DATE = 1 << 9, 10_000 << 9
"""The dates, inclusive and exclusive, of which SQL has literals and statistics are exact."""


def filter_sql(tree: Expression, table: Table) -> str:
    """Return a condition over a table's columns that is true for exactly the matching rows.

    Args:
        tree: An expression over the table as filters see it (`Table.filter_view`).
    """
    match tree:
        case Condition():
            return _condition(tree, table)
        case And(operands=operands):
            return " and ".join(f"({filter_sql(operand, table)})" for operand in operands)
        case Or(operands=operands):
            return " or ".join(f"({filter_sql(operand, table)})" for operand in operands)
    return "false" if tree == NONE else "true"


def _condition(condition: Condition, table: Table) -> str:
    view = table.filter_view
    name, value_type = view.key_names[condition.key], view.key_types[condition.key]
    is_id = table.scheme is not None and name == PARTITION_ID
    column = partition_id_sql(table.scheme) if is_id and table.scheme else value_sql(name, value_type)
    match condition.operand:
        case None:
            return f"{column} {condition.operator}"
        case LikePattern() as pattern:
            return f"{column} {condition.operator} {_pattern(pattern, value_type)} escape '{_ESCAPE}'"
        case frozenset() as members:
            return _membership(column, condition.operator, members, value_type)
        case value if isinstance(value_type, DecimalType) and value_type.floor(value) != value:
            return _between_decimals(column, condition.operator, value_type, value)
        case value if isinstance(value_type, FloatingType) and value_type.number(value) == 0:
            return _to_zero(column, condition.operator, value_type)
        case value:
            return f"{column} {condition.operator} {literal_sql(value_type, value)}"


def _to_zero(column: str, operator: Operator, value_type: KeyType) -> str:
    """Return a comparison with zero. Readers prune by statistics, which distinguish -0.0 from 0.0; SQL does not."""
    low, high = (f"cast('{zero}' as {value_type.name})" for zero in ("-0.0", "0.0"))
    if operator is Operator.EQUAL:
        return f"{column} between {low} and {high}"
    return f"{column} {operator} {low if operator in (Operator.GREATER_OR_EQUAL, Operator.LESS) else high}"


def _membership(column: str, operator: Operator, members: Collection[KeyValue], value_type: KeyType) -> str:
    if isinstance(value_type, DecimalType):
        members = [member for member in members if value_type.floor(member) == member]
    if operator is Operator.IN and isinstance(value_type, FloatingType):
        others = frozenset(member for member in members if value_type.number(member) != 0)
        if len(others) < len(members):
            zero = _to_zero(column, Operator.EQUAL, value_type)
            return f"({zero}) or ({_membership(column, operator, others, value_type)})"
    literals = ", ".join(literal_sql(value_type, member) for member in sorted(members))
    if literals:
        return f"{column} {operator} ({literals})"
    return "false" if operator is Operator.IN else f"{column} is not null"


def _between_decimals(column: str, operator: Operator, value_type: DecimalType, value: KeyValue) -> str:
    """Return a comparison with a number that is not a value of the type, which Spark would round."""
    floor = value_type.floor(value)
    if operator is Operator.EQUAL:
        return "false"
    if operator is Operator.NOT_EQUAL:
        return f"{column} is not null"
    is_less = operator in (Operator.LESS, Operator.LESS_OR_EQUAL)
    if floor is None:
        return "false" if is_less else f"{column} is not null"
    return f"{column} {'<=' if is_less else '>'} {literal_sql(value_type, floor)}"


def _pattern(pattern: LikePattern, value_type: KeyType) -> str:
    """Return the pattern with an escape character that does not depend on the session's settings."""
    text = "".join(
        f"{_ESCAPE}{character}" if not is_wild and character in f"%_{_ESCAPE}" else character
        for character, is_wild in pattern.pieces()
    )
    return literal_sql(value_type, text)


def statistics_sql(column: str, value_type: KeyType, statistics: Sequence[ColumnStatistics | None]) -> str | None:
    """Return a condition that holds for all rows of some files, by which readers of a whole table prune other files.

    It compares the column with literals, and may hold for other rows, too.

    Args:
        statistics: Those of the column in each of the files; None if they are unknown.

    Returns:
        None if nothing is known about the rows; also for floating-point columns, because readers prune files of NaNs.
    """
    known = [bounds for bounds in statistics if bounds is not None]
    if len(known) < len(statistics) or isinstance(value_type, FloatingType):
        return None
    name = value_sql(column, value_type)
    lows, highs = [bounds.low for bounds in known if bounds.low], [bounds.high for bounds in known if bounds.high]
    alternatives = [f"{name} is null"] if any(bounds.null_count != 0 for bounds in known) else []
    if lows and highs:
        limits = [_at_least(name, value_type, min(lows)), _at_most(name, value_type, max(highs))]
        if not any(limits):
            return None
        alternatives.append(" and ".join(limit for limit in limits if limit))
    return " or ".join(f"({alternative})" for alternative in alternatives) or None


def _at_least(name: str, value_type: KeyType, low: bytes) -> str | None:
    """Return the condition that values are not below an encoded bound, which may be truncated; None without any."""
    value: KeyValue
    if isinstance(value_type, StringType):
        text = _CONTROLS.split(low)[0]
        try:
            value = text.decode()
        except UnicodeDecodeError as error:
            value = text[: error.start].decode()
    else:
        value, _ = value_type.decode(low, 0)
    return f"{name} >= {literal_sql(value_type, value)}" if _has_literal(value_type, value) else None


def _at_most(name: str, value_type: KeyType, high: bytes) -> str | None:
    """Return the condition that values are below an encoded bound, which may be truncated; None without any."""
    if isinstance(value_type, StringType):
        control = _CONTROLS.search(high)
        text = high if control is None else high[: control.start()] + _AFTER_CONTROLS
        try:
            return f"{name} < {literal_sql(value_type, text.decode())}"
        except UnicodeDecodeError:
            return None
    width = value_type.width
    assert width is not None
    # The last value below the bound, which has no trailing bytes of the greatest value.
    last = int.from_bytes(high.ljust(width, b"\0")) - 1
    value, _ = value_type.decode(last.to_bytes(width), 0)
    return f"{name} <= {literal_sql(value_type, value)}" if _has_literal(value_type, value) else None


def _has_literal(value_type: KeyType, value: KeyValue) -> bool:
    return not isinstance(value_type, DateType) or _FIRST_DATE <= int(value) < _LAST_DATE
