"""As much of Thrift's compact protocol as finds the end of a Parquet footer's schema.

Sources: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md;
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift (`FileMetaData`).
"""

from __future__ import annotations

_VERSION, _SCHEMA = 0x15, 0x19
"""Headers of the first two fields: each one number above the one before; an i32, a list."""
_STRUCT, _BYTE, _DOUBLE, _BINARY = 12, 3, 7, 8
_TRUE, _FALSE, _I16, _I32, _I64 = 1, 2, 4, 5, 6
_LONG_LIST = 15


def schema_end(footer: bytes) -> int:
    """Return where a footer's schema ends.

    Raises:
        ValueError: The footer does not begin with a version and a schema, one after the other.
    """
    if footer[0] != _VERSION:
        raise ValueError("a footer that begins with no version")
    _, position = _varint(footer, 1)
    if footer[position] != _SCHEMA:
        raise ValueError("a footer whose second field is no schema")
    return _skip_list(footer, position + 1)


def _varint(content: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


def _skip_list(content: bytes, position: int) -> int:
    header = content[position]
    count, position = header >> 4, position + 1
    if count == _LONG_LIST:
        count, position = _varint(content, position)
    for _ in range(count):
        position = _skip_value(content, position, header & 0xF, is_element=True)
    return position


def _skip_struct(content: bytes, position: int) -> int:
    while header := content[position]:
        position += 1
        if not header >> 4:
            _, position = _varint(content, position)
        position = _skip_value(content, position, header & 0xF, is_element=False)
    return position + 1


def _skip_value(content: bytes, position: int, kind: int, *, is_element: bool) -> int:
    if kind in (_TRUE, _FALSE):
        # A field's header is its value.
        return position + is_element
    if kind == _BYTE:
        return position + 1
    if kind in (_I16, _I32, _I64):
        return _varint(content, position)[1]
    if kind == _DOUBLE:
        return position + 8
    if kind == _BINARY:
        length, position = _varint(content, position)
        return position + length
    if kind == _STRUCT:
        return _skip_struct(content, position)
    raise ValueError(f"type {kind} in a footer's schema")
