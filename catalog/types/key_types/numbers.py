"""Types of partition keys whose values are numbers, and boolean."""

from __future__ import annotations

import math
import re
import struct
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import ClassVar

from catalog.types.key_types.base import SIGN_BIT, KeyType, KeyValue, KeyValueError, unfit

_EXACT = Context(prec=10_000)


class IntegerType(KeyType):
    """tinyint, smallint, int and bigint: all of one width, so that widening a type needs no index rebuild."""

    width = 9
    _BITS: ClassVar[dict[str, int]] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
    spelling: ClassVar[str] = r"\s*[+-]?[0-9]{1,40}\s*"
    _TEXT = re.compile(spelling, re.ASCII)

    def __init__(self, name: str) -> None:
        """Create the type of one of the four names."""
        self.name = name
        self.maximum = (1 << (self._BITS[name] - 1)) - 1
        self.minimum = -self.maximum - 1

    def parse(self, text: str) -> int:
        """Return the number; a sign, leading zeros, and blanks around it are allowed."""
        value = self._number(text)
        if not self.minimum <= value <= self.maximum:
            raise unfit(f"{text} is outside {self.minimum} … {self.maximum} of {self.name}")
        return value

    def parse_bound(self, text: str) -> tuple[int | None, bool]:
        """Return the number, or the greatest one of the type that is not greater; None if all are greater."""
        value = self._number(text)
        return (None if value < self.minimum else min(value, self.maximum)), self.minimum <= value <= self.maximum

    def _number(self, text: str) -> int:
        if not self._TEXT.fullmatch(text):
            raise unfit(f"{text[:40]!r} is not a whole number")
        return int(text)

    def encode(self, value: KeyValue) -> bytes:
        """Return `01` and 8 bytes."""
        return b"\x01" + (int(value) + SIGN_BIT).to_bytes(8)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the number and the position after it."""
        return int.from_bytes(key[start + 1 : start + 9]) - SIGN_BIT, start + 9


class BooleanType(KeyType):
    """boolean: false sorts before true.

    Only `true` and `false` are values: Hive and Spark read other words and numbers in different ways.
    """

    name = "boolean"
    width = 2
    spelling: ClassVar[str] = r"\s*(?i:true|false)\s*"
    _TEXT = re.compile(spelling, re.ASCII)

    def parse(self, text: str) -> int:
        """Return 1 for true and 0 for false, ignoring case."""
        if not self._TEXT.fullmatch(text):
            raise unfit(f"{text[:40]!r} is neither true nor false")
        return int(text.strip().lower() == "true")

    def format(self, value: KeyValue) -> str:
        """Return the value in quotes."""
        return "'true'" if value else "'false'"

    def encode(self, value: KeyValue) -> bytes:
        """Return 2 bytes."""
        return bytes([1, int(value)])

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the value and the position after it."""
        return key[start + 1], start + 2


class FloatingType(KeyType):
    """float and double, compared as in Spark: -0 equals 0; NaN is a single value that equals itself and sorts last.

    So both zeros are one partition. Hive's metastore compares strings, so it distinguishes `-0.0` from `0.0`, as it
    does `01` from `1`. A number that the type cannot represent is rounded to the nearest one; a number beyond its range
    is no value, and is compared as infinity.
    """

    width = 9
    spelling: ClassVar[str] = (
        r"\s*(?:[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?|(?i:inf(?:inity)?))|(?i:nan))\s*"
    )
    _TEXT = re.compile(spelling, re.ASCII)

    def __init__(self, name: str) -> None:
        """Create the type of one of the two names."""
        self.name = name

    def parse(self, text: str) -> int:
        """Return the number's ordered bits; `NaN`, `inf` and `Infinity` are valid."""
        value = self.parse_literal(text)
        if math.isinf(self.number(value)) and any(map(str.isdigit, text)):
            raise unfit(f"{text[:40]!r} exceeds the range of {self.name}")
        return value

    def parse_literal(self, text: str) -> int:
        """Return the number's ordered bits, those of infinity if it is beyond the type's range."""
        if not self._TEXT.fullmatch(text):
            raise unfit(f"{text[:40]!r} is not a number")
        return self.ordered(float(text))

    def ordered(self, number: float) -> int:
        """Return the bits of a number, mapped to an unsigned int that sorts as Spark compares."""
        if self.name == "float" and not math.isnan(number):
            number = self._single(number)
        number = math.nan if math.isnan(number) else number + 0.0
        bits = int.from_bytes(struct.pack(">d", number))
        return bits ^ (2 * SIGN_BIT - 1) if bits & SIGN_BIT else bits | SIGN_BIT

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
        bits = bits ^ SIGN_BIT if bits & SIGN_BIT else bits ^ (2 * SIGN_BIT - 1)
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
    _WHOLE_DIGITS = 38
    """The digits before the point that Spark reads, also those of a zero such as `0e50`."""
    _BIAS = 10**80
    spelling: ClassVar[str] = r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\s*"
    _TEXT = re.compile(spelling, re.ASCII)

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
            raise unfit(f"{text[:60]!r} has more digits than {self.name} holds")
        return value

    def parse_literal(self, text: str) -> int:
        """Return the number, which may have more digits than the type."""
        if not self._TEXT.fullmatch(text):
            raise unfit(f"{text[:40]!r} is not a decimal number")
        try:
            number = Decimal(text.strip())
        except InvalidOperation:
            raise unfit(f"{text[:40]!r} is not a decimal number") from None
        # Zeros at the end of a fraction count as no digits.
        shortest = number.normalize(_EXACT)
        sign, digits, exponent = shortest.as_tuple()
        shift = int(exponent) + self._MORE_DIGITS
        if shift < 0 or shortest != number or number.adjusted() >= self._WHOLE_DIGITS:
            raise unfit(f"{text[:60]!r} has more digits than any decimal holds")
        value: int = int("".join(map(str, digits))) * 10**shift
        return -value if sign else value

    def parse_bound(self, text: str) -> tuple[int | None, bool]:
        """Return the number, or the greatest one that a decimal can be and that is not greater."""
        try:
            return self.parse_literal(text), True
        except KeyValueError:
            if not self._TEXT.fullmatch(text):
                raise
        number = Decimal(text.strip())
        if number and number.adjusted() >= self._MORE_DIGITS:
            return (None if number < 0 else self._BIAS - 1), False
        scaled = number.scaleb(self._MORE_DIGITS, _EXACT)
        floor = scaled.to_integral_value(ROUND_FLOOR)
        return int(floor), floor == scaled

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
