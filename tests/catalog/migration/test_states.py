"""The states of tables on their way to Iceberg."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import event

from catalog import Catalog
from catalog.errors import FileProblem, UnreadableMetadataError, UnusableFilesError
from catalog.migration.migrations import STAGE
from catalog.migration.requests import MigrationRequest, OnUnusable
from catalog.migration.states import MigrationState, TableState, is_candidate, state_of
from catalog.operations.dry_runs import keep_plan
from catalog.operations.records import DRY_RUN, OperationKind
from tests.support.iceberg_tables import NAME, append, make_orders, migrate, pretend_verified, stage

VERIFIED = MigrationRequest()


def state(catalog: Catalog, name: str = NAME, *, is_checked: bool = False) -> TableState:
    """Return the state of a table, perhaps after a check."""
    table = catalog.get_table(name)
    check = catalog.migration_states.check(table) if is_checked else None
    return state_of(table, catalog.migration_states.latest().get(table.id), check)


def test_a_table_goes_through_all_states_and_back(catalog: Catalog) -> None:
    make_orders(catalog)
    assert state(catalog).state is MigrationState.UNKNOWN
    assert state(catalog, is_checked=True) == TableState(MigrationState.READY)
    operation = catalog.migrations.begin("m1", NAME, VERIFIED)
    assert state(catalog).state is MigrationState.READY
    assert state(catalog).is_running
    stage(catalog, operation)
    assert state(catalog).state is MigrationState.STAGED
    pretend_verified(catalog, "m1")
    assert state(catalog).state is MigrationState.VERIFIED
    catalog.migrations.flip("m1")
    assert state(catalog) == TableState(MigrationState.ICEBERG)
    catalog.migrations.revert("r1", NAME)
    assert state(catalog).state is MigrationState.REVERTED
    assert state(catalog, is_checked=True).state is MigrationState.READY


def test_metadata_that_were_staged_again_are_not_verified(catalog: Catalog) -> None:
    make_orders(catalog)
    operation = catalog.migrations.begin("m1", NAME, VERIFIED)
    stage(catalog, operation)
    pretend_verified(catalog, "m1")
    stage(catalog, operation)
    assert state(catalog).state is MigrationState.STAGED


def test_a_check_tells_what_a_migration_would_read(catalog: Catalog) -> None:
    make_orders(catalog)
    check = catalog.migration_states.check(catalog.get_table(NAME))
    assert check.plan is not None
    assert (check.plan["partitions"], check.reason) == (4, None)


def test_a_refused_table_tells_the_reason_until_its_definition_changes(catalog: Catalog) -> None:
    catalog.create_table("demo.texts", columns=[("a", "int")], format="textfile")
    table = catalog.get_table("demo.texts")
    check = catalog.migration_states.check(table)
    refused = state_of(table, None, check)
    assert refused.state is MigrationState.REFUSED
    assert "UnsupportedFormatError: table demo.texts is stored as TEXTFILE" in (refused.reason or "")
    changed = catalog.alter_table("demo.texts", properties={"note": "x"})
    assert state_of(changed, None, check).state is MigrationState.UNKNOWN


def test_a_table_that_another_operation_holds_is_not_refused(catalog: Catalog) -> None:
    make_orders(catalog)
    catalog.operations.begin("load", OperationKind.LOAD_ROWS, NAME, is_exclusive=True)
    held = state(catalog, is_checked=True)
    assert held.state is MigrationState.UNKNOWN
    assert "OperationConflictError" in (held.reason or "")


@pytest.mark.parametrize(
    ("rule", "expected"), [(OnUnusable.FAIL, MigrationState.REFUSED), (OnUnusable.SKIP, MigrationState.READY)]
)
def test_a_dry_run_that_found_unusable_files_refuses_the_table_unless_they_are_skipped(
    catalog: Catalog, rule: OnUnusable, expected: MigrationState
) -> None:
    make_orders(catalog)
    catalog.migrations.begin("m1", NAME, MigrationRequest(unusable_files=rule))
    problem = {"path": "/lake/a.parquet", "problem": FileProblem.EMPTY, "message": "has no bytes"}
    with catalog.operations.attempt("m1", STAGE) as attempt:
        catalog.operations.finish_job("m1", STAGE, attempt, {"problem_count": 1, "problems": [problem]})
    catalog.operations.fail("m1", DRY_RUN, "this was a dry run; nothing was changed")
    found = state(catalog)
    assert found.state is expected
    assert found.reason == "1 file(s) cannot be part of the table, the first: /lake/a.parquet: has no bytes"


def test_a_dry_run_without_problems_makes_a_table_ready(catalog: Catalog) -> None:
    make_orders(catalog)
    catalog.migrations.begin("m1", NAME, VERIFIED)
    with catalog.operations.attempt("m1", STAGE) as attempt:
        catalog.operations.finish_job("m1", STAGE, attempt, {"problem_count": 0, "problems": []})
    catalog.operations.fail("m1", DRY_RUN, "this was a dry run; nothing was changed")
    assert state(catalog).state is MigrationState.READY


def test_a_dry_run_that_reads_no_files_makes_a_table_ready(catalog: Catalog) -> None:
    make_orders(catalog)
    plan = catalog.migrations.plan(NAME, VERIFIED)
    keep_plan(catalog.operations, "m1", OperationKind.MIGRATE, NAME, plan.as_json(), request=VERIFIED.as_json())
    found = state(catalog)
    assert (found.state, found.reason) == (MigrationState.READY, "a dry run has planned it, without reading its files")


def test_a_failed_migration_tells_the_failure_of_its_last_step(catalog: Catalog) -> None:
    make_orders(catalog)
    catalog.migrations.begin("m1", NAME, VERIFIED)
    attempt = catalog.operations.start_job("m1", STAGE)
    catalog.operations.fail_job("m1", STAGE, attempt, UnusableFilesError.__name__, "2 files are empty")
    catalog.operations.fail("m1", "RUN_FAILED", "its task failed")
    assert state(catalog) == TableState(MigrationState.REFUSED, "UnusableFilesError: 2 files are empty")


def test_only_tables_that_can_become_iceberg_tables_are_candidates(catalog: Catalog) -> None:
    make_orders(catalog)
    catalog.create_view("demo.some", "SELECT id FROM demo.orders", columns=[("id", "bigint")])
    migrate(catalog)
    assert [table.name for table in catalog.list_tables("demo") if is_candidate(table)] == ["orders"]


def test_the_states_of_all_tables_are_read_in_a_fixed_number_of_statements(catalog: Catalog) -> None:
    statements: list[int] = []
    event.listen(catalog.storage.engine, "before_cursor_execute", lambda *_: statements.append(1))
    counts = []
    for number in range(4):
        name = f"demo.orders_{number}"
        make_orders(catalog, name, {("nl", "1"): [number]})
        catalog.migrations.begin(f"m{number}", name, VERIFIED)
        statements.clear()
        assert len(catalog.migration_states.latest()) == number + 1
        counts.append(len(statements))
    assert len(set(counts)) == 1


def test_the_snapshots_of_a_migrated_table_tell_what_a_revert_loses(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    assert catalog.migration_states.history(catalog.get_table(NAME)) is None
    migrate(catalog)
    history = catalog.migration_states.history(catalog.get_table(NAME))
    assert history is not None
    assert (history.count, history.latest[0].is_current, history.written.is_nothing) == (1, True, True)
    append(catalog_url, [8, 9])
    history = catalog.migration_states.history(catalog.get_table(NAME), limit=1)
    assert history is not None
    assert (history.count, len(history.latest), history.written.rows_added) == (2, 1, 2)
    assert history.latest[0].summary["added-records"] == "2"


def test_metadata_that_cannot_be_read_are_named(catalog: Catalog) -> None:
    make_orders(catalog)
    migrate(catalog)
    table = catalog.get_table(NAME)
    location = table.metadata_location
    assert location is not None
    Path(location.removeprefix("file:")).write_text("{")
    with pytest.raises(UnreadableMetadataError, match=re.escape(location)):
        catalog.migration_states.history(table)
