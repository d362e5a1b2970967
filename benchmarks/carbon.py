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
    "hours_time": "Queries of 24 hourly ranges ÷ unpartitioned: time, beside the same rows in as many sorted files "
    "(limit: bare Spark on the files of the ranges that match)",
    "hours_fixed": "Queries of one row ÷ of the unpartitioned table: the time that Spark takes for any table",
    "hours_beyond": "Queries of 24 hourly ranges ÷ unpartitioned: time beyond that of one row",
    "hours_tasks": "Tasks of these queries ÷ unpartitioned: of all stages, the reading one and those behind it",
    "hours_files": "Files that they read ÷ unpartitioned: each table has 24",
    "hours_bytes": "Bytes that they read ÷ unpartitioned: of these files",
}
MOST_OF_PRUNED, MOST_OF_WHOLE = 1 / 5, 1.1

_LOW, _HIGH = 17, 20
_RANGE = f"{PARTITION_COLUMN} >= {_LOW} AND {PARTITION_COLUMN} < {_HIGH}"
QUERIES = {
    "range": f"SELECT day, count(DISTINCT id) FROM {{table}} WHERE {_RANGE} GROUP BY day",
    "range_and_id": f"SELECT count(*) FROM {{table}} WHERE {_RANGE} AND id = 'id-000123'",
    "all_by_day": "SELECT day, count(*) FROM {table} GROUP BY day",
    "all_by_hour": f"SELECT {PARTITION_COLUMN}, count(*) FROM {{table}} GROUP BY {PARTITION_COLUMN}",
    "range_id_day": f"SELECT * FROM {{table}} WHERE {_RANGE} AND id = 'id-000123' AND day = DATE '2017-06-03'",
}
_ONE_ROW, _BARE_PRUNED, _BARE_WHOLE = "one_row", "bare_pruned", "bare_whole"

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
        seconds: The median.
        tasks: The number of tasks of all its jobs, including those that list folders.
        size_bytes: The number of bytes that the tasks read.
    """

    seconds: float
    tasks: int
    files: int
    size_bytes: int


@dataclass(frozen=True)
class _Compared:
    """The costs of one query.

    Attributes:
        runs: The number of runs of each.
        bare_seconds: The time of bare Spark on the files that match.
        fixed_seconds: The time of bare Spark on a table of one row.
    """

    ours: _Effort
    plain: _Effort
    runs: int
    bare_seconds: float
    fixed_seconds: float


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
    for case, compared in efforts.items():
        yield from _figures(case, compared, is_full=request.row_count >= _FULL)


def _figures(case: str, compared: _Compared, *, is_full: bool) -> Iterator[Figure]:
    ours, plain, fixed = compared.ours, compared.plain, compared.fixed_seconds
    is_pruned = _RANGE in QUERIES[case]
    time_goal, pruned_goal = MOST_OF_PRUNED if is_pruned else MOST_OF_WHOLE, MOST_OF_PRUNED if is_pruned else None

    def figure(what: str, values: tuple[float, float], unit: str, goal: float | None, **more: float) -> Figure:
        name = f"{what}.{case}.{HOURS}.postgresql"
        goal = goal if is_full else None
        return Figure(name=name, ours=values[0], peer=values[1], unit=unit, runs=compared.runs, goal=goal, **more)

    yield figure("hours_time", (ours.seconds, plain.seconds), "s", time_goal, limit=compared.bare_seconds)
    yield figure("hours_fixed", (fixed, plain.seconds), "s", None)
    yield figure("hours_beyond", (ours.seconds - fixed, plain.seconds - fixed), "s", time_goal)
    yield figure("hours_tasks", (ours.tasks, plain.tasks), "tasks", pruned_goal)
    yield figure("hours_files", (ours.files, plain.files), "files", None)
    yield figure("hours_bytes", (ours.size_bytes / _MEGABYTE, plain.size_bytes / _MEGABYTE), "MB", None)


def _efforts_in_spark(request: _Request) -> dict[str, _Compared]:
    """Return the cost of each query on the catalog's table and on the plain table."""
    with (
        session(request.folder / "spark", memory="4g", is_long=True) as spark,
        Catalog.open(request.url) as catalog,
    ):
        create(spark, catalog, request.folder, request.row_count)
        spark.table(PLAIN).limit(1).coalesce(1).write.parquet(str(request.folder / "one_row"))
        spark.read.parquet(str(request.folder / "one_row")).createOrReplaceTempView(_ONE_ROW)
        _create_bare(spark, catalog, _BARE_PRUNED, range(_LOW, _HIGH))
        _create_bare(spark, catalog, _BARE_WHOLE, range(HOURS))
        return {case: _compared(spark, catalog, query, request.runs) for case, query in QUERIES.items()}


def _create_bare(spark: SparkSession, catalog: Catalog, view: str, hours: range) -> None:
    """Create a view of the files of some hours."""
    condition = f"{PARTITION_COLUMN} >= {hours.start} AND {PARTITION_COLUMN} < {hours.stop}"
    scan = catalog.scan_files(TABLE, condition)
    paths = [f"{scan.table.location}/{file.path}" for file in scan.files]
    spark.read.parquet(*paths).createOrReplaceTempView(view)


def _compared(spark: SparkSession, catalog: Catalog, query: str, runs: int) -> _Compared:
    from spark_jobs.queries.query import query as query_catalog

    def ours() -> DataFrame:
        return query_catalog(spark, query.format(table=TABLE), catalog=catalog)

    def of_view(name: str) -> Callable[[], DataFrame]:
        return lambda: spark.sql(query.format(table=name))

    plain, bare = of_view(PLAIN), of_view(_BARE_PRUNED if _RANGE in query else _BARE_WHOLE)
    frames = [ours, plain, bare, of_view(_ONE_ROW)]
    answers = [sorted(map(str, frame().collect())) for frame in frames[:-1]]
    if answers[0] != answers[1] or answers[0] != answers[2]:
        raise BenchmarkError(f"{query}: the results differ, with {', '.join(str(len(rows)) for rows in answers)} rows")
    for _ in range(_WARM_UPS - 1 if runs > 1 else 0):
        for frame in frames:
            frame().collect()
    times: dict[int, list[float]] = {number: [] for number in range(len(frames))}
    for run in range(runs):
        # Alternate which one runs first.
        for number in sorted(times, reverse=bool(run % 2)):
            times[number].append(seconds(lambda: frames[number]().collect()))  # noqa: B023
    taken = [median(times[number]) for number in range(len(frames))]
    return _Compared(_effort(spark, ours, taken[0]), _effort(spark, plain, taken[1]), runs, taken[2], taken[3])


# --- Spark's metrics ------------------------------------------------------------------------------------------------


def _effort(spark: SparkSession, query: Callable[[], DataFrame], taken: float) -> _Effort:
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
