"""Previews of searches are bounded and tell the truth, and a proposed index reads no more than any other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog, IndexDefinition, IndexState, NewPartition
from catalog.errors import ExpressionSyntaxError
from catalog.indexes.proposing import IndexProposal
from catalog.partitions import previews
from catalog.partitions.changing import set_quarantined
from catalog.partitions.explaining import Explanation
from tests.support.effort import effort
from tests.support.filters import Given, cases, distinct, is_fit

TABLE_NUMBERS = count()
KEYS = (("country", "string"), ("year", "int"), ("kind", "string"))
ORDERS = (("country",), ("year",), ("kind",), ("country", "year"), ("year", "kind"), ("kind", "country", "year"))


def create(
    catalog: Catalog,
    keys: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str | None]],
    indexes: Sequence[Sequence[str]] = (),
) -> str:
    name = f"demo.preview_{next(TABLE_NUMBERS)}"
    definitions = [IndexDefinition(f"by_{'_'.join(index)}", tuple(index)) for index in indexes]
    catalog.create_table(name, columns=[("id", "int")], partition_keys=list(keys), indexes=definitions)
    catalog.add_partitions(name, [NewPartition(tuple(row)) for row in rows])
    return name


def items_read(catalog: Catalog, table: str, condition: str) -> int:
    explanation = catalog.explain_partitions(table, condition)
    assert isinstance(explanation, Explanation)
    return explanation.partitions_fetched if explanation.index is None else explanation.items_read


def check_proposals(
    catalog: Catalog,
    keys: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str | None]],
    indexes: Sequence[Sequence[str]],
    conditions: Sequence[str],
) -> list[IndexProposal]:
    """Build what is proposed for each condition, and compare what is read with each index alone, and with none."""
    table, alone = create(catalog, keys, rows, indexes), [create(catalog, keys, rows, [index]) for index in indexes]
    proposals = []
    for condition in conditions:
        proposal = catalog.previews.better_index(table, condition)
        if proposal is None:
            continue
        proposals.append(proposal)
        built = create(catalog, keys, rows, [proposal.keys])
        read, others = items_read(catalog, built, condition), [items_read(catalog, other, condition) for other in alone]
        assert proposal.is_exact
        assert proposal.items == read, (condition, proposal)
        assert proposal.items_now == min([len(rows), *others]), (condition, proposal)
        assert read <= min([len(rows), *others])
        assert proposal.keys not in map(tuple, indexes)
    return proposals


@st.composite
def conjunctions(draw: st.DrawFn) -> str:
    values = {"country": ["'DE'", "'FR'", "'US'"], "year": ["1", "2", "3", "4", "5"], "kind": ["'a'", "'b'"]}
    parts = []
    for key in draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=3, unique=True)):
        one, two = (draw(st.sampled_from(values[key])) for _ in range(2))
        form = draw(st.sampled_from(["{k} = {a}", "{k} in ({a}, {b})", "{k} >= {a}", "{k} between {a} and {b}"]))
        parts.append(form.format(k=key, a=one, b=two))
    return " and ".join(parts)


ROWS = st.lists(
    st.tuples(st.sampled_from(["DE", "FR", "US", "IT"]), st.sampled_from("123456"), st.sampled_from("abc")),
    unique=True,
    min_size=20,
    max_size=60,
)


@settings(max_examples=effort(8, 100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=ROWS,
    indexes=st.lists(st.sampled_from(ORDERS), max_size=2, unique=True),
    conditions=st.lists(conjunctions(), min_size=3, max_size=3),
)
def test_a_proposed_index_reads_no_more_than_any_other(
    catalog: Catalog, rows: list[tuple[str, ...]], indexes: list[tuple[str, ...]], conditions: list[str]
) -> None:
    check_proposals(catalog, KEYS, rows, indexes, conditions)


@settings(max_examples=effort(4, 100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_proposals_for_any_filter_tell_what_is_read(catalog: Catalog, case: Given) -> None:
    names = case.key_names
    # The proposed index, of whichever keys, admits them.
    complete = [row for row in distinct(case.key_types, case.rows) if len(row) == len(names)]
    rows = [row for row in complete if is_fit(case.key_types, row)]
    keys = list(zip([name.lower() for name in names], case.key_types, strict=True))
    indexes = {tuple(keys[position][0] for position in positions) for positions in case.indexes}
    check_proposals(catalog, keys, rows, sorted(indexes), [condition.text for condition in case.filters[:4]])


@pytest.fixture
def orders(catalog: Catalog) -> str:
    """A table of three countries and 40 days, with an index by country."""
    days = [str(date(2024, 1, 1) + timedelta(number)) for number in range(40)]
    rows = [(country, day) for country in ("DE", "FR", "US") for day in days]
    return create(catalog, [("country", "string"), ("day", "date")], rows, [("country",)])


def test_keys_with_equality_come_before_a_range(catalog: Catalog, orders: str) -> None:
    proposal = catalog.previews.better_index(orders, "day >= '2024-02-01' and country = 'DE'")
    assert proposal == IndexProposal("by_country_day", ("country", "day"), 9, 40, is_exact=True)


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "true",
        "false",
        "country = 'DE'",
        "country >= 'A'",
        "country like '%E'",
        "day is not null",
        "country = 'DE' or day = '2024-01-01'",
    ],
)
def test_nothing_is_proposed_where_no_index_reads_clearly_less(catalog: Catalog, orders: str, condition: str) -> None:
    assert catalog.previews.better_index(orders, condition) is None


@pytest.mark.usefixtures("unfit_values")
def test_a_key_with_values_that_an_index_refuses_is_not_proposed(catalog: Catalog) -> None:
    table = create(catalog, [("year", "int")], [(str(number),) for number in range(50)])
    assert catalog.previews.better_index(table, "year = 3") is not None
    catalog.add_partitions(table, [NewPartition(("soon",))])
    assert catalog.previews.better_index(table, "year = 3") is None
    catalog.create_partition_index(table, "by_year", ["year"])
    assert catalog.build_partition_index(table, "by_year").state is IndexState.FAILED


def test_an_index_that_is_being_built_is_not_proposed_again(catalog: Catalog, orders: str) -> None:
    catalog.create_partition_index(orders, "of_days", ["day"])
    assert catalog.previews.better_index(orders, "day = '2024-01-01'") is None


def test_the_name_of_a_proposed_index_is_new(catalog: Catalog, orders: str) -> None:
    catalog.create_partition_index(orders, "by_day", ["day", "country"])
    proposal = catalog.previews.better_index(orders, "day = '2024-01-01'")
    assert proposal is not None
    assert (proposal.name, proposal.keys) == ("by_day_2", ("day",))


def test_large_tables_are_sampled(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "_SAMPLED", 1_000)
    rows = [(country, str(year), str(kind)) for country in "abcde" for year in range(20) for kind in range(20)]
    table = create(catalog, KEYS, rows, [("country",)])
    proposal = catalog.previews.better_index(table, "kind = '3' and country in ('a', 'b')")
    assert proposal is not None
    assert (proposal.keys, proposal.is_exact) == (("country", "kind"), False)
    assert proposal.items_now == pytest.approx(800, rel=0.2)
    assert proposal.items == pytest.approx(40, rel=0.5)
    monkeypatch.setattr(previews, "_SAMPLE_SECONDS", 0)
    rare = catalog.previews.better_index(table, "kind = '3' and country = 'a' and year = 7", partition_count=20_000)
    assert rare is not None
    assert rare.items == pytest.approx(10, rel=0.7)
    assert rare.items_now == pytest.approx(4_000, rel=0.2)


def test_a_preview_shows_the_first_partitions_and_what_is_read(catalog: Catalog, orders: str) -> None:
    preview = catalog.previews.search(orders, "country = 'DE' and day < '2024-01-11'", shown=5)
    assert preview.explanation == catalog.explain_partitions(orders, "country = 'DE' and day < '2024-01-11'")
    assert len(preview.partitions) == 5
    assert {partition.values[0] for partition in preview.partitions} == {"DE"}
    with pytest.raises(ExpressionSyntaxError):
        catalog.previews.search(orders, "country =")


def test_what_is_quarantined_is_counted_apart_from_what_does_not_match(catalog: Catalog) -> None:
    table = create(catalog, [("key", "string")], [("x" * 1500,), ("x" * 1499,), ("y",)], [("key",)])
    plan = catalog.previews.search(table, f"key = '{'x' * 1498}'").explanation
    assert (plan.partitions_fetched, plan.partitions_found, plan.quarantined) == (2, 0, 0)
    (held,) = [partition.id for partition in catalog.previews.search(table, "key = 'y'").partitions]
    with catalog.storage.write() as connection:
        set_quarantined(connection, catalog.get_table(table), [held], True)
    plan = catalog.previews.search(table, f"key = '{'x' * 1499}' or key = 'y'").explanation
    assert (plan.partitions_fetched, plan.partitions_found, plan.quarantined) == (3, 1, 1)


@pytest.mark.parametrize(
    "condition", ["country in ('DE', 'FR')", "day > '2024-01-02'", "country > 'A' and day > '2024-01-02'", None]
)
def test_a_preview_stops_at_its_limit(
    catalog: Catalog, orders: str, condition: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.partitions.reading.PAGE", 10)
    monkeypatch.setattr("catalog.partitions.scanning._QUICK", 5)
    whole = catalog.explain_partitions(orders, condition)
    assert isinstance(whole, Explanation)
    cut = catalog.previews.search(orders, condition, shown=100, limit=20).explanation
    assert cut.is_cut
    assert max(cut.items_read, cut.partitions_fetched) in (20, 30)
    assert cut.partitions_found <= whole.partitions_found
    again = catalog.previews.search(orders, condition, limit=1_000).explanation
    assert again == whole
    assert not again.is_cut


def test_values_of_a_key_begin_with_what_was_typed(catalog: Catalog, orders: str) -> None:
    values = catalog.previews.values
    assert values(orders, "country") == ["'DE'", "'FR'", "'US'"]
    assert values(orders, "country", "F") == ["'FR'"]
    assert values(orders, "country", limit=2) == ["'DE'", "'FR'"]
    assert values(orders, "day", "2024-02-0", limit=3) == ["'2024-02-01'", "'2024-02-02'", "'2024-02-03'"]
    assert values(orders, "day", "2025") == values(orders, "id") == values(orders, "country", "d") == []
    catalog.create_partition_index(orders, "by_day", ["day"])
    catalog.build_partition_index(orders, "by_day")
    assert values(orders, "day", "2024-02-0", limit=3) == ["'2024-02-01'", "'2024-02-02'", "'2024-02-03'"]


@given(
    days=st.sets(st.dates(date(1980, 1, 1), date(2030, 12, 31)), min_size=1, max_size=40),
    numbers=st.sets(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2_000), min_size=1, max_size=40),
    data=st.data(),
)
@settings(max_examples=effort(20, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_from_an_index_are_the_first_that_begin_with_what_was_typed(
    catalog: Catalog, days: set[date], numbers: set[int], data: st.DataObject
) -> None:
    name = f"demo.typed_{next(TABLE_NUMBERS)}"
    keys = [("day", "date"), ("n", "bigint")]
    indexes = [IndexDefinition("by_day", ("day",)), IndexDefinition("by_n", ("n",))]
    catalog.create_table(name, columns=[("v", "int")], partition_keys=keys, indexes=indexes)
    rows = {(str(day), "1") for day in days} | {("2024-01-01", str(number)) for number in numbers} | {(None, "1")}
    catalog.add_partitions(name, list(map(NewPartition, rows)))
    days.add(date(2024, 1, 1))
    for key, literals in (("day", sorted(f"'{day}'" for day in days)), ("n", list(map(str, sorted({*numbers, 1}))))):
        whole = data.draw(st.sampled_from(literals)).strip("'")
        prefix = whole[: data.draw(st.integers(1, len(whole)))]
        expected = [literal for literal in literals if literal.strip("'").startswith(prefix)]
        found = catalog.previews.values(name, key, prefix, limit=5)
        assert found == expected[:5] if key == "day" else {*found} <= {*expected} and len(found) == len(expected[:5])


def test_values_with_quotes_nulls_and_great_lengths_are_literals(catalog: Catalog) -> None:
    rows = [("it's",), (None,), ("x" * 2000,), ("ä",)]
    table = create(catalog, [("name", "string")], rows, [("name",)])
    values = catalog.previews.values(table, "name")
    assert values == ["'it''s'", "'ä'"]
    for literal in values:
        assert len(list(catalog.get_partitions(table, f"name = {literal}"))) == 1
    assert catalog.previews.values(table, "name", "it's") == values[:1]


def place_of(catalog: Catalog, table: str, condition: str) -> list[tuple[float, float]]:
    space = catalog.previews.search(table, condition).key_space
    assert space is not None
    return [(round(bar.start, 3), round(bar.end, 3)) for bar in space.bars]


def test_ranges_are_pictured_by_the_values_of_the_first_key(catalog: Catalog, orders: str) -> None:
    third = round(1 / 3, 3)
    assert place_of(catalog, orders, "country = 'DE'") == [(0.0, third)]
    assert place_of(catalog, orders, "country = 'FR' or country = 'US'") == [(third, 0.667), (0.667, 1.0)]
    assert place_of(catalog, orders, "country > 'E'") == [(third, 1.0)]
    space = catalog.previews.search(orders, "country = 'DE'").key_space
    assert space is not None
    assert [text for _, text in space.ticks] == ["DE", "FR", "US"]
    assert space.is_by_value
    assert catalog.previews.search(orders, "day = '2024-01-01'").key_space is None


def test_many_values_are_pictured_by_their_distance(catalog: Catalog) -> None:
    rows = [(str(number),) for number in range(1000)]
    table = create(catalog, [("year", "int")], rows, [("year",)])
    ((start, end),) = place_of(catalog, table, "year >= 250 and year < 500")
    assert (start, end) == (pytest.approx(0.25, abs=0.01), pytest.approx(0.5, abs=0.01))
    space = catalog.previews.search(table, f"year in ({', '.join(map(str, range(0, 1000, 2)))})").key_space
    assert space is not None
    assert len(space.bars) <= 300
    assert not space.is_by_value
    assert [text for _, text in space.ticks] == ["0", "999"]


def test_places_grow_with_the_keys(catalog: Catalog, orders: str) -> None:
    catalog.create_partition_index(orders, "by_day", ["day", "country"])
    catalog.build_partition_index(orders, "by_day")
    places = place_of(catalog, orders, "day in ('2024-01-01', '2024-01-03', '2024-02-09') and country in ('DE', 'US')")
    assert places == sorted(places)
    assert places[0][0] == 0.0
    assert places[-1][1] == 1.0
    assert all(start <= end for start, end in places)


def pairs() -> Iterator[tuple[bytes, bytes]]:
    yield b"", b"\xff"
    yield b"a\x01", b"a\x01"
    yield b"abc", b"acc\x01"


@pytest.mark.parametrize(("low", "high"), pairs())
def test_fractions_lie_between_their_ends(low: bytes, high: bytes) -> None:
    fractions = [previews._fraction(key, low, high) for key in sorted({low, high, low + b"\x80", b"acc"})]
    assert all(0 <= fraction <= 1 for fraction in fractions)
    assert fractions == sorted(fractions)
