"""Figures of two tables that should have the same rows, by partition and column, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

SHOWN = 10
"""Partitions that differ, up to which they are told."""

_IS_SECOND, _KEY = "calve/is_second", "calve/key/"


class ColumnFigures(NamedTuple):
    """What a column has in one partition.

    Attributes:
        minimum, maximum: As texts; None where there are only nulls, or values have no order.
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
    return text if len(text) <= 60 else f"{text[:60]}…"


@dataclass(frozen=True)
class Comparison:
    """How two tables compare.

    Attributes:
        partition_count, row_count: Of the first table's and the second's partitions, and of the first's rows.
        difference_count: How many partitions differ.
        differences: The first of them.
    """

    partition_count: int
    row_count: int
    difference_count: int
    differences: tuple[Difference, ...]


def compare(first: DataFrame, second: DataFrame, columns: Sequence[str], keys: Sequence[str]) -> Comparison:
    """Compare two tables, each read once, whose partitions are groups of rows with the same keys.

    Instants and times without zone compare as instants, the latter taken for times of UTC; numbers as the wider type
    of both. NaN is equal to NaN, and 0.0 to -0.0.

    Args:
        second: Its types are those to compare in.
        columns, keys: Of both tables.
    """
    types = {each.name: _compared(each.dataType) for each in second.schema}
    rows = _side(first, types, (*columns, *keys), False).union(_side(second, types, (*columns, *keys), True))
    by_key = [f.col(_quoted(_KEY + name)) for name in keys]
    keyed = rows.withColumnsRenamed({name: _KEY + name for name in keys})
    figures = f.struct(
        f.count("*").alias("rows"),
        _checksum([_hashable(_quoted_column(name), types[name]) for name in columns]).alias("checksum"),
        f.array(*[_figures(name, types[name]) for name in columns]).alias("columns"),
    )
    sides = keyed.groupBy(*by_key, f.col(_quoted(_IS_SECOND))).agg(figures.alias("figures"))
    is_second = f.col(_quoted(_IS_SECOND))
    both = (
        sides.groupBy(*by_key)
        .agg(
            f.max(f.when(~is_second, f.col("figures"))).alias("first"),
            f.max(f.when(is_second, f.col("figures"))).alias("second"),
        )
        .withColumn("differs", ~f.col("first").eqNullSafe(f.col("second")))
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        totals = both.agg(
            f.count("*"), f.coalesce(f.sum("first.rows"), f.lit(0)), f.count_if(f.col("differs"))
        ).collect()
        ((partitions, row_count, difference_count),) = totals
        found = _differing(both, by_key) if difference_count else ()
    finally:
        both.unpersist()
    return Comparison(partitions, row_count, difference_count, tuple(found))


def _differing(both: DataFrame, keys: Sequence[Column]) -> Iterator[Difference]:
    texts = f.array(*[key.cast("string") for key in keys]) if keys else f.array().cast("array<string>")
    differing = both.where("differs")
    # A table without keys is one group, and nothing to sort by.
    ordered = differing.sort(*keys) if keys else differing
    shown = ordered.select(texts.alias("values"), "first", "second").limit(SHOWN)
    for row in shown.collect():
        yield Difference(tuple(row.values), _partition(row.first), _partition(row.second))


def _partition(row: tuple[int, int, list[tuple[int, str, str, int]]] | None) -> PartitionFigures | None:
    if row is None:
        return None
    rows, checksum, columns = row
    return PartitionFigures(rows, checksum, tuple(ColumnFigures(*each) for each in columns))


def _side(rows: DataFrame, types: dict[str, DataType], names: Sequence[str], is_second: bool) -> DataFrame:
    values = [_quoted_column(name).cast(types[name]).alias(name) for name in names]
    return rows.select(*values, f.lit(is_second).alias(_IS_SECOND))


def _figures(name: str, data_type: DataType) -> Column:
    value = _quoted_column(name)
    null = f.lit(None).cast("string")
    is_ordered = not isinstance(data_type, (ArrayType, MapType, StructType))
    return f.struct(
        f.count_if(value.isNull()).alias("nulls"),
        (_shown(f.min(value), data_type) if is_ordered else null).alias("minimum"),
        (_shown(f.max(value), data_type) if is_ordered else null).alias("maximum"),
        _checksum([_hashable(value, data_type)]).alias("checksum"),
    )


def _shown(value: Column, data_type: DataType) -> Column:
    return f.hex(value) if isinstance(data_type, BinaryType) else value.cast("string")


def _checksum(values: Sequence[Column]) -> Column:
    # The upper half of a hash: sums of it do not overflow below four thousand million rows.
    return f.sum(f.shiftright(f.xxhash64(*values), 32)) if values else f.lit(0).cast("bigint")


def _hashable(value: Column, data_type: DataType) -> Column:
    """Return a value that Spark hashes: with the entries of maps in order, as readers give them in any."""
    if not _has_map(data_type):
        return value
    match data_type:
        case MapType(valueType=inside):
            entries = f.transform(
                f.map_entries(value), lambda each: f.struct(each["key"], _hashable(each["value"], inside))
            )
            return f.array_sort(entries)
        case ArrayType(elementType=inside):
            return f.transform(value, lambda each: _hashable(each, inside))
        case StructType(fields=fields):
            parts = [_hashable(value.getField(each.name), each.dataType).alias(each.name) for each in fields]
            return f.when(value.isNotNull(), f.struct(*parts))
    return value


def _has_map(data_type: DataType) -> bool:
    match data_type:
        case MapType():
            return True
        case ArrayType():
            return _has_map(data_type.elementType)
        case StructType():
            return any(_has_map(field.dataType) for field in data_type)
    return False


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


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _quoted_column(name: str) -> Column:
    return f.col(_quoted(name))
