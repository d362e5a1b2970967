"""Atomic loading of rows into a table with a partition scheme."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.datafiles.committing import FileChange
from catalog.datafiles.files import Total
from catalog.datafiles.pruning import FileScan, Placing, place_files
from catalog.errors import InvalidSchemeError
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.rebalancing.planning import new_partition_limit, target_file_bytes
from catalog.schemes.model import DEFAULT_PARTITION, MAXIMUM_PARTITIONS, Scheme
from catalog.schemes.ranges import IntervalScheme
from catalog.tables.own_properties import NEW_PARTITIONS_PROPERTY
from catalog.types.key_types import KeyValue, TimestampType
from spark_jobs.reading.iceberg import read_live_rows
from spark_jobs.rows.placement import literal_sql, value_sql
from spark_jobs.rows.value_checks import RowCheck, first_problem, shaped_rows
from spark_jobs.sessions.session import attempt_here
from spark_jobs.writing.scheme_files import write_rows

log = logging.getLogger("spark_jobs.writing.scheme_loading")

_IN_DEFAULT = f"_partition_id = {DEFAULT_PARTITION}"

_USUAL_BYTES = 1_000_000
"""Size from which rows, and not the footer, make up nearly all of a file."""

LOAD = "load"
"""The step of a load's operation."""


def load_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    rows: DataFrame,
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Add rows to a table with a partition scheme, in one operation; a repeated call returns the same report.

    For a RANGE_INTERVAL table, the partitions for rows beyond the last bound are created in the same transaction, up to
    `catalog.rebalancing.planning.new_partition_limit`. Rows beyond this limit stay in the default partition, 0.

    Args:
        rows: Rows with the table's columns, by name; each value must be exactly convertible to its column's type
            (`spark_jobs.rows.value_checks`).

    Returns:
        The report: `rows_loaded`, `files_written`, `rows_written`, `bytes_written`, `partitions_created`; for rows
        beyond the limit also `rows_outside` and a `warning`.

    Raises:
        TableNotFoundError: The table does not exist.
        InvalidSchemeError: The table has no partition scheme.
        OperationConflictError: Another operation works on the table.
        InvalidRowsError: The rows lack a column, or have a value that does not fit its column.
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
        given, columns = shaped_rows(definition, rows)
        check = RowCheck(definition, first_problem(columns))
        values = [checked.value.alias(checked.column.name) for checked in columns]
        extension = _extended(before, given.select(*values), new_partition_limit(definition))
        after = extension.scheme
        rows = check.observe(given).select(*values)
        in_default = catalog.scan_files(definition.full_name, _IN_DEFAULT)
        placing = _out_of_default(in_default, before, after)
        if placing.rewritten:
            rows = rows.unionByName(read_live_rows(spark, in_default.table, placing.rewritten))
        folder = attempt_folder(operation, attempt)
        size = _usual_size(catalog, definition)
        row_count = write_rows(rows, definition, after, folder, among=extension.partition_ids, size=size)
        rows_loaded = check.finish()
        if not in_default.table.delete_file_count:
            rows_loaded = row_count - Total.of(placing.rewritten).row_count
        retired = [file.id for file in placing.rewritten]
        targets = {} if before == after else {DEFAULT_PARTITION: _out_of_default_ids(before, after)}
        read_from = in_default.table.published_location
        change = FileChange(before, after, folder, row_count, placing.relabelled, retired, targets, read_from)
        report = {
            "rows_loaded": rows_loaded,
            "partitions_created": len(after.ids) - len(before.ids),
            **extension.report(definition),
        }
        return catalog.committer.commit(operation_id, LOAD, attempt, change, report)


def _usual_size(catalog: Catalog, table: Table) -> Total | None:
    """Return the table's total, from which the size of a row follows; None if its files are too small for that.

    Without this size, Spark does not limit the files that a task writes: a task with many rows of one partition, for
    instance from a file that cannot be split, would write all of them to one file.
    """
    total = sum(
        (
            Total(partition.file_count, partition.row_count, partition.size_bytes)
            for partition in catalog.scheme_partitions(table.full_name)
        ),
        Total(),
    )
    is_usual = total.size_bytes >= total.file_count * min(target_file_bytes(table) // 4, _USUAL_BYTES)
    return total if total.file_count and is_usual else None


@dataclass(frozen=True)
class _Extension:
    """A scheme extended with partitions for the rows of a load.

    Attributes:
        scheme: The scheme with the new partitions.
        partition_ids: The partitions that the rows, and those of the default partition, may belong to; None for all.
        rows_outside: Number of rows beyond the limit of new partitions.
        farthest: The maximum of their values, as a string.
    """

    scheme: Scheme
    partition_ids: frozenset[int] | None = None
    rows_outside: int = 0
    farthest: str | None = None

    def report(self, table: Table) -> dict[str, Any]:
        """Return the fields of a load's report about rows outside; empty if there are none."""
        if not self.rows_outside:
            return {}
        warning = (
            f"table {table.full_name}: {self.rows_outside:,} row(s) with {self.scheme.column} up to {self.farthest} "
            f"are in the default partition, {DEFAULT_PARTITION}, because a load adds at most "
            f"{new_partition_limit(table):,} partitions and a table has at most {MAXIMUM_PARTITIONS:,}. Correct the "
            f"values, raise the property {NEW_PARTITIONS_PROPERTY}, or use ALTER TABLE … ADD PARTITION"
        )
        log.warning("%s", warning)
        return {"rows_outside": self.rows_outside, "warning": warning}


def _extended(scheme: Scheme, rows: DataFrame, limit: int) -> _Extension:
    """Return the scheme with partitions for all rows within the limit, if loads extend this scheme."""
    if not isinstance(scheme, IntervalScheme):
        return _Extension(scheme)
    value, reach = f.expr(value_sql(scheme.column, scheme.value_type)), scheme.reach(limit)
    is_inside = value < f.expr(literal_sql(scheme.value_type, reach))
    inside = f.when(is_inside, value)
    read: Any = rows.agg(
        _plain(scheme, f.min(inside)),
        _plain(scheme, f.max(inside)),
        f.count_if(~is_inside),
        f.max(value).cast("string"),
    ).first()
    least, greatest, rows_outside, farthest = read
    if greatest is None:
        return _Extension(scheme, frozenset([DEFAULT_PARTITION]), rows_outside, farthest)
    after = scheme.extended_to(_typed(scheme, greatest))
    first, last = (after.ids.index(after.partition_of(_typed(scheme, text))) for text in (least, greatest))
    # Rows of the default partition that now have a range belong to new partitions.
    possible = {DEFAULT_PARTITION, *after.ids[first : last + 1], *after.ids[len(scheme.ids) :]}
    return _Extension(after, frozenset(possible), rows_outside, farthest)


def _plain(scheme: Scheme, value: SparkColumn) -> SparkColumn:
    # Timestamps as numbers, because a string would depend on the session's time zone.
    return f.unix_micros(value) if isinstance(scheme.value_type, TimestampType) else value.cast("string")


def _typed(scheme: Scheme, plain: str | int) -> KeyValue:
    return scheme.typed(plain) if isinstance(plain, str) else plain


def _out_of_default(scan: FileScan, before: Scheme, after: Scheme) -> Placing:
    """Return the placing of the default partition's files in the extended scheme."""
    if before == after:
        return Placing([], {})
    files = [file for file in scan.files if file.partition_id == DEFAULT_PARTITION]
    return place_files(after, files, {DEFAULT_PARTITION: _out_of_default_ids(before, after)})


def _out_of_default_ids(before: Scheme, after: Scheme) -> tuple[int, ...]:
    """Return the partitions of an extended scheme that rows of the default partition may belong to."""
    return (DEFAULT_PARTITION, *(partition_id for partition_id in after.ids if partition_id not in before.ids))
