"""The rows of Parquet files as their footers describe them, for a verification: nothing that it judges is used.

Readers take a table's columns by the names that the catalog knows (`spark_jobs.reading.tables`). Here each file is read
with the columns that its own footer has, by their own types. A column of the file is the table's column of its field
id; in files without ids, that to which the name belongs. A column that is neither the table's nor a dropped one is an
error: a reader that passes over it would lose its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow.parquet
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog.errors import VerificationFailedError
from catalog.files.filesystem import Folder
from catalog.model import Column, Table
from catalog.tables.columns import TableColumns
from spark_jobs.reading.sources import read_path
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.sessions.python_tasks import in_tasks

_FIELD_ID = b"PARQUET:field_id"
_FOOTER_THREADS = 8
_LOCAL_FOOTERS = 256
_FOOTERS_A_TASK = 500


class FileSchema(NamedTuple):
    """The columns of a file: name, type as Arrow writes it, field id or 0."""

    columns: tuple[tuple[str, str, int], ...]


def frames_by_footers(spark: SparkSession, table: Table, paths: Sequence[str]) -> list[DataFrame]:
    """Return the rows of data files, in a frame for the files of each schema.

    Shape: the table's columns, of its types.

    Args:
        paths: Below the table's location.

    Raises:
        VerificationFailedError: A file cannot be read, or has a column that the table never had.
    """
    alike: dict[FileSchema, list[str]] = {}
    for path, schema in zip(paths, _schemas(spark, table, paths), strict=True):
        alike.setdefault(schema, []).append(path)
    return [_frame(spark, table, schema, some) for schema, some in alike.items()]


def _schemas(spark: SparkSession, table: Table, paths: Sequence[str]) -> list[FileSchema]:
    location = table.location
    if len(paths) <= _LOCAL_FOOTERS:
        return list(_read_schemas(location, paths))
    slices = -(-len(paths) // _FOOTERS_A_TASK)
    return in_tasks(spark, paths, slices, lambda some: _read_schemas(location, list(some))).collect()


def _read_schemas(location: str, paths: Iterable[str]) -> Iterator[FileSchema]:
    folder = Folder(location)

    def schema(path: str) -> FileSchema:
        try:
            with folder.open(path) as file:
                fields = pyarrow.parquet.read_schema(file)
        except (OSError, pyarrow.ArrowException) as error:
            raise VerificationFailedError(
                f"{location}/{path} cannot be read; nothing was changed. Run the operation again; if it fails again, "
                f"bring the file back: {error}"
            ) from error
        return FileSchema(
            tuple((each.name, str(each.type), int((each.metadata or {}).get(_FIELD_ID, 0))) for each in fields)
        )

    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        yield from pool.map(schema, paths)


def _frame(spark: SparkSession, table: Table, schema: FileSchema, paths: Sequence[str]) -> DataFrame:
    reader = spark.read.option("recursiveFileLookup", "true")
    files = [read_path(f"{table.location}/{path}") for path in paths]
    # Spark's own reading of one footer: all of them have the same columns.
    rows = reader.schema(reader.parquet(files[0]).schema).parquet(*files)
    names = dict(_names_by_id(table, schema, paths[0]))
    return rows.select(*[_value(column, names.get(column.id)) for column in table.columns])


def _value(column: Column, name: str | None) -> SparkColumn:
    value = f.lit(None) if name is None else f.col(f"`{name}`")
    return value.cast(spark_type(column.type)).alias(column.name)


def _names_by_id(table: Table, schema: FileSchema, path: str) -> Iterator[tuple[int, str]]:
    """Yield the id of the table's column that each column of the file is, and its name there."""
    owners = TableColumns.of(table).owners
    known = set(owners.values())
    has_ids = any(field_id for _, _, field_id in schema.columns)
    for name, _, field_id in schema.columns:
        column_id = field_id if has_ids else owners.get(name.lower(), 0)
        if column_id not in known:
            raise VerificationFailedError(
                f"table {table.full_name}: {table.location}/{path} has a column {name} that is none of the table's, so "
                "its values would be lost; nothing was changed. Give the table's column its earlier name back, by "
                "ALTER TABLE … RENAME COLUMN, or add the column"
            )
        yield column_id, name
