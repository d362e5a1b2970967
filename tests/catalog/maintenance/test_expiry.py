"""Expiry of the journal, and cleanup of failed index builds; on each database."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, text, update

from catalog import Catalog, IndexState, NewPartition, Table
from catalog.errors import FencedError, InvalidRequestError
from catalog.indexes import building
from catalog.maintenance import expiry
from catalog.operations.approvals import VALID_MS
from catalog.operations.records import ABANDONED, LEASE_MS, OperationKind, OperationState
from catalog.operations.staging import STAGING
from catalog.storage.schema import ApprovalRow, JobRow
from tests.support.index_items import stored_items
from tests.support.written_files import Load, data_files, hashed_table, known, on_disk, own_name, write_file

NOW = timedelta(0)
OLD = timedelta(days=100)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return hashed_table(catalog)


def grow_old(catalog: Catalog, age: timedelta = OLD, *, names: str = "%") -> None:
    """Age the heartbeats of operations."""
    milliseconds = age // timedelta(milliseconds=1)
    with catalog.storage.write() as connection:
        statement = "UPDATE calve_operation SET heartbeat_at_ms = heartbeat_at_ms - :age WHERE id LIKE :names"
        connection.execute(text(statement), {"age": milliseconds, "names": names})


def ids(catalog: Catalog) -> set[str]:
    return {operation.id for operation in catalog.operations.list(limit=10_000)}


# --- abandoned operations -------------------------------------------------------------------------------------------


def test_operations_that_nobody_works_on_have_failed_and_can_be_taken_up_again(catalog: Catalog, table: Table) -> None:
    load = Load(catalog, table, "load").begin().write()
    catalog.operations.heartbeat("load", "load", 1)
    catalog.operations.begin("planned", OperationKind.VERIFY_INDEX, "demo.other")
    report = catalog.maintenance.expire_operations()
    assert report.abandoned == ()
    grow_old(catalog, timedelta(milliseconds=LEASE_MS))
    assert catalog.maintenance.expire_operations(dry_run=True).abandoned == ("load", "planned")
    assert catalog.operations.get("load").state is OperationState.RUNNING
    assert catalog.maintenance.expire_operations().abandoned == ("load", "planned")
    failed = catalog.operations.get("load")
    assert (failed.state, failed.failure_code) == (OperationState.FAILED, ABANDONED)
    assert failed.failure_detail == "no heartbeat for 15 minutes"
    with pytest.raises(FencedError):
        load.commit()
    load.start().write().commit()
    assert len(known(catalog, table)) == 2


def test_an_attempt_that_never_gives_a_sign_of_life_has_a_day(catalog: Catalog, table: Table) -> None:
    load = Load(catalog, table, "load").begin().write()
    grow_old(catalog, timedelta(hours=23))
    assert catalog.maintenance.expire_operations().abandoned == ()
    load.commit()
    Load(catalog, table, "dead").begin()
    grow_old(catalog, timedelta(hours=24), names="dead")
    assert catalog.maintenance.expire_operations().abandoned == ("dead",)


def test_an_operation_with_a_sign_of_life_goes_on(catalog: Catalog, table: Table) -> None:
    Load(catalog, table, "load").begin()
    grow_old(catalog)
    catalog.operations.heartbeat("load", "load", 1)
    assert catalog.maintenance.expire_operations().abandoned == ()


# --- operations that ended long ago ---------------------------------------------------------------------------------


def test_ended_operations_are_forgotten_with_their_jobs_but_the_latest(catalog: Catalog) -> None:
    for number in range(5):
        catalog.operations.begin(f"op-{number}", OperationKind.VERIFY_INDEX, "demo.t")
        attempt = catalog.operations.start_job(f"op-{number}", "verify")
        if number % 2:
            catalog.operations.finish_job(f"op-{number}", "verify", attempt, {})
        catalog.operations.fail(f"op-{number}", "TEST", "ended by the test")
    assert catalog.maintenance.expire_operations().removed == 0
    grow_old(catalog)
    assert catalog.maintenance.expire_operations(older_than=OLD + timedelta(days=1)).removed == 0
    would = catalog.maintenance.expire_operations(dry_run=True)
    assert (would.removed, len(ids(catalog))) == (5, 5)
    assert catalog.maintenance.expire_operations().removed == 5
    assert ids(catalog) == set()
    with catalog.storage.read() as connection:
        assert connection.scalar(select(func.count()).select_from(JobRow)) == 0
    catalog.operations.begin("next", OperationKind.VERIFY_INDEX, "demo.t")
    assert catalog.operations.get("next").number == 6


def test_unfinished_operations_stay(catalog: Catalog) -> None:
    for name in ("at work", "latest"):
        catalog.operations.begin(name, OperationKind.VERIFY_INDEX, "demo.t")
    grow_old(catalog)
    for name in ("at work", "latest"):
        catalog.operations.start_job(name, "verify")
    assert catalog.maintenance.expire_operations(older_than=NOW).as_json() == {
        "dry_run": False,
        "abandoned": [],
        "removed": 0,
        "kept": 0,
        "quality_checks": 0,
        "quality_pages": 0,
        "problems": [],
    }


def test_operations_stay_as_long_as_their_files(catalog: Catalog, table: Table) -> None:
    Load(catalog, table, "replaced").run()
    Load(catalog, table, "failed").begin().write().fail()
    Load(catalog, table, "alive").run(retired=data_files(catalog, table))
    staged = catalog.create_table("demo.staged", columns=[("v", "int")], partition_keys=[("k", "int")])
    catalog.operations.begin("staged", OperationKind.ADD_PARTITIONS, "demo.staged")
    catalog.operations.fail("staged", "TEST", "ended by the test")
    folder = catalog.operations.get("staged").folder
    write_file(Path(staged.location) / STAGING / f"{folder}-1" / "data" / "k=1" / "a.parquet")
    renamed = catalog.alter_table("demo.h", rename_to="renamed")
    grow_old(catalog)
    report = catalog.maintenance.expire_operations()
    assert (report.removed, report.kept) == (0, 4)
    assert ids(catalog) == {"replaced", "failed", "alive", "staged"}
    with catalog.storage.write() as connection:
        connection.execute(text("UPDATE calve_operation SET heartbeat_at_ms = created_at_ms"))
    catalog.vacuum(grace=NOW)
    grow_old(catalog)
    assert catalog.maintenance.expire_operations().removed == 2
    assert ids(catalog) == {"alive", "staged"}
    assert on_disk(renamed.location) == known(catalog, renamed)


def test_nothing_is_forgotten_of_what_cannot_be_seen(catalog: Catalog) -> None:
    catalog.create_table("demo.far", columns=[("v", "int")], location="nowhere://host/t")
    catalog.operations.begin("op", OperationKind.LOAD_ROWS, "demo.far")
    catalog.operations.fail("op", "TEST", "ended by the test")
    grow_old(catalog)
    report = catalog.maintenance.expire_operations()
    assert (report.removed, report.kept) == (0, 1)
    (problem,) = report.problems
    assert "demo.far: nowhere://host/t cannot be listed" in problem


def test_an_operation_that_is_begun_again_meanwhile_is_not_forgotten(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("again", "ended"):
        catalog.operations.begin(name, OperationKind.VERIFY_INDEX, "demo.t")
        catalog.operations.fail(name, "TEST", "ended by the test")
    grow_old(catalog)

    def numbers_in_use(*_: object) -> set[int]:
        catalog.operations.begin("again", OperationKind.VERIFY_INDEX, "demo.t")
        return set()

    monkeypatch.setattr(expiry, "_numbers_in_use", numbers_in_use)
    assert catalog.maintenance.expire_operations().removed == 1
    assert ids(catalog) == {"again"}


@pytest.mark.parametrize(("age_ms", "stays"), [(VALID_MS - 60_000, True), (VALID_MS + 1, False)])
def test_approvals_are_forgotten_when_they_have_expired(catalog: Catalog, age_ms: int, stays: bool) -> None:
    catalog.approvals.record("run", ["key"], "boss")
    with catalog.storage.write() as connection:
        connection.execute(update(ApprovalRow).values(approved_at_ms=ApprovalRow.approved_at_ms - age_ms))
    catalog.maintenance.expire_operations(older_than=OLD)
    assert catalog.approvals.find("run", "key") is not None
    catalog.maintenance.expire_operations(older_than=NOW)
    assert (catalog.approvals.find("run", "key") is not None) is stays


def test_a_purge_that_is_to_be_finished_is_not_forgotten(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = catalog.create_table("demo.gone", columns=[("v", "int")])
    file = write_file(Path(table.location) / own_name(catalog))
    with monkeypatch.context() as patch:
        patch.setattr("catalog.tables.dropping.finish_drop", lambda *_: None)
        catalog.drop_table("demo.gone", purge=True)
    grow_old(catalog)
    assert catalog.maintenance.expire_operations().removed == 0
    assert catalog.vacuum().purged == ("demo.gone",)
    assert not file.exists()
    grow_old(catalog)
    assert catalog.maintenance.expire_operations().removed == 1


def test_many_operations_go_in_batches(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.maintenance.expiry._BATCH", 7)
    now = catalog.storage.now_ms() - OLD // timedelta(milliseconds=1)
    row = "(:id, 'verify_index', 'demo.t', FALSE, '{}', 'FAILED', 0, '{}', :now, :now)"
    columns = (
        "id, kind, table_name, is_exclusive, request, state, progress_done, report, created_at_ms, heartbeat_at_ms"
    )
    with catalog.storage.write() as connection:
        connection.execute(
            text(f"INSERT INTO calve_operation ({columns}) VALUES {row}"),
            [{"id": f"op-{number}", "now": now} for number in range(30)],
        )
    assert catalog.maintenance.expire_operations().removed == 30


def test_time_below_zero_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequestError, match="the time that operations are kept is -1 day"):
        catalog.maintenance.expire_operations(older_than=timedelta(days=-1))


# --- index builds ---------------------------------------------------------------------------------------------------


def test_what_dead_builds_and_deletions_left_goes(
    catalog: Catalog, flights: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = flights.full_name
    catalog.add_partitions(name, [NewPartition(("JFK", "2013", f"2013-01-0{day}")) for day in range(1, 5)])
    with monkeypatch.context() as patch:
        patch.setattr(building, "clear_ended", lambda *_: None)
        deleted = catalog.create_partition_index(name, "deleted", ["year"])
        catalog.build_partition_index(name, "deleted")
        catalog.delete_partition_index(name, "deleted")
        catalog.create_partition_index(name, "cancelled", ["origin"])
        catalog.cancel_partition_index_build(name, "cancelled")
    catalog.create_table("demo.other", columns=[("v", "int")], partition_keys=[("k", "int")])
    assert len(stored_items(catalog, deleted.id)) == 4
    found = {name: ["cancelled", "deleted"]}
    assert catalog.maintenance.clear_failed_builds(dry_run=True) == found
    assert len(stored_items(catalog, deleted.id)) == 4
    assert catalog.maintenance.clear_failed_builds() == found
    assert stored_items(catalog, deleted.id) == []
    assert [index.state for index in catalog.get_partition_indexes(name)] == [IndexState.FAILED]
    assert catalog.maintenance.clear_failed_builds() == {}
