"""Publication of tables with a partition scheme as Iceberg tables: commits, and planning by other engines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import make_url

from benchmarks import listed_files
from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import Effort, Pair, compare
from catalog import Catalog
from catalog.iceberg.jdbc import EXTENSIONS, catalog_settings
from catalog.operations.attempts import attempt_folder
from catalog.rebalancing.changes import SplitPartition
from catalog.rebalancing.rebalancing import COMMIT
from catalog.schemes.ranges import RangeScheme
from catalog.settings.environment import package_settings

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

HEADINGS = {
    "publish": "Commit of a split ÷ PyIceberg's commit: one data file replaced by two; the files are not written",
    "publish_plan": "Other engines planning a read of one range ÷ of the same files in a table written by Spark",
}

_TABLE, _PEER, _OF_SPARK = "bench.published", "bench.peer", "bench.of_spark"
_PARTITIONS_A_FILE = 100
"""The number of partitions of the largest scale for each data file: 10,000 files at the full scale."""

_FILES_A_RANGE = 10
_VALUES = 10
"""The number of values of each range."""

_MOST_OF_PLANNING = 1.1

_ROWS = 1_000
_WARM_UPS = 20
"""The number of runs before Java's compiler has optimised the planning."""

_COLUMNS = (("id", "bigint"), *((f"c{number}", "bigint") for number in range(19)))

log = logging.getLogger(__name__)


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the time of a commit, and of planning a read of one range by engines, for a table with many files."""
    from pyiceberg.catalog.sql import SqlCatalog

    count = ground.scales[-1] // _PARTITIONS_A_FILE
    for database in ground.databases:
        log.info("Committing to a table of %s files on %s", f"{count:,}", database.name)
        folder = ground.folder / f"publishing-{database.name}"
        folder.mkdir()
        catalog = ground.catalog(database, "publishing")
        ours = _OwnTable(catalog, folder / "ours", count)
        url = catalog.storage.url.render_as_string(hide_password=False)
        iceberg = SqlCatalog("calve", uri=url, warehouse=str(folder))
        try:
            pair = in_new_process(ground.folder / "iceberg.log", _planning_by_spark, url, folder, ground.effort)
            yield _figure("publish_plan.spark", count, database.name, pair, goal=_MOST_OF_PLANNING)
            own, of_spark = (partial(_plan, iceberg.load_table(name)) for name in (_TABLE, _OF_SPARK))
            pair = compare(own, of_spark, ground.effort)
            yield _figure("publish_plan.pyiceberg", count, database.name, pair, goal=_MOST_OF_PLANNING)
            peer = _PeerTable(iceberg, iceberg.load_table(_TABLE))
            pair = compare(ours.split, peer.split, ground.effort)
            yield _figure("publish.split", count, database.name, pair, goal=1.0)
        finally:
            iceberg.engine.dispose()


def _figure(case: str, count: int, database: str, pair: Pair, *, goal: float) -> Figure:
    name = f"{case}.{count}.{database}"
    return Figure(name=name, ours=pair.ours, peer=pair.peer, unit="s", runs=pair.runs, goal=goal)


def _plan(table: Table) -> int:
    return len(list(table.scan(row_filter="id = 0").plan_files()))


def _planning_by_spark(url: str, folder: Path, effort: Effort) -> Pair:
    """Return the seconds that Spark's Iceberg needs to load and plan our table, and one that it has written itself."""
    database = make_url(url)
    settings = {**package_settings(database=database.get_backend_name()), **EXTENSIONS, **catalog_settings(database)}
    settings["spark.sql.catalog.calve.warehouse"] = str(folder)
    settings["spark.sql.catalog.calve.cache-enabled"] = "false"
    with session(folder / "spark", memory="2g", more=settings) as spark:
        iceberg: Any = spark.sparkContext._jvm.org.apache.iceberg  # type: ignore[union-attr]
        count = iceberg.relocated.com.google.common.collect.Iterables.size

        def load(name: str) -> Any:
            return iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"calve.{name}")

        def plan(name: str) -> int:
            return int(count(load(name).newScan().filter(iceberg.expressions.Expressions.equal("id", 0)).planFiles()))

        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)
        spark.sql(f"CREATE TABLE calve.{_OF_SPARK} ({columns}) USING iceberg")
        append, tasks = load(_OF_SPARK).newAppend(), load(_TABLE).newScan().includeColumnStats().planFiles().iterator()
        while tasks.hasNext():
            append.appendFile(tasks.next().file())
        append.commit()
        own, of_spark = partial(plan, _TABLE), partial(plan, _OF_SPARK)
        for _ in range(_WARM_UPS):
            if own() != of_spark():
                raise BenchmarkError(f"Spark plans to read {own()} files of our table, and {of_spark()} of its own")
        return compare(own, of_spark, effort)


class _OwnTable:
    """A table with ten files in each range, which are only in the catalog and in manifests."""

    def __init__(self, catalog: Catalog, folder: Path, count: int) -> None:
        self._catalog = catalog
        self._splits = 0
        ranges = count // _FILES_A_RANGE
        bounds = tuple((number, str(number * _VALUES)) for number in range(1, ranges + 1))
        scheme = RangeScheme("id", "bigint", (), ranges + 1, bounds)
        catalog.create_table(_TABLE, columns=_COLUMNS, scheme=scheme, location=str(folder))
        # The first file of each range has values of both halves, the others only of the first half.
        values = (
            (low, low + (_VALUES if number == 0 else _VALUES // 2) - 1)
            for low in range(0, ranges * _VALUES, _VALUES)
            for number in range(_FILES_A_RANGE)
        )
        listed_files.load(catalog, _TABLE, "load", values, _ROWS)

    def split(self) -> None:
        """Split the next range; its first file is replaced by two, and the others stay in the first half."""
        rebalancing, low = self._catalog.rebalancing, self._splits * _VALUES
        self._splits += 1
        middle = low + _VALUES // 2
        change = SplitPartition(self._splits, (str(middle), str(low + _VALUES)))
        operation = rebalancing.begin(f"split-{low}", _TABLE, change)
        with self._catalog.operations.attempt(operation.id, COMMIT) as attempt:
            plan, folder = rebalancing.plan_of(operation), attempt_folder(operation, attempt)
            halves = [(low, middle - 1), (middle, low + _VALUES - 1)]
            assert isinstance(plan.scheme, RangeScheme)
            listed_files.list_files(self._catalog, _TABLE, plan.scheme, folder, halves, _ROWS // 2)
            rebalancing.commit(operation.id, COMMIT, attempt, plan, folder)


class _PeerTable:
    """A table of PyIceberg with the data files of another."""

    def __init__(self, iceberg: SqlCatalog, model: Table) -> None:
        self.table = iceberg.create_table(_PEER, model.schema())
        self._files = [task.file for task in model.scan().plan_files()]
        with self.table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
            for file in self._files:
                snapshot.append_data_file(file)

    def split(self) -> None:
        """Replace a file by two."""
        old = self._files.pop()
        with self.table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
            snapshot.delete_data_file(old)
            for half in ("a", "b"):
                snapshot.append_data_file(_copy(old, f"{old.file_path}-{half}"))


def _copy(file: DataFile, path: str) -> DataFile:
    from pyiceberg.manifest import DataFile

    return DataFile.from_args(
        content=file.content,
        file_path=path,
        file_format=file.file_format,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=file.column_sizes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        nan_value_counts=file.nan_value_counts,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
        split_offsets=file.split_offsets,
    )
