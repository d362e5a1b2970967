"""Types of partition keys: which texts are values, how values compare, and their bytes in an index key.

The bytes of two values of one type compare as the values do, and no value's bytes are a prefix of another's, so the
bytes of several keys can be put one after the other (`catalog.indexes.keys`).

| type | typed value | bytes |
| --- | --- | --- |
| null | None | `00` |
| tinyint … bigint | int | `01`, then 8 bytes big-endian with the sign bit flipped |
| date | int, year * 512 + month * 32 + day | 3 bytes big-endian with the top bit set |
| string, char(n), varchar(n) | str | UTF-8, then `01` |
"""

from __future__ import annotations

import calendar
import re
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import ClassVar

from catalog.errors import InvalidKeyTypeError, PartitionProblem

KeyValue = int | str
"""A typed, non-null value of a partition key."""

NULL_BYTES = b"\x00"
TEXT_END = b"\x01"
_SIGN = 1 << 63


class KeyValueError(ValueError):
    """A text is not a value of a key's type.

    Attributes:
        problem: Which of Glue's codes describes it.
    """

    def __init__(self, problem: PartitionProblem, message: str) -> None:
        """Keep the code beside the message."""
        self.problem = problem
        super().__init__(message)


class KeyType(ABC):
    """The type of a partition key."""

    name: str
    width: ClassVar[int | None] = None
    """Bytes of each value in an index key; None when a terminator ends it."""

    def __str__(self) -> str:
        """Return the type as Hive writes it."""
        return self.name

    @abstractmethod
    def parse(self, text: str) -> KeyValue:
        """Return the typed value of a partition's text.

        Raises:
            KeyValueError: The text is not a value of this type.
        """

    def parse_literal(self, text: str) -> KeyValue:
        """Return the typed value of a literal in an expression, which may be written more freely than a stored value.

        Raises:
            KeyValueError: The literal cannot be of this type.
        """
        return self.parse(text)

    def comparable(self, text: str) -> KeyValue | None:
        """Return what a stored text compares as; None, as for null, when it does not fit (no index is on the key)."""
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
        """Return the value that begins at `start`, and where the next one begins."""


class IntegerType(KeyType):
    """tinyint, smallint, int and bigint: one width of bytes, so that widening a type rebuilds nothing."""

    width = 9
    _BITS: ClassVar[dict[str, int]] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
    _TEXT = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)

    def __init__(self, name: str) -> None:
        """Take one of the four names."""
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
        """Return the number and the next position."""
        return int.from_bytes(key[start + 1 : start + 9]) - _SIGN, start + 9


class DateType(KeyType):
    """date: proleptic Gregorian, 0000-01-01 … 9999-12-31 (year 0 is a leap year, as ISO 8601 counts)."""

    name = "date"
    width = 3
    _TEXT = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
    _LITERAL = re.compile(r"([0-9]{1,4})-([0-9]{1,2})-([0-9]{1,2})", re.ASCII)
    _TOP_BIT = 1 << 23

    def parse(self, text: str) -> int:
        """Return the date as a number that orders as dates do; the text is yyyy-MM-dd."""
        return self._read(self._TEXT, text)

    def parse_literal(self, text: str) -> int:
        """Return the date; month and day may have one digit."""
        return self._read(self._LITERAL, text)

    def _read(self, pattern: re.Pattern[str], text: str) -> int:
        found = pattern.fullmatch(text)
        if found is None:
            raise KeyValueError(PartitionProblem.INVALID_TYPE, f"{text[:40]!r} is not a date in the form yyyy-MM-dd")
        year, month, day = (int(part) for part in found.groups())
        if not 1 <= month <= 12 or not 1 <= day <= _days(year, month):
            raise KeyValueError(PartitionProblem.INVALID_TYPE, f"{text!r} is not a day of the calendar")
        return year << 9 | month << 5 | day

    def format(self, value: KeyValue) -> str:
        """Return the date in quotes, as yyyy-MM-dd."""
        number = int(value)
        return f"'{number >> 9:04}-{number >> 5 & 15:02}-{number & 31:02}'"

    def encode(self, value: KeyValue) -> bytes:
        """Return 3 bytes."""
        return (int(value) | self._TOP_BIT).to_bytes(3)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the date and the next position."""
        return int.from_bytes(key[start : start + 3]) ^ self._TOP_BIT, start + 3


def _days(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


class StringType(KeyType):
    """string and varchar(n): text that compares by code point."""

    _RESERVED = re.compile("[\x00\x01\x02]")
    _SURROGATE = re.compile("[\ud800-\udfff]")

    def __init__(self, name: str = "string", maximum_length: int | None = None) -> None:
        """Take the type's full name and its greatest length in characters; None for no limit."""
        self.name = name
        self.maximum_length = maximum_length

    def first_reserved(self, text: str) -> int | None:
        """Return where a text has a character that no value may have; None when it has none."""
        found = self._RESERVED.search(text)
        return None if found is None else found.start()

    def encode_start(self, text: str) -> bytes:
        """Return the bytes that the values begin with that begin with a text."""
        return text.encode("utf-8", "surrogatepass")

    def parse(self, text: str) -> str:
        """Return the text, if it is short enough and has no reserved character."""
        if found := self._RESERVED.search(text) or self._SURROGATE.search(text):
            raise KeyValueError(
                PartitionProblem.UNSUPPORTED_CHARACTER,
                f"{text[:40]!r} contains U+{ord(found.group()):04X}, which is reserved",
            )
        if self.maximum_length is not None and len(text) > self.maximum_length:
            raise KeyValueError(
                PartitionProblem.INVALID_TYPE, f"{text[:40]!r} has {len(text)} characters, more than {self.name} holds"
            )
        return text

    def parse_literal(self, text: str) -> str:
        """Return the text as it compares; a literal too long for the type is valid and equals no value."""
        return text

    def comparable(self, text: str) -> str:
        """Return the text as it compares; one that no index would admit still compares as text."""
        return self.parse_literal(text)

    def format(self, value: KeyValue) -> str:
        """Return the text in quotes."""
        return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"

    def encode(self, value: KeyValue) -> bytes:
        """Return UTF-8 and the terminator, which is below every character that a value may have."""
        return self.encode_start(str(value)) + TEXT_END

    def decode(self, key: bytes, start: int) -> tuple[str, int]:
        """Return the text and the next position."""
        end = key.index(TEXT_END, start)
        return key[start:end].decode(), end + 1


class CharType(StringType):
    """char(n): trailing blanks do not count, neither in comparisons nor towards the length."""

    def parse(self, text: str) -> str:
        """Return the text without trailing blanks."""
        return super().parse(text.rstrip(" "))

    def parse_literal(self, text: str) -> str:
        """Return the text without trailing blanks."""
        return text.rstrip(" ")


_SIZED = re.compile(r"(char|varchar)\s*\(\s*([0-9]{1,9})\s*\)", re.ASCII)
_LIMITS = {"char": 255, "varchar": 65535}


@lru_cache(maxsize=1024)
def parse_key_type(text: str) -> KeyType:
    """Return the type that a text names, without regard to case; `long` and `integer` are aliases.

    Raises:
        InvalidKeyTypeError: A partition key cannot have this type.
    """
    name = text.strip().lower()
    name = {"long": "bigint", "integer": "int"}.get(name, name)
    if name in ("tinyint", "smallint", "int", "bigint"):
        return IntegerType(name)
    if name == "date":
        return DateType()
    if name == "string":
        return StringType()
    if sized := _SIZED.fullmatch(name):
        kind, length = sized.group(1), int(sized.group(2))
        if not 1 <= length <= _LIMITS[kind]:
            raise InvalidKeyTypeError(f"type {text!r} has length {length}; {kind} takes 1 to {_LIMITS[kind]}")
        full_name = f"{kind}({length})"
        return CharType(full_name, length) if kind == "char" else StringType(full_name, length)
    raise InvalidKeyTypeError(
        f"type {text!r} cannot be the type of a partition key; use string, char(1 … 255), varchar(1 … 65535), "
        "tinyint, smallint, int, bigint (long) or date"
    )
