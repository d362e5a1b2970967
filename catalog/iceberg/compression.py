"""Unpacking of compressed parts of files with limited memory: a small file may unpack to more than the memory holds."""

from __future__ import annotations

import bz2
import zlib

import pyarrow

_LONGEST_PREFIX = 5
_MORE, _BITS = 0x80, 7


def unpacked(codec: str, part: bytes, most: int) -> bytes:
    """Return the bytes of a compressed part.

    Args:
        codec: `deflate` (without a header), `bzip2`, `zstandard` or `snappy`.
        most: The maximum number of bytes that the part may unpack to.

    Raises:
        ValueError: The part is damaged, or unpacks to more bytes.
        NotImplementedError: The codec is none of these.
    """
    try:
        contents = _beginning(codec, part, most + 1)
    except (zlib.error, pyarrow.ArrowException, OSError, EOFError) as error:
        raise ValueError(f"a compressed part is damaged: {error}") from None
    if contents is None or len(contents) > most:
        raise ValueError(f"a compressed part has more than {most:,} bytes, the maximum here")
    return contents


def _beginning(codec: str, part: bytes, limit: int) -> bytes | None:
    """Return the first bytes of a part, up to a limit; None if the part says that it has more."""
    match codec:
        case "deflate":
            inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            contents = inflate.decompress(part, limit)
            if not inflate.eof and len(contents) < limit:
                raise EOFError("it is truncated")
            return contents
        case "bzip2":
            expand = bz2.BZ2Decompressor()
            contents = expand.decompress(part, limit)
            if not expand.eof and len(contents) < limit:
                raise EOFError("it is truncated")
            return contents
        case "zstandard":
            return bytes(pyarrow.CompressedInputStream(pyarrow.BufferReader(part), "zstd").read(limit))
        case "snappy":
            if (length := _snappy_length(part)) > limit:
                return None
            return bytes(pyarrow.Codec("snappy").decompress(part, length, asbytes=True))
    raise NotImplementedError(f"the codec {codec!r} is not supported")


def _snappy_length(part: bytes) -> int:
    """Return the unpacked length of a part, which is stored at its start.

    Source: https://github.com/google/snappy/blob/main/format_description.txt
    """
    length = 0
    for number, byte in enumerate(part[:_LONGEST_PREFIX]):
        length |= (byte & ~_MORE) << _BITS * number
        if byte < _MORE:
            return length
    raise ValueError("a compressed part has an invalid length")
