"""GetPartitions: from the expression to the list of full `Partition` objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.databases import Database, Row
from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.sample import TABLE
from benchmarks.timing import Pair, compare
from catalog import Catalog, Partition

HEADINGS = {
    "get_partitions": "GetPartitions ÷ hand-written SQL: full objects, beside raw rows of a table made for the query",
    "get_partitions_no_index": "GetPartitions ÷ without an index: the same expression on the same table",
    "get_partitions_own_index": "Skip scan ÷ index of its own: an expression without the first key of the index",
    "get_partitions_flatness": "GetPartitions among many ÷ among few: the same ones at the two ends of the scale",
}
MOST_OF_RAW_ROWS = 2.5
MOST_OF_OWN_INDEX = 10.0
MOST_OF_SMALLEST = 1.3


@dataclass(frozen=True)
class Query:
    """One query, for the catalog and in SQL.

    Attributes:
        table, where, values: The hand-written table for the query, its condition, and the values for its `?`.
        is_selective: Whether it finds the same few partitions at every scale.
    """

    case: str
    expression: str | None
    table: str
    where: str = "true"
    values: tuple[object, ...] = ()
    is_selective: bool = False


SKIP_SCAN = Query(
    "skip_scan",
    "category = 'category-00' and year = 2015 and month = 2",
    "by_category",
    "category = ? and year = ? and month = ?",
    ("category-00", 2015, 2),
)
QUERIES = (
    Query(
        "prefix",
        "country = 'US' and category = 'category-00' and year = 2015",
        "by_country",
        "country = ? and category = ? and year = ?",
        ("US", "category-00", 2015),
        is_selective=True,
    ),
    Query(
        "prefix_range",
        "country = 'US' and category = 'category-00' and year = 2015 and month between 2 and 4",
        "by_country",
        "country = ? and category = ? and year = ? and month between ? and ?",
        ("US", "category-00", 2015, 2, 4),
        is_selective=True,
    ),
    Query(
        "in_list",
        "country in ('US', 'DE') and category = 'category-00' and year = 2015",
        "by_country",
        "country in (?, ?) and category = ? and year = ?",
        ("US", "DE", "category-00", 2015),
        is_selective=True,
    ),
    SKIP_SCAN,
    Query(
        "two_skipped_keys",
        "category = 'category-00' and month = 2",
        "by_month",
        "month = ? and category = ?",
        (2, "category-00"),
    ),
    Query("three_skipped_keys", "month >= 12", "by_month", "month >= ?", (12,)),
    Query("non_indexed_key", "day = 15", "by_day", "day = ?", (15,)),
    Query("everything", None, "by_country"),
)


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield each query at each scale against hand-written SQL and no index, and at the largest against the smallest."""
    for database in ground.databases:
        for count in ground.scales:
            yield from _at_scale(ground, database, count)
        smallest, largest = (ground.site(database, count).catalog for count in (ground.scales[0], ground.scales[-1]))
        for query in QUERIES:
            if query.is_selective:
                pair = compare(find(largest, query), find(smallest, query), ground.effort)
                name = f"get_partitions_flatness.{query.case}.{ground.scales[-1]}.{database.name}"
                yield _figure(name, pair, MOST_OF_SMALLEST)


def _at_scale(ground: Ground, database: Database, count: int) -> Iterator[Figure]:
    site = ground.site(database, count)
    for query in QUERIES:
        rest = f"{query.case}.{count}.{database.name}"
        ours = find(site.catalog, query)
        raw = site.driver.query(f"SELECT * FROM {query.table} WHERE {query.where}", query.values)
        without = find(site.catalog, query, use_indexes=False)
        _verify(f"get_partitions.{rest}", ours(), without(), raw())
        goal = MOST_OF_RAW_ROWS if query.is_selective else None
        yield _figure(f"get_partitions.{rest}", compare(ours, raw, ground.effort), goal)
        yield _figure(f"get_partitions_no_index.{rest}", compare(ours, without, ground.effort), None)
        if query is SKIP_SCAN:
            pair = compare(ours, find(site.own_index_catalog, query), ground.effort)
            yield _figure(f"get_partitions_own_index.{rest}", pair, MOST_OF_OWN_INDEX)


def find(catalog: Catalog, query: Query, *, use_indexes: bool = True) -> Callable[[], list[Partition]]:
    """Return a function that runs the query."""
    return lambda: list(catalog.get_partitions(TABLE, query.expression, use_indexes=use_indexes))


def _figure(name: str, pair: Pair, goal: float | None) -> Figure:
    return Figure(name=name, ours=pair.ours * 1000, peer=pair.peer * 1000, unit="ms", runs=pair.runs, goal=goal)


def _verify(name: str, with_index: list[Partition], without_index: list[Partition], rows: list[Row]) -> None:
    """Check that all three searches returned the same partitions.

    Raises:
        BenchmarkError: The results differ.
    """
    answers = [sorted(map(_as_row, with_index)), sorted(map(_as_row, without_index)), sorted(row[:10] for row in rows)]
    if any(answer != answers[0] for answer in answers):
        counts = [len(answer) for answer in answers]
        raise BenchmarkError(
            f"{name}: with the index, without it, and by SQL, different partitions were found, {counts} in number"
        )


def _as_row(partition: Partition) -> tuple[Any, ...]:
    country, category, *dates = partition.values
    return (
        country,
        category,
        *_numbers(dates),
        partition.location,
        partition.file_count,
        partition.row_count,
        partition.size_bytes,
        json.dumps(dict(partition.properties)),
    )


def _numbers(texts: Iterable[str | None]) -> list[int | None]:
    return [None if text is None else int(text) for text in texts]
