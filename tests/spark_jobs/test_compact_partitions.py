"""The job that compacts partitions by a policy, on tables of folders and tables stored as Iceberg."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.maintenance.compaction import CompactionPlan, plan_compaction
from catalog.operations.job_requests import CompactPartitionsJob
from catalog.operations.records import OperationKind, OperationState
from catalog.settings.compaction_rules import CompactionRules, DailyLimit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TABLE = "shop.orders"
NOW = timedelta(0)
MB = 2**20


Append = Callable[[int, str], None]


@pytest.fixture(params=["parquet", "iceberg"])
def orders(spark: SparkSession, catalog: Catalog, request: pytest.FixtureRequest) -> Append:
    """A function that appends a file to each of some partitions of a table."""
    from spark_jobs.writing.value_loading import append_rows

    catalog.create_database("shop")
    catalog.create_table(TABLE, columns=[("id", "bigint")], partition_keys=[("day", "int")], format=request.param)

    def append(number: int, days: str) -> None:
        rows = spark.range(number, number + 10).selectExpr("id", f"explode(array({days})) AS day")
        append_rows(spark, catalog, f"append-{number}", TABLE, rows.coalesce(1))

    append(0, "1, 2, 3")
    append(10, "1, 2")
    append(20, "1, 2")
    append(30, "1")
    return append


def plan(catalog: Catalog, **rules: Any) -> CompactionPlan:
    given = CompactionRules(**{"min_files": 3, "min_age": NOW, **rules})
    return plan_compaction(catalog.storage, catalog.operations, catalog.get_table(TABLE), given)


def compact(spark: SparkSession, catalog: Catalog, name: str, found: CompactionPlan, **changed: int) -> dict[str, Any]:
    """Run the job for a plan."""
    from spark_jobs.compact_partitions import compact_planned

    request = {
        "partitions": [[each.id, each.size_bytes] for each in found.partitions],
        "target_bytes": found.target_bytes,
        **changed,
    }
    catalog.operations.begin(name, OperationKind.COMPACT_PARTITIONS, TABLE, request)
    job = CompactPartitionsJob(operation_id=name, step="compact_partitions", attempt=1, table=TABLE)
    return compact_planned(spark, catalog, job)


def files(catalog: Catalog) -> dict[str, int]:
    return {str(each.values[0]): each.file_count or 0 for each in catalog.get_partitions(TABLE)}


def read(spark: SparkSession, catalog: Catalog) -> list[tuple[int, int]]:
    from spark_jobs.reading.tables import read_table

    return sorted((row.day, row.id) for row in read_table(spark, TABLE, catalog=catalog).collect())


def test_small_files_are_compacted_once_and_again_after_they_changed(
    spark: SparkSession, catalog: Catalog, orders: Append
) -> None:
    before, found = read(spark, catalog), plan(catalog)
    assert [(each.name, each.file_count) for each in found.partitions] == [("day=1", 4), ("day=2", 3)]
    report = compact(spark, catalog, "run/1", found)
    assert {**report, "bytes": 0} == {"partitions": 2, "files_before": 7, "files": 2, "bytes": 0, "skipped": None}
    assert files(catalog) == {"1": 1, "2": 1, "3": 1}
    assert read(spark, catalog) == before
    # A job that runs again, after it was killed before it recorded its end, repeats nothing.
    assert compact(spark, catalog, "run/1", found) == report
    # Files that are as small as their rows allow are not compacted again.
    assert [each.name for each in plan(catalog, min_files=1).partitions] == ["day=3"]
    # What was rewritten counts against the limit of a day.
    orders(40, "2")
    limit = DailyLimit(size_bytes=found.size_bytes)
    again = plan(catalog, min_files=2, at_most_per_day=limit)
    assert (again.partitions, again.left, again.spent) == ((), 1, DailyLimit(found.size_bytes, 2))
    assert [each.name for each in plan(catalog, min_files=2).partitions] == ["day=2"]


@pytest.mark.long
def test_files_have_about_the_target_size(spark: SparkSession, catalog: Catalog, orders: Append) -> None:
    from spark_jobs.writing.file_sizes import ADVISORY
    from spark_jobs.writing.value_loading import append_rows

    rows = spark.range(0, 600_000, 1, 6).selectExpr("xxhash64(id) AS id", "9 AS day")
    # By the settings of the session and of the table, the rows would have several files.
    catalog.alter_table(TABLE, properties={"calve.target_file_bytes": str(MB // 2)})
    spark.conf.set(ADVISORY, "1MB")
    try:
        append_rows(spark, catalog, "large", TABLE, rows)
        assert files(catalog)["9"] > 1
        compact(spark, catalog, "run/large", plan(catalog, min_files=2, target_file_size=64 * MB))
        assert spark.conf.get(ADVISORY) == "1MB"
    finally:
        spark.conf.unset(ADVISORY)
    assert files(catalog)["9"] == 1


@pytest.mark.long
def test_taken_tables_failures_and_dropped_partitions(
    spark: SparkSession, catalog: Catalog, orders: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("the disk is full")

    found, before, counts = plan(catalog), read(spark, catalog), files(catalog)
    catalog.operations.begin("a load", OperationKind.APPEND_ROWS, TABLE, is_exclusive=True)
    report = compact(spark, catalog, "run/1", found)
    assert (report["partitions"], report["skipped"][:46]) == (0, "table shop.orders: operation a load (append_ro")
    catalog.operations.fail("a load", "CANCELLED", "given up")
    monkeypatch.setattr("spark_jobs.writing.value_loading.stage_rows", fail)
    with pytest.raises(OSError, match="disk is full"):
        compact(spark, catalog, "run/2", found)
    monkeypatch.undo()
    assert catalog.operations.get("run/2/1").state is OperationState.FAILED
    assert (read(spark, catalog), files(catalog)) == (before, counts)
    catalog.delete_partitions("drop", TABLE, "day = 1")
    assert compact(spark, catalog, "run/2", found)["partitions"] == 1
    assert files(catalog) == {"2": 1, "3": 1}
    assert read(spark, catalog) == [row for row in before if row[0] != 1]


def test_a_partition_that_was_created_again_is_not_compacted(
    spark: SparkSession, catalog: Catalog, orders: Append
) -> None:
    from spark_jobs.changing.row_changes import compact_partitions

    chosen = list(catalog.get_partitions(TABLE, "day < 3"))
    catalog.delete_partitions("drop", TABLE, "day = 2")
    for number in (40, 50):
        orders(number, "2")
    compact_partitions(spark, catalog, "run", TABLE, chosen)
    assert files(catalog) == {"1": 1, "2": 2, "3": 1}
