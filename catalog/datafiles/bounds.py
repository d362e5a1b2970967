"""Statistics of columns from the bounds in Iceberg's manifests, which other engines wrote.

Source: https://iceberg.apache.org/spec/#appendix-d-single-value-serialization. Bounds have the type that the column had
when the file was written. Those of strings may be truncated, upper ones upwards.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from catalog.datafiles.files import ColumnStatistics
from catalog.datafiles.footers import day_of, statistics_of
from catalog.iceberg.differences import LiveFile
from catalog.types.column_types import ColumnCharType
from catalog.types.key_types import (
    BooleanType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    KeyType,
    KeyValue,
    StringType,
    TimestampType,
)

_FLOATS = {4: struct.Struct("<f"), 8: struct.Struct("<d")}
_INTEGERS = (4, 8)


def bounds_statistics(file: LiveFile, columns: Mapping[str, tuple[int, KeyType]]) -> dict[str, ColumnStatistics]:
    """Return the statistics of some columns of a file; those of unknown bounds are missing.

    Args:
        columns: Name → field id and type.
    """
    known = ((name, _statistics(file, field_id, value_type)) for name, (field_id, value_type) in columns.items())
    return {name: statistics for name, statistics in known if statistics is not None}


def integer_outside(file: LiveFile, field_id: int, value_type: IntegerType) -> int | None:
    """Return a bound of a column that its type cannot hold; None if there is none."""
    for bound in (file.lower_bounds.get(field_id), file.upper_bounds.get(field_id)):
        if bound is not None and len(bound) in _INTEGERS:
            value = int.from_bytes(bound, "little", signed=True)
            if not value_type.minimum <= value <= value_type.maximum:
                return value
    return None


def _statistics(file: LiveFile, field_id: int, value_type: KeyType) -> ColumnStatistics | None:
    # Engines order char values with their trailing blanks, which comparisons ignore.
    if isinstance(value_type, ColumnCharType):
        return None
    nulls, values = file.null_counts.get(field_id), file.value_counts.get(field_id)
    low, high = file.lower_bounds.get(field_id), file.upper_bounds.get(field_id)
    if low is None or high is None:
        are_all_null = nulls is not None and nulls == values == file.row_count
        return ColumnStatistics(None, None, nulls) if are_all_null else None
    try:
        least, greatest = _value(low, value_type), _value(high, value_type)
    except (ValueError, struct.error):
        return None
    if least is None or greatest is None or least > greatest:  # type: ignore[operator]
        return None
    return statistics_of(value_type, least, greatest, nulls, has_nan=file.nan_counts.get(field_id) != 0)


def _value(bound: bytes, value_type: KeyType) -> KeyValue | None:
    """Return the typed value of a bound; None if it is unknown."""
    match value_type:
        case IntegerType() if len(bound) in _INTEGERS:
            return int.from_bytes(bound, "little", signed=True)
        case StringType():
            return bound.decode()
        case DateType() if len(bound) == 4:
            return day_of(int.from_bytes(bound, "little", signed=True))
        case TimestampType() if len(bound) == 8:
            return int.from_bytes(bound, "little", signed=True)
        case DecimalType() if bound:
            return value_type.scaled(int.from_bytes(bound, "big", signed=True))
        case BooleanType() if len(bound) == 1:
            return int(bound != b"\x00")
        case FloatingType() if len(bound) in _FLOATS:
            [number] = _FLOATS[len(bound)].unpack(bound)
            return None if math.isnan(number) else value_type.ordered(number)
    return None
