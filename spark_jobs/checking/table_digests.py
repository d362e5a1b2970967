"""Comparison of two tables that should have the same rows, by partition and column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_jobs.checking.file_metrics import FILE, ROWS, FileMetrics, WrongMetric, text_of
from spark_jobs.reading.paths import quoted
from spark_jobs.rows.row_hashes import row_hash

SHOWN = 10
"""Maximum number of reported partitions that differ."""
COUNTED = 100
"""Maximum number of partitions whose rows are reported."""
_SHOWN_TEXT = 60
"""Maximum number of reported characters of a value."""

_IS_SECOND, _KEY, _HASH = "calve/is_second", "calve/key/", "calve/hash"
_DIGEST = (ROWS, "calve/checksum/high", "calve/checksum/low")


class ColumnFigures(NamedTuple):
    """Statistics of a column in one partition.

    Attributes:
        minimum, maximum: Prefixes of the values as strings; None if all values are null or have no order.
        checksum: A sum of the values' hashes, which does not depend on their order.
    """

    nulls: int
    minimum: str | None
    maximum: str | None
    checksum: int | None


class PartitionFigures(NamedTuple):
    """Statistics of a partition.

    Attributes:
        checksum: A sum of the rows' hashes.
        columns: Statistics in the order of the table's columns.
    """

    rows: int
    checksum: int | None
    columns: tuple[ColumnFigures, ...]


@dataclass(frozen=True)
class Difference:
    """A partition that differs between the tables.

    Attributes:
        values: The partition values as Spark shows them; None is null.
        first, second: The partition's statistics in each table; None if the table has no rows of it.
    """

    values: tuple[str | None, ...]
    first: PartitionFigures | None
    second: PartitionFigures | None

    def describe(self, columns: Sequence[str], names: tuple[str, str]) -> Iterator[str]:
        """Yield descriptions of the differences, each a clause.

        Args:
            names: The names of the two tables.
        """
        first, second = self.first or _NOTHING, self.second or _NOTHING
        if first.rows != second.rows:
            yield f"{names[0]} has {first.rows:,} row(s) and {names[1]} {second.rows:,}"
            return
        has_column_difference = False
        for name, ours, theirs in zip(columns, first.columns, second.columns, strict=True):
            for figure, one, other in zip(_FIGURES, ours, theirs, strict=True):
                if one != other:
                    has_column_difference = True
                    yield f"column {name}: {figure} {_text(one)} in {names[0]} and {_text(other)} in {names[1]}"
        if not has_column_difference:
            yield "the columns have the same values, but not in the same rows"


_NOTHING = PartitionFigures(0, None, ())
_FIGURES = ("nulls", "minimum", "maximum", "checksum")


def _text(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"


class PartitionRows(NamedTuple):
    """The numbers of rows that both tables have in a partition.

    Attributes:
        values: The partition values as Spark shows them; None is null.
    """

    values: tuple[str | None, ...]
    first: int
    second: int


@dataclass(frozen=True)
class Comparison:
    """Result of comparing two tables.

    Attributes:
        partition_count, row_count: The number of partitions of both tables together, and of the first table's rows.
        difference_count: Number of partitions that differ.
        differences: The first of them.
        wrong_file_count: Number of files of the second table with wrong metrics; not determined if partitions differ.
        wrong_metrics: The first of these metrics.
        row_counts: The rows of the first partitions, in the order of their values.
    """

    partition_count: int
    row_count: int
    difference_count: int
    differences: tuple[Difference, ...]
    wrong_file_count: int = 0
    wrong_metrics: tuple[WrongMetric, ...] = ()
    row_counts: tuple[PartitionRows, ...] = ()


def compare(
    first: DataFrame,
    second: DataFrame,
    columns: Sequence[str],
    keys: Sequence[str],
    metrics: FileMetrics | None = None,
) -> Comparison:
    """Compare two tables, whose partitions are groups of rows with the same keys.

    Each is read once, for a count and a checksum of the rows of each partition; a second pass computes the reported
    statistics of partitions that differ. Two different sets of rows have the same checksum with a probability of about
    1 in 2^64.

    Timestamps with and without zone compare as instants, the latter as times in UTC; numbers as the wider type of both.
    NaN equals NaN, and 0.0 equals -0.0.

    Args:
        second: The table whose types are used to compare.
        columns, keys: The columns and partition keys of both tables.
        metrics: The metrics that the second table, an Iceberg table, declares for its files; they are compared with the
            rows of each file. Its rows then need a column `FILE`.
    """
    types = {field.name: _compared(field.dataType) for field in second.schema}
    sides = _side(first, types, columns, keys), _side(second, types, columns, keys)
    by_key = [_quoted_column(_KEY + name) for name in keys]
    ours = _digests(sides[0], by_key)
    if metrics is None:
        return _compare(sides, (ours, _digests(sides[1], by_key)), by_key, columns, types)
    with_file = _side(second, types, columns, keys, (FILE,))
    halves = list(zip(_DIGEST[1:], _halves(), strict=True))
    measured = metrics.measure(with_file, columns, [_KEY + name for name in keys], halves)
    measured = measured.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        sums = [f.sum(_quoted_column(name)).alias(name) for name in _DIGEST]
        comparison = _compare(sides, (ours, measured.groupBy(*by_key).agg(*sums)), by_key, columns, types)
        if comparison.difference_count:
            return comparison
        count, wrong = metrics.wrong(measured, columns, with_file.schema)
        return replace(comparison, wrong_file_count=count, wrong_metrics=tuple(wrong))
    finally:
        measured.unpersist()


def _side(
    rows: DataFrame, types: dict[str, DataType], columns: Sequence[str], keys: Sequence[str], more: Sequence[str] = ()
) -> DataFrame:
    """Return columns and keys cast to the compared types, a hash of each row's values, and more unchanged columns."""
    values = {name: _quoted_column(name).cast(types[name]) for name in (*columns, *keys)}
    return rows.select(
        *[values[name].alias(name) for name in columns],
        *[values[name].alias(_KEY + name) for name in keys],
        row_hash((values[name], types[name]) for name in columns).alias(_HASH),
        *map(_quoted_column, more),
    )


def _halves() -> tuple[Column, Column]:
    """Return both halves of a hash, whose sums do not overflow below about four billion rows."""
    row_hash = _quoted_column(_HASH)
    return f.shiftright(row_hash, 32), f.shiftright(f.shiftleft(row_hash, 32), 32)


def _digests(rows: DataFrame, groups: Sequence[Column]) -> DataFrame:
    """Return count and checksum of each group's rows, in columns of fixed width, which Spark aggregates fast."""
    figures = (f.count("*"), *map(f.sum, _halves()))
    return rows.groupBy(*groups).agg(*[figure.alias(name) for name, figure in zip(_DIGEST, figures, strict=True)])


def _compare(
    sides: tuple[DataFrame, DataFrame],
    digests: tuple[DataFrame, DataFrame],
    keys: Sequence[Column],
    columns: Sequence[str],
    types: dict[str, DataType],
) -> Comparison:
    ours, theirs = (
        side.select(*keys, f.lit(sign).alias("sign"), *map(_quoted_column, _DIGEST))
        for side, sign in zip(digests, (1, -1), strict=True)
    )
    surplus = [f.sum(_quoted_column(name) * f.col("sign")) for name in _DIGEST]
    differs = reduce(or_, (sum_ != 0 for sum_ in surplus))
    first, second = (
        f.coalesce(f.sum(f.when(f.col("sign") == sign, _quoted_column(ROWS))), f.lit(0)) for sign in (1, -1)
    )
    figures = first.alias("first"), second.alias("second"), differs.alias("differs")
    both = ours.union(theirs).groupBy(*keys).agg(*figures).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counted = (both.sort(*keys) if keys else both).limit(COUNTED + 1)
        shown = counted.select(_texts(keys).alias("values"), "first", "second", "differs").collect()
        row_counts = tuple(PartitionRows(tuple(row["values"]), row["first"], row["second"]) for row in shown[:COUNTED])
        if len(shown) <= COUNTED:
            partitions, row_count = len(shown), sum(row["first"] for row in shown)
            difference_count = sum(bool(row["differs"]) for row in shown)
        else:
            totals = both.agg(f.count("*"), f.sum("first"), f.count_if(f.col("differs"))).collect()
            ((partitions, row_count, difference_count),) = totals
        differences = _differing(both.where("differs"), sides, keys, columns, types) if difference_count else ()
        return Comparison(partitions, row_count, difference_count, tuple(differences), row_counts=row_counts)
    finally:
        both.unpersist()


def _texts(keys: Sequence[Column]) -> Column:
    return f.array(*[key.cast("string") for key in keys]) if keys else f.array().cast("array<string>")


def _differing(
    differing: DataFrame,
    sides: tuple[DataFrame, DataFrame],
    keys: Sequence[Column],
    columns: Sequence[str],
    types: dict[str, DataType],
) -> Iterator[Difference]:
    """Yield the first partitions that differ, with all their statistics."""
    is_second = f.col(quoted(_IS_SECOND))
    rows = sides[0].withColumn(_IS_SECOND, f.lit(False)).union(sides[1].withColumn(_IS_SECOND, f.lit(True)))
    # A table without keys is a single group, which needs no sorting.
    if keys:
        names = {f"calve/shown/{position}": key for position, key in enumerate(keys)}
        shown = differing.sort(*keys).limit(SHOWN).select(*[key.alias(name) for name, key in names.items()])
        is_shown = reduce(and_, (key.eqNullSafe(_quoted_column(name)) for name, key in names.items()))
        rows = rows.join(f.broadcast(shown), is_shown, "left_semi")
    columns_figures = f.array(*[_figures(name, types[name]) for name in columns])
    checksum = f.sum(f.shiftright(_quoted_column(_HASH), 32))
    figures = f.struct(f.count("*").alias("rows"), checksum.alias("checksum"), columns_figures.alias("columns"))
    by_side = rows.groupBy(*keys, is_second).agg(figures.alias("figures"))
    both = by_side.groupBy(*keys).agg(
        f.max(f.when(~is_second, f.col("figures"))).alias("first"),
        f.max(f.when(is_second, f.col("figures"))).alias("second"),
    )
    ordered = both.sort(*keys) if keys else both
    for row in ordered.select(_texts(keys).alias("values"), "first", "second").collect():
        yield Difference(tuple(row.values), _partition(row.first), _partition(row.second))


def _partition(row: tuple[int, int, list[tuple[int, str, str, int]]] | None) -> PartitionFigures | None:
    if row is None:
        return None
    rows, checksum, columns = row
    return PartitionFigures(rows, checksum, tuple(ColumnFigures(*column) for column in columns))


def _figures(name: str, data_type: DataType) -> Column:
    value = _quoted_column(name)
    is_ordered = not isinstance(data_type, (ArrayType, MapType, StructType))

    def shown(end: Column) -> Column:
        return f.substring(text_of(end, data_type), 1, _SHOWN_TEXT + 1) if is_ordered else f.lit(None).cast("string")

    return f.struct(
        f.count_if(value.isNull()).alias("nulls"),
        shown(f.min(value)).alias("minimum"),
        shown(f.max(value)).alias("maximum"),
        f.sum(f.shiftright(row_hash([(value, data_type)]), 32)).alias("checksum"),
    )


def _compared(data_type: DataType) -> DataType:
    """Return the type to compare in: timestamps without zone become timestamps with zone, at any depth."""
    match data_type:
        case TimestampNTZType():
            return TimestampType()
        case ArrayType():
            return ArrayType(_compared(data_type.elementType), True)
        case MapType():
            return MapType(_compared(data_type.keyType), _compared(data_type.valueType), True)
        case StructType():
            return StructType([StructField(field.name, _compared(field.dataType), True) for field in data_type])
    return data_type


def _quoted_column(name: str) -> Column:
    return f.col(quoted(name))
