"""The parts of an ORC file's postscript and footer that contain facts, as Protocol Buffers messages.

PyArrow does not expose column statistics. Defaults of missing numbers are minima above their maxima, which saves a
presence check for each column of each file.

Source: https://orc.apache.org/specification/ORCv1/ and `orc_proto.proto`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from catalog.iceberg.compression import unpacked

MISSING_TEXT = b"\xff"
"""Default of a missing minimum or maximum; no UTF-8 string has this byte."""

_MOST, _LEAST = str(2**63 - 1), str(-(2**63))
_NONE, _ZLIB, _SNAPPY, _LZO, _LZ4, _ZSTD, _BROTLI = range(7)
_CODECS = {_ZLIB: "deflate", _SNAPPY: "snappy", _ZSTD: "zstandard"}
_CHUNK_HEADER = 3
_MOST_BYTES = 256 << 20
"""Maximum size of a footer, decompressed."""

_PACKAGE = "calve_orc"

# Field number, name, type, default.
_MESSAGES: dict[str, tuple[tuple[int, str, str, str | None], ...]] = {
    "PostScript": (
        (1, "footerLength", "uint64", None),
        (2, "compression", "uint32", None),
        (3, "compressionBlockSize", "uint64", None),
        (6, "writerVersion", "uint32", None),
    ),
    "Whole": ((1, "minimum", "sint64", _MOST), (2, "maximum", "sint64", _LEAST)),
    "Floating": ((1, "minimum", "double", "nan"), (2, "maximum", "double", "nan"), (3, "sum", "double", "nan")),
    "Text": (
        (1, "minimum", "bytes", "\\377"),
        (2, "maximum", "bytes", "\\377"),
        (4, "lowerBound", "bytes", "\\377"),
        (5, "upperBound", "bytes", "\\377"),
    ),
    "Bucket": ((1, "count", "repeated uint64", None),),
    "Timestamp": (
        (1, "minimum", "sint64", _MOST),
        (2, "maximum", "sint64", _LEAST),
        (3, "minimumUtc", "sint64", _MOST),
        (4, "maximumUtc", "sint64", _LEAST),
        (5, "minimumNanos", "int32", "1"),
        (6, "maximumNanos", "int32", "1000000"),
    ),
    "ColumnStatistics": (
        (1, "numberOfValues", "uint64", None),
        (2, "whole", "Whole", None),
        (3, "floating", "Floating", None),
        (4, "text", "Text", None),
        (5, "bucket", "Bucket", None),
        (6, "decimal", "Text", None),
        (7, "date", "Whole", None),
        (9, "timestamp", "Timestamp", None),
        (10, "hasNull", "bool", "true"),
        (11, "bytesOnDisk", "uint64", None),
    ),
    "Stripe": ((1, "offset", "uint64", None),),
    "Type": (
        (1, "kind", "uint32", None),
        (2, "subtypes", "repeated uint32", None),
        (3, "fieldNames", "repeated bytes", None),
        (5, "precision", "uint32", None),
        (6, "scale", "uint32", None),
        (7, "attributes", "repeated Attribute", None),
    ),
    "Attribute": ((1, "key", "string", None), (2, "value", "string", None)),
    "Footer": (
        (3, "stripes", "repeated Stripe", None),
        # Kept as bytes: they are equal in all files of a table, and parsed once.
        (4, "types", "repeated bytes", None),
        (6, "numberOfRows", "uint64", None),
        (7, "statistics", "repeated ColumnStatistics", None),
        (9, "writer", "uint32", None),
    ),
}


class _Messages(NamedTuple):
    post_script: Any
    footer: Any
    type: Any


class OrcTail(NamedTuple):
    """The end of an ORC file.

    Attributes:
        footer: The message `Footer`.
        writer_version: Version number, counted separately by each writer.
    """

    footer: Any
    writer_version: int


class ShortTailError(Exception):
    """More bytes of the file's end are needed.

    Attributes:
        length: Their number.
    """

    def __init__(self, length: int) -> None:
        """Keep the length."""
        self.length = length
        super().__init__(f"{length} bytes of the file's end are needed")


@cache
def _messages() -> _Messages:
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="calve_orc.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field_name, type_name, default in fields:
            repeated, _, bare = type_name.rpartition(" ")
            label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if bare in _MESSAGES:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".{_PACKAGE}.{bare}"
            else:
                field.type = getattr(field_type, f"TYPE_{bare.upper()}")
            if default is not None:
                field.default_value = default
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)

    def of(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))

    return _Messages(of("PostScript"), of("Footer"), of("Type"))


def parse_type(encoded: bytes) -> Any:
    """Parse one of a footer's types, a message `Type`; raises `ValueError`."""
    return _parse(_messages().type, encoded)


def parse_tail(tail: bytes, size_bytes: int) -> OrcTail:
    """Parse the end of an ORC file.

    Args:
        tail: Some of the file's last bytes.
        size_bytes: Of the whole file.

    Raises:
        ShortTailError: There are too few bytes.
        ValueError: They are not the end of an ORC file.
    """
    post_script_length = tail[-1]
    if post_script_length + 1 > len(tail):
        raise ValueError("its postscript is longer than the file")
    post_script = _parse(_messages().post_script, tail[-1 - post_script_length : -1])
    needed = post_script.footerLength + post_script_length + 1
    if needed > size_bytes:
        raise ValueError(f"its footer would have {post_script.footerLength} bytes, of {size_bytes}")
    if needed > len(tail):
        raise ShortTailError(needed)
    footer = tail[-needed : -1 - post_script_length]
    if post_script.compression != _NONE:
        footer = _decompress(footer, post_script.compression, post_script.compressionBlockSize)
    return OrcTail(_parse(_messages().footer, footer), post_script.writerVersion)


def _parse(message: Any, encoded: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return message.FromString(encoded)
    except DecodeError as error:
        raise ValueError(str(error)) from None


def _decompress(content: bytes, compression: int, block_size: int) -> bytes:
    if compression not in _CODECS and compression != _LZ4:
        raise ValueError(f"its footer uses compression method {compression}; zlib, snappy, lz4 and zstd are supported")
    parts, position, length = list[bytes](), 0, 0
    while position < len(content):
        header = int.from_bytes(content[position : position + _CHUNK_HEADER], "little")
        start = position + _CHUNK_HEADER
        position = start + (header >> 1)
        if position > len(content):
            raise ValueError("a compressed part of its footer is truncated")
        part, most = content[start:position], max(0, min(block_size, _MOST_BYTES - length))
        if not header & 1:
            part = _decompress_lz4(part, most) if compression == _LZ4 else unpacked(_CODECS[compression], part, most)
        parts.append(part)
        length += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_lz4(part: bytes, block_size: int) -> bytes:
    """Decompress a raw LZ4 block, which does not contain its decompressed length; PyArrow requires it.

    Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
    """
    output, position = bytearray(), 0
    try:
        while position < len(part):
            token, position = part[position], position + 1
            length, position = _lz4_length(part, position, token >> 4)
            output += part[position : position + length]
            position += length
            if position >= len(part):
                break
            offset = int.from_bytes(part[position : position + 2], "little")
            length, position = _lz4_length(part, position + 2, token & 0xF)
            if not 0 < offset <= len(output) or len(output) + length > block_size:
                raise ValueError("a compressed part of its footer has an invalid reference")
            # The copied range may overlap the output of the copy.
            pattern = output[-offset:]
            output += (pattern * ((length + 4) // offset + 1))[: length + 4]
    except IndexError:
        raise ValueError("a compressed part of its footer is truncated") from None
    return bytes(output)


def _lz4_length(part: bytes, position: int, length: int) -> tuple[int, int]:
    if length == 0xF:
        while (more := part[position]) == 0xFF:
            length, position = length + more, position + 1
        length, position = length + more, position + 1
    return length, position
