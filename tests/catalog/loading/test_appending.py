"""Rows that are added to existing partitions, and refused if these change meanwhile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from catalog import Catalog, LoadMode, NewPartition, Table
from catalog.errors import ConflictError, LocationTakenError, PartitionAlreadyExistsError, UnsupportedFormatError
from catalog.model.partition_names import partition_path
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind
from catalog.operations.staging import STAGED_DATA, STAGED_FILES, STAGED_SCHEMA, STAGING
from tests.catalog.loading.test_loading import TABLE, Load, files_below, folders_of
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_publishing import KILLS, NOW, cancel, kill_at, reserved_count
from tests.catalog.loading.test_publishing import staged as staged
from tests.support import stopped_loads
from tests.support.index_items import assert_every_partition_has_its_item


@pytest.fixture
def late(catalog: Catalog, staged: Load) -> Load:
    """A staged load of rows for one existing partition, with a file, and for two new ones."""
    catalog.add_partitions(TABLE, [NewPartition(["JFK", "01"], row_count=2, file_count=1, size_bytes=5)])
    path = staged.folder / "origin=JFK/month=01"
    path.mkdir(parents=True)
    (path / "old.parquet").write_text("old")
    staged.mode = LoadMode.APPEND
    return staged


def assert_late_rows_are_added(late: Load) -> None:
    report = late.publish()
    assert (report["partitions"], report["partitions_extended"], report["row_count"]) == (2, 1, 60)
    counts = {
        partition.values: (partition.row_count, partition.file_count)
        for partition in late.catalog.get_partitions(TABLE)
    }
    assert counts == {("JFK", "01"): (12, 2), ("LGA", "1"): (20, 1), ("a/b", None): (30, 1)}
    files = files_below(late.table)
    assert Counter(folders_of(files)) == {
        "origin=JFK/month=01": 2,
        "origin=LGA/month=1": 1,
        "origin=a%2Fb/month=__HIVE_DEFAULT_PARTITION__": 1,
    }
    assert reserved_count(late.catalog) == 0
    assert_every_partition_has_its_item(late.catalog, TABLE)
    loaded = {partition.values for partition in late.catalog.operation_partitions(late.name)}
    assert loaded == counts.keys(), "the partition with late rows is checked and announced, too"
    assert Load(late.catalog, late.table, late.landing, "later").discover() == []


def test_late_rows_are_added_to_their_partition(late: Load) -> None:
    assert_late_rows_are_added(late)


@pytest.mark.first_case
@pytest.mark.parametrize("point", [*KILLS, Point.COMMITTED])
def test_a_load_of_late_rows_that_is_killed_is_done_again(late: Load, catalog_url: str, point: Point) -> None:
    kill_at(stopped_loads.publish_to_existing, point, catalog_url, late.name, late.staging)
    assert_late_rows_are_added(late)


@pytest.mark.first_case
@pytest.mark.parametrize("undo", [Catalog.repair_table, Catalog.vacuum])
@pytest.mark.parametrize("point", KILLS)
def test_a_load_of_late_rows_that_is_killed_is_undone(
    late: Load, catalog: Catalog, catalog_url: str, point: Point, undo: Callable[..., object]
) -> None:
    kill_at(stopped_loads.publish_to_existing, point, catalog_url, late.name, late.staging)
    cancel(catalog, late.name)
    undo(catalog, **({"grace": NOW} if undo is Catalog.vacuum else {"table": TABLE}))
    assert files_below(late.table) == {"origin=JFK/month=01/old.parquet": "old"}
    assert [(partition.values, partition.row_count) for partition in catalog.get_partitions(TABLE)] == [
        (("JFK", "01"), 2)
    ]
    assert reserved_count(catalog) == 0


def test_without_the_mode_late_rows_are_refused(late: Load, catalog: Catalog) -> None:
    late.mode = None
    with pytest.raises(PartitionAlreadyExistsError, match="origin=JFK/month=1"):
        late.publish()
    assert [partition.row_count for partition in catalog.get_partitions(TABLE)] == [2]
    assert reserved_count(catalog) == 0


def test_late_rows_do_not_go_to_a_quarantined_partition(late: Load, catalog: Catalog) -> None:
    first = Load(catalog, late.table, late.landing, "first")
    cancel(catalog, late.name)
    first.discover()
    first.stage({("LGA", "1"): 1})
    first.publish(is_quarantined=True)
    (late.landing / "03.csv").write_text("late")
    late.name = "run-3"
    late.discover()
    late.stage()
    with pytest.raises(ConflictError, match="quarantined"):
        late.publish()
    assert reserved_count(catalog) == 0


class Append:
    """An append of one row to an existing and a new partition, without Spark."""

    def __init__(self, catalog: Catalog, table: Table) -> None:
        self.catalog, self.table = catalog, table
        operation = catalog.operations.begin("append", OperationKind.APPEND_ROWS, TABLE, is_exclusive=True)
        self.attempt = catalog.operations.start_job("append", "append_rows")
        self.staging = catalog.loading.staging_name(operation, self.attempt)
        folder, rows = Path(table.location, self.staging), []
        for values in (("JFK", "1"), ("new", "1")):
            path = folder / STAGED_DATA / partition_path(table.key_names, values)
            path.mkdir(parents=True)
            (path / "appended.parquet").write_text("appended")
            rows.append({"values": values, "files": ["appended.parquet"], "row_count": 1, "size_bytes": 8})
        (folder / STAGED_FILES).mkdir()
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows, STAGED_SCHEMA), folder / STAGED_FILES / "part.parquet")
        (folder / STAGED_FILES / "_SUCCESS").touch()

    def publish(self) -> dict[str, Any]:
        return self.catalog.loading.publish("append", "append_rows", self.attempt, self.staging, is_load=False)

    def discard(self) -> None:
        self.catalog.loading.discard_staging(self.table, ("append", "append_rows", self.attempt))


@pytest.fixture
def append(catalog: Catalog, table: Table) -> Iterator[Append]:
    """A staged append."""
    catalog.add_partitions(TABLE, [NewPartition(["JFK", "1"], row_count=2, file_count=1, size_bytes=5)])
    path = Path(table.location, "origin=JFK/month=1")
    path.mkdir(parents=True)
    (path / "old.parquet").write_text("old")
    return Append(catalog, table)


def test_an_append_extends_and_adds_partitions(append: Append, catalog: Catalog, table: Table) -> None:
    report = append.publish()
    assert (report["partitions_added"], report["partitions_extended"], report["rows"]) == (1, 1, 2)
    counts = {row.values: (row.row_count, row.file_count) for row in catalog.get_partitions(TABLE)}
    assert counts == {("JFK", "1"): (3, 2), ("new", "1"): (1, 1)}
    assert sorted(files_below(table)) == [
        "origin=JFK/month=1/appended.parquet",
        "origin=JFK/month=1/old.parquet",
        "origin=new/month=1/appended.parquet",
    ]
    assert reserved_count(catalog) == 0


@pytest.mark.parametrize("folder", ["origin=new/month=1", "origin=new/month=1/x"])
def test_an_append_hides_a_new_partition_beside_its_folder_when_another_lies_there(
    append: Append, catalog: Catalog, table: Table, folder: str
) -> None:
    catalog.add_partitions(TABLE, [NewPartition(["other", "1"], f"{table.location}/{folder}")])
    append.publish()
    [path] = [path for path in files_below(table) if path.startswith("origin=new/")]
    assert re.fullmatch(r"origin=new/\.month=1-[^/]+/appended.parquet", path), "no reader takes it for a partition"


def test_an_append_leaves_unknown_files_in_the_folder_of_a_new_partition_alone(
    append: Append, catalog: Catalog, table: Table
) -> None:
    folder = Path(table.location, "origin=new/month=1")
    folder.mkdir(parents=True)
    (folder / "unknown.parquet").write_text("unknown")
    append.publish()
    new = [partition for partition in catalog.get_partitions(TABLE) if partition.values[0] == "new"]
    [location] = [partition.location for partition in new]
    assert [path.name for path in Path(location).iterdir()] == ["appended.parquet"]
    [problem] = catalog.vacuum(grace=NOW).problems
    assert "unknown.parquet; move them elsewhere" in problem
    (folder / "unknown.parquet").unlink()
    assert catalog.vacuum(grace=NOW).total.settled_partitions == 1
    assert [path.name for path in folder.iterdir()] == ["appended.parquet"]
    assert catalog.get_partition(TABLE, ("new", "1")).location == str(folder)


def test_an_append_puts_no_new_partition_into_the_folder_of_another(
    append: Append, catalog: Catalog, table: Table
) -> None:
    catalog.add_partitions(TABLE, [NewPartition(["other", "1"], f"{table.location}/origin=new")])
    with pytest.raises(LocationTakenError, match="partition origin=other/month=1 has its files in"):
        append.publish()
    assert not Path(table.location, "origin=new").exists()
    assert reserved_count(catalog) == 0


def drop_and_add(catalog: Catalog, *, is_purge: bool = False) -> None:
    (catalog.purge_partitions if is_purge else catalog.drop_partitions)(TABLE, "origin = 'JFK'")
    catalog.add_partitions(TABLE, [NewPartition(["JFK", "1"], row_count=0, file_count=0, size_bytes=0)])


CHANGES: dict[str, Callable[[Catalog, Path], object]] = {
    "moved": lambda catalog, folder: catalog.alter_partition(TABLE, ("JFK", "1"), location=str(folder)),
    "renamed": lambda catalog, _: catalog.alter_partition(TABLE, ("JFK", "1"), rename_to=("JFK", "2")),
    "dropped": lambda catalog, _: catalog.drop_partitions(TABLE, "origin = 'JFK'"),
    "dropped and added again": lambda catalog, _: drop_and_add(catalog),
    "purged and added again": lambda catalog, _: drop_and_add(catalog, is_purge=True),
    "of another format": lambda catalog, _: catalog.alter_partition(TABLE, ("JFK", "1"), format="orc"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("point", [Point.PARTLY_RESERVED, Point.MOVED])
def test_a_partition_that_changes_while_files_move_to_it_refuses_the_append(
    append: Append,
    catalog: Catalog,
    table: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    point: Point,
) -> None:
    def interfere(current: Point) -> None:
        if current is point:
            CHANGES[change](catalog, tmp_path / "elsewhere")

    for module in ("catalog.loading.loading", "catalog.loading.publishing"):
        monkeypatch.setattr(f"{module}.reached", interfere)
    with pytest.raises((ConflictError, UnsupportedFormatError), match=r"was dropped, renamed or moved|stored as ORC"):
        append.publish()
    assert [partition.row_count for partition in catalog.get_partitions(TABLE) if partition.values[0] == "new"] == []
    append.discard()
    assert sorted(files_below(table)) == ["origin=JFK/month=1/old.parquet"]
    assert not Path(table.location, "origin=new/month=1").exists()
    assert reserved_count(catalog) == 0
    assert not Path(table.location, STAGING, append.staging).exists()
