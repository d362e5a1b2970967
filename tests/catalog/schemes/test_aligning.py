"""Partitions of several schemes that share a value have the same place; others only if necessary."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.model import Column
from catalog.schemes.aligning import align
from catalog.schemes.model import Scheme
from catalog.tables.schemes import scheme_from_properties


def scheme(kind: str, column_type: str = "int", **properties: str) -> Scheme:
    return scheme_from_properties(Column("k", column_type), {"PARTITION_TYPE": kind, **properties})


def ranges(bounds: Sequence[int]) -> Scheme:
    return scheme("RANGE", RANGE_INFO=", ".join(map(str, bounds)))


def lists(groups: Sequence[Sequence[int]]) -> Scheme:
    return scheme("LIST", LIST_INFO=", ".join(f"({', '.join(map(str, group))})" for group in groups))


VALUES = range(-2, 32)
BOUNDS = st.sets(st.integers(0, 30), min_size=1, max_size=8).map(sorted)
GROUPS = st.lists(st.sampled_from(range(30)), min_size=1, max_size=12, unique=True).flatmap(
    lambda values: st.lists(st.integers(1, 3), min_size=len(values), max_size=len(values)).map(
        lambda sizes: [values[n : n + size] for n, size in zip(range(0, len(values), 3), sizes, strict=False)]
    )
)
SCHEMES = st.one_of(
    st.lists(BOUNDS.map(ranges), min_size=2, max_size=3),
    st.lists(GROUPS.map(lists), min_size=2, max_size=3),
    st.lists(st.integers(1, 24).map(lambda n: scheme("HASH", PARTITION_NUM=str(n))), min_size=2, max_size=3),
)


@given(schemes=SCHEMES)
def test_a_value_is_in_one_place_by_all_schemes(schemes: list[Scheme]) -> None:
    aligned = align(schemes)
    assert aligned is not None
    assert [set(places) for places in aligned] == [set(each.ids) for each in schemes]
    for value in (None, *VALUES):
        assert len({places[each.partition_of(value)] for places, each in zip(aligned, schemes, strict=True)}) == 1


@given(schemes=SCHEMES)
def test_equal_schemes_have_a_place_for_each_partition(schemes: list[Scheme]) -> None:
    for each in schemes:
        aligned = align([each, each])
        assert aligned is not None
        assert aligned[0] == aligned[1]
        assert len(set(aligned[0].values())) == len(each.ids)


def test_ids_do_not_count() -> None:
    split = ranges([10, 20, 40]).split(3, ["30", "40"]).scheme
    assert split.ids == (0, 1, 2, 4, 5)
    assert align([split, ranges([10, 20, 30, 40])]) == (
        {1: 0, 2: 1, 4: 2, 5: 3, 0: 4},
        {1: 0, 2: 1, 3: 2, 4: 3, 0: 4},
    )


def test_only_what_differs_is_put_together() -> None:
    assert align([ranges([10, 20, 30]), ranges([10, 30, 40])]) == (
        {1: 0, 2: 1, 3: 1, 0: 2},
        {1: 0, 2: 1, 3: 2, 0: 2},
    )
    first, second = lists([[1, 2], [3], [4], [5]]), lists([[4], [2, 3], [1]])
    assert align([first, second]) == ({0: 0, 1: 1, 2: 1, 3: 2, 4: 0}, {0: 0, 1: 2, 2: 1, 3: 1})
    assert align([scheme("HASH", PARTITION_NUM="4"), scheme("HASH", PARTITION_NUM="6")]) == (
        {0: 0, 1: 1, 2: 0, 3: 1},
        {0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1},
    )


def test_an_interval_is_a_range() -> None:
    interval = scheme("RANGE_INTERVAL", "date", RANGE_INFO="2017-01-01, 2017-02-01", INTERVAL="1 month")
    plain = scheme("RANGE", "date", RANGE_INFO="2017/01/01, 2017/02/01")
    assert align([interval, plain]) == ({1: 0, 2: 1, 0: 2}, {1: 0, 2: 1, 0: 2})


@pytest.mark.parametrize(
    "other",
    [
        scheme("HASH", PARTITION_NUM="4"),
        lists([[10], [20]]),
        scheme("RANGE", "bigint", RANGE_INFO="10, 20"),
    ],
)
def test_other_kinds_and_types_are_not_aligned(other: Scheme) -> None:
    assert align([ranges([10, 20]), other]) is None
