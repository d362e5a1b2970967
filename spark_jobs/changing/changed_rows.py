"""Rows of a table after DELETE, UPDATE and MERGE, whose conditions and new values are untrusted expressions."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.errors import InvalidRowsError, TableNotFoundError, UnsupportedChangeError
from catalog.settings.load_keys import RANDOM_FUNCTIONS
from catalog.statements.model import MergeClause, MergeRows
from spark_jobs.queries.checked_plans import check_expression, refuse_functions
from spark_jobs.queries.query import with_expressions
from spark_jobs.reading.paths import quoted
from spark_jobs.rows.value_checks import CheckedColumn, checked_column

IS_HIT = "calve/is_hit"
"""The column that tells of each row whether it meets a condition."""

_NEW = "calve/new/"


def check_alone(spark: SparkSession, expression: str, *, without: Container[str] = ()) -> None:
    """Check that an expression only uses the columns of the table, and functions that are allowed.

    Args:
        without: See `check_expression`.

    Raises:
        RefusedStatementError: It calls another function.
        UnsupportedChangeError: It reads a table.
    """
    try:
        check_expression(spark, expression, without=without)
    except TableNotFoundError as error:
        raise UnsupportedChangeError(
            f"{expression} reads another table, which this condition cannot; give the values"
        ) from error


def check(spark: SparkSession, expression: str, *, is_repeatable: bool = False) -> None:
    """Check an expression over a table's columns before anything is journaled; those that read tables, later.

    Args:
        is_repeatable: Whether it has to have the same value for a row again: rows are found by a condition before they
            are changed by it, and so are the partitions to which rows move.

    Raises:
        RefusedStatementError: It calls a function that is not allowed.
    """
    if is_repeatable:
        refuse_functions(spark, expression, RANDOM_FUNCTIONS)
    try:
        check_expression(spark, expression)
    except TableNotFoundError:
        # `with_expressions` checks the tables, and what is done with them.
        return


def check_assignments(table: Table, assignments: Mapping[str, str]) -> None:
    """Check that the columns that an UPDATE sets exist.

    Raises:
        InvalidRowsError: One does not.
    """
    names = [column.name for column in (*table.columns, *table.partition_keys)]
    if unknown := [name for name in assignments if name not in names]:
        raise InvalidRowsError(
            f"column {', '.join(unknown)} of {table.full_name} does not exist; its columns are {', '.join(names)}"
        )


def clause_values(
    table: Table, statement: MergeRows, clause: MergeClause, source_columns: Sequence[str]
) -> dict[str, str]:
    """Return the values that a clause of a MERGE gives to columns: column → expression.

    Raises:
        InvalidRowsError: A column does not exist, or the number of values differs from that of the columns.
    """
    names = [column.name for column in (*table.columns, *table.partition_keys)]
    if clause.values is None:
        known = {name.lower(): name for name in source_columns}
        if missing := [name for name in names if name not in known]:
            raise InvalidRowsError(
                f"the source has no column {', '.join(missing)} of {table.full_name}, which {clause.action} with * "
                f"needs; its columns are {', '.join(source_columns)}. Name the columns instead"
            )
        return {name: f"{quoted(statement.source_alias)}.{quoted(known[name])}" for name in names}
    if isinstance(clause.values, Mapping):
        if unknown := [name for name in clause.values if name not in names]:
            raise InvalidRowsError(
                f"column {', '.join(unknown)} of {table.full_name} does not exist; its columns are {', '.join(names)}"
            )
        return dict(clause.values)
    if len(clause.values) != len(names):
        raise InvalidRowsError(
            f"INSERT has {len(clause.values)} values for the {len(names)} columns of {table.full_name} "
            f"({', '.join(names)}); give one for each, or name the columns"
        )
    return dict(zip(names, clause.values, strict=True))


def with_hits(spark: SparkSession, catalog: Catalog, table: Table, rows: DataFrame, where: str) -> DataFrame:
    """Return rows with the column `IS_HIT`, which is never null.

    Raises:
        RefusedStatementError: The condition uses what is not allowed.
    """
    judged = with_expressions(spark, catalog, table, rows, {IS_HIT: where})
    return judged.withColumn(IS_HIT, f.coalesce(f.col(quoted(IS_HIT)), f.lit(False)))


def rows_without(spark: SparkSession, catalog: Catalog, table: Table, rows: DataFrame, where: str) -> DataFrame:
    """Return the rows that do not meet a condition.

    Raises:
        RefusedStatementError: The condition uses what is not allowed.
    """
    judged = with_hits(spark, catalog, table, rows, where)
    return judged.where(~f.col(quoted(IS_HIT))).drop(IS_HIT)


def rows_updated(
    spark: SparkSession,
    catalog: Catalog,
    table: Table,
    rows: DataFrame,
    assignments: Mapping[str, str],
    where: str,
) -> tuple[DataFrame, list[CheckedColumn]]:
    """Return rows with new values where they meet a condition, as `shaped_rows`; new values are checked.

    Args:
        assignments: Column → expression of its new value, over the old values.

    Raises:
        RefusedStatementError: An expression uses what is not allowed.
    """
    is_hit = f.col(quoted(IS_HIT))
    # Not computed for other rows, for which it may have no value, such as 1 / 0.
    expressions = {
        _NEW + name: f"CASE WHEN {quoted(IS_HIT)} THEN (\n{expression}\n) END"
        for name, expression in assignments.items()
    }
    judged = with_expressions(spark, catalog, table, with_hits(spark, catalog, table, rows, where), expressions)
    columns = []
    for column in (*table.columns, *table.partition_keys):
        checked = checked_column(column, f.col(quoted(column.name)), rows.schema[column.name].dataType)
        if column.name in assignments:
            name = _NEW + column.name
            new = checked_column(column, f.col(quoted(name)), judged.schema[name].dataType)
            checked = chosen(is_hit, new, checked)
        columns.append(checked)
    return judged, columns


def chosen(condition: SparkColumn, first: CheckedColumn, second: CheckedColumn) -> CheckedColumn:
    """Return the first check of a column where a condition is true, and otherwise the second."""
    problem = None
    if first.problem is not None or second.problem is not None:
        of_first, of_second = (f.lit(None) if own is None else own for own in (first.problem, second.problem))
        problem = f.when(condition, of_first).otherwise(of_second).cast("string")
    return CheckedColumn(first.column, f.when(condition, first.value).otherwise(second.value), problem)
