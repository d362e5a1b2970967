"""Parser of the row groups of a Parquet footer. PyArrow is slower, and aborts the process on a damaged footer.

The metadata of a column chunk usually have the same structure in all files, which one regular expression parses;
anything else is parsed by a reader of Thrift's compact protocol.

Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from catalog.iceberg.footers.thrift import read_struct, read_varint, skip_struct, unzigzag

Chunk = tuple[int, int, int | None, bytes | None, bytes | None]
"""Facts about a column in a row group: number of values, including nulls; compressed bytes; number of nulls; minimum
and maximum, in the order of the column's type, or of signed numbers, in Parquet's plain encoding. The last three are
None when unknown. (Creating a named tuple takes longer than parsing.)
"""


class RowGroup(NamedTuple):
    """A row group.

    Attributes:
        start: Offset of its pages in the file.
        chunks: One per column.
        run_lengths: Positions of boolean columns whose values are run-length encoded.
    """

    start: int
    chunks: list[Chunk]
    run_lengths: tuple[int, ...] = ()


class Shape(NamedTuple):
    """The usual structure of a column's chunks.

    Attributes:
        pattern: The expression that most of them match; None when there is none.
        width: Bytes per value; None when it varies.
        is_boolean: The pattern does not match chunks with run-length encoded values.
    """

    pattern: re.Pattern[bytes] | None
    width: int | None
    is_boolean: bool = False


_PHYSICAL_TYPES = {
    "BOOLEAN": (0, 1),
    "INT32": (1, 4),
    "INT64": (2, 8),
    "INT96": (3, 12),
    "FLOAT": (4, 4),
    "DOUBLE": (5, 8),
    "BYTE_ARRAY": (6, None),
    "FIXED_LEN_BYTE_ARRAY": (7, None),
}

_NUMBER = rb"[\x80-\xff]*+[\x00-\x7f]"
_LISTS_OF_NUMBERS = b"|".join(
    re.escape(bytes((count << 4 | 6,))) + b"(?:" + _NUMBER + b"){%d}" % count for count in range(5)
)
_LISTS_OF_ENCODINGS = b"|".join(
    re.escape(bytes((count << 4 | 5,))) + rb"[\x00-\x7f]{%d}" % count for count in range(1, 8)
)
_LISTS_WITH_PLAIN = b"|".join(
    re.escape(bytes((count << 4 | 5,))) + rb"(?=[\x00-\x7f]{0,%d}\x00)[\x00-\x7f]{%d}" % (count - 1, count)
    for count in range(1, 8)
)
_BEGINNING = rb"\x26%(n)b\x1c\x15%(type)b\x19(?:%(encodings)b)%(path)b\x15[\x00-\x7f]"
_NUMBERS = rb"\x16(%(n)b)\x16%(n)b\x16(%(n)b)\x26%(n)b(?:\x26%(n)b)?[\x1c\x3c]"
_STATISTICS = (
    rb"(?:\x18%(width)b(.{%(count)d})\x18%(width)b(.{%(count)d}))?(?:[\x16\x36](%(n)b))?(?:\x16%(n)b)?"
    rb"(?:[\x18\x28\x38\x58]%(width)b(.{%(count)d})\x18%(width)b(.{%(count)d}))?"
)
_ENDING = (
    # Exactness of minimum and maximum; encodings of pages; Bloom filter; sizes.
    rb"[\x11\x12]{0,2}\x00(?:\x19[\x1c\x2c\x3c\x4c\x5c](?:\x15%(n)b\x15%(encoding)b\x15%(n)b\x00)+)?"
    rb"(?:[\x16\x26]%(n)b(?:\x15%(n)b)?)?"
    rb"(?:[\x1c\x2c\x3c\x4c](?:\x16%(n)b)?(?:[\x19\x29\x39](?:%(lists)b))?(?:\x19(?:%(lists)b))?\x00)?\x00"
    # Offsets of the page indexes.
    rb"(?:\x16%(n)b\x15%(n)b)?(?:[\x16\x36]%(n)b\x15%(n)b)?\x00"
)
_NULL_COUNT = re.compile(rb"\x36(" + _NUMBER + rb")\x28([\x00-\x7f])", re.DOTALL)
_END_OF_CHUNK = re.compile(_ENDING % {b"n": _NUMBER, b"encoding": _NUMBER, b"lists": _LISTS_OF_NUMBERS}, re.DOTALL)
_BINARY_FIELD = 0x18
_DATA_PAGES = (0, 3)
"""The types of data pages, version 1 and 2."""
_PLAIN, _RUN_LENGTHS = 0, 3
_NOT_RUN_LENGTHS = rb"[\x00-\x05\x07-\x7f]"
_NUMBERS_KEPT = 1 << 16


def shape_of(leaf: Any) -> Shape:
    """Return the usual structure of a column's chunks, given PyArrow's column schema."""
    number, width = _PHYSICAL_TYPES[leaf.physical_type]
    if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = leaf.length
    is_boolean = leaf.physical_type == "BOOLEAN"
    name = leaf.name.encode()
    if leaf.path != leaf.name or leaf.max_repetition_level or len(name) > 0x7F or (width or 0) > 0x3F:
        return Shape(None, width, is_boolean)
    parts = {
        b"n": _NUMBER,
        b"type": bytes((number << 1,)),
        b"encodings": _LISTS_WITH_PLAIN if is_boolean else _LISTS_OF_ENCODINGS,
        b"encoding": _NOT_RUN_LENGTHS if is_boolean else _NUMBER,
        b"path": rb"\x19\x18" + re.escape(bytes((len(name),)) + name),
        b"lists": _LISTS_OF_NUMBERS,
    }
    pattern = (_BEGINNING + _NUMBERS) % parts
    if width is not None:
        pattern += (_STATISTICS + _ENDING) % {**parts, b"width": re.escape(bytes((width,))), b"count": width}
    return Shape(re.compile(pattern, re.DOTALL), width, is_boolean)


def read_row_groups(footer: bytes, position: int, shapes: Sequence[Shape]) -> tuple[int, list[RowGroup], int]:
    """Return the row count of a footer, its row groups, and the position after them.

    Args:
        position: Where the footer's schema ends.
        shapes: Of the schema's columns.

    Raises:
        ValueError, IndexError, KeyError, TypeError, AttributeError: The footer is damaged.
    """
    if footer[position] != 0x16:
        raise ValueError("it has no row count")
    rows, position = read_varint(footer, position + 1)
    if footer[position] != 0x19 or footer[position + 1] & 0xF != 0xC:
        raise ValueError("it has no row groups")
    count, position = _list_length(footer, position + 1)
    groups = []
    for _ in range(count):
        group, position = _read_row_group(footer, position, shapes)
        groups.append(group)
    rows = unzigzag(rows)
    if rows < 0 or any(values < 0 or size < 0 for group in groups for values, size, *_ in group.chunks):
        raise ValueError("it has negative counts")
    return rows, groups, position


def _list_length(footer: bytes, position: int) -> tuple[int, int]:
    count = footer[position] >> 4
    return read_varint(footer, position + 1) if count == 0xF else (count, position + 1)


def _read_row_group(footer: bytes, position: int, shapes: Sequence[Shape]) -> tuple[RowGroup, int]:
    if footer[position] != 0x19 or footer[position + 1] & 0xF != 0xC:
        raise ValueError("a row group has no columns")
    count, position = _list_length(footer, position + 1)
    if count != len(shapes) or not count:
        raise ValueError(f"a row group has {count} columns, and the schema {len(shapes)}")
    start = _start(footer, position)
    numbers = _DECODED
    chunks: list[Chunk] = []
    run_lengths: tuple[int, ...] = ()
    for pattern, width, is_boolean in shapes:
        match = pattern.match(footer, position) if pattern is not None else None
        if match is None:
            if is_boolean and _has_run_lengths(footer, position):
                run_lengths = (*run_lengths, len(chunks))
            chunk, position = read_chunk(footer, position, width)
        elif width is None:
            chunk, position = _texts(footer, position, match)
        else:
            values, size, old_high, old_low, nulls, high, low = match.groups()
            chunk = (
                numbers[values],
                numbers[size],
                None if nulls is None else numbers[nulls],
                old_low if low is None else low,
                old_high if high is None else high,
            )
            position = match.end()
        chunks.append(chunk)
    return RowGroup(start, chunks, run_lengths), skip_struct(footer, position)


def _has_run_lengths(footer: bytes, position: int) -> bool:
    """Return whether the values of a chunk of booleans are run-length encoded.

    The page statistics tell the encoding. Without them, the encodings of levels and values are in one list: levels are
    run-length encoded, so only a list without the plain encoding implies that values are, too.
    """
    described = read_struct(footer, position)[0][3]
    if (pages := described.get(13)) is not None:
        count, position = _list_length(pages, 0)
        for _ in range(count):
            page, position = read_struct(pages, position)
            if page[1] in _DATA_PAGES and page[2] == _RUN_LENGTHS:
                return True
        return False
    listed = described[2]
    count, position = _list_length(listed, 0)
    encodings = {unzigzag(number) for number in listed[position : position + count]}
    return _RUN_LENGTHS in encodings and _PLAIN not in encodings


def _start(footer: bytes, position: int) -> int:
    """Return the offset of the first page of a chunk."""
    described = read_struct(footer, position)[0][3]
    data: int = described[9]
    # Some writers store 0 if there is no dictionary.
    return min(data, described.get(11) or data)


def _texts(footer: bytes, start: int, match: re.Match[bytes]) -> tuple[Chunk, int]:
    """Return a chunk of variable-length values, which the expression does not cover, and the position after it."""
    known = _NULL_COUNT.match(footer, match.end())
    if known is not None:
        begin = known.end()
        middle = begin + known[2][0]
        length = footer[middle + 1]
        if footer[middle] == _BINARY_FIELD and length < 0x80:
            end = middle + 2 + length
            rest = _END_OF_CHUNK.match(footer, end)
            if rest is not None:
                values, size = match.groups()
                low, high = footer[middle + 2 : end], footer[begin:middle]
                return (_DECODED[values], _DECODED[size], _DECODED[known[1]], low, high), rest.end()
    return read_chunk(footer, start, None)


class _Numbers(dict[bytes, int]):
    """Encoding of a number → the number; a cache, because most numbers recur."""

    def __missing__(self, encoded: bytes) -> int:
        number = unzigzag(read_varint(encoded, 0)[0])
        if len(self) < _NUMBERS_KEPT:
            self[encoded] = number
        return number


_DECODED = _Numbers()


def read_chunk(footer: bytes, position: int, width: int | None) -> tuple[Chunk, int]:
    """Return a chunk of any structure, and the position after it; raises like `read_row_groups`."""
    fields, position = read_struct(footer, position)
    described = fields[3]
    statistics = described.get(12, {})
    # The deprecated fields 1 and 2 compare signed bytes if values vary in length.
    high = statistics.get(5, None if width is None else statistics.get(1))
    low = statistics.get(6, None if width is None else statistics.get(2))
    values, size, nulls = described[5], described[7], statistics.get(3)
    if not all(isinstance(number, int) for number in (values, size, 0 if nulls is None else nulls)):
        raise TypeError("a column's counts are not numbers")
    are_bytes = isinstance(low, bytes) and isinstance(high, bytes)
    if not are_bytes or (width is not None and not len(low) == len(high) == width):
        low = high = None
    return (values, size, nulls, low, high), position
