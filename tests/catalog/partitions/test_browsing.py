"""Pages and groups of partitions are those that Python makes of all partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, update

from catalog import Catalog, IndexDefinition, NewPartition, Partition, Table
from catalog.datafiles.files import NewFile
from catalog.errors import ExpressionError, IcebergTableError, InvalidRequestError, UnreadableMetadataError
from catalog.model import Column, PartitionState
from catalog.partitions import browsing, conditions
from catalog.partitions.browsing import PartitionSums
from catalog.storage.schema import PartitionCheckRow, PartitionRow
from catalog.tables.schemes import scheme_from_properties
from tests.support.effort import effort
from tests.support.filters import Given, cases, distinct, fits
from tests.support.iceberg_tables import make_orders, migrate
from tests.support.published import add_files

pytestmark = pytest.mark.smoke

NUMBERS = count()
MANY = 100_000


def sums(partitions: Iterable[Partition]) -> PartitionSums:
    """Return the sums over partitions."""
    listed = list(partitions)
    return PartitionSums(
        len(listed),
        sum(partition.state == "QUARANTINED" for partition in listed),
        sum(partition.file_count or 0 for partition in listed),
        sum(partition.row_count or 0 for partition in listed),
        sum(partition.size_bytes or 0 for partition in listed),
        max((partition.created_at_ms for partition in listed), default=None),
    )


def hide(catalog: Catalog, ids: Iterable[int]) -> None:
    with catalog.storage.write() as connection:
        connection.execute(update(PartitionRow).where(PartitionRow.id.in_(list(ids))).values(is_quarantined=True))


def check(catalog: Catalog, passed: dict[int, bool]) -> None:
    """Record the results of quality checks, by the partitions' ids."""
    rows = [
        {"partition_id": number, "operation_number": 1, "passed": is_passed, "failures": [], "checked_at_ms": 1}
        for number, is_passed in passed.items()
    ]
    with catalog.storage.write() as connection:
        connection.execute(insert(PartitionCheckRow), rows)


@pytest.mark.usefixtures("unfit_values")
@pytest.mark.first_case
@settings(max_examples=effort(5, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), with_indexes=st.booleans(), data=st.data())
def test_pages_and_groups_are_those_of_the_partitions_that_match(
    catalog: Catalog, case: Given, with_indexes: bool, data: st.DataObject
) -> None:
    name, names = f"demo.browsed_{next(NUMBERS)}", case.key_names
    indexes = [
        IndexDefinition(f"index_{number}", tuple(names[position] for position in keys))
        for number, keys in enumerate(case.indexes)
    ]
    catalog.create_table(
        name,
        columns=[("flight", "int")],
        partition_keys=list(zip(names, case.key_types, strict=True)),
        indexes=indexes if with_indexes else (),
    )
    rows = distinct(case.key_types, [row for row in case.rows if fits(case, row)])
    catalog.add_partitions(
        name,
        [
            NewPartition(row, f"/elsewhere/{number}", number % 3 or None, number, number * 10)
            for number, row in enumerate(rows)
        ],
    )
    ids = [partition.id for partition in catalog.get_partitions(name)]
    hide(catalog, data.draw(st.sets(st.sampled_from(ids))) if ids else ())
    keys = data.draw(st.lists(st.sampled_from(names), unique=True))
    for expression in [None, *(condition.text for condition in case.filters)]:
        expected = list(catalog.get_partitions(name, expression, state=None))
        page = catalog.browsing.page(name, expression, limit=MANY)
        assert sorted(page.partitions) == sorted(expected), expression
        assert page.sums == sums(expected), expression
        grouped = defaultdict(list)
        for partition in expected:
            grouped[tuple(partition.values[names.index(key)] for key in keys)].append(partition)
        groups = catalog.browsing.groups(name, keys, expression, limit=MANY)
        assert {group.values: group.sums for group in groups.groups if group.sums.partitions} == {
            values: sums(partitions) for values, partitions in grouped.items()
        }, expression


def test_null_and_a_missing_value_are_one_group(catalog: Catalog, flights: Table) -> None:
    catalog.add_partitions(flights.full_name, [NewPartition(("a", "1"), "/a"), NewPartition(("a", "1", None))])
    groups = catalog.browsing.groups(flights.full_name, [flights.key_names[2]]).groups
    assert [(group.values, group.sums.partitions) for group in groups] == [((None,), 2)]


def add(catalog: Catalog, table: Table, *partitions: NewPartition) -> None:
    catalog.add_partitions(table.full_name, partitions)


def values_of(partitions: Iterable[Partition], position: int) -> list[str | None]:
    return [partition.values[position] for partition in partitions]


def test_keys_are_sorted_as_their_types_are_and_nulls_are_last(catalog: Catalog, flights: Table) -> None:
    texts, years = ("b", "B", "ä", None, "a"), ("9", "10", None, "-1", "007")
    add(catalog, flights, *(NewPartition((text, year, None)) for text, year in zip(texts, years, strict=True)))

    def listed(key: str, position: int, *, descending: bool) -> list[str | None]:
        page = catalog.browsing.page(flights.full_name, sort=key, descending=descending)
        every = catalog.browsing.ordered(flights.full_name, sort=key, descending=descending)
        assert list(every) == page.partitions
        return values_of(page.partitions, position)

    assert listed("origin", 0, descending=False) == ["B", "a", "b", "ä", None]
    assert listed("year", 1, descending=False) == ["-1", "007", "9", "10", None]
    assert listed("YEAR", 1, descending=True) == ["10", "9", "007", "-1", None]


@pytest.mark.usefixtures("unfit_values")
def test_a_key_with_values_that_are_no_numbers_can_be_sorted(catalog: Catalog, flights: Table) -> None:
    add(catalog, flights, *(NewPartition(("a", year, None)) for year in ("10", "soon", "9")))
    page = catalog.browsing.page(flights.full_name, sort="year", descending=False)
    assert [year for year in values_of(page.partitions, 1) if year != "soon"] == ["9", "10"]


def test_pages_are_sorted_by_measures_and_cut(catalog: Catalog, flights: Table) -> None:
    counts = [(1, 10, 100), (10, 30, 10), (5, 20, 6), (None, None, None)]
    partitions = [
        NewPartition((str(number), "1", None), None, *given_counts) for number, given_counts in enumerate(counts)
    ]
    add(catalog, flights, *partitions)

    def listed(sort: str, **more: int) -> list[str | None]:
        return values_of(catalog.browsing.page(flights.full_name, sort=sort, **more).partitions, 0)

    assert listed("files") == ["1", "2", "0", "3"]
    assert listed("rows") == ["1", "2", "0", "3"]
    assert listed("bytes") == ["0", "1", "2", "3"]
    assert listed("file_bytes") == ["0", "2", "1", "3"]
    assert listed("newest") == ["3", "2", "1", "0"]
    assert listed("newest", offset=1, limit=2) == ["2", "1"]


def test_partitions_in_an_order_are_filtered_and_chosen_by_state(catalog: Catalog, flights: Table) -> None:
    add(catalog, flights, *(NewPartition((origin, str(year), None)) for origin in "ab" for year in (1, 2)))
    hide(catalog, [next(catalog.get_partitions(flights.full_name, "origin = 'a' and year = 1")).id])

    def listed(expression: str | None, state: PartitionState | None, sort: str = "newest") -> list[tuple[str, str]]:
        found = catalog.browsing.ordered(flights.full_name, expression, sort=sort, state=state)
        return [(str(partition.values[0]), str(partition.values[1])) for partition in found]

    assert listed(None, None) == [("b", "2"), ("b", "1"), ("a", "2"), ("a", "1")]
    assert listed("year = 1", PartitionState.VISIBLE) == [("b", "1")]
    assert listed("year = 1", None, "origin") == [("b", "1"), ("a", "1")]
    assert listed(None, PartitionState.QUARANTINED) == [("a", "1")]
    with pytest.raises(InvalidRequestError, match="cannot be sorted by 'colour'"):
        listed(None, None, "colour")


def test_bad_partitions_are_quarantined_or_failed_their_check(catalog: Catalog, flights: Table) -> None:
    add(catalog, flights, *(NewPartition((origin, "1", "2024-01-01")) for origin in "abcd"))
    ids = {partition.values[0]: partition.id for partition in catalog.get_partitions(flights.full_name)}
    hide(catalog, [ids["a"]])
    check(catalog, {ids["a"]: False, ids["b"]: False, ids["c"]: True})
    page = catalog.browsing.page(flights.full_name, only_bad=True, sort="origin", descending=False)
    assert values_of(page.partitions, 0) == ["a", "b"]
    groups = catalog.browsing.groups(flights.full_name, ["origin"]).groups
    assert {group.values[0]: (group.sums.quarantined, group.failed) for group in groups} == {
        "a": (1, 0),
        "b": (0, 1),
        "c": (0, 0),
        "d": (0, 0),
    }


def test_failed_partitions_are_counted_in_the_largest_of_many_groups(catalog: Catalog, flights: Table) -> None:
    names = "abcd"
    add(catalog, flights, *(NewPartition((name, "1", "2024-01-01"), row_count=ord(name)) for name in names))
    check(catalog, {partition.id: False for partition in catalog.get_partitions(flights.full_name)})
    found = catalog.browsing.groups(flights.full_name, ["origin"], limit=2)
    assert found.is_cut
    assert [(group.values[0], group.failed) for group in found.groups] == [("d", 1), ("c", 1)]


@pytest.mark.parametrize("few", [conditions.BY_ID, 0])
def test_values_that_come_after_a_search_are_found_by_the_next(
    catalog: Catalog, flights: Table, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """The strings of keys are remembered from search to search."""
    monkeypatch.setattr(browsing, "BY_ID", few)
    name, expressions = flights.full_name, ("origin = 'a'", "origin != 'a'", "year > 5 or origin like 'b%'", "year = 7")
    batches = [
        [("a", "1", None), ("b", "9", None)],
        [("c", "1", None), ("ba", "2", None)],
        [("a", "7", None), (None, "007", "2024-01-01"), ("d", "10", None)],
    ]
    for batch in batches:
        add(catalog, flights, *map(NewPartition, batch))
        for expression in expressions:
            expected = sorted(catalog.get_partitions(name, expression))
            page = catalog.browsing.page(name, expression)
            assert (sorted(page.partitions), page.sums) == (expected, sums(expected)), expression
            groups = catalog.browsing.groups(name, ["origin"], expression).groups
            assert sum(group.sums.partitions for group in groups) == len(expected), expression


def test_strings_are_forgotten_if_they_are_too_many(
    catalog: Catalog, flights: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "_REMEMBERED", 2)
    monkeypatch.setattr(conditions, "_ALL_REMEMBERED", 3)
    monkeypatch.setattr(conditions, "_SAMPLED", 1)
    add(catalog, flights, *(NewPartition((origin, year, None)) for origin in "abcde" for year in "12"))
    for expression, number in (("origin != 'a'", 8), ("year = 1", 5), ("origin = 'e' and year != 1", 1)) * 2:
        assert catalog.browsing.page(flights.full_name, expression).sums.partitions == number


@pytest.mark.parametrize("ids", [0, 3, 8])
def test_a_key_with_many_strings_is_filtered_with_and_without_their_list(
    catalog: Catalog, flights: Table, monkeypatch: pytest.MonkeyPatch, ids: int
) -> None:
    for limit, number in {"BY_ID": 0, "_MANY": 1, "_BY_ID_UNLISTED": ids}.items():
        monkeypatch.setattr(conditions, limit, number)
    lists: list[Table] = []
    listed = conditions.Conditions._read_strings
    monkeypatch.setattr(conditions.Conditions, "_read_strings", lambda *given: lists.append(given[2]) or listed(*given))
    add(catalog, flights, *(NewPartition((origin, year, None)) for origin in "abcde" for year in "12"))
    for expression, number in (("origin != 'a'", 8), ("origin = 'e'", 2), ("origin = 'c' or origin = 'd'", 4)):
        page = catalog.browsing.page(flights.full_name, expression)
        assert (len(page.partitions), page.sums.partitions) == (number, number)
        assert bool(lists) is (number > ids)
        lists.clear()
        assert sorted(page.partitions) == sorted(catalog.get_partitions(flights.full_name, expression))
        catalog.browsing._conditions._remembered = {}


def test_groups_are_cut_at_the_limit(catalog: Catalog, flights: Table) -> None:
    add(catalog, flights, *(NewPartition((str(number), "1", None)) for number in range(4)))
    for limit, found, is_cut in ((3, 3, True), (4, 4, False)):
        groups = catalog.browsing.groups(flights.full_name, ["origin"], limit=limit)
        assert (len(groups.groups), groups.is_cut) == (found, is_cut)


def test_what_cannot_be_browsed_is_refused_with_a_reason(catalog: Catalog, flights: Table) -> None:
    name = flights.full_name
    with pytest.raises(InvalidRequestError, match="sorted by 'colour'; sort them by one of newest, rows"):
        catalog.browsing.page(name, sort="colour")
    with pytest.raises(InvalidRequestError, match="offset -1 is negative"):
        catalog.browsing.page(name, offset=-1)
    with pytest.raises(InvalidRequestError, match=r"'colour' is no partition key of demo\.flights; its keys"):
        catalog.browsing.groups(name, ["colour"])
    with pytest.raises(ExpressionError):
        catalog.browsing.page(name, "colour = 1")
    with catalog.storage.write() as connection:
        connection.exec_driver_sql("UPDATE calve_table SET table_type = 'ICEBERG'")
    with pytest.raises(IcebergTableError):
        catalog.browsing.page(name)


def test_a_partition_is_found_by_its_id_in_its_own_table_only(catalog: Catalog, flights: Table) -> None:
    add(catalog, flights, NewPartition(("a", "1", None)))
    (found,) = catalog.get_partitions(flights.full_name)
    other = catalog.create_table("demo.other", columns=[("v", "int")], partition_keys=[("k", "int")])
    assert catalog.browsing.partition(flights.full_name, found.id) == found
    assert catalog.browsing.partition(other.full_name, found.id) is None
    assert catalog.browsing.partition(flights.full_name, found.id + 1) is None


def test_files_are_those_of_a_partition_or_of_the_table_smallest_first(catalog: Catalog) -> None:
    scheme = scheme_from_properties(Column("n", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table("demo.hashed", columns=[("n", "int")], scheme=scheme)
    sizes = [30, 10, 20, 40]
    add_files(
        catalog,
        "demo.hashed",
        [NewFile(number % 2, f"f-{number}", number, size, {}) for number, size in enumerate(sizes)],
    )

    def listed(partition_id: int | None = None, **more: int) -> tuple[list[str], tuple[int, int, int]]:
        found, total = catalog.browsing.files("demo.hashed", partition_id, **more)
        return [file.path for file in found], (total.files, total.rows, total.size_bytes)

    assert listed() == (["f-1", "f-2", "f-0", "f-3"], (4, 6, 100))
    assert listed(1) == (["f-1", "f-3"], (2, 4, 50))
    assert listed(offset=1, limit=2) == (["f-2", "f-0"], (4, 6, 100))
    assert listed(7) == ([], (0, 0, 0))


def test_snapshots_tell_the_totals_of_an_iceberg_table(catalog: Catalog, flights: Table) -> None:
    make_orders(catalog, "demo.migrated")
    assert catalog.browsing.snapshots("demo.migrated") is None
    assert catalog.browsing.snapshots(flights.full_name) is None
    migrate(catalog, "demo.migrated")
    found = catalog.browsing.snapshots("demo.migrated")
    assert found is not None
    assert (found.files, found.rows, found.count, found.partitioned_by) == (4, 7, 1, ["country", "year"])
    assert [(line.operation, line.added_files, line.added_rows) for line in found.latest] == [("append", 4, 7)]
    location = catalog.get_table("demo.migrated").metadata_location
    assert location is not None
    Path(location.removeprefix("file:")).write_text("no metadata")
    with pytest.raises(UnreadableMetadataError, match=r"demo\.migrated"):
        catalog.browsing.snapshots("demo.migrated")
