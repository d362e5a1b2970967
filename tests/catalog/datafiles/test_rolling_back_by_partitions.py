"""Roll-backs of tables stored as Iceberg: partitions, index items and counts are those of the snapshot again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table
from pyiceberg.types import StringType

from catalog import Catalog, IndexDefinition, PartitionState
from catalog.errors import (
    ConflictError,
    InvalidPartitionError,
    OperationConflictError,
    PartitionValueError,
    UnknownSnapshotError,
    UnsupportedCommitError,
)
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind, OperationState
from catalog.statements.session import Session
from tests.support.effort import effort
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import roll_back
from tests.support.partition_files import Row, append, check_partitions, stored_rows, write_partitions
from tests.support.processes import context
from tests.support.published import duckdb_reader, published
from tests.support.written_files import on_disk

TABLE = "demo.t"
NOW = timedelta(0)


@pytest.fixture
def table(catalog: Catalog) -> str:
    """A table with the keys (origin string, month int), an index on both, and three partitions."""
    return make(catalog, "first")


def make(catalog: Catalog, operation: str) -> str:
    catalog.create_table(
        TABLE,
        columns=[("v", "int")],
        partition_keys=[("origin", "string"), ("month", "int")],
        indexes=[IndexDefinition("by_month", ("month", "origin"))],
        format="iceberg",
    )
    append(catalog, operation, TABLE, {("JFK", "1"): [1, 2], ("LGA", "1"): [3], (None, None): [4]})
    return TABLE


def current(catalog: Catalog) -> int:
    catalog.scan_partition_files(TABLE)
    snapshot = published(catalog, TABLE).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def state(catalog: Catalog) -> tuple[list[Row], dict[Any, tuple[int | None, int | None]], list[str]]:
    """Return rows, counts of partitions, and the answer of an index, after checking that all agree."""
    rows = stored_rows(catalog, TABLE)
    found = catalog.get_table(TABLE)
    partitions = catalog.get_partitions(TABLE)
    counts = {partition.values: (partition.file_count, partition.row_count) for partition in partitions}
    return rows, counts, sorted(partition.name(found) for partition in catalog.get_partitions(TABLE, "month = 1"))


@contextmanager
def engine(url: str) -> Iterator[Table]:
    """The table as PyIceberg changes it."""
    with sql_catalog(url) as iceberg:
        yield iceberg.load_table(TABLE)


def engine_rows(*values: tuple[int, str | None, int | None]) -> pa.Table:
    schema = pa.schema([("v", pa.int32()), ("origin", pa.string()), ("month", pa.int32())])
    return pa.Table.from_pylist([dict(zip(schema.names, value, strict=True)) for value in values], schema)


def values(catalog: Catalog) -> list[int]:
    return sorted(row[0] for row in stored_rows(catalog, TABLE))


# --- what a roll-back restores ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_state_is_restored_for_every_reader(catalog: Catalog, catalog_url: str, table: str) -> None:
    states = [(current(catalog), state(catalog))]

    def remember() -> None:
        states.append((current(catalog), state(catalog)))

    append(catalog, "second", table, {("JFK", "1"): [5], ("SFO", "1"): [6]})
    remember()
    catalog.drop_partitions(table, "origin = 'JFK'")
    remember()
    with engine(catalog_url) as iceberg:
        iceberg.append(engine_rows((7, "JFK", 2), (8, None, None)))
    remember()
    with engine(catalog_url) as iceberg:
        iceberg.delete("origin = 'LGA'")
    remember()
    append(catalog, "third", table, {("JFK", "1"): [9]})
    remember()
    duck = duckdb_reader()
    for snapshot_id, expected in [*reversed(states), *states]:
        before, (rows_before, *_) = current(catalog), state(catalog)
        report = catalog.roll_backs.to_snapshot(table, snapshot_id)
        assert (report["snapshot_id_before"], report["snapshot_id"]) == (before, snapshot_id)
        assert (report["rows_before"], report["rows"]) == (len(rows_before), len(expected[0]))
        assert current(catalog) == snapshot_id
        assert state(catalog) == expected
        location = catalog.get_table(table).published_location
        found = duck.sql(f"SELECT count(*) FROM iceberg_scan('{location}')").fetchone()
        assert found == (len(expected[0]),)
    append(catalog, "fourth", table, {("JFK", "1"): [10]})
    assert values(catalog) == sorted([*(row[0] for row in states[-1][1][0]), 10])


def test_a_table_without_keys(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[("v", "int")], format="iceberg")
    with pytest.raises(UnknownSnapshotError, match="it has no snapshot to roll back to"):
        catalog.roll_backs.to_snapshot(TABLE, 1)
    append(catalog, "one", TABLE, {(): [1, 2]})
    first = current(catalog)
    append(catalog, "two", TABLE, {(): [3]})
    report = catalog.roll_backs.to_snapshot(TABLE, first)
    assert (report["rows"], report["files"], report["rows_before"], report["files_before"]) == (2, 1, 3, 2)
    assert stored_rows(catalog, TABLE) == [(1,), (2,)]


def test_to_a_snapshot_between_two_looks(catalog: Catalog, catalog_url: str, table: str) -> None:
    """Calve has never seen the state that engines left between two commits."""
    with engine(catalog_url) as iceberg:
        iceberg.append(engine_rows((5, "SFO", 1)))
        between = iceberg.metadata.current_snapshot_id
        iceberg.delete("v < 3")
    assert between is not None
    assert values(catalog) == [3, 4, 5]
    catalog.roll_backs.to_snapshot(table, between)
    assert values(catalog) == [1, 2, 3, 4, 5]


def test_columns_that_engines_changed_stay(catalog: Catalog, catalog_url: str, table: str) -> None:
    first = current(catalog)
    with engine(catalog_url) as iceberg:
        with iceberg.update_schema() as update:
            update.add_column("w", StringType())
            update.rename_column("v", "x")
        one = pa.array([1], pa.int32())
        iceberg.append(pa.table({"x": one, "w": ["w"], "origin": ["JFK"], "month": one}))
    catalog.roll_backs.to_snapshot(table, first)
    assert [column.name for column in catalog.get_table(table).columns] == ["x", "w"]
    assert values(catalog) == [1, 2, 3, 4]
    with engine(catalog_url) as iceberg:
        assert {field.name for field in iceberg.schema().fields} == {"x", "w", "origin", "month"}


def test_to_the_state_of_a_time(catalog: Catalog, table: str) -> None:
    first = current(catalog)
    after = published(catalog, table).metadata.last_updated_ms
    while catalog.storage.now_ms() <= after:
        pass
    append(catalog, "second", table, {("JFK", "1"): [5]})
    second = current(catalog)
    with pytest.raises(UnknownSnapshotError, match="has no snapshot of 2001-01-01"):
        catalog.roll_backs.to_time(table, datetime(2001, 1, 1, tzinfo=UTC))
    at = datetime.fromtimestamp(after / 1000, UTC)
    assert catalog.roll_backs.to_time(table, at, operation_id="back")["snapshot_id"] == first
    assert values(catalog) == [1, 2, 3, 4]
    catalog.roll_backs.to_snapshot(table, second)
    assert catalog.roll_backs.to_time(table, at, operation_id="back")["snapshot_id"] == first
    assert current(catalog) == second, "a repeated call only returns the report"
    # Of a time, the state after the roll-backs is that of the last one.
    metadata = published(catalog, table).metadata
    assert metadata.snapshot_log[-1].timestamp_ms == metadata.last_updated_ms
    now = datetime.fromtimestamp(metadata.last_updated_ms / 1000, UTC)
    assert catalog.roll_backs.to_time(table, now)["snapshot_id"] == second


def test_as_a_statement(catalog: Catalog, table: str) -> None:
    first = current(catalog)
    append(catalog, "second", table, {("JFK", "1"): [5, 6]})
    second = current(catalog)
    with Session(catalog, database="demo") as session:
        result = session.execute(f"CALL calve.system.rollback_to_snapshot('t', {first})")
        assert (result.columns, result.rows) == (("previous_snapshot_id", "current_snapshot_id"), [[second, first]])
        text = "demo.t has 4 row(s) in 3 file(s) again; before: 6 row(s) in 4 file(s), snapshot "
        assert result.text == f"{text}{second}"
        result = session.execute("CALL calve.system.rollback_to_timestamp('t', TIMESTAMP '2200-01-01 00:00:00')")
        assert result.rows == [[first, first]]
        with pytest.raises(UnknownSnapshotError) as raised:
            session.execute("CALL calve.system.rollback_to_snapshot('t', 77)")
    assert {snapshot_id for snapshot_id, _ in raised.value.known} == {first, second}


def test_one_operation_is_one_roll_back(catalog: Catalog, table: str) -> None:
    first = current(catalog)
    append(catalog, "second", table, {("JFK", "1"): [5]})
    second = current(catalog)
    report = catalog.roll_backs.to_snapshot(table, first, operation_id="back", requested_by="ann")
    catalog.roll_backs.to_snapshot(table, second)
    assert catalog.roll_backs.to_snapshot(table, first, operation_id="back") == report
    assert current(catalog) == second
    operation = catalog.operations.get("back")
    assert (operation.kind, operation.state) == (OperationKind.ROLL_BACK, OperationState.CLEANED)
    catalog.operations.begin("running", OperationKind.APPEND_ROWS, table, is_exclusive=True)
    with pytest.raises(OperationConflictError):
        catalog.roll_backs.to_snapshot(table, first)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_partition_that_a_newer_index_does_not_admit_is_refused(catalog: Catalog, table: str) -> None:
    catalog.delete_partition_index(table, "by_month")
    append(catalog, "second", table, {("\x01", "1"): [5]})
    second = current(catalog)
    catalog.drop_partitions(table, "origin = '\x01'")
    catalog.create_partition_index(table, "by_origin", ["origin"])
    catalog.build_partition_index(table, "by_origin")
    third, before = current(catalog), state(catalog)
    with pytest.raises(InvalidPartitionError, match="by_origin"):
        catalog.roll_backs.to_snapshot(table, second, operation_id="back")
    assert (current(catalog), state(catalog)) == (third, before)
    assert catalog.operations.get("back").state is OperationState.FAILED


def test_a_quarantined_partition_of_the_snapshot_is_refused(catalog: Catalog, table: str, tmp_path: Path) -> None:
    first = current(catalog)
    catalog.drop_partitions(table, "origin = 'LGA'")
    quarantine(catalog, tmp_path / "1.csv")
    second, before = current(catalog), state(catalog)
    with pytest.raises(ConflictError, match=r"origin=LGA/month=1 of demo.t is quarantined.*Release or drop it first"):
        catalog.roll_backs.to_snapshot(table, first)
    assert (current(catalog), state(catalog)) == (second, before)
    assert len(list(catalog.get_partitions(table, state=PartitionState.QUARANTINED))) == 1
    assert catalog.drop_partition(table, {"origin": "LGA", "month": "1"}) == 1
    catalog.roll_backs.to_snapshot(table, first)
    assert values(catalog) == [1, 2, 3, 4]


def test_a_commit_that_calve_cannot_follow_is_rolled_back(catalog: Catalog, catalog_url: str, table: str) -> None:
    first = current(catalog)
    with engine(catalog_url) as iceberg:
        iceberg.append(engine_rows((5, "", 1)))
        refused = iceberg.metadata.current_snapshot_id
        with iceberg.update_schema() as update:
            update.add_column("w", StringType())
    with pytest.raises(UnsupportedCommitError) as raised:
        catalog.drop_partitions(table, "origin = 'JFK'")
    assert f"Roll it back: CALL calve.system.rollback_to_snapshot('demo.t', {first})" in str(raised.value)
    with Session(catalog) as session:
        result = session.execute(f"CALL calve.system.rollback_to_snapshot('demo.t', {first})")
    assert result.rows == [[refused, first]]
    assert [column.name for column in catalog.get_table(table).columns] == ["v", "w"]
    catalog.drop_partitions(table, "origin = 'JFK'")
    assert values(catalog) == [3, 4]
    assert refused is not None
    with pytest.raises(PartitionValueError, match="stands for null"):
        catalog.roll_backs.to_snapshot(table, refused)
    assert values(catalog) == [3, 4]


def quarantine(catalog: Catalog, source: Path) -> None:
    """Load the partition of LGA, and hide it."""
    source.write_text("")
    catalog.loading.discover("run", TABLE, str(source))
    with catalog.operations.attempt("run", "write_partitions") as attempt:
        found = catalog.get_table(TABLE)
        folder = catalog.loading.files_folder(found, catalog.operations.get("run"), attempt)
        write_partitions(found, folder, {("LGA", "1"): [7]})
        catalog.operations.finish_job("run", "write_partitions", attempt, {"staging": folder})
    with catalog.operations.attempt("run", "register") as attempt:
        catalog.loading.publish("run", "register", attempt, folder, is_quarantined=True)


# --- kills, and vacuum ------------------------------------------------------------------------------------------------


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("point", "is_behind"),
    [
        *((point, False) for point in (Point.JOURNALED, Point.STARTED, Point.CHANGED, Point.COMMITTED)),
        # The intake is committed before the roll-back.
        (Point.CHANGED, True),
    ],
)
def test_a_killed_roll_back_is_made_by_the_next_run(
    catalog: Catalog, catalog_url: str, table: str, point: Point, is_behind: bool
) -> None:
    first, expected = current(catalog), state(catalog)
    catalog.drop_partitions(table, "origin = 'JFK'")
    if is_behind:
        with engine(catalog_url) as iceberg:
            iceberg.append(engine_rows((5, "SFO", 1)))
            second = iceberg.metadata.current_snapshot_id
    else:
        second = current(catalog)
    process = context.Process(target=roll_back, args=(catalog_url, "back", table, first, point))
    process.start()
    process.join(300)
    assert process.exitcode == -9
    if point is Point.COMMITTED:
        assert (current(catalog), state(catalog)) == (first, expected)
    else:
        assert current(catalog) == second
        assert values(catalog) == ([3, 4, 5] if is_behind else [3, 4])
    report = catalog.roll_backs.to_snapshot(table, first, operation_id="back")
    assert (report["snapshot_id_before"], report["snapshot_id"]) == (second, first)
    assert (current(catalog), state(catalog)) == (first, expected)
    append(catalog, "next", table, {("JFK", "1"): [6]})
    assert catalog.vacuum(table, grace=NOW).problems == ()
    assert values(catalog) == [1, 2, 3, 4, 6]


def test_vacuum_keeps_what_can_be_rolled_back_to_and_deletes_the_rest(catalog: Catalog, table: str) -> None:
    location = catalog.get_table(table).location
    first = current(catalog)
    append(catalog, "second", table, {("JFK", "1"): [5], ("SFO", "1"): [6]})
    second, everything = current(catalog), on_disk(location)
    catalog.roll_backs.to_snapshot(table, first)
    catalog.vacuum()
    assert everything <= on_disk(location)
    catalog.roll_backs.to_snapshot(table, second)
    assert values(catalog) == [1, 2, 3, 4, 5, 6]
    catalog.roll_backs.to_snapshot(table, first)
    assert catalog.vacuum(grace=NOW).problems == ()
    check_partitions(catalog, table)
    left = {path for path in on_disk(location) if path.endswith(".parquet")}
    assert left == {file.path for file in catalog.scan_partition_files(table).files}
    with pytest.raises(UnknownSnapshotError) as raised:
        catalog.roll_backs.to_snapshot(table, second)
    assert [snapshot_id for snapshot_id, _ in raised.value.known] == [first]


# --- random histories -------------------------------------------------------------------------------------------------

KINDS = ["append", "append", "drop", "engine append", "engine delete", "back", "back", "vacuum"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 99)), min_size=2, max_size=10)


class Past:
    """A table, and the model of its rows: value, origin and month in each snapshot that it can be rolled back to."""

    def __init__(self, catalog: Catalog, url: str, prefix: str) -> None:
        self.catalog, self.url, self.prefix, self.count = catalog, url, prefix, 0
        make(catalog, f"{prefix}-first")
        self.rows: list[tuple[int, str | None, int | None]] = [
            *((1, "JFK", 1), (2, "JFK", 1), (3, "LGA", 1), (4, None, None)),
        ]
        self.states = {current(catalog): list(self.rows)}

    def step(self, kind: str, chance: int) -> None:
        self.count += 1
        origin, month, operation = "ABC"[chance % 3], chance % 2, f"{self.prefix}-{self.count}"
        if kind == "append":
            append(self.catalog, operation, TABLE, {(origin, str(month)): [chance]})
            self.rows.append((chance, origin, month))
        elif kind == "drop":
            self.catalog.drop_partitions(TABLE, f"origin = '{origin}'")
            self.rows = [row for row in self.rows if row[1] != origin]
        elif kind == "engine append":
            with engine(self.url) as iceberg:
                iceberg.append(engine_rows((chance, origin, month)))
            self.rows.append((chance, origin, month))
        elif kind == "engine delete":
            with engine(self.url) as iceberg, catch_warnings():
                simplefilter("ignore", UserWarning)  # It may delete nothing.
                iceberg.delete(f"v < {chance // 2}")
            self.rows = [row for row in self.rows if row[0] >= chance // 2]
        elif kind == "back":
            snapshot_id = sorted(self.states)[chance % len(self.states)]
            self.catalog.roll_backs.to_snapshot(TABLE, snapshot_id, operation_id=operation)
            self.rows = list(self.states[snapshot_id])
        else:
            assert self.catalog.vacuum(grace=NOW).problems == ()
            self.states = {}
        # An engine's next commit follows at times before Calve has looked.
        if not kind.startswith("engine") or chance % 3:
            assert stored_rows(self.catalog, TABLE) == sorted(self.rows, key=repr)
            self.states[current(self.catalog)] = list(self.rows)


@pytest.mark.long
@settings(max_examples=effort(8, 100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_random_sequences_agree_with_a_model(catalog: Catalog, catalog_url: str, steps: list[tuple[str, int]]) -> None:
    prefix = str(len(catalog.operations.list(limit=100_000)))
    for known in catalog.list_tables():
        catalog.drop_table(known.full_name, purge=True)
    past = Past(catalog, catalog_url, prefix)
    for kind, chance in steps:
        past.step(kind, chance)
    assert stored_rows(catalog, TABLE) == sorted(past.rows, key=repr)
    assert catalog.vacuum(grace=NOW).problems == ()
    assert stored_rows(catalog, TABLE) == sorted(past.rows, key=repr)
    left = {path for path in on_disk(catalog.get_table(TABLE).location) if path.endswith(".parquet")}
    assert left == {file.path for file in catalog.scan_partition_files(TABLE).files}
