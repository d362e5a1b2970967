"""Figures of two tables that should have the same rows, by partition and column, and where they differ."""

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
from spark_jobs.reading.sources import quoted
from spark_jobs.rows.row_hashes import row_hash

SHOWN = 10
"""Partitions that differ, up to which they are told."""
_SHOWN_TEXT = 60
"""Characters of a value, up to which it is told."""

_IS_SECOND, _KEY, _HASH = "calve/is_second", "calve/key/", "calve/hash"
_DIGEST = (ROWS, "calve/checksum/high", "calve/checksum/low")


class ColumnFigures(NamedTuple):
    """What a column has in one partition.

    Attributes:
        minimum, maximum: The beginning of their texts; None where there are only nulls, or values have no order.
        checksum: A sum of hashes over the values, which does not depend on their order.
    """

    nulls: int
    minimum: str | None
    maximum: str | None
    checksum: int | None


class PartitionFigures(NamedTuple):
    """What a partition has.

    Attributes:
        checksum: A sum of hashes over whole rows.
        columns: In the order of the table's columns.
    """

    rows: int
    checksum: int | None
    columns: tuple[ColumnFigures, ...]


@dataclass(frozen=True)
class Difference:
    """A partition that is not the same in both tables.

    Attributes:
        values: Of the partition keys, as Spark shows them; None is null.
        first, second: None where a table has no rows of it.
    """

    values: tuple[str | None, ...]
    first: PartitionFigures | None
    second: PartitionFigures | None

    def describe(self, columns: Sequence[str], names: tuple[str, str]) -> Iterator[str]:
        """Yield what differs, a part of a sentence each.

        Args:
            names: What to call the two tables.
        """
        first, second = self.first or _NOTHING, self.second or _NOTHING
        if first.rows != second.rows:
            yield f"{names[0]} has {first.rows:,} row(s) and {names[1]} {second.rows:,}"
            return
        is_found = False
        for name, ours, theirs in zip(columns, first.columns, second.columns, strict=True):
            for what, one, other in zip(_FIGURES, ours, theirs, strict=True):
                if one != other:
                    is_found = True
                    yield f"column {name}: {what} {_text(one)} in {names[0]} and {_text(other)} in {names[1]}"
        if not is_found:
            yield "the columns have the same values, but not in the same rows"


_NOTHING = PartitionFigures(0, None, ())
_FIGURES = ("nulls", "minimum", "maximum", "checksum")


def _text(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"


@dataclass(frozen=True)
class Comparison:
    """How two tables compare.

    Attributes:
        partition_count, row_count: Of the first table's and the second's partitions, and of the first's rows.
        difference_count: How many partitions differ.
        differences: The first of them.
        wrong_file_count: Files of the second table with wrong metrics; not looked for when partitions differ.
        wrong_metrics: The first of these metrics.
    """

    partition_count: int
    row_count: int
    difference_count: int
    differences: tuple[Difference, ...]
    wrong_file_count: int = 0
    wrong_metrics: tuple[WrongMetric, ...] = ()


def compare(
    first: DataFrame,
    second: DataFrame,
    columns: Sequence[str],
    keys: Sequence[str],
    metrics: FileMetrics | None = None,
) -> Comparison:
    """Compare two tables, whose partitions are groups of rows with the same keys.

    Each is read once, for a count and a checksum of the rows of each partition; of partitions that differ, the figures
    to be shown are taken in a second pass. Two different sets of rows have one checksum by a chance of about 1 in 2^64.

    Instants and times without zone compare as instants, the latter taken for times of UTC; numbers as the wider type
    of both. NaN is equal to NaN, and 0.0 to -0.0.

    Args:
        second: Its types are those to compare in.
        columns, keys: Of both tables.
        metrics: What the second table, an Iceberg table whose rows then have a column `FILE`, declares of its files; it
            is compared with the rows of each file.
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
    """Return columns and keys in the types to compare in, a hash of each row's values, and more columns as they are."""
    values = {name: _quoted_column(name).cast(types[name]) for name in (*columns, *keys)}
    return rows.select(
        *[values[name].alias(name) for name in columns],
        *[values[name].alias(_KEY + name) for name in keys],
        row_hash((values[name], types[name]) for name in columns).alias(_HASH),
        *map(_quoted_column, more),
    )


def _halves() -> tuple[Column, Column]:
    """Return both halves of a hash: sums of them do not overflow below four thousand million rows."""
    row_hash = _quoted_column(_HASH)
    return f.shiftright(row_hash, 32), f.shiftright(f.shiftleft(row_hash, 32), 32)


def _digests(rows: DataFrame, groups: Sequence[Column]) -> DataFrame:
    """Return count and checksum of the rows of each group, in columns of fixed width, which Spark aggregates fast."""
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
    rows = f.sum(f.when(f.col("sign") > 0, _quoted_column(ROWS)))
    both = ours.union(theirs).groupBy(*keys).agg(rows.alias("rows"), differs.alias("differs"))
    totals = both.agg(f.count("*"), f.coalesce(f.sum("rows"), f.lit(0)), f.count_if(f.col("differs"))).collect()
    ((partitions, row_count, difference_count),) = totals
    differences = _differing(both.where("differs"), sides, keys, columns, types) if difference_count else ()
    return Comparison(partitions, row_count, difference_count, tuple(differences))


def _differing(
    differing: DataFrame,
    sides: tuple[DataFrame, DataFrame],
    keys: Sequence[Column],
    columns: Sequence[str],
    types: dict[str, DataType],
) -> Iterator[Difference]:
    """Yield the first partitions that differ, with all their figures."""
    texts = f.array(*[key.cast("string") for key in keys]) if keys else f.array().cast("array<string>")
    is_second = f.col(quoted(_IS_SECOND))
    rows = sides[0].withColumn(_IS_SECOND, f.lit(False)).union(sides[1].withColumn(_IS_SECOND, f.lit(True)))
    # A table without keys is one group, and nothing to sort by.
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
    for row in ordered.select(texts.alias("values"), "first", "second").collect():
        yield Difference(tuple(row.values), _partition(row.first), _partition(row.second))


def _partition(row: tuple[int, int, list[tuple[int, str, str, int]]] | None) -> PartitionFigures | None:
    if row is None:
        return None
    rows, checksum, columns = row
    return PartitionFigures(rows, checksum, tuple(ColumnFigures(*each) for each in columns))


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
    """Return the type to compare in: times without zone as instants, in any depth."""
    match data_type:
        case TimestampNTZType():
            return TimestampType()
        case ArrayType():
            return ArrayType(_compared(data_type.elementType), True)
        case MapType():
            return MapType(_compared(data_type.keyType), _compared(data_type.valueType), True)
        case StructType():
            return StructType([StructField(each.name, _compared(each.dataType), True) for each in data_type])
    return data_type


def _quoted_column(name: str) -> Column:
    return f.col(quoted(name))
