"""A Spark job builds an index on a table that is in use."""

from __future__ import annotations

from typing import Any

import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.errors import FencedError, IndexBuildEndedError, OperationReusedError
from catalog.indexes import building
from catalog.indexes.definitions import IdRange
from catalog.indexes.items import count_items
from catalog.operations.job_requests import BuildPartitionIndexJob
from catalog.operations.records import OperationKind, OperationState
from spark_jobs.build_partition_index import build_partition_index
from tests.support.index_items import assert_every_partition_has_its_item
from tests.support.writing import partitions_come_and_go

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
    assert_every_partition_has_its_item(orders, TABLE)
    assert orders.explain_partitions(TABLE, "day between 10 and 19").items_read == 10
    assert orders.operations.get("build").state is OperationState.CLEANED


def test_partitions_added_and_dropped_meanwhile_are_accounted_for(spark: Any, orders: Catalog) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    with partitions_come_and_go(orders, TABLE):
        build_partition_index(spark, orders, start(orders))
    assert orders.get_partition_index(TABLE, "by_day").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(orders, TABLE)


def test_interrupted_build_is_taken_up(spark: Any, orders: Catalog) -> None:
    index = orders.create_partition_index(TABLE, "by_day", ["day"])
    done = building.ranges_to_do(orders.storage, index)[::3]
    building.backfill(orders.storage, orders.get_table(TABLE), index, done)
    assert 0 < items(orders) < 1000
    build_partition_index(spark, orders, start(orders))
    assert orders.get_partition_index(TABLE, "by_day").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(orders, TABLE)


@pytest.mark.usefixtures("unfit_values")
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


def test_cancelled_build_cannot_end(spark: Any, orders: Catalog) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    fenced = start(orders)
    orders.operations.start_job("build", "build_partition_index")
    with pytest.raises(FencedError, match="is fenced"):
        build_partition_index(spark, orders, fenced)
    assert orders.get_partition_index(TABLE, "by_day").state is IndexState.CREATING


@pytest.mark.long
@pytest.mark.parametrize("end", ["deleted", "cancelled"])
def test_a_build_whose_index_ends_meanwhile_says_so(
    spark: Any, orders: Catalog, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    ranges_to_do = building.ranges_to_do

    def end_then_list(*args: Any) -> list[IdRange]:
        ranges = ranges_to_do(*args)
        if end == "deleted":
            orders.delete_partition_index(TABLE, "by_day")
        else:
            orders.cancel_partition_index_build(TABLE, "by_day")
        return ranges

    monkeypatch.setattr(building, "ranges_to_do", end_then_list)
    with pytest.raises(IndexBuildEndedError, match=f"by_day of shop.orders .*{end}.* during its build"):
        build_partition_index(spark, orders, start(orders))
    with orders.storage.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM calve_index_item").scalar() == 0


def test_an_operation_that_builds_no_index_is_not_ended(spark: Any, orders: Catalog) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    orders.operations.begin("load", OperationKind.LOAD_ROWS, TABLE, is_exclusive=True)
    attempt = orders.operations.start_job("load", "build_partition_index")
    job = BuildPartitionIndexJob(
        operation_id="load", step="build_partition_index", attempt=attempt, table=TABLE, index="by_day"
    )
    with pytest.raises(OperationReusedError, match="load_rows"):
        build_partition_index(spark, orders, job)
    assert orders.operations.get("load").state is OperationState.RUNNING
    assert orders.get_partition_index(TABLE, "by_day").state is IndexState.CREATING


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_executors_open_a_bounded_number_of_connections(
    spark: Any, orders: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.create_partition_index(TABLE, "by_day", ["day"])
    monkeypatch.setenv("CALVE_EXECUTOR_CONNECTIONS", "3")
    spark.sparkContext.setJobGroup("bounded", "one task opens one connection")
    build_partition_index(spark, orders, start(orders))
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup("bounded") for stage in tracker.getJobInfo(job).stageIds]
    assert [tracker.getStageInfo(stage).numTasks for stage in stages] == [3]
