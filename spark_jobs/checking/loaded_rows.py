"""The rows of the partitions that a load added or extended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import FileFormat, Table
from catalog.datafiles.publishing import files_with_deletes
from catalog.partitions.quarantine import LoadedPartitions
from catalog.tables.columns import file_layout, is_plain_layout
from spark_jobs.reading.files import listing_in_few_tasks
from spark_jobs.reading.iceberg import read_as_table, read_live_rows
from spark_jobs.reading.paths import read_path
from spark_jobs.rows.file_formats import spark_type

_NOT_MERGED = "CANNOT_MERGE"
"""Error class of Spark if files have different types for a column."""

PATH = "calve/path"
"""The column of the paths of rows that Iceberg reads."""

_INTEGERS = ("tinyint", "smallint", "int")


@dataclass(frozen=True)
class Source:
    """Rows of the files of some partitions.

    Attributes:
        rows: With the columns of the files, and `PATH` for those that Iceberg reads.
        path: Of the file of each row; a URI, unless Iceberg reads it. None for rows of a table with a partition scheme.
        deleted_from: The ids of partitions of which delete files may have deleted rows.
    """

    rows: DataFrame
    path: Column | None
    is_uri: bool = True
    deleted_from: frozenset[int] = frozenset()

    @property
    def folder(self) -> Column:
        """The folder of the file of each row, spelled as in `path`."""
        assert self.path is not None
        # Of each row, so a regular expression would take longer than all else.
        name = f.substring_index(self.path, "/", -1)
        return f.substring(self.path, f.lit(1), f.length(self.path) - f.length(name) - f.lit(1))

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns, by name."""
        return {name: column_type for name, column_type in self.rows.dtypes if name != PATH}


def sources_of(spark: SparkSession, loaded: LoadedPartitions) -> Iterator[Source]:
    """Yield the rows of a load, each partition once: of its files in the current snapshot, or else of its folder."""
    table, files = loaded.table, loaded.files
    visible = {file.partition_id for file in files}
    paths = [read_path(partition.location) for partition in loaded.partitions if partition.id not in visible]
    deleted = files_with_deletes(table)
    deleted_from = frozenset(file.partition_id for file in files if file.path in deleted)
    if table.scheme is not None:
        yield Source(read_live_rows(spark, table, files), None, is_uri=False, deleted_from=deleted_from)
        return
    if not deleted_from:
        paths += [read_path(f"{table.location}/{file.path}") for file in files]
    else:
        assert table.published_location is not None
        of_files = [f"{table.location}/{file.path}" for file in files]
        rows = read_as_table(spark, table.in_files, table.published_location, of_files, path_column=PATH)
        yield Source(rows, f.col(f"`{PATH}`"), is_uri=False, deleted_from=deleted_from)
    if paths:
        yield Source(_read(spark, table, paths), f.col("_metadata.file_path"))


def _read(spark: SparkSession, table: Table, locations: Sequence[str]) -> DataFrame:
    # Schemas are merged, because a key may be a column of only some files.
    reader = spark.read.format(table.format).option("mergeSchema", "true")
    layout = [f"`{column.name}` {spark_type(column.type)}" for column in file_layout(table, table.format)]
    if table.format is FileFormat.CSV:
        reader = reader.schema(", ".join(layout)).option("header", "true")
    try:
        with listing_in_few_tasks(spark):
            data = reader.load(list(locations))
    except (PySparkException, Py4JJavaError) as error:
        if _NOT_MERGED not in str(error):
            raise
        # Some files were written before a column's type was widened.
        keys = [
            f"`{key.name}` {'bigint' if key.type in _INTEGERS else spark_type(key.type)}"
            for key in table.partition_keys
        ]
        data = reader.schema(", ".join([*layout, *keys])).load(list(locations))
    data = data.toDF(*[name.lower() for name in data.columns])
    return data if is_plain_layout(table) else _under_own_names(data, table)


def _under_own_names(data: DataFrame, table: Table) -> DataFrame:
    """Return data, which was read with the names in files, with the table's names and without dropped columns."""
    names_in_files = set(data.columns)
    stored = {name for column in file_layout(table, FileFormat.PARQUET) for name in column.stored_names}
    columns = [f.col(f"`{name}`") for name in data.columns if name not in stored]
    for column in table.columns:
        names = (column.stored_name,) if table.format is FileFormat.CSV else column.stored_names[::-1]
        if stored_columns := [f.col(f"`{name}`") for name in names if name in names_in_files]:
            columns.append(f.coalesce(*stored_columns).alias(column.name))
    return data.select(*columns)
