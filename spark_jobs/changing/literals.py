"""Checks of the literals in conditions of statements that change rows.

Spark compares a date with any string: it reads `'yesterday'` as the date of the day before, and of other strings that
are no dates it only complains if it comes to compare a row with them. So a condition with a mistake could change other
rows than were meant, or none without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import sqlglot
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from sqlglot import exp
from sqlglot.errors import SqlglotError

from catalog import Table
from catalog.errors import LiteralTypeError
from catalog.model import Column
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import KeyValueError

_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)

_COMPARED_AS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "bigint"),
    **dict.fromkeys(("float", "double", "decimal"), "double"),
    **{name: name for name in ("boolean", "date", "timestamp", "timestamp_ntz")},
}
"""The type of a column → the type to which Spark casts a string that it compares with it."""

_MOMENT = re.compile(r"\s*((epoch|now|today|tomorrow|yesterday)\b|T?[0-9]{1,2}:)", re.IGNORECASE)
"""Words that Spark reads as moments, and times without a date, which it reads as times of the present day."""


def check_literals(
    spark: SparkSession, table: Table, expression: str, alias: str | None = None, *, is_unqualified: bool = True
) -> None:
    """Check that strings in an expression can be values of the columns of a table that they are compared with.

    Subqueries are not checked.

    Args:
        expression: In Spark SQL; what cannot be parsed is left to Spark's own error.
        alias: The table's name in it; by default, its own name.
        is_unqualified: Whether columns without a table's name may be those of the table.

    Raises:
        LiteralTypeError: A string cannot be a value of the column's type.
    """
    qualifiers = {table.name if alias is None else alias.lower(), *([""] if is_unqualified else [])}
    compared = dict.fromkeys(_compared(table, expression, qualifiers))
    known = [(column, text, kind) for column, text in compared if (kind := _COMPARED_AS.get(_base(column.type)))]
    if not known:
        return
    casts = [f.lit(text).try_cast(kind).isNotNull().alias(str(number)) for number, (_, text, kind) in enumerate(known)]
    fits = spark.range(1).select(*casts).collect()[0]
    for (column, text, kind), is_fit in zip(known, fits, strict=True):
        is_moment = kind in ("date", "timestamp", "timestamp_ntz") and _MOMENT.match(text)
        if not is_fit or not _is_value(column, text):
            hint = "; write it out, or compute it, such as current_date() - INTERVAL 1 DAY" if is_moment else ""
            raise LiteralTypeError(
                f"column {column.name} of {table.full_name} is of type {column.type}, and {text[:100]!r} is not a "
                f"value of this type{hint}; nothing was changed",
                expression,
            )


def _is_value(column: Column, text: str) -> bool:
    """Return whether a string can be compared with a column, by the rule for all strings of its type."""
    value_type = parse_column_type("timestamp" if column.type == "timestamp_ntz" else column.type)
    assert value_type is not None
    try:
        value_type.parse_bound(text)
    except KeyValueError:
        return False
    return True


def _base(column_type: str) -> str:
    return column_type.partition("(")[0].strip().lower()


def _compared(table: Table, expression: str, qualifiers: set[str]) -> Iterator[tuple[Column, str]]:
    """Yield the columns of a table that an expression compares with strings, and the strings."""
    try:
        tree = sqlglot.parse_one(expression, dialect="spark")
    except SqlglotError:
        return
    columns = {column.name: column for column in (*table.columns, *table.partition_keys)}
    for node in tree.walk(prune=lambda part: isinstance(part, exp.Query)):
        operands = [operand.unnest() for operand in _operands(node)]
        strings = [operand.this for operand in operands if isinstance(operand, exp.Literal) and operand.is_string]
        for operand in operands:
            if isinstance(operand, exp.Column) and operand.table.lower() in qualifiers:
                column = columns.get(operand.name.lower())
                yield from ((column, text) for text in strings if column is not None)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a comparison; of other expressions, none."""
    if isinstance(node, _COMPARISONS):
        return [node.this, node.expression]
    if isinstance(node, exp.In):
        return [node.this, *node.expressions]
    if isinstance(node, exp.Between):
        return [node.this, node.args["low"], node.args["high"]]
    return []
