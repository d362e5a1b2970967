"""Changes of the rows of tables with a partition scheme: overwritten, deleted, updated and compacted.

A change reads the files that have rows which it concerns, writes their rows to new files, and publishes these in place
of the old ones in one transaction, which is one snapshot for other engines. Files of which all rows are deleted are not
read again. Running readers keep the old files until vacuum.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.datafiles.committing import CHANGE_ROWS
from catalog.datafiles.compacting import files_to_compact
from catalog.datafiles.files import DataFile, Total
from catalog.datafiles.pruning import FileScan
from catalog.errors import ExpressionError
from catalog.files.locations import comparable
from catalog.operations.records import Operation
from catalog.rebalancing.planning import with_target_file_bytes
from spark_jobs.changing.changed_rows import IS_HIT, rows_updated, rows_without, with_hits
from spark_jobs.queries.one_state import one_state_in_subqueries
from spark_jobs.queries.query import prune_query
from spark_jobs.reading.iceberg import read_live_rows
from spark_jobs.reading.paths import plain_path, quoted, quoted_table
from spark_jobs.rows.char_columns import with_padded_chars
from spark_jobs.rows.value_checks import shaped_rows
from spark_jobs.sessions.session import attempt_here
from spark_jobs.writing.scheme_loading import SchemeRows, publish_scheme_rows

log = logging.getLogger("spark_jobs.changing.scheme_changes")

FILE = "calve/file"
"""The column with the path of each row's file, as Spark reports it."""


def overwrite(
    spark: SparkSession, catalog: Catalog, operation: Operation, frame: DataFrame, read_from: str | None = None
) -> dict[str, Any]:
    """Replace the rows of the partitions that new rows belong to, of a HASH table all rows; return the report.

    Args:
        operation: It has reserved the table.
        frame: The new rows, as for `load_rows`.
        read_from: The metadata of the table of which they are read; None if they come from elsewhere.
    """
    with attempt_here(catalog, operation, CHANGE_ROWS) as attempt:
        table = catalog.get_table(operation.table)
        new = SchemeRows(
            *shaped_rows(table, frame),
            read_from=read_from,
            may_extend=True,
            replaces_partitions=True,
            is_overwrite=True,
            is_of_itself=read_from is not None,
        )
        return publish_scheme_rows(spark, catalog, operation, (CHANGE_ROWS, attempt), table, new)


@one_state_in_subqueries()
def delete(spark: SparkSession, catalog: Catalog, operation: Operation, where: str) -> dict[str, Any]:
    """Delete the rows that meet a condition; return the report, with the number of deleted `rows`."""
    with attempt_here(catalog, operation, CHANGE_ROWS) as attempt:
        hits = find_hits(spark, catalog, operation.table, where)
        new, partly = hits.retired(), [file for file in hits.files if file.path not in hits.whole]
        if partly:
            kept = rows_without(spark, catalog, hits.table, rows_of_files(spark, hits.table, partly), where)
            rows, columns = shaped_rows(hits.table, kept)
            new = replace(new, rows=rows, columns=columns)
        return publish_scheme_rows(spark, catalog, operation, (CHANGE_ROWS, attempt), hits.table, new, hits.report)


@one_state_in_subqueries()
def update(
    spark: SparkSession, catalog: Catalog, operation: Operation, assignments: Mapping[str, str], where: str
) -> dict[str, Any]:
    """Update the rows that meet a condition; return the report, with the number of updated `rows`.

    A row whose partition column is set moves to its new partition.

    Args:
        assignments: Column → expression of its new value.

    Raises:
        InvalidRowsError: A value does not fit its column.
    """
    with attempt_here(catalog, operation, CHANGE_ROWS) as attempt:
        hits = find_hits(spark, catalog, operation.table, where)
        table, new = hits.table, hits.retired()
        if hits.files:
            old = rows_of_files(spark, table, hits.files)
            rows, columns = rows_updated(spark, catalog, table, old, assignments, where)
            assert table.scheme is not None
            new = replace(new, rows=rows, columns=columns, may_extend=table.scheme.column in assignments)
        return publish_scheme_rows(spark, catalog, operation, (CHANGE_ROWS, attempt), table, new, hits.report)


def compact(
    spark: SparkSession,
    catalog: Catalog,
    operation: Operation,
    partition_ids: Collection[int] | None,
    target_bytes: int,
) -> dict[str, Any]:
    """Write the rows of small files to fewer and larger ones; return the report, with `partitions_replaced`.

    Args:
        partition_ids: The partitions whose files are compacted; None for all.
        target_bytes: The approximate size of the new files.
    """
    with attempt_here(catalog, operation, CHANGE_ROWS) as attempt:
        scan = catalog.scan_files(operation.table)
        table = with_target_file_bytes(scan.table, target_bytes)
        files = files_to_compact(scan.files, target_bytes, partition_ids)
        new = SchemeRows.instead_of(files, scan, is_serializable=False)
        if files:
            rows, columns = shaped_rows(scan.table, read_live_rows(spark, scan.table, files))
            new = replace(new, rows=rows, columns=columns)
        counts = {
            "rows": Total.of(files).row_count,
            "partitions_replaced": len({file.partition_id for file in files}),
            "files_before": len(files),
        }
        report = publish_scheme_rows(spark, catalog, operation, (CHANGE_ROWS, attempt), table, new, counts)
    return report


@dataclass(frozen=True)
class Hits:
    """The files that have rows which meet a condition.

    Attributes:
        scan: The files that were searched.
        files: Ordered by partition.
        row_count: The number of these rows.
        whole: The paths of the files of which all rows meet the condition.
    """

    scan: FileScan
    files: Sequence[DataFile]
    row_count: int
    whole: Collection[str]

    @property
    def table(self) -> Table:
        """The table as of the scan."""
        return self.scan.table

    @property
    def report(self) -> dict[str, int]:
        """The fields of a change's report about the condition."""
        return {"rows": self.row_count, "partitions_replaced": len({file.partition_id for file in self.files})}

    def retired(self) -> SchemeRows:
        """Return a change that removes these files, without any new rows."""
        return replace(SchemeRows.instead_of(self.files, self.scan), is_overwrite=True)


def find_hits(spark: SparkSession, catalog: Catalog, name: str, where: str) -> Hits:
    """Return the files that have rows which meet a condition, after counting these rows.

    Raises:
        RefusedStatementError: The condition uses what is not allowed.
    """
    table = catalog.get_table(name)
    sql = f"SELECT 1 FROM {quoted_table(table)} WHERE (\n{where}\n)"
    pruned = prune_query(spark, sql, catalog=catalog, untrusted=sql)
    try:
        scan = catalog.scan_files(name, pruned.tables[0].where if pruned.tables else "false")
    except ExpressionError as error:
        log.warning("All files of %s are searched: %s", name, error)
        scan = catalog.scan_files(name)
    by_path = dict[str, int]()
    if scan.files:
        rows = with_hits(spark, catalog, scan.table, with_files(rows_of_files(spark, scan.table, scan.files)), where)
        counts = rows.where(f.col(quoted(IS_HIT))).groupBy(quoted(FILE)).count()
        by_path = {relative_path(scan.table, uri): count for uri, count in counts.toLocalIterator()}
    files = [file for file in scan.files if file.path in by_path]
    # The row count of a file includes those that are deleted in delete files.
    whole = {file.path for file in files if by_path[file.path] == file.row_count}
    log.info("%s: the change concerns %d files", name, len(files))
    return Hits(scan, files, sum(by_path.values()), whole)


def rows_of_files(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> DataFrame:
    """Return the rows of some files, as statements see them."""
    return with_padded_chars(read_live_rows(spark, table, files), table)


def with_files(rows: DataFrame) -> DataFrame:
    """Return rows of files with the column `FILE`."""
    return rows.withColumn(FILE, f.input_file_name())


def relative_path(table: Table, uri: str) -> str:
    """Return the path of a file, as `FILE` has it, relative to the table's location."""
    return comparable(plain_path(uri)).removeprefix(f"{comparable(table.location)}/")
