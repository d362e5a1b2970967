"""Catalog tables as DataFrames over the partitions that match an expression."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import DataFrame, SparkSession

from catalog import Catalog, Partition, Table
from catalog.datafiles.pruning import FileScan
from catalog.errors import ConflictError, InvalidConfigurationError
from catalog.expressions import parse_expression
from catalog.expressions.tree import Expression
from catalog.partitions.snapshots import PartitionFiles
from catalog.types.key_types import (
    TimestampType,
)
from spark_jobs.reading.files import read_data_files, read_partitions
from spark_jobs.reading.filters import filter_sql
from spark_jobs.reading.iceberg import read_as_table
from spark_jobs.rows.char_columns import with_padded_chars

_MOST_TRIES = 10
"""The number of times that folders are listed: each load of the table during a listing makes another necessary."""

log = logging.getLogger("spark_jobs.reading.tables")

UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?")
_MOMENT = re.compile("[0-9]Z['\"]")


@dataclass(frozen=True)
class PrunedTable:
    """A table restricted to the partitions that match an expression, with the numbers of these and their files.

    Attributes:
        frame: Rows with the table's columns, then its partition keys.
        table: Its name, `database.table`.
        where: The expression; None for all rows.
        files_read: None if the catalog does not know the file counts of all these partitions.
        partitions: These partitions, of a Hive-style table.
    """

    frame: DataFrame
    table: str
    where: str | None
    partitions_read: int
    files_read: int | None
    partitions: Sequence[Partition] = ()

    def __str__(self) -> str:
        """Return one line with the numbers of partitions and files that are read."""
        files = "" if self.files_read is None else f", {self.files_read:,} files"
        return f"{self.table}: {self.partitions_read:,} partitions{files}"


def read_table(
    spark: SparkSession, table: str, where: str | None = None, *, catalog: Catalog | None = None
) -> DataFrame:
    """Return the rows of a table that match an expression, reading only the matching partitions.

    The partitions are those that are visible now; later ones are not in the frame. No other folder is listed, and if no
    partition matches, no Spark job is needed.

    For a table with a partition scheme, the catalog prunes partitions by the partition column, and files by it and the
    sort columns, before Spark creates tasks; the rows of these files are then filtered.

    Shape: the table's columns in its order, then its partition keys; char(n) and varchar(n) are strings, and a char has
    blanks up to its length, as in Spark's own tables. A column that a file lacks is null, and so is a key whose string
    is not a value of its type. Timestamps in paths and filters are in the session's time zone, as everywhere in Spark.

    Args:
        where: The filter on partition keys, as `Catalog.get_partitions` takes it, or on any columns that compare
            (`Catalog.scan_files`); None for all rows.
        catalog: The catalog; by default the one in `CALVE_CATALOG_URL`.

    Raises:
        TableNotFoundError: The table does not exist.
        ExpressionError: The expression is invalid.
        NotATableError: It is a view.
        UnsupportedFormatError: Files have a format that Calve only records.
        InvalidConfigurationError: The table's files are Avro, and Spark has no reader for them.
        VerificationFailedError: The folder of a partition does not exist.
    """
    pruned = prune_table(spark, table, where, catalog=catalog)
    log.info("%s", pruned)
    return pruned.frame


def prune_table(
    spark: SparkSession, table: str, where: str | None = None, *, catalog: Catalog | None = None
) -> PrunedTable:
    """Return the result of `read_table` with the numbers of read partitions and files.

    Raises:
        CatalogError: As `read_table`.
    """
    with opened(catalog) as source:
        definition = source.get_table(table)
        if definition.scheme is not None:
            file_scan = source.scan_files(table, where, zone=session_zone(spark))
            return pruned_scan(file_scan, read_scan(spark, file_scan), filter_sql(file_scan.tree, file_scan.table))
        # Searches of partitions refuse commits that Calve cannot follow; searches of files leave them to Iceberg.
        files = source.scan_partition_files(table, where) if definition.is_stored_as_iceberg else None
        scanned = source.scan_partitions(table, where).table if files is None else files.table
        if (tree := _local_times(spark, scanned, where)) is not None:
            # All partitions are read, because daylight saving time changes make strings and instants sort differently.
            whole = prune_table(spark, table, catalog=source)
            return replace(whole, frame=whole.frame.where(filter_sql(tree, scanned)), where=where)
        return _pruned_folders(spark, source, table, where) if files is None else prune_files(spark, files, where)


def _pruned_folders(spark: SparkSession, source: Catalog, table: str, where: str | None) -> PrunedTable:
    """Read the folders of the matching partitions, without files that are not committed yet.

    Raises:
        ConflictError: Files were moved or committed again and again while the folders were listed.
    """
    for _ in range(_MOST_TRIES):
        definition = source.get_table(table)
        uncommitted = source.loading.uncommitted(definition)
        scan = source.scan_partitions(table, where)
        partitions = list(scan.partitions)
        inside = source.folders_inside(scan.table, partitions)
        rows = read_partitions(spark, scan.table, partitions, without=uncommitted.names, inside=inside)
        if source.loading.uncommitted_mark(definition) == uncommitted.mark:
            break
    else:
        raise ConflictError(
            f"table {table} was changed {_MOST_TRIES} times while its folders were listed; read it again when fewer "
            "loads run, or store it as Iceberg"
        )
    counts = [partition.file_count for partition in partitions]
    known = [count for count in counts if count is not None]
    return PrunedTable(
        frame=with_padded_chars(rows, scan.table),
        table=scan.table.full_name,
        where=where,
        partitions_read=len(partitions),
        files_read=sum(known) if len(known) == len(counts) else None,
        partitions=partitions,
    )


def prune_files(spark: SparkSession, files: PartitionFiles, where: str | None = None) -> PrunedTable:
    """Return the rows of the files of a table stored as Iceberg, as of the state in which these were found.

    Args:
        where: The filter by which they were found.
    """
    table = files.table
    if table.engine_location is None:
        rows = read_data_files(spark, table.in_files, files.files)
    else:
        # Delete files, or commits that Calve cannot follow: Iceberg prunes the files itself.
        rows = read_as_table(spark, table.in_files, table.engine_location)
        rows = rows.where(filter_sql(parse_expression(where, table), table)) if where else rows
    return PrunedTable(
        frame=with_padded_chars(rows, table),
        table=table.full_name,
        where=where,
        partitions_read=len(files.partitions),
        files_read=len(files.files),
    )


def session_zone(spark: SparkSession) -> tzinfo | None:
    """Return the session's time zone; None for UTC.

    Raises:
        InvalidConfigurationError: Python does not know the time zone.
    """
    name = str(spark.conf.get("spark.sql.session.timeZone"))
    if name in UTC_NAMES:
        return None
    if (match := _OFFSET.fullmatch(name)) is not None:
        sign, *parts = match.groups()
        hours, minutes, seconds = (int(part or 0) for part in parts)
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise InvalidConfigurationError(
            f"spark.sql.session.timeZone is {name!r}, an unknown time zone; set one such as Europe/Paris"
        ) from error


def _local_times(spark: SparkSession, table: Table, where: str | None) -> Expression | None:
    """Return a filter with the instants of a session in another zone than UTC; None if there is nothing to convert."""
    zone = session_zone(spark)
    if zone is None or not any(isinstance(key_type, TimestampType) for key_type in table.key_types):
        return None
    tree = parse_expression(where, table, zone)
    is_alike = tree == parse_expression(where, table) and not _MOMENT.search(where or "")
    return None if is_alike else tree


def read_scan(spark: SparkSession, scan: FileScan) -> DataFrame:
    """Return all rows of the files that a scan found.

    If other engines have written delete files, or have committed what Calve cannot follow, Iceberg reads the whole
    table; a condition on the frame then prunes its files.

    Raises:
        InvalidConfigurationError: Iceberg has to read the table, and Spark does not have its runtime.
    """
    if scan.engine_location is None:
        return read_data_files(spark, scan.table, scan.files)
    return read_as_table(spark, scan.table, scan.engine_location)


def pruned_scan(scan: FileScan, frame: DataFrame, condition: str | None = None) -> PrunedTable:
    """Return a frame over a table with a partition scheme, with the numbers of its file scan.

    Args:
        frame: The rows of the scanned files.
        condition: A Spark SQL condition on the rows; None to keep all.
    """
    rows = frame if condition is None else frame.where(condition)
    return PrunedTable(
        frame=with_padded_chars(rows, scan.table),
        table=scan.table.full_name,
        where=scan.expression,
        partitions_read=len(scan.partition_ids),
        files_read=len(scan.files),
    )


def opened(catalog: Catalog | None) -> AbstractContextManager[Catalog]:
    """Return a context manager with the given catalog, or with the environment's, which it closes afterwards."""
    return Catalog.open() if catalog is None else nullcontext(catalog)
