"""Searches for partitions: paging, snapshot consistency, quarantine and explanations; on each database."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from catalog import Catalog, IndexState, NewPartition, PartitionState, Table
from catalog.errors import UnknownColumnError
from catalog.indexes.planner import FILTERING_PROPERTY
from catalog.partitions.changing import set_quarantined

pytestmark = pytest.mark.smoke

TABLE = "demo.flights"
AIRPORTS = ("EWR", "JFK", "LGA")


def add_days(catalog: Catalog, year: int, days: int = 12) -> None:
    """Add partitions of a year: on each of some days, one for each airport."""
    catalog.add_partitions(
        TABLE,
        [
            NewPartition([airport, str(year), f"{year}-01-{day:02}"], row_count=day)
            for day in range(1, days + 1)
            for airport in AIRPORTS
        ],
    )


@pytest.fixture
def indexed(catalog: Catalog, flights: Table) -> Table:
    """The flights of 2012 and 2013, with an index on (origin, year, day)."""
    catalog.create_partition_index(TABLE, "by_origin", ["origin", "year", "day"])
    add_days(catalog, 2012)
    add_days(catalog, 2013)
    return flights


def ids(catalog: Catalog, expression: str | None = None, *, use_indexes: bool = True) -> list[int]:
    return sorted(partition.id for partition in catalog.get_partitions(TABLE, expression, use_indexes=use_indexes))


def test_column_names_match_without_regard_to_case(catalog: Catalog, indexed: Table) -> None:
    assert len(ids(catalog, "ORIGIN = 'JFK' and Year = 2013")) == 12
    assert ids(catalog, "ORIGIN = 'jfk'") == []


def test_every_match_is_found_once_over_many_pages(catalog: Catalog, flights: Table) -> None:
    catalog.create_partition_index(TABLE, "by_origin", ["origin", "day"])
    catalog.add_partitions(
        TABLE, (NewPartition([AIRPORTS[number % 3], str(number), "2013-01-01"]) for number in range(11_000))
    )
    for expression, count in {
        "": 11_000,
        "origin >= 'A'": 11_000,
        "origin >= 'A' and day > '2000-01-01'": 11_000,
        "origin > 'F'": 7_333,
        "origin not like '%W%'": 7_333,
    }.items():
        found = ids(catalog, expression)
        assert len(found) == len(set(found)) == count
        assert found == ids(catalog, expression, use_indexes=False)


@pytest.mark.parametrize("use_indexes", [True, False])
def test_an_open_search_sees_one_state_of_the_catalog(catalog: Catalog, flights: Table, use_indexes: bool) -> None:
    catalog.create_partition_index(TABLE, "by_origin", ["origin"])
    catalog.add_partitions(TABLE, (NewPartition(["JFK", str(number), None]) for number in range(6000)))
    search = catalog.get_partitions(TABLE, "origin = 'JFK'", use_indexes=use_indexes)
    seen = [partition.values[1] for partition in islice(search, 10)]

    catalog.drop_partitions(TABLE, "year < 3000")
    catalog.add_partitions(TABLE, (NewPartition(["JFK", str(number), None]) for number in range(6000, 7000)))
    catalog.delete_partition_index(TABLE, "by_origin")

    seen += [partition.values[1] for partition in search]
    assert sorted(map(int, filter(None, seen))) == list(range(6000))
    assert len(ids(catalog, "origin = 'JFK'")) == 4000


def test_a_search_planned_before_its_index_went_away_still_answers(catalog: Catalog, indexed: Table) -> None:
    search = catalog.scan_partitions(TABLE, "origin = 'JFK'")
    assert search.plan.index is not None
    catalog.delete_partition_index(TABLE, "by_origin")
    assert len(list(search.partitions)) == 24


def test_a_search_that_is_not_read_to_its_end_gives_its_connection_back(catalog: Catalog, indexed: Table) -> None:
    for _ in range(40):
        search = catalog.get_partitions(TABLE, "origin = 'JFK'")
        next(search)
        search.close()  # type: ignore[attr-defined]
    add_days(catalog, 2014)


def test_a_wrong_expression_is_refused_before_the_first_partition_is_asked_for(
    catalog: Catalog, flights: Table
) -> None:
    with pytest.raises(UnknownColumnError, match="'dep_delay'"):
        catalog.get_partitions(TABLE, "dep_delay > 3")


def test_quarantined_partitions_are_invisible_until_they_are_released(catalog: Catalog, indexed: Table) -> None:
    january = ids(catalog, "day = '2013-01-01'")
    with catalog.storage.write() as connection:
        assert set_quarantined(connection, indexed, january, True) == 3
        assert set_quarantined(connection, indexed, january, True) == 0

    for use_indexes in (True, False):
        for expression in ("year = 2013", "origin = 'JFK' and year = 2013", None):
            assert not set(january) & set(ids(catalog, expression, use_indexes=use_indexes))
    quarantined = list(catalog.get_partitions(TABLE, "year = 2013", state=PartitionState.QUARANTINED))
    assert sorted(partition.id for partition in quarantined) == january
    assert {partition.state for partition in quarantined} == {PartitionState.QUARANTINED}
    assert len(list(catalog.get_partitions(TABLE, "year = 2013", state=None))) == 36
    assert catalog.get_partition(TABLE, ["JFK", "2013", "2013-01-01"]).state is PartitionState.QUARANTINED
    assert catalog.drop_partitions(TABLE, "day = '2013-01-01'") == 0

    assert catalog.release_partitions(TABLE, "origin = 'JFK'") == 1
    assert catalog.release_partitions(TABLE) == 2
    assert catalog.release_partitions(TABLE) == 0
    assert len(ids(catalog, "year = 2013")) == 36


# --- explain --------------------------------------------------------------------------------------------------------


def test_an_equality_prefix_and_a_range_are_one_range_of_the_index(catalog: Catalog, indexed: Table) -> None:
    explanation = catalog.explain_partitions(TABLE, "day <= '2013-01-03' and year = 2013 and origin = 'JFK'")
    assert explanation.as_json() == {
        "index": "by_origin",
        "index_conditions": [
            {"key": "origin", "operator": "="},
            {"key": "year", "operator": "="},
            {"key": "day", "operator": "<="},
        ],
        "checked_keys": [],
        "residual_keys": [],
        "skipped_keys": [],
        "values_looked_up": 0,
        "not_skipped": None,
        "ranges": ["origin = 'JFK' and year = 2013 and day <= '2013-01-03'"],
        "items_read": 3,
        "partitions_fetched": 3,
        "partitions_found": 3,
        "not_used": {},
    }
    assert json.loads(json.dumps(explanation.as_json())) == explanation.as_json()


def test_conditions_behind_the_range_are_checked_before_a_partition_is_fetched(
    catalog: Catalog, indexed: Table
) -> None:
    explanation = catalog.explain_partitions(
        TABLE, "origin = 'JFK' and year > 2000 and (day = '2013-01-03' or year = 1)"
    )
    assert explanation.index_conditions == (("origin", "="), ("year", "="), ("year", ">"), ("day", "="))
    assert explanation.ranges == ("origin = 'JFK' and year > 2000",)
    assert explanation.checked_keys == ("year", "day")
    assert (explanation.items_read, explanation.partitions_fetched, explanation.partitions_found) == (24, 1, 1)


@pytest.mark.parametrize(
    ("expression", "skipped", "ranges", "found"),
    [
        (
            "origin = 'JFK' and day = '2013-01-03'",
            ("year",),
            (
                "origin = 'JFK' and year = 2012 and day = '2013-01-03'",
                "origin = 'JFK' and year = 2013 and day = '2013-01-03'",
            ),
            1,
        ),
        (
            "origin = 'JFK' and year > 2000 and day = '2013-01-03'",
            ("year",),
            (
                "origin = 'JFK' and year = 2012 and day = '2013-01-03'",
                "origin = 'JFK' and year = 2013 and day = '2013-01-03'",
            ),
            1,
        ),
        (
            "year = 2013 and day < '2013-01-03'",
            ("origin",),
            tuple(f"origin = '{airport}' and year = 2013 and day < '2013-01-03'" for airport in AIRPORTS),
            6,
        ),
        (
            "day = '2013-01-03'",
            ("origin", "year"),
            tuple(
                f"origin = '{airport}' and year = {year} and day = '2013-01-03'"
                for airport in AIRPORTS
                for year in (2012, 2013)
            ),
            3,
        ),
        (
            "origin >= 'JFK' and year < 2013 and day = '2012-01-03'",
            ("origin", "year"),
            tuple(f"origin = '{airport}' and year = 2012 and day = '2012-01-03'" for airport in AIRPORTS[1:]),
            2,
        ),
        ("year = 2013", ("origin",), tuple(f"origin = '{airport}' and year = 2013" for airport in AIRPORTS), 36),
    ],
)
def test_keys_that_are_not_bound_to_single_values_are_skipped(
    catalog: Catalog, indexed: Table, expression: str, skipped: tuple[str, ...], ranges: tuple[str, ...], found: int
) -> None:
    explanation = catalog.explain_partitions(TABLE, expression)
    assert (explanation.skipped_keys, explanation.ranges) == (skipped, ranges)
    assert (explanation.items_read, explanation.partitions_fetched, explanation.partitions_found) == (found,) * 3


def test_a_key_with_many_values_is_not_skipped(catalog: Catalog, flights: Table) -> None:
    catalog.create_partition_index(TABLE, "by_origin", ["origin", "year", "day"])
    catalog.add_partitions(
        TABLE, (NewPartition([f"{number % 300:03}", str(number), "2013-01-01"]) for number in range(600))
    )
    first = catalog.explain_partitions(TABLE, "year = 7")
    assert (first.index, first.partitions_fetched, first.partitions_found) == (None, 600, 1)
    assert first.not_used == {
        "by_origin": "origin is not bound to values, and has too many to look up, 257 for 600 item(s); "
        "reading all partitions takes less time"
    }
    catalog.add_partitions(TABLE, (NewPartition(["JFK", str(number), "2013-01-02"]) for number in range(300)))
    inner = catalog.explain_partitions(TABLE, "origin = 'JFK' and day = '2013-01-01'")
    assert (inner.index, inner.skipped_keys, inner.checked_keys) == ("by_origin", (), ("day",))
    assert inner.not_skipped == "year is not bound to values, and has too many to look up, 257 for 300 item(s)"
    assert (inner.items_read, inner.partitions_found) == (300, 0)


@pytest.mark.parametrize(
    ("expression", "ranges", "found"),
    [
        ("origin in ('LGA', 'JFK') and year = 2013", 2, 24),
        ("origin = 'JFK' or origin = 'LGA'", 2, 48),
        ("origin = 'JFK' and (year = 2012 or year = '2013') and day = '2013-01-01'", 2, 1),
        ("origin = 'JFK' and year = 2012 or origin = 'LGA' and year = 2013", 2, 24),
        ("origin = 'JFK' and year = 2012 or origin = 'JFK' and day > '2013-01-05'", 1, 19),
        ("origin <> 'JFK'", 2, 48),
        ("origin like 'J%'", 1, 24),
        ("origin like 'J_K'", 1, 24),
        ("not origin > 'EWR'", 1, 24),
        ("origin not in ('EWR', 'LGA') and not (year < 2013)", 1, 12),
        ("origin between 'EWR' and 'JFK'", 1, 48),
        ("origin between 'JFK' and 'EWR'", 0, 0),
        ("origin is null", 1, 0),
        ("origin is not null", 1, 72),
    ],
)
def test_lists_alternatives_and_opposites_are_ranges_of_the_index(
    catalog: Catalog, indexed: Table, expression: str, ranges: int, found: int
) -> None:
    explanation = catalog.explain_partitions(TABLE, expression)
    assert explanation.index == "by_origin"
    assert (len(explanation.ranges), explanation.partitions_found) == (ranges, found)
    assert ids(catalog, expression) == ids(catalog, expression, use_indexes=False)


def test_a_long_list_is_many_ranges_and_a_longer_one_is_one(catalog: Catalog, flights: Table) -> None:
    catalog.create_partition_index(TABLE, "by_year", ["year", "origin"])
    catalog.add_partitions(TABLE, (NewPartition(["JFK", str(number), "2013-01-01"]) for number in range(3000)))
    for step, ranges in ((2, 1500), (1, 3000)):
        listed = ", ".join(map(str, range(0, 3000, step)))
        explanation = catalog.explain_partitions(TABLE, f"year in ({listed}) and origin = 'JFK'")
        assert (len(explanation.ranges), explanation.items_read, explanation.partitions_found) == (ranges,) * 3
    listed = ", ".join(map(str, range(0, 12_000, 2)))
    explanation = catalog.explain_partitions(TABLE, f"year in ({listed})")
    assert (len(explanation.ranges), explanation.items_read, explanation.partitions_found) == (1, 3000, 1500)
    assert explanation.checked_keys == ("year",)


@pytest.mark.parametrize(
    "expression",
    [
        "origin <> '{a}'",
        "origin not in ('{a}', '')",
        "origin in ('{a}', '{b}')",
        "origin >= '{a}' and year = 2013",
        "year = 2013",
    ],
)
def test_texts_that_differ_behind_the_end_of_an_index_key_are_told_apart(
    catalog: Catalog, flights: Table, expression: str
) -> None:
    long = {"a": "x" * 1100 + "a", "b": "x" * 1100 + "b"}
    catalog.create_partition_index(TABLE, "by_origin", ["origin", "year"])
    for name in (*long.values(), "x", ""):
        catalog.add_partitions(
            TABLE, [NewPartition([name, "2013", "2013-01-01"], location=f"/x/{len(name)}{name[-1:]}")]
        )
    asked = expression.format(**long)
    found = [partition.id for partition in catalog.get_partitions(TABLE, asked)]
    assert catalog.explain_partitions(TABLE, asked).index == "by_origin"
    assert sorted(found) == ids(catalog, asked, use_indexes=False)
    assert len(set(found)) == len(found) > 0


def test_a_condition_that_nothing_matches_reads_nothing(catalog: Catalog, indexed: Table) -> None:
    explanation = catalog.explain_partitions(TABLE, "origin = 'JFK' and 1 = 0")
    assert (explanation.items_read, explanation.partitions_fetched, explanation.partitions_found) == (0, 0, 0)


def test_what_no_index_answers_is_residual(catalog: Catalog, flights: Table) -> None:
    catalog.create_partition_index(TABLE, "by_origin", ["origin"])
    add_days(catalog, 2013)
    explanation = catalog.explain_partitions(TABLE, "origin = 'JFK' and (year = 2013 or not day = '2013-01-03')")
    assert explanation.index == "by_origin"
    assert explanation.residual_keys == ("year", "day")
    assert (explanation.items_read, explanation.partitions_fetched, explanation.partitions_found) == (12, 12, 12)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("not (day = '2013-01-01' and year = 2013)", "none of its keys is bound in the top-level AND"),
        ("origin = 'JFK' or year = 2013", "none of its keys is bound in the top-level AND"),
        (None, "no condition"),
    ],
)
def test_an_index_that_is_not_read_says_why(
    catalog: Catalog, indexed: Table, expression: str | None, reason: str
) -> None:
    explanation = catalog.explain_partitions(TABLE, expression)
    assert explanation.index is None
    assert reason in explanation.not_used["by_origin"]
    assert (explanation.items_read, explanation.partitions_fetched) == (0, 72)


def test_the_index_that_reads_the_fewest_items_is_read(catalog: Catalog, indexed: Table) -> None:
    catalog.create_partition_index(TABLE, "by_day", ["day", "origin"])
    catalog.create_partition_index(TABLE, "half_built", ["year"])
    catalog.build_partition_index(TABLE, "by_day")

    explanation = catalog.explain_partitions(TABLE, "origin = 'JFK' and day = '2013-01-03' and year > 2012")
    assert explanation.index == "by_day"
    assert explanation.residual_keys == ("year",)
    assert explanation.not_used == {
        "by_origin": "by_day reads as many items, 1, and looks up 0 value(s) against 1",
        "half_built": f"is {IndexState.CREATING}",
    }
    assert catalog.explain_partitions(TABLE, "origin = 'JFK' and year = 2013").index == "by_origin"

    # The first index binds more keys, the second needs no look-ups.
    catalog.add_partitions(TABLE, [NewPartition(["JFK", "2014", f"2013-02-{day:02}"]) for day in range(1, 29)])
    catalog.add_partitions(TABLE, [NewPartition(["EWR", "2014", "2014-05-05"])])
    explanation = catalog.explain_partitions(TABLE, "origin >= 'EWR' and year = 2014 and day = '2014-05-05'")
    assert explanation.index == "by_day"
    assert explanation.not_used["by_origin"] == "by_day reads as many items, 1, and looks up 0 value(s) against 3"


def test_filtering_by_index_is_turned_off_by_a_table_property(catalog: Catalog, indexed: Table) -> None:
    expected = ids(catalog, "origin = 'JFK'")
    catalog.alter_table(TABLE, properties={FILTERING_PROPERTY: "False"})
    explanation = catalog.explain_partitions(TABLE, "origin = 'JFK'")
    assert (explanation.index, explanation.partitions_fetched) == (None, 72)
    assert explanation.not_used == {"by_origin": "table property partition_filtering.enabled is false"}
    assert ids(catalog, "origin = 'JFK'") == expected

    catalog.alter_table(TABLE, properties={FILTERING_PROPERTY: "true"})
    assert catalog.explain_partitions(TABLE, "origin = 'JFK'").index == "by_origin"


def test_an_explanation_is_text_for_people(catalog: Catalog, indexed: Table) -> None:
    catalog.create_partition_index(TABLE, "by_year", ["year"])
    text = str(catalog.explain_partitions(TABLE, "origin = 'JFK' and year >= 2013"))
    for line in (
        "index:              by_origin",
        "answered by it:     origin =, year >=",
        "range:              origin = 'JFK' and year >= 2013",
        "checked afterwards: nothing",
        "items read:         12",
        "partitions found:   12",
        "not used:           by_year: is CREATING",
    ):
        assert line in text.splitlines()
    assert "none, all partitions are read" in str(catalog.explain_partitions(TABLE))


# --- dropping -------------------------------------------------------------------------------------------------------


def test_dropping_takes_the_matching_partitions_and_no_others(catalog: Catalog, indexed: Table) -> None:
    kept = set(ids(catalog)) - set(ids(catalog, "origin = 'JFK' and year = 2013"))
    assert catalog.drop_partitions(TABLE, "origin = 'JFK' and year = 2013") == 12
    assert set(ids(catalog)) == kept
    assert catalog.drop_partitions(TABLE, "origin = 'JFK' and year = 2013") == 0
    assert catalog.drop_partitions(TABLE) == 60
    assert ids(catalog) == []


def test_a_partition_added_after_a_drop_is_another_one(catalog: Catalog, flights: Table) -> None:
    add_days(catalog, 2013, 1)
    before = ids(catalog)
    catalog.drop_partitions(TABLE)
    add_days(catalog, 2013, 1)
    assert min(ids(catalog)) > max(before)


# --- look-ups -------------------------------------------------------------------------------------------------------


def test_a_long_list_behind_a_key_with_many_values_is_answered_exactly(catalog: Catalog, flights: Table) -> None:
    catalog.create_partition_index(TABLE, "by_origin", ["origin", "year"])
    values = [(f"{airport:03}", str(year)) for airport in range(180) for year in range(60)]
    catalog.add_partitions(TABLE, [NewPartition([*pair, "2013-01-01"]) for pair in values])
    listed = f"year in ({', '.join(map(str, range(0, 60, 2)))})"
    assert ids(catalog, listed) == ids(catalog, listed, use_indexes=False)
    assert len(ids(catalog, listed)) == 5_400


@pytest.mark.parametrize("is_measured", [False, True])
def test_several_keys_are_skipped_in_a_large_table(catalog: Catalog, flights: Table, is_measured: bool) -> None:
    catalog.create_partition_index(TABLE, "by_origin", ["origin", "year", "day"])
    values = [
        (f"{airport:02}", str(year), f"{year}-01-{day:02}")
        for airport in range(20)
        for year in range(2000, 2010)
        for day in range(1, 29)
    ]
    catalog.add_partitions(TABLE, list(map(NewPartition, values)))
    expression = "day = '2003-01-05'"
    for _ in range(1 + is_measured):
        explanation = catalog.explain_partitions(TABLE, expression)
    assert (explanation.skipped_keys, explanation.values_looked_up) == (("origin", "year"), 220)
    assert (explanation.items_read, explanation.partitions_found, len(explanation.ranges)) == (20, 20, 200)
    assert ids(catalog, expression) == ids(catalog, expression, use_indexes=False)


def test_the_choice_between_look_ups_and_items_follows_the_table(
    catalog: Catalog, flights: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_partition_index(TABLE, "by_origin", ["origin", "year", "day"])
    catalog.add_partitions(TABLE, [NewPartition(["JFK", str(year), "2013-01-01"]) for year in range(40)])
    expression = "origin = 'JFK' and day = '2013-01-05'"
    assert catalog.explain_partitions(TABLE, expression).skipped_keys == ()
    days = [f"2013-01-{day:02}" for day in range(2, 10)]
    catalog.add_partitions(TABLE, [NewPartition(["JFK", str(year), day]) for year in range(40) for day in days])
    # A plan is kept for a time, in which the table may grow.
    assert len(ids(catalog, expression)) == 40
    monkeypatch.setattr("catalog.partitions.scanning._PREPARED_SECONDS", 0.0)
    explanation = catalog.explain_partitions(TABLE, f"{expression} and year >= 0")
    assert (explanation.skipped_keys, explanation.items_read, explanation.not_skipped) == (("year",), 40, None)


def test_too_many_values_end_the_look_ups(catalog: Catalog, indexed: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.partitions.lookups.MAXIMUM_LOOK_UPS", 2)
    explanation = catalog.explain_partitions(TABLE, "year = 2013")
    assert explanation.index is None
    reason = "origin is not bound to values, and has more than 2, which are too many to look up"
    assert explanation.not_used == {"by_origin": f"{reason}; reading all partitions takes less time"}
    monkeypatch.setattr("catalog.indexes.skipping.MAXIMUM_SPANS", 1)
    explanation = catalog.explain_partitions(TABLE, "origin in ('JFK', 'LGA') and day = '2013-01-01'")
    assert explanation.not_skipped == "its keys are followed by too many ranges"
    assert (explanation.items_read, explanation.partitions_found) == (48, 2)


# --- names and rows -------------------------------------------------------------------------------------------------


def test_names_are_those_of_the_partitions(catalog: Catalog, flights: Table) -> None:
    catalog.create_partition_index(TABLE, "by_year", ["year"])
    for values in (["a/b=c%", "1", "2013-01-01"], [None, "02", "2013-01-01"], ["ä", "3", None]):
        catalog.add_partitions(TABLE, [NewPartition(values)])
    table = catalog.get_table(TABLE)
    for expression in (None, "year >= 2", "origin is null", "day = '2013-01-01'"):
        names = sorted(catalog.partition_names(TABLE, expression))
        assert names == sorted(partition.name(table) for partition in catalog.get_partitions(TABLE, expression))
    assert "origin=a%2Fb%3Dc%25/year=1/day=2013-01-01" in names
    with catalog.storage.write() as connection:
        assert set_quarantined(connection, table, ids(catalog, "year = 3"), True) == 1
    assert list(catalog.partition_names(TABLE, "year > 2")) == []
    assert len(list(catalog.partition_names(TABLE, "year > 2", state=PartitionState.QUARANTINED))) == 1
    with pytest.raises(UnknownColumnError):
        catalog.partition_names(TABLE, "carrier = 'AA'")


def test_rows_have_the_columns_that_are_asked_for(catalog: Catalog, indexed: Table) -> None:
    for expression, use_indexes in (("origin = 'JFK' and year = 2013", True), ("year = 2013", True), (None, False)):
        scan = catalog.scan_partition_rows(TABLE, expression, columns=("id", "row_count"), use_indexes=use_indexes)
        partitions = catalog.get_partitions(TABLE, expression)
        expected = {("/".join(map(str, row.values)), False, row.id, row.row_count) for row in partitions}
        assert {tuple(row) for page in scan.pages for row in page} == expected
        assert scan.table.full_name == TABLE
