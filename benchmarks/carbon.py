"""The five queries of a CarbonData talk, on a table of hourly ranges and on the same rows without partitions."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.hours import HOURS, PARTITION_COLUMN, PLAIN, TABLE, create
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import seconds
from catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADINGS = {
    "hours_time": "Queries of 24 hourly ranges ÷ unpartitioned: time, beside the same rows in as many sorted files",
    "hours_tasks": "Tasks of these queries ÷ unpartitioned: of all stages, the reading one and those behind it",
    "hours_files": "Files that they read ÷ unpartitioned: each table has 24",
    "hours_bytes": "Bytes that they read ÷ unpartitioned: of these files",
}
MOST_OF_PRUNED, MOST_OF_WHOLE = 1 / 5, 1.1

_RANGE = f"{PARTITION_COLUMN} >= 17 AND {PARTITION_COLUMN} < 20"
QUERIES = {
    "range": f"SELECT day, count(DISTINCT id) FROM {{table}} WHERE {_RANGE} GROUP BY day",
    "range_and_id": f"SELECT count(*) FROM {{table}} WHERE {_RANGE} AND id = 'id-000123'",
    "all_by_day": "SELECT day, count(*) FROM {table} GROUP BY day",
    "all_by_hour": f"SELECT {PARTITION_COLUMN}, count(*) FROM {{table}} GROUP BY {PARTITION_COLUMN}",
    "range_id_day": f"SELECT * FROM {{table}} WHERE {_RANGE} AND id = 'id-000123' AND day = DATE '2017-06-03'",
}
_ROWS_OF_A_PARTITION = 20
"""The number of rows for each partition of the largest scale: 20 million rows at the full scale."""

_FULL = 20_000_000
"""The minimum number of rows for the goals; with fewer, Spark's overhead dominates."""

_VECTORED = "parquet.hadoop.vectored.io.enabled"
"""The setting for vectored reads, which Spark does not count in the bytes that a task reads."""

_WARM_UPS = 2
_MEGABYTE = 1_000_000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Request:
    """The arguments of the process with Spark."""

    url: str
    folder: Path
    row_count: int
    runs: int


@dataclass(frozen=True)
class _Effort:
    """The cost of one query.

    Attributes:
        tasks: The number of tasks of all its jobs, including those that list folders.
        size_bytes: The number of bytes that the tasks read.
    """

    seconds: tuple[float, ...]
    tasks: int
    files: int
    size_bytes: int


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield time, tasks, files and bytes of each query on the catalog's table and on the plain table."""
    catalog = ground.catalog(ground.postgresql, "hours")
    request = _Request(
        catalog.storage.url.render_as_string(hide_password=False),
        ground.folder / "hours",
        _ROWS_OF_A_PARTITION * ground.scales[-1],
        runs=2 * ground.effort.least_runs - 1,
    )
    log.info("Querying tables of %s rows", f"{request.row_count:,}")
    request.folder.mkdir()
    try:
        efforts = in_new_process(ground.folder / "spark.log", _efforts_in_spark, request)
    finally:
        shutil.rmtree(request.folder)
    for what in HEADINGS:
        for case, (ours, peer) in efforts.items():
            yield _figure(what, case, ours, peer, is_full=request.row_count >= _FULL)


def _figure(what: str, case: str, ours: _Effort, peer: _Effort, *, is_full: bool) -> Figure:
    value, unit = _VALUES[what]
    is_pruned = _RANGE in QUERIES[case]
    goals = {"hours_time": MOST_OF_PRUNED if is_pruned else MOST_OF_WHOLE}
    if is_pruned:
        goals["hours_tasks"] = MOST_OF_PRUNED
    return Figure(
        name=f"{what}.{case}.{HOURS}.postgresql",
        ours=value(ours),
        peer=value(peer),
        unit=unit,
        runs=len(ours.seconds),
        goal=goals.get(what) if is_full else None,
    )


_VALUES: dict[str, tuple[Callable[[_Effort], float], str]] = {
    "hours_time": (lambda effort: median(effort.seconds), "s"),
    "hours_tasks": (lambda effort: effort.tasks, "tasks"),
    "hours_files": (lambda effort: effort.files, "files"),
    "hours_bytes": (lambda effort: effort.size_bytes / _MEGABYTE, "MB"),
}


def _efforts_in_spark(request: _Request) -> dict[str, tuple[_Effort, _Effort]]:
    """Return the cost of each query on the catalog's table and on the plain table."""
    with (
        session(request.folder / "spark", memory="4g", is_long=True) as spark,
        Catalog.open(request.url) as catalog,
    ):
        create(spark, catalog, request.folder, request.row_count)
        return {case: _compared(spark, catalog, query, request.runs) for case, query in QUERIES.items()}


def _compared(spark: SparkSession, catalog: Catalog, query: str, runs: int) -> tuple[_Effort, _Effort]:
    from spark_jobs.queries.query import query as query_catalog

    def ours() -> DataFrame:
        return query_catalog(spark, query.format(table=TABLE), catalog=catalog)

    def plain() -> DataFrame:
        return spark.sql(query.format(table=PLAIN))

    answers = [sorted(map(str, frame().collect())) for frame in (ours, plain)]
    if answers[0] != answers[1]:
        raise BenchmarkError(f"{query}: the results differ, with {len(answers[0])} and {len(answers[1])} rows")
    for _ in range(_WARM_UPS - 1 if runs > 1 else 0):
        ours().collect(), plain().collect()
    times: list[tuple[float, float]] = []
    for number in range(runs):
        # Alternate which one runs first.
        if number % 2:
            second, first = seconds(lambda: plain().collect()), seconds(lambda: ours().collect())
        else:
            first, second = seconds(lambda: ours().collect()), seconds(lambda: plain().collect())
        times.append((first, second))
    ours_times, plain_times = zip(*times, strict=True)
    return _effort(spark, ours, ours_times), _effort(spark, plain, plain_times)


# --- Spark's metrics ------------------------------------------------------------------------------------------------


def _effort(spark: SparkSession, query: Callable[[], DataFrame], taken: tuple[float, ...]) -> _Effort:
    """Run a query again, and return its cost with the number of its tasks, files and bytes."""
    group = f"effort-{uuid4().hex}"
    context: Any = spark.sparkContext
    context.setJobGroup(group, group)
    spark.conf.set(_VECTORED, "false")
    frame = query()
    frame.collect()
    spark.conf.unset(_VECTORED)
    context.setJobGroup("", "")
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = context.statusTracker().getJobIdsForGroup(group)
    stages = {stage for job in jobs for stage in context.statusTracker().getJobInfo(job).stageIds}
    store = context._jsc.sc().statusStore()
    attempts = [store.lastStageAttempt(stage) for stage in stages]
    tasks = sum(attempt.numCompleteTasks() for attempt in attempts)
    files = sum(_metric(scan, "numFiles") for scan in _scans(frame._jdf.queryExecution().executedPlan()))
    return _Effort(taken, tasks, files, sum(attempt.inputBytes() for attempt in attempts))


def _metric(node: Any, name: str) -> int:
    return int(node.metrics().apply(name).value())


def _scans(node: Any) -> Iterator[Any]:
    """Yield the file scans of an executed plan, including those in its query stages."""
    kind = str(node.getClass().getSimpleName())
    if kind == "AdaptiveSparkPlanExec":
        yield from _scans(node.executedPlan())
    elif kind.endswith("QueryStageExec"):
        yield from _scans(node.plan())
    elif kind == "FileSourceScanExec":
        yield node
    else:
        for number in range(node.children().size()):
            yield from _scans(node.children().apply(number))
