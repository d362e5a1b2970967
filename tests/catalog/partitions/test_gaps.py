"""Days and missing partitions are those that Python finds by comparing all partitions."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog, IndexDefinition, NewPartition
from catalog.errors import InvalidRequestError
from catalog.partitions import gaps
from catalog.partitions.gaps import day_keys, day_range, expected_days, parse_day
from catalog.partitions.gaps import day_of as day_of_values
from tests.support.effort import effort

pytestmark = pytest.mark.smoke

NUMBERS = count()
FIRST = date(2023, 12, 20)
LAYOUTS = {
    "date": [("day", "date")],
    "text": [("ds", "string")],
    "compact": [("dt", "int")],
    "parts": [("year", "int"), ("month", "int"), ("day", "int")],
    "one series": [("day", "date")],
}
"""Kinds of tables with days."""


def day_values(layout: str, day: date) -> tuple[str, ...]:
    """Return the values of the keys that have the day."""
    if layout == "parts":
        return str(day.year), f"{day.month:02}", str(day.day)
    return (f"{day:%Y%m%d}",) if layout == "compact" else (day.isoformat(),)


series = st.dictionaries(
    st.sampled_from(["DE", "a/b", "%", "Ü"]),
    st.sets(st.integers(0, 20).map(lambda number: FIRST + timedelta(number)), min_size=1),
    min_size=1,
)


@settings(max_examples=effort(20, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    days_of=series,
    first=st.integers(-1, 21),
    length=st.integers(0, 21),
    indexed=st.sampled_from(["none", "days last", "days first"]),
)
def test_missing_days_are_those_between_the_first_and_the_last_of_each_series(
    catalog: Catalog, layout: str, days_of: dict[str, set[date]], first: int, length: int, indexed: str
) -> None:
    name, is_alone = f"demo.days_{next(NUMBERS)}", layout == "one series"
    keys = [*([] if is_alone else [("country", "string")]), *LAYOUTS[layout]]
    if is_alone:
        days_of = {"": set().union(*days_of.values())}
    indexes = {
        "none": (),
        "days last": (IndexDefinition("by_country", tuple(key for key, _ in keys)),),
        "days first": (IndexDefinition("by_day", tuple(key for key, _ in reversed(keys))),),
    }
    catalog.create_table(name, columns=[("id", "int")], partition_keys=keys, indexes=indexes[indexed])
    catalog.add_partitions(
        name,
        [
            NewPartition((*([] if is_alone else [country]), *day_values(layout, day)), row_count=2)
            for country, days in days_of.items()
            for day in days
        ],
    )
    everywhere = set().union(*days_of.values())
    lacking = {
        (country, day)
        for country, days in days_of.items()
        for day in expected_days(sorted(everywhere))
        if min(days) <= day <= max(days) and day not in days
    }
    calendar = catalog.browsing.calendar(name)
    assert calendar is not None
    counts = {day: sum(day in days for days in days_of.values()) for day in everywhere | {day for _, day in lacking}}
    assert {day.at: (day.sums.partitions, day.missing) for day in calendar.days} == {
        day: (number, sum(missing == day for _, missing in lacking)) for day, number in counts.items()
    }
    assert {day.at: day.sums.rows for day in calendar.days} == {day: 2 * number for day, number in counts.items()}
    low, high = FIRST + timedelta(first), FIRST + timedelta(first + length)
    missing = catalog.browsing.missing(name, low.isoformat(), high.isoformat())
    found = {
        (partition.get("country", "") or "", day_of(layout, tuple(partition.values())))
        for partition in missing.partitions
    }
    assert found == {(country, day) for country, day in lacking if low <= day <= high}
    assert len(found) == len(missing.partitions)
    table = catalog.get_table(name)
    expression = day_range(catalog.browsing, table, low.isoformat(), high.isoformat())
    matching = [day_of_values(table, partition.values) for partition in catalog.get_partitions(name, expression)]
    inside = [day for days in days_of.values() for day in days if low <= day <= high]
    assert sorted(map(str, matching)) == sorted(map(str, inside))
    assert {key for partition in missing.partitions for key in partition} <= {key for key, _ in keys}


def day_of(layout: str, values: tuple[str | None, ...]) -> date:
    """Return the day of a missing partition."""
    if layout == "parts":
        year, month, day = (int(value or "") for value in values[-3:])
        return date(year, month, day)
    found = parse_day(values[-1])
    assert found is not None
    assert ("-" in (values[-1] or "")) is (layout != "compact")
    return found


def test_an_index_and_all_partitions_tell_the_same_series(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "demo.indexed"
    keys = [("country", "string"), ("day", "date"), ("kind", "varchar(9)")]
    index = IndexDefinition("by_kind", ("kind", "country", "day"))
    catalog.create_table(name, columns=[("id", "int")], partition_keys=keys, indexes=[index])
    values = [
        ("a/b", "2024-01-01", "x"),
        ("a/b", "2024-01-04", "x"),
        (None, "2024-01-02", "x"),
        (None, "2024-01-05", "x"),
        ("c", None, "y"),
        ("c", "2024-01-03", "y"),
        ("d", None, "y"),
    ]
    catalog.add_partitions(name, [NewPartition(row) for row in values])
    asked = ("2024-01-01", "2024-01-09")
    with_index = catalog.browsing.calendar(name), catalog.browsing.missing(name, *asked)
    assert with_index[0] is not None
    assert with_index[0].series == 3
    monkeypatch.setattr(gaps._Days, "series", lambda *_: pytest.fail("all partitions were read"))
    assert (catalog.browsing.calendar(name), catalog.browsing.missing(name, *asked)) == with_index
    monkeypatch.undo()
    monkeypatch.setattr(gaps._Days, "indexed_series", lambda _: None)
    (calendar, missing), (other_calendar, other_missing) = (
        with_index,
        (catalog.browsing.calendar(name), catalog.browsing.missing(name, *asked)),
    )
    assert calendar == other_calendar
    assert missing.days == other_missing.days

    def listed(found: gaps.MissingPartitions) -> list[str]:
        return sorted(str(sorted(partition.items(), key=str)) for partition in found.partitions)

    assert listed(missing) == listed(other_missing)


def test_a_table_lacks_no_days_that_it_never_has() -> None:
    months = [date(2024, month, 1) for month in (1, 2, 5)]
    assert expected_days(months) == [date(2024, month, 1) for month in range(1, 6)]
    begin = date(2024, 1, 1)
    working = [day for number in range(60) if (day := begin + timedelta(number)).weekday() < 5]
    assert expected_days(working[:7] + working[9:]) == working
    week = [begin + timedelta(number) for number in (0, 1, 6)]
    assert len(expected_days(week)) == 7
    assert expected_days(week[:1]) == week[:1]
    assert expected_days([]) == []


def test_values_that_are_no_days_are_counted_apart(catalog: Catalog) -> None:
    name = "demo.undated"
    catalog.create_table(name, columns=[("id", "int")], partition_keys=[("ds", "string"), ("hour", "int")])
    values = [
        ("2024-01-01", "1"),
        ("2024-01-03", "1"),
        ("soon", "1"),
        (None, "1"),
        ("2024-13-01", "1"),
        ("20240103", "2"),
    ]
    catalog.add_partitions(name, [NewPartition(row) for row in values])
    calendar = catalog.browsing.calendar(name)
    assert calendar is not None
    assert [(str(day.at), day.sums.partitions) for day in calendar.days] == [
        ("2024-01-01", 1),
        ("2024-01-02", 0),
        ("2024-01-03", 2),
    ]
    assert calendar.undated.partitions == 3


def test_two_spellings_of_a_value_are_one_series_and_one_day(catalog: Catalog) -> None:
    catalog.create_table("demo.hours", columns=[("id", "int")], partition_keys=[("dt", "date"), ("hr", "int")])
    rows = [(f"2024-05-{day:02}", f"{hour:02}" if day % 2 else str(hour)) for day in range(1, 9) for hour in range(3)]
    rows.remove(("2024-05-04", "2"))
    catalog.add_partitions("demo.hours", [NewPartition(row) for row in rows])
    calendar = catalog.browsing.calendar("demo.hours")
    assert calendar is not None
    assert calendar.series == 3
    assert [day.missing for day in calendar.days] == [0, 0, 0, 1, 0, 0, 0, 0]
    [missing] = catalog.browsing.missing("demo.hours", "2024-05-01", "2024-05-08").partitions
    assert (missing["dt"], int(missing["hr"] or "")) == ("2024-05-04", 2)

    keys = [("country", "string"), ("ds", "string")]
    catalog.create_table("demo.spelled", columns=[("id", "int")], partition_keys=keys)
    days = [("DE", day) for day in ("2024-05-01", "2024-05-02", "20240502", "2024-05-03")]
    days += [("FR", "2024-05-01"), ("FR", "2024-05-03")]
    catalog.add_partitions("demo.spelled", [NewPartition(row) for row in days])
    calendar = catalog.browsing.calendar("demo.spelled")
    assert calendar is not None
    assert [(day.sums.partitions, day.missing) for day in calendar.days] == [(2, 0), (2, 1), (2, 0)]
    found = catalog.browsing.missing("demo.spelled", "2024-05-01", "2024-05-03").partitions
    assert [partition["country"] for partition in found] == ["FR"]


@pytest.mark.parametrize("indexed", [False, True])
def test_days_far_from_all_others_are_placeholders_without_gaps(catalog: Catalog, indexed: bool) -> None:
    name = "demo.placeholders"
    keys = [("country", "string"), ("day", "date")]
    indexes = [IndexDefinition("by_country", ("country", "day"))] if indexed else []
    catalog.create_table(name, columns=[("id", "int")], partition_keys=keys, indexes=indexes)
    values = [(country, f"2024-01-0{number}") for country in ("DE", "FR") for number in (1, 2, 3, 5)]
    # The series of FR ends: its placeholder is no day on which it went on.
    values += [("DE", f"2024-01-0{number}") for number in (6, 7)]
    values += [(country, day) for country in ("DE", "FR") for day in ("0001-01-01", "9999-12-31")]
    catalog.add_partitions(name, [NewPartition(row) for row in values])
    calendar = catalog.browsing.calendar(name)
    assert calendar is not None
    assert [(str(day.at), day.sums.partitions, day.missing) for day in calendar.days] == [
        ("0001-01-01", 2, 0),
        ("2024-01-01", 2, 0),
        ("2024-01-02", 2, 0),
        ("2024-01-03", 2, 0),
        ("2024-01-04", 0, 2),
        ("2024-01-05", 2, 0),
        ("2024-01-06", 1, 0),
        ("2024-01-07", 1, 0),
        ("9999-12-31", 2, 0),
    ]
    missing = catalog.browsing.missing(name, "0001-01-01", "9999-12-31")
    assert [partition["day"] for partition in missing.partitions] == ["2024-01-04"] * 2


def test_no_days_are_expected_between_periods_that_are_ten_years_apart() -> None:
    first = [date(1930, 1, number) for number in (1, 2, 4)]
    last = [date(2024, 1, number) for number in (1, 3, 4)]
    expected = expected_days(first + last)
    assert [day.day for day in expected if day.year == 1930] == [1, 2, 3, 4]
    assert [day.day for day in expected if day.year == 2024] == [1, 2, 3, 4]
    assert len(expected) == 8
    decades = [date(year, 1, 2) for year in range(1001, 2001, 5)]
    assert expected_days(decades) == decades


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ([("day", "date")], ("day",)),
        ([("country", "string"), ("event_date", "string")], ("event_date",)),
        ([("year", "int"), ("month", "int"), ("day", "int")], ("year", "month", "day")),
        ([("year", "int"), ("month", "int")], ()),
        ([("day", "int")], ()),
        ([("dt", "bigint")], ("dt",)),
        ([("today", "string")], ()),
        ([], ()),
    ],
)
def test_keys_with_days_are_found(catalog: Catalog, keys: list[tuple[str, str]], found: tuple[str, ...]) -> None:
    table = catalog.create_table("demo.keys", columns=[("id", "int")], partition_keys=keys)
    assert day_keys(table) == found
    assert (catalog.browsing.calendar("demo.keys") is None) is (found == ())


def test_what_has_no_days_is_refused_with_a_reason(catalog: Catalog) -> None:
    catalog.create_table("demo.plain", columns=[("id", "int")], partition_keys=[("origin", "string")])
    with pytest.raises(InvalidRequestError, match=r"demo\.plain has no partition key with days"):
        catalog.browsing.missing("demo.plain", "2024-01-01", "2024-01-02")
    with pytest.raises(InvalidRequestError, match="'soon' is no day; write it as 2024-05-01"):
        catalog.browsing.missing("demo.plain", "soon", "2024-01-02")
