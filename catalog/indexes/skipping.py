"""Ranges of plans with skips: the values of skipped keys are looked up, and the ranges follow them.

A search for `day = 15` in an index on (country, month, day) looks up the countries, then the months of each country,
and reads one range for each of these. A look-up of one value takes about as long as reading one item, so that it pays
if each value has several items: `LookUp` decides that, by what it finds in the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from catalog.indexes.keys import MAXIMUM_KEY_BYTES, after_prefix, cut_key, decode_value, is_cut, split_key
from catalog.indexes.planner import ScanPlan, Skip, stored_range, stored_ranges
from catalog.model import Table
from catalog.types.key_types import KeyType
from catalog.types.memo import Memo
from catalog.types.ranges import END, KeyRange, Ranges, union

FEW_LOOK_UPS = 16
"""So many look-ups take less time than finding out whether they pay."""

ITEMS_OF_A_LOOK_UP = 4
"""A look-up, and the range that it leads to, take as long as reading so many items."""

MAXIMUM_SPANS = 50_000
"""The maximum number of ranges in which the values of one key are looked up."""


class Span(NamedTuple):
    """Stored index keys that are equal in their first bytes, and of which the next value is looked up.

    Attributes:
        start: The number of equal bytes.
        low, high: The bounds of the keys, which start with these bytes; `high` is exclusive.
    """

    start: int
    low: bytes
    high: bytes


def prefix_span(prefix: bytes) -> Span:
    """Return the span of the keys that start with some bytes."""
    return Span(len(prefix), prefix, prefix + END)


class LookUp(Protocol):
    """Finds the values of skipped keys."""

    def __call__(self, skip: Skip, spans: Sequence[Span]) -> Sequence[bytes] | None:
        """Return the keys in some spans up to the skipped key, without duplicates; None if it takes too long."""


@dataclass(frozen=True)
class Reading:
    """The ranges of stored index keys that a search reads.

    Attributes:
        plan: The plan, of which no skip was too long.
        ranges: The ranges, ascending and disjoint; those of a plan with skips have no text (`described`).
    """

    plan: ScanPlan
    ranges: Ranges

    def described(self, table: Table) -> Ranges:
        """Return the ranges with their texts."""
        if not self.plan.skips or self.plan.index is None:
            return self.ranges
        names = self.plan.index.keys
        types = [table.key_types[table.key_names.index(name)] for name in names]
        count = names.index(self.plan.skips[-1].name) + 1
        tails = {(tail.low, tail.high): tail.text for tail in self.plan.skips[-1].tails}
        texts = [Memo(partial(_text, name, key_type)) for name, key_type in zip(names, types, strict=True)]
        described = []
        for key_range in self.ranges:
            if is_cut(key_range.low):
                described.append(key_range._replace(text="values too long for an index key"))
                continue
            pieces = split_key(types[:count], key_range.low)
            length = sum(map(len, pieces))
            tail = tails.get((key_range.low[length:], key_range.high[length:]), "")
            parts = [of[piece] for of, piece in zip(texts, pieces, strict=False)]
            described.append(key_range._replace(text=" and ".join([*parts, tail] if tail else parts)))
        return described


def resolve(plan: ScanPlan, look_up: LookUp) -> Reading | None:
    """Return the ranges of a plan, or of that of its shorter plans whose look-ups pay; None for a full scan."""
    found: list[Sequence[bytes]] = []
    while plan.skips:
        ranges = _ranges(plan, look_up, found)
        if ranges is not None:
            return Reading(plan, ranges)
        shorter = plan.skips[len(found)].otherwise
        if shorter is None:
            return None
        plan = shorter
    return Reading(plan, plan.ranges)


def _ranges(plan: ScanPlan, look_up: LookUp, found: list[Sequence[bytes]]) -> Ranges | None:
    """Return the ranges of a plan; None if the look-ups of a skip do not pay.

    Args:
        found: The keys up to each skipped key that was looked up before; those of further ones are appended.
    """
    if not all(skip.within and skip.tails for skip in plan.skips):
        return []
    prefixes, cut = _separated([head.low for head in plan.ranges])
    for number, skip in enumerate(plan.skips):
        if number == len(found):
            if len(prefixes) * len(skip.within) > MAXIMUM_SPANS:
                return None
            spans = [_span(prefix, part) for prefix in prefixes for part in skip.within]
            keys = look_up(skip, spans) if spans else []
            if keys is None:
                return None
            found.append(keys)
        prefixes, longer = _separated(found[number])
        cut += longer
        if skip is not plan.skips[-1]:
            prefixes, longer = _separated([prefix + tail.low for prefix in prefixes for tail in skip.tails])
            cut += longer
    return _with_tails(sorted(prefixes), plan.skips[-1].tails, cut)


def _separated(keys: Sequence[bytes]) -> tuple[Sequence[bytes], list[bytes]]:
    """Return the keys that further values can follow, and the stored form of the others."""
    if max(map(len, keys), default=0) < MAXIMUM_KEY_BYTES:
        return keys, []
    return [key for key in keys if not is_cut(key)], [cut_key(key) for key in keys if is_cut(key)]


def _span(prefix: bytes, part: KeyRange) -> Span:
    low, high = prefix + part.low, prefix + part.high
    if is_cut(low) or is_cut(high):
        low, high, *_ = stored_range(KeyRange(low, high))
    return Span(len(prefix), low, high)


def _with_tails(prefixes: Sequence[bytes], tails: Ranges, cut: Sequence[bytes]) -> Ranges:
    new, pairs = tuple.__new__, [(tail.low, tail.high, tail.is_point) for tail in tails]
    # Bypasses the constructor of the named tuple: there may be as many ranges as partitions.
    ranges = [
        new(KeyRange, (prefix + low, prefix + high, is_point, ""))
        for prefix in prefixes
        for low, high, is_point in pairs
    ]
    longest = max(map(len, prefixes), default=0) + max((len(part) for pair in pairs for part in pair[:2]), default=0)
    if not cut and longest < MAXIMUM_KEY_BYTES:
        return ranges
    return union([*stored_ranges(ranges), *(KeyRange(key, after_prefix(key)) for key in cut)])


def _text(name: str, key_type: KeyType, piece: bytes) -> str:
    value = decode_value(key_type, piece)
    return f"{name} is null" if value is None else f"{name} = {key_type.format(value)}"
