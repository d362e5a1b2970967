"""The partition of a row as a Spark column, with the same results as `Scheme.partition_of`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as f

from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import DEFAULT_PARTITION, Scheme
from catalog.schemes.ranges import RangeScheme
from catalog.types.key_types import (
    CharType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    KeyType,
    KeyValue,
    StringType,
    TimestampType,
)

NOWHERE = -1
"""The id for rows of partitions that are not in `among`."""


def partition_id(scheme: Scheme, among: Collection[int] | None = None) -> Column:
    """Return the partition id of each row, an int that is never null.

    Args:
        among: The partitions that all rows belong to, which keeps the expression small; a row of another partition gets
            `NOWHERE` or 0.
    """
    return f.expr(partition_id_sql(scheme, among))


def partition_id_sql(scheme: Scheme, among: Collection[int] | None = None) -> str:
    """Return `partition_id` as Spark SQL."""
    name = value_sql(scheme.column, scheme.value_type)
    if isinstance(scheme, HashScheme):
        hashed = f"crc32(cast({_canonical_sql(name, scheme.value_type)} as binary))"
        return f"cast(coalesce(pmod({hashed}, {scheme.count}L), 0L) as int)"
    if isinstance(scheme, RangeScheme):
        texts, ids = _ranges(scheme, among)
        placed = search_sql(name, [literal_sql(scheme.value_type, scheme.typed(text)) for text in texts], ids)
    else:
        assert isinstance(scheme, ListScheme)
        values = [
            (literal_sql(scheme.value_type, scheme.value_type.decode(encoded, 0)[0]), number)
            for encoded, number in scheme.partition_of_bytes.items()
            if among is None or number in among
        ]
        placed = _list_tree(name, values)
    return f"if({name} is null, {DEFAULT_PARTITION}, {placed})"


def _ranges(scheme: RangeScheme, among: Collection[int] | None) -> tuple[list[str], list[int]]:
    """Return bounds, and the partition below each bound and above the last; adjacent other partitions are joined."""
    texts: list[str] = []
    logical_ids = (*scheme.ids[1:], DEFAULT_PARTITION)
    ids = [number if among is None or number in among else NOWHERE for number in logical_ids]
    kept = ids[:1]
    for (_, text), following in zip(scheme.bounds, ids[1:], strict=True):
        if following != kept[-1]:
            texts.append(text)
            kept.append(following)
    return texts, kept


def search_sql(name: str, bounds: Sequence[str], ids: Sequence[int]) -> str:
    """Return SQL of a binary search; `ids` has one more entry than `bounds`, for values above the last bound."""
    if not bounds:
        return str(ids[0])
    middle = len(bounds) // 2
    below = search_sql(name, bounds[:middle], ids[: middle + 1])
    above = search_sql(name, bounds[middle + 1 :], ids[middle + 1 :])
    return f"if({name} < {bounds[middle]}, {below}, {above})"


def _list_tree(name: str, values: Sequence[tuple[str, int]]) -> str:
    if not values:
        return str(DEFAULT_PARTITION)
    if len(values) == 1:
        return f"if({name} = {values[0][0]}, {values[0][1]}, {DEFAULT_PARTITION})"
    middle = len(values) // 2
    return f"if({name} < {values[middle][0]}, {_list_tree(name, values[:middle])}, {_list_tree(name, values[middle:])})"


def value_sql(column: str, value_type: KeyType) -> str:
    """Return SQL of a column's values in comparable form."""
    name = f"`{column}`"
    # Chars in files may have trailing blanks or not.
    return f"rpad({name}, {value_type.length}, ' ')" if isinstance(value_type, CharType) else name


def _canonical_sql(name: str, value_type: KeyType) -> str:
    """Return SQL with the results of `catalog.schemes.hashing.canonical_text`."""
    if isinstance(value_type, TimestampType):
        return f"cast(unix_micros({name}) as string)"
    if isinstance(value_type, DecimalType):
        return _unscaled_sql(name, value_type)
    return f"rtrim({name})" if isinstance(value_type, CharType) else f"cast({name} as string)"


def _unscaled_sql(name: str, value_type: DecimalType) -> str:
    """Return SQL of a decimal's unscaled number as a string; a plain cast may give an exponent for values below 1."""
    whole = f"cast(cast(floor(abs({name})) as decimal(38,0)) as string)"
    fraction = f"substring(cast(abs({name}) % 1 + 1 as string), 3)" if value_type.scale else "''"
    digits = f"regexp_replace(concat({whole}, {fraction}), '^0+(?=[0-9])', '')"
    return f"concat(if({name} < 0, '-', ''), {digits})"


def stored_text(value: Column, value_type: KeyType) -> Column:
    """Return a value as the string that the catalog stores."""
    if isinstance(value_type, TimestampType):
        return f.date_format(value, "yyyy-MM-dd HH:mm:ss.SSSSSS")
    return value.cast("string")


def literal_sql(value_type: KeyType, value: KeyValue) -> str:
    """Return a typed value as a literal of Spark's SQL, independent of the session's time zone and settings."""
    match value_type:
        case StringType():
            # As bytes, because the meaning of a backslash in a string literal depends on the session.
            return f"cast(X'{str(value).encode('utf-8', 'surrogatepass').hex()}' as string)"
        case TimestampType():
            return f"timestamp_micros({value}L)"
        case DateType():
            return f"date {value_type.format(value)}"
        case DecimalType():
            # With the column's scale, because Spark might round the column to the literal's scale.
            return f"cast('{value_type.format(value)}' as {value_type.name})"
        case FloatingType():
            return f"cast('{value_type.number(value)!r}' as {value_type.name})"
        case IntegerType():
            return f"cast('{value}' as bigint)"
        case _:
            return f"cast({value_type.format(value)} as {value_type.name})"
