"""Ranges of encoded key values, intersected for AND and united for OR.

The bytes of a key's values sort as the values do (`catalog.types.key_types`), so a condition admits a few byte ranges.
Null is the range that starts with `00`; every other value starts above it, and none starts with `ff`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

FIRST_VALUE = b"\x01"
"""Lower bound of all encoded values except null."""

END = b"\xff"
"""Exclusive upper bound of all encoded values."""


class KeyRange(NamedTuple):
    """Bytes from `low`, inclusive, to `high`, exclusive.

    Attributes:
        is_point: The bytes are those of a single value, so that the next key's bytes may follow.
        text: The range as the filter language writes it.
    """

    low: bytes
    high: bytes
    is_point: bool = False
    text: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether the range contains no bytes."""
        return self.low >= self.high

    def extended(self, tail: KeyRange) -> KeyRange:
        """Return the range of the next key's values after this point."""
        text = f"{self.text} and {tail.text}" if self.text and tail.text else self.text or tail.text
        return KeyRange(self.low + tail.low, self.low + tail.high, tail.is_point, text)


EVERYTHING = KeyRange(b"", END, is_point=True)
"""The empty prefix: the first key's bytes follow it."""

Ranges: TypeAlias = Sequence[KeyRange]
"""Ascending and disjoint."""


def intersection(lists: Sequence[Ranges]) -> Ranges:
    """Return the intersection of lists of ranges."""
    first, *others = lists
    for other in others:
        first = _common(first, other)
    return first


def _common(left: Ranges, right: Ranges) -> Ranges:
    common: list[KeyRange] = []
    at_left = at_right = 0
    while at_left < len(left) and at_right < len(right):
        one, two = left[at_left], right[at_right]
        overlap = _overlap(one, two)
        if not overlap.is_empty:
            common.append(overlap)
        if one.high < two.high:
            at_left += 1
        else:
            at_right += 1
    return common


def _overlap(one: KeyRange, two: KeyRange) -> KeyRange:
    for candidate in (one, two):
        if candidate.is_point:
            other = two if candidate is one else one
            # A point lies either inside or outside a range, never across its end.
            return candidate if other.low <= candidate.low < other.high else candidate._replace(high=candidate.low)
    text = one.text if one.text == two.text else f"{one.text} and {two.text}"
    return KeyRange(max(one.low, two.low), min(one.high, two.high), text=text)


def union(ranges: Iterable[KeyRange]) -> Ranges:
    """Return the ranges in ascending order, overlapping ones merged; points that only touch are kept apart."""
    merged: list[KeyRange] = []
    for key_range in sorted(ranges, key=lambda item: (item.low, item.high)):
        if merged and key_range.low < merged[-1].high:
            last = merged[-1]
            if last.low == key_range.low and last.high == key_range.high:
                continue
            text = f"{last.text} or {key_range.text}" if len(last.text) < _LONGEST_TEXT else last.text
            merged[-1] = KeyRange(last.low, max(last.high, key_range.high), text=text)
        else:
            merged.append(key_range)
    return merged


_LONGEST_TEXT = 200
