"""Bounds of columns in Iceberg's single-value serialization.

Source: https://iceberg.apache.org/spec/#appendix-d-single-value-serialization. Lower bounds of strings and binaries are
truncated, upper ones truncated and incremented: https://iceberg.apache.org/spec/#data-file-fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

CUT_LENGTH = 16
"""Default length in characters of a string or bytes of a binary: Iceberg's default metrics mode, `truncate(16)`."""

_LAST_ASCII = 0x7F
_SURROGATES = range(0xD800, 0xE000)
_LAST_CODE_POINT = 0x10FFFF

UNUSABLE = (ValueError, OverflowError, struct.error, InvalidOperation)
"""Errors of the functions of `Bounds` for a value that cannot be a bound of the column."""


class Bounds(NamedTuple):
    """Conversion of a footer's minimum and maximum to bounds.

    Attributes:
        comparable: Converts a footer's value to one that compares as the column's values do; None when no conversion is
            needed.
        lower: Serializes a minimum.
        upper: Serializes a maximum; returns None when there is no upper bound of this length.
    """

    comparable: Callable[[Any], Any] | None
    lower: Callable[[Any], bytes]
    upper: Callable[[Any], bytes | None]


def checked_text(text: bytes) -> bytes:
    """Return a UTF-8 string unchanged.

    Raises:
        ValueError: It is not UTF-8.
    """
    if not text.isascii():
        text.decode()
    return text


def cut_text_lower(text: bytes, length: int = CUT_LENGTH) -> bytes:
    """Return the first characters of a UTF-8 string."""
    if text.isascii():
        return text[:length]
    return text.decode()[:length].encode()


def cut_text_upper(text: bytes, length: int = CUT_LENGTH) -> bytes | None:
    """Return a short upper bound of all UTF-8 strings with the same prefix; None when there is none."""
    if text.isascii():
        if len(text) <= length:
            return text
        if text[length - 1] < _LAST_ASCII:
            return text[: length - 1] + bytes((text[length - 1] + 1,))
    characters = text.decode()
    if len(characters) <= length:
        return text
    for position in range(length - 1, -1, -1):
        code_point = ord(characters[position]) + 1
        if code_point in _SURROGATES:
            code_point = _SURROGATES.stop
        if code_point <= _LAST_CODE_POINT:
            return (characters[:position] + chr(code_point)).encode()
    return None


def cut_binary_lower(value: bytes, length: int = CUT_LENGTH) -> bytes:
    """Return the first bytes."""
    return value[:length]


def cut_binary_upper(value: bytes, length: int = CUT_LENGTH) -> bytes | None:
    """Return a short upper bound of all values with the same prefix; None when there is none."""
    if len(value) <= length:
        return value
    kept = value[:length].rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None


def decimal_bytes(unscaled: int) -> bytes:
    """Return a decimal's unscaled integer in the minimum number of bytes."""
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def unscaled(text: bytes, scale: int) -> int:
    """Return the unscaled integer of a decimal's string.

    Raises:
        ValueError: It is not a number, or its fraction has more digits than the scale.
    """
    whole, _, fraction = text.partition(b".")
    if len(fraction) <= scale and text[-1:].isdigit() and b"E" not in text:
        return int(whole + fraction.ljust(scale, b"0"))
    shifted = Decimal(text.decode()).scaleb(scale)
    if shifted != int(shifted):
        raise ValueError(text)
    return int(shifted)


def _not_nan(value: float) -> float:
    if value != value:
        raise ValueError("NaN")
    return value


def _float_bounds(pack: Callable[[float], bytes]) -> Bounds:
    negative_zero, zero = pack(-0.0), pack(0.0)
    # Iceberg sorts -0.0 before 0.0; writers of footers do not distinguish them.
    return Bounds(
        _not_nan,
        lambda value: pack(value) if value else negative_zero,
        lambda value: pack(value) if value else zero,
    )


INT = Bounds(None, struct.Struct("<i").pack, struct.Struct("<i").pack)
LONG = Bounds(None, struct.Struct("<q").pack, struct.Struct("<q").pack)
BOOLEAN = Bounds(None, struct.Struct("?").pack, struct.Struct("?").pack)
FLOAT = _float_bounds(struct.Struct("<f").pack)
DOUBLE = _float_bounds(struct.Struct("<d").pack)
TEXT = Bounds(None, checked_text, checked_text)
BINARY = Bounds(None, bytes, bytes)
"""Not truncated here: the table's metrics mode sets the length (`catalog.iceberg.metrics`)."""
DECIMAL = Bounds(None, decimal_bytes, decimal_bytes)
DECIMAL_OF_BYTES = Bounds(lambda raw: int.from_bytes(raw, "big", signed=True), decimal_bytes, decimal_bytes)
