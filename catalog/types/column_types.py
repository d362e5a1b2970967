"""Types of columns in data files, as far as their values are comparable: for schemes, file statistics and filters.

They have the same typed values as the types of partition keys (`catalog.types.key_types`). Dates and timestamps may
also be written as CarbonData's users do, and strings may contain any character:

| type | bytes |
| --- | --- |
| string, varchar(n) | UTF-8 with `00`, `01`, `02` escaped, then `01` |
| char(n) | the same, padded with blanks to n characters |
"""

from __future__ import annotations

import re
from functools import lru_cache

from catalog.errors import InvalidTableError, PartitionProblem
from catalog.types.key_types import CharType, DateType, KeyType, KeyValueError, StringType, TimestampType
from catalog.types.key_types import parse_key_type as _parse_key_type
from catalog.types.names import ALIASES, DECIMALS, LENGTHS, MAXIMUM_DEPTH


class ColumnDateType(DateType):
    """date; values are written as literals are, for instance as 2014/1/1, as CarbonData's users do."""

    spelling = DateType.literal_spelling
    parse = DateType.parse_literal


class ColumnTimestampType(TimestampType):
    """timestamp; values are written as literals are, for instance as 2014/01/01 10:30."""

    spelling = TimestampType.literal_spelling
    parse = TimestampType.parse_literal


class ColumnTextType(StringType):
    """string and varchar(n) of any characters; bytes that could be taken for a terminator are escaped."""

    _ESCAPES = {0: b"\x02\x02", 1: b"\x02\x03", 2: b"\x02\x04"}  # noqa: RUF012 - a constant
    _ESCAPED = re.compile(b"[\x00\x01\x02]")
    _UNESCAPED = re.compile(b"\x02([\x02-\x04])")

    def parse(self, text: str) -> str:
        """Return the string, without the trailing blanks that exceed the maximum length."""
        if self._SURROGATE.search(text):
            raise KeyValueError(PartitionProblem.UNSUPPORTED_CHARACTER, f"{text[:40]!r} is not valid Unicode")
        if self.maximum_length is not None and len(text.rstrip(" ")) > self.maximum_length:
            raise KeyValueError(
                PartitionProblem.INVALID_TYPE, f"{text[:40]!r} has {len(text)} characters, more than {self.name} holds"
            )
        return text[: self.maximum_length]

    def first_reserved(self, text: str) -> int | None:
        """Return None: no character is reserved."""
        return None

    def encode_start(self, text: str) -> bytes:
        """Return the common prefix of the bytes of all values that start with `text`."""
        return self._ESCAPED.sub(lambda match: self._ESCAPES[match.group()[0]], text.encode("utf-8", "surrogatepass"))

    def decode(self, key: bytes, start: int) -> tuple[str, int]:
        """Return the string and the position after it."""
        end = start
        while key[end] != 1:
            end += 2 if key[end] == 2 else 1
        unescaped = self._UNESCAPED.sub(lambda escape: bytes([escape.group(1)[0] - 2]), key[start:end])
        return unescaped.decode("utf-8", "surrogatepass"), end + 1


class ColumnCharType(ColumnTextType, CharType):
    """char(n) of any characters; its bytes include trailing blanks."""

    def parse(self, text: str) -> str:
        """Return the string padded with blanks to its length; trailing blanks may exceed it."""
        return super().parse(text.rstrip(" ")).ljust(self.length)


_COMPARABLE = re.compile(
    r"(?:tinyint|smallint|int|integer|bigint|long|short|byte|decimal|dec|numeric|string|char|varchar)\b"
    r"|(?:float|real|double|double\s+precision|boolean|date|timestamp)$"
)


@lru_cache(maxsize=1024)
def parse_column_type(text: str) -> KeyType | None:
    """Return the type of a column's values; None when they are not comparable (binary, arrays, maps, structs).

    Raises:
        InvalidKeyTypeError: A type with an invalid size.
    """
    name = text.strip().lower()
    return _of_any_characters(_parse_key_type(name)) if _COMPARABLE.match(name) else None


def _of_any_characters(key_type: KeyType) -> KeyType:
    match key_type:
        case CharType(name=name, length=length):
            return ColumnCharType(name, length)
        case StringType(name=name, maximum_length=maximum):
            return ColumnTextType(name, maximum)
        case DateType():
            return ColumnDateType()
        case TimestampType():
            return ColumnTimestampType()
        case _:
            return key_type


_SIMPLE = re.compile(
    r"(?:tinyint|smallint|int|integer|bigint|long|short|byte|float|real|double(?:\s+precision)?|boolean|string|binary|date"
    r"|timestamp(?:_ltz|_ntz|\s+with\s+local\s+time\s+zone)?|interval_(?:day_time|year_month)|void|variant|unknown"
    r"|(?:decimal|dec|numeric)(?:\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\))?|(?:char|varchar)\s*\(\s*\d+\s*\))"
)
_NESTED = re.compile(r"(array|map|struct|uniontype)\s*<(.*)>", re.DOTALL)
_WITHOUT_ZONE = re.compile(r"(?:^|(?<=[:<,]))timestamp_ntz(?=[,>]|$)")
_PARTS = {"array": 1, "map": 2}
_COMMENT = re.compile(r"\s+comment\s+'.*'$", re.DOTALL)


def named_column_type(name: str, text: str) -> str:
    """Return the catalog's name of a column type that is written as Hive and Spark write it, also inside nested types.

    Args:
        name: Of the column, for the message.
        text: The type, in lower case.

    Raises:
        InvalidTableError: It is not a column type.
    """
    named = _named(text.strip(), depth=0)
    if named is None:
        # YAML divides `{amount: decimal(9,2)}` at the comma.
        is_cut = text.count("(") != text.count(")")
        advice = "write a type with a comma in quotes" if is_cut else "use a Hive type such as bigint or array<string>"
        raise InvalidTableError(f"column {name}: type {text[:100]!r} is not known; {advice}")
    return named


def hive_column_type(text: str) -> str:
    """Return the type of a column of a Hive-style table for values of a type of Spark, also inside nested types.

    Hive has no `timestamp_ntz`, and its parsers refuse the name; its `timestamp` has no zone.
    """
    return _WITHOUT_ZONE.sub("timestamp", text)


def _named(text: str, depth: int) -> str | None:
    """Return the catalog's name of a type; None if there is no such type."""
    if _SIMPLE.fullmatch(text):
        return _simple_name(" ".join(text.split()))
    nested = _NESTED.fullmatch(text)
    if nested is None or depth > MAXIMUM_DEPTH:
        return None
    kind, parts = nested[1], _split(nested[2])
    if len(parts) != _PARTS.get(kind, len(parts)):
        return None
    read = _named_field if kind == "struct" else _named
    named = [read(part.strip(), depth + 1) for part in parts]
    return None if None in named else f"{kind}<{','.join(filter(None, named))}>"


def _simple_name(text: str) -> str:
    if text.partition("(")[0].rstrip() in (*DECIMALS, *LENGTHS):
        return str(_parse_key_type(text))
    return ALIASES.get(text, text)


def _named_field(text: str, depth: int) -> str | None:
    """Return the field of a struct, whose name may contain any character, and after whose type may be a comment."""
    field, colon, rest = text.partition(":")
    comment = _COMMENT.search(rest)
    named = _named((rest if comment is None else rest[: comment.start()]).strip(), depth)
    if not (field.strip() and colon) or named is None:
        return None
    return f"{field.strip()}:{named}{'' if comment is None else comment.group()}"


def _split(text: str) -> list[str]:
    """Return the parts between commas that are outside brackets and quotes."""
    parts, depth, start, is_quoted = [], 0, 0, False
    for position, character in enumerate(text):
        if character == "'":
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]
