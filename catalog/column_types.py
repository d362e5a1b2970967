"""Types of the columns inside data files, as far as their values compare: for schemes, file statistics and filters.

They are the types of partition keys (`catalog.key_types`), and these. As there, a typed value is a number or a text,
and its bytes sort as the values do.

| type | typed value | bytes |
| --- | --- | --- |
| boolean | 0 or 1 | `01`, then 1 byte |
| timestamp | microseconds since 1970 UTC | `01`, then 8 bytes big-endian with the sign bit flipped |
| float, double | IEEE 754 bits, ordered; NaN greatest, as Spark compares it, and -0 is 0 | `01`, then 8 bytes |
| decimal(p,s) | times 10 to the power of 40 | `01`, then 34 bytes big-endian, biased |
| string, char(n), varchar(n) | str, any characters | UTF-8 with `00`, `01`, `02` escaped, then `01` |
"""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from catalog.errors import InvalidKeyTypeError, PartitionProblem
from catalog.key_types import CharType, DateType, IntegerType, KeyType, KeyValue, KeyValueError, StringType
from catalog.key_types import parse_key_type as _parse_key_type

_SIGN = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _unfit(message: str) -> KeyValueError:
    return KeyValueError(PartitionProblem.INVALID_TYPE, message)


class BooleanType(KeyType):
    """boolean: false before true."""

    name = "boolean"
    width = 2

    def parse(self, text: str) -> int:
        """Return 1 for true and 0 for false, without regard to case."""
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
        """Return the value and the next position."""
        return key[start + 1], start + 2


class ColumnDateType(DateType):
    """date, whose values may be written 2014/01/01 too, as CarbonData's users do."""

    def parse(self, text: str) -> int:
        """Return the date; month and day may have one digit."""
        return super().parse_literal(text.strip().replace("/", "-"))

    parse_literal = parse


class TimestampType(KeyType):
    """timestamp: an instant, in microseconds; texts are of UTC."""

    name = "timestamp"
    width = 9
    _TEXT = re.compile(
        r"([0-9]{1,4})[-/]([0-9]{1,2})[-/]([0-9]{1,2})"
        r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,6}))?)?)?Z?",
        re.ASCII,
    )

    def parse(self, text: str) -> int:
        """Return the instant of yyyy-MM-dd, or of yyyy-MM-dd HH:mm[:ss[.ffffff]]; dates also with slashes."""
        found = self._TEXT.fullmatch(text.strip())
        if found is None:
            raise _unfit(f"{text[:40]!r} is not a timestamp in the form yyyy-MM-dd HH:mm:ss.ffffff")
        *whole, fraction = found.groups()
        year, month, day, hour, minute, second = (int(part or 0) for part in whole)
        try:
            moment = datetime(year, month, day, hour, minute, second, int((fraction or "").ljust(6, "0")), tzinfo=UTC)
        except ValueError as error:
            raise _unfit(f"{text[:40]!r} is not a moment of the calendar: {error}") from None
        return (moment - _EPOCH) // timedelta(microseconds=1)

    def format(self, value: KeyValue) -> str:
        """Return the instant in quotes, in UTC."""
        moment = (_EPOCH + timedelta(microseconds=int(value))).replace(tzinfo=None)
        return f"'{moment.isoformat(sep=' ')}'"

    def encode(self, value: KeyValue) -> bytes:
        """Return `01` and 8 bytes."""
        return b"\x01" + (int(value) + _SIGN).to_bytes(8)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the instant and the next position."""
        return int.from_bytes(key[start + 1 : start + 9]) - _SIGN, start + 9


class FloatingType(KeyType):
    """float and double."""

    width = 9

    def __init__(self, name: str) -> None:
        """Take one of the two names."""
        self.name = name

    def parse(self, text: str) -> int:
        """Return the number's ordered bits."""
        try:
            number = float(text)
        except ValueError:
            raise _unfit(f"{text[:40]!r} is not a number") from None
        return self.ordered(number)

    def ordered(self, number: float) -> int:
        """Return the bits of a number as an unsigned number that sorts as Spark compares."""
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
        """Return the number of ordered bits."""
        bits = int(value)
        bits = bits ^ _SIGN if bits & _SIGN else bits ^ (2 * _SIGN - 1)
        return float(struct.unpack(">d", bits.to_bytes(8))[0])

    def format(self, value: KeyValue) -> str:
        """Return the number, in quotes where the filter language has no such number."""
        number = self.number(value)
        return repr(number) if math.isfinite(number) and "e" not in repr(number) else f"'{number!r}'"

    def encode(self, value: KeyValue) -> bytes:
        """Return `01` and 8 bytes."""
        return b"\x01" + int(value).to_bytes(8)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the ordered bits and the next position."""
        return int.from_bytes(key[start + 1 : start + 9]), start + 9


class DecimalType(KeyType):
    """decimal(p,s)."""

    width = 35
    _MORE_DIGITS = 40
    _BIAS = 10**80
    _TEXT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)

    def __init__(self, precision: int, scale: int) -> None:
        """Take the number of all digits, and of those behind the point."""
        self.name = f"decimal({precision},{scale})"
        self.precision = precision
        self.scale = scale

    def parse(self, text: str) -> int:
        """Return the number, which must fit the type."""
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
        """Return the greatest value of the type that is not above a number; None when all are."""
        unit: int = 10 ** (self._MORE_DIGITS - self.scale)
        greatest = (10**self.precision - 1) * unit
        return None if int(value) < -greatest else min(int(value) // unit * unit, greatest)

    def unscaled(self, value: KeyValue) -> int:
        """Return a value of the type as the whole number that data files store."""
        unscaled: int = int(value) // 10 ** (self._MORE_DIGITS - self.scale)
        return unscaled

    def scaled(self, unscaled: int) -> int:
        """Return the value of the whole number that a data file stores."""
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
        """Return the value and the next position."""
        return int.from_bytes(key[start + 1 : start + 35]) - self._BIAS, start + 35


class ColumnTextType(StringType):
    """string and varchar(n) of any characters: the three that would be mistaken for an end are escaped."""

    _ESCAPES = {0: b"\x02\x02", 1: b"\x02\x03", 2: b"\x02\x04"}  # noqa: RUF012 - a constant
    _ESCAPED = re.compile(b"[\x00\x01\x02]")
    _UNESCAPED = re.compile(b"\x02([\x02-\x04])")

    def parse(self, text: str) -> str:
        """Return the text, if it is short enough."""
        if self._SURROGATE.search(text):
            raise KeyValueError(PartitionProblem.UNSUPPORTED_CHARACTER, f"{text[:40]!r} is no Unicode text")
        if self.maximum_length is not None and len(text) > self.maximum_length:
            raise _unfit(f"{text[:40]!r} has {len(text)} characters, more than {self.name} holds")
        return text

    def first_reserved(self, text: str) -> int | None:
        """Return None: every character is allowed."""
        return None

    def encode_start(self, text: str) -> bytes:
        """Return the bytes that the values begin with that begin with a text."""
        return self._ESCAPED.sub(lambda found: self._ESCAPES[found.group()[0]], text.encode("utf-8", "surrogatepass"))

    def decode(self, key: bytes, start: int) -> tuple[str, int]:
        """Return the text and the next position."""
        end = start
        while key[end] != 1:
            end += 2 if key[end] == 2 else 1
        found = self._UNESCAPED.sub(lambda escape: bytes([escape.group(1)[0] - 2]), key[start:end])
        return found.decode("utf-8", "surrogatepass"), end + 1


class ColumnCharType(CharType, ColumnTextType):
    """char(n) of any characters; trailing blanks do not count."""

    def parse(self, text: str) -> str:
        """Return the text without trailing blanks."""
        return ColumnTextType.parse(self, text.rstrip(" "))


_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*([0-9]{1,3})\s*(?:,\s*([0-9]{1,3})\s*)?\))?", re.ASCII)
_DEFAULT_PRECISION, _MAXIMUM_PRECISION = 10, 38


@lru_cache(maxsize=1024)
def parse_column_type(text: str) -> KeyType | None:
    """Return the type of a column's values; None when they do not compare (binary, arrays, maps, structs).

    Raises:
        InvalidKeyTypeError: The text is the name of a sized type, with a wrong size.
    """
    name = text.strip().lower()
    if name == "boolean":
        return BooleanType()
    if name == "timestamp":
        return TimestampType()
    if name in ("float", "real", "double", "double precision"):
        return FloatingType("double" if name.startswith("double") else "float")
    if found := _DECIMAL.fullmatch(name):
        precision, scale = int(found.group(1) or _DEFAULT_PRECISION), int(found.group(2) or 0)
        if not (1 <= precision <= _MAXIMUM_PRECISION and scale <= precision):
            raise InvalidKeyTypeError(
                f"type {text!r} is no decimal type; write decimal(p,s) with p from 1 to 38 and s from 0 to p"
            )
        return DecimalType(precision, scale)
    if not re.match(r"(tinyint|smallint|int|integer|bigint|long|date|string|char|varchar)\b", name):
        return None
    return _of_any_characters(_parse_key_type(name))


def _of_any_characters(key_type: KeyType) -> KeyType:
    match key_type:
        case CharType(name=name, maximum_length=length):
            return ColumnCharType(name, length)
        case StringType(name=name, maximum_length=length):
            return ColumnTextType(name, length)
        case DateType():
            return ColumnDateType()
        case _:
            assert isinstance(key_type, IntegerType)
            return key_type
