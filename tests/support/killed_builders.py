"""The processes of the tests of killed builds."""

from __future__ import annotations

import random
from itertools import count
from multiprocessing.synchronize import Event

from catalog import Catalog, NewPartition

PARTITIONS = 4000
"""The number of partitions before a build, numbered from 0."""


def build(url: str, table: str, name: str, is_ready: Event) -> None:
    """Build an index, or continue its build."""
    with Catalog.open(url) as catalog:
        is_ready.set()
        catalog.build_partition_index(table, name)


def write(url: str, table: str, seed: int, has_stopped: Event) -> None:
    """Add partitions, and drop old and new ones, until the event is set."""
    choose = random.Random(seed)
    with Catalog.open(url) as catalog:
        for batch in count():
            if has_stopped.is_set():
                return
            number = seed * 1_000_000 + batch * 10
            catalog.add_partitions(table, [NewPartition(["new", str(number + each)]) for each in range(10)])
            # Far apart, so that some of them are likely in the range that a build is processing.
            old = ", ".join(str(choose.randrange(PARTITIONS)) for _ in range(8))
            catalog.drop_partitions(table, f"s = 'old' and n in ({old})")
            catalog.drop_partitions(table, f"s = 'new' and n between {number - 30} and {number - 25}")
            # SQLite does not queue its writers.
            has_stopped.wait(0.005)
