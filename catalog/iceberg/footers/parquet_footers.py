"""Reading of the footers of Parquet files: the schema and the row groups, independent of any table.

PyArrow reads the schema. Everything that depends only on the schema is computed once per schema: the footers of one
table's files usually start with the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.parquet

from catalog.errors import FileProblem, UnusableFileError
from catalog.files.filesystem import FileInfo
from catalog.iceberg.footers.row_groups import RowGroup, Shape, read_row_groups, shape_of
from catalog.iceberg.footers.tails import read_range, read_tail
from catalog.iceberg.footers.thrift import schema_end

UNPACK = {
    "BOOLEAN": struct.Struct("?").unpack,
    "INT32": struct.Struct("<i").unpack,
    "INT64": struct.Struct("<q").unpack,
    "FLOAT": struct.Struct("<f").unpack,
    "DOUBLE": struct.Struct("<d").unpack,
}
"""The physical types with signed order, which even old writers used correctly."""

_MAGIC, _ENCRYPTED_MAGIC = b"PAR1", b"PARE"
_ENDING = 8
"""Bytes after the footer: its length and the magic."""
_SCHEMAS_KEPT = 64
_LAST_FIELDS = 64
"""Maximum bytes of a footer after the orders of its columns."""
_DAMAGES = (
    pyarrow.ArrowException,
    OSError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
)


@contextmanager
def reading_footer(path: str) -> Iterator[None]:
    """Translate errors of parsing a footer.

    Raises:
        UnusableFileError: The file is damaged.
    """
    try:
        yield
    except _DAMAGES as error:
        text = f"its Parquet footer cannot be read: {str(error).strip()}; write the file again"
        raise UnusableFileError(path, FileProblem.DAMAGED, text) from None


@dataclass(frozen=True, eq=False)
class FileSchema:
    """The common parts of footers of one schema.

    Attributes:
        start: The bytes with which they start.
        columns: PyArrow's schema; its columns have the positions of the chunks in row groups.
        positions: Path of a primitive column → its position.
        orders: The bytes of `column_orders` if every column has its type's own order.
    """

    start: bytes
    columns: Any
    shapes: tuple[Shape, ...]
    positions: Mapping[str, int]
    orders: bytes


@dataclass(frozen=True)
class Footer:
    """The footer of a file.

    Attributes:
        is_ordered: The file records the order of its minima and maxima; without it, only those of `UNPACK` are correct.
        rest: The bytes after the row groups.
    """

    schema: FileSchema
    row_count: int
    groups: Sequence[RowGroup]
    is_ordered: bool
    rest: bytes


class FooterParser:
    """Reader of the footers of many files; several threads may share it."""

    def __init__(self) -> None:
        """Create a reader that knows no schema yet."""
        self._schemas: list[FileSchema] = []

    def read(self, file: FileInfo) -> Footer:
        """Return the footer of a file, which is read once, from its end.

        Raises:
            UnusableFileError: It is not a Parquet file, or is damaged.
        """
        footer = _footer(file)
        with reading_footer(file.path):
            schema = self._schema(footer)
            rows, groups, end = read_row_groups(footer, len(schema.start), schema.shapes)
        is_ordered = schema.orders in footer[-len(schema.orders) - _LAST_FIELDS :]
        return Footer(schema, rows, groups, is_ordered, footer[end:-_ENDING])

    def read_schema(self, file: FileInfo) -> FileSchema:
        """Return the common parts of a file's footer; the row groups are not parsed.

        Raises:
            UnusableFileError: It is not a Parquet file, or is damaged.
        """
        footer = _footer(file)
        with reading_footer(file.path):
            return self._schema(footer)

    def _schema(self, footer: bytes) -> FileSchema:
        for schema in self._schemas:
            if footer.startswith(schema.start):
                return schema
        # PyArrow reads only the footer and the bytes after it.
        columns = pyarrow.parquet.read_metadata(pyarrow.BufferReader(footer)).schema
        count = len(columns)
        shapes = tuple(shape_of(columns.column(position)) for position in range(count))
        positions = {columns.column(position).path: position for position in range(count)}
        # A list (0x19) of `count` unions (0xc), each with an empty first field (0x1c).
        header = bytes((0x19, count << 4 | 0xC)) if count < 15 else b"\x19\xfc" + _varint(count)
        orders = header + b"\x1c\x00\x00" * count
        schema = FileSchema(footer[: schema_end(footer)], columns, shapes, positions, orders)
        self._schemas = [schema, *self._schemas[: _SCHEMAS_KEPT - 1]]
        return schema


def _footer(file: FileInfo) -> bytes:
    """Return a file's footer, including the bytes after it."""
    tail = read_tail(file)
    if tail[-4:] != _MAGIC or len(tail) < _ENDING + len(_MAGIC):
        raise _no_parquet(file, tail)
    length = int.from_bytes(tail[-8:-4], "little") + _ENDING
    if length > file.size_bytes - len(_MAGIC) or length == _ENDING:
        text = f"its Parquet footer would have {length - _ENDING} bytes, of {file.size_bytes}; write the file again"
        raise UnusableFileError(file.path, FileProblem.DAMAGED, text)
    if length > len(tail):
        tail = read_tail(file, length)
    return tail[-length:]


def _no_parquet(file: FileInfo, tail: bytes) -> UnusableFileError:
    if tail[-4:] == _ENCRYPTED_MAGIC:
        text = "it is a Parquet file with an encrypted footer; write it again without encryption"
        return UnusableFileError(file.path, FileProblem.FOREIGN, text)
    if read_range(file, 0, len(_MAGIC)) == _MAGIC:
        return UnusableFileError(
            file.path,
            FileProblem.DAMAGED,
            "it starts like a Parquet file but does not end like one; write the file again",
        )
    return UnusableFileError(
        file.path, FileProblem.FOREIGN, "it is not a Parquet file; move it away, or skip such files"
    )


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))
