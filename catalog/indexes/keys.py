"""Index keys: the bytes of several partition values, which sort as the values sort."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.key_types import NULL_BYTES, KeyType, KeyValue

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


def decode_key(types: Sequence[KeyType], key: bytes) -> tuple[KeyValue | None, ...]:
    """Return the typed values of a whole index key; the key must not be cut."""
    values: list[KeyValue | None] = []
    position = 0
    for key_type in types:
        if key[position] == NULL_BYTES[0]:
            values.append(None)
            position += 1
        else:
            value, position = key_type.decode(key, position)
            values.append(value)
    return tuple(values)


def after_prefix(prefix: bytes) -> bytes:
    """Return the least bytes above every key that begins with `prefix`; no key begins with `ff`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\xff"
