"""Types of the columns inside data files, as far as their values compare: for schemes, file statistics and filters.

They are the types of partition keys (`catalog.key_types`), with the same typed values. The texts of two may be written
more freely, as CarbonData's users do, and texts may have any characters:

| type | bytes |
| --- | --- |
| string, char(n), varchar(n) | UTF-8 with `00`, `01`, `02` escaped, then `01` |
"""

from __future__ import annotations

import re
from functools import lru_cache

from catalog.errors import PartitionProblem
from catalog.key_types import CharType, DateType, KeyType, KeyValueError, StringType, TimestampType
from catalog.key_types import parse_key_type as _parse_key_type


class ColumnDateType(DateType):
    """date, whose values may be written 2014/01/01 too, as CarbonData's users do."""

    def parse(self, text: str) -> int:
        """Return the date; month and day may have one digit."""
        return super().parse_literal(text.strip().replace("/", "-"))

    parse_literal = parse


class ColumnTimestampType(TimestampType):
    """timestamp, whose values may be written 2014/01/01 10:30 too."""

    parse = TimestampType.parse_literal


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
            raise KeyValueError(
                PartitionProblem.INVALID_TYPE, f"{text[:40]!r} has {len(text)} characters, more than {self.name} holds"
            )
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


_COMPARABLE = re.compile(
    r"(?:tinyint|smallint|int|integer|bigint|long|decimal|dec|numeric|string|char|varchar)\b"
    r"|(?:float|real|double|double\s+precision|boolean|date|timestamp)$"
)


@lru_cache(maxsize=1024)
def parse_column_type(text: str) -> KeyType | None:
    """Return the type of a column's values; None when they do not compare (binary, arrays, maps, structs).

    Raises:
        InvalidKeyTypeError: The text is the name of a sized type, with a wrong size.
    """
    name = text.strip().lower()
    return _of_any_characters(_parse_key_type(name)) if _COMPARABLE.match(name) else None


def _of_any_characters(key_type: KeyType) -> KeyType:
    match key_type:
        case CharType(name=name, maximum_length=length):
            return ColumnCharType(name, length)
        case StringType(name=name, maximum_length=length):
            return ColumnTextType(name, length)
        case DateType():
            return ColumnDateType()
        case TimestampType():
            return ColumnTimestampType()
        case _:
            return key_type
