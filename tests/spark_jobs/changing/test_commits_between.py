"""Commits of another engine between the reading and the publication of a change: the rows equal a serial order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from catalog import Catalog
from catalog.errors import ConflictError, FencedError, PlanConflictError
from catalog.operations.records import OperationState
from catalog.statements.session import Session
from tests.support.effort import sampled
from tests.support.iceberg_tables import sql_catalog
from tests.support.partition_files import check_partitions

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import SparkSession

    from tests.spark_jobs.conftest import Loader

pytestmark = pytest.mark.spark

NAME = "demo.orders"
Row = tuple[int, str, int]
Change = Callable[[set[Row]], set[Row]]

ROWS: set[Row] = {(1, "a", 1), (2, "b", 1), (3, "a", 2), (4, "b", 2), (5, "a", 3)}


def _without(*ids: int) -> Change:
    return lambda rows: {row for row in rows if row[0] not in ids}


def _with(*more: Row) -> Change:
    return lambda rows: rows | set(more)


def _merged(rows: set[Row]) -> set[Row]:
    known = {number for number, _, _ in rows}
    noted = {(number, "new" if number in (1, 6) else note, day) for number, note, day in rows}
    return noted | {(number, "new", 1) for number in (1, 6) if number not in known}


STATEMENTS: dict[str, tuple[str, Change]] = {
    "delete": ("DELETE FROM orders WHERE note = 'a'", lambda rows: {row for row in rows if row[1] != "a"}),
    "delete in a partition": (
        "DELETE FROM orders WHERE day = 1 AND id < 100",
        lambda rows: {r for r in rows if r[2] != 1},
    ),
    "update": (
        "UPDATE orders SET note = 'new' WHERE note = 'b'",
        lambda rows: {(number, "new" if note == "b" else note, day) for number, note, day in rows},
    ),
    "move": (
        "UPDATE orders SET day = 2 WHERE id = 1",
        lambda rows: {(number, note, 2 if number == 1 else day) for number, note, day in rows},
    ),
    "merge": (
        "MERGE INTO orders AS t USING (SELECT * FROM (VALUES (1, 1), (6, 1)) AS v (id, day)) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET note = 'new' WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'new', s.day)",
        _merged,
    ),
    "compact": ("ALTER TABLE orders COMPACT", lambda rows: rows),
    "overwrite": (
        "INSERT OVERWRITE orders VALUES (7, 'o', 1)",
        lambda rows: {row for row in rows if row[2] != 1} | {(7, "o", 1)},
    ),
    "overwrite by itself": (
        "INSERT OVERWRITE orders SELECT id, upper(note), day FROM orders",
        lambda rows: {(number, note.upper(), day) for number, note, day in rows},
    ),
}


def _append(*rows: Row) -> Callable[[IcebergTable], None]:
    def run(table: IcebergTable) -> None:
        types = [pa.int32(), pa.string(), pa.int32()]
        arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
        table.append(pa.table(dict(zip(("id", "note", "day"), arrays, strict=True))))

    return run


COMMITS: dict[str, tuple[Callable[[IcebergTable], None], Change]] = {
    "append": (_append((6, "a", 1), (8, "b", 1)), _with((6, "a", 1), (8, "b", 1))),
    "append to a new partition": (_append((6, "a", 9)), _with((6, "a", 9))),
    "delete a row": (lambda table: table.delete(EqualTo("id", 2)), _without(2)),
    "delete a partition": (lambda table: table.delete(EqualTo("day", 1)), lambda rows: {r for r in rows if r[2] != 1}),
    "overwrite a row": (
        lambda table: table.overwrite(
            pa.table({"id": pa.array([1], pa.int32()), "note": ["b"], "day": pa.array([2], pa.int32())}),
            EqualTo("id", 1),
        ),
        lambda rows: {row for row in rows if row[0] != 1} | {(1, "b", 2)},
    ),
}

CREATE = "CREATE TABLE orders (id int, note string) PARTITIONED BY (day int)"
KINDS = {
    "stored as Iceberg": (f"{CREATE} STORED AS ICEBERG",),
    "range": (f"{CREATE} STORED BY 'carbondata' TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2, 3')",),
    "migrated": (
        f"{CREATE} STORED AS PARQUET",
        "CALL iceberg.system.migrate(schema_name => 'demo', table_name => 'orders')",
    ),
}
"""Kind of table → the statements that create it."""

CASES = [(kind, statement, commit) for kind in KINDS for statement in STATEMENTS for commit in COMMITS]
SAMPLE = [("stored as Iceberg", "delete", "append")]


class Orders:
    """A session with the table, and an engine that commits between the reading and the publication of a change."""

    def __init__(self, session: Session, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session, self._catalog, self._monkeypatch = session, catalog, monkeypatch

    def create(self, kind: str) -> None:
        for text in KINDS[kind]:
            self.session.execute(text)
        for rows in (sorted(ROWS)[::2], sorted(ROWS)[1::2]):
            self.session.execute(f"INSERT INTO orders VALUES {', '.join(map(repr, rows))}")

    def commit_between(self, commit: Callable[[IcebergTable], None], times: int) -> None:
        """Have the engine commit before each of the next publications."""
        left = iter(range(times))
        for owner, name in (
            (self._catalog.loading, "publish"),
            (self._catalog.committer, "commit"),
            (self._catalog.committer, "commit_metadata"),
        ):
            self._monkeypatch.setattr(owner, name, self._after_a_commit(getattr(owner, name), commit, left))

    def _after_a_commit(
        self, publish: Callable[..., Any], commit: Callable[[IcebergTable], None], left: Iterator[int]
    ) -> Callable[..., Any]:
        def published(*arguments: Any, **options: Any) -> Any:
            if next(left, None) is not None:
                with sql_catalog(self._catalog.storage.url.render_as_string(hide_password=False)) as iceberg:
                    commit(iceberg.load_table(NAME))
            return publish(*arguments, **options)

        return published

    def rows(self) -> list[Row]:
        return [tuple(row) for row in self.session.execute("SELECT id, note, day FROM orders").rows]


@pytest.fixture
def orders(iceberg_spark: SparkSession, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orders]:
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    catalog.create_database("demo")
    start = lambda opened: SparkEngine(opened, configure(iceberg_spark))  # noqa: E731
    with Session(catalog, database="demo", start=start) as session:
        yield Orders(session, catalog, monkeypatch)


@pytest.mark.parametrize(("kind", "statement", "commit"), sampled(CASES, SAMPLE))
def test_rows_equal_a_serial_order_of_the_statement_and_the_commit(
    orders: Orders, catalog: Catalog, kind: str, statement: str, commit: str
) -> None:
    (text, changed), (run, committed) = STATEMENTS[statement], COMMITS[commit]
    orders.create(kind)
    orders.commit_between(run, 1)
    serial = [committed(changed(ROWS)), changed(committed(ROWS))]
    try:
        orders.session.execute(text)
    except ConflictError:
        serial = [committed(ROWS)]
    found = orders.rows()
    assert len(found) == len(set(found))
    assert set(found) in serial
    if kind == "stored as Iceberg":
        check_partitions(catalog, NAME)


@pytest.mark.long
def test_a_statement_that_is_overtaken_again_and_again_is_refused_with_nothing_changed(orders: Orders) -> None:
    numbers = iter(range(100, 200))
    orders.create("stored as Iceberg")
    orders.commit_between(lambda table: _append((next(numbers), "a", 1))(table), 99)
    with pytest.raises(PlanConflictError, match="Run the statement or load again"):
        orders.session.execute("DELETE FROM orders WHERE note = 'a'")
    added = next(numbers) - 100
    assert set(orders.rows()) == ROWS | {(100 + number, "a", 1) for number in range(added)}


def test_appends_to_other_partitions_do_not_overtake_a_statement(orders: Orders) -> None:
    numbers = iter(range(100, 200))
    orders.create("stored as Iceberg")
    orders.commit_between(lambda table: _append((next(numbers), "a", 2))(table), 99)
    orders.session.execute("DELETE FROM orders WHERE day = 1 AND note = 'a'")
    assert next(numbers) == 101
    assert set(orders.rows()) == (ROWS - {(1, "a", 1)}) | {(100, "a", 2)}


def test_a_load_that_merges_is_refused_if_it_was_overtaken_and_succeeds_when_it_is_run_again(
    orders: Orders, catalog: Catalog, make_loader: Callable[..., Loader], tmp_path: Path
) -> None:
    orders.create("stored as Iceberg")
    loader, source = make_loader(NAME, {"day": "int"}), tmp_path / "source"
    source.mkdir()
    (source / "a.csv").write_text("id,note,day\n1,new,1\n6,new,1\n")
    merge = {"keys": ["day", "id"]}
    orders.commit_between(_append((8, "b", 1)), 1)
    with pytest.raises(PlanConflictError, match="added rows that this change may concern"):
        loader.load(source, mode="merge", merge=merge)
    assert set(orders.rows()) == ROWS | {(8, "b", 1)}
    loader.load(source, mode="merge", merge=merge)
    assert set(orders.rows()) == _merged(ROWS) | {(8, "b", 1)}
    check_partitions(catalog, NAME)


@pytest.mark.parametrize("is_given_up", [False, True])
def test_another_process_of_calve_and_an_update_by_scheme_lose_no_row(
    orders: Orders, catalog: Catalog, catalog_url: str, is_given_up: bool
) -> None:
    text, updated = STATEMENTS["update"]
    refusals: list[ConflictError] = []

    def delete(_: IcebergTable) -> None:
        if is_given_up:
            (running,) = (one for one in catalog.operations.list(NAME) if one.state is OperationState.RUNNING)
            catalog.operations.fail(running.id, "CANCELLED", "given up by a person")
        with Catalog.open(catalog_url) as other, Session(other, database="demo") as session:
            try:
                session.execute("DELETE FROM orders WHERE day = 2")
            except ConflictError as error:
                refusals.append(error)

    orders.create("range")
    orders.commit_between(delete, 1)
    if is_given_up:
        with pytest.raises(FencedError):
            orders.session.execute(text)
        assert (refusals, set(orders.rows())) == ([], {row for row in ROWS if row[2] != 2})
    else:
        orders.session.execute(text)
        assert [(error.retryable, "is running on it" in str(error)) for error in refusals] == [(True, True)]
        assert set(orders.rows()) == updated(ROWS)
