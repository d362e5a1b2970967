"""Publication of loads: no waits while files are moved, and safety against kills and stops; on each database."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import func, select, update

from catalog import Catalog, NewPartition, Table
from catalog.errors import (
    ConflictError,
    FencedError,
    InvalidPartitionError,
    LocationNotAllowedError,
    LocationNotEmptyError,
    OperationConflictError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    StorageError,
    VerificationFailedError,
)
from catalog.files.filesystem import Folder
from catalog.loading import publishing
from catalog.model import RepairMode
from catalog.operations.failpoints import DIE_AT, STOP_AT, Point
from catalog.operations.records import OperationState
from catalog.operations.staging import STAGING
from catalog.storage.schema import OperationRow, StagedPartitionRow
from tests.catalog.loading.test_loading import ROWS, TABLE, Load, assert_loaded, files_below, folders_of
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table
from tests.catalog.operations.test_stopped_processes import end, wait_until_stopped
from tests.support import stopped_loads
from tests.support.effort import effort
from tests.support.index_items import assert_every_partition_has_its_item
from tests.support.processes import context
from tests.support.stopped_loads import FENCED, REFUSED

NOW = timedelta(0)
OTHER: dict[tuple[str | None, ...], int] = {("JFK", "1"): 11, ("JFK", "2"): 12}
BEFORE_COMMIT = (Point.PARTLY_RESERVED, Point.RESERVED, Point.PARTLY_MOVED, Point.MOVED)
WITHDRAWING = (Point.WITHDRAWN, Point.STAGED_DATA_DELETED, Point.MOVES_UNDONE)


@pytest.fixture
def staged(load: Load, monkeypatch: pytest.MonkeyPatch) -> Load:
    """A load that has staged its files; its partitions are reserved in two batches."""
    monkeypatch.setattr(publishing, "_BATCH", 2)
    load.discover()
    load.stage()
    return load


def start(work: Callable[..., None], *arguments: str) -> BaseProcess:
    process = context.Process(target=work, args=arguments)
    process.start()
    return process


def kill_at(work: Callable[..., None], point: Point, *arguments: str) -> None:
    """Kill a process at a point."""
    process = start(work, *arguments, DIE_AT, point)
    process.join(300)
    assert process.exitcode == -signal.SIGKILL, point


def stop_at(work: Callable[..., None], point: Point, *arguments: str) -> BaseProcess:
    """Start a process, and wait until it has stopped itself at a point."""
    process = start(work, *arguments, STOP_AT, point)
    wait_until_stopped(process)
    return process


def cancel(catalog: Catalog, *operation_ids: str) -> None:
    for operation_id in operation_ids:
        if catalog.operations.find(operation_id):
            catalog.operations.fail(operation_id, "TEST", "cancelled by the test")


def reserved_count(catalog: Catalog) -> int:
    with catalog.storage.read() as connection:
        return connection.scalar(select(func.count()).select_from(StagedPartitionRow)) or 0


def assert_nothing_is_left(catalog: Catalog, table: Table) -> None:
    """Check that there are no partitions, no files, no folders that a repair would add, and no reservations."""
    assert list(catalog.get_partitions(TABLE)) == []
    assert files_below(table) == {}
    assert reserved_count(catalog) == 0
    assert catalog.repair_table(TABLE).added == 0


def assert_done(load: Load, rows: dict[tuple[str | None, ...], int], *texts: str) -> None:
    assert load.state is OperationState.CLEANED
    assert_loaded(load.catalog, load.table, rows, *texts)
    assert reserved_count(load.catalog) == 0


# --- no waits -------------------------------------------------------------------------------------------------------


def test_nobody_waits_while_files_move(
    staged: Load, catalog: Catalog, catalog_url: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("demo.other", columns=[("x", "int")], partition_keys=[("n", "int")])
    catalog.add_partitions(TABLE, [NewPartition(["before", "1"])])
    publisher = stop_at(stopped_loads.publish, Point.PARTLY_MOVED, catalog_url, staged.name, staged.staging)
    try:
        catalog.add_partitions("demo.other", [NewPartition(["1"])])
        catalog.add_partitions(TABLE, [NewPartition(["JFK", "2"])])
        assert catalog.drop_partitions(TABLE, "origin = 'before'") == 1
        catalog.alter_partition(TABLE, ("JFK", "2"), rename_to=("JFK", "3"))
        catalog.create_partition_index(TABLE, "by_origin", ["origin"])
        catalog.build_partition_index(TABLE, "by_origin")
        assert [partition.values for partition in catalog.get_partitions(TABLE)] == [("JFK", "3")]
        with pytest.raises(PartitionNotFoundError):
            catalog.get_partition(TABLE, ("JFK", "1"))
        before = files_below(table)
        assert len(folders_of(before)) == 3
        for refused in (
            lambda: catalog.add_partitions(TABLE, [NewPartition(["JFK", "01"])], if_not_exists=True),
            lambda: catalog.alter_partition(TABLE, ("JFK", "3"), rename_to=("LGA", "1")),
            lambda: catalog.repair_table(TABLE),
        ):
            with pytest.raises(OperationConflictError, match="run-1"):
                refused()
        for kept in (lambda: catalog.drop_table(TABLE), lambda: catalog.alter_table(TABLE, rename_to="renamed")):
            with pytest.raises(ConflictError, match="run-1"):
                kept()
        assert catalog.vacuum(grace=NOW).tables == ()
        assert files_below(table) == before
    finally:
        end(publisher, is_killed=False)
    assert publisher.exitcode == 0
    assert reserved_count(catalog) == 0
    assert catalog.drop_partitions(TABLE, "month = 3") == 1
    assert_done(staged, ROWS)


def test_a_long_publish_is_not_taken_for_an_abandoned_one(
    staged: Load, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(point: Point) -> None:
        operation = update(OperationRow).where(OperationRow.id == staged.name)
        with catalog.storage.write() as connection:
            if point is Point.RESERVED:
                connection.execute(operation.values(heartbeat_at_ms=1))
        if point is Point.MOVED:
            with pytest.raises(OperationConflictError, match="run-1"):
                catalog.repair_table(TABLE)

    monkeypatch.setattr(publishing, "_BEAT_SECONDS", 0.0)
    monkeypatch.setattr(
        "catalog.loading.loading.reached", lambda point: look(point) if point in BEFORE_COMMIT else None
    )
    publish_again(staged)


# --- killed ---------------------------------------------------------------------------------------------------------


def publish_again(load: Load) -> None:
    report = load.publish()
    assert (report["partitions"], report["row_count"], report["file_count"]) == (3, 60, 3)
    assert_done(load, ROWS, "run-1 1")


def load_others(load: Load) -> None:
    cancel(load.catalog, load.name)
    later = Load(load.catalog, load.table, load.landing, "run-2")
    later.run(OTHER)
    assert_done(later, OTHER, "run-2 1")


def stage_again(load: Load) -> None:
    load.stage(OTHER)
    load.publish()
    assert_done(load, OTHER, "run-1 2")


def repair(load: Load) -> None:
    cancel(load.catalog, load.name)
    report = load.catalog.repair_table(TABLE, mode=RepairMode.SYNC)
    assert (report.added, report.dropped) == (0, 0)
    assert_nothing_is_left(load.catalog, load.table)


def vacuum(load: Load) -> None:
    cancel(load.catalog, load.name)
    assert load.catalog.vacuum(grace=NOW).total.staging_folders == 1
    assert_nothing_is_left(load.catalog, load.table)
    load.catalog.add_partitions(TABLE, [NewPartition(values) for values in ROWS])


NEXT = (publish_again, load_others, stage_again, repair, vacuum)
KILLS = (*BEFORE_COMMIT, Point.CHANGED)


@pytest.mark.parametrize(("point", "go_on"), effort(list(zip(KILLS, NEXT, strict=True)), list(product(KILLS, NEXT))))
def test_a_publish_that_is_killed_is_done_again_or_undone(
    staged: Load, catalog_url: str, point: Point, go_on: Callable[[Load], None]
) -> None:
    kill_at(stopped_loads.publish, point, catalog_url, staged.name, staged.staging)
    assert list(staged.catalog.get_partitions(TABLE)) == []
    go_on(staged)


def test_a_publish_that_is_killed_again_and_again_ends_as_an_undisturbed_one(
    staged: Load, catalog: Catalog, catalog_url: str
) -> None:
    for point in (*BEFORE_COMMIT, Point.CHANGED, Point.COMMITTED):
        kill_at(stopped_loads.publish, point, catalog_url, staged.name, staged.staging)
    assert staged.state is OperationState.COMMITTED
    assert_every_partition_has_its_item(catalog, TABLE)
    publish_again(staged)


@pytest.mark.first_case
@pytest.mark.parametrize("work", [stopped_loads.repair, stopped_loads.vacuum])
def test_a_withdrawal_that_is_killed_again_and_again_is_finished(
    staged: Load, catalog: Catalog, catalog_url: str, work: Callable[..., None]
) -> None:
    kill_at(stopped_loads.publish, Point.PARTLY_MOVED, catalog_url, staged.name, staged.staging)
    cancel(catalog, staged.name)
    for point in WITHDRAWING:
        kill_at(work, point, catalog_url, TABLE, "repair")
        cancel(catalog, "repair")
        with pytest.raises((FencedError, VerificationFailedError), match="Run the load again"):
            staged.publish()
        cancel(catalog, staged.name)
    catalog.vacuum(grace=NOW)
    assert_nothing_is_left(catalog, staged.table)


def test_what_a_dropped_table_has_staged_does_not_stop_loads_of_one_with_other_keys(
    staged: Load, catalog: Catalog
) -> None:
    cancel(catalog, staged.name)
    catalog.drop_table(TABLE)
    table = catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("origin", "string")])
    Load(catalog, table, staged.landing, "run-2").run({("JFK",): 1})
    assert [partition.values for partition in catalog.get_partitions(TABLE)] == [("JFK",)]
    assert reserved_count(catalog) == 0


# --- stopped, and continued late ------------------------------------------------------------------------------------


def drop_and_create(load: Load) -> None:
    """Drop the table, and load into a new one in its folder."""
    catalog = load.catalog
    cancel(catalog, load.name)
    catalog.drop_table(TABLE)
    load.table = catalog.create_table(
        TABLE, columns=[("v", "int")], partition_keys=[("origin", "string"), ("month", "int")]
    )
    later = Load(catalog, load.table, load.landing, "run-2")
    later.run(OTHER)
    assert_done(later, OTHER, "run-2 1")


MEANWHILE = (publish_again, load_others, stage_again, repair, vacuum, drop_and_create)


@pytest.mark.first_case
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("point", effort([Point.PARTLY_MOVED], list(BEFORE_COMMIT)))
def test_a_stopped_publisher_that_continues_late_does_no_harm(
    staged: Load, catalog: Catalog, catalog_url: str, point: Point, meanwhile: Callable[[Load], None]
) -> None:
    publisher = stop_at(stopped_loads.publish, point, catalog_url, staged.name, staged.staging)
    try:
        meanwhile(staged)
        table = catalog.get_table(TABLE)
        partitions = {partition.values for partition in catalog.get_partitions(TABLE)}
        before = files_below(table)
    finally:
        end(publisher, is_killed=False)
    assert publisher.exitcode in (FENCED, REFUSED)
    assert files_below(table) == before
    assert {partition.values for partition in catalog.get_partitions(TABLE)} == partitions
    assert reserved_count(catalog) == 0
    if meanwhile is not vacuum:
        assert catalog.repair_table(TABLE, mode=RepairMode.SYNC).added == 0
    assert files_below(table) == before


@pytest.mark.first_case
@pytest.mark.parametrize("work", [stopped_loads.repair, stopped_loads.vacuum])
@pytest.mark.parametrize("point", WITHDRAWING)
def test_a_stopped_withdrawal_that_continues_late_leaves_the_next_load_alone(
    staged: Load, catalog: Catalog, catalog_url: str, point: Point, work: Callable[..., None]
) -> None:
    kill_at(stopped_loads.publish, Point.PARTLY_MOVED, catalog_url, staged.name, staged.staging)
    cancel(catalog, staged.name)
    withdrawal = stop_at(work, point, catalog_url, TABLE, "repair")
    try:
        cancel(catalog, "repair")
        with pytest.raises((FencedError, VerificationFailedError), match="Run the load again"):
            staged.publish()
        load_others(staged)
    finally:
        end(withdrawal, is_killed=False)
    assert withdrawal.exitcode == (FENCED if work is stopped_loads.repair else 0)
    assert_loaded(catalog, staged.table, OTHER, "run-2 1")


@pytest.mark.parametrize("point", WITHDRAWING)
def test_a_publisher_that_continues_in_the_middle_of_its_withdrawal_leaves_nothing(
    staged: Load, catalog: Catalog, catalog_url: str, point: Point
) -> None:
    publisher = stop_at(stopped_loads.publish, Point.PARTLY_MOVED, catalog_url, staged.name, staged.staging)
    cancel(catalog, staged.name)
    withdrawal = stop_at(stopped_loads.repair, point, catalog_url, TABLE, "repair")
    end(publisher, is_killed=False)
    end(withdrawal, is_killed=False)
    assert (publisher.exitcode, withdrawal.exitcode) == (FENCED, 0)
    assert_nothing_is_left(catalog, staged.table)


def test_an_interrupted_purge_leaves_the_files_that_a_load_has_moved(
    staged: Load, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise InterruptedError

    def vacuum_when_moved(point: Point) -> None:
        if point is Point.MOVED:
            assert catalog.vacuum(grace=NOW).purged == (f"{TABLE} (partitions)",)

    catalog.add_partitions(TABLE, [NewPartition(["JFK", "1"])])
    with monkeypatch.context() as patch:
        patch.setattr("catalog.partitions.purging.finish_partition_purge", die)
        with pytest.raises(InterruptedError):
            catalog.purge_partitions(TABLE)
    # As if Calve had written the files of the test.
    monkeypatch.setattr("catalog.tables.own_files.is_own_file", lambda *_: True)
    monkeypatch.setattr("catalog.loading.loading.reached", vacuum_when_moved)
    publish_again(staged)


# --- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_load_that_is_refused_reserves_and_moves_nothing(staged: Load, catalog: Catalog, is_foreign: bool) -> None:
    before = files_below(staged.table)
    if is_foreign:
        foreign = Path(staged.table.location) / "origin=a%2Fb/month=__HIVE_DEFAULT_PARTITION__/mine"
        foreign.parent.mkdir(parents=True)
        foreign.touch()
    else:
        catalog.add_partitions(TABLE, [NewPartition(["a/b", None], location="/elsewhere")])
    with pytest.raises(LocationNotEmptyError if is_foreign else PartitionAlreadyExistsError):
        staged.publish()
    if is_foreign:
        foreign.unlink()
    assert files_below(staged.table) == before
    assert reserved_count(catalog) == 0
    catalog.add_partitions(TABLE, [NewPartition(["JFK", "1"])])


def test_a_load_takes_no_files_of_a_partition_that_is_dropped_meanwhile(
    staged: Load, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Path(staged.table.location) / "origin=JFK/month=1/old.parquet"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    catalog.add_partitions(TABLE, [NewPartition(["JFK", "1"])])
    look = publishing.registered

    def drop_after_the_look(*arguments: Any) -> set[bytes]:
        there = look(*arguments)
        dropping.append(there)
        return there

    in_parallel, dropping = publishing.in_parallel, list[set[bytes]]()

    def drop_first(*arguments: Any) -> Any:
        if any(dropping):
            dropping.clear()
            assert catalog.drop_partitions(TABLE, "origin = 'JFK'") == 1
        return in_parallel(*arguments)

    monkeypatch.setattr(publishing, "registered", drop_after_the_look)
    monkeypatch.setattr(publishing, "in_parallel", drop_first)
    with pytest.raises(ConflictError, match="was dropped while a load was being published"):
        staged.publish()
    assert list(catalog.get_partitions(TABLE)) == []
    assert reserved_count(catalog) == 0
    assert old.read_text() == "old"


def test_one_partition_in_two_spellings_is_refused(
    load: Load, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.discover()
    load.stage({("JFK", "1"): 1, ("LGA", "2"): 1, ("JFK", "01"): 1})
    for size in (2, 5_000):
        monkeypatch.setattr(publishing, "_BATCH", size)
        with pytest.raises(InvalidPartitionError, match="two ways, JFK/1 and JFK/01"):
            load.publish()
        assert reserved_count(catalog) == 0
    assert list(catalog.get_partitions(TABLE)) == []


def test_a_move_that_fails_is_continued_by_the_next_try(
    staged: Load, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = Folder._move_file

    def fail(folder: Folder, source: str, target: Folder, name: str) -> None:
        if "LGA" in source:
            raise PermissionError(13, "Permission denied", source)
        move(folder, source, target, name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "_move_file", fail)
        with pytest.raises(StorageError, match="Permission denied"):
            staged.publish()
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "read_staged", Mock(side_effect=StorageError("the disk is slow")))
        with pytest.raises(StorageError, match="the disk is slow"):
            staged.publish()
    with pytest.raises(OperationConflictError, match="run-1"):
        catalog.add_partitions(TABLE, [NewPartition(["JFK", "1"])])
    publish_again(staged)


def test_what_another_attempt_stages_is_not_published(staged: Load, catalog: Catalog) -> None:
    catalog.operations.start_job(staged.name, "write")
    before = files_below(staged.table)
    with pytest.raises(FencedError, match="another attempt stages"):
        staged.publish()
    assert files_below(staged.table) == before
    assert reserved_count(catalog) == 0


def test_partitions_are_freed_when_their_staging_folder_is_gone(
    staged: Load, catalog: Catalog, catalog_url: str
) -> None:
    for free in (lambda: catalog.vacuum(grace=NOW), lambda: catalog.repair_table(TABLE)):
        kill_at(stopped_loads.publish, Point.RESERVED, catalog_url, staged.name, staged.staging)
        cancel(catalog, staged.name)
        shutil.rmtree(staged.folder / STAGING)
        assert reserved_count(catalog) == 3
        free()
        assert_nothing_is_left(catalog, staged.table)
        staged.discover()
        staged.stage()


@pytest.mark.parametrize("linked", ["origin=LGA", "origin=LGA/month=1"])
def test_no_files_are_written_behind_a_link_that_leads_out_of_the_allowed_folders(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: str
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", f"{tmp_path}/warehouse,{tmp_path}/landing")
    outside = tmp_path / "outside"
    outside.mkdir()
    (load.folder / linked).parent.mkdir(parents=True, exist_ok=True)
    (load.folder / linked).symlink_to(outside)
    with pytest.raises(LocationNotAllowedError, match="month=1 is behind a symbolic link"):
        load.run()
    assert list(outside.rglob("*")) == []
    assert list(load.catalog.get_partitions(TABLE)) == []
