from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest

from catalog import Catalog, NewPartition
from catalog.errors import VerificationFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog.iceberg.footers.facts import FileFacts
    from catalog.iceberg.manifests import WrittenManifest
    from tests.support.migrating import Migrator

NAME = "shop.orders"
COLUMNS = [("id", "bigint"), ("amount", "decimal(9,2)"), ("code", "char(4)")]


@pytest.fixture
def catalog_url(sqlite_url: str) -> str:
    """On one database, because the comparison does not use it."""
    return sqlite_url


def write(path: Path, ids: list[int], **columns: list[str | None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    codes = columns.get("code", ["ab"] * len(ids))
    rows = {"id": pyarrow.array(ids, pyarrow.int64()), "code": pyarrow.array(codes, pyarrow.string())}
    pyarrow.parquet.write_table(pyarrow.table(rows), path)


@pytest.fixture
def orders(catalog: Catalog) -> Path:
    """A table of four partitions with three rows each; its location."""
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=COLUMNS, partition_keys=[("kind", "char(3)"), ("day", "int")])
    for day in (1, 2, 3):
        write(Path(table.location) / "kind=a" / f"day={day}" / "x.parquet", [day * 10 + n for n in range(3)])
    write(Path(table.location) / "kind=__HIVE_DEFAULT_PARTITION__" / "day=1" / "x.parquet", [1, 2, 3])
    catalog.add_partitions(NAME, [NewPartition(("a", str(day))) for day in (1, 2, 3)] + [NewPartition((None, "1"))])
    return Path(table.location)


@pytest.mark.long
def test_the_same_rows_are_the_same(migrator: Migrator, orders: Path, iceberg_spark: SparkSession) -> None:
    operation_id = migrator.begin(NAME)
    staged = migrator.stage(operation_id)
    report = migrator.verify(operation_id)
    assert report == {
        "metadata_location": staged["metadata_location"],
        "partitions": 4,
        "partitions_total": 4,
        "rows": 12,
        "row_counts": [
            ["kind=__HIVE_DEFAULT_PARTITION__/day=1", 3, 3],
            ["kind=a/day=1", 3, 3],
            ["kind=a/day=2", 3, 3],
            ["kind=a/day=3", 3, 3],
        ],
    }
    sampled = migrator.verify(operation_id, partitions=2)
    assert (sampled["partitions"], sampled["rows"]) == (2, 6)
    assert migrator.catalog.migrations.flip(operation_id)["rows"] == 12


def test_differences_are_named_by_partition_and_column(
    migrator: Migrator, orders: Path, iceberg_spark: SparkSession, tmp_path: Path
) -> None:
    """The files change after the stage step."""
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    # The Iceberg table reads a copy of the old files.
    metadata_over_copies(migrator, operation_id, orders, tmp_path / "copies")
    write(orders / "kind=a" / "day=2" / "x.parquet", [20, 21, 23], code=["ab", None, "ab"])
    write(orders / "kind=a" / "day=3" / "y.parquet", [4])
    with pytest.raises(VerificationFailedError) as caught:
        migrator.verify(operation_id)
    message = str(caught.value)
    assert "partition kind=a/day=2: column id: maximum 23 in the Hive table and 22 in the Iceberg table" in message
    assert "column code: nulls 1 in the Hive table and 0 in the Iceberg table" in message
    assert "partition kind=a/day=3: the Hive table has 4 row(s) and the Iceberg table 3" in message
    assert "day=1" not in message
    assert "column amount" not in message


def test_differences_of_a_table_without_keys_are_named_by_column(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=COLUMNS, partition_keys=[])
    path = Path(table.location) / "x.parquet"
    write(path, [1, 2, 3])
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    write(path.with_name("y.parquet"), [4])
    with pytest.raises(VerificationFailedError, match=r"the Hive table has 4 row\(s\) and the Iceberg table 3"):
        migrator.verify(operation_id)


def change_id(**change: dict[int, Any]) -> Callable[[FileFacts], FileFacts]:
    """Return a function that replaces metrics by field id."""

    def changed(facts: FileFacts) -> FileFacts:
        values: dict[str, Any] = {name: {**getattr(facts, name), **value} for name, value in change.items()}
        return replace(facts, **values)

    return changed


def metadata_over_copies(
    migrator: Migrator,
    operation_id: str,
    orders: Path,
    copies: Path,
    changed: Callable[[FileFacts], FileFacts] = lambda facts: facts,
    listed: Callable[[WrittenManifest], WrittenManifest] = lambda manifest: manifest,
    of: str = "",
) -> str:
    """Replace the staged metadata by those of copies of the files, with changed facts, or a changed manifest list.

    Args:
        of: A part of the paths of the files to change.

    Returns:
        Their location.
    """
    from catalog.iceberg.folders import Recursion, data_files
    from catalog.iceberg.footers.facts import FooterReader
    from catalog.iceberg.manifests import ManifestWriter
    from catalog.iceberg.metadata import write_table
    from catalog.model import FileFormat

    if copies != orders:
        shutil.copytree(orders, copies, ignore=shutil.ignore_patterns("metadata"))
    migrations = migrator.catalog.migrations
    operation = migrations.get(operation_id)
    layout = migrations.layout(operation)
    reader = FooterReader(layout, FileFormat.PARQUET)
    with ManifestWriter(layout, f"{copies}/_m") as writer:
        for page in migrations.folders(operation):
            for folder in page:
                location = folder.location.replace(str(orders), str(copies))
                files = (file for file in data_files(location, Recursion.TRUE) if "/metadata/" not in file.path)
                for file in files:
                    facts = reader.read(file)
                    facts = changed(facts) if of in file.path else facts
                    writer.add(layout.partition_record(folder.values), folder.format, file, facts)
    _, metadata_location = migrations.staged(operation_id)
    assert metadata_location is not None
    Path(metadata_location).unlink()
    return write_table(
        layout,
        str(orders),
        [listed(manifest) for manifest in writer.manifests],
        {},
        layout.name_mapping(),
        metadata_location=metadata_location,
    )


@pytest.mark.long
def test_nested_files_are_compared_as_they_were_asked_for(
    migrator: Migrator, orders: Path, iceberg_spark: SparkSession
) -> None:
    write(orders / "kind=a" / "day=2" / "sub" / "x.parquet", [9])
    for rule, rows in (("true", 13), ("false", 12)):
        operation_id = migrator.begin(NAME, recursive_directory=rule)
        migrator.stage(operation_id)
        assert migrator.verify(operation_id)["rows"] == rows
        migrator.catalog.operations.fail(operation_id, "TEST", "enough")


@pytest.mark.long
def test_nested_files_of_a_table_without_keys(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("id", "bigint")], partition_keys=[])
    write(Path(table.location) / "x.parquet", [1])
    write(Path(table.location) / "sub" / "deep" / "x.parquet", [2])
    for rule, rows in (("true", 2), ("false", 1)):
        operation_id = migrator.begin(NAME, recursive_directory=rule)
        migrator.stage(operation_id)
        assert migrator.verify(operation_id)["rows"] == rows
        migrator.catalog.operations.fail(operation_id, "TEST", "enough")


def test_many_small_files_are_read_in_one_task(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    """By itself, Iceberg makes more tasks, of at least 16 MiB, in which a file counts as 4 MiB."""
    from spark_jobs.reading.iceberg import read_metadata_file
    from spark_jobs.verify_migration import _READING

    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("id", "bigint")], partition_keys=[])
    for number in range(16):
        write(Path(table.location) / f"{number}.parquet", [number])
    operation_id = migrator.begin(NAME)
    location = migrator.stage(operation_id)["metadata_location"]
    assert read_metadata_file(iceberg_spark, location, options=_READING).rdd.getNumPartitions() == 1
    assert read_metadata_file(iceberg_spark, location).rdd.getNumPartitions() > 1


@pytest.mark.long
def test_a_wide_table_is_measured_where_its_manifests_have_metrics(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    from catalog.iceberg.metadata import read_metadata
    from spark_jobs.checking.file_metrics import FileMetrics
    from spark_jobs.reading.iceberg import read_metadata_file

    catalog.create_database("shop")
    names = [f"c{number}" for number in range(105)]
    table = catalog.create_table(NAME, columns=[(name, "bigint") for name in names], partition_keys=[])
    location = Path(table.location)
    location.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({name: [5] for name in names}), location / "x.parquet")
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    for field_id in (3, 104):
        changed = change_id(lower_bounds={field_id: struct.pack("<q", 6)})
        metadata_location = metadata_over_copies(migrator, operation_id, location, location, changed)
        with pytest.raises(VerificationFailedError, match=rf"column c{field_id - 1}: lower bound 6 for 5 in the rows"):
            migrator.verify(operation_id)
    files = read_metadata_file(iceberg_spark, metadata_location, "files")
    schema = read_metadata(metadata_location).schema()
    assert FileMetrics(schema, files, is_complete=True)._declared_ids == {*range(1, 101), 104}


def test_without_icebergs_runtime_the_package_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrameReader

    from catalog.errors import InvalidConfigurationError
    from spark_jobs.reading.iceberg import read_metadata_file

    def load(self: DataFrameReader, path: str) -> None:
        raise AnalysisException("Failed to find data source: iceberg")

    monkeypatch.setattr(DataFrameReader, "load", load)
    package = re.escape("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    with pytest.raises(InvalidConfigurationError, match=rf"{package} to `spark\.jars\.packages`"):
        read_metadata_file(spark, "/x/00000-x.metadata.json")


@pytest.mark.long
def test_checksums_do_not_depend_on_the_order_of_rows(spark: SparkSession) -> None:
    from spark_jobs.checking.table_digests import compare

    rows = [(1, "a", {"x": 1}, k) for k in range(3)] + [(None, "b", None, 1), (1, "a", {"x": 1}, 1)]
    schema = "a int, b string, m map<string,int>, k int"
    first, second = spark.createDataFrame(rows, schema), spark.createDataFrame(rows[::-1], schema)
    same = compare(first, second.repartition(3), ["a", "b", "m"], ["k"])
    assert (same.difference_count, same.partition_count, same.row_count) == (0, 3, 5)
    # The same values in each column, but in different rows.
    swapped = [(1, "b", {"x": 1}, 0), (2, "a", {"x": 1}, 0)], [(1, "a", {"x": 1}, 0), (2, "b", {"x": 1}, 0)]
    sides = [spark.createDataFrame(rows, schema) for rows in swapped]
    other = compare(sides[0], sides[1], ["a", "b", "m"], ["k"])
    assert other.difference_count == 1
    ((said,),) = (list(each.describe(["a", "b", "m"], ("x", "y"))) for each in other.differences)
    assert said == "the columns have the same values, but not in the same rows"


def test_all_partitions_are_compared_and_the_first_are_reported(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.checking import table_digests

    monkeypatch.setattr(table_digests, "COUNTED", 2)
    schema = "a int, k int"
    first = spark.createDataFrame([(number, number % 4) for number in range(9)], schema)
    second = spark.createDataFrame([(number, number % 4) for number in range(8)], schema)
    found = table_digests.compare(first, second, ["a"], ["k"])
    assert (found.partition_count, found.row_count, found.difference_count) == (4, 9, 1)
    assert found.row_counts == ((("0",), 3, 2), (("1",), 2, 2))


def test_requests_survive_the_way_to_the_job() -> None:
    from catalog.operations.job_requests import StageMigrationJob, VerifyMigrationJob

    stage = StageMigrationJob(operation_id="x", step="stage", attempt=1, table=NAME, dry_run=True, threads=4)
    verify = VerifyMigrationJob(operation_id="x", step="verify", attempt=1, table=NAME, partitions=7)
    assert StageMigrationJob.from_json(stage.to_json()) == stage
    assert VerifyMigrationJob.from_json(verify.to_json()) == verify
    assert json.loads(verify.to_json())["partitions"] == 7


@pytest.mark.long
def test_double_keys_and_a_number_sign_in_the_location_are_migrated(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession, tmp_path: Path
) -> None:
    from spark_jobs.queries.query import query

    values = ["0.1", "1e300", "-0.0", "NaN"]
    location = tmp_path / "lake#1" / "prices"
    catalog.create_database("shop")
    catalog.create_table(
        "shop.prices", columns=[("id", "bigint")], partition_keys=[("price", "double")], location=str(location)
    )
    for number, value in enumerate(values):
        write(location / f"price={value}" / "x.parquet", [number])
    catalog.add_partitions("shop.prices", [NewPartition((value,)) for value in values])
    assert migrator.migrate("shop.prices")["rows"] == len(values)
    rows = query(iceberg_spark, "SELECT * FROM shop.prices", catalog=catalog)
    found = {condition: rows.where(condition).count() for condition in ("price = 0.1D", "price >= 1e300D", "price = 0")}
    # NaN is greater than all numbers.
    assert found == {"price = 0.1D": 1, "price >= 1e300D": 2, "price = 0": 1}
