"""Spark options, types and columns to read and write the files of Hive-style tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from catalog import Catalog, FileFormat, Table
from catalog.model import Column
from catalog.tables.columns import NESTED_TYPE, file_layout
from catalog.tables.own_files import base_name
from spark_jobs.rows.avro_schemas import avro_schema
from spark_jobs.rows.orc_values import is_changed_by_orc

SIZED_TEXT = re.compile(r"\b(char|varchar)\s*\(\s*([0-9]+)\s*\)")
"""A string type with a length."""

_OPTIONS = {FileFormat.CSV: {"header": "true"}}
_WRITER_OPTIONS = {
    # By default, Spark's CSV writer trims strings and truncates times to milliseconds.
    FileFormat.CSV: {
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
    }
}
_SHOWN = 60
"""The maximum number of characters of a refused value in a message."""

_BYTES = "spark.sql.parquet.writeLegacyFormat"
_DECIMAL = re.compile(r"\bdecimal\b")
_FIELD_ID, _NO_FIELD_ID = "parquet.field.id", "calve.column.id"


def file_options(file_format: FileFormat) -> dict[str, str]:
    """Return the options to read and write files of a format."""
    return dict(_OPTIONS.get(file_format, {}))


def writer_options(catalog: Catalog, table: Table) -> dict[str, str]:
    """Return the options to write a table's data files, with names by which PURGE recognises the catalog's own files.

    Raises:
        UnsupportedFormatError: The format does not have the name or the type of a column.

    Source: `HadoopMapReduceCommitProtocol.getFilename` of Spark.
    """
    options = {**file_options(table.format), **_WRITER_OPTIONS.get(table.format, {})}
    if table.format is FileFormat.AVRO:
        columns = written_columns(table)
        options["avroSchema"] = avro_schema(table.full_name, ((name, column.type) for column, name, _ in columns))
    return {**options, "mapreduce.output.basename": base_name(catalog.storage.identity)}


def writer_settings(table: Table) -> dict[str, str]:
    """Return the settings of the session with which Spark writes data files of a Hive-style table as Hive reads them.

    Hive's classes read decimals in Parquet files only from bytes; Spark writes those of up to 18 digits as integers.
    The setting also gives the parts of arrays and maps other names, so that only tables with decimals need it.

    Source: `ETypeConverter` of Hive 2.3, and Spark's `SparkToParquetSchemaConverter`.
    """
    has_decimals = any(_DECIMAL.search(column.type) for column in table.columns)
    return {_BYTES: "true"} if has_decimals and table.format is FileFormat.PARQUET else {}


def spark_type(type_text: str) -> str:
    """Return a column's type for Spark's readers and writers, which do not support char and varchar."""
    return SIZED_TEXT.sub("string", type_text)


def written_columns(table: Table) -> Iterator[tuple[Column, str, dict[str, int]]]:
    """Yield the columns of new files: the column, its name in the file, and metadata for the Parquet writer.

    CSV files keep the positions of dropped columns, because readers find columns by position. Files with nested columns
    have no field ids: Spark's writer cannot assign ids to the elements of arrays and maps, and readers that use ids,
    such as Iceberg's, would read them as null. Their columns have other metadata instead, because otherwise Spark keeps
    the ids that the columns of a source have.

    Source: Spark's `ParquetUtils.FIELD_ID_METADATA_KEY`.
    """
    by_position = table.format is FileFormat.CSV
    has_nested = any(NESTED_TYPE.match(column.type) for column in table.columns)
    key = _NO_FIELD_ID if has_nested else _FIELD_ID
    for column in file_layout(table, table.format) if by_position else table.columns:
        yield column, column.stored_name, {key: column.id} if table.format is FileFormat.PARQUET else {}


def as_stored(table: Table, values: dict[str, SparkColumn]) -> Iterator[SparkColumn]:
    """Yield the columns of new files under their names in the files.

    Args:
        values: Name of a table's column → its value.
    """
    names = {column.id: column.name for column in table.columns}
    for column, stored_name, metadata in written_columns(table):
        value = values[names[column.id]] if column.id in names else f.lit(None)
        if column.id not in names or NESTED_TYPE.match(column.type):
            # This also removes the field ids of a source from the fields of structs.
            value = value.cast(spark_type(column.type))
        if (refusal := format_refusal(column, value, table.format)) is not None:
            value = f.when(refusal.isNotNull(), f.raise_error(refusal).cast(spark_type(column.type))).otherwise(value)
        yield value.alias(stored_name, metadata=metadata) if metadata else value.alias(stored_name)


def format_refusal(column: Column, value: SparkColumn, file_format: FileFormat) -> SparkColumn | None:
    """Return why data files of a format cannot have a value of a column, as a string; null if they can.

    Hive's Avro files have milliseconds, ORC files change some dates and timestamps, and readers of CSV files take each
    line for a row.

    Returns:
        None if files of the format can have all values of the column's type.
    """
    shown = f.left(value.cast("string"), f.lit(_SHOWN))
    is_refused: SparkColumn | None = None
    if file_format is FileFormat.AVRO and column.type == "timestamp":
        is_refused = f.unix_micros(value) % 1000 != 0
        reason = "has microseconds, but Hive's Avro files have milliseconds; use date_trunc('millisecond', …)"
    elif file_format is FileFormat.CSV and column.type.startswith(("string", "char", "varchar")):
        is_refused, shown = value.rlike("[\r\n]"), f.regexp_replace(shown, "[\r\n]+", "…")
        reason = "has a line break (shown as …), which CSV data files cannot have; replace it, or use another format"
    elif file_format is FileFormat.ORC:
        is_refused = is_changed_by_orc(value, spark_type(column.type))
        reason = (
            "would become another value in an ORC file, which has no 5 to 14 October 1582, and no fractions of the "
            "last second before 1970; use a table of another format, such as Parquet"
        )
    if is_refused is None:
        return None
    return f.when(is_refused, f.concat(f.lit(f"column {column.name}: '"), shown, f.lit(f"' {reason}")))


def stored_value(column: Column, file_format: FileFormat) -> SparkColumn:
    """Return a column's value in rows that were read with the names in files, of which a file has only one."""
    names = (column.stored_name,) if file_format is FileFormat.CSV else column.stored_names[::-1]
    values = [f.col(f"`{name}`") for name in names]
    return values[0] if len(values) == 1 else f.coalesce(*values)
