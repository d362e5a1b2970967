"""Replacement of the partitions of Hive-style tables: new versions, their settling, and kills; on each database."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from catalog import Catalog, LoadMode, NewPartition, Table
from catalog.errors import ConflictError, LocationInUseError, UnsupportedChangeError
from catalog.loading import publishing
from catalog.loading.repairing import RepairMode
from catalog.loading.replaced_folders import keep_files_read, list_files
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind
from catalog.operations.staging import VERSIONS
from catalog.storage.schema import PartitionVersionRow
from tests.catalog.loading.test_loading import TABLE, Load, files_below
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_publishing import cancel, kill_at, reserved_count
from tests.support import stopped_loads
from tests.support.index_items import assert_every_partition_has_its_item

NOW = timedelta(0)
DAY = "origin=JFK/month=1"
BEFORE_COMMIT = (Point.PARTLY_RESERVED, Point.RESERVED, Point.PARTLY_MOVED, Point.MOVED, Point.CHANGED)
SETTLING = (
    Point.JOURNALED,
    Point.STARTED,
    Point.FILES_DELETED,
    Point.FILES_COPIED,
    Point.CHANGED,
)
Rows = dict[tuple[str | None, ...], int]


def replacement(catalog: Catalog, table: Table, landing: Path, name: str, rows: Rows) -> Load:
    """Return a staged load that replaces partitions."""
    (landing / f"{name}.csv").write_text(name)
    load = Load(catalog, table, landing, name)
    load.mode = LoadMode.REPLACE
    load.discover()
    load.stage(rows)
    return load


@pytest.fixture
def corrected(load: Load, catalog: Catalog, table: Table, landing: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """A staged load that replaces one of three loaded partitions, and adds another one."""
    monkeypatch.setattr(publishing, "_BATCH", 2)
    load.run({("JFK", "1"): 10, ("LGA", "1"): 20, ("a/b", None): 30})
    return replacement(catalog, table, landing, "corrected", {("JFK", "1"): 11, ("new", "1"): 1})


def read(catalog: Catalog) -> dict[tuple[str | None, ...], tuple[int | None, list[str]]]:
    """Return the row count and the texts of the files of each partition, as readers through the catalog see them."""
    return {
        partition.values: (partition.row_count, sorted(path.read_text() for path in Path(partition.location).iterdir()))
        for partition in catalog.get_partitions(TABLE)
    }


def listed(table: Table) -> dict[str, list[str]]:
    """Return the texts of the files in each folder that readers of the table's folder see."""
    folders: dict[str, list[str]] = {}
    for path, text in files_below(table).items():
        if not path.startswith(("_", ".")):
            folders.setdefault(path.rpartition("/")[0], []).append(text)
    return folders


def settle(catalog: Catalog) -> None:
    """Settle all versions, and delete their folders."""
    for _ in range(2):
        assert catalog.vacuum(TABLE, grace=NOW).problems == ()


def version_count(catalog: Catalog) -> int:
    with catalog.storage.read() as connection:
        return connection.scalar(select(func.count()).select_from(PartitionVersionRow)) or 0


BEFORE = {("JFK", "1"): (10, ["run-1 1"]), ("LGA", "1"): (20, ["run-1 1"]), ("a/b", None): (30, ["run-1 1"])}
AFTER = {**BEFORE, ("JFK", "1"): (11, ["corrected 1"]), ("new", "1"): (1, ["corrected 1"])}
FOLDERS_AFTER = {
    DAY: ["corrected 1"],
    "origin=LGA/month=1": ["run-1 1"],
    "origin=a%2Fb/month=__HIVE_DEFAULT_PARTITION__": ["run-1 1"],
    "origin=new/month=1": ["corrected 1"],
}


def test_replaced_rows_are_seen_by_the_catalog_at_once_and_in_the_folder_after_the_grace_period(
    corrected: Load, catalog: Catalog, table: Table
) -> None:
    assert read(catalog) == BEFORE
    report = corrected.publish()
    assert (report["partitions"], report["partitions_replaced"], report["partitions_extended"]) == (1, 1, 0)
    assert (report["row_count"], report["file_count"]) == (12, 2)
    assert read(catalog) == AFTER
    assert listed(table) == {**FOLDERS_AFTER, DAY: ["run-1 1"]}, "running readers still have their files"
    assert_every_partition_has_its_item(catalog, TABLE)
    assert {partition.values for partition in catalog.operation_partitions("corrected")} == {("JFK", "1"), ("new", "1")}

    assert catalog.vacuum(TABLE).total.settled_partitions == 0, "the grace period has not passed"
    would = catalog.vacuum(TABLE, grace=NOW, dry_run=True)
    assert would.total.settled_partitions == 1
    assert "1 replaced partition(s) would get their files into their own folders" in str(would)
    done = catalog.vacuum(TABLE, grace=NOW)
    assert (done.total.settled_partitions, done.total.retired_files, done.total.version_folders) == (1, 1, 0)
    assert read(catalog) == AFTER
    assert listed(table) == FOLDERS_AFTER
    assert any(VERSIONS in path for path in files_below(table)), "running readers still have the version"
    assert catalog.vacuum(TABLE, grace=NOW).total.version_folders == 1
    assert not Path(table.location, VERSIONS).exists()
    assert version_count(catalog) == 0
    assert {partition.location for partition in catalog.get_partitions(TABLE)} == {
        f"{table.location}/{folder}" for folder in FOLDERS_AFTER
    }


def test_a_partition_that_is_replaced_again_skips_the_version_between(
    corrected: Load, catalog: Catalog, table: Table, landing: Path
) -> None:
    corrected.publish()
    replacement(catalog, table, landing, "again", {("JFK", "1"): 12}).publish()
    assert read(catalog)["JFK", "1"] == (12, ["again 1"])
    settle(catalog)
    assert listed(table)[DAY] == ["again 1"]
    assert version_count(catalog) == 0
    replacement(catalog, table, landing, "third", {("JFK", "1"): 13}).publish()
    settle(catalog)
    assert (read(catalog)["JFK", "1"], listed(table)[DAY]) == ((13, ["third 1"]), ["third 1"])


def test_late_rows_are_added_to_a_version(corrected: Load, catalog: Catalog, table: Table, landing: Path) -> None:
    corrected.publish()
    late = replacement(catalog, table, landing, "late", {("JFK", "1"): 5})
    late.mode = LoadMode.APPEND
    late.publish()
    assert read(catalog)["JFK", "1"] == (16, ["corrected 1", "late 1"])
    settle(catalog)
    assert read(catalog)["JFK", "1"] == (16, ["corrected 1", "late 1"])
    assert sorted(listed(table)[DAY]) == ["corrected 1", "late 1"]


def test_what_an_interrupted_load_added_to_a_version_is_not_copied(
    corrected: Load, catalog: Catalog, catalog_url: str, table: Table, landing: Path
) -> None:
    corrected.publish()
    late = replacement(catalog, table, landing, "late", {("JFK", "1"): 5})
    kill_at(stopped_loads.publish_to_existing, Point.MOVED, catalog_url, late.name, late.staging)
    assert catalog.vacuum(TABLE, grace=NOW).total.settled_partitions == 0, "the load has reserved the table"
    cancel(catalog, late.name)
    assert catalog.vacuum(TABLE, grace=timedelta(hours=1)).total.settled_partitions == 0
    late.publish()
    assert read(catalog)["JFK", "1"] == (16, ["corrected 1", "late 1"]), "a failed load that is continued is not undone"


def test_what_an_abandoned_load_added_to_a_version_is_not_copied(
    corrected: Load, catalog: Catalog, catalog_url: str, table: Table, landing: Path
) -> None:
    corrected.publish()
    late = replacement(catalog, table, landing, "late", {("JFK", "1"): 5})
    kill_at(stopped_loads.publish_to_existing, Point.MOVED, catalog_url, late.name, late.staging)
    cancel(catalog, late.name)
    settle(catalog)
    assert (read(catalog), listed(table)) == (AFTER, FOLDERS_AFTER)


@pytest.mark.first_case
@pytest.mark.parametrize("point", [*BEFORE_COMMIT, Point.COMMITTED])
def test_a_replacement_that_is_killed_is_done_again(
    corrected: Load, catalog: Catalog, catalog_url: str, table: Table, point: Point
) -> None:
    kill_at(stopped_loads.publish_in_place_of, point, catalog_url, corrected.name, corrected.staging)
    assert read(catalog) == (AFTER if point is Point.COMMITTED else BEFORE)
    corrected.publish()
    assert read(catalog) == AFTER
    assert reserved_count(catalog) == 0
    settle(catalog)
    assert (read(catalog), listed(table)) == (AFTER, FOLDERS_AFTER)


@pytest.mark.first_case
@pytest.mark.parametrize("point", BEFORE_COMMIT)
def test_a_replacement_that_is_killed_is_undone(
    corrected: Load, catalog: Catalog, catalog_url: str, table: Table, point: Point
) -> None:
    before = {path: text for path, text in files_below(table).items() if not path.startswith("_")}
    kill_at(stopped_loads.publish_in_place_of, point, catalog_url, corrected.name, corrected.staging)
    cancel(catalog, corrected.name)
    settle(catalog)
    assert read(catalog) == BEFORE
    assert files_below(table) == before
    assert not any(Path(table.location, VERSIONS).rglob("month=*"))
    assert (reserved_count(catalog), version_count(catalog)) == (0, 0)


@pytest.mark.first_case
@pytest.mark.parametrize("point", SETTLING)
def test_settling_that_is_killed_is_done_again(
    corrected: Load, catalog: Catalog, catalog_url: str, table: Table, point: Point
) -> None:
    corrected.publish()
    kill_at(stopped_loads.vacuum, point, catalog_url, "", "")
    assert read(catalog) == AFTER
    for operation in catalog.operations.list(TABLE):
        cancel(catalog, operation.id)
    settle(catalog)
    assert (read(catalog), listed(table)) == (AFTER, FOLDERS_AFTER)
    assert version_count(catalog) == 0


def test_a_deletion_of_versions_that_is_killed_is_done_again(
    corrected: Load, catalog: Catalog, catalog_url: str, table: Table
) -> None:
    corrected.publish()
    catalog.vacuum(TABLE, grace=NOW)
    kill_at(stopped_loads.vacuum, Point.FILES_DELETED, catalog_url, "", "")
    settle(catalog)
    assert (read(catalog), listed(table), version_count(catalog)) == (AFTER, FOLDERS_AFTER, 0)


def test_a_purge_deletes_a_version_and_the_former_files(
    corrected: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The files of this test do not have the names that Spark gives them.
    monkeypatch.setattr("catalog.tables.own_files.is_own_file", lambda *_: True)
    corrected.publish()
    purge = catalog.purge_partitions(TABLE, "origin = 'JFK'")
    assert (purge.dropped, purge.purged, purge.kept) == (1, 1, "")
    assert not [path for path in files_below(table) if "JFK" in path]
    assert version_count(catalog) == 0
    catalog.add_partitions(TABLE, [NewPartition(["JFK", "1"])])


def test_the_files_of_a_partition_that_is_dropped_settle_before_its_folder_is_used_again(
    corrected: Load, catalog: Catalog, table: Table, tmp_path: Path
) -> None:
    corrected.publish()
    assert catalog.drop_partitions(TABLE, "origin = 'JFK'") == 1
    with pytest.raises(ConflictError, match=r"folder of partition origin=JFK/month=1 of demo\.t still has files"):
        catalog.add_partitions(TABLE, [NewPartition(["JFK", "1"])])
    with pytest.raises(LocationInUseError, match=r"the files of partition origin=JFK/month=1 there were replaced"):
        catalog.add_partitions(TABLE, [NewPartition(["else", "1"], f"{table.location}/{DAY}")])
    settle(catalog)
    assert listed(table)[DAY] == ["corrected 1"]
    catalog.add_partitions(TABLE, [NewPartition(["JFK", "1"], row_count=11)])
    assert read(catalog) == AFTER


@pytest.mark.parametrize("mode", LoadMode)
def test_a_partition_that_was_replaced_and_dropped_is_loaded_again(
    corrected: Load, catalog: Catalog, table: Table, landing: Path, mode: LoadMode
) -> None:
    corrected.publish()
    catalog.drop_partitions(TABLE, "origin = 'JFK'")
    again = replacement(catalog, table, landing, "again", {("JFK", "1"): 12})
    again.mode = mode
    again.publish()
    assert read(catalog)["JFK", "1"] == (12, ["again 1"])
    settle(catalog)
    assert (read(catalog)["JFK", "1"], listed(table)[DAY]) == ((12, ["again 1"]), ["again 1"])
    assert version_count(catalog) == 0


def removal(catalog: Catalog, name: str, expression: str) -> int:
    """Remove partitions with their rows."""
    table = catalog.get_table(TABLE)
    partitions = list(catalog.get_partitions(TABLE, expression))
    catalog.operations.begin(name, OperationKind.CHANGE_ROWS, TABLE, is_exclusive=True)
    return catalog.loading.remove(name, "remove", table, partitions)


def test_removed_partitions_leave_their_folders_after_the_grace_period(
    corrected: Load, catalog: Catalog, table: Table, landing: Path
) -> None:
    corrected.publish()
    assert removal(catalog, "removal", "month = 1") == 3
    assert removal(catalog, "removal", "month = 1") == 3, "the same call returns the same number"
    assert read(catalog).keys() == {("a/b", None)}
    assert listed(table) == {**FOLDERS_AFTER, DAY: ["run-1 1"]}
    replacement(catalog, table, landing, "again", {("JFK", "1"): 12}).publish()
    settle(catalog)
    assert listed(table) == {
        DAY: ["again 1"],
        "origin=a%2Fb/month=__HIVE_DEFAULT_PARTITION__": ["run-1 1"],
    }
    assert version_count(catalog) == 0
    assert_every_partition_has_its_item(catalog, TABLE)


def test_a_version_that_has_lost_files_is_not_settled(corrected: Load, catalog: Catalog, table: Table) -> None:
    corrected.publish()
    [lost] = Path(catalog.get_partition(TABLE, ("JFK", "1")).location).iterdir()
    kept = lost.rename(lost.with_name("_kept"))
    [problem] = catalog.vacuum(TABLE, grace=NOW).problems
    assert "has 0 file(s), but its partition has 1; restore them" in problem
    assert listed(table)[DAY] == ["run-1 1"]
    kept.rename(lost)
    settle(catalog)
    assert listed(table) == FOLDERS_AFTER


def test_a_file_that_another_program_adds_to_the_folder_after_the_change_stays(
    corrected: Load, catalog: Catalog, table: Table
) -> None:
    corrected.publish()
    late = Path(table.location, DAY, "late.parquet")
    late.write_text("late")
    os.utime(late, (time.time() + 2, time.time() + 2))
    [problem] = catalog.vacuum(TABLE, grace=NOW).problems
    assert "has 1 file(s) that Calve did not write, such as late.parquet; move them elsewhere" in problem
    assert sorted(listed(table)[DAY]) == ["late", "run-1 1"]
    assert read(catalog) == AFTER
    late.unlink()
    settle(catalog)
    assert listed(table) == FOLDERS_AFTER


def add_foreign_file(folder: str | Path) -> Path:
    """Put a file into a folder that is older than its arrival, as `mv` and `cp -p` do."""
    foreign = Path(folder, "foreign.parquet")
    foreign.write_text("foreign")
    os.utime(foreign, (0, 0))
    return foreign


def test_an_older_file_that_another_program_moves_to_the_folder_after_the_change_stays(
    corrected: Load, catalog: Catalog, table: Table
) -> None:
    corrected.publish()
    foreign = add_foreign_file(Path(table.location, DAY))
    [problem] = catalog.vacuum(TABLE, grace=NOW).problems
    assert "has 1 file(s) that Calve did not write, such as foreign.parquet; move them elsewhere" in problem
    assert sorted(listed(table)[DAY]) == ["foreign", "run-1 1"]
    foreign.unlink()
    settle(catalog)
    assert listed(table) == FOLDERS_AFTER


def test_a_file_that_arrives_while_a_replacement_runs_stays(corrected: Load, catalog: Catalog, table: Table) -> None:
    arrived = Path(table.location, DAY, "arrived.parquet")
    arrived.write_text("arrived")
    os.utime(arrived, (time.time() + 2, time.time() + 2))
    corrected.publish()
    [problem] = catalog.vacuum(TABLE, grace=NOW).problems
    assert "such as arrived.parquet" in problem
    assert arrived.exists()


def read_files(catalog: Catalog, table: Table, load: Load) -> None:
    """Let a staged load have read the rows of the partitions that it replaces, as a merge does."""
    keep_files_read(table, load.staging, list_files(table, list(catalog.get_partitions(TABLE, "origin = 'JFK'"))))


@pytest.mark.parametrize("change", ["add", "resize", "delete"])
def test_a_folder_that_changes_after_its_rows_were_read_is_a_conflict(
    corrected: Load, catalog: Catalog, table: Table, change: str
) -> None:
    read_files(catalog, table, corrected)
    [known] = Path(table.location, DAY).iterdir()
    if change == "add":
        known = add_foreign_file(known.parent)
    elif change == "resize":
        known.write_text("other rows")
    else:
        known.rename(table.location + "/_elsewhere")
    with pytest.raises(ConflictError, match=f"another program changed the folder .*{DAY} while its rows were"):
        corrected.publish()
    assert set(read(catalog)) == BEFORE.keys()
    assert version_count(catalog) == 0


def test_a_folder_that_stays_as_it_was_read_is_replaced(corrected: Load, catalog: Catalog, table: Table) -> None:
    read_files(catalog, table, corrected)
    corrected.publish()
    settle(catalog)
    assert (read(catalog), listed(table)) == (AFTER, FOLDERS_AFTER)


def test_a_file_that_arrives_in_the_folder_of_a_version_is_kept_and_named(
    corrected: Load, catalog: Catalog, table: Table
) -> None:
    corrected.publish()
    version = Path(catalog.get_partition(TABLE, ("JFK", "1")).location)
    catalog.vacuum(TABLE, grace=NOW)
    late = version / "late.parquet"
    late.write_text("late")
    os.utime(late, (time.time() + 2, time.time() + 2))
    [problem] = catalog.vacuum(TABLE, grace=NOW).problems
    assert f"{version} has 1 file(s) that Calve did not write, such as late.parquet" in problem
    late.unlink()
    settle(catalog)
    assert not version.exists()


def test_a_partition_is_renamed_after_its_files_are_in_its_own_folder(
    corrected: Load, catalog: Catalog, table: Table
) -> None:
    corrected.publish()
    with pytest.raises(ConflictError, match=r"origin=JFK/month=1 of demo\.t were replaced, .*; rename it after `calve"):
        catalog.alter_partition(TABLE, ("JFK", "1"), rename_to=("JFK", "2"))
    settle(catalog)
    catalog.alter_partition(TABLE, ("JFK", "1"), rename_to=("JFK", "2"))
    assert read(catalog)["JFK", "2"] == (11, ["corrected 1"])
    assert catalog.get_partition(TABLE, ("JFK", "2")).location == f"{table.location}/{DAY}"


def test_a_partition_that_gets_another_location_leaves_its_version_to_its_folder(
    corrected: Load, catalog: Catalog, table: Table, landing: Path, tmp_path: Path
) -> None:
    corrected.publish()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "other.parquet").write_text("other")
    catalog.alter_partition(TABLE, ("JFK", "1"), location=str(elsewhere))
    replacement(catalog, table, landing, "again", {("JFK", "1"): 12}).publish()
    settle(catalog)
    assert read(catalog)["JFK", "1"] == (12, ["again 1"])
    assert catalog.get_partition(TABLE, ("JFK", "1")).location == str(elsewhere)
    assert listed(table)[DAY] == ["corrected 1"]


def test_a_partition_with_its_own_folder_keeps_it(
    load: Load, catalog: Catalog, table: Table, landing: Path, tmp_path: Path
) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    for folder in (own, shared):
        folder.mkdir()
        (folder / "old.parquet").write_text("old")
    catalog.add_partitions(
        TABLE,
        [
            NewPartition(["JFK", "1"], str(own)),
            NewPartition(["LGA", "1"], str(shared)),
            NewPartition(["LGA", "2"], str(shared)),
        ],
    )
    replacement(catalog, table, landing, "corrected", {("JFK", "1"): 1, ("LGA", "1"): 2}).publish()
    settle(catalog)
    assert read(catalog) == {
        ("JFK", "1"): (1, ["corrected 1"]),
        ("LGA", "1"): (2, ["corrected 1"]),
        ("LGA", "2"): (None, ["old"]),
    }
    assert catalog.get_partition(TABLE, ("JFK", "1")).location == str(own)
    assert catalog.get_partition(TABLE, ("LGA", "1")).location == f"{table.location}/origin=LGA/month=1"


def test_a_repair_takes_a_replaced_partition_for_known(corrected: Load, catalog: Catalog, table: Table) -> None:
    corrected.publish()
    report = catalog.repair_table(TABLE, mode=RepairMode.SYNC)
    assert (report.added, report.dropped, report.unfit) == (0, 0, ())
    assert read(catalog) == AFTER


def test_a_table_is_not_dropped_without_its_files_while_former_ones_are_in_its_folders(
    corrected: Load, catalog: Catalog, table: Table
) -> None:
    corrected.publish()
    with pytest.raises(UnsupportedChangeError, match=r"table demo\.t has 1 partition\(s\) whose folders still have"):
        catalog.drop_table(TABLE)
    settle(catalog)
    catalog.drop_table(TABLE)
    assert listed(table) == FOLDERS_AFTER


def test_a_quarantined_partition_is_replaced_and_stays_hidden(
    load: Load, catalog: Catalog, table: Table, landing: Path
) -> None:
    load.discover()
    load.stage({("JFK", "1"): 10})
    load.publish(is_quarantined=True)
    replacement(catalog, table, landing, "corrected", {("JFK", "1"): 11}).publish()
    assert read(catalog) == {}
    catalog.release_partitions(TABLE)
    assert read(catalog) == {("JFK", "1"): (11, ["corrected 1"])}


def test_a_partition_that_is_dropped_while_its_files_move_refuses_the_replacement(
    corrected: Load, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interfere(current: Point) -> None:
        if current is Point.MOVED:
            catalog.drop_partitions(TABLE, "origin = 'JFK'")

    monkeypatch.setattr("catalog.loading.loading.reached", interfere)
    with pytest.raises(ConflictError, match="was dropped or renamed while its files were replaced"):
        corrected.publish()
    assert read(catalog).keys() == {("LGA", "1"), ("a/b", None)}
