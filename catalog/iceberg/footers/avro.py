"""Facts of Avro files: row counts, which are stored per block. Avro files have no statistics.

Source: https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType

from catalog.errors import FileProblem, UnusableFileError
from catalog.files.filesystem import FileInfo
from catalog.files.locations import is_local
from catalog.iceberg.footers.calendars import calendar_of
from catalog.iceberg.footers.columns import FileColumn, Match, match_columns
from catalog.iceberg.footers.facts import FileFacts
from catalog.iceberg.footers.tails import read_range

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_LONGEST_NUMBER = 10
_SCHEMA = b"avro.schema"
_FIRST_BYTES = 1 << 14
_LOCAL_BYTES, _REMOTE_BYTES = 1 << 9, 1 << 20
"""Bytes to read at once between blocks: over a network, reading ahead is faster than another request."""
_SCHEMAS_KEPT = 64

_KINDS = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamptz",
    ("long", "timestamp-micros"): "timestamptz",
    ("long", "local-timestamp-millis"): "other",
    ("long", "local-timestamp-micros"): "other",
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
    ("bytes", None): "binary",
    ("enum", None): "string",
    ("fixed", None): "binary",
    ("int", "time-millis"): "other",
    ("long", "time-micros"): "other",
    # Iceberg's Spark readers fail at the first value.
    ("string", "uuid"): "other",
}
_PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")


class AvroReader:
    """Reader of the facts of the Avro files of one table."""

    def __init__(self, columns: Sequence[NestedField]) -> None:
        """Prepare for the table's columns without its partition keys."""
        self._columns = columns
        self._matches: dict[bytes, Match] = {}

    def read(self, file: FileInfo) -> FileFacts:
        """Return the facts of a file that is not empty; raises `UnusableFileError`."""
        content = _Content(file)
        if content.take(len(_MAGIC)) != _MAGIC:
            text = "it is not an Avro file; move it away, or skip such files"
            raise UnusableFileError(file.path, FileProblem.FOREIGN, text)
        metadata = _metadata(content)
        schema = metadata.get(_SCHEMA)
        if schema is None:
            raise _damaged(file, "it has no schema")
        match = self._matches.get(schema)
        if match is None:
            if len(self._matches) >= _SCHEMAS_KEPT:
                self._matches.clear()
            match = self._matches[schema] = match_columns(self._columns, _file_columns(schema, file), file.path)
        undated = tuple(_undated(metadata, match))
        return FileFacts(_row_count(content), {}, {}, {}, {}, {}, {}, None, match.spellings, undated=undated)


class _Content:
    """A file that is read sequentially, with large parts skipped."""

    def __init__(self, file: FileInfo) -> None:
        self.file = file
        self._start = self._position = 0
        self._window = _LOCAL_BYTES if is_local(file.path) else _REMOTE_BYTES
        self._bytes = read_range(file, 0, max(_FIRST_BYTES, self._window))

    @property
    def is_at_end(self) -> bool:
        return self._position == self.file.size_bytes

    def take(self, length: int) -> bytes:
        if length < 0 or self._position + length > self.file.size_bytes:
            raise _damaged(self.file, "it is truncated")
        begin = self._position - self._start
        if begin + length > len(self._bytes):
            self._start, begin = self._position, 0
            self._bytes = read_range(self.file, self._position, max(length, self._window))
            if len(self._bytes) < length:
                raise _damaged(self.file, "it is truncated")
        self._position += length
        return self._bytes[begin : begin + length]

    def number(self) -> int:
        number = shift = 0
        while shift < 7 * _LONGEST_NUMBER:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number >> 1 ^ -(number & 1)
            shift += 7
        raise _damaged(self.file, "a number in it is not terminated")

    def skip(self, length: int) -> None:
        if length < 0 or self._position + length > self.file.size_bytes:
            raise _damaged(self.file, "it is truncated")
        self._position += length
        if self._position - self._start > len(self._bytes):
            self._start, self._bytes = self._position, b""


def _damaged(file: FileInfo, problem: str) -> UnusableFileError:
    return UnusableFileError(file.path, FileProblem.DAMAGED, f"it is an Avro file, and {problem}; write the file again")


def _metadata(content: _Content) -> dict[bytes, bytes]:
    """Read a file's header without the sync marker at its end; return its metadata."""
    metadata = {}
    while count := content.number():
        if count < 0:
            # A negative count is followed by the size in bytes.
            count = -count
            content.number()
        for _ in range(count):
            key = content.take(content.number())
            metadata[key] = content.take(content.number())
    return metadata


def _undated(metadata: Mapping[bytes, bytes], match: Match) -> Iterator[str]:
    """Yield the columns that may have values of an older calendar, which other readers convert."""

    def text(key: str) -> str | None:
        value = metadata.get(key.encode())
        return None if value is None else value.decode("utf-8", "replace")

    calendar = calendar_of(text, is_by_java=False)
    for column in match.found if calendar.first_day is not None else ():
        if isinstance(column.type, DateType | TimestampType | TimestamptzType):
            yield column.name


def _row_count(content: _Content) -> int:
    marker, rows = content.take(_SYNC_BYTES), 0
    while not content.is_at_end:
        count = content.number()
        if count < 0:
            raise _damaged(content.file, "a block in it has a negative number of rows")
        rows += count
        content.skip(content.number())
        if content.take(_SYNC_BYTES) != marker:
            raise _damaged(content.file, "a block in it does not end with the sync marker")
    return rows


def _file_columns(schema: bytes, file: FileInfo) -> tuple[FileColumn, ...]:
    try:
        root = _Types().column("", json.loads(schema))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise _damaged(file, f"its schema cannot be read ({error})") from None
    if root.kind != "struct":
        text = f"its rows are of type {root.type} and have no columns; write the file again"
        raise UnusableFileError(file.path, FileProblem.INCOMPATIBLE_COLUMN, text)
    return root.parts


class _Types:
    """The types of a schema; a named type may be referenced later."""

    def __init__(self) -> None:
        self._named: dict[str, FileColumn] = {}

    def column(self, name: str, declared: Any, field_id: int | None = None) -> FileColumn:
        """Return a declared column, or a part of one; the field id comes from the enclosing type."""
        return replace(self._column(name, declared), field_id=field_id)

    def _column(self, name: str, declared: Any) -> FileColumn:
        if isinstance(declared, list):
            own = [branch for branch in declared if branch != "null"]
            return self._column(name, own[0]) if len(own) == 1 else FileColumn(name, "a union", "other", -1)
        if isinstance(declared, str):
            if declared in _PLAIN:
                return FileColumn(name, declared, _KINDS.get((declared, None), declared), -1)
            return replace(self._named[declared], name=name)
        column = self._declared(name, declared)
        if "name" in declared:
            self._named[declared["name"]] = column
            self._named[f"{declared.get('namespace', '')}.{declared['name']}"] = column
        return column

    def _declared(self, name: str, declared: Mapping[str, Any]) -> FileColumn:
        kind, logical = declared["type"], declared.get("logicalType")
        match kind:
            case "record":
                # A recursive record matches no table column.
                self._named[declared["name"]] = FileColumn(name, "a record in itself", "other", -1)
                parts = tuple(
                    self.column(field["name"], field["type"], field.get("field-id")) for field in declared["fields"]
                )
                return FileColumn(name, "a record", "struct", -1, parts)
            case "array":
                element = self.column("element", declared["items"], declared.get("element-id"))
                return FileColumn(name, "an array", "list", -1, (element,))
            case "map":
                key = FileColumn("key", "string", "string", -1, field_id=declared.get("key-id"))
                value = self.column("value", declared["values"], declared.get("value-id"))
                return FileColumn(name, "a map", "map", -1, (key, value))
        if not isinstance(kind, str):
            return self._column(name, kind)
        known = _KINDS.get((kind, logical)) or _KINDS.get((kind, None), kind)
        precision, scale = declared.get("precision", 0), declared.get("scale", 0)
        shown = kind if logical is None else f"{kind} ({logical})"
        return FileColumn(name, shown, known, -1, (), precision, scale)
