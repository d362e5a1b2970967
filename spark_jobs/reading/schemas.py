"""Columns of source files that have a schema: the files of one source may have different ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow

from catalog.errors import StorageError
from catalog.files.filesystem import FileInfo, Folder, in_parallel

TYPED_FORMATS = ("parquet", "orc", "avro")
"""Formats whose files have a schema."""

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Spark's own schema in the metadata of a Parquet file, which its reader prefers."""


def by_schema(files: Sequence[FileInfo], source_format: str) -> tuple[list[list[FileInfo]], Mapping[str, str]]:
    """Return groups of files with the same schema; and path of an unreadable file → reason.

    Reads only the files' footers.
    """

    def schema(file: FileInfo) -> tuple[Any, ...] | str:
        try:
            return _schema(file, source_format)
        except (OSError, ValueError, pyarrow.ArrowException, StorageError) as error:
            return str(error).strip().split("\n")[0]

    groups: dict[tuple[Any, ...], list[FileInfo]] = {}
    unreadable: dict[str, str] = {}
    for file, read in zip(files, in_parallel(schema, files), strict=True):
        if isinstance(read, str):
            unreadable[file.path] = read
        else:
            groups.setdefault(read, []).append(file)
    return list(groups.values()), unreadable


def _schema(file: FileInfo, source_format: str) -> tuple[Any, ...]:
    """Return what is equal for files with the same schema."""
    import pyarrow.orc
    import pyarrow.parquet

    folder, _, name = file.path.rpartition("/")
    with Folder(folder or "/").open(name) as content:
        if source_format == "avro":
            import fastavro

            return (json.dumps(fastavro.reader(content).writer_schema),)
        if source_format == "orc":
            return (pyarrow.orc.ORCFile(content).schema.to_string(),)
        opened = pyarrow.parquet.ParquetFile(content)
        _refuse_nanoseconds(opened.schema)
        schema = opened.schema_arrow
        return schema.remove_metadata().to_string(), (schema.metadata or {}).get(_SPARK_SCHEMA)


def _refuse_nanoseconds(schema: Any) -> None:
    """Refuse timestamps in nanoseconds, which neither Spark nor tables have; Spark would not name the file.

    Raises:
        ValueError: A column has them.
    """
    columns = (schema.column(number) for number in range(len(schema)))
    kinds = ((column.path, json.loads(column.logical_type.to_json())) for column in columns)
    names = [path for path, kind in kinds if kind.get("Type") == "Timestamp" and kind.get("timeUnit") == "nanoseconds"]
    if names:
        raise ValueError(
            f"its column {names[0]} has timestamps in nanoseconds, and tables have microseconds; write it with "
            "microseconds (pandas: to_parquet(…, coerce_timestamps='us'))"
        )
