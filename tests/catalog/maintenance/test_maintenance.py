"""Vacuum deletes obsolete files and keeps all others, also if it is killed; on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, text

from catalog import Catalog, Table
from catalog.errors import InvalidRequestError, InvalidTableError, TableNotFoundError
from catalog.files.filesystem import FileInfo, Folder
from catalog.maintenance.judging import Verdict, Writer, judge
from catalog.maintenance.reports import VacuumReport
from catalog.operations.records import JobState, OperationState
from catalog.storage import Storage
from catalog.storage.schema import FormerFileRow
from catalog.tables.definitions import Definitions
from tests.support.written_files import Load, data_files, hashed_table, known, on_disk, retired, write_file

NOW = timedelta(0)
"""A grace period that protects no files."""


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return hashed_table(catalog)


def state(catalog: Catalog, name: str) -> OperationState:
    return catalog.operations.get(name).state


# --- staging folders ------------------------------------------------------------------------------------------------

OLD, GRACE, NEW = 100, 200, 300
FAILED, RUNNING = OperationState.FAILED, OperationState.RUNNING
COMMITTED, CLEANED = OperationState.COMMITTED, OperationState.CLEANED


def at_work(*attempts: tuple[int, JobState], state: OperationState = RUNNING) -> Writer:
    return Writer(state, OLD, OLD, attempts)


@pytest.mark.parametrize(
    ("writer", "has_known_files", "verdict"),
    [
        (None, False, Verdict.KEEP),
        (Writer(COMMITTED, OLD - 1, OLD), False, Verdict.KEEP),
        (Writer(COMMITTED, OLD, NEW), False, Verdict.KEEP),
        (Writer(COMMITTED, OLD, OLD), True, Verdict.SWEEP),
        (Writer(COMMITTED, OLD, OLD), False, Verdict.DELETE),
        (Writer(CLEANED, OLD, OLD), True, Verdict.KEEP),
        (Writer(CLEANED, OLD, OLD), False, Verdict.DELETE),
        (at_work((2, JobState.FAILED), state=FAILED), False, Verdict.DELETE),
        (at_work((2, JobState.SUCCEEDED), state=FAILED), False, Verdict.DELETE),
        (at_work((1, JobState.FAILED), state=FAILED), False, Verdict.KEEP),
        (at_work((2, JobState.RUNNING)), False, Verdict.KEEP),
        (at_work((2, JobState.SUCCEEDED), (3, JobState.RUNNING)), False, Verdict.KEEP),
        (at_work((2, JobState.FAILED), (1, JobState.RUNNING)), False, Verdict.DELETE),
        (at_work((3, JobState.RUNNING)), False, Verdict.DELETE),
        (at_work((1, JobState.RUNNING)), False, Verdict.KEEP),
        (at_work((3, JobState.RUNNING)), True, Verdict.KEEP),
        (at_work(state=OperationState.PLANNED), False, Verdict.KEEP),
    ],
)
def test_the_second_attempt_of_an_operation_is_judged(
    writer: Writer | None, has_known_files: bool, verdict: Verdict
) -> None:
    judged = judge(2, writer, has_known_files=has_known_files, table_created_at_ms=OLD, cutoff_ms=GRACE)
    assert judged is verdict


# --- replaced files -------------------------------------------------------------------------------------------------


def test_replaced_files_stay_for_their_readers_and_then_go(catalog: Catalog, table: Table) -> None:
    Load(catalog, table, "one").run()
    Load(catalog, table, "two").run(retired=data_files(catalog, table))
    before = on_disk(table.location)
    catalog.vacuum()
    assert on_disk(table.location) == before
    assert len(retired(catalog)) == 2
    report = catalog.vacuum(grace=NOW)
    assert on_disk(table.location) == known(catalog, table)
    assert retired(catalog) == set()
    (counted,) = report.tables
    assert (counted.table, counted.retired_files, counted.retired_bytes) == ("demo.h", 2, 200)
    assert (state(catalog, "one"), state(catalog, "two")) == (CLEANED, CLEANED)
    assert catalog.vacuum(grace=NOW) == VacuumReport(False, (), (), 0, ())


def test_the_replaced_files_of_one_table_do_not_wait_for_those_of_others(catalog: Catalog, table: Table) -> None:
    other = hashed_table(catalog, "demo.other")
    for each in (table, other):
        Load(catalog, each, f"{each.name}-1").run()
        Load(catalog, each, f"{each.name}-2").run(retired=data_files(catalog, each))
    renamed = catalog.alter_table("demo.other", rename_to="renamed")
    catalog.vacuum("demo.renamed", grace=NOW)
    assert on_disk(renamed.location) == known(catalog, renamed)
    assert len(retired(catalog)) == 2
    with pytest.raises(TableNotFoundError):
        catalog.vacuum("demo.other")


def test_a_dropped_table_keeps_the_files_of_its_snapshots(catalog: Catalog, table: Table) -> None:
    Load(catalog, table, "one").run()
    Load(catalog, table, "two").run(retired=data_files(catalog, table))
    before = on_disk(table.location)
    catalog.drop_table("demo.h")
    assert retired(catalog) == set()
    catalog.vacuum(grace=NOW)
    assert on_disk(table.location) == before


def test_a_file_that_cannot_be_deleted_is_named_and_stops_no_other(catalog: Catalog, table: Table) -> None:
    Load(catalog, table, "one").run()
    Load(catalog, table, "two").run(retired=data_files(catalog, table))
    path = "nowhere://host/t/1-1/a.parquet"
    numbers = ("table_id", "file_id", "partition_id", "row_count", "size_bytes")
    revisions = ("revision", "until_revision", "retired_at_ms")
    row = dict.fromkeys((*numbers, *revisions), 0) | {"path": path, "statistics": "{}"}
    with catalog.storage.write() as connection:
        connection.execute(insert(FormerFileRow).values(row))
    report = catalog.vacuum(grace=NOW)
    (problem,) = report.problems
    assert f"1 replaced file(s) could not be deleted: {path}" in problem
    assert retired(catalog) == {path}
    assert on_disk(table.location) == known(catalog, table)


def test_a_location_that_cannot_be_listed_is_named_and_stops_no_other(catalog: Catalog, table: Table) -> None:
    catalog.create_table("demo.far", columns=[("v", "int")], location="nowhere://host/t")
    Load(catalog, table, "one").begin().write().fail()
    (problem,) = catalog.vacuum(grace=NOW).problems
    assert "demo.far: nowhere://host/t could not be vacuumed" in problem
    assert on_disk(table.location) == set()


# --- orphans --------------------------------------------------------------------------------------------------------


def test_a_job_leaves_nothing_beside_its_committed_files(catalog: Catalog, table: Table) -> None:
    duplicate = "calve_partition_id=0/again.parquet"
    Load(catalog, table, "one").begin().write(strays=["_SUCCESS", duplicate, "_temporary/0/part"]).commit()
    report = catalog.vacuum(grace=NOW)
    assert on_disk(table.location) == known(catalog, table)
    assert (report.total.orphan_files, report.operations_cleaned) == (4, 1)
    assert state(catalog, "one") is CLEANED


def test_attempts_that_did_not_commit_leave_nothing(catalog: Catalog, table: Table) -> None:
    Load(catalog, table, "failed").begin().write().fail()
    Load(catalog, table, "again").begin().write().start().write().commit()
    assert len(on_disk(table.location)) == 3 * 4
    catalog.vacuum(grace=NOW)
    assert on_disk(table.location) == known(catalog, table)
    assert len(known(catalog, table)) == 2


def test_what_may_still_be_committed_stays(catalog: Catalog, table: Table) -> None:
    load = Load(catalog, table, "one").begin().write()
    catalog.vacuum(grace=NOW)
    assert len(on_disk(table.location)) == 4
    load.start().write()
    catalog.vacuum(grace=NOW)
    assert {path.partition("/")[0] for path in on_disk(table.location)} == {load.folder}
    load.commit()
    assert known(catalog, table) < on_disk(table.location)


def test_a_cancelled_operation_that_goes_on_writes_anew(catalog: Catalog, table: Table) -> None:
    load = Load(catalog, table, "one").begin().write().fail()
    catalog.vacuum(grace=NOW)
    assert on_disk(table.location) == set()
    load.begin().write().commit()
    catalog.vacuum(grace=NOW)
    assert on_disk(table.location) == known(catalog, table) != set()


def test_an_operation_that_is_begun_again_meanwhile_keeps_its_files(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was FAILED when vacuum looked, and a later step of it may commit what an earlier one wrote."""
    load = Load(catalog, table, "one").begin().write()
    catalog.operations.finish_job("one", "load", 1, {})
    load.fail()
    all_files = Folder.all_files

    def begin_again(folder: Folder, name: str) -> list[FileInfo]:
        catalog.operations.start_job("one", "commit")
        return all_files(folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "all_files", begin_again)
        assert catalog.vacuum(grace=NOW).tables == ()
    assert len(on_disk(table.location)) == 4


def test_young_files_of_an_old_operation_stay(catalog: Catalog, table: Table) -> None:
    Load(catalog, table, "failed").begin().write().fail()
    Load(catalog, table, "one").run()
    before = on_disk(table.location)
    age_operations(catalog, timedelta(days=2))
    report = catalog.vacuum()
    assert (on_disk(table.location), report.operations_cleaned) == (before, 0)


def age_operations(catalog: Catalog, age: timedelta) -> None:
    """Age operations and tables."""
    milliseconds = age // timedelta(milliseconds=1)
    with catalog.storage.write() as connection:
        for statement in (
            f"UPDATE calve_operation SET created_at_ms = created_at_ms - {milliseconds}, "
            f"heartbeat_at_ms = heartbeat_at_ms - {milliseconds}",
            f"UPDATE calve_table SET created_at_ms = created_at_ms - {milliseconds}",
        ):
            connection.execute(text(statement))


def test_files_of_a_former_table_and_of_others_stay(catalog: Catalog, table: Table) -> None:
    Load(catalog, table, "former").begin().write().fail()
    Load(catalog, table, "dropped").run()
    catalog.drop_table("demo.h")
    age_operations(catalog, timedelta(seconds=1))
    again = hashed_table(catalog)
    for name in ("999-1/mine.parquet", "notes.txt", "x-1/mine.parquet", "1-0/mine.parquet"):
        write_file(Path(again.location) / name)
    before = on_disk(again.location)
    catalog.vacuum(grace=NOW)
    assert on_disk(again.location) == before


@pytest.mark.usefixtures("overlapping_locations")
def test_two_tables_in_one_folder_keep_what_the_other_has(catalog: Catalog, table: Table) -> None:
    other = hashed_table(catalog, "demo.other", location=f"file://{table.location}")
    Load(catalog, table, "mine").run()
    Load(catalog, other, "its").run()
    Load(catalog, other, "its again").run(retired=data_files(catalog, other))
    before = {path for path in on_disk(table.location) if path.endswith(".parquet")}
    catalog.vacuum(grace=timedelta(hours=1))
    catalog.vacuum("demo.h", grace=NOW)
    assert on_disk(table.location) == before
    catalog.vacuum(grace=NOW)
    assert on_disk(table.location) == known(catalog, table) | known(catalog, other)


@pytest.mark.usefixtures("overlapping_locations")
def test_a_folder_that_another_table_is_in_stays(catalog: Catalog, table: Table) -> None:
    load = Load(catalog, table, "failed").begin().write().fail()
    inside = f"{table.location}/{load.folder}/calve_partition_id=0"
    catalog.create_table("demo.inside", columns=[("k", "int")], location=inside)
    before = on_disk(table.location)
    catalog.vacuum(grace=NOW)
    assert on_disk(table.location) == before


def test_a_table_with_files_does_not_move_away_from_them(catalog: Catalog, table: Table) -> None:
    catalog.alter_table("demo.h", location=f"{table.location}-before")
    Load(catalog, catalog.get_table("demo.h"), "one").run()
    with pytest.raises(InvalidTableError, match="drop the partitions, and run vacuum when"):
        catalog.alter_table("demo.h", location=f"{table.location}-after")


# --- properties -----------------------------------------------------------------------------------------------------


def test_a_dry_run_counts_what_would_go_and_deletes_nothing(catalog: Catalog, table: Table) -> None:
    leave_everything(catalog, table)
    before = on_disk(table.location)
    would = catalog.vacuum(grace=NOW, dry_run=True)
    assert on_disk(table.location) == before
    done = catalog.vacuum(grace=NOW)
    assert done.tables == would.tables != ()
    assert (would.purged, would.operations_cleaned) == (done.purged, done.operations_cleaned) == (("demo.gone",), 4)
    assert str(would).replace("would be deleted", "deleted") == str(done)
    assert would.as_json() == {**done.as_json(), "dry_run": True}


def leave_everything(catalog: Catalog, table: Table) -> None:
    """Create obsolete files of each kind that vacuum deletes."""
    Load(catalog, table, "one").run()
    Load(catalog, table, "two").run()
    Load(catalog, table, "three").run(retired=data_files(catalog, table)[:3])
    Load(catalog, table, "again").begin().write().start().write(strays=["_SUCCESS", "_temporary/0/part"]).commit()
    Load(catalog, table, "failed").begin().write().fail()
    gone = hashed_table(catalog, "demo.gone")
    write_file(Path(gone.location) / "1-1/a.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("catalog.tables.dropping.finish_drop", lambda *_: None)
        catalog.drop_table("demo.gone", purge=True)


def test_a_table_that_is_dropped_meanwhile_is_no_problem(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = catalog.list_tables()
    assert table.scheme is not None
    monkeypatch.setattr(Definitions, "list_tables", lambda *_: listed)
    catalog.drop_table(table.full_name)
    assert not catalog.vacuum(grace=timedelta(0)).problems


def test_time_below_zero_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequestError, match="the grace period is -1 day"):
        catalog.vacuum(grace=timedelta(days=-1))


class Killed(BaseException):
    """Simulates the end of the process."""


@contextmanager
def dying_at(number: int) -> Iterator[Callable[[], int]]:
    """Let the process die before the call of this number that changes files or begins a transaction that writes.

    The block gets a function that says how many such calls there were.
    """
    calls = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                raise Killed
            return function(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((Folder, "delete"), (Folder, "delete_file"), (Storage, "write")):
            patch.setattr(owner, name, counted(getattr(owner, name)))
        yield lambda: calls


@pytest.mark.long
def test_killed_anywhere_and_run_again_it_ends_the_same(catalog: Catalog) -> None:
    point = 0
    while True:
        point += 1
        table = hashed_table(catalog, f"demo.h{point}")
        leave(catalog, table)
        with dying_at(point) as calls:
            with suppress(Killed):
                catalog.vacuum(grace=NOW)
            count = calls()
        assert known(catalog, table) <= on_disk(table.location)
        catalog.vacuum(grace=NOW)
        assert on_disk(table.location) == known(catalog, table)
        assert retired(catalog) == set()
        assert {each.state for each in catalog.operations.list(table.full_name)} == {CLEANED, FAILED}
        if count < point:
            break
    assert point > 10


def leave(catalog: Catalog, table: Table) -> None:
    name = table.name
    Load(catalog, table, f"{name}-one").run()
    Load(catalog, table, f"{name}-two").run(retired=data_files(catalog, table)[:1])
    Load(catalog, table, f"{name}-again").begin().write().start().write().commit()
    Load(catalog, table, f"{name}-failed").begin().write().fail()


class History:
    """The history of a table: steps of separate loads."""

    def __init__(self, catalog: Catalog, table: Table) -> None:
        self.catalog, self.table = catalog, table
        self.prefix, self.count = f"{table.id}-{table.version}", 0
        self.open_load: Load | None = None

    def next_load(self) -> Load:
        """Return a new load; only one can run at a time."""
        self.cancel()
        self.count += 1
        return Load(self.catalog, self.table, f"{self.prefix}-{self.count}")

    def cancel(self) -> None:
        if self.open_load is not None:
            self.open_load.fail()
            self.open_load = None

    def load(self) -> None:
        self.next_load().run()

    def replace(self) -> None:
        self.next_load().run(retired=data_files(self.catalog, self.table)[::2])

    def stray(self) -> None:
        self.next_load().begin().write(strays=["calve_partition_id=1/again.parquet"]).commit()

    def fail(self) -> None:
        self.next_load().begin().write().fail()

    def kill(self) -> None:
        self.open_load = self.next_load().begin().write()

    def retry(self) -> None:
        if self.open_load is not None:
            self.open_load.start().write().commit()
            self.open_load = None

    def rename(self) -> None:
        self.cancel()
        self.count += 1
        self.table = self.catalog.alter_table(self.table.full_name, rename_to=f"r{self.count}")

    def vacuum(self) -> None:
        self.catalog.vacuum(grace=NOW)

    def vacuum_with_grace(self) -> None:
        before = on_disk(self.table.location)
        assert self.catalog.vacuum().tables == ()
        assert on_disk(self.table.location) == before


STEPS = ["load", "replace", "stray", "fail", "kill", "retry", "rename", "vacuum", "vacuum_with_grace"]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(STEPS), max_size=14))
def test_no_orphan_and_no_missing_file_whatever_happened(catalog: Catalog, steps: list[str]) -> None:
    for each in catalog.list_tables():
        catalog.drop_table(each.full_name, purge=True)
    history = History(catalog, hashed_table(catalog))
    for step in steps:
        getattr(history, step)()
        assert known(catalog, history.table) <= on_disk(history.table.location)
    catalog.vacuum(grace=NOW)
    may_be_committed = "none" if history.open_load is None else history.open_load.folder
    left = {path for path in on_disk(history.table.location) if path.partition("/")[0] != may_be_committed}
    assert left == known(catalog, history.table)
    assert retired(catalog) == set()
    history.cancel()
