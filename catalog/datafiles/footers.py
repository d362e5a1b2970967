"""Row counts and column statistics from the footers of Parquet files."""

from __future__ import annotations

# `catalog.iceberg.footers` also reads Parquet footers, but its facts do not suffice here: it has no bounds of
# floating-point numbers, nor of columns whose null count is missing, and it refuses files that do not fit an Iceberg
# table, such as those with timestamps in milliseconds. Files of schemes are pruned by the bounds of all these columns.
import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow.parquet

from catalog.datafiles.files import ColumnStatistics, NewFile
from catalog.files.filesystem import Folder
from catalog.types.column_types import ColumnCharType, parse_column_type
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

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAYS_OF_YEAR_0, _DAYS_OF_400_YEARS = 366, 146_097
_BEFORE_THE_CALENDAR, _AFTER_THE_CALENDAR = 0, 10_000 << 9
_FROM_MICROSECONDS = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


def read_footer(folder: Folder, path: str, partition_id: int, columns: Mapping[str, KeyType]) -> NewFile:
    """Read the footer of a Parquet file, and return its row count, size and statistics.

    Args:
        path: The path relative to the folder.
        columns: The columns to return statistics of, with their types.
    """
    with folder.open(path) as file:
        size_bytes = file.size()
        metadata = pyarrow.parquet.read_metadata(file)
    positions = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    statistics = {}
    for name, value_type in columns.items():
        if name in positions:
            column_statistics = _statistics(metadata, positions[name], value_type)
            if column_statistics is not None:
                statistics[name] = column_statistics
    return NewFile(partition_id, path, metadata.num_rows, size_bytes, statistics)


def _statistics(metadata: Any, position: int, value_type: KeyType) -> ColumnStatistics | None:
    """Return the statistics of a column over all row groups; None if those of one row group cannot be used."""
    # Parquet orders char values with their trailing blanks, which comparisons ignore.
    if isinstance(value_type, ColumnCharType):
        return None
    reader = _reader(metadata.schema.column(position), value_type)
    least: KeyValue | None = None
    greatest: KeyValue | None = None
    nulls: int | None = 0
    for number in range(metadata.num_row_groups):
        column = metadata.row_group(number).column(position)
        known = column.statistics
        if known is None or reader is None:
            return None
        nulls = None if nulls is None or not known.has_null_count else nulls + known.null_count
        if known.has_null_count and known.null_count == column.num_values:
            continue
        if not known.has_min_max:
            return None
        try:
            low, high = reader(known.min_raw), reader(known.max_raw)
        except UnicodeDecodeError:
            # Spark stores arbitrary bytes as strings, and these do not sort as text does.
            return None
        least = low if least is None or low < least else least
        greatest = high if greatest is None or high > greatest else greatest
    if least is None or greatest is None:
        return ColumnStatistics(None, None, nulls)
    return statistics_of(value_type, least, greatest, nulls)


def statistics_of(
    value_type: KeyType, least: KeyValue, greatest: KeyValue, null_count: int | None, *, has_nan: bool = True
) -> ColumnStatistics:
    """Return the statistics of a column with these least and greatest values.

    Args:
        has_nan: Whether floating-point values may be NaN, which bounds do not include.
    """
    if isinstance(value_type, FloatingType) and has_nan:
        # NaN is greater than all numbers.
        greatest = value_type.ordered(float("nan"))
    if isinstance(value_type, DateType) and greatest in (_BEFORE_THE_CALENDAR, _AFTER_THE_CALENDAR):
        # This number stands for many days, so equal bounds do not mean a single value.
        greatest = int(greatest) + 1
    return ColumnStatistics.of_values(value_type, least, greatest, null_count)


def _reader(column: Any, value_type: KeyType) -> Any:
    """Return a function from a raw footer value to a typed one; None if the file's type does not match the column's."""
    physical = column.physical_type
    logical = json.loads(column.logical_type.to_json())
    kind = logical.get("Type")
    match value_type:
        case IntegerType() if physical in ("INT32", "INT64") and kind in ("None", "Int"):
            return int
        case StringType() if kind == "String":
            return _text
        case DateType() if kind == "Date":
            return day_of
        case TimestampType() if kind == "Timestamp" and logical["timeUnit"] in _FROM_MICROSECONDS:
            factor, divisor = _FROM_MICROSECONDS[logical["timeUnit"]]
            return lambda raw: raw * factor // divisor
        case DecimalType() if kind == "Decimal" and logical["scale"] == value_type.scale:
            return lambda raw: value_type.scaled(raw if isinstance(raw, int) else int.from_bytes(raw, signed=True))
        case BooleanType() if physical == "BOOLEAN":
            return int
        case FloatingType() if physical in ("FLOAT", "DOUBLE"):
            return value_type.ordered
    return None


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode()


def day_of(raw: int) -> int:
    """Return a day counted from 1970 in the encoding of `DateType`.

    All days before the year 0 have one number, and so do all days after the year 9999.
    """
    number = raw + _EPOCH_DAY
    if number > date.max.toordinal():
        return _AFTER_THE_CALENDAR
    if number <= -_DAYS_OF_YEAR_0:
        return _BEFORE_THE_CALENDAR
    # Python has no year 0; its calendar equals that of the year 400.
    day = date.fromordinal(number if number > 0 else number + _DAYS_OF_400_YEARS)
    return (day.year if number > 0 else 0) << 9 | day.month << 5 | day.day


def column_types(names: Sequence[str], types: Mapping[str, str]) -> dict[str, KeyType]:
    """Return the types of the named columns, without columns whose values cannot be compared."""
    value_types = ((name, parse_column_type(types[name])) for name in dict.fromkeys(names))
    return {name: value_type for name, value_type in value_types if value_type is not None}
