"""Bands that are learned from earlier partitions, and that a few bad partitions do not move."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Column, FileFormat, Table
from catalog.settings.learning_rules import FEWEST, LearningRule, Measure
from catalog.settings.quality_rules import PartitionCheck
from spark_jobs.checking.learning import (
    _AGES,
    _DISTINCTS,
    _NULLS,
    _ROWS,
    learned_checks,
    start_of,
    usual_band,
    with_ages,
)

COUNTS = st.lists(st.integers(0, 10**9).map(float), min_size=FEWEST, max_size=60)
KINDS = st.sampled_from([_ROWS, _NULLS, _DISTINCTS, _AGES])


def table(*keys: tuple[str, str]) -> Table:
    return Table("shop", "orders", (), tuple(Column(*key) for key in keys), FileFormat.PARQUET, "/none")


@given(values=COUNTS, kind=KINDS, tolerance=st.floats(0.5, 10))
def test_most_earlier_values_are_usual_themselves(values: list[float], kind: Any, tolerance: float) -> None:
    band = usual_band(values, kind, tolerance)
    usual = [value for value in values if value in band]
    assert len(usual) >= len(values) * (0.9 if not kind.has_low else 0.8) - 2
    assert sorted(values)[len(values) // 2] in band


@given(values=COUNTS, kind=KINDS)
def test_greater_tolerance_allows_more(values: list[float], kind: Any) -> None:
    narrow, wide = usual_band(values, kind, 2), usual_band(values, kind, 6)
    assert wide.high >= narrow.high
    assert (wide.low is None) is (narrow.low is None)
    assert wide.low is None or narrow.low is None or wide.low <= narrow.low


@given(values=st.lists(st.floats(90, 110), min_size=FEWEST, max_size=60), outlier=st.floats(300, 1e12))
def test_value_far_away_among_the_earlier_ones_does_not_become_usual(values: list[float], outlier: float) -> None:
    assert outlier not in usual_band([*values[1:], outlier], _ROWS, 4)


def test_weekends_are_usual_once_there_were_some() -> None:
    weeks = [100.0, 102, 98, 101, 99, 40, 42] * 4
    band = usual_band(weeks, _ROWS, 4)
    assert 41 in band
    assert 100 in band
    assert 20 not in band
    assert 150 not in band


@pytest.mark.parametrize(
    ("keys", "values", "start"),
    [
        ([("country", "string"), ("day", "date")], ("DE", "2024-05-01"), datetime(2024, 5, 1, tzinfo=UTC)),
        ([("day", "string")], ("20240501",), datetime(2024, 5, 1, tzinfo=UTC)),
        ([("year", "int"), ("month", "int")], ("2024", "5"), datetime(2024, 5, 1, tzinfo=UTC)),
        (
            [("year", "int"), ("month", "int"), ("day", "int"), ("hour", "int")],
            ("2024", "05", "3", "7"),
            datetime(2024, 5, 3, 7, tzinfo=UTC),
        ),
        ([("year", "int"), ("month", "int")], ("2024", "13"), None),
        ([("day", "date")], (None,), None),
        ([("day", "string")], ("someday!",), None),
        ([("country", "string"), ("number", "int")], ("DE", "20240501"), None),
    ],
)
def test_start_of_a_partition_is_read_from_its_keys(
    keys: list[tuple[str, str]], values: tuple[str | None, ...], start: datetime | None
) -> None:
    assert start_of(table(*keys), values) == start


def test_age_is_that_of_the_keys_or_of_the_newest_times() -> None:
    summary = pandas.DataFrame({"partition_id": [1, 2], "at_newest": [1_000.0, None]})
    of_keys = with_ages(summary, table(("day", "date")), [("1970-01-01",), (None,)], 7_200_000)
    assert of_keys["age_seconds"].tolist()[0] == 7_200
    assert list(of_keys.columns) == ["partition_id", "age_seconds"]
    of_times = with_ages(summary, table(("country", "string")), [("DE",), ("US",)], 7_200_000)
    assert of_times["at_age_seconds"].tolist()[0] == 6_200
    assert pandas.isna(of_times["at_age_seconds"].tolist()[1])


def earlier(count: int, **measures: float) -> list[tuple[tuple[str, ...], PartitionCheck]]:
    return [((str(number),), PartitionCheck(number, (), measures)) for number in range(count)]


def failures(rule: LearningRule, known: Any, **measures: float) -> list[str]:
    summary = pandas.DataFrame({"partition": ["day=99"], "partition_id": [99], **{n: [v] for n, v in measures.items()}})
    judged, checks = learned_checks(summary, [("99",)], table(("day", "int")), rule, known)
    return [check.name for check in checks if not judged[check.column].all()]


@pytest.mark.parametrize("unknown", [None, float("nan"), pandas.NA])
def test_partitions_without_a_measure_pass_beside_others(unknown: Any) -> None:
    names = ("row_count", "amount_null_ratio", "at_age_seconds")
    summary = pandas.DataFrame({"partition": ["day=98", "day=99"], "partition_id": [98, 99]})
    summary = summary.assign(**{name: [unknown, 1_000_000.0] for name in names})
    known = earlier(20, row_count=100, amount_null_ratio=0, at_age_seconds=60)
    judged, checks = learned_checks(summary, [("98",), ("99",)], table(("day", "int")), LearningRule(), known)
    assert [judged[check.column].tolist() for check in checks] == [[True, False]] * len(names)


def test_partitions_pass_until_enough_earlier_ones_are_known() -> None:
    rule = LearningRule()
    assert failures(rule, earlier(FEWEST - 1, row_count=100), row_count=1) == []
    assert failures(rule, earlier(FEWEST, row_count=100), row_count=1) == ["rows"]
    assert failures(rule, earlier(FEWEST, row_count=100), row_count=105) == []


def test_partitions_of_equal_values_are_compared_however_they_are_written() -> None:
    rule, keys = LearningRule(per=("hour",)), table(("day", "int"), ("hour", "int"))
    known = [((str(day), "05"), PartitionCheck(day, (), {"row_count": 100})) for day in range(FEWEST)]
    summary = pandas.DataFrame({"partition": ["day=9/hour=5"], "partition_id": [9], "row_count": [1]})
    judged, [check] = learned_checks(summary, [("9", "5")], keys, rule, known)
    assert judged[check.column].tolist() == [False]


def test_distinct_values_are_compared_where_rows_are_usual() -> None:
    known = earlier(10, row_count=100, id_distinct=100)
    assert failures(LearningRule(), known, row_count=50, id_distinct=50) == ["rows"]
    assert failures(LearningRule(), known, row_count=100, id_distinct=50) == ["distinct values of id"]


def test_only_the_measures_of_the_rule_are_compared() -> None:
    known = earlier(10, row_count=100, a_null_ratio=0.0, age_seconds=3_600)
    unusual = {"row_count": 1, "a_null_ratio": 0.5, "age_seconds": 10**6}
    assert failures(LearningRule(frozenset({Measure.NULLS})), known, **unusual) == ["ratio of nulls in a"]
    assert failures(LearningRule(frozenset({Measure.FRESHNESS})), known, **unusual) == [
        "hours from the start of the partition's day to its check"
    ]


def test_only_the_newest_partitions_are_compared() -> None:
    known = [*earlier(10, row_count=1_000), *earlier(30, row_count=10)]
    assert failures(LearningRule(last=10), known, row_count=10) == ["rows"]
    assert failures(LearningRule(last=10), known, row_count=1_000) == []
