"""RANGE_INTERVAL: automatic bounds after the last one, and invalid intervals."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import CatalogError, InvalidSchemeError, LimitExceededError, SchemeValueError
from catalog.model import Column
from catalog.rebalancing.changes import AddPartitions, DropPartitions, MergePartitions, SplitPartition
from catalog.schemes.ranges import IntervalScheme
from catalog.tables.schemes import scheme_from_json, scheme_from_properties
from tests.support.scheme_values import plain
from tests.support.strategies import Day, days_in_month


def make(column_type: str, bounds: str, interval: str) -> IntervalScheme:
    properties = {"PARTITION_TYPE": "RANGE_INTERVAL", "RANGE_INFO": bounds, "INTERVAL": interval}
    scheme = scheme_from_properties(Column("c", column_type), properties)
    assert isinstance(scheme, IntervalScheme)
    return scheme


def extended(scheme: IntervalScheme, text: str) -> IntervalScheme:
    return scheme.extended_to(scheme.typed(text))


def new_bounds(scheme: IntervalScheme, text: str) -> list[str]:
    return [bound for _, bound in extended(scheme, text).bounds[len(scheme.bounds) :]]


def test_a_value_beyond_the_last_bound_makes_the_ranges_up_to_its_own() -> None:
    scheme = extended(make("date", "2017-01-01", "1 month"), "2017-03-31")
    assert scheme.lines() == [
        "0, c = DEFAULT",
        "1, c < 2017-01-01",
        "2, 2017-01-01 <= c < 2017-02-01",
        "3, 2017-02-01 <= c < 2017-03-01",
        "4, 2017-03-01 <= c < 2017-04-01",
    ]
    assert scheme.partition_of(scheme.typed("2017-03-31")) == 4


@pytest.mark.parametrize("text", ["2016-12-31", "0001-01-01"])
def test_a_value_that_has_a_range_makes_none(text: str) -> None:
    scheme = make("date", "2017-01-01", "1 month")
    assert extended(scheme, text) is scheme


@pytest.mark.parametrize(
    ("column_type", "bound", "interval", "value", "expected"),
    [
        # A value equal to a bound needs the next range.
        ("date", "2017-01-01", "1 month", "2017-01-01", ["2017-02-01"]),
        # After a shorter month, the bound is the 31st again.
        ("date", "2016-12-31", "1 month", "2017-04-15", ["2017-01-31", "2017-02-28", "2017-03-31", "2017-04-30"]),
        ("date", "2024-01-31", "1 MONTHS", "2024-02-28", ["2024-02-29"]),
        ("date", "2024-02-29", "1 year", "2028-02-28", ["2025-02-28", "2026-02-28", "2027-02-28", "2028-02-29"]),
        ("date", "2100-02-28", "1 day", "2100-02-28", ["2100-03-01"]),
        ("date", "2017/11/30", "1 quarter", "2018-03-01", ["2018/02/28", "2018/05/30"]),
        ("date", "2017-12-30", "1 week", "2018-01-06", ["2018-01-06", "2018-01-13"]),
        (
            "timestamp",
            "2017-03-25 22:00:00",
            "6 hours",
            "2017-03-26 09:59:59.999999",
            ["2017-03-26 04:00:00", "2017-03-26 10:00:00"],
        ),
        ("timestamp", "2017-01-31", "1 month", "2017-02-28 01:00:00", ["2017-02-28", "2017-03-31"]),
        ("timestamp", "1969-12-31 23:59:59.5", "1 second", "1970-01-01 00:00:00", ["1970-01-01 00:00:00.500000"]),
        ("timestamp", "2017/01/01", "12 hours", "2017-01-01 12:00:00", ["2017/01/01 12:00:00", "2017/01/02"]),
        ("int", "-5", "10", "12", ["5", "15"]),
        ("bigint", "9223372036854775800", "5", "9223372036854775804", ["9223372036854775805"]),
        ("decimal(6,2)", "1.50", "0.25", "1.99", ["1.75", "2"]),
    ],
)
def test_bounds_follow_the_calendar_and_the_numbers(
    column_type: str, bound: str, interval: str, value: str, expected: list[str]
) -> None:
    assert new_bounds(make(column_type, bound, interval), value) == expected


def test_bounds_are_counted_on_whatever_was_loaded_before() -> None:
    scheme = make("date", "2017-01-31", "1 month")
    for value in ("2017-02-10", "2017-03-15", "2017-03-31"):
        scheme = extended(scheme, value)
    assert [bound for _, bound in scheme.bounds] == ["2017-01-31", "2017-02-28", "2017-03-31", "2017-04-30"]
    assert extended(scheme_from_json(scheme.as_json()), "2017-05-30").bounds[-1] == (5, "2017-05-31")  # type: ignore[arg-type]


def test_bounds_are_counted_from_the_last_one_that_a_change_has_left() -> None:
    scheme = extended(make("date", "2017-01-31", "1 month"), "2017-04-01")
    # A change in the middle does not change the last bound.
    merged = MergePartitions((2, 3)).of(scheme).scheme
    assert new_bounds(merged, "2017-04-30") == ["2017-05-31"]  # type: ignore[arg-type]
    dropped = DropPartitions((4,)).of(scheme).scheme
    assert new_bounds(dropped, "2017-03-31") == ["2017-04-30"]  # type: ignore[arg-type]
    added = AddPartitions(("2017-05-10",)).of(scheme).scheme
    assert new_bounds(added, "2017-05-10") == ["2017-06-10"]  # type: ignore[arg-type]
    split = SplitPartition(4, ("2017-04-10", "2017/04/30")).of(scheme).scheme
    assert [bound for _, bound in split.bounds][-2:] == ["2017-04-10", "2017/04/30"]  # type: ignore[attr-defined]


def test_the_last_bound_stays_because_the_others_are_counted_from_it() -> None:
    scheme = make("int", "10", "5")
    with pytest.raises(InvalidSchemeError, match="leave one"):
        DropPartitions((1,)).of(scheme)
    assert DropPartitions((1,)).of(make("int", "5, 10", "5")).scheme.lines()[1:] == ["2, c < 10"]


@pytest.mark.parametrize(
    ("column_type", "bound", "interval", "value", "expected"),
    [
        ("date", "9998-06-01", "1 year", "9999-12-31", ["9999-06-01"]),
        ("timestamp", "9999-12-31 22:00:00", "1 hour", "9999-12-31 23:30:00", ["9999-12-31 23:00:00"]),
        ("tinyint", "100", "10", "125", ["110", "120"]),
        ("decimal(3,2)", "9.00", "0.6", "9.99", ["9.6"]),
    ],
)
def test_a_value_above_all_bounds_that_can_be_written_stays_in_the_default_partition(
    column_type: str, bound: str, interval: str, value: str, expected: list[str]
) -> None:
    """Rows with the last representable day, which is often used for "never", must be loadable."""
    scheme = make(column_type, bound, interval)
    assert new_bounds(scheme, value) == expected
    after = extended(scheme, value)
    assert after.partition_of(after.typed(value)) == 0
    assert extended(after, value).bounds == after.bounds


@pytest.mark.parametrize(
    ("column_type", "bound", "interval", "limit", "reach"),
    [
        ("date", "2017-01-01", "1 day", 10, "'2017-01-11'"),
        ("int", "0", "5", 3, "15"),
        ("int", "0", "5", 0, "0"),
        ("date", "9998-06-01", "1 year", 1_000, "'9999-06-01'"),
        ("int", "0", "1", 1_000_000, "9998"),
    ],
)
def test_a_load_reaches_as_far_as_its_partitions(
    column_type: str, bound: str, interval: str, limit: int, reach: str
) -> None:
    scheme = make(column_type, bound, interval)
    assert scheme.value_type.format(scheme.reach(limit)) == reach
    assert scheme.extended_to(scheme.reach(limit) - 1).encoded_bounds[-1] == scheme.value_type.encode(  # type: ignore[operator]
        scheme.reach(limit)
    )


def test_too_many_partitions_for_one_value_are_refused() -> None:
    with pytest.raises(LimitExceededError, match=r"'2117-01-01'.*1 day.*10,000 partitions"):
        extended(make("date", "2017-01-01", "1 day"), "2117-01-01")
    assert len(extended(make("int", "0", "1"), "9997").ids) == 10_000
    with pytest.raises(LimitExceededError):
        extended(make("int", "0", "1"), "9998")


@pytest.mark.parametrize(
    ("column_type", "bound", "interval", "words"),
    [
        ("date", "2017-01-01", "", "INTERVAL is missing"),
        ("date", "2017-01-01", "month", "'month' cannot be parsed"),
        ("date", "2017-01-01", "0 months", "'0 months'"),
        ("date", "2017-01-01", "-1 month", "'-1 month'"),
        ("date", "2017-01-01", "1.5 months", "'1.5 months'"),
        ("date", "2017-01-01", "1 fortnight", "1 fortnight"),
        ("date", "2017-01-01", "12 hours", "shorter than a day"),
        ("date", "0000-03-01", "1 month", "0000-03-01"),
        ("int", "1", "1 month", "'1 month' is not a number of type int"),
        ("int", "1", "1.5", "'1.5' is not a number of type int"),
        ("int", "1", "0", "not greater than 0"),
        ("int", "1", "-2", "not greater than 0"),
        ("tinyint", "1", "300", "'300' is not a number of type tinyint"),
        ("decimal(5,2)", "1", "0.001", "'0.001' is not a number"),
        ("decimal(5,2)", "1", "1.2.3", "'1.2.3'"),
        ("string", "a", "1", "not for string; use RANGE"),
        ("double", "1.5", "1", "not for double; use RANGE"),
    ],
)
def test_other_intervals_are_refused(column_type: str, bound: str, interval: str, words: str) -> None:
    with pytest.raises(CatalogError, match=words) as caught:
        make(column_type, bound, interval)
    assert isinstance(caught.value, SchemeValueError if interval else InvalidSchemeError)


# --- a model --------------------------------------------------------------------------------------------------------

UNITS = {"week": 7 * 86_400, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


def bounds_up_to(anchor: datetime, number: int, unit: str, value: datetime) -> list[datetime]:
    """Return the bounds after an anchor, up to the first one above a value."""
    found: list[datetime] = []
    while not found or found[-1] <= value:
        steps = (len(found) + 1) * number
        if unit in UNITS:
            found.append(anchor + timedelta(seconds=steps * UNITS[unit]))
            continue
        months = anchor.month - 1 + steps * {"month": 1, "quarter": 3, "year": 12}[unit]
        year, month = anchor.year + months // 12, months % 12 + 1
        found.append(anchor.replace(year=year, month=month, day=min(anchor.day, days_in_month(year, month))))
    return found


@given(
    column_type=st.sampled_from(["date", "timestamp"]),
    anchor=st.datetimes(datetime(1, 1, 1), datetime(2800, 1, 1)),
    number=st.integers(1, 40),
    unit=st.sampled_from(["year", "quarter", "month", *UNITS]),
    steps=st.floats(0, 30),
)
def test_bounds_of_the_calendar_are_those_of_a_model(
    column_type: str, anchor: datetime, number: int, unit: str, steps: float
) -> None:
    if column_type == "date":
        anchor = datetime(anchor.year, anchor.month, anchor.day)
        unit = unit if unit not in ("hour", "minute", "second") else "day"
    seconds = UNITS.get(unit) or {"month": 30, "quarter": 91, "year": 365}[unit] * 86_400
    value = anchor + timedelta(seconds=int(steps * number * seconds))
    if column_type == "date":
        value = datetime(value.year, value.month, value.day)
    expected = bounds_up_to(anchor, number, unit, value)
    scheme = make(column_type, written(column_type, anchor), f"{number} {unit}")
    after = extended(scheme, written(column_type, value))
    typed = [after.typed(bound) for _, bound in after.bounds]
    assert typed == [after.typed(written(column_type, each)) for each in [anchor, *expected]]
    assert [each for each, _ in after.bounds] == list(range(1, len(expected) + 2))
    assert after.partition_of(after.typed(written(column_type, value))) == len(expected) + 1


def written(column_type: str, moment: datetime) -> str:
    return str(Day(moment.year, moment.month, moment.day)) if column_type == "date" else plain(moment)


@given(
    anchor=st.integers(-200, 200),
    width=st.integers(1, 50),
    value=st.integers(-400, 999),
    scale=st.integers(0, 2),
)
def test_bounds_of_numbers_are_those_of_a_model(anchor: int, width: int, value: int, scale: int) -> None:
    def text(number: Any) -> str:
        return plain(Decimal(number).scaleb(-scale))

    scheme = make(f"decimal(20,{scale})", text(anchor), text(width))
    expected = list(range(anchor + width, value + width + 1, width)) if value >= anchor else []
    assert [scheme.typed(each) for each in new_bounds(scheme, text(value))] == [scheme.typed(text(e)) for e in expected]
