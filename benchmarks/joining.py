"""Joins of two tables on their partition columns: partition-wise, and with Spark's sort-merge join."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import seconds
from catalog import Catalog
from catalog.schemes.hashing import HashScheme

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADINGS = {"partition_wise_join": "Join partition by partition ÷ Spark's own: the same statement over the same files"}
MOST_OF_SHUFFLED = 1.0
_FULL = 5_000_000
"""The minimum number of rows for the goal; joins of fewer are Spark's own on both sides."""

PARTITIONS = 24
ORDERS = "bench.orders"
ITEMS = "bench.items"
_JOINED = f"{ORDERS} o JOIN {ITEMS} i ON o.id = i.order_id"
STATEMENTS = {
    "few_columns": f"SELECT count(*), sum(o.customer * i.quantity) FROM {_JOINED}",
    "all_columns": "SELECT count(*), sum(o.customer * i.quantity), sum(o.priority), sum(i.price), "
    f"sum(length(o.note) + length(i.note)), sum(i.id) FROM {_JOINED}",
    "outer": f"SELECT count(*), count(i.id), sum(o.customer) FROM {ORDERS} o LEFT JOIN {ITEMS} i "
    "ON o.id = i.order_id AND i.quantity > o.priority",
    "exists": f"SELECT count(*), sum(o.customer) FROM {ORDERS} o "
    f"WHERE EXISTS (SELECT 1 FROM {ITEMS} i WHERE o.id = i.order_id AND i.quantity > o.priority)",
    "grouped": "SELECT max(items), max(total) FROM "
    f"(SELECT o.id, count(*) AS items, sum(i.quantity) AS total FROM {_JOINED} GROUP BY o.id)",
}
_ROWS_OF_A_PARTITION = 5
"""The number of rows of each table for each partition of the largest scale: 5 million rows at the full scale."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Request:
    """The arguments of the process with Spark.

    Attributes:
        runs: The number of measured runs of each statement with each kind of join, after one warm-up.
    """

    url: str
    folder: Path
    row_count: int
    runs: int


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the time of each statement with partition-wise joins and with Spark's joins."""
    catalog = ground.catalog(ground.postgresql, "joining")
    request = _Request(
        catalog.storage.url.render_as_string(hide_password=False),
        ground.folder / "joining",
        _ROWS_OF_A_PARTITION * ground.scales[-1],
        runs=ground.effort.least_runs,
    )
    log.info("Joining tables of %s rows", f"{request.row_count:,}")
    request.folder.mkdir()
    try:
        times = in_new_process(ground.folder / "spark.log", _times_in_spark, request)
    finally:
        shutil.rmtree(request.folder)
    for case, (ours, peer) in times.items():
        yield Figure(
            name=f"partition_wise_join.{case}.{PARTITIONS}.postgresql",
            ours=median(ours),
            peer=median(peer),
            unit="s",
            runs=len(ours),
            goal=MOST_OF_SHUFFLED if request.row_count >= _FULL else None,
        )


def _times_in_spark(request: _Request) -> dict[str, tuple[list[float], list[float]]]:
    """Return the seconds of each statement with our joins and with Spark's."""
    with session(request.folder, memory="2g") as spark, Catalog.open(request.url) as catalog:
        # Spark must not use a broadcast join, also if the tables are small.
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        _fill(spark, catalog, request)
        return {case: _compared(spark, catalog, case, request.row_count, request.runs) for case in STATEMENTS}


def _compared(
    spark: SparkSession, catalog: Catalog, case: str, row_count: int, runs: int
) -> tuple[list[float], list[float]]:
    from spark_jobs.queries.query import query

    _verify(spark, catalog, case, must_be_wise=row_count >= _FULL)
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(runs):
        # Alternate which one runs first.
        for is_ours in (True, False) if number % 2 else (False, True):
            frame = partial(query, spark, STATEMENTS[case], catalog=catalog, partition_wise=is_ours)
            times[is_ours].append(seconds(lambda: frame().collect()))  # noqa: B023 - called here and now
    return times[True], times[False]


def _verify(spark: SparkSession, catalog: Catalog, case: str, *, must_be_wise: bool) -> None:
    """Check that a statement has a partition-wise join if it must, and the same result as with Spark's join.

    Raises:
        BenchmarkError: The join is not partition-wise, or the results differ.
    """
    from spark_jobs.queries.query import prune_query

    ours = prune_query(spark, STATEMENTS[case], catalog=catalog)
    if must_be_wise and not ours.joins:
        raise BenchmarkError(f"{case}: the join is not partition-wise")
    peer = prune_query(spark, STATEMENTS[case], catalog=catalog, partition_wise=False)
    answers = [query.frame.collect() for query in (ours, peer)]
    if answers[0] != answers[1]:
        raise BenchmarkError(f"{case}: the partition-wise join returns {answers[0]}, Spark's join {answers[1]}")


def _fill(spark: SparkSession, catalog: Catalog, request: _Request) -> None:
    from pyspark.sql import functions as f

    numbers = spark.range(request.row_count)
    orders = numbers.select(
        (f.xxhash64("id") % 1_000_000).cast("int").alias("customer"),
        (f.col("id") % 5).cast("int").alias("priority"),
        f.hex(f.xxhash64("id", f.lit("order"))).alias("note"),
        "id",
    )
    items = numbers.select(
        "id",
        (f.col("id") % 11).cast("int").alias("quantity"),
        (f.col("id") % 1000 / 8).alias("price"),
        f.hex(f.xxhash64("id", f.lit("item"))).alias("note"),
        f.pmod(f.xxhash64("id"), f.lit(request.row_count)).alias("order_id"),
    )
    for name, rows in ((ORDERS, orders), (ITEMS, items)):
        _load(spark, catalog, request.folder / name, name, rows)


def _load(spark: SparkSession, catalog: Catalog, location: Path, name: str, rows: DataFrame) -> None:
    from spark_jobs.writing.scheme_loading import load_rows

    columns = [(field.name, field.dataType.simpleString()) for field in rows.schema]
    column, column_type = columns[-1]
    scheme = HashScheme(column, column_type, (), PARTITIONS)
    catalog.create_table(name, columns=columns, scheme=scheme, location=str(location))
    load_rows(spark, catalog, f"load {name}", name, rows)
