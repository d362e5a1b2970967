"""Thrift's compact protocol, as far as Parquet footers need it.

Sources: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md;
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift (`FileMetaData`).
"""

from __future__ import annotations

from typing import Any

_VERSION, _SCHEMA = 0x15, 0x19
"""Headers of the first two fields, with consecutive numbers: an i32 and a list."""
_STRUCT, _BYTE, _DOUBLE, _BINARY, _LIST, _SET = 12, 3, 7, 8, 9, 10
_TRUE, _FALSE, _I16, _I32, _I64 = 1, 2, 4, 5, 6
_LONG_LIST = 15
_LONGEST_NUMBER_BITS = 70
_DEEPEST = 32


def schema_end(footer: bytes) -> int:
    """Return the position after a footer's schema.

    Raises:
        ValueError: The footer does not start with a version followed by a schema.
    """
    if footer[0] != _VERSION:
        raise ValueError("a footer that does not start with a version")
    _, position = read_varint(footer, 1)
    if footer[position] != _SCHEMA:
        raise ValueError("a footer whose second field is not a schema")
    return _skip_list(footer, position + 1)


def unzigzag(number: int) -> int:
    """Return the signed number of its zigzag encoding."""
    return number >> 1 ^ -(number & 1)


def read_varint(content: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned number and the position after it; raises `IndexError` or `ValueError`."""
    number = shift = 0
    while shift < _LONGEST_NUMBER_BITS:
        byte = content[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise ValueError("an unterminated number in a footer")


def _skip_list(content: bytes, position: int) -> int:
    header = content[position]
    count, position = header >> 4, position + 1
    if count == _LONG_LIST:
        count, position = read_varint(content, position)
    if count > len(content):
        raise ValueError("a truncated list in a footer")
    for _ in range(count):
        position = _skip_value(content, position, header & 0xF, is_element=True)
    return position


def skip_struct(content: bytes, position: int) -> int:
    """Return the position after a struct, of which the first fields may have been read."""
    while header := content[position]:
        position += 1
        if not header >> 4:
            _, position = read_varint(content, position)
        position = _skip_value(content, position, header & 0xF, is_element=False)
    return position + 1


def _skip_value(content: bytes, position: int, kind: int, *, is_element: bool) -> int:
    if kind in (_TRUE, _FALSE):
        # The header of a boolean field contains its value.
        return position + is_element
    if kind == _BYTE:
        return position + 1
    if kind in (_I16, _I32, _I64):
        return read_varint(content, position)[1]
    if kind == _DOUBLE:
        return position + 8
    if kind == _BINARY:
        length, position = read_varint(content, position)
        return position + length
    if kind == _STRUCT:
        return skip_struct(content, position)
    if kind in (_LIST, _SET):
        return _skip_list(content, position)
    raise ValueError(f"type {kind} in a footer's schema")


def read_struct(content: bytes, position: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return a struct's fields by their number, and the position after it; raises `IndexError` or `ValueError`."""
    if depth > _DEEPEST:
        raise ValueError("too deeply nested structs in a footer")
    fields: dict[int, Any] = {}
    number = 0
    while header := content[position]:
        position += 1
        if header >> 4:
            number += header >> 4
        else:
            encoded, position = read_varint(content, position)
            number = unzigzag(encoded)
        kind = header & 0xF
        if kind in (_TRUE, _FALSE):
            fields[number] = kind == _TRUE
        elif kind in (_I16, _I32, _I64):
            encoded, position = read_varint(content, position)
            fields[number] = unzigzag(encoded)
        elif kind == _BINARY:
            length, position = read_varint(content, position)
            if position + length > len(content):
                raise ValueError("a truncated string in a footer")
            fields[number] = content[position : position + length]
            position += length
        elif kind == _STRUCT:
            fields[number], position = read_struct(content, position, depth + 1)
        else:
            start, position = position, _skip_value(content, position, kind, is_element=False)
            fields[number] = content[start:position]
    return fields, position + 1
