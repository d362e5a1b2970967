"""Files of loads and changes: target sizes, pruning statistics, and atomicity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, Column
from catalog.datafiles.files import DataFile
from catalog.rebalancing.changes import SetPartitionCount, SplitPartition
from catalog.tables.own_properties import TARGET_PROPERTY
from catalog.tables.schemes import scheme_from_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TARGET = 100_000


@pytest.fixture
def catalog(sqlite_url: str, tmp_path: Any) -> Iterator[Catalog]:
    """A catalog on SQLite, because the files do not depend on the database."""
    with Catalog.open(sqlite_url, warehouse=str(tmp_path / "warehouse")) as opened:
        opened.create_database("demo")
        yield opened


@pytest.fixture
def make_table(catalog: Catalog) -> Callable[..., str]:
    def make(column_type: str, *, target: int | None = None, sort_columns: str = "n", **properties: str) -> str:
        scheme = scheme_from_properties(Column("c", column_type), {"SORT_COLUMNS": sort_columns, **properties})
        catalog.create_table(
            "demo.t",
            columns=[("n", "bigint"), ("at", "timestamp"), ("payload", "string"), ("c", column_type)],
            scheme=scheme,
            properties={} if target is None else {TARGET_PROPERTY: str(target)},
        )
        return "demo.t"

    return make


def rows(spark: SparkSession, count: int, partition: str, *, first: int = 0, tasks: int = 4) -> DataFrame:
    """Return incompressible rows; `partition` is the expression of the partition column."""
    return spark.range(first, first + count, 1, tasks).selectExpr(
        "id as n",
        "timestamp_micros(1000000 * id) as at",
        "sha2(cast(id as string), 256) as payload",
        f"{partition} as c",
    )


def load(spark: SparkSession, catalog: Catalog, frame: DataFrame, operation: str = "load") -> dict[str, Any]:
    from spark_jobs.writing.scheme_loading import load_rows

    return load_rows(spark, catalog, operation, "demo.t", frame)


def files(catalog: Catalog, where: str | None = None) -> list[DataFile]:
    return list(catalog.scan_files("demo.t", where).files)


def check_sizes(found: list[DataFile]) -> None:
    """Check that there are several files of about the target size; one may be smaller."""
    sizes = sorted(each.size_bytes for each in found)
    assert len(sizes) > 2
    assert all(size > TARGET // 4 for size in sizes[1:]), sizes
    assert sizes[-1] < 2 * TARGET, sizes


@pytest.mark.long
def test_a_skewed_partition_becomes_several_files_of_about_the_target_size(
    spark: SparkSession, catalog: Catalog, make_table: Callable[..., str]
) -> None:
    make_table("int", target=TARGET, PARTITION_TYPE="LIST", LIST_INFO="1, 2, 3")
    partition = "cast(if(id % 100 < 3, id % 100 + 1, 2) as int)"
    load(spark, catalog, rows(spark, 20_000, partition, tasks=16))
    by_partition = {each: files(catalog, f"_partition_id = {each}") for each in (0, 1, 2, 3)}
    assert [len(by_partition[each]) for each in (0, 1, 3)] == [0, 1, 1]
    check_sizes(by_partition[2])
    # A single task, whose rows Spark cannot spread.
    load(spark, catalog, rows(spark, 20_000, partition, tasks=1), "again")
    check_sizes([file for file in files(catalog, "_partition_id = 2") if file not in by_partition[2]])


@pytest.mark.long
def test_many_small_partitions_have_one_file_each(
    spark: SparkSession, catalog: Catalog, make_table: Callable[..., str]
) -> None:
    make_table("bigint", PARTITION_TYPE="HASH", PARTITION_NUM="60")
    report = load(spark, catalog, rows(spark, 3_000, "id"))
    assert report["files_written"] == 60
    assert {each.partition_id for each in files(catalog)} == set(range(60))


@pytest.mark.long
def test_the_parts_of_a_great_partition_are_files_of_about_the_target_size(
    spark: SparkSession, catalog: Catalog, make_table: Callable[..., str]
) -> None:
    from spark_jobs.rebalance import rebalance

    make_table("bigint", target=TARGET, PARTITION_TYPE="RANGE", RANGE_INFO="20000")
    load(spark, catalog, rows(spark, 20_000, "(id * 7919) % 20000"))
    report = rebalance(spark, catalog, "split", "demo.t", SplitPartition(1, ("5000", "19900", "20000")))
    found = {each: files(catalog, f"_partition_id = {each}") for each in (2, 3, 4)}
    assert report["files_written"] == sum(map(len, found.values()))
    check_sizes(found[2])
    check_sizes(found[3])
    # Two tasks read, each with a row of the small part, or one of them.
    assert len(found[4]) <= 2
    assert report["rows_written"] == report["rows_moved"] == 20_000


@pytest.mark.long
def test_small_files_are_put_together_when_their_rows_are_moved(
    spark: SparkSession, catalog: Catalog, make_table: Callable[..., str]
) -> None:
    from spark_jobs.rebalance import rebalance

    make_table("bigint", PARTITION_TYPE="HASH", PARTITION_NUM="2")
    for number in range(3):
        load(spark, catalog, rows(spark, 500, "id", first=500 * number), f"load-{number}")
    assert len(files(catalog)) == 6
    report = rebalance(spark, catalog, "more", "demo.t", SetPartitionCount(3))
    assert (report["files_read"], report["files_written"]) == (6, 3)
    assert sum(each.row_count for each in files(catalog)) == 1_500


def test_timestamps_and_sort_columns_prune_files_before_spark_begins(
    spark: SparkSession, catalog: Catalog, make_table: Callable[..., str]
) -> None:
    make_table("bigint", target=TARGET, sort_columns="at", PARTITION_TYPE="RANGE", RANGE_INFO="100000")
    for number in range(4):
        load(spark, catalog, rows(spark, 1_000, "id", first=1_000 * number), f"load-{number}")
    assert all(set(each.statistics) == {"at", "c"} for each in files(catalog))
    assert len(files(catalog)) >= 4
    found = files(catalog, "at >= '1970-01-01 00:33:20' and at < '1970-01-01 00:50:00'")
    assert sum(each.row_count for each in found) == 1_000
    assert files(catalog, "at > '1970-01-02'") == []
    assert files(catalog, "at is null") == []
    # A column without statistics prunes nothing.
    assert len(files(catalog, "n = 5")) == len(files(catalog))


@contextmanager
def zone(spark: SparkSession, name: str) -> Iterator[None]:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("name", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_ranges_of_times_come_by_themselves_in_any_time_zone(
    spark: SparkSession, catalog: Catalog, make_table: Callable[..., str], name: str
) -> None:
    make_table("timestamp", PARTITION_TYPE="RANGE_INTERVAL", RANGE_INFO="1970-01-01", INTERVAL="1 hour")
    with zone(spark, name):
        # The last one is at the bound of the second hour.
        report = load(spark, catalog, rows(spark, 3, "timestamp_micros(3600000000 * id)"))
        assert report["partitions_created"] == 3
        found = {each.id: (each.text, each.row_count) for each in catalog.scheme_partitions("demo.t")}
    assert found == {
        0: ("0, c = DEFAULT", 0),
        1: ("1, c < 1970-01-01", 0),
        2: ("2, 1970-01-01 <= c < 1970-01-01 01:00:00", 1),
        3: ("3, 1970-01-01 01:00:00 <= c < 1970-01-01 02:00:00", 1),
        4: ("4, 1970-01-01 02:00:00 <= c < 1970-01-01 03:00:00", 1),
    }


@pytest.mark.long
def test_rows_too_far_out_stay_in_the_default_partition_with_a_warning(
    spark: SparkSession, catalog: Catalog, make_table: Callable[..., str]
) -> None:
    make_table("date", PARTITION_TYPE="RANGE_INTERVAL", RANGE_INFO="2024-01-01", INTERVAL="1 day")
    days = "element_at(array(date'2023-05-05', date'2024-01-03', date'2050-01-01', date'9999-12-31', null), id + 1)"
    report = load(spark, catalog, rows(spark, 5, days.replace("id + 1", "cast(id + 1 as int)")))
    assert (report["rows_loaded"], report["partitions_created"], report["rows_outside"]) == (5, 3, 2)
    assert "9999-12-31" in report["warning"]
    assert "calve.max_new_partitions" in report["warning"]
    counts = {each.id: each.row_count for each in catalog.scheme_partitions("demo.t")}
    assert counts == {0: 3, 1: 1, 2: 0, 3: 0, 4: 1}
    again = load(spark, catalog, rows(spark, 1, "date'2024-01-02'"), "again")
    assert "warning" not in again
    assert again["partitions_created"] == 0


def test_a_load_of_no_rows_is_one(spark: SparkSession, catalog: Catalog, make_table: Callable[..., str]) -> None:
    make_table("bigint", PARTITION_TYPE="HASH", PARTITION_NUM="2")
    report = load(spark, catalog, rows(spark, 0, "id"))
    assert (report["rows_loaded"], report["files_written"]) == (0, 0)
    empty = rows(spark, 10, "id").where("n < 0")
    assert load(spark, catalog, empty, "again")["rows_loaded"] == 0
    assert files(catalog) == []


def test_a_load_with_one_row_that_cannot_be_read_leaves_nothing(
    spark: SparkSession, catalog: Catalog, make_table: Callable[..., str]
) -> None:
    make_table("bigint", PARTITION_TYPE="HASH", PARTITION_NUM="2")
    wrong = rows(spark, 100, "if(id = 99, cast('x' as bigint), id)")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        load(spark, catalog, wrong)
    assert files(catalog) == []
    # The same operation with the required setting.
    assert load(spark, catalog, rows(spark, 100, "id"))["rows_loaded"] == 100
    assert sum(each.row_count for each in files(catalog)) == 100


def test_done_again_a_load_and_a_change_only_return_their_reports(
    spark: SparkSession, catalog: Catalog, make_table: Callable[..., str]
) -> None:
    from spark_jobs.rebalance import rebalance

    make_table("bigint", PARTITION_TYPE="RANGE", RANGE_INFO="10")
    first = load(spark, catalog, rows(spark, 10, "id"))
    assert load(spark, catalog, rows(spark, 10, "id")) == first
    change = SplitPartition(1, ("5", "10"))
    split = rebalance(spark, catalog, "split", "demo.t", change)
    loaded = files(catalog)
    assert rebalance(spark, catalog, "split", "demo.t", change) == split
    assert catalog.rebalancing.change_catalog("split", "demo.t", change) == split
    assert files(catalog) == loaded
