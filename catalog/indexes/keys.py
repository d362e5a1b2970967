"""Index keys: the bytes of several partition values, which sort as the values sort."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.types.key_types import NULL_BYTES, TEXT_END, KeyType, KeyValue

MAXIMUM_KEY_BYTES = 1024
"""Longer index keys are cut here.

PostgreSQL's B-tree takes about 2,700 bytes an entry. Cutting keeps the order of what differs before the cut, so a
range over cut keys still finds every match; whoever reads a key of this length checks the partition's own values.
"""


def encode_key(types: Sequence[KeyType], values: Sequence[KeyValue | None]) -> bytes:
    """Return the index key of typed values; fewer values than types make the key's prefix."""
    return b"".join(
        NULL_BYTES if value is None else key_type.encode(value) for key_type, value in zip(types, values, strict=False)
    )


def cut_key(key: bytes) -> bytes:
    """Return the key as an item stores it."""
    return key[:MAXIMUM_KEY_BYTES]


def is_cut(key: bytes) -> bool:
    """Say whether a stored key may lack its end."""
    return len(key) >= MAXIMUM_KEY_BYTES


def split_key(types: Sequence[KeyType], key: bytes) -> list[bytes]:
    """Return the bytes of each value of a whole index key; the key must not be cut."""
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
    """Return the typed value of one of `split_key`'s pieces."""
    return None if piece[0] == NULL_BYTES[0] else key_type.decode(piece, 0)[0]


def after_prefix(prefix: bytes) -> bytes:
    """Return the least bytes above every key that begins with `prefix`; no key begins with `ff`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\xff"
