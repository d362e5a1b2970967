from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
from pyiceberg.table import StaticTable

from catalog import Catalog, NewPartition
from catalog.errors import (
    CatalogError,
    CommitOutcomeUnknownError,
    NestedFolderError,
    SharedLocationError,
    UnusableFilesError,
    VerificationFailedError,
)
from catalog.migration.requests import MigrationRequest
from catalog.migration.staging import ListingDigest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.migrating import Migrator

NAME = "shop.orders"


@pytest.fixture
def catalog_url(sqlite_url: str) -> str:
    """On one database, because the tests of the catalog cover both."""
    return sqlite_url


def write_file(path: Path, ids: list[int], **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = pyarrow.table({"id": pyarrow.array(ids, columns.pop("type", pyarrow.int64())), **columns})
    pyarrow.parquet.write_table(rows, path)
    return path


@pytest.fixture
def orders(catalog: Catalog) -> Path:
    """A table of four partitions, one with another location, with nine files; returns its location."""
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("id", "bigint")], partition_keys=[("day", "int")])
    root = Path(table.location)
    elsewhere = root.parent / "elsewhere"
    for day, count in ((10, 4), (9, 2), (2, 1)):
        for number in range(count):
            write_file(root / f"day={day}" / f"{number}.parquet", [day * 100 + number, 1])
    for number in range(2):
        write_file(elsewhere / f"{number}.parquet", [number])
    catalog.add_partitions(
        NAME, [NewPartition(("10",)), NewPartition(("9",)), NewPartition(("2",)), NewPartition((None,), str(elsewhere))]
    )
    return root


def snapshot(root: Path) -> dict[str, str]:
    """Return path → checksum of all files of the table, in all locations."""
    files = (each for each in root.parent.rglob("*") if each.is_file())
    return {str(each.relative_to(root.parent)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


@pytest.fixture
def untouched(orders: Path, catalog: Catalog) -> Iterator[None]:
    """Check that the test did not change the table's files and rows."""
    table, partitions = catalog.get_table(NAME), list(catalog.get_partitions(NAME))
    yield
    assert catalog.get_table(NAME) == table
    assert list(catalog.get_partitions(NAME)) == partitions
    assert not list((orders / "metadata").rglob("*.*"))


def entries(report: dict[str, Any]) -> list[tuple[Any, str]]:
    """Return partition and file of each entry, in the order of the manifests."""
    table = StaticTable.from_metadata(report["metadata_location"])
    current = table.current_snapshot()
    assert current is not None
    return [
        (entry.data_file.partition[0] if len(entry.data_file.partition) else None, entry.data_file.file_path)
        for manifest in current.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]


def test_a_stage_lists_all_files_by_partition_and_path(migrator: Migrator, orders: Path) -> None:
    report = migrator.stage(migrator.begin(NAME), files_a_task=1)
    assert (report["files"], report["rows"], report["partitions"]) == (9, 16, 4)
    assert report["bytes"] == sum(
        each.stat().st_size for each in orders.parent.rglob("*.parquet") if "totals" not in str(each)
    )
    found = entries(report)
    assert [day for day, _ in found] == [None] * 2 + [2] + [9] * 2 + [10] * 4
    assert found == sorted(found, key=lambda each: (each[0] is not None, each[0] or 0, each[1]))


def test_nothing_but_manifests_and_counts_is_left(migrator: Migrator, orders: Path) -> None:
    report = migrator.stage(migrator.begin(NAME))
    folder = Path(report["location"], report["folder"])
    left = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}
    assert {each.partition("-")[0] if each.startswith("snap") else each for each in left} >= {"staged.json", "snap"}
    rest = {each for each in left if not each.startswith("snap-") and each != "staged.json"}
    assert len([each for each in rest if each.endswith(".avro")]) == report["manifests"] == 1
    (totals,) = (each for each in rest if each.endswith(".parquet"))
    rows = pyarrow.parquet.read_table(folder / totals).to_pylist()
    assert [(each["ordinal"], each["file_count"], each["row_count"]) for each in rows] == [
        (0, 2, 2),
        (1, 1, 2),
        (2, 2, 4),
        (3, 4, 8),
    ]


def test_the_digest_of_a_listing_is_that_of_its_files(migrator: Migrator, orders: Path) -> None:
    operation_id = migrator.begin(NAME)
    report = migrator.stage(operation_id)
    again = migrator.catalog.migrations.list_again(migrator.catalog.migrations.get(operation_id))
    assert report["listing"] == str(again)
    write_file(orders / "day=2" / "new.parquet", [1])
    assert str(migrator.catalog.migrations.list_again(migrator.catalog.migrations.get(operation_id))) != str(again)
    assert ListingDigest(str(again)).file_count == 9


def test_a_dry_run_counts_the_same_and_writes_nothing(migrator: Migrator, orders: Path, untouched: None) -> None:
    before = snapshot(orders)
    report = migrator.stage(migrator.begin(NAME), dry_run=True)
    assert (report["files"], report["rows"], report["partitions"]) == (9, 16, 4)
    assert snapshot(orders) == before


def test_a_stage_whose_commit_has_an_unknown_outcome_keeps_its_files(
    migrator: Migrator, catalog: Catalog, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = type(catalog.migrations).record_staged

    def record_and_lose_the_connection(*arguments: Any) -> None:
        record(*arguments)
        raise CommitOutcomeUnknownError("the connection was lost during a commit")

    monkeypatch.setattr(type(catalog.migrations), "record_staged", record_and_lose_the_connection)
    catalog.migrations.begin("m1", NAME, MigrationRequest())
    with pytest.raises(CommitOutcomeUnknownError):
        migrator.stage("m1")
    assert catalog.migrations.is_staged("m1")


def test_many_files_in_one_folder_and_many_folders_make_tasks_alike() -> None:
    from spark_jobs.migrating.listing import ListedFiles
    from spark_jobs.stage_migration import file_ranges

    one_folder = [ListedFiles("a", (250,) * 40, "")]
    many = [ListedFiles(f"{number}", (250,), "") for number in range(40)]
    for listed in (one_folder, many):
        assert [each.file_count for each in file_ranges(listed, 750)] == [750] * 13 + [250]
    parts = [part for each in file_ranges(many, 750) for part in each.parts]
    assert parts == [(str(number), (0,)) for number in range(40)]


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


BROKEN: dict[str, Callable[[Path], object]] = {
    "EMPTY": lambda path: path.write_bytes(b""),
    "FOREIGN": lambda path: path.write_text("id,day\n1,2\n"),
    "DAMAGED": damage,
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_file_that_is_none_of_the_tables_is_refused_by_name(
    migrator: Migrator, orders: Path, untouched: None, problem: str
) -> None:
    path = orders / "day=9" / "1.parquet"
    BROKEN[problem](path)
    before = snapshot(orders)
    operation_id = migrator.begin(NAME)
    with pytest.raises(UnusableFilesError, match=str(path)) as caught:
        migrator.stage(operation_id)
    assert [(each.path, each.problem) for each in caught.value.problems] == [(str(path), problem)]
    assert snapshot(orders) == before


def test_empty_and_foreign_files_are_passed_over_when_asked_and_reported(migrator: Migrator, orders: Path) -> None:
    empty, foreign = orders / "day=9" / "empty.parquet", orders / "day=9" / "foreign.parquet"
    BROKEN["EMPTY"](empty)
    BROKEN["FOREIGN"](foreign)
    report = migrator.stage(migrator.begin(NAME, unusable_files="skip"))
    assert {(each["path"], each["problem"]) for each in report["problems"]} == {
        (str(empty), "EMPTY"),
        (str(foreign), "FOREIGN"),
    }
    assert report["files"] == len(entries(report)) == 9


def test_a_damaged_file_is_refused_also_behind_many_to_pass_over(migrator: Migrator, orders: Path) -> None:
    for number in range(300):
        BROKEN["EMPTY"](orders / "day=9" / f"empty-{number}.parquet")
    damage(orders / "day=10" / "0.parquet")
    operation_id = migrator.begin(NAME, unusable_files="skip")
    with pytest.raises(UnusableFilesError, match=r"1 file\(s\).*day=10/0.parquet"):
        migrator.stage(operation_id)


def test_wider_columns_and_reserved_names_are_refused_by_file(migrator: Migrator, catalog: Catalog) -> None:
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("id", "int")], partition_keys=[])
    wide = write_file(Path(table.location) / "wide.parquet", [1])
    reserved = write_file(Path(table.location) / "reserved.parquet", [1], type=pyarrow.int32(), _file=["x"])
    write_file(Path(table.location) / "right.parquet", [1], type=pyarrow.int32())
    operation_id = migrator.begin(NAME)
    with pytest.raises(UnusableFilesError) as caught:
        migrator.stage(operation_id)
    assert {(each.path, each.problem) for each in caught.value.problems} == {
        (str(wide), "WIDER_COLUMN"),
        (str(reserved), "RESERVED_NAME"),
    }


def test_nested_folders_are_refused_taken_or_passed_over(migrator: Migrator, orders: Path) -> None:
    nested = write_file(orders / "day=9" / "sub" / "deep" / "x.parquet", [7])
    write_file(orders / "day=9" / "_hidden" / "x.parquet", [8])
    operation_id = migrator.begin(NAME)
    with pytest.raises(NestedFolderError, match="day=9/sub"):
        migrator.stage(operation_id)
    migrator.catalog.operations.fail(operation_id, "TEST", "refused")
    for rule, count in (("true", 10), ("false", 9)):
        operation_id = migrator.begin(NAME, recursive_directory=rule)
        report = migrator.stage(operation_id)
        assert report["files"] == count
        assert (str(nested) in {path for _, path in entries(report)}) == (rule == "true")
        migrator.catalog.operations.fail(operation_id, "TEST", "enough")
        shutil.rmtree(orders / "metadata")


def test_a_file_of_two_partitions_is_found(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    from catalog.iceberg.folders import Recursion
    from catalog.iceberg.layout import layout_of
    from catalog.migration.sources import SourceFolder
    from catalog.model import FileFormat
    from spark_jobs.migrating.listing import StageSettings, UsualLocation
    from spark_jobs.stage_migration import stage_files

    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("id", "bigint")], partition_keys=[("day", "int")])
    path = write_file(tmp_path / "outer" / "inner" / "x.parquet", [1])
    folders = [
        SourceFolder(0, str(tmp_path / "outer"), ("1",), FileFormat.PARQUET),
        SourceFolder(1, f"file://{tmp_path}/outer/inner", ("2",), FileFormat.PARQUET),
    ]
    layout = json.dumps(layout_of(table).as_json())
    settings = StageSettings(str(tmp_path / "staging"), layout, Recursion.TRUE, frozenset())
    with pytest.raises(SharedLocationError, match=str(path)):
        stage_files(spark, settings, [folders], UsualLocation(table.location, table.key_names))


def test_names_in_other_case_are_mapped(migrator: Migrator, catalog: Catalog) -> None:
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("id", "bigint"), ("note", "string")], partition_keys=[])
    write_file(Path(table.location) / "a.parquet", [1], note=["a"])
    write_file(Path(table.location) / "b.parquet", [2], NoTe=["b"])
    report = migrator.stage(migrator.begin(NAME))
    rows = StaticTable.from_metadata(report["metadata_location"]).scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["note"]) for row in rows) == [(1, "a"), (2, "b")]


def test_threads_give_the_same_manifests(migrator: Migrator, orders: Path) -> None:
    operation_id = migrator.begin(NAME)
    alone = entries(migrator.stage(operation_id, threads=1))
    assert entries(migrator.stage(operation_id, threads=8)) == alone


def test_progress_is_told_in_files(migrator: Migrator, orders: Path, catalog: Catalog) -> None:
    from catalog.operations.job_requests import StageMigrationJob
    from spark_jobs.sessions.session import Heartbeat
    from spark_jobs.stage_migration import stage_migration

    operation_id = migrator.begin(NAME)
    attempt = catalog.operations.start_job(operation_id, "stage")
    job = StageMigrationJob(operation_id=operation_id, step="stage", attempt=attempt, table=NAME, files_a_task=1)
    seen: list[tuple[int, int | None, str | None]] = []
    with Heartbeat(catalog, job):
        recorded = catalog.migrations.record_staged

        def record(*arguments: Any) -> Any:
            operation = catalog.operations.get(operation_id)
            seen.append((operation.progress_done, operation.progress_total, operation.progress_note))
            return recorded(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(catalog.migrations), "record_staged", lambda _, *arguments: record(*arguments))
            stage_migration(migrator.spark, catalog, job)
    assert seen == [(9, 9, "files")]


def test_an_empty_table_has_no_manifests(migrator: Migrator, catalog: Catalog) -> None:
    catalog.create_database("shop")
    catalog.create_table(NAME, columns=[("id", "bigint")], partition_keys=[("day", "int")])
    report = migrator.stage(migrator.begin(NAME))
    assert (report["files"], report["manifests"], report["partitions"]) == (0, 0, 0)
    assert StaticTable.from_metadata(report["metadata_location"]).scan().to_arrow().num_rows == 0


def test_a_stage_again_after_a_dead_one_is_the_same(migrator: Migrator, orders: Path) -> None:
    operation_id = migrator.begin(NAME)
    first = migrator.stage(operation_id)
    again = migrator.stage(operation_id)
    assert first["folder"] != again["folder"]
    assert entries(first) == entries(again)


def test_errors_of_tasks_come_as_they_are(spark: SparkSession) -> None:
    from spark_jobs.migrating.tasks import run_tasks

    with pytest.raises(CatalogError, match="nested"):
        run_tasks(spark, _refuse, [1, 2])


def _refuse(_: int) -> int:
    raise NestedFolderError("/x", "/x/nested")


def test_columns_that_only_files_have_are_read_past(
    migrator: Migrator, catalog: Catalog, duck: duckdb.DuckDBPyConnection
) -> None:
    """PyIceberg refuses a column that is not mapped, and DuckDB would read null for those behind it."""
    catalog.create_database("shop")
    columns = [("id", "bigint"), ("s", "struct<b:bigint>"), ("note", "string")]
    table = catalog.create_table(NAME, columns=columns, partition_keys=[])
    first = {"a": [[1], None], "x": [{"y": [1], "z": {"q": 1}}] * 2, "id": [1, 2], "s": [{"a": 1, "b": 2}] * 2}
    pyarrow.parquet.write_table(pyarrow.table({**first, "note": ["m", "n"]}), make(table.location) / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"note": ["o"], "new": [1], "id": [3]}), f"{table.location}/b.parquet")
    report = migrator.stage(migrator.begin(NAME))
    expected = [(1, {"b": 2}, "m"), (2, {"b": 2}, "n"), (3, None, "o")]
    static = StaticTable.from_metadata(report["metadata_location"])
    assert sorted((row["id"], row["s"], row["note"]) for row in static.scan().to_arrow().to_pylist()) == expected
    assert static.metadata.last_column_id > static.schema().highest_field_id
    read = duck.execute(f"SELECT id, note FROM iceberg_scan('{report['metadata_location']}') ORDER BY id").fetchall()
    assert read == [(row[0], row[2]) for row in expected]


def make(location: str) -> Path:
    path = Path(location)
    path.mkdir(parents=True)
    return path


@pytest.mark.long
def test_timestamps_that_may_be_of_an_older_calendar_need_the_comparison(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    """Their files have no minimum of them; Spark converts them on reading, and Iceberg's readers do not."""
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("at", "timestamp")], partition_keys=[])
    settings = {"int96RebaseModeInWrite": "LEGACY", "outputTimestampType": "INT96"}
    for name, value in settings.items():
        iceberg_spark.conf.set(f"spark.sql.parquet.{name}", value)
    try:
        rows = iceberg_spark.sql("SELECT TIMESTAMP '1500-01-01 00:00:00' AS at")
        rows.write.mode("append").parquet(table.location)
    finally:
        for name in settings:
            iceberg_spark.conf.unset(f"spark.sql.parquet.{name}")
    operation_id = migrator.begin(NAME, verify=False)
    with pytest.raises(UnusableFilesError, match=r"column 'at' may have dates or timestamps that .*verify => true"):
        migrator.stage(operation_id)
    catalog.operations.fail(operation_id, "UnusableFilesError", "old timestamps")
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    with pytest.raises(VerificationFailedError, match=r"column at: minimum 1500-01-01 .* and 1500-01-10"):
        migrator.verify(operation_id)
