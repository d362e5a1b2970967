"""Raw source files as DataFrames, with partition keys as strings, typed columns, and detection of unreadable lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from catalog.errors import InvalidLocationError, SourceFileError
from catalog.files.filesystem import FileInfo, Folder
from catalog.model import Column, Table
from catalog.model.identifiers import normalise_identifier
from catalog.operations.job_requests import SourceJob
from catalog.types.column_types import ColumnTextType, parse_column_type
from catalog.types.key_types import DecimalType, FloatingType
from spark_jobs.reading.folder_keys import key_of_folder, keys_of_folders
from spark_jobs.reading.headers import by_header, has_header
from spark_jobs.reading.source_lines import line_of
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.value_checks import CheckedColumn, checked_column, first_not_castable, first_problem

CORRUPT = "_calve_corrupt"
"""Column with a line that cannot be parsed as a row; null for other rows."""

FILE = "_calve_file"
"""Column with the URI of a row's file."""

PROBLEM = "_calve_problem"
"""Column with the problem of a row whose values do not fit their columns; null for other rows."""

_SHOWN = 10
_WILDCARD = re.compile(r"[*?\[\]{}\\]")
_TEXT_FORMATS = ("csv", "json")
_NUMBERS: Sequence[type[DataType]] = (IntegerType, LongType, DoubleType)
"""Types that Spark infers for numbers, in the order in which it widens them."""

_REPLACED = "\N{REPLACEMENT CHARACTER}"
"""What Spark reads for bytes that are not in the encoding of a text file."""


@dataclass(frozen=True)
class Source:
    """The rows of a load.

    Attributes:
        rows: Rows with all columns in lower case, the partition keys as strings, `FILE`, and `CORRUPT` if the files are
            text.
        columns: The columns of the data files, with their types.
        names: Column → its spelling in the files.
        given: The rows of the files before they are cast.
        problem: The problem of a row of `given`; None if all values fit.
        folder_keys: The partition keys that are in the names of the files' folders.
        missing: The columns of the table that files lack, so that their rows have null there.
    """

    rows: DataFrame
    columns: tuple[Column, ...]
    files: Sequence[FileInfo]
    names: Mapping[str, str]
    job: SourceJob
    given: DataFrame
    problem: SparkColumn | None
    folder_keys: Sequence[str] = ()
    missing: Sequence[str] = ()


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

    A column that files lack is null, unless the request requires it.

    Raises:
        SourceFileError: A file cannot be opened, lacks a partition key or a required column, has columns that the table
            does not have, or a column whose type cannot be cast to the table's.
    """
    key_types = job.key_types if table is None else {key.name: key.type for key in table.partition_keys}
    keys = list(key_types)
    folder_keys = keys_of_folders(keys, files)
    groups, missing = _read(spark, files, job, table, keys, folder_keys), set[str]()
    for group in groups:
        missing |= _missing_columns(group, job, table, keys, folder_keys)
    frames = [group.rows for group in groups]
    given = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    declared = job.column_types if table is None else {column.name: column.type for column in table.columns}
    checked = _checked(given, declared, keys)
    for key in folder_keys:
        column = f.col(quoted(key)) if key in given.columns else None
        checked.append(key_of_folder(Column(key, key_types[key]), f.col(FILE), column))
    if job.source_format in _TEXT_FORMATS:
        checked += [_decoded_key(key) for key in keys if key not in folder_keys]
    changed = {key: f.col(quoted(key)).cast("string") for key in keys if key in given.columns}
    if table is not None:
        absent = {name: text for name, text in declared.items() if name not in given.columns}
        changed |= {name: f.lit(None).cast(spark_type(text)) for name, text in absent.items()}
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
    others = (*keys, CORRUPT, PROBLEM, FILE)
    columns = tuple(
        Column(field.name, field.dataType.simpleString()) for field in rows.schema if field.name not in others
    )
    return Source(rows, columns, files, groups[0].names, job, given, problem, folder_keys, sorted(missing))


@dataclass(frozen=True)
class _Group:
    """Files with the same columns.

    Attributes:
        rows: Their rows, with all columns in lower case, and `FILE`.
        names: Column → its spelling in the files.
    """

    files: Sequence[FileInfo]
    rows: DataFrame
    names: Mapping[str, str]

    @property
    def columns(self) -> list[str]:
        """The columns of the files, in lower case."""
        return [name for name in self.names if name != CORRUPT]


def _read(
    spark: SparkSession,
    files: Sequence[FileInfo],
    job: SourceJob,
    table: Table | None,
    keys: Sequence[str],
    folder_keys: Sequence[str],
) -> list[_Group]:
    """Return the rows of files, in groups of CSV files with the same header; other files are one group."""
    reader = spark.read.format(job.source_format).options(**job.source_options)
    if job.source_format not in _TEXT_FORMATS:
        # Without the option, Spark uses the columns of one file and drops columns of the others.
        return [_group(reader.options(mergeSchema=str(len(files) > 1).lower()), files)]
    reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT, enforceSchema="false")
    groups = by_header(files, job)
    schemas = [_text_schema(spark, group, job, table, keys, folder_keys) for group in groups]
    return [
        _group(reader.schema(schema.add(CORRUPT, StringType())), group)
        for schema, group in zip(_agreeing(schemas), groups, strict=True)
    ]


def _group(reader: DataFrameReader, files: Sequence[FileInfo]) -> _Group:
    rows = reader.load([read_path(file.path) for file in files])
    names = {normalise_identifier(name, "column"): name for name in rows.columns}
    lowered = rows.toDF(*[normalise_identifier(name, "column") for name in rows.columns])
    return _Group(files, lowered.withColumn(FILE, f.col("_metadata.file_path")), names)


def _agreeing(schemas: Sequence[StructType]) -> list[StructType]:
    """Return schemas with one type for each column: the widest of the inferred ones."""
    types: dict[str, DataType] = {}
    for field in chain.from_iterable(schemas):
        name = field.name.lower()
        types[name] = _wider(types.get(name, field.dataType), field.dataType)
    return [StructType([StructField(field.name, types[field.name.lower()]) for field in schema]) for schema in schemas]


def _wider(one: DataType, other: DataType) -> DataType:
    if one == other:
        return one
    if type(one) in _NUMBERS and type(other) in _NUMBERS:
        return max(one, other, key=lambda number: _NUMBERS.index(type(number)))
    return StringType()


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
    files: Sequence[FileInfo],
    job: SourceJob,
    table: Table | None,
    keys: Sequence[str],
    folder_keys: Sequence[str],
) -> StructType:
    """Return the schema of text files, in the order of the files; keys of folders need no column."""
    paths = [read_path(file.path) for file in files]
    table_types = {} if table is None else {column.name: column.type for column in table.columns}
    declared = {**job.column_types, **table_types}
    if job.source_format == "csv" and not has_header(job):
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


def _missing_columns(
    group: _Group, job: SourceJob, table: Table | None, keys: Sequence[str], folder_keys: Sequence[str]
) -> set[str]:
    """Return the columns of a table that files lack, after checking that they may."""
    first, columns = group.files[0].path, group.columns
    if lacking := [key for key in keys if key not in columns and key not in folder_keys]:
        raise SourceFileError(
            f"source {first} has no column {', '.join(lacking)}, which the table is partitioned by, and not every file "
            f"is in a folder such as {lacking[0]}=…; its columns are {', '.join(columns)}"
        )
    if lacking := [name for name in job.required if name not in columns]:
        raise SourceFileError(
            f"source {first} has no column {', '.join(lacking)}, which `required` of the table's entry names; its "
            f"columns are {', '.join(columns)}. Correct the file, or take the column out of `required`"
        )
    if table is None:
        return set()
    expected = {column.name for column in table.columns}
    missing, unknown = expected.difference(columns), set(columns).difference(expected, keys)
    if unknown:
        raise SourceFileError(
            f"source {first} does not have the columns of {table.full_name}: missing "
            f"{', '.join(sorted(missing)) or 'none'}, unknown {', '.join(sorted(unknown))}. Correct the file, or alter "
            "the table first"
        )
    return missing


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
    if source.problem is None:
        bad = source.given.where(f.col(CORRUPT).isNotNull())
    else:
        rows = source.given.withColumn(PROBLEM, source.problem)
        is_corrupt = f.col(CORRUPT).isNotNull() if CORRUPT in rows.columns else f.lit(False)
        bad = rows.where(is_corrupt | f.col(PROBLEM).isNotNull())
    places = []
    for row in bad.limit(_SHOWN).collect():
        record, path = row.asDict(), plain_path(row[FILE])
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
