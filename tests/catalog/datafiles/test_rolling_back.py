"""Roll-backs: the catalog's rows, scheme and partitions, and what other engines read, are those of the snapshot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from catalog import Catalog, Column
from catalog.errors import (
    InvalidSchemeError,
    OperationConflictError,
    OperationReusedError,
    PlanConflictError,
    UnknownSnapshotError,
)
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind, OperationState
from catalog.rebalancing.changes import AddPartitions, DropPartitions, MergePartitions, PartitionChange, SplitPartition
from catalog.rebalancing.rebalancing import COMMIT
from catalog.schemes.model import Scheme
from catalog.schemes.ranges import RangeScheme
from catalog.statements.session import Session
from catalog.storage.schema import DataFileRow, RevisionRow
from catalog.tables.schemes import scheme_from_properties
from tests.support import killed_changes
from tests.support.effort import effort
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import contents, load, rebalance
from tests.support.processes import context
from tests.support.published import duckdb_reader, published
from tests.support.written_files import on_disk

TABLE = "demo.t"
NOW = timedelta(0)


@pytest.fixture
def ranges(catalog: Catalog) -> str:
    """A table of the ranges up to 10, 20 and 30, with a file in each and in the default partition."""
    return make(catalog, TABLE)


def make(catalog: Catalog, name: str) -> str:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    catalog.create_table(name, columns=[("c", "int")], scheme=scheme)
    load(catalog, f"first-{name}", name, range(40))
    return name


def current(catalog: Catalog, name: str = TABLE) -> int:
    snapshot = published(catalog, name).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def scheme_of(catalog: Catalog, name: str = TABLE) -> Scheme:
    scheme = catalog.get_table(name).scheme
    assert scheme is not None
    return scheme


def ids(catalog: Catalog) -> list[int]:
    """Return the ids of the file rows."""
    with catalog.storage.read() as connection:
        return sorted(connection.scalars(DataFileRow.__table__.select().with_only_columns(DataFileRow.id)))


def rows(url: str) -> list[Any]:
    with sql_catalog(url) as iceberg:
        found: list[Any] = iceberg.load_table(TABLE).scan().to_arrow()["c"].to_pylist()
    return sorted(found)


# --- what a roll-back restores ----------------------------------------------------------------------------------------


def test_every_state_is_restored_for_every_reader(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    states = [(current(catalog), contents(catalog, TABLE), scheme_of(catalog), ids(catalog))]
    for number, change in enumerate(
        [
            SplitPartition(2, ("15", "20")),
            AddPartitions(("35",)),
            DropPartitions((1,), with_data=True),
            DropPartitions((3,), with_data=False),
            MergePartitions((4, 5)),
        ]
    ):
        rebalance(catalog, f"change-{number}", TABLE, change)
        load(catalog, f"load-{number}", TABLE, [number, 100 + number])
        states.append((current(catalog), contents(catalog, TABLE), scheme_of(catalog), ids(catalog)))
    for snapshot_id, expected, scheme, file_ids in [*reversed(states), *states]:
        before = current(catalog)
        report = catalog.roll_backs.to_snapshot(TABLE, snapshot_id)
        assert (report["snapshot_id_before"], report["snapshot_id"]) == (before, snapshot_id)
        assert report["rows"] == sum(map(len, expected.values()))
        assert current(catalog) == snapshot_id
        assert contents(catalog, TABLE) == expected
        assert scheme_of(catalog).lines() == scheme.lines()
        assert scheme_of(catalog).ids == scheme.ids
        assert ids(catalog) == file_ids
        assert rows(catalog_url) == sorted(value for values in expected.values() for value in values)
    location = catalog.get_table(TABLE).published_location
    found = duckdb_reader().sql(f"SELECT count(*) FROM iceberg_scan('{location}')").fetchone()
    assert found == (sum(map(len, states[-1][1].values())),)


def test_partition_ids_are_not_used_again(catalog: Catalog, ranges: str) -> None:
    first = current(catalog)
    rebalance(catalog, "split", TABLE, SplitPartition(2, ("15", "20")))
    assert scheme_of(catalog).ids == (0, 1, 4, 5, 3)
    catalog.roll_backs.to_snapshot(TABLE, first)
    assert scheme_of(catalog).ids == (0, 1, 2, 3)
    rebalance(catalog, "split again", TABLE, SplitPartition(2, ("12", "20")))
    assert scheme_of(catalog).ids == (0, 1, 6, 7, 3)
    assert contents(catalog, TABLE)[6] == [10, 11]


def test_the_schema_stays(catalog: Catalog, catalog_url: str, ranges: str) -> None:
    first = current(catalog)
    catalog.alter_table(TABLE, add_columns=[("note", "string")])
    load(catalog, "second", TABLE, [7])
    catalog.roll_backs.to_snapshot(TABLE, first)
    assert contents(catalog, TABLE)[1] == [*range(10)]
    assert [column.name for column in catalog.get_table(TABLE).columns] == ["note", "c"]
    assert rows(catalog_url) == [*range(40)]


def test_to_the_state_of_a_time(catalog: Catalog, ranges: str) -> None:
    first = current(catalog)
    between = datetime.fromtimestamp(catalog.storage.now_ms() / 1000, UTC) + timedelta(milliseconds=1)
    with pytest.raises(UnknownSnapshotError, match="has no snapshot of 2001-01-01"):
        catalog.roll_backs.to_time(TABLE, datetime(2001, 1, 1, tzinfo=UTC))
    while catalog.storage.now_ms() <= between.timestamp() * 1000:
        pass
    load(catalog, "second", TABLE, [7])
    second = current(catalog)
    assert catalog.roll_backs.to_time(TABLE, between, operation_id="back")["snapshot_id"] == first
    assert contents(catalog, TABLE)[1] == [*range(10)]
    catalog.roll_backs.to_snapshot(TABLE, second)
    assert catalog.roll_backs.to_time(TABLE, between, operation_id="back")["snapshot_id"] == first
    assert current(catalog) == second, "a repeated call only returns the report"


def test_as_a_statement(catalog: Catalog, ranges: str) -> None:
    first = current(catalog)
    load(catalog, "second", TABLE, [7, 8])
    second = current(catalog)
    later = "TIMESTAMP '2200-01-01 00:00:00'"
    with Session(catalog) as session:
        result = session.execute(f"CALL calve.system.rollback_to_snapshot('demo.t', {first})")
        assert (result.columns, result.rows) == (("previous_snapshot_id", "current_snapshot_id"), [[second, first]])
        text = "demo.t has 40 row(s) in 4 file(s) again; before: 42 row(s) in 5 file(s), snapshot "
        assert result.text == f"{text}{second}"
        session.execute("USE demo")
        result = session.execute(f"CALL calve.system.rollback_to_timestamp('t', {later})")
        assert result.rows == [[first, first]]
        with pytest.raises(UnknownSnapshotError) as raised:
            session.execute("CALL calve.system.rollback_to_snapshot('demo.t', 77)")
    assert raised.value.position == 49


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_snapshot_that_was_replaced_before_the_catalog_has_read_it_is_called_so(
    catalog: Catalog, catalog_url: str, ranges: str
) -> None:
    first = current(catalog)
    with sql_catalog(catalog_url) as iceberg:
        for value in (7, 8):
            iceberg.load_table(TABLE).append(pa.table({"c": pa.array([value], pa.int32())}))
        second, third = (line.snapshot_id for line in iceberg.load_table(TABLE).history()[-2:])
    with pytest.raises(UnknownSnapshotError, match=f"has never read table demo.t at its snapshot {second}") as raised:
        catalog.roll_backs.to_snapshot(TABLE, second)
    assert [snapshot_id for snapshot_id, _ in raised.value.known] == [third, first]
    assert str(raised.value).endswith("or roll the table back by an engine")


def test_unknown_foreign_and_expired_snapshots_are_refused_with_the_known_ones(catalog: Catalog, ranges: str) -> None:
    first = current(catalog)
    other = current(catalog, make(catalog, "demo.other"))
    load(catalog, "second", TABLE, [7])
    second = current(catalog)
    for unknown in (1, other):
        with pytest.raises(UnknownSnapshotError) as raised:
            catalog.roll_backs.to_snapshot(TABLE, unknown)
        assert f"table demo.t has no snapshot {unknown}, or it has expired" in str(raised.value)
        assert [snapshot_id for snapshot_id, _ in raised.value.known] == [second, first]
    catalog.vacuum(grace=NOW)
    with pytest.raises(UnknownSnapshotError) as raised:
        catalog.roll_backs.to_snapshot(TABLE, first)
    assert [snapshot_id for snapshot_id, _ in raised.value.known] == [second]
    assert not [each for each in catalog.operations.list() if each.kind is OperationKind.ROLL_BACK]
    catalog.create_table("demo.plain", columns=[("c", "int")])
    with pytest.raises(InvalidSchemeError, match="no history to roll back to"):
        catalog.roll_backs.to_snapshot("demo.plain", first)


def test_one_operation_is_one_roll_back(catalog: Catalog, ranges: str) -> None:
    first = current(catalog)
    load(catalog, "second", TABLE, [7])
    second = current(catalog)
    report = catalog.roll_backs.to_snapshot(TABLE, first, operation_id="back", requested_by="ann")
    catalog.roll_backs.to_snapshot(TABLE, second)
    assert catalog.roll_backs.to_snapshot(TABLE, first, operation_id="back") == report
    assert current(catalog) == second
    with pytest.raises(OperationReusedError):
        catalog.roll_backs.to_snapshot(TABLE, second, operation_id="back")
    operation = catalog.operations.get("back")
    assert (operation.kind, operation.state) == (OperationKind.ROLL_BACK, OperationState.CLEANED)
    assert operation.requested_by == "ann"


def test_a_running_operation_keeps_its_table(catalog: Catalog, ranges: str) -> None:
    first = current(catalog)
    load(catalog, "second", TABLE, [7])
    catalog.operations.begin("running", OperationKind.LOAD_ROWS, TABLE, is_exclusive=True)
    with pytest.raises(OperationConflictError):
        catalog.roll_backs.to_snapshot(TABLE, first)


def test_a_plan_from_before_a_roll_back_is_refused(catalog: Catalog, ranges: str) -> None:
    first = current(catalog)
    load(catalog, "second", TABLE, [17])
    plan = catalog.rebalancing.plan(TABLE, DropPartitions((2,), with_data=True))
    catalog.roll_backs.to_snapshot(TABLE, first)
    catalog.rebalancing.begin("drop", TABLE, plan.change)
    with pytest.raises(PlanConflictError), catalog.operations.attempt("drop", COMMIT) as attempt:
        catalog.rebalancing.commit("drop", COMMIT, attempt, plan)


# --- kills, and vacuum ------------------------------------------------------------------------------------------------


@pytest.mark.first_case
@pytest.mark.parametrize("point", [Point.JOURNALED, Point.STARTED, Point.CHANGED, Point.COMMITTED])
def test_a_killed_roll_back_is_made_by_the_next_run(
    catalog: Catalog, catalog_url: str, ranges: str, point: Point
) -> None:
    first = current(catalog)
    rebalance(catalog, "split", TABLE, SplitPartition(2, ("15", "20")))
    second, after = current(catalog), contents(catalog, TABLE)
    killed(killed_changes.roll_back, catalog_url, "back", TABLE, first, point)
    if point is Point.COMMITTED:
        assert current(catalog) == first
    else:
        assert current(catalog) == second
        assert contents(catalog, TABLE) == after
    report = catalog.roll_backs.to_snapshot(TABLE, first, operation_id="back")
    assert (report["snapshot_id_before"], report["snapshot_id"]) == (second, first)
    assert set(contents(catalog, TABLE)) == {0, 1, 2, 3}
    load(catalog, "next", TABLE, [5])
    catalog.vacuum(TABLE, grace=NOW)
    assert contents(catalog, TABLE)[1] == sorted([5, *range(10)])


@pytest.mark.first_case
@pytest.mark.parametrize("point", [Point.CHANGED, Point.COMMITTED, Point.FILES_DELETED])
def test_a_killed_vacuum_is_finished_by_the_next_run(
    catalog: Catalog, catalog_url: str, ranges: str, point: Point
) -> None:
    first = current(catalog)
    rebalance(catalog, "drop", TABLE, DropPartitions((1,), with_data=True))
    rebalance(catalog, "split", TABLE, SplitPartition(2, ("15", "20")))
    catalog.roll_backs.to_snapshot(TABLE, first)
    expected = contents(catalog, TABLE)
    killed(killed_changes.vacuum, catalog_url, point, NOW)
    assert contents(catalog, TABLE) == expected
    report = catalog.vacuum(grace=NOW)
    assert report.problems == ()
    assert contents(catalog, TABLE) == expected
    assert on_disk(catalog.get_table(TABLE).location) == {file.path for file in catalog.scan_files(TABLE).files}


def killed(target: Any, *arguments: Any) -> None:
    process = context.Process(target=target, args=arguments)
    process.start()
    process.join(300)
    assert process.exitcode == -9


def test_vacuum_keeps_what_can_be_rolled_back_to_and_deletes_the_rest(catalog: Catalog, ranges: str) -> None:
    location = catalog.get_table(TABLE).location
    first, at_first = current(catalog), on_disk(location)
    rebalance(catalog, "drop", TABLE, DropPartitions((1,), with_data=True))
    rebalance(catalog, "split", TABLE, SplitPartition(2, ("15", "20")))
    everything = on_disk(location)
    catalog.roll_backs.to_snapshot(TABLE, first)
    assert catalog.vacuum().tables == ()
    assert on_disk(location) == everything
    planned = catalog.vacuum(grace=NOW, dry_run=True)
    report = catalog.vacuum(grace=NOW)
    assert [table.retired_files for table in planned.tables] == [table.retired_files for table in report.tables] == [2]
    assert {path for path in on_disk(location) if path.endswith(".parquet")} == {
        path for path in at_first if path.endswith(".parquet")
    }
    with catalog.storage.read() as connection:
        left = connection.scalars(select(RevisionRow.snapshot_id)).all()
    assert set(left) == {first}


# --- random histories -------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["load", "split", "merge", "drop", "add", "back", "back", "vacuum"]), st.integers(0, 99)),
    min_size=2,
    max_size=10,
)


class Past:
    """A table, and the model of the snapshots that it can be rolled back to."""

    def __init__(self, catalog: Catalog, prefix: str) -> None:
        self.catalog, self.prefix, self.count = catalog, prefix, 0
        self.used = set(scheme_of(catalog).ids)
        self.states: dict[int, tuple[dict[int, list[int]], list[str]]] = {}
        self.remember()

    def remember(self) -> None:
        self.states[current(self.catalog)] = self.state

    @property
    def state(self) -> tuple[dict[int, list[int]], list[str]]:
        return contents(self.catalog, TABLE), scheme_of(self.catalog).lines()

    def step(self, kind: str, chance: int) -> None:
        self.count += 1
        if kind == "back":
            self.back(chance)
        elif kind == "vacuum":
            self.vacuum()
        elif kind == "load":
            load(self.catalog, self.operation, TABLE, [chance, chance // 2])
        elif (change := self.change(kind, chance)) is not None:
            before = set(scheme_of(self.catalog).ids)
            rebalance(self.catalog, self.operation, TABLE, change)
            new = set(scheme_of(self.catalog).ids) - before
            assert not new & self.used, "a partition id was used again"
            self.used |= new
        self.remember()

    @property
    def operation(self) -> str:
        return f"{self.prefix}-{self.count}"

    def change(self, kind: str, chance: int) -> PartitionChange | None:
        scheme = scheme_of(self.catalog)
        assert isinstance(scheme, RangeScheme)
        if kind == "add":
            return AddPartitions((str(1_000 + 10 * len(self.used)),))
        bounds = [(partition_id, int(text)) for partition_id, text in scheme.bounds]
        if not bounds:
            return None
        at = chance % len(bounds)
        partition_id, bound = bounds[at]
        if kind == "drop":
            return DropPartitions((partition_id,), with_data=chance % 2 == 0)
        if kind == "merge":
            return MergePartitions((partition_id, bounds[at + 1][0])) if at + 1 < len(bounds) else None
        lower = bounds[at - 1][1] if at else bound - 10
        middle = (lower + bound) // 2
        return SplitPartition(partition_id, (str(middle), str(bound))) if middle > lower else None

    def back(self, chance: int) -> None:
        snapshot_id = sorted(self.states)[chance % len(self.states)]
        self.catalog.roll_backs.to_snapshot(TABLE, snapshot_id, operation_id=self.operation)
        assert current(self.catalog) == snapshot_id
        assert self.state == self.states[snapshot_id]

    def vacuum(self) -> None:
        assert self.catalog.vacuum(grace=NOW).problems == ()
        last = current(self.catalog)
        assert self.state == self.states[last]
        self.states = {last: self.states[last]}


@pytest.mark.long
@settings(max_examples=effort(8, 100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_random_sequences_agree_with_a_model(catalog: Catalog, catalog_url: str, steps: list[tuple[str, int]]) -> None:
    prefix = str(len(catalog.operations.list(limit=100_000)))
    for known in catalog.list_tables():
        catalog.drop_table(known.full_name, purge=True)
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    catalog.create_table(TABLE, columns=[("c", "int")], scheme=scheme)
    load(catalog, f"{prefix}-first", TABLE, range(0, 40, 5))
    past = Past(catalog, prefix)
    for kind, chance in steps:
        past.step(kind, chance)
    found = contents(catalog, TABLE)
    assert rows(catalog_url) == sorted(value for values in found.values() for value in values)
    catalog.vacuum(grace=NOW)
    assert contents(catalog, TABLE) == found
    left = {path for path in on_disk(catalog.get_table(TABLE).location) if path.endswith(".parquet")}
    assert left == {file.path for file in catalog.scan_files(TABLE).files}
