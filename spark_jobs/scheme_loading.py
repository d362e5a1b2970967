"""Adding rows to a table with a partition scheme: all of them become visible at once, or none does."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.errors import InvalidSchemeError
from catalog.key_types import TimestampType
from catalog.operations import OperationKind
from catalog.rebalancing.planning import target_file_bytes
from catalog.schemes.committing import FileChange
from catalog.schemes.files import Total
from catalog.schemes.manifest import folder_name
from catalog.schemes.model import DEFAULT_PARTITION, Scheme
from catalog.schemes.pruning import Placing, place_files
from catalog.schemes.ranges import IntervalScheme
from spark_jobs.placement import value_sql
from spark_jobs.reading import read_data_files, table_schema
from spark_jobs.scheme_files import write_rows
from spark_jobs.session import attempt_here

log = logging.getLogger("spark_jobs.scheme_loading")

_USUAL_BYTES = 1_000_000
"""Of so great a file, its rows take nearly all."""

LOAD = "load"
"""The step of the operation that a load is."""


def load_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    rows: DataFrame,
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Add rows to a table with a partition scheme, in one operation; done again, it returns the same report.

    Of a RANGE_INTERVAL table, the partitions for rows beyond the last bound are created in the same transaction.

    Args:
        rows: The table's columns, by name, of types that Spark casts to the table's.

    Returns:
        The report: `rows_loaded`, `files_written`, `rows_written`, `bytes_written`, `partitions_created`.

    Raises:
        TableNotFoundError: There is no such table.
        InvalidSchemeError: It has no partition scheme.
        OperationConflictError: Another operation is at work on the table.
        LimitExceededError: Too many partitions would be created.
    """
    operation = catalog.operations.begin(
        operation_id, OperationKind.LOAD_ROWS, table, is_exclusive=True, requested_by=requested_by
    )
    if operation.is_committed:
        return dict(operation.report[LOAD])
    with attempt_here(catalog, operation, LOAD) as attempt:
        definition = catalog.get_table(table)
        before = definition.scheme
        if before is None:
            raise InvalidSchemeError(f"table {definition.full_name} has no partition scheme")
        rows = _typed(rows, definition)
        after = _extended(before, rows)
        placing = _out_of_default(catalog, definition, before, after)
        if placing.rewritten:
            rows = rows.unionByName(read_data_files(spark, definition, placing.rewritten))
        folder = folder_name(operation.number, attempt)
        row_count = write_rows(rows, definition, after, folder, size=_usual_size(catalog, definition))
        retired = [each.id for each in placing.rewritten]
        change = FileChange(before, after, folder, row_count, placing.relabelled, retired)
        report = {
            "rows_loaded": row_count - Total.of(placing.rewritten).row_count,
            "partitions_created": len(after.ids) - len(before.ids),
        }
        return catalog.committer.commit(operation_id, LOAD, attempt, change, report)


def _usual_size(catalog: Catalog, table: Table) -> Total | None:
    """Return what the table holds, which tells how great its rows are; None if its files are too small for that.

    Spark finds out how much a task writes for a partition only as it writes it. A task with many rows of one partition,
    as that of a file that cannot be read in parts, would write them all into one file.
    """
    total = sum(
        (
            Total(each.file_count, each.row_count, each.size_bytes)
            for each in catalog.scheme_partitions(table.full_name)
        ),
        Total(),
    )
    is_usual = total.size_bytes >= total.file_count * min(target_file_bytes(table) // 4, _USUAL_BYTES)
    return total if total.file_count and is_usual else None


def _typed(rows: DataFrame, table: Table) -> DataFrame:
    """Return the rows with the table's columns, in its order, of its types."""
    return rows.select(
        *[f.col(f"`{field.name}`").cast(field.dataType).alias(field.name) for field in table_schema(table)]
    )


def _extended(scheme: Scheme, rows: DataFrame) -> Scheme:
    """Return the scheme with partitions for all rows, if it makes them by itself."""
    if not isinstance(scheme, IntervalScheme):
        return scheme
    value = f.expr(value_sql(scheme.column, scheme.value_type))
    greatest = f.max(value)
    if isinstance(scheme.value_type, TimestampType):
        # A text of it would be one of the session's time zone.
        microseconds = rows.agg(f.unix_micros(greatest)).first()[0]  # type: ignore[index]
        return scheme if microseconds is None else scheme.extended_to(int(microseconds))
    text = rows.agg(greatest.cast("string")).first()[0]  # type: ignore[index]
    return scheme if text is None else scheme.extended_to(scheme.typed(text))


def _out_of_default(catalog: Catalog, table: Table, before: Scheme, after: Scheme) -> Placing:
    """Return what becomes of the files of the default partition whose rows have partitions of their own now."""
    if before == after:
        return Placing([], {})
    possible = (DEFAULT_PARTITION, *(each for each in after.ids if each not in before.ids))
    files = catalog.scan_files(table.full_name, f"_partition_id = {DEFAULT_PARTITION}").files
    return place_files(after, files, {DEFAULT_PARTITION: possible})
