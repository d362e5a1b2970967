"""Columns of source files that have a schema: the files of one source may have different ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow

from catalog.errors import StorageError
from catalog.files.filesystem import FileInfo, Folder, in_parallel

TYPED_FORMATS = ("parquet", "orc")
"""Formats whose files have a schema."""

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Spark's own schema in the metadata of a Parquet file, which its reader prefers."""


def by_schema(files: Sequence[FileInfo], source_format: str) -> tuple[list[list[FileInfo]], Mapping[str, str]]:
    """Return groups of files with the same schema; and path of an unreadable file → reason.

    Reads only the files' footers.
    """

    def schema(file: FileInfo) -> Any:
        try:
            return _schema(file, source_format)
        except (OSError, ValueError, pyarrow.ArrowException, StorageError) as error:
            return str(error).strip().split("\n")[0]

    groups: dict[Any, list[FileInfo]] = {}
    unreadable: dict[str, str] = {}
    for file, read in zip(files, in_parallel(schema, files), strict=True):
        if isinstance(read, str):
            unreadable[file.path] = read
        else:
            own = read.remove_metadata().to_string(), (read.metadata or {}).get(_SPARK_SCHEMA)
            groups.setdefault(own, []).append(file)
    return list(groups.values()), unreadable


def _schema(file: FileInfo, source_format: str) -> pyarrow.Schema:
    import pyarrow.orc
    import pyarrow.parquet

    folder, _, name = file.path.rpartition("/")
    with Folder(folder or "/").open(name) as content:
        if source_format == "orc":
            return pyarrow.orc.ORCFile(content).schema
        return pyarrow.parquet.read_schema(content)
