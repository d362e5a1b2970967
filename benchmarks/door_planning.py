"""Spark's planning of a filtered query on a table of a front door, or of a Hive Metastore, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import BenchmarkError
from benchmarks.sample import TABLE
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import seconds

FOUND = 372
"""The number of partitions that the query reads."""

FILTER = "country = 'US' AND category = 'category-00' AND year = 2015"

_QUERY = f"SELECT count(*), sum(amount) FROM {TABLE} WHERE {FILTER}"
_WARM_UPS, _RUNS = 3, 5
_ROUNDS = 2


def planning_seconds(folder: Path, door: str, metastore: str) -> tuple[list[float], list[float]]:
    """Return the seconds of each plan with a door, and with a metastore, in turn.

    Args:
        door, metastore: `host:port`.

    Raises:
        BenchmarkError: A plan has other partitions than the query needs.
    """
    ours: list[float] = []
    peer: list[float] = []
    for _ in range(_ROUNDS):
        for address, times in ((door, ours), (metastore, peer)):
            times += in_new_process(folder / "spark.log", _times, folder, address)
    return ours, peer


def _times(folder: Path, address: str) -> list[float]:
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": f"thrift://{address}",
        # Otherwise Spark would list the files of Parquet tables, and the sample has none.
        "spark.sql.hive.convertMetastoreParquet": "false",
    }
    with session(folder / "spark", more=settings) as spark:

        def plan() -> None:
            planned = spark.sql(_QUERY)._jdf.queryExecution().optimizedPlan()
            found = planned.collectLeaves().head().prunedPartitions().get().size()
            if found != FOUND:
                raise BenchmarkError(f"Spark reads {found} partitions of {address} instead of {FOUND}")

        return [seconds(plan) for _ in range(_WARM_UPS + _RUNS)][_WARM_UPS:]
