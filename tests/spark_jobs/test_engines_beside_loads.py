"""Two processes append through Iceberg while Calve loads and splits: no row is lost or doubled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from catalog import Catalog, Column
from catalog.errors import CatalogError
from catalog.rebalancing.changes import MergePartitions, PartitionChange, SplitPartition
from catalog.schemes.ranges import RangeScheme
from catalog.tables.schemes import scheme_from_properties
from spark_jobs.reading.iceberg import read_metadata_file
from spark_jobs.reading.tables import read_table
from spark_jobs.rebalance import rebalance
from spark_jobs.sessions.session import configure
from spark_jobs.writing.scheme_loading import load_rows
from tests.support.appending_engines import value_of
from tests.support.effort import effort, sampled
from tests.support.iceberg_tables import sql_catalog
from tests.support.published import check_published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]
TABLE = "demo.t"
COMMITS, ROWS = effort(6, 30), 5
LOADED = 1_000_000
MOST_ATTEMPTS = 10


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", sampled(["pyiceberg", "spark"], ["pyiceberg"]))
def test_no_row_is_lost_or_doubled(
    iceberg_spark: SparkSession, duck: duckdb.DuckDBPyConnection, catalog: Catalog, catalog_url: str, engine: str
) -> None:
    spark = configure(iceberg_spark)
    catalog.create_database("demo")
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    catalog.create_table(TABLE, columns=[("n", "bigint"), ("c", "int")], scheme=scheme)
    processes = [start(engine, catalog_url, first) for first in (0, 100_000)]
    expected = {first + number for first in (0, 100_000) for number in range(COMMITS * ROWS)}
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    rounds = 0
    # Not for ever: on a slow machine, the engines would lose against the continuous commits again and again.
    while rounds < 2 or (rounds < COMMITS and any(process.poll() is None for process in processes)):
        first = LOADED + rounds * ROWS
        frame = spark.range(first, first + ROWS, 1, 1).selectExpr("id AS n", "CAST(id % 40 AS int) AS c")
        repeatedly(lambda name, frame=frame: load_rows(spark, catalog, name, TABLE, frame), f"load-{rounds}", catalog)
        expected.update(range(first, first + ROWS))
        repeatedly(
            lambda name: rebalance(spark, catalog, name, TABLE, next_change(catalog)), f"change-{rounds}", catalog
        )
        rounds += 1
    for process in processes:
        _, problems = process.communicate(timeout=600)
        assert process.returncode == 0, problems[-3000:]
    check(spark, duck, catalog, catalog_url, sorted(expected))


def start(engine: str, url: str, first: int) -> subprocess.Popen[str]:
    """Start a process that appends rows."""
    request = {"engine": engine, "url": url, "table": TABLE, "first": first, "commits": COMMITS, "rows": ROWS}
    command = [sys.executable, "-m", "tests.support.appending_engines", json.dumps(request)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=pipe, stderr=pipe, text=True)


def next_change(catalog: Catalog) -> PartitionChange:
    """Return a split of the first range, or a merge if it was split before."""
    scheme = catalog.get_table(TABLE).scheme
    assert isinstance(scheme, RangeScheme)
    (first, upper), (second, _) = scheme.bounds[:2]
    return SplitPartition(first, ("5", upper)) if upper == "10" else MergePartitions((first, second))


def repeatedly(run: Any, name: str, catalog: Catalog) -> None:
    """Run an operation; again, as its message says, if a commit of an engine came between."""
    for number in range(MOST_ATTEMPTS):
        try:
            run(f"{name}-{number}")
            return
        except CatalogError as error:
            if not error.retryable or number == MOST_ATTEMPTS - 1:
                raise


def check(
    spark: SparkSession, duck: duckdb.DuckDBPyConnection, catalog: Catalog, url: str, expected: list[int]
) -> None:
    """Compare what all readers return, before and after the last commits are taken in and placed."""
    for name in ("last", "after the last"):
        with sql_catalog(url) as iceberg:
            table = iceberg.load_table(TABLE)
            rows = table.scan().to_arrow()
        assert sorted(rows["n"].to_pylist()) == expected
        assert rows["c"].to_pylist() == [value_of(number) for number in rows["n"].to_pylist()]
        own = read_table(spark, TABLE, catalog=catalog).select("n").collect()
        assert sorted(number for (number,) in own) == expected
        some = read_table(spark, TABLE, "c = 7", catalog=catalog).select("n").collect()
        assert sorted(number for (number,) in some) == [number for number in expected if value_of(number) == 7]
        others = read_metadata_file(spark, table.metadata_location).select("n").collect()
        assert sorted(number for (number,) in others) == expected
        found = duck.execute(f"SELECT n FROM iceberg_scan('{table.metadata_location}')").fetchall()
        assert sorted(number for (number,) in found) == expected
        rebalance(spark, catalog, name, TABLE, next_change(catalog))
    check_published(catalog, TABLE)
