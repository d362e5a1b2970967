"""Migrations in place, compared with other tools, and the planning of scans on the migrated table."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.parquet

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.many_files import DATABASE, FILES_A_PARTITION, table_of, write_files
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import seconds
from catalog import Catalog, FileFormat, NewPartition, Table
from catalog.files.filesystem import REMOTE_THREADS, FileInfo
from catalog.iceberg.folders import Recursion, data_files
from catalog.iceberg.footers.facts import FileFacts, FooterReader
from catalog.iceberg.jdbc import EXTENSIONS
from catalog.iceberg.layout import Layout, layout_of
from catalog.migration.requests import MigrationRequest
from catalog.migration.sources import SourceFolder
from catalog.settings.environment import ICEBERG_PACKAGE
from spark_jobs.migrating.listing import StageSettings, UsualLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADINGS = {
    "migrate": "Migrating ÷ Iceberg's Spark add_files: files of 50 columns, two cores",
    "migrate_limit": "Migrating ÷ bare footers: their statistics read by two processes, and nothing done with them",
    "migrate_pyiceberg": "Migrating ÷ PyIceberg's add_files: by its speed in one partition",
    "migrate_remote": "Staging ÷ one thread: 20 ms added to each opening of a file, as of an object store",
    "migrate_memory": "Memory of a migration's driver ÷ with a hundredth of the files: both of its halves",
    "migrate_planning": "Planning scans ÷ of Iceberg's own table: what was migrated, beside what add_files made",
}
MOST_OF_ICEBERG = 1 / 8
MOST_OF_LIMIT = 1 / 0.65
MOST_OF_ONE_THREAD = 1 / 20
MOST_MEMORY = 1.1
MOST_PLANNING = 1.0

FORMATS = (FileFormat.PARQUET, FileFormat.ORC)
_DELAY_SECONDS = 0.02
_ONE_THREAD_FILES = 100
"""The number of files from which the time of one thread is extrapolated."""
_SCANS = {"one_day": ("day", 7), "a_column": ("c0", 300), "everything": None}
"""Scan name → its filter: a column and the value that it equals."""
_WARM_UPS, _PLANS = 10, 31

_ICEBERG = "spark.sql.catalog.ice"

log = logging.getLogger(__name__)


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield migration times for both formats, times with remote files, the driver's memory, and planning times."""
    file_count, many = ground.scales[0], ground.scales[1]
    log.info("Migrating tables of %d and %d files", file_count, many)
    catalog = ground.catalog(ground.postgresql, "migrating")
    request = _Request(
        catalog.storage.url.render_as_string(hide_password=False),
        ground.folder / "migrating",
        file_count,
        ground.effort.least_runs,
    )
    request.folder.mkdir()
    try:
        for file_format in FORMATS:
            create_table(catalog, request.table(file_format), file_count)
        # Run this before our migrations, because Spark would read their metadata in the table's folder as data.
        peers = in_new_process(ground.folder / "iceberg.log", _times_of_iceberg, request)
        times = in_new_process(ground.folder / "spark.log", _times_of_ours, request)
        limits = {name: [_bare_seconds(request, name) for _ in range(request.runs)] for name in FORMATS}
        migrated = catalog.get_table(request.table(FileFormat.PARQUET).full_name)
        assert migrated.metadata_location is not None
        plans = in_new_process(ground.folder / "iceberg.log", _times_of_plans, request, migrated.metadata_location)
        for file_format in FORMATS:
            case, mine, limit = f"{file_format}.{file_count}", times[file_format], limits[file_format]
            yield Figure.of_runs(f"migrate.{case}", mine, peers[file_format], MOST_OF_ICEBERG, limit)
            yield Figure.of_runs(f"migrate_limit.{case}", mine, limit, MOST_OF_LIMIT)
        pyiceberg = [_pyiceberg_seconds(request)]
        yield Figure.of_runs(f"migrate_pyiceberg.parquet.{file_count}", times[FileFormat.PARQUET], pyiceberg, None)
        yield Figure.of_runs(
            f"migrate_remote.parquet.{file_count}", times["remote"], times["one thread"], MOST_OF_ONE_THREAD
        )
        megabytes = []
        for count in (many, many // 100):
            small = table_of(request.folder, FileFormat.PARQUET, count, 1)
            create_table(catalog, small, count)
            megabytes.append([in_new_process(ground.folder / "spark.log", _driver_megabytes, request, small.full_name)])
        yield Figure.of_runs(f"migrate_memory.driver.{many}", megabytes[0], megabytes[1], MOST_MEMORY, unit="MB")
        for scan in _SCANS:
            mine, theirs = plans[f"{scan}: ours"], plans[f"{scan}: theirs"]
            yield Figure.of_runs(f"migrate_planning.{scan}.{file_count}", mine, theirs, MOST_PLANNING)
    finally:
        shutil.rmtree(request.folder)


@dataclass(frozen=True)
class _Request:
    """The arguments of the processes with Spark.

    Attributes:
        file_count: The number of files with 50 columns.
    """

    url: str
    folder: Path
    file_count: int
    runs: int

    def table(self, file_format: FileFormat) -> Table:
        return table_of(self.folder, file_format, self.file_count)


def create_table(catalog: Catalog, table: Table, file_count: int) -> None:
    """Write a table's files, and add it with its partitions to a catalog."""
    write_files(table, file_count)
    catalog.create_table(
        table.full_name,
        columns=table.columns,
        partition_keys=table.partition_keys,
        format=table.format,
        location=table.location,
    )
    days = range(-(-file_count // FILES_A_PARTITION))
    catalog.add_partitions(table.full_name, [NewPartition((str(day),)) for day in days])


# --- ours -------------------------------------------------------------------------------------------------------


def _times_of_ours(request: _Request) -> dict[str, list[float]]:
    """Return the seconds of the measurements of our jobs, by name."""
    times: dict[str, list[float]] = {}
    with session(request.folder / "spark", memory="1g") as spark, Catalog.open(request.url) as catalog:
        for file_format in FORMATS:
            name = request.table(file_format).full_name
            migrate_table(spark, catalog, name)
            times[file_format] = []
            for _ in range(request.runs):
                catalog.migrations.revert(uuid4().hex, name)
                times[file_format].append(seconds(lambda: migrate_table(spark, catalog, name)))  # noqa: B023
        table = request.table(FileFormat.PARQUET)
        times["remote"] = [seconds(lambda: _stage_remote(spark, request, table)) for _ in range(2)][1:]
        times["one thread"] = [_one_thread_seconds(table, request.file_count)]
    return times


def migrate_table(spark: SparkSession, catalog: Catalog, name: str) -> None:
    """Migrate a Hive table as the peers do, without a comparison."""
    from spark_jobs.migrate import migrate

    migrate(spark, catalog, uuid4().hex, name, MigrationRequest(verify=False))


class SlowReader(FooterReader):
    """Reads footers with a delay for each file, as on an object store."""

    def read(self, file: FileInfo, footer: Any = None) -> FileFacts:
        """Wait, and read the footer."""
        time.sleep(_DELAY_SECONDS)
        return super().read(file, footer)


def _stage_remote(spark: SparkSession, request: _Request, table: Table) -> None:
    from spark_jobs.stage_migration import stage_files

    target = request.folder / "staged"
    shutil.rmtree(target, ignore_errors=True)
    layout = json.dumps(layout_of(table).as_json())
    settings = StageSettings(
        str(target), layout, Recursion.FAIL, frozenset(), threads=REMOTE_THREADS, reader=SlowReader
    )
    staged = stage_files(spark, settings, [_folders(table)], UsualLocation(table.location, table.key_names))
    if staged.file_count != request.file_count:
        raise BenchmarkError(f"{staged.file_count} of {request.file_count} files were staged")


def _folders(table: Table) -> list[SourceFolder]:
    paths = sorted(Path(table.location).glob("day=*"), key=lambda path: int(path.name.removeprefix("day=")))
    return [
        SourceFolder(ordinal, str(path), (path.name.removeprefix("day="),), table.format)
        for ordinal, path in enumerate(paths)
    ]


def _one_thread_seconds(table: Table, file_count: int) -> float:
    """Return the seconds of one thread for all files, extrapolated from some files."""
    reader = SlowReader(layout_of(table), table.format)
    files = list(data_files(_folders(table)[0].location, Recursion.FAIL))[:_ONE_THREAD_FILES]
    return seconds(lambda: [reader.read(file) for file in files]) * file_count / len(files)


def _driver_megabytes(request: _Request, name: str) -> float:
    """Migrate a table; return the memory of the driver's JVM and Python process.

    This is the heap of the JVM after a garbage collection, and the peak memory of this process.
    """
    with session(request.folder / "spark", memory="1g") as spark, Catalog.open(request.url) as catalog:
        migrate_table(spark, catalog, name)
        return _megabytes_in_use(spark)


def _megabytes_in_use(spark: SparkSession) -> float:
    jvm: Any = spark.sparkContext._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    status = Path("/proc/self/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return float((runtime.totalMemory() - runtime.freeMemory()) / 2**20 + resident / 2**10)


# --- peers ------------------------------------------------------------------------------------------------------


def _with_iceberg(request: _Request) -> AbstractContextManager[SparkSession]:
    settings = {
        "spark.jars.packages": ICEBERG_PACKAGE,
        _ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
        f"{_ICEBERG}.type": "hadoop",
        f"{_ICEBERG}.warehouse": str(request.folder / "iceberg"),
        **EXTENSIONS,
    }
    return session(request.folder / "spark", memory="2g", more=settings)


def _times_of_iceberg(request: _Request) -> dict[str, list[float]]:
    """Return the seconds of Iceberg's procedure, by format."""
    times: dict[str, list[float]] = {}
    with _with_iceberg(request) as spark:
        for file_format in FORMATS:
            table = request.table(file_format)
            columns = ", ".join(f"{field.name} {field.type}" for field in (*table.columns, *table.partition_keys))
            for number in range(2):
                name = f"{DATABASE}.{file_format}_{number}"
                spark.sql(f"CREATE TABLE ice.{name} ({columns}) USING iceberg PARTITIONED BY (day)")
                call = (
                    f"CALL ice.system.add_files(table => '{name}', parallelism => 2, "
                    f"source_table => '`{file_format}`.`{table.location}`')"
                )
                # The first call is a warm-up.
                times[file_format] = [seconds(lambda: spark.sql(call).collect())]  # noqa: B023
    return times


def _times_of_plans(request: _Request, ours: str) -> dict[str, list[float]]:
    """Return the seconds of Iceberg's scan planning for our table and for its own, alternating."""
    theirs = str(request.folder / "iceberg" / DATABASE / f"{FileFormat.PARQUET}_1")
    times: dict[str, list[float]] = {}
    with _with_iceberg(request) as spark:
        jvm: Any = spark.sparkContext._jvm
        iceberg = jvm.org.apache.iceberg
        count = iceberg.relocated.com.google.common.collect.Iterables.size
        loader = iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())
        tables = [loader.load(location) for location in (ours, theirs)]
        for name, condition in _SCANS.items():
            scans = [table.newScan().includeColumnStats() for table in tables]
            if condition is not None:
                scans = [scan.filter(iceberg.expressions.Expressions.equal(*condition)) for scan in scans]
            counts = [count(scan.planFiles()) for _ in range(_WARM_UPS) for scan in scans]
            if len(set(counts)) != 1 or not counts[0]:
                raise BenchmarkError(f"the scan {name} finds {counts[-2]} of our files, and {counts[-1]} of theirs")
            pairs = [[seconds(lambda: count(scan.planFiles())) for scan in scans] for _ in range(_PLANS)]  # noqa: B023
            times[f"{name}: ours"], times[f"{name}: theirs"] = map(list, zip(*pairs, strict=True))
    return times


def _bare_seconds(request: _Request, file_format: FileFormat) -> float:
    """Return the seconds of two processes that only read all footers with their statistics."""
    table = request.table(file_format)
    paths = [str(path) for path in Path(table.location).glob("day=*/*")]
    halves = [paths[::2], paths[1::2]]
    read = _bare_parquet if file_format is FileFormat.PARQUET else _bare_orc
    layout = layout_of(table)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        list(pool.map(read, [layout] * 2, [half[:10] for half in halves]))
        return seconds(lambda: list(pool.map(read, [layout] * 2, halves)))


def _bare_parquet(_: Layout, paths: list[str]) -> int:
    count = 0
    for path in paths:
        with Path(path).open("rb") as file:
            metadata = pyarrow.parquet.read_metadata(file)
        group = metadata.row_group(0)
        for number in range(metadata.num_columns):
            statistics = group.column(number).statistics
            count += statistics.null_count + (statistics.min_raw is not None) + (statistics.max_raw is not None)
    return count


def _bare_orc(layout: Layout, paths: list[str]) -> int:
    # PyArrow does not read the statistics of ORC files; our reader is the fastest that does.
    reader = FooterReader(layout, FileFormat.ORC)
    return sum(reader.read(FileInfo(path, Path(path).stat().st_size, 0)).row_count for path in paths)


def _pyiceberg_seconds(request: _Request) -> float:
    """Return the seconds of PyIceberg's `add_files` for all files, extrapolated from one partition."""
    from pyiceberg.catalog.sql import SqlCatalog

    table = request.table(FileFormat.PARQUET)
    paths = [str(path) for path in Path(table.location).glob("day=0/*")]
    warehouse = request.folder / "pyiceberg"
    warehouse.mkdir()
    iceberg = SqlCatalog("bench", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    iceberg.create_namespace(DATABASE)
    columns = Table(DATABASE, "t", table.columns, (), table.format, table.location)
    target = iceberg.create_table(f"{DATABASE}.t", layout_of(columns).schema)
    taken = seconds(lambda: target.add_files(paths))
    iceberg.engine.dispose()
    return taken * request.file_count / len(paths)
