"""Conversion of Hive column types, as a metastore writes them, to Iceberg types.

| Hive | Iceberg |
| --- | --- |
| tinyint, smallint, int | int |
| bigint | long |
| float, double, boolean, date, binary | the same |
| decimal(p,s) | decimal(p,s) |
| string, char(n), varchar(n) | string |
| timestamp | timestamptz or timestamp, depending on `TypeRules` and the file format |
| timestamp with local time zone, timestamp_ltz | timestamptz |
| timestamp_ntz | timestamp |
| array<…>, map<…,…>, struct<name:type,…> | list, map, struct; elements, values and fields are optional |

Source: Trino's `MigrateProcedure.toIcebergType`. It does not support the last two kinds of timestamps, which are
converted as in Spark and in Iceberg's `HiveSchemaConverter`.

Type names are those of statements (`catalog.types.names`). The syntax of a metastore differs from that of statements:
struct fields have unquoted names of any characters, fields have comments, and there are types that statements do not
support.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from catalog.types.names import MAXIMUM_DEPTH, TypeNameError, plain_type, sized_type

_UNASSIGNED = 0
"""Placeholder of a field id; `layout` assigns all of them at once."""

_SHOWN = 80

_PLAIN: dict[str, IcebergType] = {
    "tinyint": IntegerType(),
    "smallint": IntegerType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "date": DateType(),
    "binary": BinaryType(),
}
_OTHER_TIMESTAMPS: dict[str, IcebergType] = {
    "timestamp with local time zone": TimestamptzType(),
    "timestamp_ltz": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_DECIMAL = re.compile(r"decimal\(([0-9]+),([0-9]+)\)", re.ASCII)
_SIGNS = {sign: re.compile(sign) for sign in "<>,:"}


class Loss(StrEnum):
    """Properties of a Hive type that are lost in Iceberg."""

    BLANKS = "char"
    LENGTH = "varchar"
    RANGE = "tinyint or smallint"
    ZONE = "timestamp"


_LOSSES = {"char": Loss.BLANKS, "varchar": Loss.LENGTH, "tinyint": Loss.RANGE, "smallint": Loss.RANGE}


class HiveTypeError(ValueError):
    """A column's type has no Iceberg equivalent; the message gives the reason and the nested field."""


@dataclass(frozen=True)
class ConvertedType:
    """The Iceberg type of a Hive type.

    Attributes:
        name: Of the Hive type, without aliases, blanks and parts: `decimal(10,0)` for `dec`, `array` for `array<int>`.
        type: Without field ids: all of them are 0.
        losses: Lost properties, at any depth of the type.
    """

    name: str
    type: IcebergType
    losses: frozenset[Loss]


def convert(text: str, timestamp: IcebergType | None) -> ConvertedType:
    """Return the Iceberg type of a Hive type. Field names are converted to lower case, as in Trino.

    Args:
        timestamp: The Iceberg type of Hive's `timestamp`; None to refuse it.

    Raises:
        HiveTypeError: Iceberg's format version 2 has no such type, or the string is not a type.
    """
    reader = _Reader(text.strip(), timestamp)
    name, converted = reader.whole()
    return ConvertedType(name, converted, frozenset(reader.losses))


def part_names(text: str) -> list[str]:
    """Return the paths of the fields inside a Hive type; those of a struct come before the fields inside them.

    Returns:
        For instance `element` and `element.x` for `array<struct<x:int>>`; none for a type that Iceberg does not have.
    """
    try:
        converted = convert(text, TimestamptzType())
    except HiveTypeError:
        return []
    return list(_part_names(converted.type, ""))


def _part_names(kind: IcebergType, prefix: str) -> Iterator[str]:
    parts = fields_inside(kind)
    yield from (f"{prefix}{part.name}" for part in parts)
    for part in parts:
        yield from _part_names(part.field_type, f"{prefix}{part.name}.")


def spelled(iceberg_type: IcebergType) -> str:
    """Return a type for messages: in the notation of Iceberg's specification, without field ids."""
    match iceberg_type:
        case ListType():
            return f"list<{spelled(iceberg_type.element_type)}>"
        case MapType():
            return f"map<{spelled(iceberg_type.key_type)}, {spelled(iceberg_type.value_type)}>"
        case StructType():
            return f"struct<{', '.join(f'{part.name}: {spelled(part.field_type)}' for part in iceberg_type.fields)}>"
        case _:
            return str(iceberg_type)


@dataclass
class _Reader:
    """Recursive-descent parser of one type; its position is at a word or a sign, never at blanks."""

    text: str
    timestamp: IcebergType | None
    losses: set[Loss] = field(default_factory=set)
    _position: int = 0
    _path: list[str] = field(default_factory=list)

    _WORDS = re.compile(r"\w+(?:\s+(?!comment\b)\w+)*", re.ASCII | re.IGNORECASE)
    _SIZES = re.compile(r"\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\)", re.ASCII)
    # Hive appends the session's time zone, which is not part of the type.
    _ZONE = re.compile(r"\(\s*'[^']*'\s*\)")
    _NAME = re.compile(r"`((?:[^`]|``)+)`|([^`,:<>]*[^`,:<>\s])")
    _COMMENT = re.compile(r"""comment\s*(['"])((?:(?!\1)[^\\]|\1\1|\\.)*)\1""", re.DOTALL | re.IGNORECASE)
    _BLANKS = re.compile(r"\s*")

    def whole(self) -> tuple[str, IcebergType]:
        result = self._type()
        if self._position < len(self.text):
            raise self._unreadable()
        return result

    def _type(self) -> tuple[str, IcebergType]:
        if len(self._path) >= MAXIMUM_DEPTH:
            raise HiveTypeError(f"it is nested more than {MAXIMUM_DEPTH} levels deep")
        words = self._next(self._WORDS)
        if words is None:
            raise self._unreadable()
        name = " ".join(words.group().lower().split())
        match name:
            case "array" | "map" | "struct" if self._is_next("<"):
                nested = self._nested(name)
                self._expect(">")
                return name, nested
            case "void" | "null" | "unknown" | "variant":
                raise self._refusal(f"version 2 of Iceberg's format has no type {name}")
            case "uniontype" | "interval" | "interval_year_month" | "interval_day_time":
                raise self._refusal(f"Iceberg has no type {name}")
            case _ if name.startswith("interval "):
                raise self._refusal(f"Iceberg has no type {name}")
            case _ if name in _OTHER_TIMESTAMPS:
                self._next(self._ZONE)
                return name, _OTHER_TIMESTAMPS[name]
            case _:
                return self._plain(name)

    def _nested(self, name: str) -> IcebergType:
        if name == "array":
            return ListType(_UNASSIGNED, self._part("element"), element_required=False)
        if name == "map":
            key = self._part("key")
            self._expect(",")
            return MapType(_UNASSIGNED, key, _UNASSIGNED, self._part("value"), value_required=False)
        fields = [self._field()]
        while self._is_next(","):
            fields.append(self._field())
        return StructType(*fields)

    def _field(self) -> NestedField:
        match = self._next(self._NAME)
        if match is None:
            raise self._unreadable()
        quoted, plain = match.groups()
        name = (plain if quoted is None else quoted.replace("``", "`")).lower()
        self._expect(":")
        field_type = self._part(name)
        return NestedField(_UNASSIGNED, name, field_type, required=False, doc=self._comment())

    def _comment(self) -> str | None:
        comment = self._next(self._COMMENT)
        if comment is None:
            return None
        quote, text = comment.groups()
        return re.sub(rf"\\(.)|({quote}){quote}", lambda match: match.group(1) or match.group(2), text, flags=re.DOTALL)

    def _part(self, name: str) -> IcebergType:
        self._path.append(name)
        _, part = self._type()
        self._path.pop()
        return part

    def _plain(self, name: str) -> tuple[str, IcebergType]:
        sizes = self._next(self._SIZES)
        try:
            if sizes is None:
                full_name = plain_type(name)
            else:
                first, second = sizes.groups()
                full_name = sized_type(name, int(first), None if second is None else int(second))
        except TypeNameError as error:
            raise self._refusal(str(error)) from None
        if (loss := _LOSSES.get(full_name.partition("(")[0])) is not None:
            self.losses.add(loss)
        if full_name == "timestamp":
            return full_name, self._timestamp()
        if decimal := _DECIMAL.fullmatch(full_name):
            return full_name, DecimalType(int(decimal.group(1)), int(decimal.group(2)))
        return full_name, _PLAIN.get(full_name, StringType())

    def _timestamp(self) -> IcebergType:
        if self.timestamp is None:
            raise self._refusal(
                "files of this format do not record whether a timestamp is an instant; choose timestamps 'with zone' "
                "or 'without zone'"
            )
        if isinstance(self.timestamp, TimestamptzType):
            self.losses.add(Loss.ZONE)
        return self.timestamp

    def _expect(self, sign: str) -> None:
        if not self._is_next(sign):
            raise self._unreadable()

    def _is_next(self, sign: str) -> bool:
        """Return whether the next token is a sign; if it is, move past it."""
        return self._next(_SIGNS[sign]) is not None

    def _next(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the match of a pattern at the position, if any, and move past it and the blanks after it."""
        match = pattern.match(self.text, self._position)
        if match is not None:
            self._position = match.end()
            if blanks := self._BLANKS.match(self.text, self._position):
                self._position = blanks.end()
        return match

    def _refusal(self, problem: str) -> HiveTypeError:
        return HiveTypeError(f"its field {'.'.join(self._path)}: {problem}" if self._path else problem)

    def _unreadable(self) -> HiveTypeError:
        rest = self.text[self._position :][:_SHOWN]
        return HiveTypeError(
            "this is not a Hive type: " + (f"{rest!r} cannot be read" if rest else "its end is missing")
        )


def fields_inside(kind: IcebergType) -> tuple[NestedField, ...]:
    """Return the fields directly inside a struct, list or map; none for other types."""
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return (kind.element_field,)
        case MapType():
            return (kind.key_field, kind.value_field)
        case _:
            return ()
