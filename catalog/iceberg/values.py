"""Conversion of partition values from strings to the values in Iceberg's manifests.

| Iceberg | value |
| --- | --- |
| int, long | int |
| float, double | float |
| boolean | bool |
| date | int, days since 1970-01-01 |
| timestamp, timestamptz | int, microseconds since 1970-01-01 00:00:00 UTC |
| decimal(p,s) | Decimal with a fraction of s digits |
| string | str |
| binary | bytes |
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from pyiceberg.types import TimestampType as AnyTimestamp

from catalog.errors import PartitionProblem
from catalog.iceberg.types import convert
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import (
    BooleanType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    KeyType,
    KeyValueError,
    StringType,
    TimestampType,
)

PartitionValue = int | float | bool | str | bytes | Decimal | None
"""A typed value of a partition key in Iceberg; None is null."""

Reader = Callable[[str], PartitionValue]

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAYS_OF_400_YEARS = 146_097
_DAYS_OF_YEAR_0 = 366


@lru_cache(maxsize=1024)
def value_reader(hive_type: str) -> Reader:
    """Return the function that parses a partition key's string values, as the catalog does (`catalog.types.key_types`).

    It raises `KeyValueError` when a string is not of the type. Timestamps are UTC times, as Calve's Spark reads them. A
    char(n) loses trailing blanks, which are not significant in Hive.

    Args:
        hive_type: A type without parts that `catalog.iceberg.types` converts.
    """
    name = convert(hive_type, AnyTimestamp()).name
    if name.startswith("timestamp"):
        return TimestampType().parse
    if name == "binary":
        return _bytes
    if name == "date":
        return _day
    key_type = parse_column_type(name)
    match key_type:
        case IntegerType():
            return key_type.parse
        case BooleanType():
            return lambda text: bool(key_type.parse(text))
        case FloatingType():
            return lambda text: key_type.number(key_type.parse(text))
        case DecimalType():
            return lambda text: _decimal(key_type, text)
        case KeyType():
            return lambda text: _text(key_type, text)
        case None:
            raise ValueError(f"a partition key cannot be of type {hive_type}")


def text_of(hive_type: str, value: Any) -> str:
    """Return the string of a typed value of a partition key; the inverse of `value_reader`.

    Raises:
        KeyValueError: The catalog has no such value: a date or time outside the years 0 to 9999, or 1 to 9999.
    """
    name = convert(hive_type, AnyTimestamp()).name
    if name.startswith("timestamp"):
        return _moment_text(value)
    if name == "date":
        return _day_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _moment_text(micros: int) -> str:
    try:
        return str(datetime(1970, 1, 1) + timedelta(microseconds=micros))
    except OverflowError:
        problem = f"{micros} microseconds since 1970 are not in the years 1 to 9999"
        raise KeyValueError(PartitionProblem.INVALID_TYPE, problem) from None


def _day_text(number: int) -> str:
    ordinal = number + _EPOCH_DAY
    if 0 < ordinal <= date.max.toordinal():
        return str(date.fromordinal(ordinal))
    if -_DAYS_OF_YEAR_0 < ordinal <= 0:
        return f"0000{str(date.fromordinal(ordinal + _DAYS_OF_400_YEARS))[4:]}"
    problem = f"{number} days since 1970 are not in the years 0 to 9999"
    raise KeyValueError(PartitionProblem.INVALID_TYPE, problem)


def _text(key_type: KeyType, text: str) -> str:
    value = key_type.parse(text)
    return key_type.text_of(value) if isinstance(key_type, StringType) else str(value)


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise KeyValueError(PartitionProblem.UNSUPPORTED_CHARACTER, f"{text[:40]!r} is not valid Unicode") from None


def _day(text: str) -> int:
    number = DateType().parse(text)
    year, month, day = number >> 9, number >> 5 & 15, number & 31
    # Python has no year 0; it has the same days as the year 400.
    if year == 0:
        return date(400, month, day).toordinal() - _DAYS_OF_400_YEARS - _EPOCH_DAY
    return date(year, month, day).toordinal() - _EPOCH_DAY


def _decimal(key_type: DecimalType, text: str) -> Decimal:
    unscaled = key_type.unscaled(key_type.parse(text))
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -key_type.scale))
