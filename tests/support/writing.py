"""A concurrent writer to a table on which a job is running."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from catalog import Catalog, NewPartition


@contextmanager
def partitions_come_and_go(orders: Catalog, table: str) -> Iterator[None]:
    """Add days from 1000 on, and drop earlier ones, in another thread during the block; it must not fail."""
    ended = threading.Event()
    errors: list[Exception] = []

    def write() -> None:
        try:
            number = 1000
            while not ended.is_set() and number < 3000:
                orders.add_partitions(table, (NewPartition(("new", str(n))) for n in range(number, number + 20)))
                orders.drop_partitions(table, f"country = 'c1' and day < {number - 900}")
                number += 20
        except Exception as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
    assert not errors
