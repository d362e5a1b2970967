"""Identities are never reused: continued work finds its own table, index or operation, or none."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, select, update

from catalog import Catalog, IndexDefinition, IndexState, NewPartition, Table
from catalog.errors import (
    CatalogError,
    ConflictError,
    IndexBuildEndedError,
    OperationConflictError,
    TableNotFoundError,
)
from catalog.indexes import building
from catalog.indexes.definitions import IdRange, change_state
from catalog.indexes.verifying import repair_range, verify
from catalog.operations.records import OperationKind
from catalog.partitions.adding import PartitionAdder
from catalog.storage.schema import IndexItemRow, PartitionIndexRow, TableRow
from tests.catalog.loading.test_loading import ROWS, Load, assert_loaded
from tests.catalog.loading.test_loading import TABLE as LOADED
from tests.support.effort import effort
from tests.support.index_items import assert_every_partition_has_its_item

FLIGHTS = "demo.flights"
STRESS_SECONDS = effort(3.0, 300.0)
THREADS = 8


def add_flights(catalog: Catalog, years: range, origin: str = "JFK") -> None:
    catalog.add_partitions(FLIGHTS, [NewPartition([origin, str(year), None]) for year in years])


def test_a_builder_that_was_stopped_never_writes_into_another_index(catalog: Catalog, flights: Table) -> None:
    add_flights(catalog, range(1900, 2000))
    first = catalog.create_partition_index(FLIGHTS, "by_year", ["year"])
    ranges = building.ranges_to_do(catalog.storage, first)

    catalog.delete_partition_index(FLIGHTS, "by_year")
    second = catalog.create_partition_index(FLIGHTS, "by_origin", ["origin"])
    with pytest.raises(IndexBuildEndedError):
        building.backfill(catalog.storage, flights, first, ranges)

    assert second.id != first.id
    assert catalog.build_partition_index(FLIGHTS, "by_origin").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, FLIGHTS)
    assert len(list(catalog.get_partitions(FLIGHTS, "origin = 'JFK'"))) == 100


@pytest.mark.parametrize("step", ["remove_ranges", "delete_all_items", "remove_index"])
def test_a_slow_deleter_leaves_a_new_index_alone(
    catalog: Catalog, flights: Table, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    add_flights(catalog, range(1900, 2000))
    old = catalog.create_partition_index(FLIGHTS, "by_year", ["year"])
    with catalog.storage.write() as connection:
        change_state(connection, old.id, [IndexState.CREATING], IndexState.DELETING)
    continue_slowly = getattr(building, step)

    def be_overtaken(*arguments: Any) -> None:
        monkeypatch.undo()
        catalog.create_partition_index(FLIGHTS, "by_origin", ["origin"])
        continue_slowly(*arguments)

    def before_transaction(storage: Any, table: Table) -> Any:
        ended = original(storage, table)
        monkeypatch.undo()
        catalog.create_partition_index(FLIGHTS, "by_origin", ["origin"])
        return ended

    original = building._ended
    if step == "delete_all_items":
        monkeypatch.setattr(building, step, be_overtaken)
    else:
        # The other two run inside a transaction; SQLite has no concurrent writers.
        monkeypatch.setattr(building, "_ended", before_transaction)
    building.clear_ended(catalog.storage, flights)

    assert [index.name for index in catalog.get_partition_indexes(FLIGHTS)] == ["by_origin"]
    assert catalog.build_partition_index(FLIGHTS, "by_origin").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, FLIGHTS)


def test_no_id_is_used_twice(catalog: Catalog) -> None:
    ids: dict[str, list[int]] = {"table": [], "index": [], "operation": []}
    for number in range(3):
        table = catalog.create_table(
            "demo.again",
            columns=[],
            partition_keys=[("n", "int")],
            indexes=[IndexDefinition("i", ["n"])],
        )
        ids["table"].append(table.id)
        ids["index"].append(catalog.get_partition_index("demo.again", "i").id)
        catalog.repair_table("demo.again", operation_id=f"repair-{number}")
        ids["operation"].append(catalog.operations.get(f"repair-{number}").number)
        catalog.drop_table("demo.again")
    for found in ids.values():
        assert sorted(set(found)) == found


class _Churn:
    """Threads that create, build, verify and delete indexes of two tables, and add and drop their partitions."""

    TABLES = ("demo.one", "demo.two")
    KEYS = (["n"], ["s"], ["s", "n"], ["n", "s"])

    def __init__(self, catalog: Catalog, seconds: float) -> None:
        self.catalog = catalog
        for table in self.TABLES:
            catalog.create_table(table, columns=[], partition_keys=[("s", "string"), ("n", "int")])
            catalog.add_partitions(table, [NewPartition([str(n % 7), str(n)]) for n in range(500)])
        self.until = time.monotonic() + seconds

    def run(self, seed: int) -> None:
        """Repeat an action, at least once."""
        chance = random.Random(seed)
        actions = (self.create, self.create, self.build, self.build, self.delete, self.verify, self.add, self.drop)
        while True:
            with suppress(CatalogError):
                chance.choice(actions)(chance, chance.choice(self.TABLES))
            if time.monotonic() >= self.until:
                return

    def create(self, chance: random.Random, table: str) -> None:
        self.catalog.create_partition_index(table, f"i{chance.randrange(3)}", chance.choice(self.KEYS))

    def build(self, chance: random.Random, table: str) -> None:
        self.catalog.build_partition_index(table, f"i{chance.randrange(3)}")

    def delete(self, chance: random.Random, table: str) -> None:
        self.catalog.delete_partition_index(table, f"i{chance.randrange(3)}")

    def verify(self, chance: random.Random, table: str) -> None:
        assert self.catalog.verify_partition_index(table, f"i{chance.randrange(3)}").is_exact

    def add(self, chance: random.Random, table: str) -> None:
        first = chance.randrange(1000, 10_000)
        rows = [NewPartition([str(n % 7), str(n)]) for n in range(first, first + 5)]
        self.catalog.add_partitions(table, rows, if_not_exists=True)

    def drop(self, chance: random.Random, table: str) -> None:
        first = chance.randrange(1000, 10_000)
        self.catalog.drop_partitions(table, f"n between {first} and {first + 50}")


@pytest.mark.long
@pytest.mark.timeout(300 + STRESS_SECONDS)
def test_indexes_stay_right_while_threads_create_build_and_delete_them(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "RANGE_SIZE", 100)
    churn = _Churn(catalog, STRESS_SECONDS)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(churn.run, range(THREADS)))

    for table in churn.TABLES:
        for index in catalog.get_partition_indexes(table):
            if index.state is IndexState.CREATING:
                catalog.build_partition_index(table, index.name)
        building.clear_ended(catalog.storage, catalog.get_table(table))
        assert {index.state for index in catalog.get_partition_indexes(table)} <= {IndexState.ACTIVE}
        assert_every_partition_has_its_item(catalog, table)
    with catalog.storage.read() as connection:
        known = select(PartitionIndexRow.id)
        left = select(func.count()).where(IndexItemRow.index_id.not_in(known))
        assert connection.scalar(left) == 0


# --- operations belong to a table, not to a name --------------------------------------------------------------------


def begin_load(catalog: Catalog, operation_id: str, table: str = FLIGHTS) -> None:
    catalog.operations.begin(operation_id, OperationKind.ADD_PARTITIONS, table, is_exclusive=True)


def elsewhere(catalog: Catalog, name: str, location: Path) -> Table:
    return catalog.create_table(
        name, columns=[("x", "int")], partition_keys=[("k", "string")], location=str(location / name)
    )


def test_an_operation_excludes_others_under_the_table_s_new_name(catalog: Catalog, flights: Table) -> None:
    begin_load(catalog, "load")
    catalog.alter_table(FLIGHTS, rename_to="old")

    with pytest.raises(OperationConflictError, match="load"):
        catalog.repair_table("demo.old")
    assert catalog.operations.get("load").table == "demo.old"
    for name in (FLIGHTS, "demo.old"):
        assert [operation.id for operation in catalog.operations.list(name)] == ["load"]
    catalog.operations.start_job("load", "stage")
    with pytest.raises(ConflictError, match="load"):
        catalog.alter_table("demo.old", rename_to="older")


def test_an_operation_never_moves_to_a_new_table_of_the_name(catalog: Catalog, flights: Table, tmp_path: Path) -> None:
    begin_load(catalog, "load")
    catalog.alter_table(FLIGHTS, rename_to="old")
    elsewhere(catalog, FLIGHTS, tmp_path)

    with pytest.raises(OperationConflictError, match=r"now named demo\.old"):
        begin_load(catalog, "load")
    begin_load(catalog, "another load")
    assert catalog.operations.get("load").table_id == flights.id
    with pytest.raises(OperationConflictError, match="'load'"):
        begin_load(catalog, "third", "demo.old")


def test_an_operation_on_a_dropped_table_cannot_go_on_with_the_next_one(
    catalog: Catalog, flights: Table, tmp_path: Path
) -> None:
    begin_load(catalog, "load")
    catalog.drop_table(FLIGHTS)
    elsewhere(catalog, FLIGHTS, tmp_path)

    with pytest.raises(TableNotFoundError, match="dropped"):
        catalog.operations.start_job("load", "stage")
    # It does not hold the new table; begun again, it runs on the new table.
    catalog.repair_table(FLIGHTS)
    begin_load(catalog, "load")
    assert catalog.operations.get("load").table_id == catalog.get_table(FLIGHTS).id
    catalog.operations.start_job("load", "stage")


def test_first_loads_exclude_each_other_before_and_after_the_table_exists(catalog: Catalog, tmp_path: Path) -> None:
    begin_load(catalog, "first", "demo.unborn")
    with pytest.raises(OperationConflictError, match="first"):
        begin_load(catalog, "second", "demo.unborn")
    assert catalog.operations.get("first").table_id is None

    table = elsewhere(catalog, "demo.unborn", tmp_path)
    assert catalog.operations.get("first").table_id == table.id
    catalog.alter_table("demo.unborn", rename_to="born")
    with pytest.raises(OperationConflictError, match="first"):
        begin_load(catalog, "second", "demo.born")
    begin_load(catalog, "second", "demo.unborn")


def test_no_table_is_renamed_to_a_name_that_a_first_load_holds(catalog: Catalog, flights: Table) -> None:
    begin_load(catalog, "first", "demo.unborn")
    with pytest.raises(OperationConflictError, match="first"):
        catalog.alter_table(FLIGHTS, rename_to="unborn")
    catalog.operations.fail("first", "CANCELLED", "by the user")
    catalog.alter_table(FLIGHTS, rename_to="unborn")


def test_tables_that_share_a_folder_since_before_exclude_each_other(
    catalog: Catalog, flights: Table, tmp_path: Path
) -> None:
    twin = elsewhere(catalog, "demo.twin", tmp_path)
    with catalog.storage.write() as connection:
        key = select(TableRow.location_key).where(TableRow.id == flights.id).scalar_subquery()
        values = {"location": flights.location, "location_key": key}
        connection.execute(update(TableRow).where(TableRow.id == twin.id).values(**values))
    begin_load(catalog, "load")
    name = catalog.loading.staging_name(catalog.operations.get("load"), catalog.operations.start_job("load", "write"))
    (Path(flights.location) / name).mkdir(parents=True)
    with pytest.raises(OperationConflictError, match="'load'"):
        catalog.repair_table("demo.twin")
    catalog.operations.fail("load", "TEST", "ended by the test")
    catalog.repair_table("demo.twin")
    assert (Path(flights.location) / name).exists()


@pytest.mark.usefixtures("overlapping_locations")
def test_a_repair_of_a_renamed_table_undoes_no_load_of_the_next(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create() -> Table:
        keys = [("origin", "string"), ("month", "int")]
        return catalog.create_table(LOADED, columns=[("v", "int")], partition_keys=keys)

    def repair(*_arguments: object) -> None:
        with suppress(OperationConflictError):
            catalog.repair_table("demo.renamed")

    def die_after_the_moves(*_arguments: object) -> None:
        # SQLite has no other writers before the transaction ends.
        if catalog.storage.is_postgresql:
            repair()
        raise InterruptedError

    create()
    catalog.alter_table(LOADED, rename_to="renamed")
    table = create()
    assert table.location == catalog.get_table("demo.renamed").location
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "01.csv").touch()
    load = Load(catalog, table, tmp_path / "landing")
    load.discover()
    load.stage()
    with monkeypatch.context() as patch:
        patch.setattr(catalog.loading, "_note_sources", die_after_the_moves)
        with pytest.raises(InterruptedError):
            load.publish()
    repair()
    load.publish()
    repair()
    assert_loaded(catalog, table, ROWS)


def replaced(catalog: Catalog, flights: Table, location: Path) -> Table:
    """Rename a table, and give its name to another one."""
    twin = elsewhere(catalog, "demo.twin", location)
    with catalog.storage.write() as connection:
        for table, name in ((flights, "old"), (twin, flights.name)):
            connection.execute(update(TableRow).where(TableRow.id == table.id).values(name=name))
    return catalog.get_table(FLIGHTS)


def test_a_repair_never_writes_into_the_index_of_another_table(
    catalog: Catalog, flights: Table, tmp_path: Path
) -> None:
    add_flights(catalog, range(1900, 2000))
    new = replaced(catalog, flights, tmp_path)
    catalog.create_partition_index(FLIGHTS, "by_key", ["k"])
    catalog.add_partitions(FLIGHTS, [NewPartition([str(number)]) for number in range(10)])
    index = catalog.get_partition_index(FLIGHTS, "by_key")
    with pytest.raises(CatalogError):
        verify(catalog.storage, flights, index, repair=True)
    with catalog.storage.write() as connection:
        assert repair_range(catalog.storage, connection, flights, index, IdRange(0, 10**9)) == 0
    assert catalog.get_table(FLIGHTS).id == new.id
    assert_every_partition_has_its_item(catalog, FLIGHTS)


def test_a_writer_that_waited_for_a_table_never_gets_another_one(
    catalog: Catalog, flights: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = elsewhere(catalog, "demo.twin", tmp_path)
    lock = catalog.storage.lock_table

    def lock_late(connection: Connection, table_id: int, **arguments: Any) -> bool:
        for table, name in ((flights, "old"), (twin, flights.name)):
            connection.execute(update(TableRow).where(TableRow.id == table.id).values(name=name))
        return lock(connection, table_id, **arguments)

    monkeypatch.setattr(catalog.storage, "lock_table", lock_late)
    with pytest.raises(TableNotFoundError, match="renamed or dropped"):
        add_flights(catalog, range(1900, 1901))
    monkeypatch.undo()
    catalog.drop_table("demo.twin")
    renamed = replaced(catalog, flights, tmp_path)
    with catalog.storage.write() as connection, pytest.raises(TableNotFoundError):
        PartitionAdder(connection, catalog._definitions, flights)
    assert renamed.id != flights.id


def test_threads_that_begin_and_rename_leave_one_operation_at_work(catalog: Catalog, flights: Table) -> None:
    names = (FLIGHTS, "demo.other")

    def begin(number: int) -> bool:
        with suppress(CatalogError):
            if number % 3 == 0:
                catalog.alter_table(names[number % 2], rename_to=names[1 - number % 2].split(".")[1])
            else:
                begin_load(catalog, f"load-{number}", names[number % 2])
                return True
        return False

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(begin, range(48)))
    held = [operation for operation in catalog.operations.list() if operation.table_id == flights.id]
    assert len(held) <= 1
    waiting = [operation.table for operation in catalog.operations.list() if operation.table_id is None]
    assert len(waiting) == len(set(waiting))
