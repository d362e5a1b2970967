"""DataFrames over given partitions and data files of a table, in any format and folder."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from types import MappingProxyType
from urllib.parse import quote

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from catalog import FileFormat, Partition, Table
from catalog.datafiles.files import DataFile
from catalog.errors import InvalidConfigurationError, VerificationFailedError
from catalog.files.filesystem import Folder, in_parallel, is_hidden
from catalog.model import Column
from catalog.settings.environment import AVRO_PACKAGE, ICEBERG_PACKAGE
from catalog.tables.checks import refuse_iceberg, refuse_view, require_readable_format
from catalog.tables.columns import file_layout, is_plain_layout
from catalog.tables.own_files import require_no_links_outside
from catalog.types.key_types import (
    BooleanType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    KeyType,
    StringType,
)
from spark_jobs.reading.paths import read_path, spark_path
from spark_jobs.rows.file_formats import file_options, spark_type, stored_value
from spark_jobs.sessions.answers import missing_file

_SMALL_INTEGER = re.compile(r"\b(tinyint|smallint)\b(?!:)")
_PLAIN_DECIMAL = re.compile(r"[+-]?[0-9]+(?:\.([0-9]+))?", re.ASCII)
_PLAIN_NUMBER = re.compile(r"[-+.0-9eE]+", re.ASCII)
_DECIMAL_FILTERS = "spark.sql.parquet.filterPushdown.decimal"
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE\.?([^\]]*)\] [^\n]*? file (\S+?)\.(?:\s|$)")
_BY_ID = "calve/id/"
_FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTED_HERE = 32
"""Number of paths that Spark checks without a job by default."""

# Columns of the join that assigns values to partitions by folder; a table's column names cannot contain a slash.
FOLDER, _IS_KNOWN, _KEY = "calve/folder", "calve/is_known", "calve/key/"
FILE_PATH = "calve/file_path"
"""The column of `read_listed` with the path of each row's file."""


def read_data_files(spark: SparkSession, table: Table, files: Iterable[DataFile]) -> DataFrame:
    """Return the rows of some data files of a table with a partition scheme.

    Raises:
        VerificationFailedError: A file does not exist.
    """
    by_name: list[DataFile] = []
    by_id: list[DataFile] = []
    for file in files:
        (by_id if file.is_read_by_id else by_name).append(file)
    frames = []
    if by_name:
        rows = _load_files(spark, table, _file_schema(table), by_name)
        # No cast is needed, because Spark reads Parquet files with the columns' own types.
        frames.append(rows if is_plain_layout(table) else rows.select(*_columns_of_files(table)))
    if by_id:
        spark.conf.set(_FIELD_IDS, "true")
        rows = _load_files(spark, table, _schema_with_ids(table), by_id)
        frames.append(rows.toDF(*[column.name for column in table.columns]))
    return reduce(DataFrame.union, frames) if frames else empty_table(spark, table)


def _load_files(spark: SparkSession, table: Table, schema: StructType, files: Sequence[DataFile]) -> DataFrame:
    paths = [read_path(f"{table.location}/{file.path}") for file in files]
    # Spark must not parse partition values from the folders, because the catalog knows them.
    reader = _reader(spark, table).option("recursiveFileLookup", "true").schema(schema)
    with reader_errors(spark, table), listing_in_few_tasks(spark) if len(paths) > _LISTED_HERE else nullcontext():
        return reader.load(paths)


def _schema_with_ids(table: Table) -> StructType:
    """Return the schema to read files with that have field ids.

    No file has a column of one of its names: Spark finds columns by ids, but then their types and filters by names.

    Source: Spark's `ParquetUtils.FIELD_ID_METADATA_KEY` and `ParquetToSparkSchemaConverter`.
    """
    fields = zip(table.columns, _schema(table.columns), strict=True)
    return StructType(
        [
            StructField(f"{_BY_ID}{column.id}", field.dataType, True, {"parquet.field.id": column.id})
            for column, field in fields
        ]
    )


@dataclass(frozen=True)
class Nested:
    """Treatment of files in subfolders of a partition's folder, or of the folder of a table without partition keys.

    Attributes:
        is_read: Whether they belong to the partition; otherwise they are ignored.
        skip: Direct subfolders of a table's folder whose files never belong to the table.
    """

    is_read: bool
    skip: frozenset[str] = frozenset()


def read_partitions(
    spark: SparkSession,
    table: Table,
    partitions: Iterable[Partition],
    nested: Nested | None = None,
    *,
    without: Mapping[str, Collection[str]] = MappingProxyType({}),
    inside: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> DataFrame:
    """Return the rows of some partitions of a table; for a table without partition keys, all rows.

    Args:
        nested: Treatment of files in subfolders; None if there are none, which saves looking for them.
        without: Folder → the names of files that are left out.
        inside: Folder → the folders inside it that belong to other partitions or tables, which are left out
            (`Catalog.folders_inside`).

    Raises:
        NotATableError, UnsupportedFormatError, InvalidConfigurationError, VerificationFailedError: As `read_table`.
        LocationNotAllowedError: A symbolic link in a folder, or on the way to it, leads out of the allowed folders.
    """
    refuse_view(table, "has no files")
    refuse_iceberg(table)
    partitions = list(partitions)
    folders = (partition.location for partition in partitions)
    require_no_links_outside(table, folders if table.partition_keys else [table.location])
    if not table.partition_keys:
        require_readable_format(table)
        if table.location in without:
            return _read_some(spark, table, [], without, {})
        return _read_unpartitioned(spark, table, nested)
    by_format: dict[FileFormat, list[Partition]] = {}
    with_others: dict[FileFormat, list[Partition]] = {}
    for partition in partitions:
        chosen = with_others if partition.location in without or partition.location in inside else by_format
        chosen.setdefault(partition.format or table.format, []).append(partition)
    frames: list[DataFrame] = []
    for own_format, format_partitions in with_others.items():
        frames.append(_read_some(spark, replace(table, format=own_format), format_partitions, without, inside))
    for own_format, format_partitions in by_format.items():
        require_readable_format(table, own_format)
        frames += _read_format(spark, replace(table, format=own_format), format_partitions, nested)
    return reduce(DataFrame.union, frames) if frames else empty_table(spark, table)


def _read_format(
    spark: SparkSession, table: Table, partitions: Iterable[Partition], nested: Nested | None
) -> Iterator[DataFrame]:
    """Yield the rows of partitions whose files have the table's format."""
    read_by_path: list[Partition] = []
    others: dict[int, list[Partition]] = {}
    for partition in partitions:
        if nested is None and _is_told_by_path(table, partition):
            read_by_path.append(partition)
        else:
            depth = _depth(partition.location) if nested is not None and nested.is_read else 0
            others.setdefault(depth, []).append(partition)
    if read_by_path:
        yield _read_by_path(spark, table, read_by_path)
    for same_depth in others.values():
        yield _read_by_folder(spark, table, same_depth, nested)


def _read_some(
    spark: SparkSession,
    table: Table,
    partitions: Sequence[Partition],
    without: Mapping[str, Collection[str]],
    inside: Mapping[str, Collection[str]],
) -> DataFrame:
    """Return the rows of partitions, or of a table without partition keys, without those of some files and folders."""
    locations = [partition.location for partition in partitions] if table.partition_keys else [table.location]
    listed = in_parallel(lambda location: Folder(location).files(), locations)
    paths = [
        file.path
        for location, files in zip(locations, listed, strict=True)
        for file in files
        if file.path.removeprefix(f"{location}/") not in without.get(location, ())
        and not file.path.startswith(tuple(f"{folder}/" for folder in inside.get(location, ())))
    ]
    if not paths:
        return empty_table(spark, table)
    if table.partition_keys:
        return read_listed(spark, table, partitions, paths).drop(FILE_PATH)
    rows = _load(spark, table, _reader(spark, table).schema(_file_schema(table)), paths)
    return rows.select(*_columns_of_files(table))


def table_schema(table: Table) -> StructType:
    """Return the schema of a table's DataFrame: its columns, then its partition keys, all nullable."""
    return _schema((*table.columns, *table.partition_keys))


def empty_table(spark: SparkSession, table: Table) -> DataFrame:
    """Return a table's DataFrame without rows, which needs no Spark job."""
    nulls = [f.lit(None).cast(field.dataType).alias(field.name) for field in table_schema(table)]
    return spark.range(0).select(*nulls).where("false")


def _schema(columns: Sequence[Column]) -> StructType:
    return _parsed((column.name, spark_type(column.type)) for column in columns)


def _file_schema(table: Table) -> StructType:
    """Return the schema to read a table's files with; a cast to the columns' types must follow."""
    schema = _schema(file_layout(table, table.format))
    if table.format is not FileFormat.AVRO:
        return schema
    # Avro has no integer types smaller than int.
    return _parsed((field.name, _SMALL_INTEGER.sub("int", field.dataType.simpleString())) for field in schema)


def _parsed(columns: Iterable[tuple[str, str]]) -> StructType:
    text = ", ".join(f"`{name}` {type_text}" for name, type_text in columns)
    # A new object for each caller, because schemas are mutable.
    return StructType(list(_fields(text))) if text else StructType()


@lru_cache(maxsize=256)
def _fields(text: str) -> tuple[StructField, ...]:
    """Return the fields of a schema, parsed by Spark's parser in the JVM."""
    schema = StructType.fromDDL(text)
    assert isinstance(schema, StructType)
    return tuple(schema.fields)


def _read_unpartitioned(spark: SparkSession, table: Table, nested: Nested | None) -> DataFrame:
    with reader_errors(spark, table):
        try:
            rows = _reader(spark, table).schema(_file_schema(table)).load(read_path(table.location))
            direct = rows.select(*_columns_of_files(table))
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return empty_table(spark, table)
            raise
        if nested is None or not nested.is_read:
            return direct
        inside = [f"{table.location}/{name}" for name in Folder(table.location).folders("") if not is_hidden(name)]
        folders = [read_path(folder) for folder in inside if folder not in nested.skip]
        if not folders:
            return direct
        reader = _reader(spark, table).option("recursiveFileLookup", "true").schema(_file_schema(table))
        return direct.union(reader.load(folders).select(*_columns_of_files(table)))


def _is_told_by_path(table: Table, partition: Partition) -> bool:
    """Return whether Spark parses exactly the partition's values from its path below the table's location."""
    return all(map(_is_read_as_it_is, table.key_types, partition.values)) and (
        partition.location == table.default_partition_location(partition.name(table))
    )


def _is_read_as_it_is(key_type: KeyType, text: str | None) -> bool:
    if text is None:
        return True
    value = key_type.comparable(text)
    # Spark refuses an empty value, and does not ignore the trailing blanks of a char.
    if isinstance(key_type, StringType):
        return text != "" and value is not None and key_type.text_of(value) == text
    return value is not None and (not isinstance(key_type, _READ_BY_JAVA) or _is_read_by_java(key_type, text))


_READ_BY_JAVA = (BooleanType, DecimalType, FloatingType, IntegerType)


def _is_read_by_java(key_type: KeyType, text: str) -> bool:
    """Return whether Spark parses a path's value correctly, which it does with Java and Scala instead of a cast.

    Spark 4.1 ignores the decimal point when it reads Parquet: 1.5 becomes 0.15 as decimal(5,2).

    Source: Spark's `PartitioningUtils.castPartValueToDesiredType`.
    """
    if isinstance(key_type, DecimalType):
        match = _PLAIN_DECIMAL.fullmatch(text)
        return match is not None and len(match.group(1) or "") == key_type.scale
    if isinstance(key_type, BooleanType):
        return text.lower() in ("true", "false")
    if isinstance(key_type, IntegerType):
        return text == text.strip()
    return _PLAIN_NUMBER.fullmatch(text) is not None


def _read_by_path(spark: SparkSession, table: Table, partitions: Sequence[Partition]) -> DataFrame:
    """Read partitions whose keys Spark parses from their paths, so that Spark prunes them further, also in joins."""
    schema = StructType([*_file_schema(table), *_schema(table.partition_keys)])
    reader = _reader(spark, table).option("basePath", spark_path(table.location)).schema(schema)
    rows = _load(spark, table, reader, [partition.location for partition in partitions])
    return rows.select(*_columns_of_files(table), *_typed(table.partition_keys))


def _read_by_folder(
    spark: SparkSession, table: Table, partitions: Sequence[Partition], nested: Nested | None
) -> DataFrame:
    """Read partitions in any location; each row gets its keys by the folder of its file.

    A file in a subfolder that is no partition's location is an error unless `nested` is given, because its keys are
    unknown.

    Args:
        partitions: Partitions whose folders have the same depth if nested files are read.
    """
    # Otherwise Spark parses keys from the paths below the folders.
    reader = _reader(spark, table).option("recursiveFileLookup", "true").schema(_file_schema(table))
    rows = _load(spark, table, reader, [partition.location for partition in partitions])
    depth = _depth(partitions[0].location) if nested is not None and nested.is_read else None
    return _with_keys(rows, table, partitions, depth, is_strict=nested is None).select(
        *_columns_of_files(table), *_typed(table.partition_keys, prefix=_KEY)
    )


def read_listed(
    spark: SparkSession, table: Table, folders: Sequence[Partition], paths: Sequence[str], *, by_id: bool = False
) -> DataFrame:
    """Return the rows of some files, with the path of its file, as Spark reports it, in the column `FILE_PATH`.

    Args:
        folders: The folders of the files, with the values of their rows' partition keys.
        paths: The paths of the files.
        by_id: Find their columns by field ids.

    Raises:
        UnsupportedFormatError, InvalidConfigurationError, VerificationFailedError: As `read_partitions`.
    """
    require_readable_format(table)
    schema, columns = _file_schema(table), list(_columns_of_files(table))
    if by_id:
        spark.conf.set(_FIELD_IDS, "true")
        schema = _schema_with_ids(table)
        columns = [f.col(f"`{_BY_ID}{column.id}`").alias(column.name) for column in table.columns]
    rows = _load(spark, table, _reader(spark, table).option("recursiveFileLookup", "true").schema(schema), paths)
    return _with_keys(rows, table, folders, None, is_strict=True).select(
        *columns, *_typed(table.partition_keys, prefix=_KEY), f.col(FILE_PATH)
    )


def _with_keys(
    rows: DataFrame, table: Table, partitions: Sequence[Partition], depth: int | None, *, is_strict: bool
) -> DataFrame:
    """Return rows of files with the values of the partitions that have the files' folders.

    Args:
        depth: The number of the parts of a file's path that are the partition's folder; None for the file's folder.
        is_strict: A file in the folder of no partition is an error; otherwise its rows are left out.
    """
    file = rows.metadataColumn("_metadata")
    if depth is not None:
        folder = f.substring_index(file["file_path"], "/", depth)
    else:
        folder = f.left(file["file_path"], f.length(file["file_path"]) - f.length(file["file_name"]) - 1)
    values = [(_reported_folder(partition.location), True, *_key_texts(table, partition)) for partition in partitions]
    schema = [f"`{FOLDER}` string", f"`{_IS_KNOWN}` boolean", *[f"`{_KEY}{name}` string" for name in table.key_names]]
    known = f.broadcast(rows.sparkSession.createDataFrame(values, ", ".join(schema)))
    message = f.concat(
        f.lit(f"table {table.full_name}: a file is in "),
        f.col(f"`{FOLDER}`"),
        f.lit(", which is not the location of a partition; move it, or add a partition with this location"),
    )
    is_known = f.col(f"`{_IS_KNOWN}`")
    expected = f.when(is_known, True).otherwise(f.raise_error(message).cast("boolean")) if is_strict else is_known
    named = rows.withColumns({FOLDER: folder, FILE_PATH: file["file_path"]})
    return named.join(known, on=FOLDER, how="left").where(expected)


def _depth(location: str) -> int:
    """Return the number of parts between slashes of a folder's location as Spark reports it."""
    return _reported_folder(location).count("/") + 1


def _columns_of_files(table: Table) -> Iterator[SparkColumn]:
    """Yield a table's columns with their types from rows that were read with `_file_schema`."""
    for column, field in zip(table.columns, _schema(table.columns), strict=True):
        yield stored_value(column, table.format).cast(field.dataType).alias(field.name)


def _typed(columns: Sequence[Column], *, prefix: str = "") -> Iterator[SparkColumn]:
    """Yield columns with their names and types from rows that have them under these names with a prefix."""
    for field in _schema(columns):
        yield f.col(f"`{prefix}{field.name}`").cast(field.dataType).alias(field.name)


def _key_texts(table: Table, partition: Partition) -> Iterator[str | None]:
    """Yield a partition's values as strings that Spark casts to the keys' types."""
    for key_type, text in zip(table.key_types, partition.values, strict=True):
        value = None if text is None else key_type.comparable(text)
        if value is None or isinstance(key_type, DateType):
            yield None if value is None else text
        elif isinstance(key_type, StringType):
            yield key_type.text_of(value)
        elif isinstance(key_type, IntegerType):
            yield str(value)
        else:
            yield key_type.format(value).strip("'")


def _reader(spark: SparkSession, table: Table) -> DataFrameReader:
    if table.format is FileFormat.PARQUET and any("decimal" in column.type for column in table.columns):
        # Spark 4.1 truncates a literal to the 4 or 8 bytes of a file's smaller decimal type, and skips matching rows.
        spark.conf.set(_DECIMAL_FILTERS, "false")
    return spark.read.format(table.format).options(**file_options(table.format))


def _load(spark: SparkSession, table: Table, reader: DataFrameReader, paths: Iterable[str]) -> DataFrame:
    distinct = list(dict.fromkeys(map(read_path, paths)))
    with reader_errors(spark, table), listing_in_few_tasks(spark):
        return reader.load(distinct)


def unreadable_file(error: Exception) -> tuple[str, str] | None:
    """Return the URI of the file that Spark could not read, and the error's subclass; None for other errors.

    The subclass is `FILE_NOT_EXIST` if the file disappeared.
    """
    match = _UNREADABLE.search(str(error))
    return None if match is None else (match[2], match[1])


@contextmanager
def reader_errors(spark: SparkSession, table: Table) -> Iterator[None]:
    """Translate Spark's errors about missing paths and formats to catalog errors that say what to do."""
    try:
        yield
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            path = (error.getMessageParameters() or {}).get("path")
            raise VerificationFailedError(
                missing_file(str(path), table.full_name)
                if table.has_file_rows
                else f"table {table.full_name}: {path} is the location of a partition, but does not exist; restore its "
                "files, or drop the partition"
            ) from error
        if table.format is FileFormat.AVRO and "Failed to find data source" in str(error):
            raise InvalidConfigurationError(
                f"table {table.full_name} is Avro, which Spark does not support by itself; set CALVE_SPARK_PACKAGES to "
                f"{ICEBERG_PACKAGE},{AVRO_PACKAGE}, or add the latter to spark.jars.packages of a session of your own"
            ) from error
        raise


@contextmanager
def listing_in_few_tasks(spark: SparkSession) -> Iterator[None]:
    """Make Spark list folders in a job of few tasks; a task for each of 10,000 folders takes 15 times as long."""
    before = str(spark.conf.get(_LISTING_TASKS))
    # Spark Connect has no context, which knows the number of cores.
    context = getattr(spark, "sparkContext", None)
    spark.conf.set(_LISTING_TASKS, str(min(int(before), max(32, 4 * context.defaultParallelism if context else 0))))
    try:
        yield
    finally:
        spark.conf.set(_LISTING_TASKS, before)


_LOCATION = re.compile("([^:/]+):(//[^/]*)?(/.*)", re.DOTALL)
# The characters that Java's `URI` escapes in a path: some ASCII, and blanks and control characters beyond ASCII.
_ESCAPED = re.compile(
    "[^A-Za-z0-9_\\-!.~'()*:@&=+$,/;\x80-\U0010ffff]|[\x80-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
)


def _reported_folder(location: str) -> str:
    """Return a location as the prefix of `_metadata.file_path` of the files in it.

    Source: Hadoop's `Path`, which removes dots and repeated slashes, and Java's `URI.toString`.
    """
    match = _LOCATION.fullmatch(spark_path(location))
    if match is None:
        return location
    scheme, authority, path = match.groups()
    escaped = _ESCAPED.sub(lambda character: quote(character.group(), safe=""), posixpath.normpath(path))
    return f"{scheme}:{'' if authority in (None, '//') else authority}{escaped}"
