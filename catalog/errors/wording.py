"""Phrases that many messages have."""

from __future__ import annotations

from collections.abc import Sequence


def first_of(items: Sequence[object], most: int, *, count: int | None = None, separator: str = ", ") -> str:
    """Return the first items, and how many there are besides: `a, b and 3 more`.

    Args:
        most: How many are named.
        count: The number of all of them; None if it is that of `items`.
        separator: With `;`, `and` follows one, too: `a; b; and 3 more`.
    """
    shown = items[:most]
    rest = (len(items) if count is None else count) - len(shown)
    return separator.join(map(str, shown)) + (_rest(rest, separator) if rest > 0 else "")


def _rest(number: int, separator: str) -> str:
    return f"{separator if separator.startswith(';') else ' '}and {number:,} more"
