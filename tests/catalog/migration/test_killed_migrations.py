"""Migrations that are killed at each named point and run again, and random sequences of them."""

from __future__ import annotations

import shutil
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog, NewPartition, Table
from catalog.iceberg.named_files import metadata_paths
from catalog.iceberg.pointers import Pointer
from catalog.migration.requests import MigrationRequest
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind, OperationState
from tests.catalog.migration.test_migrations import data_files, hive_state, make_old, metadata_files
from tests.support import killed_migrations
from tests.support.iceberg_tables import (
    NAME,
    PARTITIONS,
    REQUEST,
    append,
    expected_rows,
    iceberg_rows,
    make_orders,
    migrate,
    write_rows,
)
from tests.support.processes import context

POINTS = (Point.JOURNALED, Point.METADATA_WRITTEN, Point.STAGED, Point.STARTED, Point.CHANGED, Point.COMMITTED)
ADDING = (Point.JOURNALED, Point.STAGED, Point.STARTED, Point.METADATA_WRITTEN, Point.CHANGED, Point.COMMITTED)
"""The metadata of an existing table is written only with the commit."""

OTHER = "demo.other"


def kill(url: str, operation_id: str, table: str, request: MigrationRequest | None, point: Point) -> None:
    """Run in another process, which exits at a point."""
    arguments = (url, operation_id, table, None if request is None else request.as_json(), point)
    process = context.Process(target=killed_migrations.run, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"the process did not end at {point}"


def test_a_migration_killed_at_each_point_gives_one_table_and_vacuum_leaves_no_orphan(
    catalog: Catalog, catalog_url: str
) -> None:
    table = make_orders(catalog)
    before, files = hive_state(catalog, table), data_files(table)
    for point in POINTS:
        assert not catalog.get_table(NAME).is_iceberg
        assert len(list(catalog.get_partitions(NAME))) == 4
        kill(catalog_url, "m1", NAME, REQUEST, point)
    report = migrate(catalog)
    assert iceberg_rows(catalog_url) == expected_rows()
    assert hive_state(catalog, table) == before
    assert data_files(table) == files
    make_old(catalog, table.location, "m1")
    assert catalog.vacuum(grace=timedelta(0)).problems == ()
    folders = [each.name for each in Path(table.location, "metadata").iterdir() if each.is_dir()]
    assert len(folders) == 1
    assert [each for each in metadata_files(table.location) if each.endswith("metadata.json")] == [
        report["metadata_location"]
    ]
    assert iceberg_rows(catalog_url) == expected_rows()
    for point in (Point.JOURNALED, Point.STARTED, Point.CHANGED, Point.COMMITTED):
        assert catalog.get_table(NAME).is_iceberg
        kill(catalog_url, "r1", NAME, None, point)
    catalog.migrations.revert("r1", NAME)
    assert catalog.get_table(NAME) == table
    assert hive_state(catalog, table) == before


@pytest.mark.first_case
@pytest.mark.parametrize("kind", [OperationKind.SNAPSHOT, OperationKind.ADD_FILES])
def test_the_other_kinds_are_done_once_too(catalog: Catalog, catalog_url: str, kind: OperationKind) -> None:
    table = make_orders(catalog)
    request = MigrationRequest(kind, target=OTHER, verify=False)
    if kind is OperationKind.ADD_FILES:
        make_orders(catalog, OTHER, {("x", "1"): [100]})
        migrate(catalog, OTHER, "before")
    for point in POINTS if kind is OperationKind.SNAPSHOT else ADDING:
        kill(catalog_url, "m1", NAME, request, point)
    migrate(catalog, NAME, "m1", request)
    ids = [row[0] for row in iceberg_rows(catalog_url, OTHER)]
    assert sorted(ids) == [1, 2, 3, 4, 5, 6, 7] + [100] * (kind is OperationKind.ADD_FILES)
    make_old(catalog, table.location.replace("orders", "other"), "m1")
    catalog.vacuum(grace=timedelta(0))
    assert sorted(row[0] for row in iceberg_rows(catalog_url, OTHER)) == sorted(ids)
    target = catalog.get_table(OTHER)
    left = {each for each in metadata_files(target.location) if each.endswith((".avro", ".metadata.json"))}
    assert left == set(metadata_paths(Pointer("calve", "demo", "t", target.metadata_location or "")))


@pytest.mark.parametrize("kind", [OperationKind.MIGRATE, OperationKind.SNAPSHOT, OperationKind.ADD_FILES])
def test_files_that_came_before_a_flip_was_killed_are_named_when_it_goes_on(
    catalog: Catalog, catalog_url: str, kind: OperationKind
) -> None:
    make_orders(catalog)
    request = MigrationRequest(kind, target=None if kind is OperationKind.MIGRATE else OTHER, verify=False)
    if kind is OperationKind.ADD_FILES:
        make_orders(catalog, OTHER, {("x", "1"): [100]})
        migrate(catalog, OTHER, "before")
    location = catalog.get_partition(NAME, ("nl", "2025")).location
    kill(catalog_url, "m1", NAME, request, Point.COMMITTED)
    late = write_rows(location, [99], "late.parquet")
    report = migrate(catalog, NAME, "m1", request)
    assert (report["late_files"]["count"], report["late_files"]["paths"]) == (1, [late])
    # Files are listed once: later files are not part of the migration.
    write_rows(location, [100], "later.parquet")
    assert migrate(catalog, NAME, "m1", request) == report


def test_no_file_is_late_for_a_killed_migration_that_was_reverted(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    location = catalog.get_partition(NAME, ("nl", "2025")).location
    kill(catalog_url, "m1", NAME, REQUEST, Point.COMMITTED)
    write_rows(location, [99], "late.parquet")
    catalog.migrations.revert("r1", NAME)
    assert "late_files" not in migrate(catalog)
    catalog.drop_table(NAME)
    assert "late_files" not in migrate(catalog)


def test_of_processes_that_migrate_one_table_at_once_one_does_and_each_other_says_why_not(
    catalog: Catalog, catalog_url: str
) -> None:
    make_orders(catalog)
    names = ("a", "b", "c")
    barrier, outcomes = context.Barrier(len(names)), context.SimpleQueue()
    processes = [
        context.Process(target=killed_migrations.race, args=(catalog_url, each, NAME, barrier, outcomes))
        for each in names
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(names)
    said = dict(outcomes.get() for _ in names)
    (winner,) = (each for each, why in said.items() if not why)
    for loser, why in said.items():
        if loser != winner:
            assert why.startswith(("OperationConflictError", "AlreadyIcebergError"))
            # The operation in the way may be another loser, which found after the winner's end that nothing is left.
            others = [f"operation {name}" for name in names if name != loser]
            assert any(other in why for other in others) or "is an Iceberg table already" in why
    assert iceberg_rows(catalog_url) == expected_rows()
    operations = {operation.id: operation for operation in catalog.operations.list(NAME)}
    assert operations.pop(winner).is_committed
    assert {operation.state for operation in operations.values()} <= {OperationState.FAILED}


def make_anew(catalog: Catalog) -> Table:
    """Create the table where perhaps another one was."""
    if any(each.full_name == NAME for each in catalog.list_tables()):
        location = catalog.get_table(NAME).location
        catalog.drop_table(NAME)
        shutil.rmtree(location)
    return make_orders(catalog)


STEPS = st.lists(st.sampled_from(["migrate", "revert", "lose", "append", "partition", "cancel", "vacuum"]), max_size=12)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_sequence_keeps_partitions_and_indexes_and_shows_the_rows_of_both(
    catalog: Catalog, catalog_url: str, steps: list[str]
) -> None:
    """A model of the table: its Hive partitions, and what Iceberg commits have added to them."""
    table = make_anew(catalog)
    hive, written, is_iceberg = dict(PARTITIONS), list[int](), False
    state = hive_state(catalog, table)
    marker = table.id
    for number, step in enumerate(steps):
        operation_id = f"{marker}-{number}-{table.version}"
        if step == "migrate" and not is_iceberg:
            migrate(catalog, operation_id=operation_id)
            is_iceberg, written = True, []
        elif step in ("revert", "lose") and is_iceberg and (step == "lose" or not written):
            catalog.migrations.revert(operation_id, NAME, lose_data=step == "lose")
            is_iceberg = False
        elif step == "append" and is_iceberg:
            append(catalog_url, [1_000 + number])
            written.append(1_000 + number)
        elif step == "partition" and not is_iceberg:
            values = (f"c{number}", str(number))
            catalog.add_partitions(NAME, [NewPartition(values)])
            write_rows(catalog.get_partition(NAME, values).location, [100 + number])
            hive[values] = [100 + number]
            state = hive_state(catalog, table)
        elif step == "cancel" and not is_iceberg:
            catalog.migrations.begin(operation_id, NAME, REQUEST)
            catalog.operations.fail(operation_id, "CANCELLED", "")
        elif step == "vacuum":
            for operation in catalog.operations.list(NAME):
                make_old(catalog, table.location, operation.id)
            assert catalog.vacuum(grace=timedelta(0)).problems == ()
        assert hive_state(catalog, table) == state
        assert catalog.get_table(NAME).is_iceberg is is_iceberg
        if is_iceberg:
            assert {row[0] for row in iceberg_rows(catalog_url)} == {
                *(row[0] for row in expected_rows(hive)),
                *written,
            }
        else:
            assert len(list(catalog.get_partitions(NAME))) == len(hive)
            assert catalog.verify_partition_index(NAME, "by_country").is_exact
