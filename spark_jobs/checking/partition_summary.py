"""Summary of partitions for quality checks: one row for each partition, from one pass over the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, FileFormat, Partition, PartitionState, Table
from catalog.errors import InvalidConfigurationError
from catalog.files.locations import comparable
from catalog.model.partition_names import parse_partition_path
from catalog.partitions.quarantine import LoadedPartitions
from catalog.settings.quality_rules import QualityRules, RowCountRule
from catalog.storage.values import ValueEncoder
from catalog.types.key_types import KeyValueError
from spark_jobs.checking.loaded_rows import Source, sources_of
from spark_jobs.checking.measures import (
    AGE,
    COUNTS,
    DISTINCT,
    MEASURES,
    NEWEST,
    NULL_RATIO,
    NULLS,
    column_measures,
    distinct_measures,
    measured_columns,
    null_columns,
    require_columns,
)
from spark_jobs.checking.relations import PARTITION, related_columns, related_counts
from spark_jobs.queries.checked_plans import check_expression
from spark_jobs.reading.paths import plain_path
from spark_jobs.rows.placement import partition_id
from spark_jobs.sessions.footer_tasks import row_counts

if TYPE_CHECKING:
    import pandas


_FOLDER = "calve/folder"
"""The column of the folders of files, spelled as Spark spells them."""


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
    encoder, ratio_of = ValueEncoder(table), dict[bytes, float | None]()
    group_of = {
        partition.id: encoder.group(positions, [partition.values[position] for position in positions])
        for partition in partitions
    }
    for group in {*group_of.values()}:
        others = [rows for other, rows in rows_of.items() if other != group]
        usual = median(others) if others else 0
        ratio_of[group] = rows_of.get(group, 0) / usual if usual else None
    return {partition_id: ratio_of[group] for partition_id, group in group_of.items()}


def summarise(
    spark: SparkSession,
    loaded: LoadedPartitions,
    rules: QualityRules,
    ratios: Mapping[int, float | None],
    *,
    written_by: str | None = None,
    catalog: Catalog | None = None,
) -> pandas.DataFrame:
    """Return one row for each partition that a load added or extended, in the given order.

    Of a table stored as Iceberg, it counts the rows that other engines have not deleted meanwhile; the registered
    number of rows is unknown for partitions with delete files.

    Of a table with a partition scheme, the rows are counted by the partitions that the scheme places them in, and the
    registered rows by those of the files.

    Shape: `partition` (its name), `partition_id`, `row_count`, `registered_row_count`, `row_count_difference`,
    `usual_ratio`, and without a scheme `path_agrees` and `values_fit`; for each column of the rules
    `<column>_null_ratio`, `<column>_below` and `<column>_above` (rows outside its bounds); the column of each claim
    (`claims`); for columns whose measures are learned `<column>_null_ratio`, `<column>_distinct` and `<column>_newest`
    (in seconds since 1970 UTC); and the counts of `spark_jobs.checking.relations`.

    Args:
        written_by: Only read the files that this Spark job wrote (`catalog.tables.own_files.job_of`).
        catalog: For rules about rows of other partitions and tables.

    Raises:
        RefusedStatementError: An expression of the rules uses functions that are not allowed.
    """
    import pandas

    table, partitions = loaded.table, loaded.partitions
    sources = list(sources_of(spark, loaded))
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
    require_columns(table, sources[0].types, rules)
    by_source = [_aggregate(source, table, rules, written_by) for source in sources]
    promises = claims(table, sources[0].types, rules)
    for source, measured in zip(sources, by_source, strict=True):
        _place(loaded, source, measured, promises)
    related = list(_related(spark, catalog, loaded, rules, list(zip(sources, by_source, strict=True))))
    # A partition of a table stored as Iceberg has files in the folders of several loads.
    measured = pandas.concat([counted.drop(columns=_FOLDER, errors="ignore") for counted in by_source])
    how = {name: _how(measured, name) for name in measured.columns if name != "partition_id"}
    of_partition = measured.groupby("partition_id").agg(how).reset_index()
    summary = known.merge(of_partition, how="left", on="partition_id")
    summary["row_count"] = summary["row_count"].fillna(0).astype("int64")
    summary["row_count_difference"] = summary["row_count"] - summary["registered_row_count"]
    for counts in related:
        known_before = [name for name in counts.columns if name in summary.columns and name != "partition_id"]
        summary = summary.drop(columns=known_before).merge(counts, how="left", on="partition_id")
    counted = [name for name in summary.columns if name.endswith(COUNTS)]
    summary[counted] = summary[counted].fillna(0)
    for name in null_columns(table, sources[0].types, rules):
        summary[f"{name}{NULL_RATIO}"] = summary.pop(f"{name}{NULLS}") / summary["row_count"].where(
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


def measures_of(summary: pandas.DataFrame) -> dict[int, dict[str, float | int]]:
    """Return what was counted in each partition, by partition id and name; without the rows of new rows alone."""
    whole = summary[summary["row_count"].notna()]
    names = [name for name in whole.columns if name in ("row_count", AGE) or name.endswith(MEASURES)]
    columns = [whole[name].tolist() for name in names]
    measures: dict[int, dict[str, float | int]] = {}
    for number, *values in zip(whole["partition_id"], *columns, strict=True):
        # An unknown value, of whichever kind, is not equal to itself.
        known = {name: value for name, value in zip(names, values, strict=True) if (value == value) is True}
        measures[int(number)] = known
    return measures


def _how(measured: pandas.DataFrame, name: str) -> str:
    """Return how a measure of several folders is combined."""
    if measured[name].dtype == bool:
        return "all"
    return "max" if name.endswith((NEWEST, DISTINCT)) else "sum"


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _aggregate(source: Source, table: Table, rules: QualityRules, written_by: str | None) -> pandas.DataFrame:
    """Read all files once, and return one row for each folder that has files, or each partition of a scheme.

    Args:
        written_by: Only the files with this part in their names.

    Raises:
        InvalidConfigurationError: The rules have a bound of another type.
    """
    aggregates = [f.count(f.lit(1)).alias("row_count")]
    data, types = source.rows, source.types
    for name, rule in rules.columns.items():
        column = f.col(f"`{name}`")
        if rule.minimum is not None:
            aggregates.append(f.count_if(column < bound_of(data, name, rule.minimum)).alias(f"{name}_below"))
        if rule.maximum is not None:
            aggregates.append(f.count_if(column > bound_of(data, name, rule.maximum)).alias(f"{name}_above"))
    aggregates += [*column_measures(table, types, rules), *distinct_measures(table, types, rules)]
    for claim in claims(table, types, rules):
        aggregates += _found_values(claim)
    if table.scheme is not None:
        placed: pandas.DataFrame = (
            data.groupBy(partition_id(table.scheme).alias("partition_id")).agg(*aggregates).toPandas()
        )
        return placed
    if len(aggregates) == 1 and source.is_uri and table.format in (FileFormat.PARQUET, FileFormat.ORC):
        return _counted_by_footers(source, table, written_by)
    if written_by is not None:
        assert source.path is not None
        data = data.where(source.path.contains(written_by))
    measured: pandas.DataFrame = data.groupBy(source.folder.alias(_FOLDER)).agg(*aggregates).toPandas()
    return measured


def _counted_by_footers(source: Source, table: Table, written_by: str | None) -> pandas.DataFrame:
    """Return `_aggregate` where only rows are counted; Spark needs several milliseconds to open each file."""
    import pandas

    uris = [uri for uri in source.rows.inputFiles() if written_by is None or written_by in uri]
    counts = row_counts(source.rows.sparkSession, table.location, list(map(plain_path, uris)), table.format)
    rows = pandas.DataFrame({_FOLDER: list(map(_folder_of, uris)), "row_count": list(counts)})
    return rows.groupby(_FOLDER, as_index=False).sum()


def _place(loaded: LoadedPartitions, source: Source, measured: pandas.DataFrame, promises: Sequence[Claim]) -> None:
    """Add the id of its partition to each folder, and whether its rows agree with the partition's values."""
    table = loaded.table
    if table.scheme is not None:
        return
    # Engines register locations in other spellings than Spark's, such as file:/ for a local folder, or s3a:// for s3://.
    partition_of = {comparable(partition.location): partition for partition in loaded.partitions}
    by_id = {partition.id: partition for partition in loaded.partitions}
    partition_of |= {
        comparable(f"{table.location}/{_folder_of(file.path)}"): by_id[file.partition_id] for file in loaded.files
    }
    folders = map(plain_path, measured[_FOLDER]) if source.is_uri else measured[_FOLDER]
    of_folder = [partition_of[comparable(folder)] for folder in folders]
    measured["partition_id"] = [partition.id for partition in of_folder]
    for claim in promises:
        measured[claim.column] = _agreements(table, claim, of_folder, measured)


def _related(
    spark: SparkSession,
    catalog: Catalog | None,
    loaded: LoadedPartitions,
    rules: QualityRules,
    measured: Sequence[tuple[Source, pandas.DataFrame]],
) -> Iterator[pandas.DataFrame]:
    """Yield what cannot be counted folder by folder, as `partition_id` and columns."""
    table, types = loaded.table, measured[0][0].types
    distinct = distinct_measures(table, types, rules)
    if distinct and any(of_folder["partition_id"].duplicated().any() for _, of_folder in measured):
        rows = _with_partitions(
            spark, table, measured, [name for name in types if name in measured_columns(table, types, rules)]
        )
        yield rows.groupBy(f.col(f"`{PARTITION}`").alias("partition_id")).agg(*distinct).toPandas()
    if catalog is not None and (columns := related_columns(rules)):
        rows = _with_partitions(spark, table, measured, columns)
        visible = {partition.id for partition in loaded.partitions if partition.state is PartitionState.VISIBLE}
        yield from related_counts(spark, catalog, table, rules, rows, visible)


def _with_partitions(
    spark: SparkSession, table: Table, measured: Sequence[tuple[Source, pandas.DataFrame]], columns: Sequence[str]
) -> DataFrame:
    """Return some columns of the rows, with the ids of their partitions in the column `PARTITION`."""
    names = [f"`{name}`" for name in columns]
    frames = []
    for source, of_folder in measured:
        if table.scheme is not None:
            frames.append(source.rows.select(*names, partition_id(table.scheme).alias(PARTITION)))
            continue
        pairs = list(zip(of_folder[_FOLDER], map(int, of_folder["partition_id"]), strict=True))
        ids = spark.createDataFrame(pairs, f"`{_FOLDER}` string, `{PARTITION}` bigint")
        rows = source.rows.select(*names, source.folder.alias(_FOLDER))
        frames.append(rows.join(f.broadcast(ids), _FOLDER).drop(_FOLDER))
    return reduce(DataFrame.unionByName, frames)


def bound_of(data: DataFrame, name: str, bound: object) -> Column:
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
