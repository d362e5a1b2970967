"""Facts of new data files from their footers: statistics for the catalog, and metrics for Iceberg's manifests."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import lru_cache
from typing import Any

from catalog.datafiles.files import ColumnStatistics, NewFile
from catalog.datafiles.publishing import published_layout
from catalog.errors import UnusableFileError
from catalog.files.filesystem import FileInfo
from catalog.iceberg.footers.facts import FooterReader
from catalog.iceberg.footers.parquet_footers import UNPACK, FileSchema, Footer, FooterParser
from catalog.iceberg.manifests import encode_metrics
from catalog.model import FileFormat, Table
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

log = logging.getLogger(__name__)

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAYS_OF_YEAR_0, _DAYS_OF_400_YEARS = 366, 146_097
_BEFORE_THE_CALENDAR, _AFTER_THE_CALENDAR = 0, 10_000 << 9
_FROM_MICROSECONDS = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


class DataFileReader:
    """Reader of the facts of a table's data files; several threads may share it."""

    def __init__(self, table: Table, types: Mapping[str, KeyType] | None = None) -> None:
        """Prepare for the table's columns.

        Args:
            types: The types of the columns to return statistics of, by their names in files; None for no statistics.
        """
        self._location = table.location
        self._types = types or {}
        self._footers = FooterParser()
        # The files have the partition keys, too.
        self._facts = FooterReader(replace(published_layout(table), key_count=0), FileFormat.PARQUET)

    def read(self, path: str, size_bytes: int, partition_id: int) -> NewFile:
        """Return a data file with its row count, statistics and metrics; without metrics if Iceberg cannot use it.

        Args:
            path: The path relative to the table's location.

        Raises:
            StorageError: The file cannot be read.
            UnusableFileError: The file is damaged.
        """
        info = FileInfo(f"{self._location}/{path}", size_bytes, 0)
        footer = self._footers.read(info)
        statistics = footer_statistics(footer, self._types)
        file = NewFile(partition_id, path, footer.row_count, size_bytes, statistics)
        return self._with_metrics(file, info, footer)

    def with_metrics(self, file: NewFile) -> NewFile:
        """Return a known file with its metrics; without them if Iceberg cannot use its footer.

        Raises:
            StorageError: The file cannot be read.
        """
        return self._with_metrics(file, FileInfo(f"{self._location}/{file.path}", file.size_bytes, 0), None)

    def _with_metrics(self, file: NewFile, info: FileInfo, footer: Footer | None) -> NewFile:
        try:
            facts = self._facts.read(info, footer)
        except UnusableFileError as error:
            log.warning("%s is published without bounds: %s", file.path, error)
            return file
        return replace(file, metrics=encode_metrics(facts))


def footer_statistics(footer: Footer, columns: Mapping[str, KeyType]) -> dict[str, ColumnStatistics]:
    """Return the statistics of some columns, without those of which the footer has none that can be used.

    They are more than the bounds of Iceberg's metrics: also of floating-point numbers, and of columns without a null
    count, and of timestamps in other units than microseconds.
    """
    statistics = {}
    for name, value_type in columns.items():
        position = footer.schema.positions.get(name)
        column = None if position is None else _statistics(footer, position, value_type)
        if column is not None:
            statistics[name] = column
    return statistics


def _statistics(footer: Footer, position: int, value_type: KeyType) -> ColumnStatistics | None:
    """Return the statistics of a column over all row groups; None if those of one row group cannot be used."""
    # Parquet orders char values with their trailing blanks, which comparisons ignore.
    if isinstance(value_type, ColumnCharType):
        return None
    reader, unpack = _readers(footer.schema, position, value_type)
    if reader is None or (unpack is None and not footer.is_ordered):
        return None
    least: KeyValue | None = None
    greatest: KeyValue | None = None
    nulls: int | None = 0
    for group in footer.groups:
        value_count, _, null_count, low, high = group.chunks[position]
        nulls = None if nulls is None or null_count is None else nulls + null_count
        if null_count == value_count:
            continue
        if low is None or high is None:
            return None
        try:
            first, last = (reader(raw if unpack is None else unpack(raw)[0]) for raw in (low, high))
        except UnicodeDecodeError:
            # Spark stores arbitrary bytes as strings, and these do not sort as text does.
            return None
        least = first if least is None or first < least else least
        greatest = last if greatest is None or last > greatest else greatest
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


@lru_cache(maxsize=256)
def _readers(schema: FileSchema, position: int, value_type: KeyType) -> tuple[Any, Any]:
    """Return functions from a raw value to a typed one, and from bytes to a raw value; None for bytes as they are."""
    column = schema.columns.column(position)
    return _reader(column, value_type), UNPACK.get(column.physical_type)


def _reader(column: Any, value_type: KeyType) -> Any:
    """Return a function from a raw footer value to a typed one; None if the file's type does not match the column's."""
    physical = column.physical_type
    logical = json.loads(column.logical_type.to_json())
    kind = logical.get("Type")
    match value_type:
        case IntegerType() if physical in ("INT32", "INT64") and kind in ("None", "Int"):
            return int
        case StringType() if kind == "String":
            return bytes.decode
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
