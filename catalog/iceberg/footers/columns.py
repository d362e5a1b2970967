"""Matching of file columns with table columns: by case-insensitive name, with a compatible type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from catalog.errors import FileProblem, UnusableFileError
from catalog.iceberg.layout import RESERVED_NAMES


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a data file, or a part of one.

    Attributes:
        type: The name of its type in the file's format, for messages.
        kind: One of the kinds in `_FITTING`, `decimal`, `struct`, `list`, `map`; any other matches no type.
        position: Position of its statistics in the format.
        field_id: The field id in the file; None when it has none.
        parts: The fields of a struct, the element of a list, the key and value of a map.
    """

    name: str
    type: str
    kind: str
    position: int
    parts: tuple[FileColumn, ...] = ()
    precision: int = 0
    scale: int = 0
    field_id: int | None = None


class Found(NamedTuple):
    """A primitive column that both the file and the table have.

    Attributes:
        name: In the file, prefixed with the names of enclosing columns.
        is_repeated: It is inside a list or a map.
    """

    field_id: int
    type: PrimitiveType
    column: FileColumn
    is_repeated: bool
    name: str


class Match(NamedTuple):
    """The common columns of a file and a table.

    Attributes:
        spellings: Field id and name in the file, where it differs from the table's.
        unknown: Columns that the table does not have, with their parts: the field id of the enclosing struct, 0 for the
            table, and the names from there on.
    """

    found: tuple[Found, ...]
    spellings: tuple[tuple[int, str], ...]
    unknown: tuple[tuple[int, tuple[str, ...]], ...] = ()


_SHOWN = 10
_PARTS = {"list": ("element",), "map": ("key", "value")}


_FITTING: dict[type[IcebergType], tuple[str, ...]] = {
    BooleanType: ("boolean",),
    IntegerType: ("small int", "int"),
    LongType: ("int", "long"),
    FloatType: ("float",),
    DoubleType: ("float", "double"),
    DateType: ("date",),
    TimestampType: ("timestamp", "any timestamp"),
    TimestamptzType: ("timestamptz", "any timestamp"),
    StringType: ("string",),
    BinaryType: ("binary",),
}
"""The kinds of file columns that are compatible with each type of table column, in all readers, also with filters.

Source: https://iceberg.apache.org/spec/#schema-evolution for the promotions; and what Iceberg's Spark runtime 1.12,
PyIceberg 0.12 and DuckDB 1.5 read in tests (`tests/spark_jobs/test_readable_files.py`).
"""

_REASONS = {
    "char": "its statistics are padded with blanks, so that filters of Iceberg's readers find no rows",
}
"""Reasons why some kinds match no type, where the type does not explain it."""

_WIDER: dict[type[IcebergType], str] = {IntegerType: "long", FloatType: "double"}


class _Matching:
    def __init__(self, columns: Sequence[FileColumn], path: str) -> None:
        self._path = path
        self.found: list[Found] = []
        self.spellings: list[tuple[int, str]] = []
        self.unknown: list[tuple[int, tuple[str, ...]]] = []
        self.common_count = 0
        self._has_ids = has_ids(columns)

    def fields(
        self, parent: int, expected: Sequence[NestedField], columns: Sequence[FileColumn], inside: str, repeated: bool
    ) -> None:
        by_name: dict[str, FileColumn] = {}
        for column in columns:
            other = by_name.setdefault(column.name.lower(), column)
            if other is not column:
                raise self._error(
                    FileProblem.AMBIGUOUS_NAME,
                    f"columns {inside + other.name!r} and {inside + column.name!r} are ambiguous, "
                    "because column names are case-insensitive; rewrite the file with one of them",
                )
        for field in expected:
            match = by_name.pop(field.name.lower(), None)
            if match is None:
                continue
            self.common_count += 1
            if match.name != field.name:
                self.spellings.append((field.field_id, match.name))
            self.column(field.field_id, field.field_type, match, inside + match.name, repeated)
        for column in by_name.values():
            self._check_unknown_id(column, inside + column.name)
            self._unknown(parent, column, (column.name,))

    def _unknown(self, parent: int, column: FileColumn, path: tuple[str, ...]) -> None:
        self.unknown.append((parent, path))
        names = _PARTS.get(column.kind) or [part.name for part in column.parts]
        for name, part in zip(names, column.parts, strict=True):
            self._unknown(parent, part, (*path, name))

    def column(self, field_id: int, expected: IcebergType, column: FileColumn, name: str, repeated: bool) -> None:
        if self._has_ids and column.field_id != field_id:
            own = "no field id, though others have one" if column.field_id is None else f"field id {column.field_id}"
            raise self._error(
                FileProblem.FIELD_ID,
                f"column {name!r} has {own}, and the Iceberg table's column has {field_id}; Iceberg's readers use "
                "the ids in files. Rewrite the file without field ids",
            )
        match expected:
            case StructType() if column.kind == "struct":
                self.fields(field_id, expected.fields, column.parts, f"{name}.", repeated)
            case ListType() if column.kind == "list":
                self.column(expected.element_id, expected.element_type, column.parts[0], f"{name}.element", True)
            case MapType() if column.kind == "map":
                self.column(expected.key_id, expected.key_type, column.parts[0], f"{name}.key", True)
                self.column(expected.value_id, expected.value_type, column.parts[1], f"{name}.value", True)
            case PrimitiveType() if self._fits(expected, column, name):
                self.found.append(Found(field_id, expected, column, repeated, name))
            case _:
                raise self._incompatible(expected, column, name)

    def _fits(self, expected: PrimitiveType, column: FileColumn, name: str) -> bool:
        if isinstance(expected, DecimalType) and column.kind == "decimal" and column.scale == expected.scale:
            if column.precision <= expected.precision:
                return True
            raise self._wider(expected, column, name)
        if column.kind == _WIDER.get(type(expected)):
            raise self._wider(expected, column, name)
        return column.kind in _FITTING.get(type(expected), ())

    def _wider(self, expected: IcebergType, column: FileColumn, name: str) -> UnusableFileError:
        return self._error(
            FileProblem.WIDER_COLUMN,
            f"column {name!r} is {column.type}, wider than the table's {expected}; rewrite the file, or change the "
            "table's column to the wider type",
        )

    def _incompatible(self, expected: IcebergType, column: FileColumn, name: str) -> UnusableFileError:
        reason = f": {_REASONS[column.kind]}" if column.kind in _REASONS else ""
        return self._error(
            FileProblem.INCOMPATIBLE_COLUMN,
            f"column {name!r} is {column.type}, which cannot be read as the table's {expected}{reason}; rewrite the "
            "file",
        )

    def _check_unknown_id(self, column: FileColumn, name: str) -> None:
        if self._has_ids:
            raise self._error(
                FileProblem.FIELD_ID,
                f"column {name!r} is not in the table, and the file has field ids: a column that is added to the "
                "Iceberg table could get its id. Rewrite the file without field ids, or without this column",
            )

    def _error(self, problem: FileProblem, text: str) -> UnusableFileError:
        return UnusableFileError(self._path, problem, text)

    def check_reserved(self, columns: Sequence[FileColumn]) -> None:
        for column in columns:
            if column.name.lower() in RESERVED_NAMES:
                raise self._error(
                    FileProblem.RESERVED_NAME,
                    f"column {column.name!r} has a name that Iceberg reserves; rewrite the file without it",
                )


def has_ids(columns: Iterable[FileColumn]) -> bool:
    """Return whether any column, or part of one, has a field id; readers of Iceberg then find all columns by ids."""
    return any(column.field_id is not None or has_ids(column.parts) for column in columns)


def match_columns(fields: Sequence[NestedField], columns: Sequence[FileColumn], path: str) -> Match:
    """Match the table's columns with a file's. Either may have columns that the other lacks.

    Args:
        path: The file, for messages.

    Raises:
        UnusableFileError: Two names differ only in case, a name is reserved, a type is incompatible, field ids differ
            from the table's, or the file has columns but none of the table's.
    """
    matching = _Matching(columns, path)
    matching.check_reserved(columns)
    matching.fields(0, fields, columns, "", False)
    if columns and not matching.common_count:
        shown = ", ".join(column.name for column in columns[:_SHOWN])
        raise UnusableFileError(
            path,
            FileProblem.NO_COMMON_COLUMN,
            f"none of its columns ({shown}{', …' if len(columns) > _SHOWN else ''}) is a column of the table; move it "
            "away, or rename its columns",
        )
    return Match(tuple(matching.found), tuple(matching.spellings), tuple(matching.unknown))
