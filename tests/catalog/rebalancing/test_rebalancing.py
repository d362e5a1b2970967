"""Changes of partitions: plans, exclusivity, fencing, and kills at any point; without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from catalog import Catalog, Column
from catalog.datafiles import pruning
from catalog.datafiles.manifest import read_manifest, write_manifest
from catalog.datafiles.pruning import partitions_of
from catalog.errors import (
    BoundsNotAscendingError,
    FencedError,
    InvalidSchemeError,
    OperationConflictError,
    PartitionNotFoundError,
    PlanConflictError,
    TableNotFoundError,
    VerificationFailedError,
)
from catalog.operations.attempts import attempt_folder
from catalog.operations.failpoints import Point
from catalog.operations.records import SILENT_LEASE_MS, OperationState
from catalog.rebalancing.changes import (
    AddPartitions,
    DropPartitions,
    MergePartitions,
    PartitionChange,
    SetPartitionCount,
    SplitPartition,
)
from catalog.rebalancing.rebalancing import COMMIT
from catalog.storage.schema import OperationRow
from catalog.tables.schemes import scheme_from_properties
from tests.support import killed_changes
from tests.support.killed_changes import contents, load, read_contents, rewrite, write_files
from tests.support.processes import context
from tests.support.written_files import on_disk

TABLE = "demo.t"
SPLIT = SplitPartition(2, ("15", "20"))


@pytest.fixture
def ranges(catalog: Catalog) -> str:
    """A table of the ranges up to 10, 20 and 30, with two files in each and in the default partition."""
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    catalog.create_table(TABLE, columns=[("c", "int")], scheme=scheme)
    load(catalog, "first", TABLE, range(0, 40, 2))
    load(catalog, "second", TABLE, range(1, 41, 2))
    return TABLE


START = {0: [*range(30, 40)], 1: [*range(10)], 2: [*range(10, 20)], 3: [*range(20, 30)]}


def begin(catalog: Catalog, change: PartitionChange, operation: str = "change") -> tuple[int, str]:
    """Begin a change and an attempt; return the attempt and its folder."""
    begun = catalog.rebalancing.begin(operation, TABLE, change)
    attempt = catalog.operations.start_job(operation, COMMIT)
    return attempt, attempt_folder(begun, attempt)


def plan_and_write(catalog: Catalog, folder: str, operation: str = "change") -> Any:
    plan = catalog.rebalancing.plan_of(catalog.operations.get(operation))
    rewrite(plan, folder)
    return plan


def cancel(catalog: Catalog, operation: str = "change") -> None:
    catalog.operations.fail(operation, "TEST", "cancelled by the test")


# --- plans ----------------------------------------------------------------------------------------------------------


def test_the_fixture_has_what_the_tests_expect(catalog: Catalog, ranges: str) -> None:
    assert contents(catalog, ranges) == START
    assert [each.file_count for each in catalog.scheme_partitions(ranges)] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("change", "moved", "relabelled", "deleted"),
    [
        # Only the affected partition is read.
        (SPLIT, 10, 0, 0),
        (AddPartitions(("35",)), 10, 0, 0),
        # No row belongs to the new partition, according to the minima and maxima of the files.
        (AddPartitions(("50",)), 0, 2, 0),
        (SplitPartition(2, ("11", "20")), 5, 1, 0),
        (DropPartitions((2,)), 0, 2, 0),
        (DropPartitions((3, 1)), 0, 4, 0),
        (DropPartitions((2, 3), with_data=True), 0, 0, 4),
        (MergePartitions((1, 2)), 0, 4, 0),
    ],
    ids=str,
)
def test_a_plan_reads_only_files_that_hold_rows_of_several_partitions(
    catalog: Catalog, ranges: str, change: PartitionChange, moved: int, relabelled: int, deleted: int
) -> None:
    plan = catalog.rebalancing.plan(ranges, change)
    assert (plan.moved.row_count, len(plan.relabelled), len(plan.deleted)) == (moved, relabelled, deleted)
    assert plan.needs_spark == (moved > 0)
    assert plan.is_destructive == (deleted > 0)
    assert contents(catalog, ranges) == START


def test_a_plan_is_the_same_as_long_as_the_table_is(catalog: Catalog, ranges: str) -> None:
    plans = [catalog.rebalancing.plan(ranges, SPLIT).fingerprint for _ in range(2)]
    assert plans[0] == plans[1]
    assert catalog.rebalancing.plan(ranges, SplitPartition(2, ("16", "20"))).fingerprint != plans[0]
    load(catalog, "third", ranges, [12])
    assert catalog.rebalancing.plan(ranges, SPLIT).fingerprint != plans[0]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (SplitPartition(9, ("15", "20")), PartitionNotFoundError),
        (AddPartitions(("30",)), BoundsNotAscendingError),
        (SetPartitionCount(3), InvalidSchemeError),
    ],
)
def test_a_change_that_does_not_fit_holds_nothing(
    catalog: Catalog, ranges: str, change: PartitionChange, error: type[Exception]
) -> None:
    with pytest.raises(error):
        catalog.rebalancing.change_catalog("wrong", ranges, change)
    assert catalog.operations.find("wrong") is None
    with pytest.raises(TableNotFoundError):
        catalog.rebalancing.change_catalog("wrong", "demo.none", change)


@pytest.mark.parametrize(
    ("definition", "instead"),
    [
        ({"partition_keys": [("k", "int")]}, "ADD PARTITION (key='value')"),
        ({"partition_keys": [("k", "int")], "format": "iceberg"}, "follow from the values of its rows"),
        ({}, "it has no partitions"),
    ],
)
def test_a_change_of_a_table_without_a_scheme_says_what_to_do_instead(
    catalog: Catalog, definition: dict[str, Any], instead: str
) -> None:
    catalog.create_database("plain")
    catalog.create_table("plain.t", columns=[("a", "int")], **definition)
    with pytest.raises(InvalidSchemeError, match=r"^table plain\.t has no partition scheme, so") as caught:
        catalog.rebalancing.plan("plain.t", SPLIT)
    assert instead in str(caught.value)


def test_a_change_that_moves_rows_is_left_to_spark(catalog: Catalog, ranges: str) -> None:
    assert catalog.rebalancing.change_catalog("split", ranges, SPLIT) is None
    assert catalog.operations.find("split") is None


def test_a_change_of_the_catalog_is_reported_again(catalog: Catalog, ranges: str) -> None:
    change = DropPartitions((2,), with_data=True)
    report = catalog.rebalancing.change_catalog("drop", ranges, change)
    assert report is not None
    assert (report["rows_deleted"], report["files_written"]) == (10, 0)
    assert catalog.rebalancing.change_catalog("drop", ranges, change) == report


# --- one at a time --------------------------------------------------------------------------------------------------


def test_a_table_has_one_change_at_a_time(catalog: Catalog, ranges: str) -> None:
    begin(catalog, SPLIT)
    with pytest.raises(OperationConflictError, match="change"):
        catalog.rebalancing.begin("other", ranges, AddPartitions(("40",)))
    with pytest.raises(OperationConflictError):
        catalog.rebalancing.change_catalog("other", ranges, MergePartitions((1, 2)))
    with pytest.raises(OperationConflictError):
        load(catalog, "third", ranges, [5])
    assert contents(catalog, ranges) == START


def test_nobody_changes_a_table_while_rows_are_loaded(catalog: Catalog, ranges: str) -> None:
    catalog.operations.begin("third", catalog.operations.get("first").kind, ranges, is_exclusive=True)
    with pytest.raises(OperationConflictError):
        catalog.rebalancing.change_catalog("other", ranges, MergePartitions((1, 2)))


def test_of_many_that_begin_at_once_one_holds_the_table(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    barrier, outcomes = threading.Barrier(6), list[str]()

    def run(number: int) -> None:
        with Catalog.open(catalog_url) as own:
            barrier.wait()
            try:
                own.rebalancing.begin(f"change-{number}", ranges, SPLIT)
                outcomes.append("begun")
            except OperationConflictError:
                outcomes.append("refused")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["begun"] + ["refused"] * 5


def test_changes_of_the_catalog_at_once_are_all_made_or_refused(
    catalog: Catalog, catalog_url: str, ranges: str
) -> None:
    barrier, made = threading.Barrier(3), list[int]()

    def run(partition_id: int) -> None:
        with Catalog.open(catalog_url) as own:
            barrier.wait()
            try:
                change = DropPartitions((partition_id,), with_data=True)
                assert own.rebalancing.change_catalog(f"drop-{partition_id}", ranges, change) is not None
                made.append(partition_id)
            except OperationConflictError:
                pass

    threads = [threading.Thread(target=run, args=(partition_id,)) for partition_id in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made
    assert contents(catalog, ranges) == {each: values for each, values in START.items() if each not in made}


# --- cancelled ------------------------------------------------------------------------------------------------------


def test_a_fenced_attempt_cannot_commit(catalog: Catalog, ranges: str) -> None:
    attempt, folder = begin(catalog, SPLIT)
    plan = plan_and_write(catalog, folder)
    cancel(catalog)
    with pytest.raises(FencedError):
        catalog.rebalancing.commit("change", COMMIT, attempt, plan, folder)
    assert contents(catalog, ranges) == START
    assert catalog.operations.get("change").state is OperationState.FAILED


def test_an_earlier_attempt_cannot_commit_and_the_latest_can(catalog: Catalog, ranges: str) -> None:
    first, first_folder = begin(catalog, SPLIT)
    plan = plan_and_write(catalog, first_folder)
    second, second_folder = begin(catalog, SPLIT)
    rewrite(plan, second_folder)
    with pytest.raises(FencedError):
        catalog.rebalancing.commit("change", COMMIT, first, plan, first_folder)
    assert contents(catalog, ranges) == START
    catalog.rebalancing.commit("change", COMMIT, second, plan, second_folder)
    after = {**{each: START[each] for each in (0, 1, 3)}, 4: [*range(10, 15)], 5: [*range(15, 20)]}
    assert contents(catalog, ranges) == after
    with pytest.raises(FencedError):
        catalog.rebalancing.commit("change", COMMIT, second, plan, second_folder)
    assert contents(catalog, ranges) == after


@pytest.mark.parametrize(
    "name", ["{catalog}-{number}-1", "{own}", "{own}-0", "{own}-1/..", "{own}-1\n", "0-0", "../{own}-1"]
)
def test_folder_of_no_attempt_at_the_operation_is_not_committed(catalog: Catalog, ranges: str, name: str) -> None:
    attempt, folder = begin(catalog, SPLIT)
    plan = plan_and_write(catalog, folder)
    operation = catalog.operations.get("change")
    # The number of the other operation has that of this one as a prefix.
    other = name.format(catalog=catalog.storage.identity, number=f"{operation.number}0", own=operation.folder)
    with pytest.raises(VerificationFailedError, match="no attempt at operation change wrote the folder"):
        catalog.rebalancing.commit("change", COMMIT, attempt, plan, other)
    assert contents(catalog, ranges) == START
    catalog.rebalancing.commit("change", COMMIT, attempt, plan, folder)


def test_an_abandoned_operation_fails_when_another_begins(catalog: Catalog, ranges: str) -> None:
    attempt, folder = begin(catalog, SPLIT)
    plan = plan_and_write(catalog, folder)
    with catalog.storage.write() as connection:
        long_ago = OperationRow.heartbeat_at_ms - SILENT_LEASE_MS - 1
        connection.execute(update(OperationRow).where(OperationRow.id == "change").values(heartbeat_at_ms=long_ago))
    assert catalog.rebalancing.change_catalog("merge", ranges, MergePartitions((2, 3))) is not None
    with pytest.raises(FencedError):
        catalog.rebalancing.commit("change", COMMIT, attempt, plan, folder)
    assert contents(catalog, ranges) == {0: START[0], 1: START[1], 4: [*range(10, 30)]}


def test_a_plan_from_before_others_changed_the_table_is_a_conflict(catalog: Catalog, ranges: str) -> None:
    _, folder = begin(catalog, SPLIT)
    old = plan_and_write(catalog, folder)
    cancel(catalog)
    load(catalog, "third", ranges, [11, 17])
    attempt, again = begin(catalog, SPLIT)
    rewrite(old, again)
    with pytest.raises(PlanConflictError, match="Make a new plan"):
        catalog.rebalancing.commit("change", COMMIT, attempt, old, again)
    # The retry makes a new plan, and later rows are not lost.
    attempt, third = begin(catalog, SPLIT)
    new = plan_and_write(catalog, third)
    catalog.rebalancing.commit("change", COMMIT, attempt, new, third)
    found = contents(catalog, ranges)
    assert (found[4], found[5]) == (sorted([*range(10, 15), 11]), sorted([*range(15, 20), 17]))


@pytest.mark.parametrize("between", [MergePartitions((1, 2)), DropPartitions((2,), with_data=True)], ids=str)
def test_a_plan_of_another_scheme_is_a_conflict(catalog: Catalog, ranges: str, between: PartitionChange) -> None:
    _, folder = begin(catalog, SPLIT)
    old = plan_and_write(catalog, folder)
    cancel(catalog)
    assert catalog.rebalancing.change_catalog("between", ranges, between) is not None
    expected = contents(catalog, ranges)
    attempt, again = begin(catalog, SPLIT)
    rewrite(old, again)
    with pytest.raises(PlanConflictError):
        catalog.rebalancing.commit("change", COMMIT, attempt, old, again)
    assert contents(catalog, ranges) == expected


def test_a_plan_that_was_agreed_to_is_the_one_that_is_made(catalog: Catalog, ranges: str) -> None:
    agreed = catalog.rebalancing.plan(ranges, SPLIT).fingerprint
    load(catalog, "third", ranges, [11])
    operation = catalog.rebalancing.begin("change", ranges, SPLIT, fingerprint=agreed)
    with pytest.raises(PlanConflictError, match=agreed):
        catalog.rebalancing.plan_of(operation)


def test_files_that_lack_a_row_or_their_list_are_not_committed(catalog: Catalog, ranges: str) -> None:
    attempt, folder = begin(catalog, SPLIT)
    plan = catalog.rebalancing.plan_of(catalog.operations.get("change"))
    table = catalog.get_table(ranges)
    files = write_files(table, plan.scheme, folder, range(10, 19))
    for whole in (False, True):
        if whole:
            write_manifest(table, folder, files)
        with pytest.raises(VerificationFailedError):
            catalog.rebalancing.commit("change", COMMIT, attempt, plan, folder)
        assert contents(catalog, ranges) == START


def test_a_list_of_files_counts_only_when_it_is_whole(catalog: Catalog, ranges: str) -> None:
    table = catalog.get_table(ranges)
    assert table.scheme is not None
    files = write_files(table, table.scheme, "99-1", [1, 11])
    write_manifest(table, "99-1", files)
    assert list(read_manifest(table, "99-1")) == files
    path = Path(table.location, "99-1", "_manifest.jsonl")
    text = path.read_text()
    for length in range(len(text)):
        path.write_text(text[:length])
        with pytest.raises(VerificationFailedError):
            list(read_manifest(table, "99-1"))
    path.write_text(text.replace("2]", "3]"))
    with pytest.raises(VerificationFailedError):
        list(read_manifest(table, "99-1"))


# --- killed ---------------------------------------------------------------------------------------------------------


@contextmanager
def reader(url: str, *allowed: dict[int, list[int]]) -> Iterator[None]:
    """Read a table repeatedly during the block: it always has one of the expected contents."""
    stop, looked, problems = threading.Event(), threading.Event(), list[Any]()

    def run() -> None:
        with Catalog.open(url) as own:
            while not stop.is_set():
                try:
                    found = read_contents(own, TABLE)
                    if found not in allowed:
                        problems.append(found)
                except Exception as error:
                    problems.append(error)
                looked.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert looked.wait(300), "the reader has not looked once"
        yield
    finally:
        stop.set()
        thread.join()
    assert not problems


@pytest.mark.parametrize("change", [MergePartitions((1, 2)), DropPartitions((2,), with_data=True)], ids=str)
def test_a_reader_sees_one_state_even_if_a_change_is_made_in_the_midst_of_its_look(
    catalog: Catalog, catalog_url: str, ranges: str, change: PartitionChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the partitions of the old scheme and the files of the new one, rows would be lost."""
    is_made = []

    def partitions_after_the_change(tree: Any, table: Any) -> tuple[int, ...]:
        if not is_made:
            is_made.append(True)
            with Catalog.open(catalog_url) as other:
                assert other.rebalancing.change_catalog("change", ranges, change) is not None
        return partitions_of(tree, table)

    monkeypatch.setattr(pruning, "partitions_of", partitions_after_the_change)
    found = catalog.scan_files(ranges, "c >= 10 and c < 20")
    assert is_made
    assert sum(file.row_count for file in found.files) == 10
    assert {file.partition_id for file in found.files} == set(found.partition_ids) == {2}
    assert 2 not in catalog.scan_files(ranges).partition_ids


KILLED: tuple[tuple[PartitionChange, dict[int, list[int]]], ...] = (
    (DropPartitions((2,), with_data=True), {each: START[each] for each in (0, 1, 3)}),
    (DropPartitions((3,)), {**{each: START[each] for each in (1, 2)}, 0: [*range(20, 40)]}),
    (MergePartitions((1, 2)), {0: START[0], 3: START[3], 4: [*range(20)]}),
    (AddPartitions(("50",)), {**{each: START[each] for each in (1, 2, 3)}, 4: START[0]}),
)


@pytest.mark.first_case
@pytest.mark.parametrize(("change", "after"), KILLED, ids=lambda value: str(value)[:30])
def test_a_change_of_the_catalog_that_is_killed_is_made_by_the_next_run(
    catalog: Catalog, catalog_url: str, ranges: str, change: PartitionChange, after: dict[int, list[int]]
) -> None:
    """An operation is killed at one point after the other until it has committed."""
    points = (Point.JOURNALED, Point.STARTED, Point.CHANGED, Point.COMMITTED)
    with reader(catalog_url, START, after):
        for point in points:
            arguments = (catalog_url, "change", ranges, change.as_json(), point)
            process = context.Process(target=killed_changes.change, args=arguments)
            process.start()
            process.join(300)
            assert process.exitcode == -9
            assert contents(catalog, ranges) == (after if point is Point.COMMITTED else START)
        report = catalog.rebalancing.change_catalog("change", ranges, change)
        assert report is not None
        assert contents(catalog, ranges) == after
    scheme = catalog.get_table(ranges).scheme
    assert scheme is not None
    assert report["scheme_after"] == scheme.lines()
    check_disk_after_vacuum(catalog)
    assert contents(catalog, ranges) == after


def check_disk_after_vacuum(catalog: Catalog) -> None:
    """Check that the files on disk are exactly those of the catalog."""
    table = catalog.get_table(TABLE)
    report = catalog.vacuum(grace=timedelta(0))
    assert not report.problems
    assert on_disk(table.location) == {each.path for each in catalog.scan_files(TABLE).files}


@pytest.mark.parametrize("point", [Point.LISTED, Point.MANIFEST_WRITTEN, Point.CHANGED, Point.COMMITTED])
def test_a_rewrite_that_dies_is_made_by_the_next_run(
    catalog: Catalog, catalog_url: str, ranges: str, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = {**{each: START[each] for each in (0, 1, 3)}, 4: [*range(10, 15)], 5: [*range(15, 20)]}

    def run() -> None:
        operation = catalog.rebalancing.begin("change", ranges, SPLIT)
        if operation.is_committed:
            return
        with catalog.operations.attempt("change", COMMIT) as attempt:
            plan = catalog.rebalancing.plan_of(operation)
            folder = attempt_folder(operation, attempt)
            rewrite(plan, folder)
            catalog.rebalancing.commit("change", COMMIT, attempt, plan, folder)

    with reader(catalog_url, START, after):
        with dying_at(point, monkeypatch), pytest.raises(Died):
            run()
        assert contents(catalog, ranges) == (after if point is Point.COMMITTED else START)
        run()
        assert contents(catalog, ranges) == after
    check_disk_after_vacuum(catalog)


class Died(BaseException):
    """Simulates the end of the process: `except Exception` does not catch it."""


@contextmanager
def dying_at(point: Point, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def die() -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setenv("CALVE_DIE_AT", point)
        patch.setattr("catalog.operations.failpoints.die", die)
        yield


def test_nobody_dies_where_nobody_asked_for_it(catalog: Catalog, ranges: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def die() -> None:
        raise Died

    monkeypatch.setattr("catalog.operations.failpoints.die", die)
    assert catalog.rebalancing.change_catalog("merge", ranges, MergePartitions((1, 2))) is not None
