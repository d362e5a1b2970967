"""What Spark has to be told to read and write the files of Hive-style tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from catalog import Catalog, FileFormat, Table
from catalog.model import Column
from catalog.tables.columns import file_layout
from catalog.tables.own_files import base_name

SIZED_TEXT = re.compile(r"\b(char|varchar)\s*\(\s*([0-9]+)\s*\)")
"""A text type with a length."""

_OPTIONS = {FileFormat.CSV: {"header": "true"}}
_WRITER_OPTIONS = {
    # By default Spark's writer of CSV trims texts and cuts times to milliseconds.
    FileFormat.CSV: {
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
    }
}


def file_options(file_format: FileFormat) -> dict[str, str]:
    """Return the options with which files of a format are read, and written."""
    return dict(_OPTIONS.get(file_format, {}))


def writer_options(catalog: Catalog, file_format: FileFormat) -> dict[str, str]:
    """Return the options with which data files are written that PURGE knows as the catalog's own by their names.

    Source: `HadoopMapReduceCommitProtocol.getFilename` of Spark.
    """
    options = {**file_options(file_format), **_WRITER_OPTIONS.get(file_format, {})}
    return {**options, "mapreduce.output.basename": base_name(catalog.storage.identity)}


def spark_type(type_text: str) -> str:
    """Return a column's type as Spark's readers and writers take it, which have no char and no varchar."""
    return SIZED_TEXT.sub("string", type_text)


_NESTED_TYPE = re.compile(r"\s*(array|map|struct)\s*<", re.IGNORECASE)


def written_columns(table: Table) -> Iterator[tuple[Column, str, dict[str, int]]]:
    """Yield the columns of new files: the column, its name there, and the metadata that the writer of Parquet takes.

    Those of CSV, which readers find by position, keep the places of columns that were dropped. Files with nested
    columns have no field ids: Spark's writer cannot give one to the elements of arrays and maps, and readers that go by
    ids, as Iceberg's do, would find nothing in them.

    Source: Spark's `ParquetUtils.FIELD_ID_METADATA_KEY`.
    """
    by_position = table.format is FileFormat.CSV
    has_ids = table.format is FileFormat.PARQUET and not any(_NESTED_TYPE.match(each.type) for each in table.columns)
    for column in file_layout(table, table.format) if by_position else table.columns:
        yield column, column.stored_name, {"parquet.field.id": column.id} if has_ids else {}


def as_stored(table: Table, values: dict[str, SparkColumn]) -> Iterator[SparkColumn]:
    """Yield the columns of new files, named as they are there.

    Args:
        values: The value of each of the table's columns, by the column's name.
    """
    names = {column.id: column.name for column in table.columns}
    for column, stored_name, metadata in written_columns(table):
        value = values[names[column.id]] if column.id in names else f.lit(None).cast(spark_type(column.type))
        yield value.alias(stored_name, metadata=metadata) if metadata else value.alias(stored_name)


def stored_value(column: Column, file_format: FileFormat) -> SparkColumn:
    """Return a column's value in rows that were read by the names in files: that of the only one that a file has."""
    names = (column.stored_name,) if file_format is FileFormat.CSV else column.stored_names[::-1]
    values = [f.col(f"`{name}`") for name in names]
    return values[0] if len(values) == 1 else f.coalesce(*values)
