"""A build that is killed repeatedly during adds and drops ends ACTIVE with exact items, or FAILED."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing.process import BaseProcess

import pytest
from sqlalchemy import text

from catalog import Catalog, IndexState, NewPartition, PartitionIndex
from catalog.errors import PartitionProblem
from catalog.indexes import building
from tests.support import killed_builders
from tests.support.effort import effort
from tests.support.index_items import assert_every_partition_has_its_item, stored_items
from tests.support.killed_builders import PARTITIONS
from tests.support.processes import context

ROUNDS = effort(1, 6)
"""Builds that are killed, each several times, on each database."""

SEED = random.SystemRandom().randrange(1, 1_000_000)
RANGE_SIZE = 100
WRITERS = 2


@contextmanager
def writers(url: str, table: str, seed: int) -> Iterator[None]:
    """Run writer processes on a table during the block; their errors fail the block."""
    stop = context.Event()
    processes = [
        context.Process(target=killed_builders.write, args=(url, table, number, stop))
        for number in range(seed * WRITERS + 1, (seed + 1) * WRITERS + 1)
    ]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        stop.set()
        for process in processes:
            process.join(300)
    assert [process.exitcode for process in processes] == [0] * WRITERS


def start_build(url: str, table: str) -> BaseProcess:
    is_ready = context.Event()
    process = context.Process(target=killed_builders.build, args=(url, table, "i", is_ready))
    process.start()
    assert is_ready.wait(300)
    return process


def kill_after_a_range(catalog: Catalog, index: PartitionIndex, process: BaseProcess) -> None:
    """Kill a build as soon as the first of its ranges is done."""
    remaining = len(building.ranges_to_do(catalog.storage, index))
    while process.is_alive() and len(building.ranges_to_do(catalog.storage, index)) == remaining:
        pass
    process.kill()
    process.join()


def kill_at_some_moment(catalog: Catalog, index: PartitionIndex, process: BaseProcess, choose: random.Random) -> None:
    """Kill a build after some of the remaining ranges, or after some time."""
    remaining = len(building.ranges_to_do(catalog.storage, index))
    until = choose.randrange(remaining) if remaining else 0
    deadline = time.monotonic() + (choose.uniform(0, 0.2) if choose.random() < 0.3 else 300)
    while process.is_alive() and time.monotonic() < deadline:
        if len(building.ranges_to_do(catalog.storage, index)) <= until:
            break
    time.sleep(choose.uniform(0, 0.01))
    process.kill()
    process.join()


def assert_as_many_items_as_partitions(catalog: Catalog, table: str, index: PartitionIndex) -> None:
    """Check one committed state during concurrent writes."""
    partitions = text("SELECT count(*) FROM calve_partition WHERE table_id = :id")
    items = text("SELECT count(*) FROM calve_index_item WHERE index_id = :id")
    with catalog.storage.read() as connection:
        expected = connection.scalar(partitions, {"id": catalog.get_table(table).id})
        assert connection.scalar(items, {"id": index.id}) == expected


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(60 + 60 * ROUNDS)
@pytest.mark.usefixtures("unfit_values")
def test_a_build_killed_again_and_again_ends_well(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "RANGE_SIZE", RANGE_SIZE)
    print(f"seed {SEED}")
    choose, interrupted = random.Random(SEED), 0
    for number in range(ROUNDS):
        table, has_unfit = f"demo.round_{number}", number % 3 == 2
        catalog.create_table(table, columns=[], partition_keys=[("s", "string"), ("n", "int")])
        old = [NewPartition(["old", str(each)]) for each in range(PARTITIONS)]
        if has_unfit:
            old.insert(choose.randrange(PARTITIONS), NewPartition(["unfit", "foo"]))
        catalog.add_partitions(table, old)
        with writers(catalog_url, table, number):
            index = catalog.create_partition_index(table, "i", ["n", "s"])
            for attempt in count(1):
                process = start_build(catalog_url, table)
                if attempt == 1:
                    kill_after_a_range(catalog, index, process)
                elif attempt <= 8:
                    kill_at_some_moment(catalog, index, process, choose)
                else:
                    process.join()
                    assert process.exitcode == 0
                index = catalog.get_partition_index(table, "i")
                if index.state is not IndexState.CREATING:
                    break
                interrupted += 0 < len(building.ranges_to_do(catalog.storage, index)) < PARTITIONS // RANGE_SIZE
            if index.state is IndexState.ACTIVE:
                for _ in range(5):
                    assert_as_many_items_as_partitions(catalog, table, index)

        if has_unfit:
            assert (index.state, index.failure_code) == (IndexState.FAILED, PartitionProblem.INVALID_TYPE)
            assert [each.values for each in index.offending] == [("unfit", "foo")]
            # It may have been killed while it deleted the remaining items.
            catalog.build_partition_index(table, "i")
            assert stored_items(catalog, index.id) == []
        else:
            assert index.state is IndexState.ACTIVE, index
            assert_every_partition_has_its_item(catalog, table)
    assert interrupted > 0
