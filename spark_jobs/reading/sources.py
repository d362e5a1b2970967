"""Raw source files as DataFrames, with partition keys as strings, typed columns, and detection of unreadable lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from catalog.files.filesystem import FileInfo
from catalog.model import Column, Table
from catalog.model.identifiers import normalise_identifier
from catalog.operations.job_requests import ALLOW, SourceJob
from catalog.types.column_types import ColumnTextType, parse_column_type
from catalog.types.key_types import DecimalType, FloatingType
from spark_jobs.reading.folder_keys import key_of_folder, keys_of_folders
from spark_jobs.reading.headers import by_header, has_header
from spark_jobs.reading.schemas import TYPED_FORMATS, by_schema
from spark_jobs.reading.source_lines import OWN
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.value_checks import CheckedColumn, checked_column, first_not_castable, first_problem

CORRUPT = f"{OWN}corrupt"
"""Column with a line that cannot be parsed as a row; null for other rows."""

FILE = f"{OWN}file"
"""Column with the URI of a row's file."""

PROBLEM = f"{OWN}problem"
"""Column with the problem of a row whose values do not fit their columns; null for others; missing if none has one."""

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
        given: Of text files, the rows before they are cast; of others, `rows`.
        folder_keys: The partition keys that are in the names of the files' folders.
        missing: The columns of the table that files lack, so that their rows have null there.
    """

    rows: DataFrame
    columns: tuple[Column, ...]
    files: Sequence[FileInfo]
    names: Mapping[str, str]
    job: SourceJob
    given: DataFrame
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
    keys = [Column(name, text) for name, text in key_types.items()]
    folder_keys = keys_of_folders(key_types, files)
    target = _Target(job, table, keys, folder_keys)
    groups = _read(spark, files, target)
    missing = {name for group in groups for name in _missing_columns(group, target)}
    problems = [_checks(group, target) for group in groups]
    rows = _union([_converted(group, target, checks) for group, checks in zip(groups, problems, strict=True)])
    given = rows
    if job.source_format in _TEXT_FORMATS:
        given = _union([_with_problem(group.rows, checks) for group, checks in zip(groups, problems, strict=True)])
    others = (*key_types, CORRUPT, PROBLEM, FILE)
    columns = tuple(
        Column(field.name, field.dataType.simpleString()) for field in rows.schema if field.name not in others
    )
    return Source(rows, columns, files, groups[0].names, job, given, folder_keys, sorted(missing))


@dataclass(frozen=True)
class _Target:
    """What files are read for.

    Attributes:
        table: None if it does not exist yet.
        folder_keys: The keys that are in the names of folders.
    """

    job: SourceJob
    table: Table | None
    keys: Sequence[Column]
    folder_keys: Sequence[str]

    @property
    def key_names(self) -> list[str]:
        """The names of the partition keys."""
        return [key.name for key in self.keys]

    @property
    def declared(self) -> Mapping[str, str]:
        """The columns with known types."""
        if self.table is None:
            return self.job.column_types
        return {column.name: column.type for column in self.table.columns}


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


def _read(spark: SparkSession, files: Sequence[FileInfo], target: _Target) -> list[_Group]:
    """Return the rows of files, in groups of CSV files with the same header, or of files with the same schema.

    JSON files are one group, because each of their records may have its own fields.
    """
    job = target.job
    reader = spark.read.format(job.source_format).options(**job.source_options)
    if job.source_format in TYPED_FORMATS:
        same, unreadable = by_schema(files, job.source_format)
        for path, reason in unreadable.items():
            raise SourceFileError(f"source {path} cannot be read as {job.source_format}: {reason}")
        return _agreeing_groups([_group(reader, group) for group in same], target)
    reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT, enforceSchema="false")
    groups = by_header(files, job)
    schemas = [_text_schema(spark, group, target) for group in groups]
    return [
        _group(reader.schema(schema.add(CORRUPT, StringType())), group)
        for schema, group in zip(_agreeing(schemas), groups, strict=True)
    ]


def _group(reader: DataFrameReader, files: Sequence[FileInfo]) -> _Group:
    rows = reader.load([read_path(file.path) for file in files])
    names = {normalise_identifier(name, "column"): name for name in rows.columns}
    lowered = rows.toDF(*[normalise_identifier(name, "column") for name in rows.columns])
    return _Group(files, lowered.withColumn(FILE, f.col("_metadata.file_path")), names)


def _agreeing_groups(groups: Sequence[_Group], target: _Target) -> list[_Group]:
    """Return groups with one type for each column of which no type is declared: the widest of those of numbers.

    Raises:
        SourceFileError: Files have a column with types of which none has all values of the other.
    """
    first: dict[str, tuple[DataType, str]] = {}
    for group in groups:
        for field in group.rows.drop(FILE, *target.declared, *target.key_names).schema:
            known, path = first.setdefault(field.name, (field.dataType, group.files[0].path))
            wider = _wider(known, field.dataType)
            if known != field.dataType and isinstance(wider, StringType):
                raise SourceFileError(
                    f"column {field.name} has type {known.simpleString()} in source {path}, and "
                    f"{field.dataType.simpleString()} in {group.files[0].path}; set its type in `columns` of the "
                    "table's entry"
                )
            first[field.name] = wider, path
    widened = {name: f.col(quoted(name)).cast(kind) for name, (kind, _) in first.items()}
    return [
        replace(
            group,
            rows=group.rows.withColumns({name: value for name, value in widened.items() if name in group.columns}),
        )
        for group in groups
    ]


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


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


def _checks(group: _Group, target: _Target) -> list[CheckedColumn]:
    """Return the checked values of the partition keys, as strings, and of the columns whose types are known."""
    columns = {field.name: field.dataType for field in group.rows.schema}
    checks = [
        checked_column(Column(name, text), f.col(quoted(name)), columns[name])
        for name, text in target.declared.items()
        if name in columns and name not in target.key_names
    ]
    for key in target.keys:
        given = f.col(quoted(key.name)) if key.name in columns else None
        if key.name in target.folder_keys:
            checks.append(key_of_folder(key, f.col(FILE), given))
        elif given is not None:
            value = given.cast("string")
            is_text = target.job.source_format in _TEXT_FORMATS
            checks.append(CheckedColumn(key, value, _not_decoded(key, value) if is_text else None))
    if target.job.null_keys != ALLOW:
        checks += [_no_null(checked) for checked in checks if checked.column.name in target.key_names]
    return checks


def _converted(group: _Group, target: _Target, checks: Sequence[CheckedColumn]) -> DataFrame:
    """Return the rows of files with the checked values, and null in the columns of the table that they lack.

    Raises:
        SourceFileError: A column has a type that cannot be cast to that of the table's.
    """
    changed = {checked.column.name: checked.value for checked in checks}
    if target.table is not None:
        absent = {name: text for name, text in target.declared.items() if name not in group.columns}
        changed |= {name: f.lit(None).cast(spark_type(text)) for name, text in absent.items()}
    try:
        return _with_problem(group.rows, checks, changed)
    except AnalysisException as error:
        if (refused := first_not_castable(group.rows, checks)) is None:
            raise
        name = refused.column.name
        raise SourceFileError(
            f"source {group.files[0].path}: column {name} has type {dict(group.rows.dtypes)[name]}, which cannot "
            f"become {refused.column.type}; correct the file, or alter the table first"
        ) from error


def _with_problem(
    rows: DataFrame, checks: Sequence[CheckedColumn], changed: Mapping[str, SparkColumn] | None = None
) -> DataFrame:
    """Return rows with `PROBLEM`, unless no row can have one, and with changed columns."""
    problem = first_problem(checks)
    return rows.withColumns({**(changed or {}), **({} if problem is None else {PROBLEM: problem})})


def _no_null(key: CheckedColumn) -> CheckedColumn:
    """Return the check that a key has a value; an empty string is Hive's null, too."""
    problem = f"partition key {key.column.name} is null, which `null_keys` refuses"
    is_null = key.value.isNull() | (key.value == "")
    return replace(key, problem=f.when(is_null, f.lit(problem)))


def _not_decoded(key: Column, value: SparkColumn) -> SparkColumn:
    """Return the problem of a key of a text file that could not be decoded, as it would name a folder."""
    problem = f.concat(f.lit(f"partition key {key.name}: '"), value, f.lit("' is not in the file's encoding"))
    return f.when(value.contains(_REPLACED), problem)


def _text_schema(spark: SparkSession, files: Sequence[FileInfo], target: _Target) -> StructType:
    """Return the schema of text files, in the order of the files; keys of folders need no column."""
    job, keys = target.job, target.key_names
    paths = [read_path(file.path) for file in files]
    declared = {**job.column_types, **target.declared}
    if job.source_format == "csv" and not has_header(job):
        if missing := [key for key in keys if key not in declared and key not in target.folder_keys]:
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


def _missing_columns(group: _Group, target: _Target) -> set[str]:
    """Return the columns of a table that files lack, after checking that they may."""
    first, columns, table = group.files[0].path, group.columns, target.table
    placing = target.key_names if table is None or table.scheme is None else [table.scheme.column]
    if lacking := [name for name in placing if name not in columns and name not in target.folder_keys]:
        raise SourceFileError(
            f"source {first} has no column {', '.join(lacking)}, which the table is partitioned by, and not every file "
            f"is in a folder such as {lacking[0]}=…; its columns are {', '.join(columns)}"
        )
    if lacking := [name for name in target.job.required if name not in columns]:
        raise SourceFileError(
            f"source {first} has no column {', '.join(lacking)}, which `required` of the table's entry names; its "
            f"columns are {', '.join(columns)}. Correct the file, or take the column out of `required`"
        )
    if table is None:
        return set()
    expected = {column.name for column in table.columns}
    missing, unknown = expected.difference(columns), set(columns).difference(expected, target.key_names)
    if unknown:
        raise SourceFileError(
            f"source {first} does not have the columns of {table.full_name}: missing "
            f"{', '.join(sorted(missing)) or 'none'}, unknown {', '.join(sorted(unknown))}. Correct the file, or alter "
            "the table first"
        )
    return missing


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
