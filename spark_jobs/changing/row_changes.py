"""Changes of the rows of tables without a partition scheme: overwritten, deleted, updated and compacted partitions.

A change reads the partitions that it concerns, writes their new rows, and publishes them in place of the old ones in
one transaction (`LoadMode.REPLACE`). Running readers keep the old files for the grace period.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Partition, Table
from catalog.errors import InvalidRowsError, TableNotFoundError, UnsupportedChangeError
from catalog.operations.records import OperationKind
from catalog.storage.values import ValueEncoder
from spark_jobs.queries.checked_plans import check_expression
from spark_jobs.queries.query import prune_query
from spark_jobs.reading.files import empty_table, read_data_files, read_partitions
from spark_jobs.reading.paths import quoted
from spark_jobs.reading.tables import prune_table
from spark_jobs.rows.value_checks import CheckedColumn, checked_column, shaped_rows
from spark_jobs.writing.value_loading import NewRows, publish_rows, refuse_others

log = logging.getLogger("spark_jobs.changing.row_changes")

CHANGE = "change_rows"
"""The step of a change's operation."""


def overwrite_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    frame: DataFrame,
    *,
    values: Mapping[str, str | None] | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Replace partitions by rows, in one operation; a repeated call returns the same report.

    Args:
        frame: As for `append_rows`.
        values: Values of some keys: all partitions with these values are replaced, also those for which there are no
            rows. Without values, the partitions of the rows are replaced.

    Returns:
        The report: `rows`, `files`, `bytes`, `partitions_added`, `partitions_replaced` and `partitions_removed`.

    Raises:
        UnsupportedChangeError: The table has no partition keys.
        CatalogError: See `append_rows`.
    """
    definition = _changeable(catalog, table)
    rows, columns = shaped_rows(definition, frame)
    request = {"change": "overwrite", "values": dict(values or {})}
    operation = catalog.operations.begin(
        operation_id, OperationKind.CHANGE_ROWS, table, request, is_exclusive=True, requested_by=requested_by
    )

    def prepare() -> NewRows:
        return NewRows(rows, columns, list(catalog.partitions_of(table, values)) if values else [])

    return publish_rows(spark, catalog, operation, CHANGE, definition, prepare)


def delete_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    where: str,
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Delete the rows that meet a condition, in one operation; a repeated call returns the same report.

    Args:
        where: A Spark SQL condition on the table's columns, without subqueries.

    Returns:
        The report of `overwrite_rows`; `partitions_replaced` have rows left.

    Raises:
        RefusedStatementError: The condition uses what is not allowed.
        CatalogError: See `overwrite_rows`.
    """
    definition = _changeable(catalog, table)
    check(spark, where)
    operation = catalog.operations.begin(
        operation_id,
        OperationKind.CHANGE_ROWS,
        table,
        {"change": "delete", "where": where},
        is_exclusive=True,
        requested_by=requested_by,
    )

    def prepare() -> NewRows:
        concerned = _concerned(spark, catalog, definition, where)
        kept = ~f.coalesce(f.expr(where), f.lit(False))
        return _new_rows(definition, rows_of(spark, catalog, definition, concerned).where(kept), concerned)

    return publish_rows(spark, catalog, operation, CHANGE, definition, prepare)


def update_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    assignments: Mapping[str, str],
    where: str,
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Update the rows that meet a condition, in one operation; a repeated call returns the same report.

    Args:
        assignments: Column → Spark SQL expression of its new value, over the old values. Partition keys stay.
        where: As for `delete_rows`.

    Raises:
        InvalidRowsError: A column does not exist or is a partition key, or a value does not fit its column.
        CatalogError: See `delete_rows`.
    """
    definition = _changeable(catalog, table)
    names = {column.name for column in definition.columns}
    for name in assignments:
        if name not in names:
            what = "is a partition key, whose rows would move" if name in definition.key_names else "does not exist"
            raise InvalidRowsError(
                f"column {name} of {definition.full_name} {what}; UPDATE sets {', '.join(sorted(names))}. To move "
                "rows to other partitions, insert them there and delete them here"
            )
    for expression in (*assignments.values(), where):
        check(spark, expression)
    operation = catalog.operations.begin(
        operation_id,
        OperationKind.CHANGE_ROWS,
        table,
        {"change": "update", "where": where, "assignments": dict(assignments)},
        is_exclusive=True,
        requested_by=requested_by,
    )

    def prepare() -> NewRows:
        concerned = _concerned(spark, catalog, definition, where)
        rows = rows_of(spark, catalog, definition, concerned)
        return NewRows(rows, _updated(definition, rows, assignments, where), concerned)

    return publish_rows(spark, catalog, operation, CHANGE, definition, prepare)


def compact_partitions(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    partitions: Sequence[Partition],
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Write the rows of partitions to fewer and larger files, in one operation; repeated, return the same report.

    Returns:
        The report of `overwrite_rows`, with `files_before`.

    Raises:
        CatalogError: See `overwrite_rows`.
    """
    definition = _changeable(catalog, table)
    operation = catalog.operations.begin(
        operation_id,
        OperationKind.CHANGE_ROWS,
        table,
        {"change": "compact"},
        is_exclusive=True,
        requested_by=requested_by,
    )

    def prepare() -> NewRows:
        return _new_rows(definition, rows_of(spark, catalog, definition, partitions), partitions)

    report = publish_rows(spark, catalog, operation, CHANGE, definition, prepare)
    return {**report, "files_before": sum(partition.file_count or 0 for partition in partitions)}


def check(spark: SparkSession, expression: str) -> None:
    """Check that an expression only uses the columns of the table, and functions that are allowed.

    Raises:
        RefusedStatementError: It calls another function.
        UnsupportedChangeError: It reads a table.
    """
    try:
        check_expression(spark, expression)
    except TableNotFoundError as error:
        raise UnsupportedChangeError(
            f"{expression} reads another table, which DELETE and UPDATE cannot; give the values, or write the rows "
            "that remain with INSERT OVERWRITE … SELECT"
        ) from error


def _changeable(catalog: Catalog, table: str) -> Table:
    definition = catalog.get_table(table)
    refuse_others(definition)
    if not definition.partition_keys:
        raise UnsupportedChangeError(
            f"table {definition.full_name} has no partition keys, and its rows are replaced partition by partition; "
            "write the rows to a new table instead"
        )
    return definition


def _new_rows(table: Table, frame: DataFrame, replaced: Sequence[Partition]) -> NewRows:
    return NewRows(*shaped_rows(table, frame), replaced)


def _updated(table: Table, rows: DataFrame, assignments: Mapping[str, str], where: str) -> list[CheckedColumn]:
    """Return the columns of updated rows; a new value is checked against its column's type before it is stored."""
    is_changed = f.coalesce(f.expr(where), f.lit(False))
    columns = []
    for column in (*table.columns, *table.partition_keys):
        old = checked_column(column, f.col(quoted(column.name)), rows.schema[column.name].dataType)
        if column.name in assignments:
            value = f.expr(assignments[column.name])
            new = checked_column(column, value, rows.select(value).schema[0].dataType)
            problem = None if new.problem is None else f.when(is_changed, new.problem)
            old = CheckedColumn(column, f.when(is_changed, new.value).otherwise(old.value), problem)
        columns.append(old)
    return columns


def _concerned(spark: SparkSession, catalog: Catalog, table: Table, where: str) -> list[Partition]:
    """Return the partitions that have rows which meet a condition."""
    keys = ", ".join(map(quoted, table.key_names))
    sql = f"SELECT DISTINCT {keys} FROM {quoted(table.database)}.{quoted(table.name)} WHERE ({where}\n)"
    pruned = prune_query(spark, sql, catalog=catalog, untrusted=sql)
    concerned = partitions_of_rows(catalog, table, pruned.frame, pruned.tables[0].where if pruned.tables else None)
    log.info("%s: the change concerns %d partition(s)", table.full_name, len(concerned))
    return concerned


def partitions_of_rows(catalog: Catalog, table: Table, rows: DataFrame, where: str | None = None) -> list[Partition]:
    """Return the existing partitions that rows belong to.

    Args:
        rows: The partition keys, with their types.
        where: A filter of partitions that all of them meet; None for all.
    """
    encoder = ValueEncoder(table)
    texts = rows.select(*[f.col(quoted(key)).cast("string") for key in table.key_names]).distinct()
    matching = {encoder.identity(tuple(row)) for row in texts.toLocalIterator()}
    partitions = catalog.get_partitions(table.full_name, where)
    return [partition for partition in partitions if encoder.identity(partition.values) in matching]


def rows_of(spark: SparkSession, catalog: Catalog, table: Table, partitions: Sequence[Partition]) -> DataFrame:
    """Return all rows of partitions, without those that other engines have deleted."""
    if not partitions:
        return empty_table(spark, table)
    if not table.is_stored_as_iceberg:
        return read_partitions(spark, table, partitions)
    found = catalog.scan_partition_files(table.full_name)
    ids = {partition.id for partition in partitions}
    if found.table.engine_location is None:
        files = [file for file in found.files if file.partition_id in ids]
        return read_data_files(spark, found.table.in_files, files)
    keys = [quoted(key) for key in table.key_names]
    schema = ", ".join(f"{key} string" for key in keys)
    wanted = spark.createDataFrame([partition.values for partition in partitions], schema)
    rows = prune_table(spark, table.full_name, catalog=catalog).frame
    same = [rows[key].eqNullSafe(wanted[key].cast(rows.schema[key.strip("`")].dataType)) for key in keys]
    return rows.join(f.broadcast(wanted), same, "left_semi")
