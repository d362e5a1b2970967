"""A catalog table as a DataFrame over just the partitions that an expression asks for."""

from __future__ import annotations

import logging
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import DataFrame, SparkSession

from catalog import Catalog, Table
from catalog.datafiles.pruning import FileScan
from catalog.errors import InvalidConfigurationError
from catalog.expressions import parse_expression
from catalog.expressions.tree import Expression
from catalog.partitions.counting import count_visible
from catalog.types.key_types import (
    TimestampType,
)
from spark_jobs.reading.files import read_data_files, read_partitions
from spark_jobs.reading.filters import filter_sql
from spark_jobs.rows.char_columns import with_padded_chars

log = logging.getLogger("spark_jobs.reading.tables")

UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?")
_MOMENT = re.compile("[0-9]Z['\"]")


@dataclass(frozen=True)
class PrunedTable:
    """A table over the partitions that match an expression, and how much of it that is.

    Attributes:
        frame: The table's columns, then its partition keys.
        table: Its name, `database.table`.
        where: The expression; None for all.
        files_read, files_total: None when the catalog does not know the file count of all these partitions.
        scan: The files of a table with a partition scheme; None for other tables.
    """

    frame: DataFrame
    table: str
    where: str | None
    partitions_read: int
    partitions_total: int
    files_read: int | None
    files_total: int | None
    scan: FileScan | None = None

    def __str__(self) -> str:
        """Say in one line what is read."""
        known = self.files_read is not None and self.files_total is not None
        files = f", {self.files_read:,} of {self.files_total:,} files" if known else ""
        return f"{self.table}: {self.partitions_read:,} of {self.partitions_total:,} partitions{files}"


def read_table(
    spark: SparkSession, table: str, where: str | None = None, *, catalog: Catalog | None = None
) -> DataFrame:
    """Return a table over just the partitions that an expression asks for; equal to reading all of it and filtering.

    The partitions are those that readers see now; ones that come later are not in the frame. No other folder is
    listed, and no match at all needs no Spark job.

    Of a table with a partition scheme, the catalog finds the partitions by the partition column, and the files by it
    and the sort columns, before Spark makes a task; what is read then is filtered row by row.

    Shape: the table's columns in its order, then its partition keys; char(n) and varchar(n) are strings, and a char has
    blanks up to its length, as in Spark's own tables. A column that a file lacks is null, and so is a key whose text is
    not of its type.
    The text of a timestamp, in a path as in a filter, is a time of the session's zone, as everywhere in Spark.

    Args:
        where: The filter on partition keys, as `Catalog.get_partitions` takes it, or on any columns that compare
            (`Catalog.scan_files`); None for all rows.
        catalog: By default the one that `CALVE_CATALOG_URL` names.

    Raises:
        TableNotFoundError: There is no such table.
        ExpressionError: The expression cannot be used.
        NotATableError: It is a view.
        UnsupportedFormatError: Files have a format that is recorded only.
        InvalidConfigurationError: The table's files are Avro, and Spark has no reader for it.
        VerificationFailedError: The folder of a partition is not there.
    """
    pruned = prune_table(spark, table, where, catalog=catalog)
    log.info("%s", pruned)
    return pruned.frame


def prune_table(
    spark: SparkSession, table: str, where: str | None = None, *, catalog: Catalog | None = None
) -> PrunedTable:
    """Return what `read_table` returns, and how many partitions and files it reads, of how many.

    Raises:
        CatalogError: As `read_table`.
    """
    with opened(catalog) as source:
        if source.get_table(table).scheme is not None:
            found = source.scan_files(table, where, zone=session_zone(spark))
            return pruned_scan(found, read_scan(spark, found), filter_sql(found.tree, found.table))
        scan = source.scan_partitions(table, where)
        if (tree := _local_times(spark, scan.table, where)) is not None:
            # Texts sort in another way than moments where clocks are put back or forward.
            whole = prune_table(spark, table, catalog=source)
            return replace(whole, frame=whole.frame.where(filter_sql(tree, scan.table)), where=where)
        partitions = list(scan.partitions)
        total = count_visible(source.storage, scan.table)
    counts = [partition.file_count for partition in partitions]
    known = [count for count in counts if count is not None]
    return PrunedTable(
        frame=with_padded_chars(read_partitions(spark, scan.table, partitions), scan.table),
        table=scan.table.full_name,
        where=where,
        partitions_read=len(partitions),
        partitions_total=total.partitions,
        files_read=sum(known) if len(known) == len(counts) else None,
        files_total=total.files,
    )


def session_zone(spark: SparkSession) -> tzinfo | None:
    """Return the session's time zone; None for UTC.

    Raises:
        InvalidConfigurationError: It is none that Python knows.
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
            f"spark.sql.session.timeZone is {name!r}, which is no known time zone; set one such as Europe/Paris"
        ) from error


def _local_times(spark: SparkSession, table: Table, where: str | None) -> Expression | None:
    """Return a filter with the moments of a session in another zone than UTC; None if there is nothing to convert."""
    zone = session_zone(spark)
    if zone is None or not any(isinstance(key_type, TimestampType) for key_type in table.key_types):
        return None
    tree = parse_expression(where, table, zone)
    is_alike = tree == parse_expression(where, table) and not _MOMENT.search(where or "")
    return None if is_alike else tree


def read_scan(spark: SparkSession, scan: FileScan) -> DataFrame:
    """Return all rows of the files that a scan found."""
    return read_data_files(spark, scan.table, scan.files)


def pruned_scan(scan: FileScan, frame: DataFrame, condition: str | None = None) -> PrunedTable:
    """Return a frame over a table with a partition scheme, and how much of it the scan that found its files reads.

    Args:
        frame: The rows of these files.
        condition: A condition of Spark's SQL that keeps some of them; None to keep all.
    """
    rows = frame if condition is None else frame.where(condition)
    return PrunedTable(
        frame=with_padded_chars(rows, scan.table),
        table=scan.table.full_name,
        where=scan.expression,
        partitions_read=len(scan.partition_ids),
        partitions_total=len(scan.scheme.ids),
        files_read=len(scan.files),
        files_total=scan.files_total,
        scan=scan,
    )


def opened(catalog: Catalog | None) -> AbstractContextManager[Catalog]:
    """Return the catalog for a block; the one that the environment names is closed afterwards."""
    return Catalog.open() if catalog is None else nullcontext(catalog)
