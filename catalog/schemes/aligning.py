"""Common places of the partitions of several schemes, for joins on the partition columns.

Each partition lies in exactly one place, and equal values are in the same place in all schemes, so a join need not
compare rows of different places. Equal schemes have one place per partition. If schemes differ, for instance because
one table was split since, a place is the smallest set of partitions that together cover the same values in all tables.
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
"""Position of a scheme in the sequence, and one of its partitions."""


def align(schemes: Sequence[Scheme]) -> tuple[Places, ...] | None:
    """Return the places of the partitions of each scheme; None when the schemes differ in kind or column type.

    If two schemes put the same value, or null, into two partitions, those partitions have the same place.
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
    return tuple({partition_id: partition_id % step for partition_id in scheme.ids} for scheme in schemes)


def _align_ranges(schemes: Sequence[RangeScheme]) -> tuple[Places, ...]:
    """Cut at the bounds that all schemes share; the default partition is the range from the last bound on."""
    common = sorted(set.intersection(*(set(scheme.encoded_bounds) for scheme in schemes)))
    places = []
    for scheme in schemes:
        partition_ids = [*(partition_id for partition_id, _ in scheme.bounds), DEFAULT_PARTITION]
        lows = [LOWEST, *scheme.encoded_bounds]
        places.append(
            {partition: bisect_right(common, low) for partition, low in zip(partition_ids, lows, strict=True)}
        )
    return tuple(places)


def _align_lists(schemes: Sequence[ListScheme]) -> tuple[Places, ...]:
    """Join groups with a common value; join the groups of a value with the default partitions of schemes without it."""
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
        {partition_id: numbers.setdefault(root((number, partition_id)), len(numbers)) for partition_id in scheme.ids}
        for number, scheme in enumerate(schemes)
    )
