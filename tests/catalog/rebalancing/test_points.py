"""Values at which ranges can be split."""

from __future__ import annotations

import json
from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Catalog, Column
from catalog.datafiles.files import ColumnStatistics, DataFile
from catalog.errors import InvalidSchemeError, PartitionNotFoundError, WrongFieldError
from catalog.rebalancing.contents import contents_of
from catalog.rebalancing.points import SplitPoints, split_points
from catalog.rebalancing.requests import RebalanceRequest
from catalog.schemes.ranges import RangeScheme
from catalog.tables.schemes import scheme_from_properties
from tests.support.pages_samples import make_scheme_tables

Files = list[tuple[str, str, int]]
"""Least value, greatest value and bytes of files."""


def ranges(column: str, bounds: str) -> RangeScheme:
    properties = {"PARTITION_TYPE": "RANGE", "RANGE_INFO": bounds}
    scheme = scheme_from_properties(Column("c", column), properties)
    assert isinstance(scheme, RangeScheme)
    return scheme


def points_of(scheme: RangeScheme, partition_id: int, files: Files, limit: int = 50) -> SplitPoints:
    """Return the points of a partition with files of these least and greatest values and bytes."""
    made = []
    for number, (least, greatest, size) in enumerate(files):
        low, high = scheme.typed(least), scheme.typed(greatest)
        statistics = json.dumps({"c": ColumnStatistics.of_values(scheme.value_type, low, high, 0).as_json()})
        made.append(DataFile(number, partition_id, f"{number}", 10, size, statistics, 1))
    contents = {content.partition_id: content for content in contents_of(scheme, made)}
    return split_points(scheme, contents[partition_id], limit)


@given(
    bounds=st.lists(st.integers(-1000, 1000), min_size=2, max_size=6, unique=True).map(sorted),
    data=st.data(),
    limit=st.integers(1, 40),
)
def test_each_point_is_a_valid_split_and_bytes_ascend(bounds: list[int], data: st.DataObject, limit: int) -> None:
    scheme = ranges("int", ", ".join(map(str, bounds)))
    position = data.draw(st.integers(1, len(bounds) - 1))
    low, high = bounds[position - 1], bounds[position]
    values = st.integers(low, high - 1)
    files = data.draw(st.lists(st.tuples(values, values, st.integers(0, 1000)), max_size=8))
    made = [(str(min(a, b)), str(max(a, b)), size) for a, b, size in files]
    found = points_of(scheme, scheme.ids[position + 1], made, limit)
    assert len(found.points) <= 2 * limit
    for point in found.points:
        scheme.split(scheme.ids[position + 1], (point.text, str(high)))
        assert 0 <= point.bytes_below <= found.size_bytes
        is_cut = any(int(least) < int(point.text) <= int(greatest) for least, greatest, _ in made)
        assert not (point.is_free and is_cut)
    assert all(first.bytes_below <= second.bytes_below for first, second in pairwise(found.points))


def test_days_between_two_bounds_are_points() -> None:
    scheme = ranges("date", "2024-01-01, 2024-02-01")
    found = points_of(scheme, 2, [("2024-01-01", "2024-01-31", 310)])
    days = [str(date(2024, 1, 2) + timedelta(day)) for day in range(30)]
    assert [point.text for point in found.points] == days
    assert found.middle is not None
    assert abs(found.middle.bytes_below - 155) <= 10
    assert not any(point.is_free for point in found.points)


def test_a_point_between_files_is_free_and_preferred() -> None:
    scheme = ranges("bigint", "0, 1000")
    found = points_of(scheme, 2, [("0", "399", 450), ("400", "999", 550)])
    assert found.middle is not None
    assert (found.middle.text, found.middle.bytes_below, found.middle.is_free) == ("400", 450, True)


def test_strings_are_split_where_files_begin() -> None:
    scheme = ranges("string", "b, x")
    found = points_of(scheme, 2, [("b", "d", 10), ("f", "k", 20), ("m", "q", 30)])
    assert [(point.text, point.bytes_below) for point in found.points] == [("f", 10), ("m", 30)]


def test_timestamps_are_split_at_whole_seconds() -> None:
    scheme = ranges("timestamp", "2024-01-01 00:00:00, 2024-01-01 00:01:00")
    found = points_of(scheme, 2, [], limit=7)
    assert [point.text for point in found.points][:2] == ["2024-01-01 00:00:08", "2024-01-01 00:00:16"]


def test_values_above_the_last_range_can_be_added(catalog: Catalog) -> None:
    make_scheme_tables(catalog)
    found = catalog.rebalancing.split_points("demo.visits", 0)
    assert (found.lower, found.upper) == ("2024-04-01", None)
    assert [point.text for point in found.points] == ["2024-04-11", "2024-04-21"]


def test_tables_and_partitions_without_ranges_are_refused(catalog: Catalog) -> None:
    make_scheme_tables(catalog)
    with pytest.raises(InvalidSchemeError, match=r"demo\.hits has no ranges"):
        catalog.rebalancing.split_points("demo.hits", 0)
    with pytest.raises(PartitionNotFoundError, match="no partition 77"):
        catalog.rebalancing.split_points("demo.visits", 77)


def test_a_request_that_does_not_fit_names_the_field_and_the_error(catalog: Catalog) -> None:
    make_scheme_tables(catalog)
    request = RebalanceRequest.from_form(
        {"table": "demo.visits", "operation": "split", "partition_ids": [2], "items": ["2025-01-01", "2024-02-01"]}
    )
    with pytest.raises(WrongFieldError, match=r"^items: BoundsNotAscendingError: ") as caught:
        catalog.rebalancing.plan_request(request)
    assert caught.value.field == "items"
