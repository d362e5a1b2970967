"""Writing of data files and manifests of tables stored as Iceberg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from catalog.datafiles.files import ColumnStatistics, NewFile
from catalog.datafiles.footers import DataFileReader
from catalog.datafiles.manifest import write_manifest
from catalog.errors import VerificationFailedError
from catalog.model import Table
from catalog.model.partition_names import parse_partition_path, partition_path
from catalog.operations.failpoints import Point, reached
from catalog.types.column_types import ColumnCharType, parse_column_type
from catalog.types.key_types import FloatingType, KeyType, StringType, TimestampType
from spark_jobs.reading.paths import spark_path
from spark_jobs.rows.file_formats import as_stored
from spark_jobs.rows.key_spellings import without_null_texts
from spark_jobs.rows.value_checks import CheckedColumn
from spark_jobs.sessions.footer_tasks import in_threads
from spark_jobs.writing.scheme_files import SizedFile, writer_settings, written_files

_KEY = "key."
"""Prefix of the columns by which Spark divides rows into folders; the files have the keys under their own names."""

_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"


def write_partition_files(
    rows: DataFrame, table: Table, columns: Sequence[CheckedColumn], folder: str, *, is_placed: bool = False
) -> int:
    """Write rows as data files, each with the rows of one partition, and list them in a manifest.

    Values that do not fit are null in the files; if they are those of keys, their partition has the value as given.

    Args:
        columns: The table's columns and then its partition keys, over the rows.
        folder: A folder below the table's location that does not exist yet.
        is_placed: Whether the rows of a partition are together already.

    Returns:
        The number of rows in the files.

    Raises:
        VerificationFailedError: The keys in a file are not those of its partition.
    """
    spark = rows.sparkSession
    keys = [checked for checked in columns if checked.column.name in table.key_names]
    values = {checked.column.name: checked.value for checked in columns} | {
        checked.column.name: _key_value(checked) for checked in keys
    }
    folders = [f"{_KEY}{checked.column.name}" for checked in keys]
    texts = [_key_text(checked).alias(name) for checked, name in zip(keys, folders, strict=True)]
    placed = rows.select(*as_stored(table.in_files, values), *texts)
    if folders and not is_placed:
        placed = placed.hint("rebalance", *[f.col(f"`{name}`") for name in folders])
    writer = placed.write.partitionBy(*folders) if folders else placed.write
    with writer_settings(spark, table, is_sorted=False):
        writer.parquet(f"{spark_path(table.location)}/{folder}")
    reached(Point.FILES_WRITTEN)
    written = 0

    def files() -> Iterator[NewFile]:
        nonlocal written
        for file in written_files(spark, table, folder, partial(_footers, table, folder)):
            written += file.row_count
            if file.row_count:
                yield file

    write_manifest(table, folder, files())
    return written


def _key_value(checked: CheckedColumn) -> SparkColumn:
    """Return a key's value: a zero without a sign, and null for an empty string, as in Hive-style tables."""
    key_type = parse_column_type(checked.column.type)
    if isinstance(key_type, FloatingType):
        return checked.value + f.lit(0.0).cast(str(key_type))
    return without_null_texts(checked.value) if isinstance(key_type, StringType) else checked.value


def _key_text(checked: CheckedColumn) -> SparkColumn:
    """Return a key's value as the catalog stores it; timestamps as UTC times, whatever the session's time zone."""
    value = _key_value(checked)
    if isinstance(parse_column_type(checked.column.type), TimestampType):
        seconds = f.unix_micros(value).cast("decimal(20,0)") / f.lit(1_000_000)
        value = f.expr(_EPOCH) + f.make_dt_interval(f.lit(0), f.lit(0), f.lit(0), seconds.cast("decimal(18,6)"))
    text = value.cast("string")
    return text if checked.unfit is None else f.coalesce(checked.unfit, text)


def _footers(table: Table, folder: str, files: Sequence[SizedFile]) -> Iterator[NewFile]:
    types = dict(zip(table.key_names, table.key_types, strict=True))
    # By their names in files, which are not those of renamed keys.
    stored = {key.stored_name: types[key.name] for key in table.partition_keys}
    reader = DataFileReader(table, stored)

    def footer(listed: SizedFile) -> NewFile:
        path, size_bytes = listed
        values = tuple(value for _, value in parse_partition_path(path.rpartition("/")[0]))
        file = reader.read(f"{folder}/{path}", size_bytes, 0)
        for (name, key_type), value in zip(stored.items(), values, strict=True):
            if file.row_count and not _has_only(key_type, value, file.statistics.get(name)):
                raise VerificationFailedError(
                    f"table {table.full_name}: {file.path} has rows with other values of {name} than its partition, "
                    f"{partition_path(table.key_names, values)}; nothing was added. Run the load again"
                )
        return replace(file, statistics={}, values=values)

    return in_threads(footer, files, table.location)


def _has_only(key_type: KeyType, value: str | None, known: ColumnStatistics | None) -> bool:
    """Return whether all rows of a file may have one value of a key; a value that is not of its type is null there."""
    typed = None if value is None else key_type.comparable(value)
    if known is None or isinstance(key_type, ColumnCharType | FloatingType):
        return True
    if typed is None:
        return known.low is None
    return not known.null_count and known == ColumnStatistics.of_values(key_type, typed, typed, known.null_count)
