"""Concurrent processes on one catalog: an ACTIVE index always has exactly one item for each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any

import pytest

from catalog import Catalog, IndexDefinition, IndexState, NewPartition
from catalog.model import OnInvalid, PartitionIndex
from catalog.partitions.adding import PartitionAdder
from tests.support import workers
from tests.support.effort import effort
from tests.support.index_items import assert_every_partition_has_its_item
from tests.support.processes import context

pytestmark = pytest.mark.smoke

KEYS = [("s", "string"), ("n", "int")]
TABLE = "demo.t"

Task = tuple[Callable[..., Any], tuple[Any, ...]]


def run_together(url: str, rounds: int, tasks: Sequence[Task]) -> list[Any]:
    """Run each task in a separate process, in synchronised rounds; return their results."""
    barrier = workers.new_barrier(context, len(tasks))
    with ProcessPoolExecutor(len(tasks), context, workers.join, (barrier,)) as pool:
        futures = [pool.submit(do, url, rounds, *rest) for do, rest in tasks]
        # A failing process breaks the barrier of the others: report its error.
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        for error in sorted(errors, key=lambda each: isinstance(each, BrokenBarrierError)):
            raise error
        return [future.result() for future in futures]


def values(catalog: Catalog, table: str, expression: str) -> list[tuple[str | None, ...]]:
    return sorted((partition.values for partition in catalog.get_partitions(table, expression)), key=str)


@pytest.mark.first_case
@pytest.mark.slow
def test_indexes_are_complete_while_partitions_come_and_go(catalog: Catalog, catalog_url: str) -> None:
    rounds, batches = effort(2, 8), 8
    old = [NewPartition(["drop" if number % 2 else "keep", str(number - 300)]) for number in range(300)]
    for number in range(rounds):
        table = workers.table_name(number)
        catalog.create_table(table, columns=[], partition_keys=KEYS)
        catalog.add_partitions(table, old)

    _, _, outcomes, *_ = run_together(
        catalog_url,
        rounds,
        [
            (workers.add, (1, batches)),
            (workers.add, (2, batches)),
            (workers.create_and_build, (1, ("n",))),
            (workers.create_build_and_delete, (2, ("s", "n"))),
            (workers.build_too, (1,)),
            (workers.drop, (6,)),
        ],
    )

    assert outcomes == [IndexState.ACTIVE] * rounds
    added = [row for who in (1, 2) for batch in range(batches) for row in workers.added_rows(who, batch)]
    kept = sorted([row for row in added if row[0] == "keep"] + [("keep", str(n - 300)) for n in range(0, 300, 2)])
    for number in range(rounds):
        table = workers.table_name(number)
        assert [index.state for index in catalog.get_partition_indexes(table)] == [IndexState.ACTIVE]
        assert_every_partition_has_its_item(catalog, table)
        assert values(catalog, table, "s = 'keep'") == kept
        assert values(catalog, table, "s = 'drop' and n < 0") == []
    with catalog.storage.read() as connection:
        items = connection.exec_driver_sql("SELECT count(DISTINCT index_id) FROM calve_index_item").scalar()
    assert items == rounds


def test_an_index_waits_for_partitions_that_are_being_added(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[], partition_keys=KEYS)
    created: list[PartitionIndex] = []
    creating = Thread(target=lambda: created.append(catalog.create_partition_index(TABLE, "by_n", ["n"])))
    with catalog.storage.write() as connection:
        adder = PartitionAdder(connection, catalog._definitions, TABLE)
        adder.add([NewPartition(["a", "1"])], if_not_exists=False, on_invalid=OnInvalid.REFUSE)
        creating.start()
        creating.join(timeout=0.3)
        assert not created
    creating.join(timeout=60)
    assert [index.state for index in created] == [IndexState.CREATING]
    assert catalog.build_partition_index(TABLE, "by_n").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, TABLE)


@pytest.mark.first_case
@pytest.mark.slow
def test_processes_that_add_the_same_partitions_add_each_once(catalog: Catalog, catalog_url: str) -> None:
    rounds, count = 3, 6000
    for number in range(rounds):
        catalog.create_table(
            workers.table_name(number), columns=[], partition_keys=KEYS, indexes=[IndexDefinition("i", ("n",))]
        )

    added = run_together(catalog_url, rounds, [(workers.add_the_same, (who, count)) for who in range(3)])

    assert [sum(in_round) for in_round in zip(*added, strict=True)] == [count] * rounds
    for number in range(rounds):
        assert len(values(catalog, workers.table_name(number), "s = 'same'")) == count
        assert_every_partition_has_its_item(catalog, workers.table_name(number))


# --- the caller's iterator ------------------------------------------------------------------------------------------


def test_an_iterator_that_uses_the_catalog_blocks_nobody(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("k", "int")])
    finished = []

    def change_meanwhile() -> None:
        catalog.add_partitions(TABLE, [NewPartition(["-1"])])
        catalog.create_partition_index(TABLE, "by_k", ["k"])
        finished.append(True)

    def partitions() -> Iterator[NewPartition]:
        yield NewPartition(["0"])
        other = Thread(target=change_meanwhile, daemon=True)
        other.start()
        other.join(timeout=300)
        assert finished, "others wait for the iterator"
        yield NewPartition(["1"])

    assert catalog.add_partitions(TABLE, partitions()).added == 2
    assert catalog.build_partition_index(TABLE, "by_k").state is IndexState.ACTIVE
    assert sorted(each.values for each in catalog.get_partitions(TABLE, "k > -2")) == [("-1",), ("0",), ("1",)]


@pytest.mark.first_case
def test_long_adds_in_opposite_orders_do_not_wait_in_a_circle(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("k", "int")])
    count = 20_000
    halfway = Barrier(2, timeout=300)
    outcomes: list[object] = []

    def partitions(keys: Sequence[int]) -> Iterator[NewPartition]:
        for number, key in enumerate(keys):
            if number == count // 2 + 1:
                halfway.wait()
            yield NewPartition([str(key)])

    def add(keys: Sequence[int]) -> None:
        try:
            result = catalog.add_partitions(TABLE, partitions(keys), if_not_exists=True)
            outcomes.append((result.added, result.existing))
        except Exception as error:
            outcomes.append(error)

    threads = [Thread(target=add, args=(keys,)) for keys in (range(count), range(count)[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes) == {(count, 0), (0, count)}
