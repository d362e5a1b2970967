"""Commits of another engine between the reading and the publication of a change: the rows equal a serial order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from catalog import Catalog
from catalog.errors import ConflictError, PlanConflictError
from catalog.statements.session import Session
from tests.support.effort import sampled
from tests.support.iceberg_tables import sql_catalog
from tests.support.partition_files import check_partitions, rows_by_calve

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

CASES = [(statement, commit) for statement in STATEMENTS for commit in COMMITS]
SAMPLE = [
    ("delete", "append"),
    ("update", "delete a row"),
    ("merge", "append"),
    ("compact", "append"),
    ("overwrite by itself", "append"),
]


@pytest.fixture
def session(spark: SparkSession, catalog: Catalog) -> Iterator[Session]:
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    catalog.create_database("demo")
    with Session(catalog, database="demo", start=lambda opened: SparkEngine(opened, configure(spark))) as opened:
        opened.execute("CREATE TABLE orders (id int, note string) PARTITIONED BY (day int) STORED AS ICEBERG")
        opened.execute(f"INSERT INTO orders VALUES {', '.join(map(repr, sorted(ROWS)[::2]))}")
        opened.execute(f"INSERT INTO orders VALUES {', '.join(map(repr, sorted(ROWS)[1::2]))}")
        yield opened


@pytest.fixture
def before_publication(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[IcebergTable], None], int], None]:
    """Have another engine commit before each of the next publications of the catalog."""

    def arrange(commit: Callable[[IcebergTable], None], times: int) -> None:
        publish, left = catalog.loading.publish, iter(range(times))

        def published(*arguments: Any, **options: Any) -> dict[str, Any]:
            if next(left, None) is not None:
                with sql_catalog(catalog.storage.url.render_as_string(hide_password=False)) as iceberg:
                    commit(iceberg.load_table(NAME))
            return publish(*arguments, **options)

        monkeypatch.setattr(catalog.loading, "publish", published)

    return arrange


@pytest.mark.parametrize(("statement", "commit"), sampled(CASES, SAMPLE))
def test_rows_equal_a_serial_order_of_the_statement_and_the_commit(
    session: Session,
    catalog: Catalog,
    spark: SparkSession,
    before_publication: Callable[..., None],
    statement: str,
    commit: str,
) -> None:
    (text, changed), (run, committed) = STATEMENTS[statement], COMMITS[commit]
    before_publication(run, 1)
    orders = [committed(changed(ROWS)), changed(committed(ROWS))]
    try:
        session.execute(text)
    except ConflictError:
        orders = [committed(ROWS)]
    found = rows_by_calve(spark, catalog, NAME)
    assert len(found) == len(set(found))
    assert set(found) in orders
    check_partitions(catalog, NAME)


def test_a_statement_that_is_overtaken_again_and_again_is_refused_with_nothing_changed(
    session: Session, catalog: Catalog, spark: SparkSession, before_publication: Callable[..., None]
) -> None:
    numbers = iter(range(100, 200))
    before_publication(lambda table: _append((next(numbers), "a", 1))(table), 99)
    with pytest.raises(PlanConflictError, match="Run the statement or load again"):
        session.execute("DELETE FROM orders WHERE note = 'a'")
    added = next(numbers) - 100
    assert set(rows_by_calve(spark, catalog, NAME)) == ROWS | {(100 + number, "a", 1) for number in range(added)}


def test_appends_to_other_partitions_do_not_overtake_a_statement(
    session: Session, catalog: Catalog, spark: SparkSession, before_publication: Callable[..., None]
) -> None:
    numbers = iter(range(100, 200))
    before_publication(lambda table: _append((next(numbers), "a", 2))(table), 99)
    session.execute("DELETE FROM orders WHERE day = 1 AND note = 'a'")
    assert next(numbers) == 101
    assert set(rows_by_calve(spark, catalog, NAME)) == (ROWS - {(1, "a", 1)}) | {(100, "a", 2)}


def test_a_load_that_merges_is_refused_if_it_was_overtaken_and_succeeds_when_it_is_run_again(
    session: Session,
    catalog: Catalog,
    spark: SparkSession,
    make_loader: Callable[..., Loader],
    tmp_path: Path,
    before_publication: Callable[..., None],
) -> None:
    loader, source = make_loader(NAME, {"day": "int"}), tmp_path / "source"
    source.mkdir()
    (source / "a.csv").write_text("id,note,day\n1,new,1\n6,new,1\n")
    merge = {"keys": ["day", "id"]}
    before_publication(_append((8, "b", 1)), 1)
    with pytest.raises(PlanConflictError, match="added rows that this change may concern"):
        loader.load(source, mode="merge", merge=merge)
    assert set(rows_by_calve(spark, catalog, NAME)) == ROWS | {(8, "b", 1)}
    loader.load(source, mode="merge", merge=merge)
    assert set(rows_by_calve(spark, catalog, NAME)) == _merged(ROWS) | {(8, "b", 1)}
    check_partitions(catalog, NAME)
