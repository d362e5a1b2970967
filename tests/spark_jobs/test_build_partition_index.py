"""A Spark job builds an index on a table that stays in use."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.errors import ConflictError, FencedError
from catalog.indexes import building
from catalog.indexes.items import count_items
from catalog.jobs import BuildPartitionIndexJob
from catalog.operations import OperationKind, OperationState
from spark_jobs.build_partition_index import build_partition_index

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TABLE = "shop.orders"


@pytest.fixture
def orders(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(building, "RANGE_SIZE", 100)
    catalog.create_database("shop")
    catalog.create_table(TABLE, columns=[("id", "int")], partition_keys=[("country", "string"), ("day", "int")])
    catalog.add_partitions(TABLE, (NewPartition((f"c{n % 7}", str(n))) for n in range(1000)))
    return catalog


def start(catalog: Catalog) -> BuildPartitionIndexJob:
    catalog.operations.begin("build", OperationKind.BUILD_INDEX, TABLE)
    attempt = catalog.operations.start_job("build", "build_partition_index")
    return BuildPartitionIndexJob(
        operation_id="build", step="build_partition_index", attempt=attempt, table=TABLE, index="by_day"
    )


def items(catalog: Catalog) -> int:
    index = catalog.get_partition_index(TABLE, "by_day")
    with catalog.storage.read() as connection:
        return count_items(connection, index.id)


def test_index_is_active_with_one_item_a_partition(spark: Any, orders: Catalog) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    build_partition_index(spark, orders, start(orders))
    assert orders.get_partition_index(TABLE, "by_day").state is IndexState.ACTIVE
    assert items(orders) == 1000
    assert orders.explain_partitions(TABLE, "day between 10 and 19").items_read == 10
    assert orders.operations.get("build").state is OperationState.CLEANED


def test_partitions_added_and_dropped_meanwhile_are_accounted_for(spark: Any, orders: Catalog) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    ended = threading.Event()
    errors: list[Exception] = []

    def write() -> None:
        try:
            number = 1000
            while not ended.is_set() and number < 3000:
                orders.add_partitions(TABLE, (NewPartition(("new", str(n))) for n in range(number, number + 20)))
                orders.drop_partitions(TABLE, f"country = 'c1' and day < {number - 900}")
                number += 20
        except Exception as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        build_partition_index(spark, orders, start(orders))
    finally:
        ended.set()
        writer.join()
    assert not errors
    assert orders.get_partition_index(TABLE, "by_day").state is IndexState.ACTIVE
    assert items(orders) == sum(1 for _ in orders.get_partitions(TABLE, use_indexes=False))


def test_interrupted_build_is_taken_up(spark: Any, orders: Catalog) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    table, index = orders.get_table(TABLE), orders.get_partition_index(TABLE, "by_day")
    for ids in building.plan_ranges(orders.storage, table, index, 100)[::3]:
        with orders.storage.write() as connection:
            building.backfill_range(connection, table, index, ids)
    assert 0 < items(orders) < 1000
    build_partition_index(spark, orders, start(orders))
    assert orders.get_partition_index(TABLE, "by_day").state is IndexState.ACTIVE
    assert items(orders) == 1000


def test_partitions_that_do_not_fit_fail_the_build(spark: Any, orders: Catalog) -> None:
    orders.add_partitions(TABLE, [NewPartition(("bad", "foo")), NewPartition(("bad", "bar"))])
    orders.create_partition_index(TABLE, "by_day", ["day"])
    build_partition_index(spark, orders, start(orders))
    index = orders.get_partition_index(TABLE, "by_day")
    assert (index.state, index.failure_code) == (IndexState.FAILED, "INVALID_PARTITION_TYPE_DATA_ERROR")
    assert {each.values for each in index.offending} == {("bad", "foo"), ("bad", "bar")}
    job = orders.operations.get_job("build", "build_partition_index")
    assert job is not None
    assert job.result["state"] == "FAILED"


def test_given_up_build_cannot_end(spark: Any, orders: Catalog) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    given_up = start(orders)
    orders.operations.start_job("build", "build_partition_index")
    expected = Exception if orders.storage.is_postgresql else FencedError
    with pytest.raises(expected, match="was given up"):
        build_partition_index(spark, orders, given_up)
    assert orders.get_partition_index(TABLE, "by_day").state is IndexState.CREATING


def test_index_deleted_meanwhile_ends_the_build(spark: Any, orders: Catalog) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    table, index = orders.get_table(TABLE), orders.get_partition_index(TABLE, "by_day")
    (first, *_) = building.plan_ranges(orders.storage, table, index)
    orders.delete_partition_index(TABLE, "by_day")
    with pytest.raises(ConflictError, match="not being built any more"), orders.storage.write() as connection:
        building.backfill_range(connection, table, index, first)
