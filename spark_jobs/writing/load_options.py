"""Format and options of the files of LOAD DATA."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from catalog import Table
from catalog.errors import SourceFileError
from catalog.files.filesystem import FileInfo
from catalog.model import Column
from catalog.model.identifiers import normalise_identifier
from catalog.operations.job_requests import ALLOW, SourceJob
from catalog.settings.table_config import NULL_KEYS
from spark_jobs.reading.paths import quoted

FORMATS = ("csv", "parquet", "orc", "json", "avro")
_SUFFIXES = {**{name: name for name in FORMATS}, "txt": "csv", "tsv": "csv", "jsonl": "json", "ndjson": "json"}
_RELOAD = "RELOAD"
_COMPRESSED = ("gz", "bz2", "zst", "snappy", "lz4", "deflate")

# CarbonData's names and Spark's own → Spark's.
_CSV = {
    "COMMENTCHAR": "comment",
    "COMMENT": "comment",
    "DELIMITER": "sep",
    "SEP": "sep",
    "ENCODING": "encoding",
    "ESCAPECHAR": "escape",
    "ESCAPE": "escape",
    "HEADER": "header",
    "MULTILINE": "multiLine",
    "NULLVALUE": "nullValue",
    "SERIALIZATION_NULL_FORMAT": "nullValue",
    "QUOTECHAR": "quote",
    "QUOTE": "quote",
}
_TIMES = {"DATEFORMAT": "dateFormat", "TIMESTAMPFORMAT": "timestampFormat"}
_OPTIONS = {
    "csv": {**_CSV, **_TIMES},
    "json": {**_TIMES, "MULTILINE": "multiLine", "ENCODING": "encoding"},
    "parquet": {},
    "orc": {},
    "avro": {},
}
_SLASHES = (r"^(\d+)/(\d+)/(\d+)$", "$1-$2-$3")
_DATES = "[yyyy-MM-dd][yyyy-M-d][yyyy/MM/dd][yyyy/M/d]"


def source_job(
    operation_id: str, table: Table, path: str, files: Sequence[FileInfo], options: Mapping[str, str]
) -> SourceJob:
    """Return the settings to read files for a table.

    Args:
        options: Names in capital letters: FORMAT; RELOAD (see `reloads`); NULLKEYS (`allow` or `refuse`); FILEHEADER
            with the columns of files without a header; CarbonData's options for CSV; DATEFORMAT and TIMESTAMPFORMAT.

    Raises:
        SourceFileError: The format cannot be determined, or an option is unknown.
    """
    left = dict(options)
    source_format = _format(path, files, left.pop("FORMAT", None))
    # The default partition of a scheme is for nulls, too.
    null_keys = left.pop("NULLKEYS", NULL_KEYS[0] if table.scheme is None else ALLOW).lower()
    if null_keys not in NULL_KEYS:
        raise SourceFileError(f"option NULLKEYS is {null_keys!r}; use {' or '.join(NULL_KEYS)}")
    left.pop(_RELOAD, None)
    names = left.pop("FILEHEADER", "") if source_format == "csv" else ""
    read = {"header": "false" if names else "true"} if source_format == "csv" else {}
    if source_format in ("csv", "json"):
        read["dateFormat"] = _DATES
    known = _OPTIONS[source_format]
    for name, value in left.items():
        if name not in known:
            others = ("FORMAT", "NULLKEYS", _RELOAD, *(["FILEHEADER"] if source_format == "csv" else []))
            raise SourceFileError(
                f"unknown option {name} for {source_format.upper()}; use {', '.join((*others, *sorted(known)))}"
            )
        read[known[name]] = value.lower() if name in ("HEADER", "MULTILINE") else value
    columns = [*table.columns, *table.partition_keys]
    return SourceJob(
        operation_id=operation_id,
        step="load",
        attempt=0,
        table=table.full_name,
        source_format=source_format,
        source_options=read,
        columns=[(column.name, column.type) for column in _in_file_order(table, columns, names)],
        keys=[(key.name, key.type) for key in table.partition_keys],
        null_keys=null_keys,
    )


def reloads(options: Mapping[str, str]) -> bool:
    """Return whether the rows of files that were loaded before are added again.

    Raises:
        SourceFileError: The option RELOAD is neither `true` nor `false`.
    """
    text = options.get(_RELOAD, "false").lower()
    if text not in ("true", "false"):
        raise SourceFileError(f"option {_RELOAD} is {text!r}; use true or false")
    return text == "true"


def with_parsed_keys(rows: DataFrame, table: Table, options: Mapping[str, str]) -> DataFrame:
    """Return the rows of a source, whose partition keys are strings, with dates and times parsed like those of columns.

    Args:
        options: Those of `source_job`.
    """
    dates, times = _keys_of_type("date", table), _keys_of_type("timestamp", table)
    if date_format := options.get("DATEFORMAT"):
        rows = rows.withColumns({name: f.to_date(f.col(quoted(name)), date_format) for name in dates})
    else:
        rows = rows.withColumns({name: f.regexp_replace(f.col(quoted(name)), *_SLASHES) for name in dates})
    if time_format := options.get("TIMESTAMPFORMAT"):
        rows = rows.withColumns({name: f.to_timestamp(f.col(quoted(name)), time_format) for name in times})
    return rows


def _keys_of_type(name: str, table: Table) -> list[str]:
    return [key for key, key_type in zip(table.key_names, table.key_types, strict=True) if str(key_type) == name]


def _format(path: str, files: Sequence[FileInfo], named: str | None) -> str:
    if named is not None:
        if named.lower() not in FORMATS:
            raise SourceFileError(f"unknown format {named!r}; use {', '.join(FORMATS)}")
        return named.lower()
    formats = {_SUFFIXES.get(_suffix(file.path)) for file in files}
    if len(formats) == 1 and (common_format := formats.pop()) is not None:
        return common_format
    raise SourceFileError(
        f"source {path}: the file names do not show a common format; write OPTIONS('FORMAT'='csv'), or "
        f"{', '.join(FORMATS[1:])}"
    )


def _suffix(path: str) -> str:
    parts = [part.lower() for part in PurePosixPath(path).name.split(".")[1:]]
    while parts and parts[-1] in _COMPRESSED:
        parts.pop()
    return parts[-1] if parts else ""


def _in_file_order(table: Table, columns: Sequence[Column], names: str) -> list[Column]:
    if not names:
        return list(columns)
    known = {column.name: column for column in columns}
    order = [normalise_identifier(name, "column") for name in re.split(r"\s*,\s*", names.strip())]
    if unknown := [name for name in order if name not in known]:
        raise SourceFileError(
            f"FILEHEADER names {', '.join(unknown)}, which {table.full_name} does not have; its columns are "
            f"{', '.join(known)}"
        )
    return [known[name] for name in order]
