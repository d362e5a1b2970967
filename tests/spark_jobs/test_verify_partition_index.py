"""A Spark job compares an index with its table, repairs it if requested, and records the result."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from catalog import Catalog, IndexDefinition, NewPartition
from catalog.errors import ConflictError, FencedError
from catalog.indexes import verifying
from catalog.operations.job_requests import VerifyPartitionIndexJob
from catalog.operations.records import OperationKind, OperationState
from spark_jobs.verify_partition_index import verify_partition_index
from tests.support.writing import partitions_come_and_go

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TABLE, INDEX = "shop.orders", "by_day"
COUNT = 1000


@pytest.fixture
def orders(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(verifying, "RANGE_SIZE", 300)
    catalog.create_database("shop")
    catalog.create_table(
        TABLE,
        columns=[("id", "int")],
        partition_keys=[("country", "string"), ("day", "int")],
        indexes=[IndexDefinition(INDEX, ("day",))],
    )
    catalog.add_partitions(TABLE, (NewPartition((f"c{n % 7}", str(n))) for n in range(COUNT)))
    return catalog


def run(spark: Any, catalog: Catalog, *, repair: bool = False, operation_id: str = "verify") -> dict[str, Any]:
    job = start(catalog, repair=repair, operation_id=operation_id)
    verify_partition_index(spark, catalog, job)
    return dict(catalog.operations.get(operation_id).report[job.step])


def start(catalog: Catalog, *, repair: bool = False, operation_id: str = "verify") -> VerifyPartitionIndexJob:
    step = VerifyPartitionIndexJob.script
    catalog.operations.begin(operation_id, OperationKind.VERIFY_INDEX, TABLE)
    attempt = catalog.operations.start_job(operation_id, step)
    return VerifyPartitionIndexJob(
        operation_id=operation_id, step=step, attempt=attempt, table=TABLE, index=INDEX, repair=repair
    )


def damage(catalog: Catalog) -> None:
    """Delete the item of day 1, change that of day 2, and add one of a partition that does not exist."""
    index_id = catalog.get_partition_index(TABLE, INDEX).id
    first, second = (catalog.get_partition(TABLE, (f"c{day}", str(day))).id for day in (1, 2))
    with catalog.storage.write() as connection:
        for statement in (
            "DELETE FROM calve_index_item WHERE index_id = :index AND partition_id = :first",
            "UPDATE calve_index_item SET key = :key WHERE index_id = :index AND partition_id = :second",
            "INSERT INTO calve_index_item (index_id, key, partition_id) VALUES (:index, :key, 1000000)",
        ):
            values = {"index": index_id, "key": b"\x01\xff", "first": first, "second": second}
            named = {name: value for name, value in values.items() if f":{name}" in statement}
            connection.execute(text(statement), named)


def test_exact_index_is_recorded_with_the_operation(spark: Any, orders: Catalog) -> None:
    result = run(spark, orders)
    assert result["is_exact"]
    assert (result["partition_count"], result["item_count"], result["differences"]) == (COUNT, COUNT, [])
    assert result["repaired"] is None
    assert orders.operations.get("verify").state is OperationState.CLEANED


def test_differences_are_counted_named_and_left_alone(spark: Any, orders: Catalog) -> None:
    damage(orders)
    result = run(spark, orders)
    assert result == run(spark, orders, operation_id="again")
    assert not result["is_exact"]
    assert result["counts"] == {"missing": 1, "wrong": 1, "superfluous": 1, "unfit": 0}
    found = {each["kind"]: each for each in result["differences"]}
    assert found["MISSING"]["values"] == ["c1", "1"]
    assert found["MISSING"]["location"].endswith("/country=c1/day=1")
    assert found["MISSING"]["key"] == "018000000000000001"
    assert found["WRONG"]["stored"] == ["01ff"]
    assert (found["SUPERFLUOUS"]["partition_id"], found["SUPERFLUOUS"]["values"]) == (1000000, None)


def test_repaired_index_is_exact(spark: Any, orders: Catalog) -> None:
    damage(orders)
    result = run(spark, orders, repair=True)
    assert (result["is_exact"], result["repaired"]) == (True, 3)
    assert [each["kind"] for each in result["differences"]] == ["MISSING", "WRONG", "SUPERFLUOUS"]
    assert orders.verify_partition_index(TABLE, INDEX).findings == verifying.Findings(COUNT, COUNT)


def test_second_attempt_of_an_operation_looks_anew(spark: Any, orders: Catalog) -> None:
    assert run(spark, orders)["is_exact"]
    damage(orders)
    assert not run(spark, orders)["is_exact"]
    assert orders.operations.get("verify").state is OperationState.CLEANED


def test_partitions_added_and_dropped_meanwhile_are_no_differences(spark: Any, orders: Catalog) -> None:
    with partitions_come_and_go(orders, TABLE):
        result = run(spark, orders)
    assert result["differences"] == []


def test_fenced_attempt_repairs_nothing(spark: Any, orders: Catalog) -> None:
    damage(orders)
    fenced = start(orders, repair=True)
    orders.operations.start_job("verify", fenced.step)
    with pytest.raises(FencedError, match="is fenced"):
        verify_partition_index(spark, orders, fenced)
    assert orders.verify_partition_index(TABLE, INDEX).findings.counts.total() == 3


def test_index_that_is_not_active_is_not_verified(spark: Any, orders: Catalog) -> None:
    orders.delete_partition_index(TABLE, INDEX)
    orders.create_partition_index(TABLE, INDEX, ["day"])
    with pytest.raises(ConflictError, match="CREATING"):
        run(spark, orders)
