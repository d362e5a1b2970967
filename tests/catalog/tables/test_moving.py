"""Renames that move folders and are killed by `kill -9`: they are undone, or done by the same call."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.errors import (
    CatalogUnavailableError,
    FolderBeingMovedError,
    LocationNotEmptyError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from catalog.metastores.types import HivePartition
from catalog.model.identifiers import TableName
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind, OperationState
from catalog.storage.interrupting import Task, begin
from catalog.storage.schema import PurgedFolderRow
from catalog.tables import moving
from tests.support.entries import NAME, ORDERS, PARQUET
from tests.support.killed_moves import ARCHIVE, CHANGES, NEW, OLD, SALES, change_and_die
from tests.support.processes import context

BEFORE_COMMIT = (Point.JOURNALED, Point.CHANGED, Point.PARTLY_MOVED, Point.MOVED)
TABLES = (NAME, SALES, ARCHIVE)
Files = Mapping[str, Mapping[tuple[str, ...], str]]
"""The content of the file of each partition, by table and values."""


@pytest.fixture
def entries(catalog: Catalog) -> Entries:
    """A catalog with a table of three partitions, each with a file, and an empty table with the same columns."""
    entries = Entries(catalog)
    entries.create_table(ORDERS)
    entries.create_table(replace(ORDERS, name=ARCHIVE))
    add(entries, NAME, OLD, ("DE", "2"), ("US", "2"))
    return entries


def add(entries: Entries, table: TableName, *values: tuple[str, ...]) -> None:
    """Add partitions, each with a file that has its values."""
    entries.add_partitions(table, [HivePartition(partition, PARQUET) for partition in values])
    for partition in values:
        Path(str(entries.partition(table, partition).location), "rows").write_text("/".join(partition))


def files(entries: Entries) -> Files:
    """Return what a reader of all tables finds."""
    found: dict[str, dict[tuple[str, ...], str]] = {}
    for table in TABLES:
        try:
            partitions = list(entries.partitions(table))
        except TableNotFoundError:
            continue
        found[table.name] = {
            partition.values: Path(str(partition.location), "rows").read_text() for partition in partitions
        }
    return found


def kill(entries: Entries, catalog_url: str, tmp_path: Path, change: str, point: Point) -> None:
    arguments = catalog_url, str(tmp_path / "warehouse"), change, point
    process = context.Process(target=change_and_die, args=arguments)
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL


def claims(catalog: Catalog) -> int:
    with catalog.storage.read() as connection:
        return connection.scalar(select(func.count()).select_from(PurgedFolderRow)) or 0


def files_on_disk(tmp_path: Path) -> list[str]:
    root = tmp_path / "warehouse"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.first_case
@pytest.mark.smoke
@pytest.mark.parametrize("point", BEFORE_COMMIT)
@pytest.mark.parametrize("change", CHANGES)
def test_a_killed_move_is_undone(entries: Entries, catalog_url: str, tmp_path: Path, change: str, point: Point) -> None:
    before, on_disk = files(entries), files_on_disk(tmp_path)
    kill(entries, catalog_url, tmp_path, change, point)
    if point in (Point.PARTLY_MOVED, Point.MOVED):
        assert files_on_disk(tmp_path) != on_disk
    assert entries.catalog.vacuum(grace=timedelta(0)).problems == ()
    assert files(entries) == before
    assert files_on_disk(tmp_path) == on_disk
    assert claims(entries.catalog) == 0
    operations = entries.catalog.operations.list(kinds=[OperationKind.MOVE_FOLDERS])
    assert {(operation.state, operation.failure_code) for operation in operations} == {
        (OperationState.FAILED, "UNDONE")
    }


@pytest.mark.first_case
@pytest.mark.smoke
@pytest.mark.parametrize("point", BEFORE_COMMIT)
@pytest.mark.parametrize("change", CHANGES)
def test_a_killed_move_is_done_by_the_same_call(
    entries: Entries, catalog_url: str, tmp_path: Path, change: str, point: Point
) -> None:
    kill(entries, catalog_url, tmp_path, change, point)
    CHANGES[change](entries)
    again = files(entries), files_on_disk(tmp_path)
    assert claims(entries.catalog) == 0
    # The end of an undisturbed change: a new catalog has the same tables and the same change.
    assert again == (EXPECTED[change], sorted(PATHS[change]))
    assert entries.catalog.vacuum(grace=timedelta(0)).problems == ()
    assert (files(entries), files_on_disk(tmp_path)) == again


ROWS = {values: "/".join(values) for values in (OLD, ("DE", "2"), ("US", "2"))}
_DE = {values: text for values, text in ROWS.items() if values[0] == "DE"}
EXPECTED: Mapping[str, Files] = {
    "table": {"sales": ROWS, "archive": {}},
    "partition": {
        "orders": {NEW: "DE/1", **{values: text for values, text in ROWS.items() if values != OLD}},
        "archive": {},
    },
    "exchange": {"orders": {("US", "2"): "US/2"}, "archive": _DE},
}
PATHS = {
    "table": [f"demo/sales/country={country}/day={day}/rows" for country, day in ROWS],
    "partition": [f"demo/orders/country={country}/day={day}/rows" for country, day in (NEW, ("DE", "2"), ("US", "2"))],
    "exchange": [
        "demo/orders/country=US/day=2/rows",
        *(f"demo/archive/country={country}/day={day}/rows" for country, day in _DE),
    ],
}


@pytest.mark.smoke
@pytest.mark.parametrize("change", CHANGES)
def test_a_move_that_is_killed_after_its_commit_is_made(
    entries: Entries, catalog_url: str, tmp_path: Path, change: str
) -> None:
    kill(entries, catalog_url, tmp_path, change, Point.COMMITTED)
    assert files(entries) == EXPECTED[change]
    assert entries.catalog.vacuum(grace=timedelta(0)).problems == ()
    assert (files(entries), files_on_disk(tmp_path)) == (EXPECTED[change], sorted(PATHS[change]))
    assert claims(entries.catalog) == 0


def make_and_drop(entries: Entries) -> None:
    """Make and drop a table of the new name, with its files."""
    entries.create_table(replace(ORDERS, name=SALES))
    add(entries, SALES, ("IT", "1"))
    entries.drop_table(SALES, delete_data=True)


def make_and_drop_around(entries: Entries) -> None:
    """Make and drop a table whose location is around the new folder."""
    location = f"{Path(str(entries.table(NAME).location)).parent}/sales/country=DE"
    entries.create_table(replace(ORDERS, name=TableName("demo", "other"), location=location))
    add(entries, TableName("demo", "other"), ("IT", "1"))
    entries.drop_table(TableName("demo", "other"), delete_data=True)


def make_and_drop_own(entries: Entries) -> None:
    """Make and drop a table of the new name by a statement."""
    entries.catalog.create_table("demo.sales", columns=[("id", "bigint")])
    entries.catalog.drop_table("demo.sales", purge=True)


def add_and_drop_partition(entries: Entries) -> None:
    """Add and drop a partition of the table."""
    add(entries, NAME, NEW)
    entries.drop_partitions(NAME, [NEW], delete_data=True)


def add_and_drop_exchanged(entries: Entries) -> None:
    """Add and drop a partition of the other table."""
    add(entries, ARCHIVE, OLD)
    entries.drop_partitions(ARCHIVE, [OLD], delete_data=True)


def remake(entries: Entries) -> None:
    """Try to make the table again."""
    with pytest.raises(TableAlreadyExistsError):
        entries.create_table(ORDERS)
    entries.alter_table(NAME, replace(entries.table(NAME), parameters={"a": "b"}))


@pytest.mark.first_case
@pytest.mark.parametrize("point", [Point.JOURNALED, Point.MOVED])
@pytest.mark.parametrize(
    ("change", "others"),
    [
        ("table", make_and_drop),
        ("table", make_and_drop_around),
        ("table", make_and_drop_own),
        ("table", add_and_drop_partition),
        ("table", remake),
        ("partition", add_and_drop_partition),
        ("exchange", add_and_drop_exchanged),
        ("exchange", add_and_drop_partition),
    ],
)
def test_others_lose_no_rows_of_a_killed_move(
    entries: Entries,
    catalog_url: str,
    tmp_path: Path,
    change: str,
    others: Callable[[Entries], None],
    point: Point,
) -> None:
    before = files(entries)
    kill(entries, catalog_url, tmp_path, change, point)
    others(entries)
    entries.catalog.vacuum(grace=timedelta(0))
    assert files(entries) == before
    assert claims(entries.catalog) == 0
    CHANGES[change](entries)
    assert files(entries) == EXPECTED[change]


def test_a_table_is_dropped_with_its_files_after_a_killed_rename(
    entries: Entries, catalog_url: str, tmp_path: Path
) -> None:
    kill(entries, catalog_url, tmp_path, "table", Point.MOVED)
    entries.drop_table(NAME, delete_data=True)
    assert files_on_disk(tmp_path) == []
    entries.create_table(replace(ORDERS, name=SALES))
    add(entries, SALES, OLD)
    entries.catalog.vacuum(grace=timedelta(0))
    assert files(entries)["sales"] == {OLD: "DE/1"}


def test_files_that_came_to_the_old_folder_meanwhile_stay(entries: Entries, catalog_url: str, tmp_path: Path) -> None:
    before, location = files(entries), Path(str(entries.table(NAME).location))
    kill(entries, catalog_url, tmp_path, "table", Point.MOVED)
    (location / "country=DE/day=1").mkdir(parents=True)
    (location / "country=DE/day=1/more").write_text("of an engine")
    entries.catalog.vacuum(grace=timedelta(0))
    assert files(entries) == before
    assert (location / "country=DE/day=1/more").read_text() == "of an engine"


def test_files_of_the_same_names_prevent_the_return_until_one_is_renamed(
    entries: Entries, catalog_url: str, tmp_path: Path
) -> None:
    before, location = files(entries), Path(str(entries.table(NAME).location))
    kill(entries, catalog_url, tmp_path, "table", Point.MOVED)
    (location / "country=DE/day=1").mkdir(parents=True)
    taken = location / "country=DE/day=1/rows"
    taken.write_text("of an engine")
    with pytest.raises(LocationNotEmptyError, match="both have a file rows"):
        add(entries, NAME, NEW)
    (problem,) = entries.catalog.vacuum(grace=timedelta(0)).problems[:1]
    assert "both have a file rows" in problem
    taken.rename(taken.with_name("more"))
    entries.catalog.vacuum(grace=timedelta(0))
    assert files(entries) == before


def test_a_folder_of_others_at_the_target_does_not_move(entries: Entries, catalog_url: str, tmp_path: Path) -> None:
    before, target = files(entries), Path(str(entries.table(NAME).location)).with_name("sales")
    kill(entries, catalog_url, tmp_path, "table", Point.JOURNALED)
    target.mkdir()
    (target / "file").write_text("of others")
    entries.catalog.vacuum(grace=timedelta(0))
    assert files(entries) == before
    assert (target / "file").read_text() == "of others"
    with pytest.raises(LocationNotEmptyError, match="which has files"):
        CHANGES["table"](entries)
    assert (files(entries), claims(entries.catalog)) == (before, 0)
    shutil.rmtree(target)
    CHANGES["table"](entries)
    assert files(entries) == EXPECTED["table"]


def test_a_move_that_others_have_ended_is_journaled_again(entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, ended = entries.catalog.storage, []

    def reached(point: Point) -> None:
        if point is Point.JOURNALED and len(ended) < 3:
            ended.append(moving.settle_all(storage))

    monkeypatch.setattr(moving, "reached", reached)
    CHANGES["table"](entries)
    assert ended == [1, 1, 1]
    assert (files(entries), claims(entries.catalog)) == (EXPECTED["table"], 0)


def test_a_folder_that_another_has_taken_the_place_of_is_journaled_again(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, journaled = Path(str(entries.table(NAME).location)), []

    def reached(point: Point) -> None:
        if point is Point.JOURNALED:
            journaled.append(point)
            if len(journaled) == 1:
                shutil.copytree(location, location.with_name("copy"))
                location.rename(location.with_name("former"))
                location.with_name("copy").rename(location)
        if point is Point.MOVED:
            raise KeyboardInterrupt

    before = files(entries)
    monkeypatch.setattr(moving, "reached", reached)
    with pytest.raises(KeyboardInterrupt):
        CHANGES["table"](entries)
    assert len(journaled) == 2
    assert (files(entries), claims(entries.catalog)) == (before, 0)


def test_a_request_that_is_interrupted_while_a_folder_moves_is_undone(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(entries)

    def change() -> None:
        begin(task := Task())

        def reached(point: Point) -> None:
            if point is Point.PARTLY_MOVED:
                task.interrupt()
                raise CatalogUnavailableError("interrupted")

        monkeypatch.setattr(moving, "reached", reached)
        with pytest.raises(CatalogUnavailableError):
            CHANGES["exchange"](entries)

    copy_context().run(change)
    assert (files(entries), claims(entries.catalog)) == (before, 0)


def test_a_folder_is_refused_while_another_transaction_has_the_moving_table(
    entries: Entries, catalog_url: str, tmp_path: Path
) -> None:
    storage, table = entries.catalog.storage, entries.catalog.get_table("demo.orders")
    if not storage.is_postgresql:
        pytest.skip("a second transaction waits for the end of the first one")
    kill(entries, catalog_url, tmp_path, "table", Point.MOVED)
    with storage.write() as connection:
        storage.lock_table(connection, table.id, exclusive=True)
        with pytest.raises(FolderBeingMovedError, match="try again in a moment"):
            entries.create_table(replace(ORDERS, name=SALES))
    make_and_drop(entries)
    assert files(entries) == {"orders": ROWS, "archive": {}}
