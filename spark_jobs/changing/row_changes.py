"""Changes of the rows of tables without a partition scheme: overwritten, deleted, updated and compacted partitions.

A change reads the partitions that it concerns, writes their new rows, and publishes them in place of the old ones in
one transaction (`LoadMode.REPLACE`). Running readers keep the old files for the grace period.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Partition, Table
from catalog.errors import InvalidRowsError, TableNotFoundError, UnsupportedChangeError
from catalog.operations.changes import COMPACT
from catalog.operations.records import OperationKind
from catalog.rebalancing.planning import target_file_bytes
from catalog.storage.values import ValueEncoder
from catalog.tables.own_properties import TARGET_PROPERTY
from spark_jobs.queries.checked_plans import check_expression
from spark_jobs.queries.query import prune_query
from spark_jobs.reading.files import empty_table, read_data_files, read_partitions
from spark_jobs.reading.paths import quoted
from spark_jobs.reading.tables import prune_table
from spark_jobs.rows.value_checks import CheckedColumn, checked_column, shaped_rows
from spark_jobs.writing.file_sizes import changed_settings, size_settings
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

    def prepare() -> NewRows:
        return NewRows(rows, columns, catalog.partitions_of(table, values) if values else [])

    request = {"change": "overwrite", "values": dict(values or {})}
    return _change(spark, catalog, operation_id, definition, request, prepare, requested_by)


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

    def prepare() -> NewRows:
        concerned = _concerned(spark, catalog, definition, where)
        kept = ~f.coalesce(f.expr(where), f.lit(False))
        return _new_rows(definition, rows_of(spark, catalog, definition, concerned).where(kept), concerned)

    request = {"change": "delete", "where": where}
    return _change(spark, catalog, operation_id, definition, request, prepare, requested_by)


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

    def prepare() -> NewRows:
        concerned = _concerned(spark, catalog, definition, where)
        rows = rows_of(spark, catalog, definition, concerned)
        return NewRows(rows, _updated(definition, rows, assignments, where), concerned)

    request = {"change": "update", "where": where, "assignments": dict(assignments)}
    return _change(spark, catalog, operation_id, definition, request, prepare, requested_by)


def compact_partitions(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    partitions: Sequence[Partition],
    *,
    target_bytes: int | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Write the rows of partitions to fewer and larger files, in one operation; repeated, return the same report.

    Args:
        target_bytes: The approximate size of the new files; None for the table's setting.

    Returns:
        The report of `overwrite_rows`, with `files_before`.

    Raises:
        CatalogError: See `overwrite_rows`.
    """
    definition = _changeable(catalog, table)
    target = target_bytes or target_file_bytes(definition)
    # The writer of tables stored as Iceberg goes by the property.
    definition = replace(definition, properties={**definition.properties, TARGET_PROPERTY: str(target)})

    def prepare() -> NewRows:
        return _new_rows(definition, rows_of(spark, catalog, definition, partitions), partitions)

    files, size = (sum(count or 0 for count in counts) for counts in _counts(partitions))
    # Journaled for the policy's limit of a day, and because the counts of the partitions change.
    request = {"change": COMPACT, "partitions": len(partitions), "files": files, "bytes": size}
    with changed_settings(spark, size_settings(target)):
        report = _change(spark, catalog, operation_id, definition, request, prepare, requested_by)
    return {**report, "files_before": catalog.operations.get(operation_id).request["files"]}


def _counts(partitions: Sequence[Partition]) -> tuple[list[int | None], list[int | None]]:
    return [partition.file_count for partition in partitions], [partition.size_bytes for partition in partitions]


def _change(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: Table,
    request: Mapping[str, Any],
    prepare: Callable[[], NewRows],
    requested_by: str | None,
) -> dict[str, Any]:
    """Journal a change, which reserves the table, and publish the rows that it prepares then."""
    kind = OperationKind.CHANGE_ROWS
    operation = catalog.operations.begin(
        operation_id, kind, table.full_name, request, is_exclusive=True, requested_by=requested_by
    )
    return publish_rows(spark, catalog, operation, CHANGE, table, prepare)


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
            f"{expression} reads another table, which a change of rows cannot; give the values, or write the rows "
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
    matching = identities_of_rows(table, pruned.frame)
    concerned = partitions_among(catalog, table, matching, pruned.tables[0].where if pruned.tables else None)
    if len(concerned) < len(matching):
        raise InvalidRowsError(
            f"table {table.full_name}: {len(matching) - len(concerned):,} partition(s) with such rows have a value "
            "that is not of its key's type, so they cannot be found by it; drop or rename them first"
        )
    log.info("%s: the change concerns %d partition(s)", table.full_name, len(concerned))
    return concerned


def identities_of_rows(table: Table, rows: DataFrame) -> set[bytes]:
    """Return the identities of the partitions that rows belong to.

    Args:
        rows: The partition keys, with their types.
    """
    encoder = ValueEncoder(table)
    texts = rows.select(*[f.col(quoted(key)).cast("string") for key in table.key_names]).distinct()
    return {encoder.identity(tuple(row)) for row in texts.toLocalIterator()}


def partitions_among(
    catalog: Catalog, table: Table, identities: Container[bytes], where: str | None = None
) -> list[Partition]:
    """Return the existing partitions with some identities.

    Args:
        where: A filter that all of them meet; None to look at all partitions.
    """
    encoder, partitions = ValueEncoder(table), catalog.get_partitions(table.full_name, where)
    return [partition for partition in partitions if encoder.identity(partition.values) in identities]


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
