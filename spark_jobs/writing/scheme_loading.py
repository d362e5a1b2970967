"""Adding rows to a table with a partition scheme: all of them become visible at once, or none does."""

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
from catalog.datafiles.pruning import Placing, place_files
from catalog.errors import InvalidSchemeError
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.rebalancing.planning import new_partition_limit, target_file_bytes
from catalog.schemes.model import DEFAULT_PARTITION, MAXIMUM_PARTITIONS, Scheme
from catalog.schemes.ranges import IntervalScheme
from catalog.tables.own_properties import NEW_PARTITIONS_PROPERTY
from catalog.types.key_types import KeyValue, TimestampType
from spark_jobs.reading.files import read_data_files
from spark_jobs.rows.placement import literal_sql, value_sql
from spark_jobs.rows.value_checks import RowCheck, first_problem, shaped_rows
from spark_jobs.sessions.session import attempt_here
from spark_jobs.writing.scheme_files import write_rows

log = logging.getLogger("spark_jobs.writing.scheme_loading")

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

    Of a RANGE_INTERVAL table, the partitions for rows beyond the last bound are created in the same transaction, up to
    `catalog.rebalancing.planning.new_partition_limit`. Rows farther out stay in the default partition, 0.

    Args:
        rows: The table's columns, by name; each value becomes one of its column's type exactly
            (`spark_jobs.rows.value_checks`).

    Returns:
        The report: `rows_loaded`, `files_written`, `rows_written`, `bytes_written`, `partitions_created`; of rows too
        far out for a partition of their own `rows_outside`, and a `warning`.

    Raises:
        TableNotFoundError: There is no such table.
        InvalidSchemeError: It has no partition scheme.
        OperationConflictError: Another operation is at work on the table.
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
        placing = _out_of_default(catalog, definition, before, after)
        if placing.rewritten:
            rows = rows.unionByName(read_data_files(spark, definition, placing.rewritten))
        folder = attempt_folder(operation, attempt)
        size = _usual_size(catalog, definition)
        row_count = write_rows(rows, definition, after, folder, among=extension.partition_ids, size=size)
        check.finish()
        retired = [each.id for each in placing.rewritten]
        change = FileChange(before, after, folder, row_count, placing.relabelled, retired)
        report = {
            "rows_loaded": row_count - Total.of(placing.rewritten).row_count,
            "partitions_created": len(after.ids) - len(before.ids),
            **extension.report(definition),
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


@dataclass(frozen=True)
class _Extension:
    """A scheme with partitions for the rows of a load.

    Attributes:
        scheme: With those that it makes by itself.
        partition_ids: The partitions that the rows, and those of the default partition, may belong to; None for all.
        rows_outside: How many rows are too far out for a partition of their own.
        farthest: The greatest of their values, as text.
    """

    scheme: Scheme
    partition_ids: frozenset[int] | None = None
    rows_outside: int = 0
    farthest: str | None = None

    def report(self, table: Table) -> dict[str, Any]:
        """Return what a load reports of rows outside; nothing when there are none."""
        if not self.rows_outside:
            return {}
        warning = (
            f"table {table.full_name}: {self.rows_outside:,} row(s) with {self.scheme.column} up to {self.farthest} "
            f"are in the default partition, {DEFAULT_PARTITION}, because a load adds at most "
            f"{new_partition_limit(table):,} partitions and a table has at most {MAXIMUM_PARTITIONS:,}. Correct the "
            f"values; or raise the property {NEW_PARTITIONS_PROPERTY}, or use ALTER TABLE … ADD PARTITION"
        )
        log.warning("%s", warning)
        return {"rows_outside": self.rows_outside, "warning": warning}


def _extended(scheme: Scheme, rows: DataFrame, limit: int) -> _Extension:
    """Return the scheme with partitions for all rows that are not too far out, if it makes them by itself."""
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
    # The rows of the default partition that have ranges now are in new ones.
    possible = {DEFAULT_PARTITION, *after.ids[first : last + 1], *after.ids[len(scheme.ids) :]}
    return _Extension(after, frozenset(possible), rows_outside, farthest)


def _plain(scheme: Scheme, value: SparkColumn) -> SparkColumn:
    # A text of a timestamp would be one of the session's time zone.
    return f.unix_micros(value) if isinstance(scheme.value_type, TimestampType) else value.cast("string")


def _typed(scheme: Scheme, plain: str | int) -> KeyValue:
    return scheme.typed(plain) if isinstance(plain, str) else plain


def _out_of_default(catalog: Catalog, table: Table, before: Scheme, after: Scheme) -> Placing:
    """Return what becomes of the files of the default partition whose rows have partitions of their own now."""
    if before == after:
        return Placing([], {})
    possible = (DEFAULT_PARTITION, *(each for each in after.ids if each not in before.ids))
    files = catalog.scan_files(table.full_name, f"_partition_id = {DEFAULT_PARTITION}").files
    return place_files(after, files, {DEFAULT_PARTITION: possible})
