"""Types of partition keys: parsing of values, their order, and their bytes in an index key.

The bytes of two values of one type compare as the values do, and no value's bytes are a prefix of another's, so the
bytes of several keys can be concatenated (`catalog.indexes.keys`).

| type | typed value | bytes |
| --- | --- | --- |
| null | None | `00` |
| tinyint … bigint | int | `01`, then 8 bytes big-endian with the sign bit flipped |
| boolean | 0 or 1 | `01`, then 1 byte |
| float, double | int, the IEEE 754 bits mapped to sort as the numbers do | `01`, then 8 bytes big-endian |
| decimal(p,s) | int, the number times 10 to the power of 40 | `01`, then 34 bytes big-endian, biased |
| date | int, year * 512 + month * 32 + day | 3 bytes big-endian with the top bit set |
| timestamp | int, microseconds since 1970-01-01 00:00:00 | `01`, then 8 bytes big-endian with the sign bit flipped |
| string, varchar(n) | str | UTF-8, then `01` |
| char(n) | str, padded to n characters | UTF-8 without trailing blanks, then `01` |

These are all of Hive's primitive types except those whose values a path does not represent unambiguously: binary, which
need not be valid text; intervals; and timestamps with a time zone.

Columns in data files have the same types (`catalog.types.column_types`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial

from catalog.errors import InvalidKeyTypeError
from catalog.types.key_types.base import NULL_BYTES, TEXT_END, KeyType, KeyValue, KeyValueError
from catalog.types.key_types.numbers import BooleanType, DecimalType, FloatingType, IntegerType
from catalog.types.key_types.strings import CharType, StringType
from catalog.types.key_types.times import DateType, TimestampType, moment_of
from catalog.types.names import ALIASES

__all__ = [
    "NULL_BYTES",
    "TEXT_END",
    "BooleanType",
    "CharType",
    "DateType",
    "DecimalType",
    "FloatingType",
    "IntegerType",
    "KeyType",
    "KeyValue",
    "KeyValueError",
    "StringType",
    "TimestampType",
    "moment_of",
    "parse_key_type",
    "recorded_key_type",
]

_SIZED = re.compile(r"(char|varchar)\s*\(\s*([0-9]{1,9})\s*\)", re.ASCII)
_LIMITS = {"char": 255, "varchar": 65535}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*([0-9]{1,3})\s*(?:,\s*([0-9]{1,3})\s*)?\))?", re.ASCII)
_DEFAULT_PRECISION, _MAXIMUM_PRECISION = 10, 38
_PLAIN: dict[str, Callable[[], KeyType]] = {
    **{name: partial(IntegerType, name) for name in ("tinyint", "smallint", "int", "bigint")},
    **{name: partial(FloatingType, name) for name in ("float", "double")},
    "boolean": BooleanType,
    "date": DateType,
    "timestamp": TimestampType,
    "string": StringType,
}


@lru_cache(maxsize=1024)
def parse_key_type(text: str) -> KeyType:
    """Return the type of a name, ignoring case; `numeric` and the names of `ALIASES` are aliases.

    Raises:
        InvalidKeyTypeError: A partition key cannot have this type.
    """
    name = " ".join(text.lower().split())
    name = ALIASES.get(name, name)
    if name in _PLAIN:
        return _PLAIN[name]()
    if sized := _SIZED.fullmatch(name):
        return _text_type(text, sized.group(1), int(sized.group(2)))
    if decimal := _DECIMAL.fullmatch(name):
        return _decimal_type(text, int(decimal.group(1) or _DEFAULT_PRECISION), int(decimal.group(2) or 0))
    raise InvalidKeyTypeError(
        f"type {text!r} cannot be the type of a partition key; use string, char(1 … 255), varchar(1 … 65535), "
        "tinyint, smallint, int, bigint (long), float, double, decimal(p,s), boolean, date or timestamp"
    )


@lru_cache(maxsize=1024)
def recorded_key_type(text: str) -> KeyType:
    """Return the type of a key as it is recorded; one of a metastore's table that is no key type here has strings."""
    try:
        return parse_key_type(text)
    except InvalidKeyTypeError:
        return StringType(text)


def _text_type(text: str, kind: str, length: int) -> StringType:
    if not 1 <= length <= _LIMITS[kind]:
        raise InvalidKeyTypeError(f"type {text!r} has length {length}; {kind} allows 1 to {_LIMITS[kind]}")
    full_name = f"{kind}({length})"
    return CharType(full_name, length) if kind == "char" else StringType(full_name, length)


def _decimal_type(text: str, precision: int, scale: int) -> DecimalType:
    if not (1 <= precision <= _MAXIMUM_PRECISION and scale <= precision):
        raise InvalidKeyTypeError(
            f"type {text!r} is not a valid decimal type; use decimal(p,s) with p from 1 to 38 and s from 0 to p"
        )
    return DecimalType(precision, scale)
