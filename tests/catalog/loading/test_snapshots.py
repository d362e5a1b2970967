"""Loads into tables stored as Iceberg: partitions, index items, counts and snapshots change together."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType

from catalog import Catalog, IndexDefinition, LoadMode, NewPartition, OnInvalid, Partition, PartitionState, Table
from catalog.errors import (
    AlreadyIcebergError,
    CatalogError,
    ConflictError,
    InvalidPartitionError,
    InvalidTableError,
    PartitionAlreadyExistsError,
    PlanConflictError,
    SourceFileError,
    UnsupportedChangeError,
    UnsupportedCommitError,
)
from catalog.migration.requests import MigrationRequest
from catalog.model import Buckets
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind, OperationState
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import drop_partitions
from tests.support.partition_files import Values, append, check_partitions, stored_rows, write_partitions
from tests.support.processes import context
from tests.support.published import published
from tests.support.stopped_loads import publish_replacing, publish_skipping

TABLE = "demo.t"
WRITE, REGISTER = "write_partitions", "register"


@pytest.fixture
def table(catalog: Catalog) -> str:
    """A table stored as Iceberg with the keys (origin string, month int), and an index on each."""
    catalog.create_table(
        TABLE,
        columns=[("v", "int")],
        partition_keys=[("origin", "string"), ("month", "int")],
        indexes=[IndexDefinition("by_month", ("month", "origin")), IndexDefinition("by_origin", ("origin",))],
        format="iceberg",
    )
    return TABLE


def load(
    catalog: Catalog, operation: str, source: Path, rows: dict[Values, list[int]], **options: Any
) -> dict[str, Any]:
    """Load rows with the steps of the DAG, in place of a source file."""
    folder = written(catalog, operation, source, rows)
    try:
        with catalog.operations.attempt(operation, REGISTER) as attempt:
            return catalog.loading.publish(operation, REGISTER, attempt, folder, **options)
    except CatalogError:
        catalog.operations.fail(operation, "TEST", "the load failed")
        raise


def written(catalog: Catalog, operation: str, source: Path, rows: dict[Values, list[int]]) -> str:
    """Begin a load and write its files; return their folder."""
    source.write_text("")
    catalog.loading.discover(operation, TABLE, str(source))
    with catalog.operations.attempt(operation, WRITE) as attempt:
        found = catalog.get_table(TABLE)
        folder = catalog.loading.files_folder(found, catalog.operations.get(operation), attempt)
        write_partitions(found, folder, rows)
        catalog.operations.finish_job(operation, WRITE, attempt, {"staging": folder})
    return folder


def names(
    catalog: Catalog, expression: str | None = None, state: PartitionState | None = PartitionState.VISIBLE
) -> Any:
    found = catalog.get_table(TABLE)
    return sorted(each.name(found) for each in catalog.get_partitions(TABLE, expression, state=state))


def operations(catalog: Catalog) -> list[str]:
    return [each.summary.operation.value for each in published(catalog, TABLE).snapshots() if each.summary]


def test_a_new_table_is_an_empty_iceberg_table_with_identity_partitions(catalog: Catalog, table: str) -> None:
    found = catalog.get_table(table)
    assert (found.is_stored_as_iceberg, found.is_iceberg) == (True, False)
    seen = published(catalog, table)
    assert [(field.name, str(field.transform)) for field in seen.spec().fields] == [
        ("origin", "identity"),
        ("month", "identity"),
    ]
    assert [field.name for field in seen.schema().fields] == ["v", "origin", "month"]
    assert seen.metadata.last_partition_id == 1001
    assert stored_rows(catalog, table) == []


def test_appends_add_and_extend_partitions(catalog: Catalog, table: str) -> None:
    report = append(catalog, "one", table, {("JFK", "1"): [1, 2], ("a/b", None): [3]})
    assert (report["partitions_added"], report["partitions_extended"], report["rows"]) == (2, 0, 3)
    report = append(catalog, "two", table, {("JFK", "1"): [4], ("LGA", "2"): [5]})
    assert (report["partitions_added"], report["partitions_extended"], report["rows"]) == (1, 1, 2)
    assert stored_rows(catalog, table) == sorted(
        [(1, "JFK", 1), (2, "JFK", 1), (3, "a/b", None), (4, "JFK", 1), (5, "LGA", 2)], key=repr
    )
    assert operations(catalog) == ["append", "append"]
    assert names(catalog, "month = 1") == ["origin=JFK/month=1"]
    [extended] = catalog.get_partitions(table, "origin = 'JFK'")
    assert (extended.file_count, extended.row_count) == (2, 3)
    scan = catalog.scan_partition_files(table, "month = 2")
    assert ([file.row_count for file in scan.files], len(scan.partitions)) == ([1], 1)


def test_a_dropped_partition_is_a_delete_snapshot(catalog: Catalog, table: str) -> None:
    append(catalog, "one", table, {("JFK", "1"): [1], ("JFK", "2"): [2], ("LGA", "1"): [3]})
    assert catalog.drop_partitions(table, "origin = 'JFK' and month > 1") == 1
    assert stored_rows(catalog, table) == [(1, "JFK", 1), (3, "LGA", 1)]
    assert catalog.drop_partition(table, {"month": "1"}) == 2
    assert stored_rows(catalog, table) == []
    assert operations(catalog) == ["append", "delete", "delete"]
    append(catalog, "two", table, {("JFK", "1"): [4]})
    assert stored_rows(catalog, table) == [(4, "JFK", 1)]


def test_a_deletion_does_not_count_a_partition_that_another_session_drops_meanwhile(
    catalog: Catalog, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(catalog, "one", table, {("JFK", "1"): [1], ("JFK", "2"): [2], ("LGA", "1"): [3]})
    remove = catalog.loading.remove

    def overtaken(operation_id: str, step: str, table: Table, found: Iterable[Partition]) -> int:
        partitions = list(found)
        catalog.drop_partitions(TABLE, "origin = 'JFK' and month = 1")
        return remove(operation_id, step, table, partitions)

    monkeypatch.setattr(catalog.loading, "remove", overtaken)
    assert catalog.delete_partitions("deletion", table, "origin = 'JFK'") == 1
    assert stored_rows(catalog, table) == [(3, "LGA", 1)]


def test_many_partitions_are_dropped_in_batches(catalog: Catalog, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    append(catalog, "one", table, {(f"p{number}", "1"): [number] for number in range(25)})
    monkeypatch.setattr("catalog.partitions.snapshots.BATCH", 10)
    monkeypatch.setattr("catalog.iceberg.entries._SEARCHED_FOLDERS", 5)
    assert catalog.drop_partitions(table, "origin < 'p3'") == 18
    check_partitions(catalog, table)


@pytest.mark.long
def test_small_manifests_are_merged_with_their_partitions(catalog: Catalog, table: str) -> None:
    for number in range(103):
        append(catalog, f"load-{number}", table, {(f"p{number % 7}", str(number % 3)): [number]})
    check_partitions(catalog, table)
    snapshot = published(catalog, table).current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(published(catalog, table).io)) < 20
    catalog.drop_partitions(table, "origin = 'p1'")
    assert len(stored_rows(catalog, table)) == 103 - 15


# --- loads ------------------------------------------------------------------------------------------------------------


def test_a_load_extends_partitions_and_is_repeated_without_effect(catalog: Catalog, table: str, tmp_path: Path) -> None:
    append(catalog, "one", table, {("JFK", "1"): [1]})
    report = load(catalog, "run", tmp_path / "1.csv", {("JFK", "1"): [2], ("LGA", "1"): [3]})
    assert (report["partitions"], report["partitions_extended"], report["row_count"]) == (1, 1, 2)
    folder = catalog.operations.get("run").report[WRITE]["staging"]
    assert catalog.loading.publish("run", REGISTER, 0, folder) == report
    assert [row[0] for row in stored_rows(catalog, table)] == [1, 2, 3]
    assert [file.path for file in catalog.loading.source_files(catalog.operations.get("run"))]
    assert catalog.loading.discover("again", table, str(tmp_path / "1.csv")) == []


def test_partitions_that_an_index_refuses_fail_the_load_or_are_set_aside(
    catalog: Catalog, table: str, tmp_path: Path
) -> None:
    rows: dict[Values, list[int]] = {("JFK", "1"): [1], ("\x01", "1"): [2, 3]}
    with pytest.raises(InvalidPartitionError, match="1 partition"):
        load(catalog, "first", tmp_path / "1.csv", rows)
    assert stored_rows(catalog, table) == []
    report = load(catalog, "second", tmp_path / "1.csv", rows, on_invalid=OnInvalid.SKIP)
    assert (report["partitions"], report["refused"], report["refused_rows"]) == (1, 1, 2)
    assert stored_rows(catalog, table) == [(1, "JFK", 1)]
    assert len(list(Path(report["refused_folder"]).rglob("*.parquet"))) == 1
    catalog.vacuum(grace=timedelta(0))
    assert len(list(Path(report["refused_folder"]).rglob("*.parquet"))) == 1


def test_quarantined_partitions_are_in_no_snapshot_until_they_are_released(
    catalog: Catalog, table: str, tmp_path: Path
) -> None:
    rows: dict[Values, list[int]] = {("JFK", "1"): [1], ("LGA", "2"): [2, 3]}
    load(catalog, "run", tmp_path / "1.csv", rows, is_quarantined=True)
    assert stored_rows(catalog, table) == []
    assert names(catalog) == []
    assert names(catalog, state=PartitionState.QUARANTINED) == ["origin=JFK/month=1", "origin=LGA/month=2"]
    catalog.vacuum(grace=timedelta(0))
    found = {each.values: each for each in catalog.operation_partitions("run")}
    assert found[("LGA", "2")].row_count == 2
    assert len(list(Path(found[("LGA", "2")].location).glob("*.parquet"))) == 1
    with pytest.raises(ConflictError, match="quarantined until its quality"):
        append(catalog, "no", table, {("JFK", "1"): [9]})
    catalog.operations.fail("no", "TEST", "it was refused")
    assert catalog.release_partitions(table, "month = 2") == 1
    assert stored_rows(catalog, table) == [(2, "LGA", 2), (3, "LGA", 2)]
    catalog.vacuum(grace=timedelta(0))
    assert catalog.release_partitions(table) == 1
    assert [row[0] for row in stored_rows(catalog, table)] == [1, 2, 3]
    assert catalog.release_partitions(table) == 0
    with pytest.raises(PartitionAlreadyExistsError):
        load(catalog, "more", tmp_path / "2.csv", {("JFK", "1"): [4]}, is_quarantined=True)


FIRST: dict[Values, list[int]] = {("JFK", "1"): [1, 2], ("LGA", "1"): [3]}
CORRECTED: dict[Values, list[int]] = {("JFK", "01"): [9], ("SFO", "2"): [4]}


def check_replaced(catalog: Catalog, table: str) -> None:
    assert stored_rows(catalog, table) == [(3, "LGA", 1), (4, "SFO", 2), (9, "JFK", 1)]
    counts = {each.values: (each.file_count, each.row_count) for each in catalog.get_partitions(table)}
    assert counts == {("JFK", "1"): (1, 1), ("LGA", "1"): (1, 1), ("SFO", "2"): (1, 1)}
    assert operations(catalog) == ["append", "overwrite"]
    check_partitions(catalog, table)


def test_a_load_replaces_partitions_in_one_snapshot(catalog: Catalog, table: str, tmp_path: Path) -> None:
    load(catalog, "one", tmp_path / "1.csv", FIRST)
    [before] = published(catalog, table).snapshots()
    report = load(catalog, "two", tmp_path / "2.csv", CORRECTED, mode=LoadMode.REPLACE)
    counts = (report["partitions"], report["partitions_extended"], report["partitions_replaced"], report["row_count"])
    assert counts == (1, 0, 1, 2)
    check_replaced(catalog, table)
    earlier = published(catalog, table).scan(snapshot_id=before.snapshot_id).to_arrow()
    assert sorted(earlier["v"].to_pylist()) == [1, 2, 3], "running readers of the earlier snapshot still find its files"
    assert {each.values for each in catalog.operation_partitions("two")} == {("JFK", "1"), ("SFO", "2")}
    catalog.vacuum(grace=timedelta(0))
    assert stored_rows(catalog, table) == [(3, "LGA", 1), (4, "SFO", 2), (9, "JFK", 1)]


def test_rows_that_another_engine_has_added_are_replaced_too(
    catalog: Catalog, catalog_url: str, table: str, tmp_path: Path
) -> None:
    load(catalog, "one", tmp_path / "1.csv", FIRST)
    with sql_catalog(catalog_url) as iceberg:
        month = pa.array([1], pa.int32())
        iceberg.load_table(table).append(pa.table({"v": pa.array([7], pa.int32()), "origin": ["JFK"], "month": month}))
    load(catalog, "two", tmp_path / "2.csv", CORRECTED, mode=LoadMode.REPLACE)
    assert stored_rows(catalog, table) == [(3, "LGA", 1), (4, "SFO", 2), (9, "JFK", 1)]
    check_partitions(catalog, table)


def test_files_that_were_written_without_a_column_of_the_table_replace_no_others(
    catalog: Catalog, catalog_url: str, table: str, tmp_path: Path
) -> None:
    load(catalog, "one", tmp_path / "1.csv", FIRST)
    folder = written(catalog, "two", tmp_path / "2.csv", CORRECTED)
    with sql_catalog(catalog_url) as iceberg:
        for is_added in (False, True):
            with iceberg.load_table(table).update_schema(allow_incompatible_changes=True) as schema:
                schema.add_column("v", IntegerType()) if is_added else schema.delete_column("v")
    attempt = catalog.operations.start_job("two", REGISTER)
    with pytest.raises(PlanConflictError, match="the column v was added while rows were written without it"):
        catalog.loading.publish("two", REGISTER, attempt, folder, mode=LoadMode.REPLACE)
    assert stored_rows(catalog, table) == [(None, "JFK", 1), (None, "JFK", 1), (None, "LGA", 1)]
    # Added rows take nothing away: they are as if they had been there before the column was dropped.
    catalog.loading.publish("two", REGISTER, attempt, folder, mode=LoadMode.APPEND)
    assert len(stored_rows(catalog, table)) == 5


def test_a_quarantined_partition_is_not_replaced(catalog: Catalog, table: str, tmp_path: Path) -> None:
    load(catalog, "one", tmp_path / "1.csv", {("JFK", "1"): [1]}, is_quarantined=True)
    with pytest.raises(ConflictError, match="quarantined"):
        load(catalog, "two", tmp_path / "2.csv", CORRECTED, mode=LoadMode.REPLACE)
    catalog.release_partitions(table)
    assert stored_rows(catalog, table) == [(1, "JFK", 1)]
    with pytest.raises(PartitionAlreadyExistsError):
        load(catalog, "three", tmp_path / "3.csv", CORRECTED, mode=LoadMode.REPLACE, is_quarantined=True)
    assert stored_rows(catalog, table) == [(1, "JFK", 1)]


@pytest.mark.parametrize("point", [Point.CHANGED, Point.COMMITTED])
def test_a_replacement_that_is_killed_is_visible_completely_or_not_at_all(
    catalog: Catalog, catalog_url: str, table: str, tmp_path: Path, point: Point
) -> None:
    load(catalog, "one", tmp_path / "1.csv", FIRST)
    folder = written(catalog, "two", tmp_path / "2.csv", CORRECTED)
    killed(publish_replacing, catalog_url, "two", folder, point)
    if point is Point.CHANGED:
        assert stored_rows(catalog, table) == [(1, "JFK", 1), (2, "JFK", 1), (3, "LGA", 1)]
    attempt = catalog.operations.start_job("two", REGISTER)
    catalog.loading.publish("two", REGISTER, attempt, folder, mode=LoadMode.REPLACE)
    check_replaced(catalog, table)


@pytest.mark.parametrize("mode", [None, *LoadMode])
def test_a_delivered_file_that_changed_is_loaded_again_by_a_replacement_or_a_merge(
    catalog: Catalog, table: str, tmp_path: Path, mode: LoadMode | None, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "1.csv").write_text("")
    load(catalog, "one", source / "1.csv", FIRST)
    (source / "1.csv").write_text("corrected")
    (source / "2.csv").write_text("new")
    if mode not in (LoadMode.REPLACE, LoadMode.MERGE):
        with pytest.raises(SourceFileError, match=r"1 file\(s\) changed .*/1\.csv\. .*set `mode` to replace"):
            catalog.loading.discover("two", table, str(source), mode=mode)
        return
    found = catalog.loading.discover("two", table, str(source), mode=mode)
    assert [Path(file.path).name for file in found] == ["1.csv", "2.csv"]
    assert "1.csv" in caplog.text


@pytest.mark.parametrize("is_released", [True, False])
def test_appends_of_engines_to_quarantined_partitions_are_followed_after_a_decision(
    catalog: Catalog, catalog_url: str, table: str, tmp_path: Path, is_released: bool
) -> None:
    append(catalog, "one", table, {("LGA", "2"): [2]})
    load(catalog, "run", tmp_path / "1.csv", {("JFK", "1"): [1]}, is_quarantined=True)
    month = pa.array([1], pa.int32())
    with sql_catalog(catalog_url) as iceberg:
        rows = pa.table({"v": pa.array([9], pa.int32()), "origin": ["JFK"], "month": month})
        iceberg.load_table(table).append(rows)
    with pytest.raises(UnsupportedCommitError, match="Release or drop it first"):
        append(catalog, "no", table, {("LGA", "2"): [5]})
    catalog.operations.fail("no", "TEST", "it was refused")
    if is_released:
        assert catalog.release_partitions(table) == 1
    else:
        assert catalog.drop_partition(table, {"origin": "JFK", "month": "1"}) == 1
    expected = [1] if is_released else []
    assert [row[0] for row in stored_rows(catalog, table)] == [*expected, 2, 9]
    assert names(catalog, state=PartitionState.QUARANTINED) == []


def test_the_partitions_of_a_load_have_the_counts_of_its_files(catalog: Catalog, table: str, tmp_path: Path) -> None:
    append(catalog, "one", table, {("JFK", "1"): [1, 2, 3]})
    load(catalog, "run", tmp_path / "1.csv", {("JFK", "1"): [4], ("LGA", "1"): [5, 6]})
    counts = {each.values: each.row_count for each in catalog.operation_partitions("run")}
    assert counts == {("JFK", "1"): 1, ("LGA", "1"): 2}


# --- the table --------------------------------------------------------------------------------------------------------


def test_a_table_without_keys_has_files_only(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[("v", "int")], format="Iceberg")
    append(catalog, "one", TABLE, {(): [1, 2]})
    append(catalog, "two", TABLE, {(): [3]})
    assert stored_rows(catalog, TABLE) == [(1,), (2,), (3,)]
    scan = catalog.scan_partition_files(TABLE)
    assert (len(scan.files), scan.partitions) == (2, ())


def test_columns_and_keys_keep_their_ids(catalog: Catalog, table: str) -> None:
    catalog.delete_partition_index(table, "by_month")
    catalog.delete_partition_index(table, "by_origin")
    append(catalog, "one", table, {("JFK", "1"): [1]})
    catalog.alter_table(table, change_columns={"origin": ("airport", "string"), "v": ("v", "bigint")})
    append(catalog, "two", table, {("JFK", "1"): [2], ("LGA", "2"): [3]})
    assert stored_rows(catalog, table) == [(1, "JFK", 1), (2, "JFK", 1), (3, "LGA", 2)]
    assert names(catalog) == ["airport=JFK/month=1", "airport=LGA/month=2"]
    catalog.drop_partitions(table, "airport = 'JFK'")
    assert stored_rows(catalog, table) == [(3, "LGA", 2)]


def test_an_index_is_built_over_the_partitions_of_the_snapshot(catalog: Catalog, table: str) -> None:
    catalog.delete_partition_index(table, "by_origin")
    append(catalog, "one", table, {("JFK", "1"): [1], ("LGA", "1"): [2]})
    catalog.create_partition_index(table, "again", ["origin"])
    append(catalog, "two", table, {("SFO", "1"): [3]})
    catalog.build_partition_index(table, "again")
    check_partitions(catalog, table)
    assert names(catalog, "origin = 'SFO'") == ["origin=SFO/month=1"]


def test_files_of_dropped_partitions_stay_until_their_snapshots_expire(catalog: Catalog, table: str) -> None:
    append(catalog, "one", table, {("JFK", "1"): [1], ("LGA", "1"): [2]})
    catalog.drop_partitions(table, "origin = 'JFK'")
    first = published(catalog, table).snapshots()[0].snapshot_id
    location = Path(catalog.get_table(table).location)
    catalog.vacuum(table)
    assert published(catalog, table).scan(snapshot_id=first).to_arrow().num_rows == 2
    report = catalog.vacuum(table, grace=timedelta(0))
    assert not report.problems
    assert stored_rows(catalog, table) == [(2, "LGA", 1)]
    assert len(list(location.rglob("*.parquet"))) == 1
    assert catalog.operations.get("one").state is OperationState.CLEANED


@pytest.mark.parametrize("purge", [False, True])
def test_a_dropped_table_is_gone(catalog: Catalog, table: str, purge: bool) -> None:
    append(catalog, "one", table, {("JFK", "1"): [1]})
    location = Path(catalog.get_table(table).location)
    catalog.drop_table(table, purge=purge)
    assert location.exists() is not purge
    catalog.create_table(TABLE, columns=[("v", "int")], location=str(location.parent / "other"), format="iceberg")


def test_operations_of_folders_are_refused_by_name(catalog: Catalog, table: str, tmp_path: Path) -> None:
    append(catalog, "one", table, {("JFK", "1"): [1]})
    for refused in (
        lambda: catalog.add_partitions(table, [NewPartition(("LGA", "1"))]),
        lambda: catalog.alter_partition(table, ("JFK", "1"), location=str(tmp_path)),
        lambda: catalog.alter_partition(table, ("JFK", "1"), rename_to=("LGA", "1")),
        lambda: catalog.repair_table(table),
        lambda: catalog.purge_partitions(table),
    ):
        with pytest.raises(UnsupportedChangeError, match="is stored as Iceberg, where snapshots have the partitions"):
            refused()
    request = MigrationRequest(kind=OperationKind.MIGRATE)
    with pytest.raises(AlreadyIcebergError, match="stored as Iceberg already"):
        catalog.migrations.plan(table, request)
    with pytest.raises(InvalidTableError, match="before you change its location"):
        catalog.alter_table(table, location=str(tmp_path / "x"))
    with pytest.raises(InvalidTableError, match="does not have Hive's buckets"):
        catalog.create_table("demo.u", columns=[("v", "int")], format="iceberg", buckets=Buckets(("v",), 2))
    assert stored_rows(catalog, table) == [(1, "JFK", 1)]


def test_keys_keep_their_order_and_types(catalog: Catalog, table: str) -> None:
    catalog.delete_partition_index(table, "by_month")
    catalog.delete_partition_index(table, "by_origin")
    for change in ({"key_order": ["month", "origin"]}, {"change_columns": {"month": ("month", "bigint")}}):
        with pytest.raises(UnsupportedChangeError, match="another type or order of partition keys"):
            catalog.alter_table(table, **change)  # type: ignore[arg-type]


# --- kills ------------------------------------------------------------------------------------------------------------


def killed(target: Callable[..., None], *arguments: str) -> None:
    """Run a function in a process that dies at a point."""
    process = context.Process(target=target, args=arguments)
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("point", [Point.MOVED, Point.CHANGED, Point.COMMITTED])
def test_a_load_that_is_killed_is_visible_completely_or_not_at_all(
    catalog: Catalog, catalog_url: str, table: str, tmp_path: Path, point: Point
) -> None:
    append(catalog, "one", table, {("JFK", "1"): [1]})
    rows: dict[Values, list[int]] = {("JFK", "1"): [2], ("LGA", "1"): [3], ("\x01", "1"): [4]}
    folder = written(catalog, "run", tmp_path / "1.csv", rows)
    killed(publish_skipping, catalog_url, "run", folder, point)
    is_committed = point is Point.COMMITTED
    assert [row[0] for row in stored_rows(catalog, table)] == ([1, 2, 3] if is_committed else [1])
    assert names(catalog, "month = 1") == ["origin=JFK/month=1", *(["origin=LGA/month=1"] if is_committed else [])]
    with catalog.operations.attempt("run", REGISTER) as attempt:
        report = catalog.loading.publish("run", REGISTER, attempt, folder, on_invalid=OnInvalid.SKIP)
    assert (report["row_count"], report["refused_rows"]) == (2, 1)
    assert [row[0] for row in stored_rows(catalog, table)] == [1, 2, 3]
    assert operations(catalog) == ["append", "append"]


def test_a_load_that_is_not_continued_leaves_nothing(
    catalog: Catalog, catalog_url: str, table: str, tmp_path: Path
) -> None:
    folder = written(catalog, "run", tmp_path / "1.csv", {("JFK", "1"): [2]})
    killed(publish_skipping, catalog_url, "run", folder, Point.CHANGED)
    catalog.operations.fail("run", "TEST", "it was killed")
    catalog.vacuum(grace=timedelta(0))
    assert list(Path(catalog.get_table(table).location).rglob("*.parquet")) == []
    assert stored_rows(catalog, table) == []


@pytest.mark.parametrize("point", [Point.CHANGED, Point.PARTLY_COMMITTED])
def test_a_drop_that_is_killed_is_visible_completely_or_not_at_all(
    catalog: Catalog, catalog_url: str, table: str, point: Point
) -> None:
    append(catalog, "one", table, {("JFK", "1"): [1], ("LGA", "1"): [2]})
    killed(drop_partitions, catalog_url, table, "origin = 'JFK'", point)
    assert [row[0] for row in stored_rows(catalog, table)] == ([1, 2] if point is Point.CHANGED else [2])
    catalog.drop_partitions(table, "origin = 'JFK'")
    assert [row[0] for row in stored_rows(catalog, table)] == [2]
