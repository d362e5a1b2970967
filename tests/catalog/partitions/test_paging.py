"""Pages of partitions: each partition is on exactly one, whichever process returns them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog import Catalog, NewPartition, Table
from catalog.errors import InvalidRequestError
from catalog.partitions.paging import Position, Segment

NUMBERS = range(57)
FILTERS = (None, " ", "year >= 0", "origin = 'A' and year > 10", "year > 99")


@pytest.fixture
def numbered(catalog: Catalog, flights: Table) -> Table:
    """`demo.flights` with a partition for each number."""
    catalog.add_partitions(
        flights.full_name,
        [NewPartition(["AB"[number % 2], str(number), "2024-01-01"]) for number in NUMBERS],
    )
    return flights


def pages(catalog: Catalog, table: Table, expression: str | None, limit: int, **more: Segment) -> Iterator[list[int]]:
    """Yield the ids on each page; half of the pages are returned by a catalog that has none of the searches."""
    position: Position | None = None
    with Catalog.open(str(catalog.storage.url.render_as_string(hide_password=False))) as other:
        while True:
            page = catalog.partition_page(table.full_name, expression, limit=limit, position=position, **more)
            yield [partition.id for partition in page.partitions]
            if page.following is None:
                return
            position, (catalog, other) = page.following, (other, catalog)


@pytest.mark.parametrize("expression", FILTERS)
@pytest.mark.parametrize("limit", [1, 10, 57, 100])
def test_each_partition_is_on_one_page(catalog: Catalog, numbered: Table, expression: str | None, limit: int) -> None:
    expected = sorted(partition.id for partition in catalog.get_partitions(numbered.full_name, expression))
    found = list(pages(catalog, numbered, expression, limit))
    assert [number for page in found for number in page] == expected
    assert all(len(page) == limit for page in found[:-1])
    assert 0 <= len(found[-1]) <= limit
    parts = [page for n in range(4) for page in pages(catalog, numbered, expression, limit, segment=Segment(n, 4))]
    assert sorted(number for page in parts for number in page) == expected


def test_dropped_partitions_are_left_out(catalog: Catalog, numbered: Table) -> None:
    first = catalog.partition_page(numbered.full_name, "year >= 0", limit=10)
    catalog.drop_partitions(numbered.full_name, "year >= 15")
    rest = catalog.partition_page(numbered.full_name, "year >= 0", limit=100, position=first.following)
    left = {partition.id for partition in catalog.get_partitions(numbered.full_name)}
    assert {partition.id for partition in rest.partitions} == left - {partition.id for partition in first.partitions}
    assert rest.following is None


@pytest.mark.usefixtures("unfit_values")
def test_a_value_that_is_not_of_its_type_fulfils_no_comparison(catalog: Catalog, flights: Table) -> None:
    catalog.add_partitions(
        flights.full_name, [NewPartition(["A", "many", "2024-01-01"]), NewPartition(["B", "1", "2024-01-01"])]
    )
    for year in ("year = 1", "year != 2"):
        for nulls_are_texts in (False, True):
            page = catalog.partition_page(flights.full_name, year, limit=10, nulls_are_texts=nulls_are_texts)
            assert [partition.values[0] for partition in page.partitions] == ["B"]
    assert len(catalog.partition_page(flights.full_name, "origin = 'A'", limit=10).partitions) == 1


def test_a_page_has_a_partition(catalog: Catalog, flights: Table) -> None:
    with pytest.raises(InvalidRequestError, match="0 partitions"):
        catalog.partition_page(flights.full_name, limit=0)
