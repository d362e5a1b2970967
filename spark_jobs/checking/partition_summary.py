"""Summary of partitions for quality checks: one row for each partition, from one pass over the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, FileFormat, Partition, Table
from catalog.datafiles.publishing import files_with_deletes
from catalog.errors import InvalidConfigurationError
from catalog.model.partition_names import parse_partition_path
from catalog.partitions.quarantine import LoadedPartitions
from catalog.settings.quality_rules import QualityRules, RowCountRule
from catalog.tables.columns import file_layout, is_plain_layout
from catalog.types.key_types import KeyValueError
from spark_jobs.queries.checked_plans import check_expression
from spark_jobs.reading.files import listing_in_few_tasks
from spark_jobs.reading.iceberg import read_as_table, read_live_rows
from spark_jobs.reading.paths import plain_path, read_path
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.placement import partition_id

if TYPE_CHECKING:
    import pandas


_NOT_MERGED = "CANNOT_MERGE"
"""Error class of Spark if files have different types for a column."""

_PATH = "calve/path"

_INTEGERS = ("tinyint", "smallint", "int")


@dataclass(frozen=True)
class Claim:
    """An expression over the data files that must equal a partition's value of a key.

    Attributes:
        column: The summary's column with the result.
        may_be_null: Nulls are ignored, because files that lack a column read as null.
    """

    column: str
    key: str
    expression: str
    may_be_null: bool = False


def usual_ratios(
    catalog: Catalog, table: Table, rule: RowCountRule, partitions: Sequence[Partition]
) -> dict[int, float | None]:
    """Return, for each partition, the ratio of its group's rows to the median of the table's other groups.

    A ratio is None if there is no other group; the result is empty if the rule does not need ratios.
    """
    if rule.usual is None:
        return {}
    positions = [table.key_names.index(key) for key in rule.per]
    rows_of = catalog.quality.group_row_counts(table.full_name, rule.per)
    ratio_of: dict[tuple[str | None, ...], float | None] = {}
    for group in {tuple(partition.values[position] for position in positions) for partition in partitions}:
        others = [rows for other, rows in rows_of.items() if other != group]
        usual = median(others) if others else 0
        ratio_of[group] = rows_of.get(group, 0) / usual if usual else None
    return {
        partition.id: ratio_of[tuple(partition.values[position] for position in positions)] for partition in partitions
    }


def summarise(
    spark: SparkSession,
    loaded: LoadedPartitions,
    rules: QualityRules,
    ratios: Mapping[int, float | None],
    *,
    written_by: str | None = None,
) -> pandas.DataFrame:
    """Return one row for each partition that a load added or extended, in the given order.

    Of a table stored as Iceberg, it counts the rows that other engines have not deleted meanwhile; the registered
    number of rows is unknown for partitions with delete files.

    Of a table with a partition scheme, the rows are counted by the partitions that the scheme places them in, and the
    registered rows by those of the files.

    Shape: `partition` (its name), `partition_id`, `row_count`, `registered_row_count`, `row_count_difference`,
    `usual_ratio`, and without a scheme `path_agrees` and `values_fit`; for each column of the rules
    `<column>_null_ratio`, `<column>_below` and `<column>_above` (rows outside its bounds); and the column of each claim
    (`claims`).

    Args:
        written_by: Only read the files that this Spark job wrote (`catalog.tables.own_files.job_of`).

    Raises:
        RefusedStatementError: An expression of the rules uses functions that are not allowed.
    """
    import pandas

    table, partitions = loaded.table, loaded.partitions
    sources = list(_sources(spark, loaded))
    unknown = {partition_id for source in sources for partition_id in source.deleted_from}
    counts = [None if partition.id in unknown else partition.row_count for partition in partitions]
    known = pandas.DataFrame(
        {
            "partition": [partition.name(table) for partition in partitions],
            "partition_id": [partition.id for partition in partitions],
            "registered_row_count": pandas.array(counts, dtype="Int64"),
            "usual_ratio": pandas.array([ratios.get(partition.id) for partition in partitions], dtype="Float64"),
        }
    )
    if table.scheme is None:
        known["path_agrees"] = [_path_agrees(table, partition) for partition in partitions]
        known["values_fit"] = [_values_fit(table, partition) for partition in partitions]
    for expression in rules.agree.values():
        check_expression(spark, expression)
    measured = pandas.concat([_aggregate(source, table, rules, written_by) for source in sources])
    promises = claims(table, sources[0].types, rules)
    if table.scheme is None:
        partition_of = {partition.location: partition for partition in partitions}
        by_id = {partition.id: partition for partition in partitions}
        partition_of |= {f"{table.location}/{_folder_of(file.path)}": by_id[file.partition_id] for file in loaded.files}
        of_folder = [partition_of[location] for location in measured.pop("location")]
        for claim in promises:
            measured[claim.column] = _agreements(table, claim, of_folder, measured)
        measured["partition_id"] = [partition.id for partition in of_folder]
    # A partition of a table stored as Iceberg has files in the folders of several loads.
    of_partition = measured.groupby("partition_id")
    how = {
        name: "all" if measured[name].dtype == bool else "sum" for name in measured.columns if name != "partition_id"
    }
    summary = known.merge(of_partition.agg(how).reset_index(), how="left", on="partition_id")
    summary["row_count"] = summary["row_count"].fillna(0).astype("int64")
    summary["row_count_difference"] = summary["row_count"] - summary["registered_row_count"]
    for name in rules.columns:
        summary[f"{name}_null_ratio"] = summary.pop(f"{name}_nulls") / summary["row_count"].where(
            summary["row_count"] > 0
        )
    for claim in promises:
        # Of a partition without rows, only a claim that must have values is wrong.
        summary[claim.column] = (
            summary[claim.column].map({True: True, False: False}).fillna(claim.may_be_null).astype(bool)
        )
    return summary


def with_new_rows(summary: pandas.DataFrame, new: pandas.DataFrame | None) -> pandas.DataFrame:
    """Return a summary of partitions, with a row for the new rows alone of each that had rows before.

    The new rows have no row counts of their own, because rules about these are about whole partitions.

    Args:
        new: The summary of the new rows of the same partitions, in any order; None if all partitions are new.
    """
    import pandas

    if new is None:
        return summary
    whole = dict(zip(summary["partition_id"], summary["row_count"], strict=True))
    is_part = [
        0 < count < whole.get(number, 0) for number, count in zip(new["partition_id"], new["row_count"], strict=True)
    ]
    parts = new[is_part]
    names = [f"{name} ({count:,} new rows)" for name, count in zip(parts["partition"], parts["row_count"], strict=True)]
    unknown = dict.fromkeys(("row_count", "registered_row_count", "row_count_difference", "usual_ratio"), pandas.NA)
    return pandas.concat([summary, parts.assign(partition=names, **unknown)], ignore_index=True) if names else summary


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


@dataclass(frozen=True)
class _Source:
    """Rows of the files of some partitions.

    Attributes:
        rows: With the columns of the files, and `_PATH` for those that Iceberg reads.
        path: Of the file of each row; a URI, unless Iceberg reads it. None for rows of a table with a partition scheme.
        deleted_from: The ids of partitions of which delete files may have deleted rows.
    """

    rows: DataFrame
    path: Column | None
    is_uri: bool = True
    deleted_from: frozenset[int] = frozenset()

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns, by name."""
        return {name: column_type for name, column_type in self.rows.dtypes if name != _PATH}


def _sources(spark: SparkSession, loaded: LoadedPartitions) -> Iterator[_Source]:
    """Yield the rows of a load, each partition once: of its files in the current snapshot, or else of its folder."""
    table, files = loaded.table, loaded.files
    visible = {file.partition_id for file in files}
    paths = [read_path(partition.location) for partition in loaded.partitions if partition.id not in visible]
    deleted = files_with_deletes(table)
    deleted_from = frozenset(file.partition_id for file in files if file.path in deleted)
    if table.scheme is not None:
        yield _Source(read_live_rows(spark, table, files), None, is_uri=False, deleted_from=deleted_from)
        return
    if not deleted_from:
        paths += [read_path(f"{table.location}/{file.path}") for file in files]
    else:
        assert table.published_location is not None
        of_files = [f"{table.location}/{file.path}" for file in files]
        rows = read_as_table(spark, table.in_files, table.published_location, of_files, path_column=_PATH)
        yield _Source(rows, f.col(f"`{_PATH}`"), is_uri=False, deleted_from=deleted_from)
    if paths:
        yield _Source(_read(spark, table, paths), f.col("_metadata.file_path"))


def _aggregate(source: _Source, table: Table, rules: QualityRules, written_by: str | None) -> pandas.DataFrame:
    """Read all files once, and return one row for each folder that has files, or each partition of a scheme.

    Args:
        written_by: Only the files with this part in their names.

    Raises:
        InvalidConfigurationError: The rules name an unknown column, or a bound of another type.
    """
    aggregates = [f.count(f.lit(1)).alias("row_count")]
    data, types = source.rows, source.types
    for name in rules.columns:
        if name not in types:
            raise InvalidConfigurationError(
                f"quality.columns names {name}, which {table.full_name} does not have; its columns are "
                f"{', '.join(types)}"
            )
        column, rule = f.col(f"`{name}`"), rules.columns[name]
        aggregates.append(f.count_if(column.isNull()).alias(f"{name}_nulls"))
        if rule.minimum is not None:
            aggregates.append(f.count_if(column < _bound(data, name, rule.minimum)).alias(f"{name}_below"))
        if rule.maximum is not None:
            aggregates.append(f.count_if(column > _bound(data, name, rule.maximum)).alias(f"{name}_above"))
    for claim in claims(table, types, rules):
        aggregates += _found_values(claim)
    if table.scheme is not None:
        placed: pandas.DataFrame = (
            data.groupBy(partition_id(table.scheme).alias("partition_id")).agg(*aggregates).toPandas()
        )
        return placed
    assert source.path is not None
    if written_by is not None:
        data = data.where(source.path.contains(written_by))
    # Of each row, so a regular expression would take longer than all else.
    folder = f.substring(
        source.path, f.lit(1), f.length(source.path) - f.length(f.substring_index(source.path, "/", -1)) - f.lit(1)
    ).alias("location")
    measured: pandas.DataFrame = data.groupBy(folder).agg(*aggregates).toPandas()
    if source.is_uri:
        measured["location"] = [plain_path(uri) for uri in measured["location"]]
    return measured


def _bound(data: DataFrame, name: str, bound: object) -> Column:
    """Return a bound as a value of a column's type, so that comparisons use this type.

    Raises:
        InvalidConfigurationError: The bound is not a value of this type.
    """
    column_type = dict(data.dtypes)[name]
    typed = f.lit(str(bound)).try_cast(column_type)
    if data.sparkSession.range(1).select(typed).first()[0] is None:  # type: ignore[index]
        raise InvalidConfigurationError(
            f"quality.columns.{name}: the bound {bound!r} is not of the column's type {column_type}"
        )
    return typed


def _read(spark: SparkSession, table: Table, locations: Sequence[str]) -> DataFrame:
    # Schemas are merged, because a key may be a column of only some files.
    reader = spark.read.format(table.format).option("mergeSchema", "true")
    layout = [f"`{column.name}` {spark_type(column.type)}" for column in file_layout(table, table.format)]
    if table.format is FileFormat.CSV:
        reader = reader.schema(", ".join(layout)).option("header", "true")
    try:
        with listing_in_few_tasks(spark):
            data = reader.load(list(locations))
    except (PySparkException, Py4JJavaError) as error:
        if _NOT_MERGED not in str(error):
            raise
        # Some files were written before a column's type was widened.
        keys = [
            f"`{key.name}` {'bigint' if key.type in _INTEGERS else spark_type(key.type)}"
            for key in table.partition_keys
        ]
        data = reader.schema(", ".join([*layout, *keys])).load(list(locations))
    data = data.toDF(*[name.lower() for name in data.columns])
    return data if is_plain_layout(table) else _under_own_names(data, table)


def _under_own_names(data: DataFrame, table: Table) -> DataFrame:
    """Return data, which was read with the names in files, with the table's names and without dropped columns."""
    names_in_files = set(data.columns)
    stored = {name for column in file_layout(table, FileFormat.PARQUET) for name in column.stored_names}
    columns = [f.col(f"`{name}`") for name in data.columns if name not in stored]
    for column in table.columns:
        names = (column.stored_name,) if table.format is FileFormat.CSV else column.stored_names[::-1]
        if stored_columns := [f.col(f"`{name}`") for name in names if name in names_in_files]:
            columns.append(f.coalesce(*stored_columns).alias(column.name))
    return data.select(*columns)


def claims(table: Table, columns: Iterable[str], rules: QualityRules) -> list[Claim]:
    """Return the expressions over data files that must equal a partition's key values."""
    return [
        *(Claim(f"{key}_agrees", key, expression) for key, expression in rules.agree.items()),
        *(Claim(f"{key}_column_agrees", key, f"`{key}`", True) for key in table.key_names if key in columns),
    ]


def _found_values(claim: Claim) -> list[Column]:
    """Return the minimum and the maximum of a claim's values; both are null if a required value is null."""
    value = f.expr(claim.expression)
    is_complete = f.lit(True) if claim.may_be_null else f.count_if(value.isNull()) == 0
    return [
        f.when(is_complete, f.min(value)).cast("string").alias(f"{claim.column}_min"),
        f.when(is_complete, f.max(value)).cast("string").alias(f"{claim.column}_max"),
    ]


def _agreements(table: Table, claim: Claim, partitions: Sequence[Partition], measured: pandas.DataFrame) -> list[bool]:
    """Return, for each folder, whether all rows have its partition's value of a key; values compare by type."""
    position = table.key_names.index(claim.key)
    comparable = table.key_types[position].comparable
    agreements = []
    lows, highs = measured.pop(f"{claim.column}_min"), measured.pop(f"{claim.column}_max")
    for partition, low, high in zip(partitions, lows, highs, strict=True):
        value = partition.values[position]
        if isinstance(low, str) and isinstance(high, str):
            agreements.append(value is not None and comparable(low) == comparable(high) == comparable(value))
        else:
            agreements.append(claim.may_be_null)
    return agreements


def _path_agrees(table: Table, partition: Partition) -> bool:
    """Return whether the key values in the location's path, if any, are the registered ones."""
    path_values = {key.lower(): value for key, value in parse_partition_path(partition.location)}
    registered = dict(zip(table.key_names, partition.values, strict=True))
    return all(path_values[key] == registered[key] for key in path_values.keys() & registered.keys())


def _values_fit(table: Table, partition: Partition) -> bool:
    """Return whether all values have their keys' types."""
    try:
        for key_type, value in zip(table.key_types, partition.values, strict=True):
            if value is not None:
                key_type.parse(value)
    except KeyValueError:
        return False
    return True
