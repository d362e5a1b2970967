"""The sample partitions of the benchmarks: a table with one partition for each day, country and category.

A year has 12 months of 31 days, so a country, a category and a year select 372 partitions at each scale. Larger scales
have more categories, and then more years. Partitions are ordered by day, so those of a country are not adjacent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from catalog import NewPartition

TABLE = "bench.sales"
LOCATION = "/warehouse/bench/sales"
KEYS = (("country", "string"), ("category", "string"), ("year", "int"), ("month", "int"), ("day", "int"))

FIRST_YEAR = 2015
COUNTRIES = ("US", "DE", "FR", "GB", "IN", "JP", "BR", "MX", "PL", "SE")
CATEGORIES = tuple(f"category-{number:02}" for number in range(27))

_DAYS = [(month, day) for month in range(1, 13) for day in range(1, 32)]
_PLACES = [(country, category) for category in CATEGORIES for country in COUNTRIES]


def partitions(count: int) -> Iterator[NewPartition]:
    """Yield a number of partitions in the order of their arrival."""
    whole, rest = divmod(count, len(_DAYS))
    groups = whole + (rest > 0)
    for first in range(0, groups, len(_PLACES)):
        year = FIRST_YEAR + first // len(_PLACES)
        places = _PLACES[: groups - first]
        for number, (month, day) in enumerate(_DAYS):
            properties = {"loaded_in": f"{year}-{month:02}"}
            for place, (country, category) in enumerate(places):
                if first + place < whole or number < rest:
                    yield NewPartition(
                        (country, category, str(year), str(month), str(day)),
                        file_count=1 + place % 3,
                        row_count=1_000 + 7 * place + number,
                        size_bytes=65_536 + 409 * place + number,
                        properties=properties,
                    )


def raw_rows(new: Iterable[NewPartition]) -> Iterator[tuple[Any, ...]]:
    """Yield the partitions as rows of a hand-written table, with all attributes of a `Partition`."""
    for number, partition in enumerate(new, 1):
        country, category, year, month, day = partition.values
        yield (
            country,
            category,
            int(year or 0),
            int(month or 0),
            int(day or 0),
            f"{LOCATION}/country={country}/category={category}/year={year}/month={month}/day={day}",
            partition.file_count,
            partition.row_count,
            partition.size_bytes,
            json.dumps(partition.properties),
            1_700_000_000_000,
            number,
        )
