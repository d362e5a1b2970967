"""Types of partition keys whose values are strings."""

from __future__ import annotations

import re

from catalog.errors import PartitionProblem
from catalog.types.key_types.base import TEXT_END, KeyType, KeyValue, KeyValueError


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
