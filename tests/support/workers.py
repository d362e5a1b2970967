"""The processes of the concurrency tests: all run the same number of rounds, and start each round together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier

from catalog import Catalog, IndexState, NewPartition
from catalog.errors import ConflictError

ROUND_TIMEOUT_SECONDS = 120

_barrier: Barrier


def new_barrier(context: ForkServerContext, parties: int) -> Barrier:
    """Return a barrier for `join`."""
    return context.Barrier(parties, timeout=ROUND_TIMEOUT_SECONDS)


def join(barrier: Barrier) -> None:
    """Make this process wait at the barrier, so that all processes start each round together."""
    global _barrier
    _barrier = barrier


def table_name(number: int) -> str:
    """Return the table of a round."""
    return f"demo.round_{number}"


@contextmanager
def _catalog(url: str) -> Iterator[Catalog]:
    try:
        with Catalog.open(url) as catalog:
            yield catalog
    except BaseException:
        # The others must not wait for this process in the next round.
        _barrier.abort()
        raise


def _rounds(count: int) -> Iterator[str]:
    for number in range(count):
        _barrier.wait()
        yield table_name(number)


def added_rows(who: int, batch: int) -> list[tuple[str, str]]:
    """Return the partitions that one process adds in one batch; half of them may be dropped concurrently."""
    return [("keep" if number % 2 else "drop", str(who * 1000 + batch * 10 + number)) for number in range(10)]


def add(url: str, rounds: int, who: int, batches: int) -> None:
    """Add small batches without pauses."""
    with _catalog(url) as catalog:
        for table in _rounds(rounds):
            for batch in range(batches):
                catalog.add_partitions(table, [NewPartition(row) for row in added_rows(who, batch)])


def create_and_build(url: str, rounds: int, who: int, keys: tuple[str, ...]) -> list[str]:
    """Create an index at a random time, and build it; return the final state of each."""
    moments, outcomes = random.Random(who), []
    with _catalog(url) as catalog:
        for table in _rounds(rounds):
            for _ in range(moments.randrange(4)):
                catalog.get_partition_indexes(table)
            catalog.create_partition_index(table, f"index_{who}", keys)
            _build(catalog, table, f"index_{who}")
            built = catalog.get_partition_index(table, f"index_{who}")
            outcomes.append(f"{built.state} {built.failure_detail or ''}".strip())
    return outcomes


def _build(catalog: Catalog, table: str, index: str) -> None:
    # Of two concurrent builds, the one that ends last finds the index already built.
    with suppress(ConflictError):
        catalog.build_partition_index(table, index)


def create_build_and_delete(url: str, rounds: int, who: int, keys: tuple[str, ...]) -> None:
    """Create, build and delete an index repeatedly; none of its items may remain."""
    with _catalog(url) as catalog:
        for table in _rounds(rounds):
            for _ in range(2):
                catalog.create_partition_index(table, f"passing_{who}", keys)
                catalog.build_partition_index(table, f"passing_{who}")
                catalog.delete_partition_index(table, f"passing_{who}")


def build_too(url: str, rounds: int, other: int) -> None:
    """Build the index of another process concurrently."""
    with _catalog(url) as catalog:
        for table in _rounds(rounds):
            for _ in range(20):
                indexes = {index.name: index for index in catalog.get_partition_indexes(table)}
                index = indexes.get(f"index_{other}")
                if index is not None and index.state is IndexState.CREATING:
                    _build(catalog, table, index.name)


def drop(url: str, rounds: int, times: int) -> None:
    """Drop partitions repeatedly, a few at a time."""
    with _catalog(url) as catalog:
        for table in _rounds(rounds):
            for time in range(times):
                catalog.drop_partitions(table, f"s = 'drop' and n <= {-300 + 300 * (time + 1) // times}")
                catalog.drop_partitions(table, "s = 'drop' and n > 0")


def add_the_same(url: str, rounds: int, who: int, count: int) -> list[int]:
    """Add the same partitions as the others in another order; return the number of new ones in each round."""
    order, added = random.Random(who), []
    with _catalog(url) as catalog:
        for table in _rounds(rounds):
            rows = [("same", str(number)) for number in range(count)]
            order.shuffle(rows)
            result = catalog.add_partitions(table, [NewPartition(row) for row in rows], if_not_exists=True)
            assert result.added + result.existing == count
            added.append(result.added)
    return added
