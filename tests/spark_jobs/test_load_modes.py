"""Loads into existing partitions: appended, replaced and merged rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.errors import CatalogError, ConflictError, PartitionAlreadyExistsError, SourceFileError
from tests.spark_jobs.test_load import HEADER, deliver, on_sqlite, rows_on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.mark.long
def test_rows_of_an_existing_partition_are_refused(make_loader: Callable[..., Any], tmp_path: Path) -> None:
    loader = make_loader()
    loader.load(deliver(tmp_path / "first", "a.csv", HEADER + "US,1,1,1\n"))
    with pytest.raises(PartitionAlreadyExistsError, match="country=US/day=1"):
        loader.load(deliver(tmp_path / "raw", "b.csv", HEADER + "US,1,2,2\n"))


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_late_rows_are_added_to_their_partitions(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, table_format: str
) -> None:
    from catalog.operations.job_requests import CheckQualityJob
    from spark_jobs.check_quality import check_quality
    from spark_jobs.reading.tables import read_table

    loader = make_loader()
    loader.load(deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\nDE,1,2,1\n"), format=table_format)
    source = deliver(tmp_path / "raw", "b.csv", HEADER + "US,01,3,3\nUS,2,4,4\nUS,2,5,5\n")
    report = loader.load(source, format=table_format, mode="append")
    assert (report["partitions"], report["partitions_extended"], report["row_count"]) == (1, 1, 3)
    assert sorted(row.id for row in read_table(spark, "shop.orders", catalog=catalog).collect()) == [1, 2, 3, 4, 5]
    late = catalog.get_partition("shop.orders", ("US", "1"))
    assert (late.row_count, late.file_count) == (2, 2)
    rules = {"columns": {"amount": {"max": 3}}}
    attempt = catalog.operations.start_job("load-2", "check_quality")
    job = {"operation_id": "load-2", "step": "check_quality", "attempt": attempt, "table": "shop.orders"}
    check_quality(loader.spark, catalog, CheckQualityJob(**job, rules=rules))
    checked = catalog.operations.get_job("load-2", "check_quality")
    assert checked is not None
    assert (checked.result["checked"], checked.result["failed"]) == (2, 1), checked.result
    assert "country=US/day=2" in checked.result["failures"][0]


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["iceberg", "parquet", "orc", "csv"])
def test_a_corrected_day_replaces_its_partition(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, table_format: str
) -> None:
    from spark_jobs.reading.tables import read_table

    loader = make_loader()
    rows = HEADER + "US,1,1,1\nUS,1,2,1\nDE,1,3,1\n"
    loader.load(deliver(tmp_path / "raw", "a.csv", rows), format=table_format)
    before = read_table(spark, "shop.orders", catalog=catalog)
    source = deliver(tmp_path / "corrected", "a.csv", HEADER + "US,1,1,10\nUS,2,4,4\n")
    report = loader.load(source, mode="replace")
    assert (report["partitions"], report["partitions_replaced"], report["row_count"]) == (1, 1, 2)

    def current() -> list[tuple[int, float]]:
        rows = read_table(spark, "shop.orders", catalog=catalog).collect()
        return sorted((row.id, row.amount) for row in rows)

    assert current() == [(1, 10.0), (3, 1.0), (4, 4.0)]
    assert sorted(row.id for row in before.collect()) == [1, 2, 3], "a reader that began earlier reads what was there"
    for _ in range(2):
        assert catalog.vacuum(grace=timedelta(0)).problems == ()
        assert current() == [(1, 10.0), (3, 1.0), (4, 4.0)]


@pytest.mark.parametrize("table_format", ["iceberg", "parquet"])
def test_the_latest_rows_of_each_key_stay(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, table_format: str
) -> None:
    """Corrections, rows that move to another partition, older rows that come late, and deletions."""
    from spark_jobs.reading.tables import read_table

    loader, header = make_loader(), "country,day,id,state,at\n"
    merge = {"keys": ["id"], "order": "at", "delete": "state = 'gone'"}

    def load(name: str, rows: str) -> dict[str, Any]:
        source = deliver(tmp_path / name, f"{name}.csv", header + rows)
        report: dict[str, Any] = loader.load(source, format=table_format, mode="merge", merge=merge)
        return report

    def current() -> list[tuple[Any, ...]]:
        rows = read_table(spark, "shop.orders", catalog=catalog).collect()
        return sorted((row.id, row.state, row.at, row.country, row.day) for row in rows)

    # A row without a time is the oldest.
    rows = "US,1,1,new,10\nUS,1,1,paid,11\nUS,1,2,lost,\nUS,1,2,new,10\nUS,2,3,new,10\nDE,1,4,new,10\nDE,2,5,gone,10\n"
    first = load("first", rows)
    assert (first["partitions"], first["row_count"]) == (3, 4)
    assert current() == [
        (1, "paid", 11, "US", 1),
        (2, "new", 10, "US", 1),
        (3, "new", 10, "US", 2),
        (4, "new", 10, "DE", 1),
    ]
    # Row 1 is older than that of the table, row 2 moves to Germany, 3 is deleted, 4 is as late as that of the table.
    second = load("second", "US,1,1,late,9\nDE,2,2,moved,12\nUS,9,3,gone,12\nDE,1,4,same,10\nFR,1,6,new,1\n")
    after = [
        (1, "paid", 11, "US", 1),
        (2, "moved", 12, "DE", 2),
        (4, "same", 10, "DE", 1),
        (6, "new", 1, "FR", 1),
    ]
    assert current() == after
    assert (second["partitions"], second["partitions_replaced"], second["partitions_removed"]) == (2, 2, 1)
    counts = {partition.values: partition.row_count for partition in catalog.get_partitions("shop.orders")}
    assert counts == {("US", "1"): 1, ("DE", "2"): 1, ("DE", "1"): 1, ("FR", "1"): 1}, "no partition is left empty"
    for _ in range(2):
        assert catalog.vacuum(grace=timedelta(0)).problems == ()
        assert current() == after


@pytest.mark.long
def test_rows_are_merged_within_their_partitions_if_the_keys_have_the_partition_keys(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    from spark_jobs.reading.tables import read_table

    loader = make_loader()
    loader.load(deliver(tmp_path / "first", "a.csv", HEADER + "US,1,1,1\nUS,2,1,2\nDE,1,1,3\n"))
    source = deliver(tmp_path / "second", "b.csv", HEADER + "US,1,1,10\nUS,1,1,20\nUS,1,2,\n")
    loader.load(source, mode="merge", merge={"keys": ["country", "day", "id"], "order": "amount"})
    rows = read_table(spark, "shop.orders", catalog=catalog).collect()
    assert sorted((row.country, row.day, row.id, row.amount) for row in rows) == [
        ("DE", 1, 1, 3.0),
        ("US", 1, 1, 20.0),
        ("US", 1, 2, None),
        ("US", 2, 1, 2.0),
    ]


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["iceberg", "parquet"])
@on_sqlite
def test_a_merge_leaves_rows_with_other_keys_as_they_are(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, table_format: str
) -> None:
    """Rows without a key, several with the same one, and those that meet the condition of deletions."""
    from spark_jobs.reading.tables import read_table

    loader = make_loader()
    first = deliver(tmp_path / "first", "a.csv", HEADER + "US,1,,1\nUS,1,,2\nUS,1,5,3\nUS,1,5,4\nUS,1,6,-1\nUS,1,7,5\n")
    loader.load(first, format=table_format)
    merge = {"keys": ["id"], "delete": "amount < 0"}
    loader.load(
        deliver(tmp_path / "second", "b.csv", HEADER + "US,1,7,50\nUS,1,8,-1\n"),
        format=table_format,
        mode="merge",
        merge=merge,
    )
    rows = read_table(spark, "shop.orders", catalog=catalog).collect()
    assert sorted((row.id or 0, row.amount) for row in rows) == [(0, 1), (0, 2), (5, 3), (5, 4), (6, -1), (7, 50)]


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_a_merge_is_refused_while_a_quarantined_partition_has_its_keys(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, table_format: str
) -> None:
    from spark_jobs.reading.tables import read_table

    loader, merge = make_loader(), {"keys": ["id"]}
    loader.load(deliver(tmp_path / "zero", "z.csv", HEADER + "US,9,9,9\n"), format=table_format)
    operation = loader.new_operation()
    loader.validate(operation, deliver(tmp_path / "first", "a.csv", HEADER + "US,1,1,1\nUS,2,2,2\n"))
    loader.register(operation, loader.write(operation)["staging"], is_quarantined=True)
    moved = deliver(tmp_path / "second", "b.csv", HEADER + "DE,1,1,50\n")
    with pytest.raises(
        ConflictError, match=r"partition country=US/day=1 of shop\.orders is quarantined .* run the load"
    ):
        loader.load(moved, mode="merge", merge=merge)
    if table_format == "parquet":
        loader.load(deliver(tmp_path / "third", "c.csv", HEADER + "DE,1,3,3\n"), mode="merge", merge=merge)
    catalog.release_partitions("shop.orders", reason="they are right")
    loader.load(moved, mode="merge", merge=merge)
    found = sorted((row["id"], row["amount"]) for row in read_table(spark, "shop.orders", catalog=catalog).collect())
    assert found == [(1, 50), (2, 2), *([(3, 3)] if table_format == "parquet" else []), (9, 9)]


@pytest.mark.long
@on_sqlite
def test_a_null_among_the_keys_of_a_merge_is_refused(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    loader, merge = make_loader(), {"keys": ["country", "id"]}
    loader.load(deliver(tmp_path / "first", "a.csv", HEADER + "US,1,1,1\n"))
    source = deliver(tmp_path / "second", "b.csv", HEADER + "US,1,1,2\nUS,1,,50\nUS,2,,51\n")
    with pytest.raises(SourceFileError, match=r"b\.csv, line 3: column id is null, which `merge` of the table"):
        loader.load(source, mode="merge", merge=merge)
    source = deliver(tmp_path / "third", "c.csv", "country,day,amount\nUS,1,50\nUS,2,51\n")
    with pytest.raises(SourceFileError, match=r"c\.csv has no column id, which `merge` of the table's entry names"):
        loader.load(source, mode="merge", merge=merge)
    assert [partition.row_count for partition in catalog.get_partitions("shop.orders")] == [1]


@pytest.mark.long
@on_sqlite
def test_chars_identify_rows_whether_padded_or_not(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    from spark_jobs.reading.tables import read_table

    loader, header = make_loader("shop.orders", {"shop": "char(4)"}), "shop,code,amount\n"
    catalog.create_database("shop")
    columns = [("code", "char(6)"), ("amount", "int")]
    catalog.create_table("shop.orders", columns=columns, partition_keys=[("shop", "char(4)")])
    loader.load(deliver(tmp_path / "first", "a.csv", header + "a,ab,1\na,cd,2\nb,cd,3\n"))
    source = deliver(tmp_path / "second", "b.csv", header + "b,ab,50\nb,cd,60\n")
    loader.load(source, mode="merge", merge={"keys": ["code"]})
    rows = read_table(spark, "shop.orders", catalog=catalog).collect()
    assert sorted((row.shop, row.code, row.amount) for row in rows) == [("b   ", "ab    ", 50), ("b   ", "cd    ", 60)]


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_file_that_grows_while_it_is_loaded_is_not_recorded_as_loaded(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, mode: str
) -> None:
    from spark_jobs.reading.tables import read_table

    loader, options = make_loader(), {"mode": mode, "merge": {"keys": ["id"]}}
    source, operation = deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\n"), loader.new_operation()
    loader.validate(operation, source, **options)
    deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\nUS,1,2,2\n")
    with pytest.raises(SourceFileError, match=r"1 source file\(s\) changed while they were loaded: .*a\.csv"):
        loader.write(operation, **options)
    catalog.operations.fail(operation, "TEST", "the load failed")
    loader.load(source, **options)
    assert sorted(row.id for row in read_table(spark, "shop.orders", catalog=catalog).collect()) == [1, 2]


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize(
    ("merge", "message"),
    [
        ({}, "merge has keys None, not a list of columns"),
        ({"keys": ["id", "nothing"]}, "has no column nothing, which `merge` of the table's entry names"),
        ({"keys": ["id"], "delete": "java_method('x', 'y')"}, "the function java_method"),
    ],
)
def test_a_wrong_merge_adds_nothing(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, merge: dict[str, Any], message: str
) -> None:
    loader = make_loader()
    loader.load(deliver(tmp_path / "first", "a.csv", HEADER + "US,1,1,1\n"))
    with pytest.raises(CatalogError, match=message):
        loader.load(deliver(tmp_path / "second", "b.csv", HEADER + "US,1,1,2\n"), mode="merge", merge=merge)
    assert [partition.row_count for partition in catalog.get_partitions("shop.orders")] == [1]


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (HEADER + "US,1,x,20\n", r"b2\.csv, line 2: "),
        ("country,day,id,amount,a.b\nUS,1,2,20,1\n", r"b2\.csv cannot be loaded, because "),
    ],
    ids=["a bad value", "a name of no column"],
)
def test_a_bad_file_fails_a_replacement_even_if_bad_files_are_skipped(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, bad: str, problem: str
) -> None:
    """Otherwise the partition would have the rows of its other files alone, and later those of the corrected one."""
    loader, source = make_loader(), deliver(tmp_path / "in", "a.csv", HEADER + "US,1,1,1\n")
    loader.load(deliver(source, "b.csv", HEADER + "US,1,2,2\n"))
    deliver(source, "a2.csv", HEADER + "US,1,1,10\n")
    deliver(source, "b2.csv", bad)
    with pytest.raises(SourceFileError, match=f"(?s){problem}.*With mode `replace`, no file is set aside"):
        loader.load(source, mode="replace", bad_files="skip")
    deliver(source, "b2.csv", HEADER + "US,1,2,20\n")
    assert loader.load(source, mode="replace", bad_files="skip")["row_count"] == 2
    assert [partition.row_count for partition in catalog.get_partitions("shop.orders")] == [2]


@pytest.mark.long
def test_after_the_grace_period_every_reader_of_the_folder_sees_the_corrected_day(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path
) -> None:
    loader = make_loader()
    loader.load(deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\nUS,1,2,1\nDE,1,3,1\n"))
    loader.load(deliver(tmp_path / "corrected", "a.csv", HEADER + "US,1,1,10\nUS,2,4,4\n"), mode="replace")
    assert [row[2] for row in rows_on_disk(warehouse)] == [3, 1, 2, 4], "Spark's and DuckDB's readers list the folder"
    catalog.vacuum(grace=timedelta(0))
    corrected = [("DE", "1", 3, 1.0), ("US", "1", 1, 10.0), ("US", "2", 4, 4.0)]
    assert rows_on_disk(warehouse) == corrected
    listed = spark.read.parquet(f"{warehouse}/shop/orders").selectExpr("country", "string(day)", "id", "amount")
    assert sorted(map(tuple, listed.collect())) == corrected


@pytest.mark.long
def test_an_iceberg_table_can_refuse_rows_of_existing_partitions(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    loader = make_loader()
    loader.load(deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\n"), format="iceberg")
    source = deliver(tmp_path / "raw", "b.csv", HEADER + "US,1,2,2\nUS,2,3,3\n")
    with pytest.raises(PartitionAlreadyExistsError, match="country=US/day=1"):
        loader.load(source, mode="new")
    operation = loader.new_operation()
    loader.validate(operation, source, mode="append")
    staging = loader.write(operation)["staging"]
    with pytest.raises(PartitionAlreadyExistsError, match="has had 1 of the load's partitions"):
        loader.register(operation, staging, mode="new")
    assert [partition.row_count for partition in catalog.get_partitions("shop.orders")] == [1]
