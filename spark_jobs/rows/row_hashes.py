"""Hashes of rows for comparisons, which differ for different rows with high probability."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def row_hash(values: Iterable[tuple[Column, DataType]]) -> Column:
    """Return a hash of 64 bits over values and their types.

    0.0 and -0.0 have the same hash, and so do all NaNs, and maps with the same entries in another order.
    """
    parts = [part for value, data_type in values for part in _parts(value, data_type)]
    return f.xxhash64(*parts) if parts else f.lit(0).cast("bigint")


def _parts(value: Column, data_type: DataType) -> Iterator[Column]:
    """Yield the columns to hash for a value, so that different values give different sequences.

    Spark's hash ignores nulls and the ends of arrays, so flags and sizes follow the values that they describe. It does
    not support maps, whose entries readers return in any order.
    """
    match data_type:
        case StructType(fields=fields):
            for field in fields:
                yield from _parts(value.getField(field.name), field.dataType)
        case MapType(keyType=key_type, valueType=value_type):
            yield f.array_sort(
                f.transform(
                    f.map_entries(value),
                    lambda entry: _struct((*_parts(entry["key"], key_type), *_parts(entry["value"], value_type))),
                )
            )
        case ArrayType(elementType=ArrayType() | MapType() | StructType() as inside):
            yield f.transform(value, lambda element: _struct(_parts(element, inside)))
        case ArrayType():
            yield value
            yield f.transform(value, lambda element: element.isNull())
        case _:
            yield value
    is_sized = isinstance(data_type, (ArrayType, MapType))
    # The size of null is null or -1, depending on the session's settings.
    yield f.coalesce(f.size(value), f.lit(-1)) if is_sized else value.isNull()


def _struct(parts: Iterable[Column]) -> Column:
    return f.struct(*[part.alias(f"_{number}") for number, part in enumerate(parts)])
