"""Loads that are interrupted, cancelled, continued, or removed by vacuum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, Table
from catalog.errors import VerificationFailedError
from catalog.files.filesystem import Folder
from catalog.loading import publishing
from catalog.model.partition_names import partition_path
from catalog.operations.records import OperationState
from catalog.operations.staging import STAGED_DATA, STAGING
from tests.catalog.loading.test_loading import MIXED, ROWS, TABLE, Load, assert_loaded, files_below, folders_of
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table

# --- interrupted ----------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Simulates the end of the process."""


def kill_before_commit(
    monkeypatch: pytest.MonkeyPatch, load: Load, *, moved: int | None = None, skip: bool = False
) -> None:
    """Publish until all folders, or a number of them, are moved and nothing is committed."""

    def in_turn(function: Callable[[Any], None], items: Iterable[Any]) -> Iterator[None]:
        if function.__name__ != "_move":
            yield from map(function, items)
            return
        yield from map(function, list(items)[:moved])
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "in_parallel", in_turn)
        with pytest.raises(Killed):
            load.publish(skip=skip)


def kill_after_commit(monkeypatch: pytest.MonkeyPatch, load: Load) -> None:
    """Publish until the commit, and keep the staging folder."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "delete", die)
        with pytest.raises(Killed):
            load.publish()


@pytest.mark.parametrize("moved", range(4))
def test_files_that_moved_without_a_commit_are_no_visible_partitions(
    load: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    load.discover()
    load.stage()
    kill_before_commit(monkeypatch, load, moved=moved)
    assert sum(not path.startswith(STAGING) for path in files_below(table)) == moved
    assert list(catalog.get_partitions(TABLE)) == []
    assert load.state is OperationState.RUNNING

    report = load.publish()
    assert (report["partitions"], report["row_count"]) == (3, 60)
    assert_loaded(catalog, table, ROWS, "run-1 1")


@pytest.mark.parametrize(("moved", "is_same_run"), [(1, True), (3, True), (2, False), (3, False)])
def test_a_load_that_was_cancelled_is_undone_by_the_next(
    load: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch, moved: int, is_same_run: bool
) -> None:
    first = Load(catalog, table, load.landing, "run-0")
    (load.landing / "00.csv").write_text("earlier")
    earlier: dict[tuple[str | None, ...], int] = {("EWR", "1"): 5}
    first.run(earlier)
    (load.landing / "03.csv").write_text("later")

    load.discover()
    load.stage()
    kill_before_commit(monkeypatch, load, moved=moved)
    if not is_same_run:
        catalog.operations.fail("run-1", "CANCELLED", "by hand")
        load = Load(catalog, table, load.landing, "run-2")
        load.discover()
    other: dict[tuple[str | None, ...], int] = {("JFK", "1"): 11, ("JFK", "2"): 12}
    load.stage(other)
    load.publish()
    assert_loaded(catalog, table, {**earlier, **other}, "run-0 1", "run-1 2" if is_same_run else "run-2 1")


def test_undoing_is_repeated_when_it_was_interrupted(
    load: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.discover()
    load.stage()
    kill_before_commit(monkeypatch, load, moved=1)
    foreign = Path(table.location) / "origin=LGA/month=1/mine.parquet"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    delete = Folder.delete

    def die_halfway(folder: Folder, name: str) -> None:
        if name.endswith(STAGED_DATA):
            delete(folder, f"{name}/origin=LGA")
            raise Killed
        delete(folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "delete", die_halfway)
        with pytest.raises(Killed):
            load.stage({})
    load.stage({})
    assert files_below(table) == {"origin=LGA/month=1/mine.parquet": "mine"}


def test_refused_partitions_of_a_load_that_was_cancelled_do_not_stay(
    load: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.discover()
    load.stage(MIXED)
    kill_before_commit(monkeypatch, load, skip=True)
    load.stage(MIXED)
    staged = f"{load.staging}/{STAGED_DATA}"
    assert set(folders_of(files_below(table))) == {
        f"{staged}/{partition_path(table.key_names, values)}" for values in MIXED
    }
    report = load.publish(skip=True)
    assert (report["partitions"], report["refused"]) == (1, 2)


def test_a_load_killed_after_its_commit_is_only_cleaned_up(
    load: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.discover()
    load.stage()
    kill_after_commit(monkeypatch, load)
    assert load.state is OperationState.COMMITTED
    assert load.publish()["partitions"] == 3
    assert load.state is OperationState.CLEANED
    assert_loaded(catalog, table, ROWS)


def test_the_next_load_leaves_the_files_of_a_committed_one_where_they_are(
    load: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.discover()
    load.stage()
    kill_after_commit(monkeypatch, load)
    catalog.drop_partitions(TABLE, "origin = 'JFK'")
    (load.landing / "03.csv").write_text("new")
    later = Load(catalog, table, load.landing, "run-2")
    assert later.discover() == ["03.csv"]
    later.stage({("EWR", "3"): 1})
    later.publish()
    files = files_below(table)
    assert len(files) == 4
    assert "origin=JFK/month=1" in folders_of(files), "dropping a partition does not touch its files"


# --- vacuum ---------------------------------------------------------------------------------------------------------

NOW = timedelta(0)
"""A grace period that protects no files."""


def test_vacuum_undoes_a_load_that_was_cancelled_after_its_grace_period(
    load: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.discover()
    load.stage()
    kill_before_commit(monkeypatch, load)
    before = files_below(table)
    assert set(folders_of(before)) == {partition_path(table.key_names, values) for values in ROWS}
    for grace, state in ((NOW, OperationState.RUNNING), (timedelta(hours=1), OperationState.FAILED)):
        if state is OperationState.FAILED:
            catalog.operations.fail("run-1", "TEST", "cancelled by the test")
        assert catalog.vacuum(grace=grace).tables == ()
        assert files_below(table) == before
    would = catalog.vacuum(grace=NOW, dry_run=True)
    assert files_below(table) == before
    assert catalog.vacuum(grace=NOW).tables == would.tables
    assert would.total.staging_folders == 1
    assert files_below(table) == {}
    load.discover()
    load.stage()
    load.publish()
    assert_loaded(catalog, table, ROWS)


def test_vacuum_clears_up_after_a_load_that_was_killed_after_its_commit(
    load: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.discover()
    load.stage()
    kill_after_commit(monkeypatch, load)
    assert catalog.vacuum(TABLE, grace=NOW).operations_cleaned == 1
    assert load.state is OperationState.CLEANED
    assert not (Path(table.location) / STAGING).exists()
    assert_loaded(catalog, table, ROWS)


def test_what_vacuum_has_begun_to_discard_is_not_published(
    load: Load, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.discover()
    load.stage()
    catalog.operations.fail("run-1", "TEST", "cancelled by the test")
    delete = Folder.delete

    def die(folder: Folder, name: str) -> None:
        if name == load.staging:
            delete(folder, f"{name}/{STAGED_DATA}/origin=LGA")
            raise Killed
        delete(folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "delete", die)
        with pytest.raises(Killed):
            catalog.vacuum(grace=NOW)
    with pytest.raises(VerificationFailedError, match="Run the load again"):
        load.publish()
    catalog.operations.fail("run-1", "TEST", "cancelled by the test")
    catalog.vacuum(grace=NOW)
    assert files_below(table) == {}
    assert list(catalog.get_partitions(TABLE)) == []
