"""Ranges of one key's encoded values, intersected by AND and united by OR.

The bytes of a key's values sort as the values do (`catalog.types.key_types`), so what a condition admits is a few
ranges of bytes. A null is the range that begins with `00`; every other value begins above it, and none with `ff`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

FIRST_VALUE = b"\x01"
"""No encoded value begins below this, and null does."""

END = b"\xff"
"""No encoded value begins with this."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Bytes from `low`, inclusive, to `high`, exclusive.

    Attributes:
        is_point: The bytes are those of one value, so that the next key's bytes follow.
        text: The range as the filter language writes it.
    """

    low: bytes
    high: bytes
    is_point: bool = False
    text: str = ""

    @property
    def is_empty(self) -> bool:
        """Say whether no bytes can be inside."""
        return self.low >= self.high

    def extended(self, tail: KeyRange) -> KeyRange:
        """Return the range of the next key's values behind this point."""
        text = f"{self.text} and {tail.text}" if self.text and tail.text else self.text or tail.text
        return KeyRange(self.low + tail.low, self.low + tail.high, tail.is_point, text)


EVERYTHING = KeyRange(b"", END, is_point=True)
"""The empty prefix: behind it the first key's bytes follow."""

Ranges: TypeAlias = Sequence[KeyRange]
"""Ascending, and none overlaps another."""


def intersection(lists: Sequence[Ranges]) -> Ranges:
    """Return the ranges inside one range of each list."""
    first, *others = lists
    for other in others:
        first = _common(first, other)
    return first


def _common(left: Ranges, right: Ranges) -> Ranges:
    found: list[KeyRange] = []
    at_left = at_right = 0
    while at_left < len(left) and at_right < len(right):
        one, two = left[at_left], right[at_right]
        both = _overlap(one, two)
        if not both.is_empty:
            found.append(both)
        if one.high < two.high:
            at_left += 1
        else:
            at_right += 1
    return found


def _overlap(one: KeyRange, two: KeyRange) -> KeyRange:
    for each in (one, two):
        if each.is_point:
            other = two if each is one else one
            # A value's bytes are inside a range or outside of it, never across its end.
            return each if other.low <= each.low < other.high else replace(each, high=each.low)
    text = one.text if one.text == two.text else f"{one.text} and {two.text}"
    return KeyRange(max(one.low, two.low), min(one.high, two.high), text=text)


def union(ranges: Iterable[KeyRange]) -> Ranges:
    """Return the ranges in order; those that overlap as one. Points that only touch stay what they are."""
    found: list[KeyRange] = []
    for each in sorted(ranges, key=lambda each: (each.low, each.high)):
        if found and each.low < found[-1].high:
            last = found[-1]
            if last.low == each.low and last.high == each.high:
                continue
            text = f"{last.text} or {each.text}" if len(last.text) < _LONGEST_TEXT else last.text
            found[-1] = KeyRange(last.low, max(last.high, each.high), text=text)
        else:
            found.append(each)
    return found


_LONGEST_TEXT = 200
