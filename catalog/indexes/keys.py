"""Index keys: concatenated bytes of several partition values, which sort as the values do."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.types.key_types import NULL_BYTES, TEXT_END, KeyType, KeyValue

MAXIMUM_KEY_BYTES = 1024
"""Maximum length of a stored index key; longer keys are cut.

PostgreSQL's B-tree allows about 2,700 bytes per entry. Cut keys keep their order as far as they differ before the cut,
so a range over them still finds every match; for a key of this length, readers check the partition's own values.
"""


def cut_key(key: bytes) -> bytes:
    """Return the key as stored in an item."""
    return key[:MAXIMUM_KEY_BYTES]


def is_cut(key: bytes) -> bool:
    """Return whether a stored key may have been cut."""
    return len(key) >= MAXIMUM_KEY_BYTES


def split_key(types: Sequence[KeyType], key: bytes) -> list[bytes]:
    """Return the bytes of each value of an index key that is not cut."""
    pieces: list[bytes] = []
    start = 0
    for key_type in types:
        if key[start] == NULL_BYTES[0]:
            end = start + 1
        else:
            end = start + key_type.width if key_type.width else key.index(TEXT_END, start) + 1
        pieces.append(key[start:end])
        start = end
    return pieces


def decode_value(key_type: KeyType, piece: bytes) -> KeyValue | None:
    """Return the typed value of one piece from `split_key`."""
    return None if piece[0] == NULL_BYTES[0] else key_type.decode(piece, 0)[0]


def after_prefix(prefix: bytes) -> bytes:
    """Return the exclusive upper bound of all keys that start with `prefix`; no key starts with `ff`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\xff"
