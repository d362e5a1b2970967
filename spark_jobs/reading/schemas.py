"""Columns of source files that have a schema: the files of one source may have different ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow

from catalog.errors import StorageError
from catalog.files.filesystem import FileInfo, Folder, in_parallel
from catalog.iceberg.footers.tails import read_range

TYPED_FORMATS = ("parquet", "orc", "avro")
"""Formats whose files have a schema."""

_MAGIC = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Spark's own schema in the metadata of a Parquet file, which its reader prefers."""

_MOST_DIGITS = 38
_MICROSECONDS = (
    "microseconds (pandas: to_parquet(…, coerce_timestamps='us', allow_truncated_timestamps=True), which leaves out "
    "the last three digits)"
)
_FOREIGN_TYPES = {
    "Float16": ("floats of 16 bits", "32 bits (pandas: astype('float32'))"),
    "Time": ("times without a date", "strings (pandas: astype('string')) or timestamps"),
    "UUID": ("UUIDs", "strings (pandas: astype('string'); DuckDB: CAST(… AS varchar))"),
    "Interval": ("intervals", "strings (DuckDB: CAST(… AS varchar))"),
}
"""Logical type of Parquet → what its values are, and what to write instead."""


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

            written: Any = fastavro.reader(content).writer_schema
            _refuse_twins(field["name"] for field in written["fields"])
            return (json.dumps(written),)
        if source_format == "orc":
            schema = pyarrow.orc.ORCFile(content).schema
            _refuse_twins(schema.names)
            return (schema.to_string(),)
        opened = pyarrow.parquet.ParquetFile(content)
        _refuse_foreign_types(opened.schema)
        schema = opened.schema_arrow
        _refuse_twins(schema.names)
        return schema.remove_metadata().to_string(), (schema.metadata or {}).get(_SPARK_SCHEMA)


def kind_of(file: FileInfo) -> str | None:
    """Return which of `TYPED_FORMATS` a file is by its first bytes; None for any other."""
    start = read_range(file, 0, max(map(len, _MAGIC)))
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)


def _refuse_twins(names: Iterable[str]) -> None:
    """Refuse columns whose names differ only in case, which are one for tables; Spark would not name the file.

    Raises:
        ValueError: Two columns have such names.
    """
    known: dict[str, str] = {}
    for name in names:
        if (other := known.get(name.lower())) is not None:
            raise ValueError(f"it has the columns {other} and {name}, which are one for tables; rename one of them")
        known[name.lower()] = name


def _refuse_foreign_types(schema: Any) -> None:
    """Refuse types of Parquet that neither Spark nor tables have; Spark would not name the file.

    Raises:
        ValueError: A column has one.
    """
    for number in range(len(schema)):
        column = schema.column(number)
        if (found := _foreign_type(json.loads(column.logical_type.to_json()))) is not None:
            what, remedy = found
            raise ValueError(f"its column {column.path} has {what}, which tables do not have; write it with {remedy}")


def _foreign_type(kind: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what values of a logical type are, and what to write instead; None if tables have them."""
    if kind.get("Type") == "Timestamp" and kind["timeUnit"] == "nanoseconds":
        return "timestamps in nanoseconds", _MICROSECONDS
    if kind.get("Type") == "Decimal" and kind["precision"] > _MOST_DIGITS:
        return f"decimals of {kind['precision']} digits", f"at most {_MOST_DIGITS} digits"
    return _FOREIGN_TYPES.get(kind.get("Type", ""))
