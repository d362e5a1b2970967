"""What the processes of the test of killed builds do."""

from __future__ import annotations

import random
from itertools import count
from multiprocessing.synchronize import Event

from catalog import Catalog, NewPartition

UNFIT = "unfit"


def build(url: str, table: str, name: str, is_ready: Event) -> None:
    """Build an index, or what is left of it to do."""
    with Catalog.open(url) as catalog:
        is_ready.set()
        catalog.build_partition_index(table, name)


def write(url: str, table: str, seed: int, has_stopped: Event) -> None:
    """Add partitions, and drop old and new ones, until told to stop."""
    choose = random.Random(seed)
    with Catalog.open(url) as catalog:
        for batch in count():
            if has_stopped.is_set():
                return
            number = seed * 1_000_000 + batch * 10
            catalog.add_partitions(table, [NewPartition(["new", str(number + each)]) for each in range(10)])
            first = choose.randrange(2000)
            catalog.drop_partitions(table, f"s = 'old' and n between {first} and {first + choose.randrange(10)}")
            catalog.drop_partitions(table, f"s = 'new' and n between {number - 30} and {number - 25}")
            # SQLite lets its writers in by chance.
            has_stopped.wait(0.005)
