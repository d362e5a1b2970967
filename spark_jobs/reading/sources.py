"""Raw source files as DataFrames, with partition keys as strings, typed columns, and detection of unreadable lines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from catalog.errors import InvalidIdentifierError, SourceFileError
from catalog.files.filesystem import FileInfo
from catalog.model import Column, Table
from catalog.model.identifiers import normalise_identifier
from catalog.operations.job_requests import SKIP, SourceJob, WritePartitionsJob
from catalog.settings.contracts import ContractMode
from catalog.types.column_types import hive_column_type, parse_column_type
from catalog.types.key_types import DateType, TimestampType
from spark_jobs.reading.encodings import encoding_of, is_wide
from spark_jobs.reading.evolving import SourceGroup, evolved_for, missing_columns
from spark_jobs.reading.files import listing_in_few_tasks
from spark_jobs.reading.folder_keys import keys_of_folders
from spark_jobs.reading.headers import by_header, has_header, names_columns
from spark_jobs.reading.json_documents import by_layout, with_layout
from spark_jobs.reading.open_quotes import open_quotes
from spark_jobs.reading.paths import plain_path, quoted, read_path
from spark_jobs.reading.schemas import TYPED_FORMATS, by_schema, kind_of
from spark_jobs.reading.source_checks import (
    CORRUPT,
    ENCODING_HINT,
    FILE,
    REPLACED,
    TEXT_FORMATS,
    Target,
    UnfitFilesError,
    converted,
)
from spark_jobs.reading.source_lines import OWN
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.value_checks import checked_column
from spark_jobs.sessions.packages import require_avro

_SHOWN = 10
_UNORDERED = ("utf-16", "utf-32")
"""Encodings that leave the order of bytes to a mark at the beginning of a file."""

_NUMBERS: Sequence[type[DataType]] = (IntegerType, LongType, DoubleType)
"""Types that Spark infers for numbers, in the order in which it widens them."""


@dataclass(frozen=True)
class Source:
    """The rows of a load.

    Attributes:
        rows: Rows with all columns in lower case, the partition keys as strings, `FILE`, `CORRUPT` if the files are
            text, and `PROBLEM` and `DISCARDED` if they may have any.
        columns: The columns of the data files, with their types.
        names: Column → its spelling in the files.
        given: Of text files, the rows before they are cast, with `PROBLEM`, `DISCARDED`, and the values of computed
            keys under names that begin with `KEY`; of others, `rows`.
        table: The table as it is when the load has been published; None if it does not exist yet.
        folder_keys: The partition keys that are in the names of the files' folders.
        computed_keys: The partition keys that expressions give.
        missing: The columns of the table that files lack, so that their rows have null there.
        refused: File → reason why it is left out, if bad files are skipped.
    """

    rows: DataFrame
    columns: tuple[Column, ...]
    files: Sequence[FileInfo]
    names: Mapping[str, str]
    job: SourceJob
    given: DataFrame
    table: Table | None = None
    folder_keys: Sequence[str] = ()
    computed_keys: Sequence[str] = ()
    missing: Sequence[str] = ()
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)


class NoGoodFileError(SourceFileError):
    """Bad files are skipped, and no file is left.

    Attributes:
        refused: File → reason.
    """

    def __init__(self, refused: Mapping[str, str]) -> None:
        """Build the message, which shows some of the files."""
        self.refused = refused
        shown = "; ".join(f"{path} {reason}" for path, reason in list(refused.items())[:_SHOWN])
        super().__init__(f"none of {len(refused):,} source file(s) can be loaded: {shown}. Correct the files")


def read_source(spark: SparkSession, files: Sequence[FileInfo], job: SourceJob, table: Table | None) -> Source:
    """Read source files with the types of the table, of the request, or inferred, in this order.

    A column that files lack is null, unless the request requires it. If the request skips bad files, files that cannot
    be read with these columns are left out. If its contract says so, the table gets columns of the files, and wider
    types, which the later steps of the load have to apply.

    Raises:
        NoGoodFileError: Bad files are skipped, and no file is left.
        SourceFileError: A file cannot be opened, lacks a partition key or a required column, has columns that the table
            does not have, or a column whose type cannot be cast to the table's.
    """
    key_types = job.key_types if table is None else {key.name: key.type for key in table.partition_keys}
    keys = [Column(name, text) for name, text in key_types.items()]
    folder_keys = keys_of_folders(key_types, files)
    target = Target(job, table, keys, folder_keys)
    refused: dict[str, str] = {}
    files = _without_open_quotes(spark, files, job, refused)
    with listing_in_few_tasks(spark):
        read = _read(spark, files, target, refused)
        if (evolving := evolved_for(read, target)) is not target:
            target = evolving
            read = _read(spark, files, target, refused)
    groups, parts, missing = [], [], set[str]()
    for group in read:
        try:
            missing |= missing_columns(group.columns, target)
            parts.append(converted(group.rows, target))
            groups.append(group)
        except UnfitFilesError as error:
            _refuse(group.files, error.reason, job, refused)
    if not groups:
        raise NoGoodFileError(refused)
    rows, given = (_union(frames) for frames in zip(*parts, strict=True))
    columns = tuple(
        # Spark reads char and varchar as strings.
        Column(field.name, target.declared.get(field.name, field.dataType.simpleString()))
        for field in rows.schema
        if field.name not in key_types and not field.name.startswith(OWN)
    )
    good = [file for group in groups for file in group.files]
    return Source(
        rows,
        columns,
        good,
        groups[0].names,
        job,
        given,
        target.table,
        folder_keys,
        list(target.computed),
        sorted(missing),
        refused,
    )


def _without_open_quotes(
    spark: SparkSession, files: Sequence[FileInfo], job: SourceJob, refused: dict[str, str]
) -> Sequence[FileInfo]:
    if isinstance(job, WritePartitionsJob):
        # They are validated.
        return files
    problems = open_quotes(spark, files, job)
    for file in files:
        if file.path in problems:
            _refuse([file], problems[file.path], job, refused)
    return [file for file in files if file.path not in problems]


def _refuse(files: Sequence[FileInfo], reason: str, job: SourceJob, refused: dict[str, str]) -> None:
    """Note that files are left out, if bad files are skipped.

    Raises:
        SourceFileError: Bad files are not skipped.
    """
    if job.bad_files != SKIP:
        raise SourceFileError(f"source {files[0].path} {reason}")
    refused.update({file.path: reason for file in files})


def _read(spark: SparkSession, files: Sequence[FileInfo], target: Target, refused: dict[str, str]) -> list[SourceGroup]:
    """Return the rows of files, in groups of CSV files with the same header, or of files with the same schema.

    JSON files are at most two groups, because each of their records may have its own fields.
    """
    job = target.job
    if not files:
        return []
    reader = spark.read.format(job.source_format).options(**reader_options(job))
    if job.source_format in TYPED_FORMATS:
        if job.source_format == "avro":
            require_avro(spark)
        same, unreadable = by_schema(files, job.source_format)
        for file in files:
            if file.path in unreadable:
                _refuse([file], f"cannot be read as {job.source_format}: {unreadable[file.path]}", job, refused)
        return _agreeing_groups(_named_groups(((reader, group) for group in same), job, refused), target)
    reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT, enforceSchema="false")
    groups = _text_groups(files, job)
    schemas = [_text_schema(spark, group, replace(target, job=own)) for group, own in groups]
    # One after another, because they are one object, whose schema changes.
    readers = (
        (reader.options(**reader_options(own)).schema(schema.add(CORRUPT, StringType())), group)
        for schema, (group, own) in zip(_agreeing(schemas), groups, strict=True)
    )
    return _named_groups(readers, job, refused)


def reader_options(job: SourceJob) -> dict[str, str]:
    """Return the options of Spark's reader.

    In quoted values of CSV files, a quote is doubled, as nearly all programs do, unless the options say otherwise.
    Spark's default is a backslash before it, with which both of the doubled quotes become part of the value. Of JSON
    records in another encoding than UTF-8, Spark has to be told where lines end; it does not find the lines of CSV
    files in UTF-16 unless values may have line breaks.

    Raises:
        SourceFileError: Spark cannot read JSON records on lines in this encoding.
    """
    options = dict(job.source_options)
    given = job.lowered_options
    if job.source_format == "csv" and "escape" not in given and (quote := given.get("quote", '"')):
        options["escape"] = quote
    encoding = encoding_of(job)
    if job.source_format == "csv" and is_wide(encoding) and "multiline" not in given:
        options["multiLine"] = "true"
    if job.source_format == "json" and encoding is not None:
        if encoding in _UNORDERED and given.get("multiline") == "false":
            raise SourceFileError(
                f"JSON records on lines cannot be read with encoding {encoding}, which leaves the order of bytes open; "
                f"name it in `source_options`: {encoding}le, or {encoding}be"
            )
        if "linesep" not in given:
            options["lineSep"] = "\n"
    return options


def _text_groups(files: Sequence[FileInfo], job: SourceJob) -> list[tuple[Sequence[FileInfo], SourceJob]]:
    """Return CSV files with the same header, or JSON files with the same layout, and the settings to read them."""
    if job.source_format == "csv":
        return [(group, job) for group in by_header(files, job)]
    return [(group, with_layout(job, is_document=is_document)) for group, is_document in by_layout(files, job)]


def _named_groups(
    readers: Iterable[tuple[DataFrameReader, Sequence[FileInfo]]], job: SourceJob, refused: dict[str, str]
) -> list[SourceGroup]:
    """Return groups of files, without those with a column whose name no table can have, or is in another encoding."""
    groups, is_checked = [], job.source_format in TEXT_FORMATS and encoding_of(job) is None
    for reader, files in readers:
        try:
            group = _group(reader, files)
            wrong = [name for name in group.columns if REPLACED in name] if is_checked else []
            if wrong:
                named = f"has, in line 1, a column {wrong[0]!r} whose name is not UTF-8"
                _refuse(files, f"{named}; {ENCODING_HINT}", job, refused)
            else:
                groups.append(group)
        except InvalidIdentifierError as error:
            reason = f"cannot be loaded, because a table cannot have all of its columns: {error}"
            if job.source_format in TEXT_FORMATS and (kind := kind_of(files[0])) is not None:
                reason = f"is a file of {kind}, and not of {job.source_format}: set source_format to {kind}"
            _refuse(files, reason, job, refused)
    return groups


def _group(reader: DataFrameReader, files: Sequence[FileInfo]) -> SourceGroup:
    rows = reader.load([read_path(file.path) for file in files])
    names = {normalise_identifier(name, "column"): name for name in rows.columns}
    lowered = rows.toDF(*[normalise_identifier(name, "column") for name in rows.columns])
    # Costs nothing where it is not used, unlike `_metadata.file_path`, with which Spark's readers of text add all six
    # fields of `_metadata` to each row, which takes as long as parsing a narrow row.
    return SourceGroup(files, lowered.withColumn(FILE, f.input_file_name()), names)


def _agreeing_groups(groups: Sequence[SourceGroup], target: Target) -> list[SourceGroup]:
    """Return groups with one type for each column of which no type is declared: the table's, the widest of numbers.

    Raises:
        SourceFileError: Files have a column with types of which none has all values of the other.
    """
    first: dict[str, tuple[DataType, str]] = {}
    for group in groups:
        discarded = target.unknown(group.columns) if target.contract.columns.discards else []
        for field in group.rows.drop(FILE, *target.declared, *target.key_names, *discarded).schema:
            kind = _type_in_table(field.dataType, target)
            known, path = first.setdefault(field.name, (kind, group.files[0].path))
            wider = _wider(known, kind)
            if known != kind and isinstance(wider, StringType):
                raise SourceFileError(
                    f"column {field.name} has type {known.simpleString()} in source {path}, and "
                    f"{kind.simpleString()} in {group.files[0].path}; set its type in `columns` of the "
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


def _type_in_table(kind: DataType, target: Target) -> DataType:
    """Return the type that a column of files gives to a table, with times of the session's zone if it is Hive-style."""
    text = kind.simpleString()
    named = text if target.is_iceberg else hive_column_type(text)
    return kind if named == text else DataType.fromDDL(named)


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


def _text_schema(spark: SparkSession, files: Sequence[FileInfo], target: Target) -> StructType:
    """Return the schema of text files, in the order of the files; keys of folders need no column."""
    job, keys = target.job, target.key_names
    paths = [read_path(file.path) for file in files]
    declared = {**job.column_types, **target.declared}
    if job.source_format == "csv" and not has_header(job):
        if missing := [key for key in target.given_keys if key not in declared and key not in target.folder_keys]:
            raise SourceFileError(
                f"source {paths[0]} has no header, and `columns` does not list {', '.join(missing)}; list all columns "
                "of the file in order, including the partition keys"
            )
        if names_columns(files[0], list(job.column_types), job):
            raise SourceFileError(
                f"source {paths[0]} has the names of the columns in line 1, which would be loaded as a row, because "
                "the option `header` is false; set it to true"
            )
        fields = [(name, declared[name]) for name in job.column_types]
    else:
        sniffer = spark.read.format(job.source_format).options(**reader_options(job))
        sniffer = sniffer.option("columnNameOfCorruptRecord", CORRUPT)
        sample = sniffer.load(list(paths) if job.source_format == "json" else paths[0])
        # A JSON record may omit a field.
        optional = (*target.given_keys, *declared) if job.source_format == "json" else ()
        spelled = {name.lower(): name for name in (*optional, *sample.columns) if name != CORRUPT}
        names = [
            spelled[name] for name in dict.fromkeys(map(str.lower, (*sample.columns, *optional))) if name in spelled
        ]
        undeclared = [name for name in names if name.lower() not in declared and name.lower() not in keys]
        inferred: Mapping[str, str] = {}
        # Columns that the table does not have are discarded or refused, whatever their types.
        if undeclared and (target.table is None or target.contract.columns is ContractMode.EVOLVE):
            found = sniffer.options(inferSchema="true").load(list(paths)).schema
            misread: Collection[str] = ()
            if job.source_format == "csv":
                texts = sniffer.options(inferSchema="false").load(list(paths))
                misread = _misread(texts, [field for field in found if field.name in undeclared], job)
            inferred = {
                field.name: _inferred(field.dataType).simpleString() for field in found if field.name not in misread
            }
        fields = [(name, declared.get(name.lower()) or inferred.get(name, "string")) for name in names]
    return StructType(
        [
            StructField(name, StringType() if name.lower() in keys else _read_type(name, text, target))
            for name, text in fields
        ]
    )


def _misread(texts: DataFrame, found: Iterable[StructField], job: SourceJob) -> set[str]:
    """Return the columns with strings that Spark reads as values of the type that it has found, but Calve does not.

    Spark takes `12:30` for a time of the present day, `2024-05` for a date and `1.5d` for a number.
    """
    problems = {}
    for field in found:
        if (
            not isinstance(field.dataType, StringType)
            and _as_text(field.dataType, job.lowered_options) != field.dataType
        ):
            column = Column(field.name, field.dataType.simpleString())
            problem = checked_column(column, f.col(quoted(field.name)), StringType()).problem
            problems[field.name] = f.count(problem) if problem is not None else f.lit(0)
    if not problems:
        return set()
    counts = texts.agg(*[count.alias(name) for name, count in problems.items()]).first()
    return {name for name in problems if counts is not None and counts[name]}


def _inferred(found: DataType) -> DataType:
    """Return the type of a column in whose values Spark has found a type; later values may be greater integers."""
    return LongType() if isinstance(found, IntegerType) else found


def _read_type(name: str, type_text: str, target: Target) -> DataType:
    """Return the type to read a column of a text file with.

    Columns with known types are read as strings and cast later, also inside nested types, so that a value that does not
    fit is named. Spark's reader parses times in another format.
    """
    read_type = DataType.fromDDL(spark_type(type_text))
    return _as_text(read_type, target.job.lowered_options) if name.lower() in target.declared else read_type


def _as_text(of_type: DataType, options: Mapping[str, str]) -> DataType:
    """Return a type with strings in the place of the types whose strings Calve reads itself."""
    read = partial(_as_text, options=options)
    match of_type:
        case ArrayType(elementType=element):
            return ArrayType(read(element))
        case MapType(keyType=key, valueType=value):
            return MapType(read(key), read(value))
        case StructType(fields=fields):
            return StructType([StructField(field.name, read(field.dataType)) for field in fields])
    known = parse_column_type(of_type.simpleString())
    has_format = (isinstance(known, DateType) and "dateformat" in options) or (
        isinstance(known, TimestampType) and not options.keys().isdisjoint(("timestampformat", "timezone"))
    )
    return of_type if known is None or has_format else StringType()


@contextmanager
def source_errors() -> Iterator[None]:
    """Translate Spark's errors about an unreadable source file to an error that names the file."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        message = str(error)
        if match := _HEADER.search(message):
            header, schema, path = (part.strip() for part in match.groups())
            names = [name.strip().lower() for name in header.split(",")]
            if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
                raise SourceFileError(
                    f"source {plain_path(path)}, line 1: the header has {', '.join(repeated)} more than once, in upper "
                    f"or lower case: {header}; give each column a name of its own"
                ) from error
            raise SourceFileError(
                f"source {plain_path(path)}, line 1: the header does not fit the table or the other files: it is "
                f"{header}, expected {schema}"
            ) from error
        if (unreadable := unreadable_file(error)) is not None:
            raise SourceFileError(f"source {unreadable[0]} cannot be read: {unreadable[1]}") from error
        raise


def unreadable_file(error: Exception) -> tuple[str, str] | None:
    """Return the file that an error of Spark names as unreadable, and the cause; None if it names none."""
    message = str(error)
    if (match := _UNREADABLE.search(message)) is None:
        return None
    causes = _CAUSE.findall(message)
    return plain_path(match.group(1)), causes[-1] if causes else match.group()


_HEADER = re.compile(r"Header: (.*)\n Schema: (.*)\n(?:.*\n)*?CSV file: (\S+)")
_UNREADABLE = re.compile(r"rror while reading file (\S+?)\.(?:\s|$)")
_CAUSE = re.compile(r"Caused by: [\w.]+: (.*)")
