"""Readers of folders see one version of a table while rows are added to its partitions, and after a kill."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog
from catalog.errors import ConflictError
from catalog.operations.failpoints import Point
from catalog.statements.session import Session
from spark_jobs.reading import tables
from spark_jobs.reading.tables import read_table
from spark_jobs.statement_engine import SparkEngine
from tests.spark_jobs.test_killed_rebalances import Died, dying_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TABLE = "demo.t"
BEFORE, AFTER = [(1, "a"), (2, "b")], [(1, "a"), (2, "b"), (3, "a"), (4, "c")]
Run = Callable[..., object]


@pytest.fixture(params=["partitioned", "unpartitioned"])
def run(request: pytest.FixtureRequest, spark: SparkSession, catalog: Catalog) -> Run:
    """Run a statement over a table with two rows."""

    def run(text: str, operation: str | None = None) -> object:
        with Session(catalog, database="demo", start=lambda opened: SparkEngine(opened, spark)) as session:
            return session.execute(text, operation_id=operation)

    catalog.create_database("demo", if_not_exists=True)
    keys = "(n int, k string)" if request.param == "unpartitioned" else "(n int) PARTITIONED BY (k string)"
    run(f"CREATE TABLE t {keys} STORED AS PARQUET")
    run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return run


def rows(spark: SparkSession, catalog: Catalog, where: str | None = None) -> list[tuple[int, str]]:
    return sorted((row.n, row.k) for row in read_table(spark, TABLE, where, catalog=catalog).collect())


@pytest.mark.parametrize("point", [Point.PARTLY_MOVED, Point.MOVED])
def test_rows_of_a_killed_insert_are_not_seen(
    spark: SparkSession, catalog: Catalog, run: Run, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = "INSERT INTO t VALUES (3, 'a'), (4, 'c')"
    with dying_at(point, monkeypatch), pytest.raises(Died):
        run(insert, "insert/1")
    assert rows(spark, catalog) == BEFORE
    if catalog.get_table(TABLE).partition_keys:
        assert rows(spark, catalog, "k = 'a'") == BEFORE[:1]
    run(insert, "insert/1")
    assert rows(spark, catalog) == AFTER


@pytest.mark.long
def test_folders_are_listed_again_if_rows_came_meanwhile(
    spark: SparkSession, catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, read = [], tables.read_partitions

    def read_late(*arguments: object, **options: object) -> object:
        if not listed:
            run("INSERT INTO t VALUES (3, 'a'), (4, 'c')")
        listed.append(read(*arguments, **options))  # type: ignore[arg-type]
        return listed[-1]

    monkeypatch.setattr(tables, "read_partitions", read_late)
    assert rows(spark, catalog) == AFTER
    assert len(listed) == 2


@pytest.mark.long
def test_a_table_that_changes_during_each_listing_is_refused(
    spark: SparkSession, catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_late(*arguments: object, **options: object) -> object:
        run("INSERT INTO t VALUES (3, 'a')")
        return None

    monkeypatch.setattr(tables, "_MOST_TRIES", 2)
    monkeypatch.setattr(tables, "read_partitions", read_late)
    with pytest.raises(ConflictError, match="changed 2 times while its folders were listed"):
        read_table(spark, TABLE, catalog=catalog)
