"""A load or change that is killed at any point and run again ends like an undisturbed one; readers are not affected.

`make test-all` kills each operation at each point on a table of its own, on both databases, by `kill -9` too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import delete

from catalog import Catalog, Column
from catalog.operations.failpoints import DIE_AT, Point
from catalog.rebalancing.changes import (
    AddPartitions,
    DropPartitions,
    MergePartitions,
    PartitionChange,
    SetPartitionCount,
    SplitPartition,
)
from catalog.storage.schema import JobRow, OperationRow
from catalog.tables.schemes import scheme_from_properties
from tests.support.effort import sampled
from tests.support.published import files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]
TABLE = "demo.t"
POINTS = (
    Point.JOURNALED,
    Point.STARTED,
    Point.FILES_WRITTEN,
    Point.LISTED,
    Point.MANIFEST_WRITTEN,
    Point.CHANGED,
    Point.COMMITTED,
)
"""The points in loads and changes of partitions."""

CATALOG_POINTS = (Point.JOURNALED, Point.STARTED, Point.CHANGED, Point.COMMITTED)
SCHEMES: Mapping[str, dict[str, str]] = {
    "range": {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"},
    "list": {"PARTITION_TYPE": "LIST", "LIST_INFO": "1, (2, 3, 4), 5"},
    "hash": {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"},
    "interval": {"PARTITION_TYPE": "RANGE_INTERVAL", "RANGE_INFO": "10", "INTERVAL": "10"},
}
Contents = dict[int, list[int]]


class Died(BaseException):
    """Simulates the end of the process: `except Exception` does not catch it."""


Case = tuple[str, PartitionChange | None, tuple[Point, ...]]
"""The scheme, the change or None for a load, and its points."""

CASES: Mapping[str, Case] = {
    "load": ("range", None, POINTS),
    "load beyond the last bound": ("interval", None, POINTS),
    "add": ("range", AddPartitions(("35", "38")), POINTS),
    "split a range": ("range", SplitPartition(2, ("13", "20")), POINTS),
    "split a group": ("list", SplitPartition(2, ("(2, 4)", "3")), POINTS),
    "set the number": ("hash", SetPartitionCount(5), POINTS),
    "drop": ("range", DropPartitions((2,)), CATALOG_POINTS),
    "drop with data": ("range", DropPartitions((2,), with_data=True), CATALOG_POINTS),
    "merge": ("range", MergePartitions((1, 2)), CATALOG_POINTS),
}

EACH = [(name, point) for name, case in CASES.items() for point in case[2]]


def make_table(spark: SparkSession, catalog: Catalog, scheme: str) -> None:
    from spark_jobs.writing.scheme_loading import load_rows

    catalog.create_database("demo", if_not_exists=True)
    found = scheme_from_properties(Column("c", "int"), SCHEMES[scheme])
    catalog.create_table(TABLE, columns=[("n", "bigint"), ("c", "int")], scheme=found)
    end = 10 if scheme == "interval" else 40
    rows = spark.range(0, end, 1, 2).selectExpr("id as n", "cast(id as int) as c")
    load_rows(spark, catalog, "first", TABLE, rows)


def run(spark: SparkSession, catalog: Catalog, change: PartitionChange | None) -> dict[str, Any]:
    from spark_jobs.rebalance import rebalance
    from spark_jobs.writing.scheme_loading import load_rows

    if change is None:
        rows = spark.range(100, 120, 1, 2).selectExpr("id as n", "cast(id - 95 as int) as c")
        return load_rows(spark, catalog, "operation", TABLE, rows)
    return rebalance(spark, catalog, "operation", TABLE, change)


def contents(catalog: Catalog, where: str | None = None) -> Contents:
    """Return the numbers of the rows of each partition, in files that a filter needs, from one read of the catalog."""
    scan = catalog.scan_files(TABLE, where)
    found: Contents = {}
    for file in scan.files:
        path = Path(scan.table.location, file.path)
        found.setdefault(file.partition_id, []).extend(pq.ParquetFile(path).read()["n"].to_pylist())
    return {partition_id: sorted(numbers) for partition_id, numbers in found.items()}


def undisturbed(spark: SparkSession, url: str, folder: Path, case: Case) -> tuple[Contents, list[str]]:
    """Return the rows and partitions of a table after an undisturbed run."""
    with Catalog.open(url, warehouse=str(folder / "undisturbed")) as catalog:
        make_table(spark, catalog, case[0])
        run(spark, catalog, case[1])
        found = contents(catalog), [each.text for each in catalog.scheme_partitions(TABLE)]
        catalog.drop_table(TABLE, purge=True)
        catalog.drop_database("demo")
        for operation in ("first", "operation"):
            forget(catalog, operation)
    return found


def forget(catalog: Catalog, operation: str) -> None:

    number = catalog.operations.get(operation).number
    with catalog.storage.write() as connection:
        connection.execute(delete(JobRow).where(JobRow.operation_number == number))
        connection.execute(delete(OperationRow).where(OperationRow.number == number))


@contextmanager
def reader(url: str, *allowed: Contents) -> Iterator[None]:
    """Read the table repeatedly during the block, with and without filters: it has the old or the new contents."""
    stop, has_looked, problems = threading.Event(), threading.Event(), list[Any]()
    totals = [sorted(number for part in each.values() for number in part) for each in allowed]

    def look(own: Catalog) -> None:
        found = contents(own)
        if found not in allowed:
            problems.append(found)
        # The partitions and files that a filter needs have all matching rows.
        some = {number for part in contents(own, "c >= 12 and c < 18").values() for number in part}
        if not any({n for n in total if 12 <= value_of(n) < 18} <= some for total in totals):
            problems.append(some)

    def read() -> None:
        try:
            with Catalog.open(url) as own:
                is_last = False
                while not is_last and not problems:
                    # The last read begins after the block.
                    is_last = stop.is_set()
                    look(own)
                    has_looked.set()
        except Exception as error:
            problems.append(error)
        finally:
            has_looked.set()

    thread = threading.Thread(target=read)
    thread.start()
    # The reader reads at least once before the block begins.
    has_looked.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not problems


def value_of(number: int) -> int:
    return number if number < 100 else number - 95


@contextmanager
def dying_at(point: Point, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def die() -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setenv(DIE_AT, point)
        patch.setattr("catalog.operations.failpoints.die", die)
        yield


def check_disk(catalog: Catalog) -> None:
    """Check that vacuum leaves exactly the table's data files and metadata."""
    report = catalog.vacuum(grace=timedelta(0))
    assert not report.problems
    root = Path(catalog.get_table(TABLE).location)
    on_disk = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert on_disk == files_of(catalog, TABLE)


def check_end(spark: SparkSession, catalog: Catalog, after: Contents, lines: list[str]) -> None:
    from spark_jobs.reading.tables import read_table

    assert contents(catalog) == after
    assert [each.text for each in catalog.scheme_partitions(TABLE)] == lines
    check_disk(catalog)
    assert contents(catalog) == after
    rows = read_table(spark, TABLE, catalog=catalog).select("n").collect()
    assert sorted(row["n"] for row in rows) == sorted(number for part in after.values() for number in part)


@pytest.fixture
def fresh(catalog_url: str, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog on each database, whose warehouse is empty."""
    with Catalog.open(catalog_url, warehouse=str(tmp_path / "warehouse")) as catalog:
        yield catalog


@pytest.mark.long
@pytest.mark.parametrize("name", sampled(CASES, ["load", "split a range"]))
def test_an_operation_that_dies_at_one_point_after_the_other_ends_as_one_that_nobody_disturbed(
    spark: SparkSession, fresh: Catalog, catalog_url: str, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, change, points = case = CASES[name]
    after, lines = undisturbed(spark, catalog_url, tmp_path, case)
    make_table(spark, fresh, scheme)
    before = contents(fresh)
    with reader(catalog_url, before, after):
        for point in points:
            with dying_at(point, monkeypatch), pytest.raises(Died):
                run(spark, fresh, change)
            assert contents(fresh) == (after if point is Point.COMMITTED else before)
        report = run(spark, fresh, change)
        assert contents(fresh) == after
        assert run(spark, fresh, change) == report
    check_end(spark, fresh, after, lines)


@pytest.mark.long
@pytest.mark.parametrize(("name", "point"), sampled(EACH, [("split a group", Point.MANIFEST_WRITTEN)]))
def test_an_operation_that_dies_once_ends_as_one_that_nobody_disturbed(
    spark: SparkSession,
    fresh: Catalog,
    catalog_url: str,
    tmp_path: Path,
    name: str,
    point: Point,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheme, change, _ = case = CASES[name]
    after, lines = undisturbed(spark, catalog_url, tmp_path, case)
    make_table(spark, fresh, scheme)
    with reader(catalog_url, contents(fresh), after):
        with dying_at(point, monkeypatch), pytest.raises(Died):
            run(spark, fresh, change)
        run(spark, fresh, change)
    check_end(spark, fresh, after, lines)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "point"),
    sampled(EACH, [("split a range", Point.FILES_WRITTEN)]),
)
def test_a_process_that_is_killed_is_succeeded_by_another(
    spark: SparkSession, fresh: Catalog, catalog_url: str, name: str, point: Point
) -> None:
    """With SIGKILL, a separate Spark session, and an open transaction."""
    scheme, change, _ = CASES[name]
    make_table(spark, fresh, scheme)
    before = contents(fresh)
    asked: dict[str, Any] = {"url": catalog_url, "operation": "operation", "table": TABLE}
    asked |= {"first": 100, "end": 120} if change is None else {"change": change.as_json()}
    command = [sys.executable, "-m", "tests.support.killed_rebalances", json.dumps(asked)]
    environment = {**os.environ, DIE_AT: point, "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, timeout=600, check=False)
    assert ended.returncode == -9, ended.stderr.decode()[-2000:]
    if point is not Point.COMMITTED:
        assert contents(fresh) == before
    report = run(spark, fresh, change)
    found = contents(fresh)
    expected = sorted([*range(40 if scheme != "interval" else 10), *(range(100, 120) if change is None else ())])
    gone = set(before.get(2, ())) if name == "drop with data" else set[int]()
    assert sorted(number for part in found.values() for number in part) == [n for n in expected if n not in gone]
    assert run(spark, fresh, change) == report
    check_disk(fresh)
    assert contents(fresh) == found
