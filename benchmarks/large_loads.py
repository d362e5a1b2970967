"""A load of many rows and partitions, beside plain Spark that parses the same files and writes the same partitions."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import seconds
from catalog import Catalog
from catalog.settings.table_config import configured_load
from catalog.statements.loads import TableLoads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADINGS = {
    "large_load": "A load ÷ bare Spark: validated, written, published and checked, beside parsing and writing the rows",
}
MOST_OF_BARE = 1.5

_ROWS_OF_SCALE = 10
"""The number of rows for each partition of the largest scale: 10 million at the full scale."""
_PARTITIONS_OF_SCALE = 500
_FILES = 20
_TYPES = {"id": "bigint", "customer": "bigint", "amount": "double", "note": "string"}
_TABLE = "shop.orders_{}"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Request:
    """The arguments of the process with Spark."""

    url: str
    folder: Path
    row_count: int
    partition_count: int
    runs: int


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the time of a load against that of plain Spark."""
    rows, partitions = _ROWS_OF_SCALE * ground.scales[-1], max(2, ground.scales[-1] // _PARTITIONS_OF_SCALE)
    log.info("Loading %s rows into %s partitions", f"{rows:,}", f"{partitions:,}")
    catalog = ground.catalog(ground.postgresql, "large_loads")
    url = catalog.storage.url.render_as_string(hide_password=False)
    request = _Request(url, ground.folder / "large_loads", rows, partitions, ground.effort.least_runs)
    request.folder.mkdir()
    try:
        ours, bare = in_new_process(ground.folder / "spark.log", _times_in_spark, request)
    finally:
        shutil.rmtree(request.folder)
    yield Figure.of_runs(f"large_load.csv.{partitions}", ours, bare, MOST_OF_BARE)


def _times_in_spark(request: _Request) -> tuple[list[float], list[float]]:
    """Return the seconds of our loads and of plain Spark's, which alternate."""
    os.environ["CALVE_HOME"] = str(request.folder / "home")
    ours: list[float] = []
    bare: list[float] = []
    # With the JVM as spark-submit starts it, not with the settings for a fast start, which slow down long jobs.
    with session(request.folder / "spark", memory="2g", is_long=True) as spark, Catalog.open(request.url) as catalog:
        catalog.create_database("shop", location=str(request.folder / "shop"))
        source = request.folder / "source"
        _write_source(spark, source, request)
        for number in range(request.runs):
            # In turn, so that neither side always finds the files in the machine's cache.
            for is_ours in (True, False) if number % 2 else (False, True):
                if is_ours:
                    ours.append(seconds(lambda: _load(spark, catalog, source, request, number)))  # noqa: B023
                else:
                    bare.append(seconds(lambda: _load_plainly(spark, source, request.folder / "bare")))
    return ours, bare


def _write_source(spark: SparkSession, source: Path, request: _Request) -> None:
    columns = ("id", "id % 1000 AS customer", "round(rand(7) * 100, 2) AS amount", "concat('note ', id % 97) AS note")
    # Files of several days each, as of a shop that delivers weekly.
    day = f"CAST(id * {request.partition_count} DIV {request.row_count} AS int) AS day"
    rows = spark.range(0, request.row_count, 1, _FILES).selectExpr(*columns, day)
    rows.write.option("header", "true").csv(str(source))


def _load(spark: SparkSession, catalog: Catalog, source: Path, request: _Request, number: int) -> None:
    from spark_jobs.statement_engine import SparkEngine

    table = _TABLE.format(number)
    config = configured_load({"table": table, "source": str(source), "keys": ["day int"]}, {"columns": _TYPES})
    loads = TableLoads(catalog, start=lambda opened: SparkEngine(opened, spark))
    (report,) = loads.load(config, [str(source)])
    found = report.registered["partitions"], report.registered["row_count"], report.checked["passed"]
    if found != (request.partition_count, request.row_count, request.partition_count):
        raise BenchmarkError(f"{table} has {found[0]:,} partitions with {found[1]:,} rows; {found[2]:,} passed")


def _load_plainly(spark: SparkSession, source: Path, target: Path) -> None:
    schema = ", ".join(f"{name} {column_type}" for name, column_type in (*_TYPES.items(), ("day", "int")))
    rows = spark.read.schema(schema).option("header", "true").csv(str(source))
    rows.hint("rebalance", "day").write.partitionBy("day").mode("overwrite").parquet(str(target))
