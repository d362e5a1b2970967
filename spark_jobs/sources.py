"""Raw source files as a DataFrame: partition keys as texts, other columns typed, unreadable lines found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from catalog.errors import SourceFileError
from catalog.files import FileInfo, Folder
from catalog.identifiers import normalise_identifier
from catalog.jobs import SourceJob
from catalog.model import Column, Table

CORRUPT = "_calve_corrupt"
"""Column with the text of a line that cannot be read as a row; null for all others."""

_SHOWN = 10
_TEXT_FORMATS = ("csv", "json")


@dataclass(frozen=True)
class Source:
    """The rows of a load.

    Attributes:
        rows: All columns, lower case, the partition keys as texts; and `CORRUPT` for text formats.
        columns: The columns that go into the data files, with their types.
        names: Column → its name as the files spell it.
    """

    rows: DataFrame
    columns: tuple[Column, ...]
    files: Sequence[FileInfo]
    names: Mapping[str, str]


def spark_path(location: str) -> str:
    """Return a location as Spark takes it: a plain path is one of this machine, whatever Spark's default is."""
    return f"file://{location}" if location.startswith("/") else location


def plain_path(uri: str) -> str:
    """Return what `spark_path` was given for a URI as Spark reports it, escaped and with any number of slashes."""
    return re.sub("^file:/+", "/", unquote(uri))


def read_source(spark: SparkSession, files: Sequence[FileInfo], job: SourceJob, table: Table | None) -> Source:
    """Read source files with the types of the table, of the request, or inferred, in this order.

    Raises:
        SourceFileError: A file cannot be opened, lacks a partition key, or has other columns than the table.
    """
    paths = [spark_path(each.path) for each in files]
    reader = spark.read.format(job.source_format).options(**job.source_options)
    keys = list(job.key_types) if table is None else list(table.key_names)
    if job.source_format in _TEXT_FORMATS:
        schema = _text_schema(spark, paths, job, table, keys)
        reader = reader.schema(schema.add(CORRUPT, StringType())).options(
            mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT, enforceSchema="false"
        )
    elif len(paths) > 1:
        # Otherwise Spark takes the columns of one file, and drops those that only others have.
        reader = reader.option("mergeSchema", "true")
    rows = reader.load(paths)
    names = {normalise_identifier(name, "column"): name for name in rows.columns}
    rows = rows.toDF(*[normalise_identifier(name, "column") for name in rows.columns])
    _check_keys(rows, keys, files)
    types = {} if table is None else {column.name: column.type for column in table.columns}
    rows = rows.withColumns({key: f.col(quoted(key)).cast("string") for key in keys})
    rows = rows.withColumns(
        {name: f.col(quoted(name)).cast(text) for name, text in types.items() if name in rows.columns}
    )
    columns = tuple(
        Column(field.name, field.dataType.simpleString()) for field in rows.schema if field.name not in (*keys, CORRUPT)
    )
    if table is not None:
        _check_columns(table, [column.name for column in columns], files)
    return Source(rows, columns, files, names)


def _text_schema(
    spark: SparkSession, paths: Sequence[str], job: SourceJob, table: Table | None, keys: Sequence[str]
) -> StructType:
    """Return the schema of a text source, in the order of the files."""
    declared = {**job.column_types, **({} if table is None else {each.name: each.type for each in table.columns})}
    has_names = job.source_format != "csv" or job.source_options.get("header", "false").lower() == "true"
    if not has_names:
        if missing := [key for key in keys if key not in declared]:
            raise SourceFileError(
                f"source {paths[0]} has no header, and `columns` does not say where {', '.join(missing)} is; list all "
                "columns of the file, in their order, partition keys among them"
            )
        found = [(name, declared[name]) for name in job.column_types]
    else:
        sniffer = spark.read.format(job.source_format).options(**job.source_options, columnNameOfCorruptRecord=CORRUPT)
        sample = sniffer.load(list(paths) if job.source_format == "json" else paths[0])
        # A JSON record may leave a field out.
        optional = (*keys, *declared) if job.source_format == "json" else ()
        spelled = {name.lower(): name for name in (*optional, *sample.columns) if name != CORRUPT}
        names = [
            spelled[name] for name in dict.fromkeys(map(str.lower, (*sample.columns, *optional))) if name in spelled
        ]
        undeclared = [name for name in names if name.lower() not in declared and name.lower() not in keys]
        inferred: Mapping[str, str] = {}
        if undeclared:
            frame = sniffer.options(inferSchema="true").load(list(paths))
            inferred = {field.name: field.dataType.simpleString() for field in frame.schema}
        found = [(name, declared.get(name.lower()) or inferred.get(name, "string")) for name in names]
    return StructType(
        [
            StructField(name, StringType() if name.lower() in keys else _parse_datatype_string(text))
            for name, text in found
        ]
    )


def _check_keys(rows: DataFrame, keys: Iterable[str], files: Sequence[FileInfo]) -> None:
    if missing := [key for key in keys if key not in rows.columns]:
        raise SourceFileError(
            f"source {files[0].path} has no column {', '.join(missing)}, which the table is partitioned by; its "
            f"columns are {', '.join(name for name in rows.columns if name != CORRUPT)}"
        )


def _check_columns(table: Table, found: Sequence[str], files: Sequence[FileInfo]) -> None:
    expected = [column.name for column in table.columns]
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or extra:
        raise SourceFileError(
            f"source {files[0].path} does not have the columns of {table.full_name}: "
            f"missing {', '.join(missing) or 'none'}, unknown {', '.join(extra) or 'none'}. "
            "Correct the file, or alter the table first"
        )


def bad_count(source: Source) -> SparkColumn:
    """Return the number of rows that cannot be read, as an aggregate over `Source.rows`."""
    is_bad = f.col(CORRUPT).isNotNull() if CORRUPT in source.rows.columns else f.lit(False)
    return f.count_if(is_bad)


def unreadable_lines(source: Source) -> SourceFileError:
    """Return the error that names the file and line of the first rows that cannot be read."""
    bad = (
        # All columns: Spark reads only those that are asked for, and would not notice what is wrong with the others.
        source.rows.where(f.col(CORRUPT).isNotNull())
        .select(f.col("_metadata.file_path").alias("_calve_file"), "*")
        .limit(_SHOWN)
        .collect()
    )
    places = [_place(row["_calve_file"], row[CORRUPT]) for row in bad]
    return SourceFileError(
        f"source lines cannot be read as rows: {'; '.join(sorted(places))}. Nothing was loaded. Correct these "
        "lines, or the types and options of the table's entry"
    )


def _place(uri: str, record: str) -> str:
    """Return `path, line N: text` for a record that Spark could not read."""
    path = plain_path(uri)
    first_line = record.splitlines()[0] if record else ""
    shown = first_line if len(first_line) <= 120 else first_line[:120] + "…"
    with Folder(path).open_text() as lines:
        for number, line in enumerate(lines, 1):
            if line.rstrip("\r\n") == first_line:
                return f"{path}, line {number}: {shown}"
    return f"{path}: {shown}"


@contextmanager
def source_errors() -> Iterator[None]:
    """Turn what Spark says when a source file cannot be read into an error that names the file."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        message = str(error)
        if found := _HEADER.search(message):
            header, schema, path = (part.strip() for part in found.groups())
            raise SourceFileError(
                f"source {plain_path(path)}, line 1: the header does not fit the table or the other files: it is "
                f"{header}, expected {schema}"
            ) from error
        if found := _UNREADABLE.search(message):
            causes = _CAUSE.findall(message)
            raise SourceFileError(
                f"source {plain_path(found.group(1))} cannot be read: {causes[-1] if causes else found.group()}"
            ) from error
        raise


_HEADER = re.compile(r"Header: (.*)\n Schema: (.*)\n(?:.*\n)*?CSV file: (\S+)")
_UNREADABLE = re.compile(r"rror while reading file (\S+?)\.(?:\s|$)")
_CAUSE = re.compile(r"Caused by: [\w.]+: (.*)")


def quoted(name: str) -> str:
    """Return a column's name as SQL writes it."""
    return f"`{name}`"
