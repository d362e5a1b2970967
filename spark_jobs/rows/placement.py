"""The partition of a row as a Spark column: the same function of the partition column as `Scheme.partition_of`."""

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
"""In the place of a partition that a row cannot belong to."""


def partition_id(scheme: Scheme, among: Collection[int] | None = None) -> Column:
    """Return the partition of each row, an int, never null.

    Args:
        among: The partitions that all rows belong to, for an expression that does not grow with the others; a row of
            one of the others gets `NOWHERE` or 0.
    """
    return f.expr(partition_id_sql(scheme, among))


def partition_id_sql(scheme: Scheme, among: Collection[int] | None = None) -> str:
    """Return the same as text of Spark's SQL, over the partition column's name."""
    name = value_sql(scheme.column, scheme.value_type)
    if isinstance(scheme, HashScheme):
        hashed = f"crc32(cast({_canonical_sql(name, scheme.value_type)} as binary))"
        return f"cast(coalesce(pmod({hashed}, {scheme.count}L), 0L) as int)"
    if isinstance(scheme, RangeScheme):
        texts, ids = _ranges(scheme, among)
        found = _range_tree(name, [literal_sql(scheme.value_type, scheme.typed(text)) for text in texts], ids)
    else:
        assert isinstance(scheme, ListScheme)
        values = [
            (literal_sql(scheme.value_type, scheme.value_type.decode(encoded, 0)[0]), each)
            for encoded, each in scheme.partition_of_bytes.items()
            if among is None or each in among
        ]
        found = _list_tree(name, values)
    return f"if({name} is null, {DEFAULT_PARTITION}, {found})"


def _ranges(scheme: RangeScheme, among: Collection[int] | None) -> tuple[list[str], list[int]]:
    """Return bounds, and the partitions below each of them and behind the last, those that do not count as one."""
    texts: list[str] = []
    ids = [each if among is None or each in among else NOWHERE for each in (*scheme.ids[1:], DEFAULT_PARTITION)]
    kept = ids[:1]
    for (_, text), following in zip(scheme.bounds, ids[1:], strict=True):
        if following != kept[-1]:
            texts.append(text)
            kept.append(following)
    return texts, kept


def _range_tree(name: str, bounds: Sequence[str], ids: Sequence[int]) -> str:
    """Return a binary search: ids has one more entry than bounds, for what is behind the last."""
    if not bounds:
        return str(ids[0])
    middle = len(bounds) // 2
    below = _range_tree(name, bounds[:middle], ids[: middle + 1])
    above = _range_tree(name, bounds[middle + 1 :], ids[middle + 1 :])
    return f"if({name} < {bounds[middle]}, {below}, {above})"


def _list_tree(name: str, values: Sequence[tuple[str, int]]) -> str:
    if not values:
        return str(DEFAULT_PARTITION)
    if len(values) == 1:
        return f"if({name} = {values[0][0]}, {values[0][1]}, {DEFAULT_PARTITION})"
    middle = len(values) // 2
    return f"if({name} < {values[middle][0]}, {_list_tree(name, values[:middle])}, {_list_tree(name, values[middle:])})"


def value_sql(column: str, value_type: KeyType) -> str:
    """Return a column as its values compare."""
    name = f"`{column}`"
    # Files have a char with blanks at its end, or without.
    return f"rpad({name}, {value_type.length}, ' ')" if isinstance(value_type, CharType) else name


def _canonical_sql(name: str, value_type: KeyType) -> str:
    """Return what `catalog.schemes.hashing.canonical_text` returns."""
    if isinstance(value_type, TimestampType):
        return f"cast(unix_micros({name}) as string)"
    if isinstance(value_type, DecimalType):
        return _unscaled_sql(name, value_type)
    return f"rtrim({name})" if isinstance(value_type, CharType) else f"cast({name} as string)"


def _unscaled_sql(name: str, value_type: DecimalType) -> str:
    """Return a decimal's unscaled number as text; its own text may have an exponent, if it is below 1."""
    whole = f"cast(cast(floor(abs({name})) as decimal(38,0)) as string)"
    fraction = f"substring(cast(abs({name}) % 1 + 1 as string), 3)" if value_type.scale else "''"
    digits = f"regexp_replace(concat({whole}, {fraction}), '^0+(?=[0-9])', '')"
    return f"concat(if({name} < 0, '-', ''), {digits})"


def literal_sql(value_type: KeyType, value: KeyValue) -> str:
    """Return a typed value as a literal of Spark's SQL, independent of the session's time zone and settings."""
    match value_type:
        case StringType():
            # By its bytes: what a backslash means in a text depends on the session.
            return f"cast(X'{str(value).encode('utf-8', 'surrogatepass').hex()}' as string)"
        case TimestampType():
            return f"timestamp_micros({value}L)"
        case DateType():
            return f"date {value_type.format(value)}"
        case DecimalType():
            # Beside a literal of another scale, Spark might round the column.
            return f"cast('{value_type.format(value)}' as {value_type.name})"
        case FloatingType():
            return f"cast('{value_type.number(value)!r}' as {value_type.name})"
        case IntegerType():
            return f"cast('{value}' as bigint)"
        case _:
            return f"cast({value_type.format(value)} as {value_type.name})"
