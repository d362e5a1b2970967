"""Vacuum of what other engines leave in published tables: PyIceberg writes to the same database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table as IcebergTable
from sqlalchemy import text

from catalog import Catalog, Column
from catalog.operations.failpoints import Point, reached
from catalog.tables.schemes import scheme_from_properties
from tests.catalog.loading.test_snapshots import load as load_files
from tests.support import killed_changes
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import contents, load
from tests.support.published import check_published, reachable_files

TABLE = "demo.t"
NOW = timedelta(0)
pytestmark = pytest.mark.smoke


@pytest.fixture(params=["scheme", "iceberg"])
def table(request: pytest.FixtureRequest, catalog: Catalog) -> str:
    """An empty table with the column `c`: one with a partition scheme, and one stored as Iceberg."""
    if request.param == "scheme":
        scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
        catalog.create_table(TABLE, columns=[("c", "int")], scheme=scheme)
    else:
        catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("c", "int")], format="iceberg")
    return TABLE


def engine(url: str, commit: Callable[[IcebergTable], Any]) -> None:
    """Commit to the table by PyIceberg."""
    with sql_catalog(url) as iceberg:
        commit(iceberg.load_table(TABLE))


def append(url: str, *values: int) -> None:
    def commit(table: IcebergTable) -> None:
        columns = {name: pa.array(values, pa.int32()) for name in table.schema().column_names}
        table.append(pa.table(columns))

    engine(url, commit)


def delete(url: str, value: int) -> None:
    engine(url, lambda table: table.delete(f"c = {value}"))


def rows(url: str, **scan: Any) -> list[Any]:
    with sql_catalog(url) as iceberg:
        return sorted(iceberg.load_table(TABLE).scan(**scan).to_arrow()["c"].to_pylist())


def current_id(table: IcebergTable) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def on_disk(catalog: Catalog) -> set[str]:
    return {str(path) for path in Path(catalog.get_table(TABLE).location).rglob("*") if path.is_file()}


def reachable(catalog: Catalog) -> set[str]:
    return reachable_files(catalog, TABLE)


def queued(catalog: Catalog) -> list[str]:
    with catalog.storage.read() as connection:
        return list(connection.scalars(text("SELECT path FROM calve_former_file ORDER BY path")))


def leave(url: str) -> None:
    """Add and remove data files between two intakes, and leave one, the rows 1 and 2."""
    append(url, 1, 2)
    append(url, 3)
    append(url, 5)
    delete(url, 3)
    delete(url, 5)


def test_nothing_of_engines_stays(catalog: Catalog, catalog_url: str, table: str) -> None:
    leave(catalog_url)
    before = on_disk(catalog)
    # Within the grace period nothing goes.
    catalog.vacuum()
    assert before <= on_disk(catalog)
    catalog.vacuum(grace=NOW)
    assert on_disk(catalog) == reachable(catalog)
    assert queued(catalog) == []
    assert rows(catalog_url) == [1, 2]


def test_files_in_folders_with_escaped_names_go(catalog: Catalog, catalog_url: str) -> None:
    keys = [("origin", "string")]
    catalog.create_table("demo.p", columns=[("v", "int")], partition_keys=keys, format="iceberg")
    with sql_catalog(catalog_url) as iceberg:
        seen = iceberg.load_table("demo.p")
        seen.append(pa.table({"v": pa.array([1, 2], pa.int32()), "origin": ["a/b", "c"]}))
        seen.delete("v = 1")
    location = Path(catalog.get_table("demo.p").location)
    assert list(location.rglob("origin=a%2Fb/*.parquet"))
    catalog.vacuum(grace=NOW)
    files = {str(path) for path in location.rglob("*") if path.is_file()}
    assert files == reachable_files(catalog, "demo.p")


def test_files_of_quarantined_loads_stay(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    keys = [("origin", "string"), ("month", "int")]
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys, format="iceberg")
    load_files(catalog, "load", tmp_path / "1.csv", {("JFK", "1"): [1], ("LGA", "2"): [2]}, is_quarantined=True)
    hidden = list(Path(catalog.get_table(TABLE).location).rglob("*.parquet"))
    with sql_catalog(catalog_url) as iceberg:
        seen = iceberg.load_table(TABLE)
        seen.append(pa.table({"v": pa.array([5], pa.int32()), "origin": ["ABC"], "month": pa.array([1], pa.int32())}))
        before = seen.current_snapshot()
        seen.add_files([str(path) for path in hidden])
        assert before is not None
        seen.manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    catalog.vacuum(grace=NOW)
    assert all(path.exists() for path in hidden)
    assert catalog.release_partitions(TABLE) == 2
    with sql_catalog(catalog_url) as iceberg:
        assert iceberg.load_table(TABLE).scan().to_arrow().num_rows == 3


def test_a_dry_run_counts_what_engines_left(catalog: Catalog, catalog_url: str, table: str) -> None:
    leave(catalog_url)
    catalog.vacuum()
    before = on_disk(catalog)
    planned = catalog.vacuum(grace=NOW, dry_run=True)
    assert (on_disk(catalog), queued(catalog)) == (before, [])
    done = catalog.vacuum(grace=NOW)
    assert planned.total.retired_files == done.total.retired_files == 2
    assert planned.total.retired_bytes == done.total.retired_bytes > 0
    assert planned.total.metadata_files == done.total.metadata_files > 10
    assert catalog.vacuum(grace=NOW).tables == ()


def test_what_a_tag_needs_stays_until_the_tag_goes(catalog: Catalog, catalog_url: str, table: str) -> None:
    append(catalog_url, 1)
    append(catalog_url, 3)
    engine(catalog_url, lambda seen: seen.manage_snapshots().create_tag(current_id(seen), "t").commit())
    delete(catalog_url, 3)
    append(catalog_url, 5)
    delete(catalog_url, 5)
    catalog.vacuum(grace=NOW)
    assert on_disk(catalog) == reachable(catalog)
    with sql_catalog(catalog_url) as iceberg:
        tagged = iceberg.load_table(TABLE).refs()["t"].snapshot_id
    assert rows(catalog_url, snapshot_id=tagged) == [1, 3]
    engine(catalog_url, lambda seen: seen.manage_snapshots().remove_tag("t").commit())
    catalog.vacuum(grace=NOW)
    assert on_disk(catalog) == reachable(catalog)
    assert rows(catalog_url) == [1]


def test_snapshots_that_an_engine_expired_leave_nothing(catalog: Catalog, catalog_url: str, table: str) -> None:
    append(catalog_url, 1)
    append(catalog_url, 3)
    catalog.vacuum()
    # The file of 3 has a row, the file of 5 never gets one.
    append(catalog_url, 5)
    delete(catalog_url, 5)
    delete(catalog_url, 3)
    # PyIceberg removes the parents of snapshots, too, so that Calve must know the current one before.
    catalog.vacuum()

    def expire(seen: IcebergTable) -> None:
        ids = [snapshot.snapshot_id for snapshot in seen.snapshots()[:-1]]
        seen.maintenance.expire_snapshots().by_ids(ids).commit()

    engine(catalog_url, expire)
    catalog.vacuum()
    assert len([path for path in on_disk(catalog) if path.endswith(".parquet")]) == 3
    catalog.vacuum(grace=NOW)
    assert on_disk(catalog) == reachable(catalog)
    assert queued(catalog) == []
    assert rows(catalog_url) == [1]


def test_metadata_that_fell_out_of_the_log_go(catalog: Catalog, catalog_url: str, table: str) -> None:
    engine(
        catalog_url,
        lambda seen: (
            seen.transaction().set_properties({"write.metadata.previous-versions-max": "2"}).commit_transaction()
        ),
    )
    for value in range(1, 6):
        append(catalog_url, value)
    catalog.vacuum(grace=NOW)
    assert on_disk(catalog) == reachable(catalog)
    assert rows(catalog_url) == [1, 2, 3, 4, 5]


def test_a_staged_snapshot_stays_for_the_grace_period(catalog: Catalog, catalog_url: str, table: str) -> None:
    append(catalog_url, 1)
    with sql_catalog(catalog_url) as iceberg:
        seen = iceberg.load_table(TABLE)
        columns = {name: pa.array([3], pa.int32()) for name in seen.schema().column_names}
        seen.manage_snapshots().create_branch(current_id(seen), "audit").commit()
        seen.append(pa.table(columns), branch="audit")
        staged = seen.refs()["audit"].snapshot_id
        seen.manage_snapshots().remove_branch("audit").commit()
    append(catalog_url, 2)
    catalog.vacuum()
    assert rows(catalog_url, snapshot_id=staged) == [1, 3]
    catalog.vacuum(grace=NOW)
    assert on_disk(catalog) == reachable(catalog)
    assert rows(catalog_url) == [1, 2]


def test_files_outside_the_folder_stay(catalog: Catalog, catalog_url: str, table: str, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    engine(
        catalog_url,
        lambda seen: seen.transaction().set_properties({"write.data.path": str(outside)}).commit_transaction(),
    )
    append(catalog_url, 3)
    delete(catalog_url, 3)
    [file] = outside.rglob("*.parquet")
    catalog.vacuum(grace=NOW)
    assert file.exists()
    assert on_disk(catalog) == reachable(catalog)


@pytest.mark.first_case
@pytest.mark.parametrize("point", [Point.PARTLY_COMMITTED, Point.CHANGED, Point.COMMITTED, Point.FILES_DELETED])
def test_a_killed_vacuum_is_finished_by_the_next(catalog: Catalog, catalog_url: str, table: str, point: Point) -> None:
    leave(catalog_url)
    # The intake has points of these names, too.
    catalog.vacuum()
    process = get_context("spawn").Process(target=killed_changes.vacuum, args=(catalog_url, point, NOW))
    process.start()
    process.join()
    assert process.exitcode == -SIGKILL
    assert rows(catalog_url) == [1, 2]
    catalog.vacuum(grace=NOW)
    assert on_disk(catalog) == reachable(catalog)
    assert queued(catalog) == []
    assert rows(catalog_url) == [1, 2]


def test_an_engine_that_commits_during_a_vacuum_keeps_its_files(
    catalog: Catalog, catalog_url: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(catalog_url)
    with sql_catalog(catalog_url) as iceberg:
        seen = iceberg.load_table(TABLE)
        transaction = seen.transaction()
        columns = {name: pa.array([7], pa.int32()) for name in seen.schema().column_names}
        transaction.append(pa.table(columns))
        # The engine has written its data file and manifests, and commits during the vacuum.
        done: list[Point] = []

        def commit(point: Point) -> None:
            reached(point)
            if point is Point.PARTLY_COMMITTED and not done:
                done.append(point)
                transaction.commit_transaction()

        monkeypatch.setattr("catalog.maintenance.snapshots.reached", commit)
        catalog.vacuum(grace=NOW)
        assert done
    assert rows(catalog_url) == [1, 2, 7]
    monkeypatch.undo()
    catalog.vacuum(grace=NOW)
    assert on_disk(catalog) == reachable(catalog)
    assert rows(catalog_url) == [1, 2, 7]


def test_calve_rewrites_what_engines_appended(catalog: Catalog, catalog_url: str) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    catalog.create_table(TABLE, columns=[("c", "int")], scheme=scheme)
    load(catalog, "first", TABLE, range(40))
    append(catalog_url, 5, 25)
    delete(catalog_url, 15)
    check_published(catalog, TABLE)
    catalog.vacuum(grace=NOW)
    assert contents(catalog, TABLE)
    assert rows(catalog_url) == sorted([5, 25, *(value for value in range(40) if value != 15)])
    assert {path for path in on_disk(catalog) if "_manifest" not in path} == reachable(catalog)
