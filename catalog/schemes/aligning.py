"""What partitions of several schemes have in common: places, of which each partition lies in exactly one.

Equal values are in the same place by all the schemes, so that rows of different places need not meet in a join on the
partition columns. Equal schemes have a place for each partition. Of schemes that differ, for instance because one table
was split since, a place is the least set of partitions whose values are together the same in all tables.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import gcd

from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import DEFAULT_PARTITION, LOWEST, Scheme
from catalog.schemes.ranges import RangeScheme

Places = Mapping[int, int]
"""Partition id → place."""

_Node = tuple[int, int]
"""Number of a scheme, and one of its partitions."""


def align(schemes: Sequence[Scheme]) -> tuple[Places, ...] | None:
    """Return the places of the partitions of each scheme; None when they are of different kinds or types.

    Wherever two of the schemes put a value, or a null, those two partitions have the same place.
    """
    if len({scheme.column_type for scheme in schemes}) > 1:
        return None
    if len(hashed := [scheme for scheme in schemes if isinstance(scheme, HashScheme)]) == len(schemes):
        return _align_hashes(hashed)
    if len(ranges := [scheme for scheme in schemes if isinstance(scheme, RangeScheme)]) == len(schemes):
        return _align_ranges(ranges)
    if len(lists := [scheme for scheme in schemes if isinstance(scheme, ListScheme)]) == len(schemes):
        return _align_lists(lists)
    return None


def _align_hashes(schemes: Sequence[HashScheme]) -> tuple[Places, ...]:
    step = gcd(*(scheme.count for scheme in schemes))
    return tuple({each: each % step for each in scheme.ids} for scheme in schemes)


def _align_ranges(schemes: Sequence[RangeScheme]) -> tuple[Places, ...]:
    """Cut at the bounds that all have; the default partition is the range from the last bound on."""
    common = sorted(set.intersection(*(set(scheme.encoded_bounds) for scheme in schemes)))
    found = []
    for scheme in schemes:
        partition_ids = [*(each for each, _ in scheme.bounds), DEFAULT_PARTITION]
        lows = [LOWEST, *scheme.encoded_bounds]
        found.append({each: bisect_right(common, low) for each, low in zip(partition_ids, lows, strict=True)})
    return tuple(found)


def _align_lists(schemes: Sequence[ListScheme]) -> tuple[Places, ...]:
    """Put together all groups with a value in common, and with them those of values that only some schemes list."""
    joined: dict[_Node, _Node] = {}

    def root(node: _Node) -> _Node:
        while (above := joined.setdefault(node, node)) != node:
            joined[node] = joined[above]
            node = above
        return node

    for number in range(len(schemes)):
        joined[root((number, DEFAULT_PARTITION))] = root((0, DEFAULT_PARTITION))
    for value in {value: None for scheme in schemes for value in scheme.partition_of_bytes}:
        for number, scheme in enumerate(schemes):
            own = (number, scheme.partition_of_bytes.get(value, DEFAULT_PARTITION))
            joined[root(own)] = root((0, schemes[0].partition_of_bytes.get(value, DEFAULT_PARTITION)))
    numbers: dict[_Node, int] = {}
    return tuple(
        {each: numbers.setdefault(root((number, each)), len(numbers)) for each in scheme.ids}
        for number, scheme in enumerate(schemes)
    )
