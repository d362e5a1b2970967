"""Migrations beside concurrent changes, other migrations, drops and vacuum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from catalog import Catalog, NewPartition
from catalog.errors import (
    AlreadyIcebergError,
    CatalogError,
    FencedError,
    FilesNeededError,
    MigrationConflictError,
    OperationConflictError,
    TableNotFoundError,
)
from catalog.migration import flipping
from catalog.migration.requests import MigrationRequest
from catalog.operations.records import OperationState
from tests.catalog.migration.test_migrations import WHOLE, data_files, hive_state, make_old, metadata_files
from tests.support.iceberg_tables import (
    NAME,
    REQUEST,
    append,
    expected_rows,
    iceberg_rows,
    make_orders,
    migrate,
    sql_catalog,
    stage,
    write_rows,
)

# --- concurrent changes -----------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Catalog], object]] = {
    "a partition": lambda c: c.add_partitions(NAME, [NewPartition(("be", "1"))]),
    "one less": lambda c: c.drop_partitions(NAME, "year = 9"),
    "a folder": lambda c: c.alter_partition(NAME, WHOLE, location="/elsewhere"),
    "a format": lambda c: c.alter_partition(NAME, WHOLE, format="orc"),
    "a property": lambda c: c.alter_table(NAME, properties={"a": "b"}),
    "an index": lambda c: c.create_partition_index(NAME, "i", ["year"]),
    "a file": lambda c: write_rows(c.get_partition(NAME, ("nl", "2024")).location, [99], "part-9.parquet"),
    "another file": lambda c: write_rows(c.get_partition(NAME, ("nl", "2024")).location, [99, 98, 97]),
    "no file": lambda c: Path(c.get_partition(NAME, ("nl", "2024")).location, "part-0.parquet").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_before_the_flip_is_noticed(catalog: Catalog, catalog_url: str, change: str) -> None:
    table = make_orders(catalog)
    operation = catalog.migrations.begin("m1", NAME, REQUEST)
    stage(catalog, operation)
    CHANGES[change](catalog)
    before = hive_state(catalog, table)
    with pytest.raises(MigrationConflictError, match="Make a new plan"):
        catalog.migrations.flip("m1")
    assert not catalog.get_table(NAME).is_iceberg
    assert hive_state(catalog, table) == before
    # The operation no longer holds the table, and continues with a new plan.
    assert catalog.operations.get("m1").state is OperationState.FAILED
    if change not in ("a folder", "a format"):
        migrate(catalog)
        rows = {row[0] for row in iceberg_rows(catalog_url)}
        assert (99 in rows, 1 in rows) == (
            "file" in change and change != "no file",
            change not in ("another file", "no file"),
        )


def test_a_file_that_arrives_while_the_flip_prepares_is_noticed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(catalog)
    stage(catalog, catalog.migrations.begin("m1", NAME, REQUEST))
    location = catalog.get_partition(NAME, ("nl", "2025")).location
    prepared = catalog.migrations.target

    def prepare_while_a_file_arrives(*arguments: Any) -> Any:
        write_rows(location, [99], "late.parquet")
        return prepared(*arguments)

    monkeypatch.setattr(catalog.migrations, "target", prepare_while_a_file_arrives)
    with pytest.raises(MigrationConflictError, match="changed since they were listed"):
        catalog.migrations.flip("m1")


@pytest.mark.parametrize("kind", ["new", "longer"])
def test_a_file_that_arrives_between_the_listing_and_the_commit_is_named(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    make_orders(catalog)
    stage(catalog, catalog.migrations.begin("m1", NAME, REQUEST))
    location = catalog.get_partition(NAME, ("nl", "2025")).location
    name = "late.parquet" if kind == "new" else "part-0.parquet"
    insert_pointer = flipping.insert_pointer

    def insert_while_a_file_arrives(*arguments: Any) -> None:
        write_rows(location, [99] * 1_000, name)
        insert_pointer(*arguments)

    monkeypatch.setattr(flipping, "insert_pointer", insert_while_a_file_arrives)
    report = catalog.migrations.flip("m1")
    late = report["late_files"]
    assert (late["count"], late["paths"]) == (1, [f"{location}/{name}"])
    assert "revert and migrate again" in late["advice"]
    assert f"{location}/{name}" in caplog.text
    # It is journaled, so that a caller that died meanwhile learns of it.
    assert catalog.migrations.flip("m1") == report
    # As the advice says.
    catalog.migrations.revert("r1", NAME)
    monkeypatch.undo()
    assert "late_files" not in migrate(catalog, operation_id="m2")
    assert 99 in {row[0] for row in iceberg_rows(catalog_url)}


def test_files_are_not_listed_again_when_told(catalog: Catalog) -> None:
    make_orders(catalog)
    stage(catalog, catalog.migrations.begin("m1", NAME, REQUEST))
    CHANGES["a file"](catalog)
    catalog.migrations.flip("m1", relist=False)


def test_a_listing_from_elsewhere_is_compared(catalog: Catalog) -> None:
    make_orders(catalog)
    operation = catalog.migrations.begin("m1", NAME, REQUEST)
    listing = stage(catalog, operation)["listing"]
    assert str(catalog.migrations.list_again(catalog.migrations.get("m1"))) == listing
    with pytest.raises(MigrationConflictError, match="changed since they were listed"):
        catalog.migrations.flip("m1", listing="4-00")
    assert migrate(catalog)["files"] == 4


def test_an_agreed_plan_is_kept_to(catalog: Catalog) -> None:
    make_orders(catalog)
    plan = catalog.migrations.plan(NAME, REQUEST)
    catalog.alter_table(NAME, properties={"a": "b"})
    with pytest.raises(MigrationConflictError, match=f"fingerprint {plan.fingerprint}"):
        catalog.migrations.begin("m1", NAME, replace(REQUEST, fingerprint=plan.fingerprint))
    again = catalog.migrations.plan(NAME, REQUEST)
    assert again.fingerprint != plan.fingerprint
    catalog.migrations.begin("m1", NAME, replace(REQUEST, fingerprint=again.fingerprint))
    assert catalog.migrations.plan(NAME, REQUEST, operation_id="m1").fingerprint == again.fingerprint


# --- two at once ------------------------------------------------------------------------------------------------------


def test_of_two_migrations_at_once_one_wins_and_the_other_says_why(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    barrier, outcomes = Barrier(2), dict[str, object]()

    def run(operation_id: str) -> None:
        with Catalog.open(catalog_url) as own:
            barrier.wait()
            try:
                outcomes[operation_id] = migrate(own, operation_id=operation_id)
            except CatalogError as error:
                outcomes[operation_id] = error

    threads = [Thread(target=run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lost = [outcome for outcome in outcomes.values() if isinstance(outcome, Exception)]
    assert len(lost) == 1
    assert isinstance(lost[0], OperationConflictError | AlreadyIcebergError), lost
    assert iceberg_rows(catalog_url) == expected_rows()


def test_two_runs_of_one_operation_give_one_table(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    stage(catalog, catalog.migrations.begin("m1", NAME, REQUEST))
    outcomes: list[object] = []
    barrier = Barrier(3)

    def flip() -> None:
        with Catalog.open(catalog_url) as own:
            barrier.wait()
            try:
                outcomes.append(own.migrations.flip("m1"))
            except CatalogError as error:
                outcomes.append(error)

    threads = [Thread(target=flip) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reports = [outcome for outcome in outcomes if isinstance(outcome, dict)]
    assert reports
    assert all(report == reports[0] for report in reports)
    assert all(isinstance(outcome, dict | FencedError) for outcome in outcomes), outcomes
    assert iceberg_rows(catalog_url) == expected_rows()


def test_a_table_at_work_is_not_migrated_and_one_being_migrated_is_not_worked_on(catalog: Catalog) -> None:
    make_orders(catalog)
    catalog.migrations.begin("m1", NAME, REQUEST)
    for attempt in (
        lambda: catalog.migrations.plan(NAME, REQUEST),
        lambda: catalog.migrations.begin("m2", NAME, REQUEST),
        lambda: catalog.repair_table(NAME),
    ):
        with pytest.raises(OperationConflictError, match="operation m1"):
            attempt()
    catalog.operations.fail("m1", "CANCELLED", "")
    catalog.migrations.begin("m2", NAME, REQUEST)


# --- drop and vacuum --------------------------------------------------------------------------------------------------


def test_dropping_an_iceberg_table_removes_both_entries_and_no_file(catalog: Catalog, catalog_url: str) -> None:
    table = make_orders(catalog)
    files = data_files(table)
    migrate(catalog)
    with pytest.raises(FilesNeededError, match="drop it without PURGE"):
        catalog.drop_table(NAME, purge=True)
    catalog.drop_table(NAME)
    with pytest.raises(TableNotFoundError):
        catalog.get_table(NAME)
    with sql_catalog(catalog_url) as iceberg:
        assert not iceberg.table_exists(NAME)
    assert data_files(table) == files
    make_orders(catalog)


def test_vacuum_keeps_the_metadata_of_iceberg_tables(catalog: Catalog, catalog_url: str) -> None:
    table = make_orders(catalog)
    migrate(catalog)
    append(catalog_url, [8])
    make_old(catalog, table.location, "m1")
    before = metadata_files(table.location)
    report = catalog.vacuum(grace=timedelta(0))
    assert report.problems == ()
    assert metadata_files(table.location) == before
    assert len(iceberg_rows(catalog_url)) == 8


def test_vacuum_removes_files_of_cancelled_attempts(catalog: Catalog, catalog_url: str) -> None:
    table = make_orders(catalog)
    operation = catalog.migrations.begin("m1", NAME, REQUEST)
    files = data_files(table)
    stage(catalog, operation)
    assert catalog.vacuum(grace=timedelta(0)).tables == ()
    stage(catalog, operation)
    catalog.operations.fail("m1", "CANCELLED", "")
    assert catalog.vacuum().tables == ()
    make_old(catalog, table.location, "m1")
    found = len(metadata_files(table.location))
    assert catalog.vacuum(grace=timedelta(0), dry_run=True).total.orphan_files == found
    assert catalog.vacuum(grace=timedelta(0)).total.orphan_files == found
    assert metadata_files(table.location) == []
    assert data_files(table) == files
    # A retry finds that nothing is staged.
    catalog.migrations.begin("m1", NAME, REQUEST)
    assert not catalog.migrations.is_staged("m1")
    migrate(catalog)
    assert iceberg_rows(catalog_url) == expected_rows()


def test_vacuum_removes_the_other_attempts_of_a_committed_migration(catalog: Catalog, catalog_url: str) -> None:
    table = make_orders(catalog)
    operation = catalog.migrations.begin("m1", NAME, REQUEST)
    stage(catalog, operation)
    kept = stage(catalog, operation)
    catalog.migrations.flip("m1")
    make_old(catalog, table.location, "m1")
    catalog.vacuum(grace=timedelta(0))
    left = metadata_files(table.location)
    assert left == [path for path in left if f"/{kept['folder']}/" in path or path == kept["metadata_location"]]
    assert len(left) == 4
    assert iceberg_rows(catalog_url) == expected_rows()


def test_vacuum_removes_the_metadata_of_a_table_that_is_hive_again(catalog: Catalog, catalog_url: str) -> None:
    table = make_orders(catalog)
    migrate(catalog)
    catalog.migrations.revert("r1", NAME)
    make_old(catalog, table.location, "m1")
    migrate(catalog, operation_id="m2")
    catalog.vacuum(grace=timedelta(0))
    assert iceberg_rows(catalog_url) == expected_rows()
    assert len(metadata_files(table.location)) == 4
    catalog.migrations.revert("r2", NAME)
    make_old(catalog, table.location, "m2")
    catalog.vacuum(grace=timedelta(0))
    assert metadata_files(table.location) == []
    assert len(data_files(table)) == 4


def test_operations_stay_in_the_journal_while_their_metadata_is_there(catalog: Catalog) -> None:
    table = make_orders(catalog)
    migrate(catalog)
    make_old(catalog, table.location, "m1")
    catalog.operations.begin("later", catalog.operations.get("m1").kind, "demo.none", {"location": None})
    assert catalog.maintenance.expire_operations(older_than=timedelta(days=1)).kept == 1


def test_a_table_in_the_folder_of_the_metadata_is_not_taken_for_data(catalog: Catalog, catalog_url: str) -> None:
    table = catalog.create_table("demo.flat", columns=[("id", "bigint"), ("note", "string")])
    write_rows(table.location, [1])
    nested = MigrationRequest(verify=False, recursive_directory="true")
    migrate(catalog, "demo.flat", request=nested)
    catalog.migrations.revert("r1", "demo.flat")
    migrate(catalog, "demo.flat", "m2", request=nested)
    assert [row[0] for row in iceberg_rows(catalog_url, "demo.flat")] == [1]
