"""Filter expressions as Spark SQL, to check on each row the conditions that the catalog cannot prune by."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.expressions.tree import NONE, And, Condition, Expression, LikePattern, Operator, Or
from catalog.model import PARTITION_ID, Table
from catalog.types.key_types import DecimalType, KeyType, KeyValue
from spark_jobs.rows.placement import literal_sql, partition_id_sql, value_sql

_ESCAPE = "!"


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
        case value:
            return f"{column} {condition.operator} {literal_sql(value_type, value)}"


def _membership(column: str, operator: Operator, members: Iterable[KeyValue], value_type: KeyType) -> str:
    if isinstance(value_type, DecimalType):
        members = [member for member in members if value_type.floor(member) == member]
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
