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

import calendar
import math
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import ClassVar

from catalog.errors import InvalidKeyTypeError, PartitionProblem

KeyValue = int | str
"""A typed, non-null value of a partition key."""

NULL_BYTES = b"\x00"
TEXT_END = b"\x01"
_SIGN = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KeyValueError(ValueError):
    """A string is not a value of a key's type.

    Attributes:
        problem: Glue's error code for the reason.
    """

    def __init__(self, problem: PartitionProblem, message: str) -> None:
        """Keep the code with the message."""
        self.problem = problem
        super().__init__(message)


def _unfit(message: str) -> KeyValueError:
    return KeyValueError(PartitionProblem.INVALID_TYPE, message)


class KeyType(ABC):
    """The type of a partition key."""

    name: str
    width: ClassVar[int | None] = None
    """Width in bytes of each value in an index key; None when a terminator ends it."""

    def __str__(self) -> str:
        """Return the type as Hive writes it."""
        return self.name

    @abstractmethod
    def parse(self, text: str) -> KeyValue:
        """Return the typed value of a partition's string value.

        Raises:
            KeyValueError: The string is not a value of this type.
        """

    def parse_literal(self, text: str) -> KeyValue:
        """Return the typed value of a literal in an expression; the syntax is more lenient than for stored values.

        Raises:
            KeyValueError: The literal cannot be of this type.
        """
        return self.parse(text)

    def comparable(self, text: str) -> KeyValue | None:
        """Return the typed value of a stored string; None when it is invalid, as values of unindexed keys may be."""
        try:
            return self.parse(text)
        except KeyValueError:
            return None

    def format(self, value: KeyValue) -> str:
        """Return a typed value as a literal of the filter language."""
        return str(value)

    @abstractmethod
    def encode(self, value: KeyValue) -> bytes:
        """Return the value's bytes in an index key."""

    @abstractmethod
    def decode(self, key: bytes, start: int) -> tuple[KeyValue, int]:
        """Return the value that starts at `start`, and the position after it."""


class IntegerType(KeyType):
    """tinyint, smallint, int and bigint: all of one width, so that widening a type needs no index rebuild."""

    width = 9
    _BITS: ClassVar[dict[str, int]] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
    _TEXT = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)

    def __init__(self, name: str) -> None:
        """Create the type of one of the four names."""
        self.name = name
        self.maximum = (1 << (self._BITS[name] - 1)) - 1
        self.minimum = -self.maximum - 1

    def parse(self, text: str) -> int:
        """Return the number; a sign and leading zeros are allowed."""
        if not self._TEXT.fullmatch(text):
            raise KeyValueError(PartitionProblem.INVALID_TYPE, f"{text[:40]!r} is not a whole number")
        value = int(text)
        if not self.minimum <= value <= self.maximum:
            raise KeyValueError(
                PartitionProblem.INVALID_TYPE, f"{text} is outside {self.minimum} … {self.maximum} of {self.name}"
            )
        return value

    def encode(self, value: KeyValue) -> bytes:
        """Return `01` and 8 bytes."""
        return b"\x01" + (int(value) + _SIGN).to_bytes(8)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the number and the position after it."""
        return int.from_bytes(key[start + 1 : start + 9]) - _SIGN, start + 9


class DateType(KeyType):
    """date: proleptic Gregorian, 0000-01-01 … 9999-12-31 (year 0 is a leap year, as ISO 8601 counts)."""

    name = "date"
    width = 3
    _TEXT = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
    _LITERAL = re.compile(r"([0-9]{1,4})-([0-9]{1,2})-([0-9]{1,2})", re.ASCII)
    _TOP_BIT = 1 << 23

    def parse(self, text: str) -> int:
        """Return the date as an int that sorts as dates do; the string is yyyy-MM-dd."""
        return self._read(self._TEXT, text)

    def parse_literal(self, text: str) -> int:
        """Return the date; month and day may have one digit."""
        return self._read(self._LITERAL, text)

    def _read(self, pattern: re.Pattern[str], text: str) -> int:
        match = pattern.fullmatch(text)
        if match is None:
            raise KeyValueError(PartitionProblem.INVALID_TYPE, f"{text[:40]!r} is not a date in the form yyyy-MM-dd")
        year, month, day = (int(part) for part in match.groups())
        if not 1 <= month <= 12 or not 1 <= day <= _days(year, month):
            raise KeyValueError(PartitionProblem.INVALID_TYPE, f"{text!r} is not a valid date")
        return year << 9 | month << 5 | day

    def format(self, value: KeyValue) -> str:
        """Return the date in quotes, as yyyy-MM-dd."""
        number = int(value)
        return f"'{number >> 9:04}-{number >> 5 & 15:02}-{number & 31:02}'"

    def encode(self, value: KeyValue) -> bytes:
        """Return 3 bytes."""
        return (int(value) | self._TOP_BIT).to_bytes(3)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the date and the position after it."""
        return int.from_bytes(key[start : start + 3]) ^ self._TOP_BIT, start + 3


def _days(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


class BooleanType(KeyType):
    """boolean: false sorts before true.

    Only `true` and `false` are values: Hive and Spark read other words and numbers in different ways.
    """

    name = "boolean"
    width = 2

    def parse(self, text: str) -> int:
        """Return 1 for true and 0 for false, ignoring case."""
        known = {"true": 1, "false": 0}.get(text.strip().lower())
        if known is None:
            raise _unfit(f"{text[:40]!r} is neither true nor false")
        return known

    def format(self, value: KeyValue) -> str:
        """Return the value in quotes."""
        return "'true'" if value else "'false'"

    def encode(self, value: KeyValue) -> bytes:
        """Return 2 bytes."""
        return bytes([1, int(value)])

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the value and the position after it."""
        return key[start + 1], start + 2


class TimestampType(KeyType):
    """timestamp: 0001-01-01 00:00:00 … 9999-12-31 23:59:59.999999.

    Hive's timestamp has no time zone; Spark's is an instant that is formatted in the session's zone. Here a string is a
    UTC time, because Calve's own sessions use UTC. Hive counts nanoseconds; Spark, Iceberg and Calve count
    microseconds.
    """

    name = "timestamp"
    width = 9
    _TEXT = re.compile(
        r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?)?", re.ASCII
    )
    _LITERAL = re.compile(
        r"([0-9]{1,4})[-/]([0-9]{1,2})[-/]([0-9]{1,2})"
        r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,9}))?)?)?Z?",
        re.ASCII,
    )

    def parse(self, text: str) -> int:
        """Return the timestamp of yyyy-MM-dd or yyyy-MM-dd HH:mm:ss[.f…]; trailing zeros are ignored."""
        return self._read(self._TEXT, text)

    def parse_literal(self, text: str) -> int:
        """Return the timestamp; parts may have one digit, time or seconds may be omitted, and slashes are allowed."""
        return self._read(self._LITERAL, text.strip())

    @staticmethod
    def _read(pattern: re.Pattern[str], text: str) -> int:
        match = pattern.fullmatch(text)
        if match is None:
            raise _unfit(f"{text[:40]!r} is not a timestamp in the form yyyy-MM-dd HH:mm:ss.ffffff")
        *whole, fraction = match.groups()
        year, month, day, hour, minute, second = (int(part or 0) for part in whole)
        digits = (fraction or "").rstrip("0").ljust(6, "0")
        if len(digits) > 6:
            raise _unfit(f"{text[:40]!r} is more precise than a microsecond, which is not supported")
        try:
            moment = datetime(year, month, day, hour, minute, second, int(digits), tzinfo=UTC)
        except ValueError as error:
            raise _unfit(f"{text[:40]!r} is not a valid timestamp: {error}") from None
        return (moment - _EPOCH) // timedelta(microseconds=1)

    def format(self, value: KeyValue) -> str:
        """Return the timestamp in quotes, as yyyy-MM-dd HH:mm:ss[.ffffff]."""
        moment = (_EPOCH + timedelta(microseconds=int(value))).replace(tzinfo=None)
        return f"'{moment.isoformat(sep=' ')}'"

    def encode(self, value: KeyValue) -> bytes:
        """Return `01` and 8 bytes."""
        return b"\x01" + (int(value) + _SIGN).to_bytes(8)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the timestamp and the position after it."""
        return int.from_bytes(key[start + 1 : start + 9]) - _SIGN, start + 9


def moment_of(local: int, zone: tzinfo | None) -> int:
    """Return the instant, in microseconds since 1970 UTC, of a zone's local time (also in microseconds since 1970).

    As in Java, an ambiguous local time is the earlier instant, and one inside a gap is shifted by the length of the
    gap.
    """
    shown = (_EPOCH + timedelta(microseconds=local)).replace(tzinfo=zone)
    offset = shown.utcoffset() or timedelta()
    return local - offset // timedelta(microseconds=1)


class FloatingType(KeyType):
    """float and double, compared as in Spark: -0 equals 0; NaN is a single value that equals itself and sorts last.

    So both zeros are one partition. Hive's metastore compares strings, so it distinguishes `-0.0` from `0.0`, as it
    does `01` from `1`. A number that the type cannot represent is rounded to the nearest one, or to infinity.
    """

    width = 9
    _TEXT = re.compile(
        r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,9})?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE
    )

    def __init__(self, name: str) -> None:
        """Create the type of one of the two names."""
        self.name = name

    def parse(self, text: str) -> int:
        """Return the number's ordered bits; `NaN`, `inf` and `Infinity` are valid."""
        text = text.strip()
        if not self._TEXT.fullmatch(text):
            raise _unfit(f"{text[:40]!r} is not a number")
        return self.ordered(float(text))

    def ordered(self, number: float) -> int:
        """Return the bits of a number, mapped to an unsigned int that sorts as Spark compares."""
        if self.name == "float" and not math.isnan(number):
            number = self._single(number)
        number = math.nan if math.isnan(number) else number + 0.0
        bits = int.from_bytes(struct.pack(">d", number))
        return bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN

    @staticmethod
    def _single(number: float) -> float:
        try:
            return float(struct.unpack(">f", struct.pack(">f", number))[0])
        except OverflowError:
            return math.copysign(math.inf, number)

    @staticmethod
    def number(value: KeyValue) -> float:
        """Return the number of its ordered bits."""
        bits = int(value)
        bits = bits ^ _SIGN if bits & _SIGN else bits ^ (2 * _SIGN - 1)
        return float(struct.unpack(">d", bits.to_bytes(8))[0])

    def format(self, value: KeyValue) -> str:
        """Return the number, in quotes where the filter language has no literal for it."""
        number = self.number(value)
        return repr(number) if math.isfinite(number) and "e" not in repr(number) else f"'{number!r}'"

    def encode(self, value: KeyValue) -> bytes:
        """Return `01` and 8 bytes."""
        return b"\x01" + int(value).to_bytes(8)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the ordered bits and the position after them."""
        return int.from_bytes(key[start + 1 : start + 9]), start + 9


class DecimalType(KeyType):
    """decimal(p,s): trailing zeros of the fraction are ignored; digits are never rounded off."""

    width = 35
    _MORE_DIGITS = 40
    _BIAS = 10**80
    _TEXT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)

    def __init__(self, precision: int, scale: int) -> None:
        """Create the type of a precision (all digits) and a scale (digits of the fraction)."""
        self.name = f"decimal({precision},{scale})"
        self.precision = precision
        self.scale = scale

    def parse(self, text: str) -> int:
        """Return the number, which must fit precision and scale."""
        value = self.parse_literal(text)
        unit: int = 10 ** (self._MORE_DIGITS - self.scale)
        if value % unit or abs(value) // unit >= 10**self.precision:
            raise _unfit(f"{text[:60]!r} has more digits than {self.name} holds")
        return value

    def parse_literal(self, text: str) -> int:
        """Return the number, which may have more digits than the type."""
        text = text.strip()
        if not self._TEXT.fullmatch(text):
            raise _unfit(f"{text[:40]!r} is not a decimal number")
        try:
            number = Decimal(text)
        except InvalidOperation:
            raise _unfit(f"{text[:40]!r} is not a decimal number") from None
        sign, digits, exponent = number.as_tuple()
        shift = int(exponent) + self._MORE_DIGITS
        if shift < 0 or number.adjusted() >= self._MORE_DIGITS:
            raise _unfit(f"{text[:60]!r} has more digits than any decimal holds")
        value: int = int("".join(map(str, digits))) * 10**shift
        return -value if sign else value

    def floor(self, value: KeyValue) -> int | None:
        """Return the greatest value of the type that is not greater than a number; None when there is none."""
        unit: int = 10 ** (self._MORE_DIGITS - self.scale)
        greatest = (10**self.precision - 1) * unit
        return None if int(value) < -greatest else min(int(value) // unit * unit, greatest)

    def unscaled(self, value: KeyValue) -> int:
        """Return the unscaled integer of a value, as data files store it."""
        unscaled: int = int(value) // 10 ** (self._MORE_DIGITS - self.scale)
        return unscaled

    def scaled(self, unscaled: int) -> int:
        """Return the value of an unscaled integer, as data files store it."""
        scaled: int = unscaled * 10 ** (self._MORE_DIGITS - self.scale)
        return scaled

    def format(self, value: KeyValue) -> str:
        """Return the number without an exponent."""
        whole, rest = divmod(abs(int(value)), 10**self._MORE_DIGITS)
        fraction = str(rest).zfill(self._MORE_DIGITS).rstrip("0")
        return f"{'-' if int(value) < 0 else ''}{whole}{'.' if fraction else ''}{fraction}"

    def encode(self, value: KeyValue) -> bytes:
        """Return `01` and 34 bytes."""
        return b"\x01" + (int(value) + self._BIAS).to_bytes(34)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the value and the position after it."""
        return int.from_bytes(key[start + 1 : start + 35]) - self._BIAS, start + 35


class StringType(KeyType):
    """string and varchar(n), compared by code point."""

    _RESERVED = re.compile("[\x00\x01\x02]")
    _SURROGATE = re.compile("[\ud800-\udfff]")

    def __init__(self, name: str = "string", maximum_length: int | None = None) -> None:
        """Create the type of its full name and maximum length in characters; None for no limit."""
        self.name = name
        self.maximum_length = maximum_length

    def first_reserved(self, text: str) -> int | None:
        """Return the position of the first reserved character; None when there is none."""
        match = self._RESERVED.search(text)
        return None if match is None else match.start()

    def encode_start(self, text: str) -> bytes:
        """Return the common prefix of the bytes of all values that start with `text`."""
        return text.encode("utf-8", "surrogatepass")

    def parse(self, text: str) -> str:
        """Return the string; it must fit the maximum length and have no reserved character."""
        if match := self._RESERVED.search(text) or self._SURROGATE.search(text):
            raise KeyValueError(
                PartitionProblem.UNSUPPORTED_CHARACTER,
                f"{text[:40]!r} contains U+{ord(match.group()):04X}, which is reserved",
            )
        if self.maximum_length is not None and len(text) > self.maximum_length:
            raise KeyValueError(
                PartitionProblem.INVALID_TYPE, f"{text[:40]!r} has {len(text)} characters, more than {self.name} holds"
            )
        return text

    def parse_literal(self, text: str) -> str:
        """Return the string for comparisons; a literal longer than the type is valid and equals no value."""
        return text

    def comparable(self, text: str) -> str:
        """Return the string for comparisons; one that indexes refuse is still comparable."""
        return self.parse_literal(text)

    def text_of(self, value: KeyValue) -> str:
        """Return the shortest string of a value."""
        return str(value)

    def format(self, value: KeyValue) -> str:
        """Return the string in quotes."""
        return "'" + self.text_of(value).replace("\\", "\\\\").replace("'", "''") + "'"

    def encode(self, value: KeyValue) -> bytes:
        """Return UTF-8 and the terminator, which sorts before every character of a value."""
        return self.encode_start(str(value)) + TEXT_END

    def decode(self, key: bytes, start: int) -> tuple[str, int]:
        """Return the string and the position after it."""
        end = key.index(TEXT_END, start)
        return key[start:end].decode(), end + 1


class CharType(StringType):
    """char(n), padded with blanks to n characters, also for LIKE; trailing blanks of a string are not significant.

    An index key has the string without trailing blanks. It still sorts as if it were padded, because no value has a
    character below a blank.

    Source: Spark's `ApplyCharTypePadding`.
    """

    _RESERVED = re.compile("[\x00-\x1f]")

    def __init__(self, name: str, length: int) -> None:
        """Create the type of its full name and length in characters."""
        super().__init__(name, length)
        self.length = length

    def parse(self, text: str) -> str:
        """Return the string padded with blanks to its length; trailing blanks may exceed it."""
        return super().parse(text.rstrip(" ")).ljust(self.length)

    def parse_literal(self, text: str) -> str:
        """Return the string padded with blanks; one that is too long loses trailing blanks and equals no value."""
        return text.rstrip(" ").ljust(self.length)

    def text_of(self, value: KeyValue) -> str:
        """Return the string without trailing blanks."""
        return str(value).rstrip(" ")

    def encode_start(self, text: str) -> bytes:
        """Return a common prefix of the bytes of all values that start with `text`, without its trailing blanks."""
        return super().encode_start(text.rstrip(" "))

    def decode(self, key: bytes, start: int) -> tuple[str, int]:
        """Return the padded string and the position after it."""
        text, end = super().decode(key, start)
        return text.ljust(self.length), end


_SIZED = re.compile(r"(char|varchar)\s*\(\s*([0-9]{1,9})\s*\)", re.ASCII)
_LIMITS = {"char": 255, "varchar": 65535}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*([0-9]{1,3})\s*(?:,\s*([0-9]{1,3})\s*)?\))?", re.ASCII)
_DEFAULT_PRECISION, _MAXIMUM_PRECISION = 10, 38
_ALIASES = {"long": "bigint", "integer": "int", "real": "float", "double precision": "double"}
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
    """Return the type of a name, ignoring case; `long`, `integer`, `real` and `numeric` are aliases.

    Raises:
        InvalidKeyTypeError: A partition key cannot have this type.
    """
    name = " ".join(text.lower().split())
    name = _ALIASES.get(name, name)
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
