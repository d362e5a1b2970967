"""Raw source files as DataFrames, with partition keys as strings, typed columns, and detection of unreadable lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StringType, StructField, StructType

from catalog.errors import InvalidLocationError, SourceFileError
from catalog.files.filesystem import FileInfo, Folder
from catalog.model import Column, Table
from catalog.model.identifiers import normalise_identifier
from catalog.operations.job_requests import SourceJob
from catalog.types.column_types import ColumnTextType, parse_column_type
from catalog.types.key_types import DecimalType, FloatingType
from spark_jobs.reading.folder_keys import key_of_folder, keys_of_folders
from spark_jobs.reading.source_lines import line_of
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.value_checks import CheckedColumn, checked_column, first_not_castable, first_problem

CORRUPT = "_calve_corrupt"
"""Column with a line that cannot be parsed as a row; null for other rows."""

PROBLEM = "_calve_problem"
"""Column with the problem of a row whose values do not fit their columns; null for other rows."""

_SHOWN = 10
_WILDCARD = re.compile(r"[*?\[\]{}\\]")
_TEXT_FORMATS = ("csv", "json")

_REPLACED = "\N{REPLACEMENT CHARACTER}"
"""What Spark reads for bytes that are not in the encoding of a text file."""


@dataclass(frozen=True)
class Source:
    """The rows of a load.

    Attributes:
        rows: Rows with all columns in lower case, the partition keys as strings, and `CORRUPT` for text formats.
        columns: The columns of the data files, with their types.
        names: Column → its spelling in the files.
        given: The rows of the files before they are cast.
        problem: The problem of a row of `given`; None if all values fit.
        folder_keys: The partition keys that are in the names of the files' folders.
    """

    rows: DataFrame
    columns: tuple[Column, ...]
    files: Sequence[FileInfo]
    names: Mapping[str, str]
    job: SourceJob
    given: DataFrame
    problem: SparkColumn | None
    folder_keys: Sequence[str] = ()


def spark_path(location: str) -> str:
    """Return a location for Spark, with a plain path as a local path regardless of Spark's default file system."""
    return f"file://{location}" if location.startswith("/") else location


def read_path(location: str) -> str:
    """Return a location for Spark's readers, with wildcard characters escaped.

    Spark's option `__globPaths__` is not used: with it, each path with a wildcard is expanded to all paths of the
    reader, so that their rows are repeated. Source: `DataSource.checkAndGlobPathIfNecessary` of Spark 4.1.

    Raises:
        InvalidLocationError: It also has a colon, which Hadoop's `Globber` takes as the end of a scheme.
    """
    path = spark_path(location)
    if not _WILDCARD.search(path):
        return path
    if ":" in path.partition("://")[2].partition("/")[2]:
        raise InvalidLocationError(
            f"Spark cannot read {location!r}, because it has a colon and one of the characters * ? [ ] {{ }} \\; "
            "rename the file or folder"
        )
    return _WILDCARD.sub(r"\\\g<0>", path)


def plain_path(uri: str) -> str:
    """Return the plain location of a URI as Spark reports it, escaped and with any number of slashes."""
    return re.sub("^file:/+", "/", unquote(uri))


def read_source(spark: SparkSession, files: Sequence[FileInfo], job: SourceJob, table: Table | None) -> Source:
    """Read source files with the types of the table, of the request, or inferred, in this order.

    Raises:
        SourceFileError: A file cannot be opened, lacks a partition key, has other columns than the table, or a column
            whose type cannot be cast to the table's.
    """
    paths = [read_path(file.path) for file in files]
    reader = spark.read.format(job.source_format).options(**job.source_options)
    keys = list(job.key_types) if table is None else list(table.key_names)
    folder_keys = keys_of_folders(keys, files)
    if job.source_format in _TEXT_FORMATS:
        schema = _text_schema(spark, paths, job, table, keys, folder_keys)
        reader = reader.schema(schema.add(CORRUPT, StringType())).options(
            mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT, enforceSchema="false"
        )
    elif len(paths) > 1:
        # Otherwise Spark uses the columns of one file and drops columns of the others.
        reader = reader.option("mergeSchema", "true")
    rows = reader.load(paths)
    names = {normalise_identifier(name, "column"): name for name in rows.columns}
    rows = rows.toDF(*[normalise_identifier(name, "column") for name in rows.columns])
    _check_keys(rows, [key for key in keys if key not in folder_keys], files)
    declared = job.column_types if table is None else {column.name: column.type for column in table.columns}
    given, checked = rows, _checked(rows, declared, keys)
    key_types = job.key_types if table is None else {key.name: key.type for key in table.partition_keys}
    for key in folder_keys:
        column = f.col(quoted(key)) if key in rows.columns else None
        checked.append(key_of_folder(Column(key, key_types.get(key, "string")), column))
    if job.source_format in _TEXT_FORMATS:
        checked += [_decoded_key(key) for key in keys if key not in folder_keys]
    changed = {key: f.col(quoted(key)).cast("string") for key in keys if key in rows.columns}
    changed |= {checked_value.column.name: checked_value.value for checked_value in checked}
    if (problem := first_problem(checked)) is not None:
        changed[PROBLEM] = problem
    try:
        rows = given.withColumns(changed)
    except AnalysisException as error:
        if (refused := first_not_castable(given, checked)) is None:
            raise
        name = refused.column.name
        raise SourceFileError(
            f"source {files[0].path}: column {name} has type {dict(given.dtypes)[name]}, which cannot become "
            f"{refused.column.type}; correct the file, or alter the table first"
        ) from error
    others = (*keys, CORRUPT, PROBLEM)
    columns = tuple(
        Column(field.name, field.dataType.simpleString()) for field in rows.schema if field.name not in others
    )
    if table is not None:
        _check_columns(table, [column.name for column in columns], files)
    return Source(rows, columns, files, names, job, given, problem, folder_keys)


def _checked(rows: DataFrame, declared: Mapping[str, str], keys: Sequence[str]) -> list[CheckedColumn]:
    """Return the declared columns of a source without the keys, which are checked when partitions are created."""
    types = {field.name: field.dataType for field in rows.schema}
    return [
        checked_column(Column(name, text), f.col(quoted(name)), types[name])
        for name, text in declared.items()
        if name in types and name not in keys
    ]


def _decoded_key(key: str) -> CheckedColumn:
    """Return the check that a key of a text file could be decoded; its value would name a partition and its folder."""
    value = f.col(quoted(key)).cast("string")
    problem = f.concat(f.lit(f"partition key {key}: '"), value, f.lit("' is not in the file's encoding"))
    return CheckedColumn(Column(key, "string"), value, f.when(value.contains(_REPLACED), problem))


def _text_schema(
    spark: SparkSession,
    paths: Sequence[str],
    job: SourceJob,
    table: Table | None,
    keys: Sequence[str],
    folder_keys: Sequence[str],
) -> StructType:
    """Return the schema of a text source, in the order of the files; keys of folders need no column."""
    table_types = {} if table is None else {column.name: column.type for column in table.columns}
    declared = {**job.column_types, **table_types}
    has_names = job.source_format != "csv" or job.source_options.get("header", "false").lower() == "true"
    if not has_names:
        if missing := [key for key in keys if key not in declared and key not in folder_keys]:
            raise SourceFileError(
                f"source {paths[0]} has no header, and `columns` does not list {', '.join(missing)}; list all columns "
                "of the file in order, including the partition keys"
            )
        fields = [(name, declared[name]) for name in job.column_types]
    else:
        sniffer = spark.read.format(job.source_format).options(**job.source_options)
        sniffer = sniffer.option("columnNameOfCorruptRecord", CORRUPT)
        sample = sniffer.load(list(paths) if job.source_format == "json" else paths[0])
        # A JSON record may omit a field.
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
        fields = [(name, declared.get(name.lower()) or inferred.get(name, "string")) for name in names]
    return StructType(
        [
            StructField(name, StringType() if name.lower() in keys else _read_type(name, text, declared))
            for name, text in fields
        ]
    )


def _read_type(name: str, type_text: str, declared: Mapping[str, str]) -> DataType:
    """Return the type to read a column of a text file with.

    Spark's readers round, truncate or do not check values of some types, which are read as strings and cast later.
    """
    is_cast_later = isinstance(parse_column_type(type_text), ColumnTextType | DecimalType | FloatingType)
    if is_cast_later and name.lower() in declared:
        return StringType()
    return DataType.fromDDL(spark_type(type_text))


def _check_keys(rows: DataFrame, keys: Iterable[str], files: Sequence[FileInfo]) -> None:
    if missing := [key for key in keys if key not in rows.columns]:
        raise SourceFileError(
            f"source {files[0].path} has no column {', '.join(missing)}, which the table is partitioned by, and not "
            f"every file is in a folder such as {missing[0]}=…; its columns are "
            f"{', '.join(name for name in rows.columns if name != CORRUPT)}"
        )


def _check_columns(table: Table, columns: Sequence[str], files: Sequence[FileInfo]) -> None:
    expected = [column.name for column in table.columns]
    missing, extra = sorted(set(expected) - set(columns)), sorted(set(columns) - set(expected))
    if missing or extra:
        raise SourceFileError(
            f"source {files[0].path} does not have the columns of {table.full_name}: "
            f"missing {', '.join(missing) or 'none'}, unknown {', '.join(extra) or 'none'}. "
            "Correct the file, or alter the table first"
        )


def is_bad(source: Source) -> SparkColumn | None:
    """Return whether a row of `Source.rows` is unreadable or has a value that does not fit; None if no row can be."""
    marks = [f.col(name).isNotNull() for name in (CORRUPT, PROBLEM) if name in source.rows.columns]
    return reduce(lambda one, other: one | other, marks) if marks else None


def bad_count(source: Source) -> SparkColumn:
    """Return the number of rows that cannot be loaded, as an aggregate over `Source.rows`."""
    bad = is_bad(source)
    return f.count_if(f.lit(False) if bad is None else bad)


def unreadable_lines(source: Source) -> SourceFileError:
    """Return the error that names the file and line of the first rows that cannot be loaded."""
    # All columns, because Spark parses only the columns in use and would miss errors in the others.
    columns = [f.col("_metadata.file_path").alias("_calve_file"), f.col("*")]
    if source.problem is None:
        bad = source.given.where(f.col(CORRUPT).isNotNull()).select(*columns)
    else:
        rows = source.given.withColumn(PROBLEM, source.problem)
        is_corrupt = f.col(CORRUPT).isNotNull() if CORRUPT in rows.columns else f.lit(False)
        bad = rows.where(is_corrupt | f.col(PROBLEM).isNotNull()).select(*columns)
    places = []
    for row in bad.limit(_SHOWN).collect():
        record, path = row.asDict(), plain_path(row["_calve_file"])
        if record.get(CORRUPT) is not None:
            places.append(_place(path, record[CORRUPT]))
        else:
            line = line_of(path, record, source.job)
            places.append(f"{path}{'' if line is None else f', line {line}'}: {record[PROBLEM]}")
    return SourceFileError(
        f"source lines cannot be read as rows: {'; '.join(sorted(places))}. Nothing was loaded. Correct these "
        "lines, or the types and options of the table's entry"
    )


def _place(path: str, record: str) -> str:
    """Return `path, line N: text` for a record that Spark could not read."""
    first_line = record.splitlines()[0] if record else ""
    shown = first_line if len(first_line) <= 120 else first_line[:120] + "…"
    with Folder(path).open_text() as lines:
        for number, line in enumerate(lines, 1):
            if line.rstrip("\r\n") == first_line:
                return f"{path}, line {number}: {shown}"
    return f"{path}: {shown}"


@contextmanager
def source_errors() -> Iterator[None]:
    """Translate Spark's errors about an unreadable source file to an error that names the file."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        message = str(error)
        if match := _HEADER.search(message):
            header, schema, path = (part.strip() for part in match.groups())
            raise SourceFileError(
                f"source {plain_path(path)}, line 1: the header does not fit the table or the other files: it is "
                f"{header}, expected {schema}"
            ) from error
        if match := _UNREADABLE.search(message):
            causes = _CAUSE.findall(message)
            raise SourceFileError(
                f"source {plain_path(match.group(1))} cannot be read: {causes[-1] if causes else match.group()}"
            ) from error
        raise


_HEADER = re.compile(r"Header: (.*)\n Schema: (.*)\n(?:.*\n)*?CSV file: (\S+)")
_UNREADABLE = re.compile(r"rror while reading file (\S+?)\.(?:\s|$)")
_CAUSE = re.compile(r"Caused by: [\w.]+: (.*)")


def quoted(name: str) -> str:
    """Return a column's name as a quoted SQL identifier."""
    return f"`{name.replace('`', '``')}`"
