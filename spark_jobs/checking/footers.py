"""Reading of Parquet files by their footers, for verifications, independent of the code that they verify.

The usual readers select a table's columns by the names in the catalog (`spark_jobs.reading.tables`). Here each file is
read with the columns and types in its footer. A column of the file belongs to the table's column with its field id; in
files without ids, to the column that owns the name. A column that is neither the table's nor a dropped one is an error,
because a reader that ignores it would lose its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow.parquet
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog.errors import VerificationFailedError
from catalog.files.filesystem import Folder
from catalog.model import Column, Table
from catalog.tables.columns import TableColumns
from spark_jobs.reading.paths import read_path
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.sessions.footer_tasks import in_threads, read_footers

_FIELD_ID = b"PARQUET:field_id"


class FileSchema(NamedTuple):
    """The columns of a file: name, type in Arrow's spelling, field id or 0."""

    columns: tuple[tuple[str, str, int], ...]


def frames_by_footers(spark: SparkSession, table: Table, paths: Sequence[str]) -> list[DataFrame]:
    """Return the rows of data files, with one frame for all files of a schema.

    Shape: the table's columns, with its types.

    Args:
        paths: Paths relative to the table's location.

    Raises:
        VerificationFailedError: A file cannot be read, or has a column that the table never had.
    """
    by_schema: dict[FileSchema, list[str]] = {}
    schemas = read_footers(spark, paths, partial(_read_schemas, table.location))
    for path, schema in zip(paths, schemas, strict=True):
        by_schema.setdefault(schema, []).append(path)
    return [_frame(spark, table, schema, schema_paths) for schema, schema_paths in by_schema.items()]


def _read_schemas(location: str, paths: Iterable[str]) -> Iterator[FileSchema]:
    folder = Folder(location)

    def schema(path: str) -> FileSchema:
        try:
            with folder.open(path) as file:
                fields = pyarrow.parquet.read_schema(file)
        except (OSError, pyarrow.ArrowException) as error:
            raise VerificationFailedError(
                f"{location}/{path} cannot be read; nothing was changed. Run the operation again; if it fails again, "
                f"restore the file: {error}"
            ) from error
        return FileSchema(
            tuple((field.name, str(field.type), int((field.metadata or {}).get(_FIELD_ID, 0))) for field in fields)
        )

    return in_threads(schema, paths, location)


def _frame(spark: SparkSession, table: Table, schema: FileSchema, paths: Sequence[str]) -> DataFrame:
    reader = spark.read.option("recursiveFileLookup", "true")
    files = [read_path(f"{table.location}/{path}") for path in paths]
    # Spark infers the schema from one footer, because all files have the same columns.
    rows = reader.schema(reader.parquet(files[0]).schema).parquet(*files)
    names = dict(_names_by_id(table, schema, paths[0]))
    return rows.select(*[_value(column, names.get(column.id)) for column in table.columns])


def _value(column: Column, name: str | None) -> SparkColumn:
    value = f.lit(None) if name is None else f.col(f"`{name}`")
    return value.cast(spark_type(column.type)).alias(column.name)


def _names_by_id(table: Table, schema: FileSchema, path: str) -> Iterator[tuple[int, str]]:
    """Yield the id of the table's column for each column of the file, and its name in the file."""
    owners = TableColumns.of(table).owners
    known = set(owners.values())
    has_ids = any(field_id for _, _, field_id in schema.columns)
    for name, _, field_id in schema.columns:
        column_id = field_id if has_ids else owners.get(name.lower(), 0)
        if column_id not in known:
            raise VerificationFailedError(
                f"table {table.full_name}: {table.location}/{path} has a column {name}, which the table does not have, "
                "so its values would be lost; nothing was changed. Restore the earlier name of the table's column "
                "with ALTER TABLE … RENAME COLUMN, or add the column"
            )
        yield column_id, name
