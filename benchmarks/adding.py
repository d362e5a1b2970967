"""Bulk addition of partitions, measured while the tables of the other benchmarks are filled."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figures import PARTITIONS_PER_SECOND, Figure
from benchmarks.ground import Ground

HEADINGS = {"add_partitions": "Adding partitions ÷ bulk load: beside ready rows into one table with one index"}
LEAST_PER_SECOND = 50_000


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the number of partitions per second that are added to a table with one index."""
    for database in ground.databases:
        for count in ground.scales:
            pair = ground.site(database, count).adding
            yield Figure(
                name=f"add_partitions.one_index.{count}.{database.name}",
                ours=count / pair.ours,
                peer=count / pair.peer,
                unit=PARTITIONS_PER_SECOND,
                runs=pair.runs,
                goal=LEAST_PER_SECOND if count == ground.scales[-1] else None,
            )
