"""Staging a migration: how fast footers become manifests, beside others who do it, and what memory it takes."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.orc
import pyarrow.parquet
from pyarrow import types

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import seconds
from catalog import FileFormat, Table
from catalog.environment import ICEBERG_PACKAGE
from catalog.files import FileInfo
from catalog.iceberg.facts import FileFacts, FooterReader
from catalog.iceberg.folders import Recursion, data_files
from catalog.iceberg.layout import Layout, layout_of
from catalog.migration.sources import SourceFolder
from catalog.model import Column
from spark_jobs.migration_listing import StageSettings, UsualLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADINGS = {
    "stage": "Staging ÷ Iceberg's Spark add_files: files of 50 columns",
    "stage_pyiceberg": "Staging ÷ PyIceberg's add_files: the same",
    "stage_limit": "Staging ÷ bare footers with statistics, read by two processes: the same",
    "stage_remote": "Staging ÷ one thread: 20 ms added to each opening of a file",
    "stage_memory": "Memory of the driver, staging many files ÷ a hundredth of them",
}
MOST_OF_ICEBERG = 1 / 8
MOST_OF_LIMIT = 1 / 0.65
MOST_OF_ONE_THREAD = 1 / 20
MOST_MEMORY = 1.1

COLUMN_COUNT = 50
_FILES_A_PARTITION = 100
_DELAY_SECONDS = 0.02
_ONE_THREAD_FILES = 100
"""How many files show what one thread needs for each."""
_VARIANTS = 16

log = logging.getLogger(__name__)


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield how fast tables are staged in both formats, with files far away, and what memory it takes."""
    file_count = ground.scales[0]
    log.info("Staging migrations of %d files", file_count)
    request = _Request(ground.folder / "migrating", file_count, ground.scales[1], ground.effort.least_runs)
    request.folder.mkdir()
    try:
        times = in_new_process(ground.folder / "spark.log", _times_in_spark, request)
        peers = in_new_process(ground.folder / "iceberg.log", _times_of_iceberg, request)
        for file_format in (FileFormat.PARQUET, FileFormat.ORC):
            case = f"{file_format}.{file_count}.none"
            ours = times[file_format]
            limit = [_bare_seconds(request, file_format) for _ in ours]
            yield _figure(f"stage.{case}", ours, peers[file_format], MOST_OF_ICEBERG, limit)
            yield _figure(f"stage_limit.{case}", ours, limit, MOST_OF_LIMIT)
        pyiceberg = [_pyiceberg_seconds(request)]
        yield _figure(f"stage_pyiceberg.parquet.{file_count}.none", times["parquet"], pyiceberg, None)
        yield _figure(
            f"stage_remote.parquet.{file_count}.none", times["remote"], times["one thread"], MOST_OF_ONE_THREAD
        )
        more = request.many_count
        yield _figure(
            f"stage_memory.parquet.{more}.none", times["memory: many"], times["memory: few"], MOST_MEMORY, unit="MB"
        )
    finally:
        shutil.rmtree(request.folder)


def _figure(
    name: str,
    ours: list[float],
    peer: list[float],
    goal: float | None,
    limit: list[float] | None = None,
    unit: str = "s",
) -> Figure:
    return Figure(
        name=name,
        ours=median(ours),
        peer=median(peer),
        limit=None if limit is None else median(limit),
        unit=unit,
        runs=len(ours),
        goal=goal,
    )


@dataclass(frozen=True)
class _Request:
    """What the processes with Spark have to know.

    Attributes:
        file_count: Of files with 50 columns.
        many_count: Of small files.
    """

    folder: Path
    file_count: int
    many_count: int
    runs: int

    def table(self, file_format: FileFormat, count: int | None = None) -> Table:
        """Return a table of so many files in partitions of a hundred."""
        location = self.folder / f"{file_format}-{count or self.file_count}"
        return Table(
            "bench",
            location.name,
            _columns(COLUMN_COUNT if count is None else 1),
            (Column("day", "int"),),
            file_format,
            str(location),
        )


def _columns(count: int) -> tuple[Column, ...]:
    kinds = ("bigint", "double", "string", "int", "date")
    return tuple(Column(f"c{number}", kinds[number % len(kinds)]) for number in range(count))


def _write(table: Table, file_count: int) -> None:
    """Write a table's files: some that differ, and copies of these."""
    root = Path(table.location)
    written = [_write_one(root / f"_variant-{number}", table, number) for number in range(_VARIANTS)]
    for number in range(file_count):
        folder = root / f"day={number // _FILES_A_PARTITION}"
        folder.mkdir(exist_ok=True)
        shutil.copyfile(written[number % _VARIANTS], folder / f"{number:08d}")


def _write_one(path: Path, table: Table, number: int) -> Path:
    arrow = {"bigint": pyarrow.int64(), "double": pyarrow.float64(), "string": pyarrow.string()}
    arrow |= {"int": pyarrow.int32(), "date": pyarrow.date32()}
    columns = {}
    for column in table.columns:
        kind = arrow[column.type]
        values = [None if row == number else row * (number + 1) for row in range(20)]
        if types.is_string(kind):
            columns[column.name] = pyarrow.array([f"a text of some length, {value}" for value in values], kind)
        else:
            columns[column.name] = (
                pyarrow.array(values, pyarrow.int64()).cast(pyarrow.int32() if types.is_date(kind) else kind).cast(kind)
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = pyarrow.table(columns)
    if table.format is FileFormat.ORC:
        pyarrow.orc.write_table(rows, path)
    else:
        pyarrow.parquet.write_table(rows, path)
    return path


def _folders(table: Table) -> list[SourceFolder]:
    found = sorted(Path(table.location).glob("day=*"), key=lambda path: int(path.name.removeprefix("day=")))
    return [
        SourceFolder(ordinal, str(path), (path.name.removeprefix("day="),), table.format)
        for ordinal, path in enumerate(found)
    ]


class SlowReader(FooterReader):
    """Reads footers of files that take a while to open, as those of an object store do."""

    def read(self, file: FileInfo) -> FileFacts:
        """Wait, then read."""
        time.sleep(_DELAY_SECONDS)
        return super().read(file)


def _stage(spark: SparkSession, table: Table, target: Path, **settings: Any) -> None:
    from spark_jobs.stage_migration import stage_files

    shutil.rmtree(target, ignore_errors=True)
    layout = json.dumps(layout_of(table).as_json())
    told = StageSettings(str(target), layout, Recursion.FAIL, frozenset(), **settings)
    folders = _folders(table)
    staged = stage_files(spark, told, [folders], UsualLocation(table.location, table.key_names))
    expected = sum(1 for _ in Path(table.location).glob("day=*/*"))
    if staged.file_count != expected:
        raise BenchmarkError(f"{staged.file_count} of {expected} files were staged")


def _times_in_spark(request: _Request) -> dict[str, list[float]]:
    """Return the seconds of everything that is measured with our jobs, by name; and megabytes."""
    times: dict[str, list[float]] = {}

    def take(name: str, function: Callable[[], object], runs: int) -> None:
        function()
        times[name] = [seconds(function) for _ in range(runs)]

    target = request.folder / "staged"
    with session(request.folder / "spark", memory="1g") as spark:
        for file_format in (FileFormat.PARQUET, FileFormat.ORC):
            table = request.table(file_format)
            _write(table, request.file_count)
            take(file_format, lambda table=table: _stage(spark, table, target), request.runs)  # type: ignore[misc]
        table = request.table(FileFormat.PARQUET)
        take("remote", lambda: _stage(spark, table, target, threads=32, reader=SlowReader), 1)
        times["one thread"] = [_one_thread_seconds(table, request.file_count)]
        for name, count in (("memory: few", request.many_count // 100), ("memory: many", request.many_count)):
            small = request.table(FileFormat.PARQUET, count)
            _write(small, count)
            _stage(spark, small, target)
            times[name] = [_driver_megabytes(spark)]
    return times


def _one_thread_seconds(table: Table, file_count: int) -> float:
    """Return what one thread would need for all files, by what it needs for some."""
    reader = SlowReader(layout_of(table), table.format)
    files = list(data_files(_folders(table)[0].location, Recursion.FAIL))[:_ONE_THREAD_FILES]
    return seconds(lambda: [reader.read(file) for file in files]) * file_count / len(files)


def _driver_megabytes(spark: SparkSession) -> float:
    """Return what is in use in both halves of the driver: the heap of the JVM after a collection, and this process."""
    jvm: Any = spark.sparkContext._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    status = Path("/proc/self/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return float((runtime.totalMemory() - runtime.freeMemory()) / 2**20 + resident / 2**10)


def _times_of_iceberg(request: _Request) -> dict[str, list[float]]:
    """Return the seconds of Iceberg's own procedure, by format."""
    catalog = "spark.sql.catalog.ice"
    settings = {
        "spark.jars.packages": ICEBERG_PACKAGE,
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(request.folder / "iceberg"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    times: dict[str, list[float]] = {}
    with session(request.folder / "spark", memory="2g", more=settings) as spark:
        for file_format in (FileFormat.PARQUET, FileFormat.ORC):
            times[file_format] = []
            for number in range(2):
                name = f"ice.bench.{file_format}_{number}"
                columns = ", ".join(f"{each.name} {each.type}" for each in request.table(file_format).columns)
                spark.sql(f"CREATE TABLE {name} ({columns}, day int) USING iceberg PARTITIONED BY (day)")
                call = (
                    f"CALL ice.system.add_files(table => 'bench.{file_format}_{number}', parallelism => 2, "
                    f"source_table => '`{file_format}`.`{request.table(file_format).location}`')"
                )
                times[file_format].append(seconds(lambda call=call: spark.sql(call).collect()))  # type: ignore[misc]
    return {name: each[1:] for name, each in times.items()}


def _bare_seconds(request: _Request, file_format: FileFormat) -> float:
    """Return what two processes need to read all footers with their statistics, and to do nothing with them."""
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
    # PyArrow does not give the statistics of ORC files; ours is the quickest reader that does.
    reader = FooterReader(layout, FileFormat.ORC)
    return sum(reader.read(FileInfo(path, Path(path).stat().st_size, 0)).row_count for path in paths)


def _pyiceberg_seconds(request: _Request) -> float:
    """Return what PyIceberg's own `add_files` needs."""
    from pyiceberg.catalog.sql import SqlCatalog

    table = request.table(FileFormat.PARQUET)
    paths = [str(path) for path in Path(table.location).glob("day=0/*")]
    warehouse = request.folder / "pyiceberg"
    warehouse.mkdir()
    iceberg = SqlCatalog("bench", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    iceberg.create_namespace("bench")
    columns = Table("bench", "t", table.columns, (), table.format, table.location)
    target = iceberg.create_table("bench.t", layout_of(columns).schema)
    taken = seconds(lambda: target.add_files(paths))
    iceberg.engine.dispose()
    return taken * request.file_count / len(paths)
