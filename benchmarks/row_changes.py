"""Statements that change rows, beside the same statements on Iceberg's own tables, and beside plain Spark."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import take_in_turn
from catalog import Catalog, NewPartition
from catalog.iceberg.jdbc import EXTENSIONS
from catalog.settings.environment import ICEBERG_PACKAGE
from catalog.statements.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADINGS = {
    "replace": "INSERT OVERWRITE ÷ that of Iceberg's Spark: 10 of 50 days are replaced by a SELECT",
    "merge": "MERGE INTO ÷ that of Iceberg's Spark: one row of 100 changes in 10 of 50 days, and as many are new",
    "compact": "COMPACT ÷ bare Spark: small files, 100 in each partition, beside reading and writing the same rows",
}
MOST_OF_ICEBERG, MOST_OF_BARE = 1.0, 1.15

DAYS, CHANGED_DAYS, FILES_A_DAY = 50, 10, 100
KINDS = {"hive": "STORED AS PARQUET", "iceberg": "STORED AS ICEBERG"}
_COLUMNS = "id bigint, customer bigint, amount double, note string"
_ROW = "{id} AS id, {id} % 1000 AS customer, rand(7) AS amount, concat('note ', {id} % 97) AS note"
_STATEMENTS = {
    "replace": f"INSERT OVERWRITE {{table}} SELECT id, customer, amount + 1, note, day FROM {{source}} "
    f"WHERE day < {CHANGED_DAYS}",
    "merge": "MERGE INTO {table} t USING {changes} s ON t.id = s.id AND t.day = s.day "
    "WHEN MATCHED THEN UPDATE SET amount = s.amount, note = s.note "
    "WHEN NOT MATCHED THEN INSERT (id, customer, amount, note, day) "
    "VALUES (s.id, s.customer, s.amount, s.note, s.day)",
}
_ICEBERG = "spark.sql.catalog.ice"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Request:
    """The arguments of the process with Spark."""

    url: str
    folder: Path
    row_count: int
    file_count: int
    runs: int


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the time of each statement against Iceberg's, and of a compaction against plain Spark."""
    rows, files = ground.scales[-1], ground.scales[0]
    log.info("Changing %s rows, and compacting %s files", f"{rows:,}", f"{files:,}")
    catalog = ground.catalog(ground.postgresql, "row_changes")
    url = catalog.storage.url.render_as_string(hide_password=False)
    request = _Request(url, ground.folder / "row_changes", rows, files, ground.effort.least_runs)
    request.folder.mkdir()
    try:
        times = in_new_process(ground.folder / "spark.log", _times_in_spark, request)
    finally:
        shutil.rmtree(request.folder)
    for what in _STATEMENTS:
        for kind in KINDS:
            yield Figure.of_runs(
                f"{what}.{kind}.{DAYS}", times[f"{what}: {kind}"], times[f"{what}: peer"], MOST_OF_ICEBERG
            )
    days = files // FILES_A_DAY
    yield Figure.of_runs(f"compact.hive.{days}", times["compact"], times["compact: bare"], MOST_OF_BARE)


def _times_in_spark(request: _Request) -> dict[str, list[float]]:
    """Return the seconds of all measurements, by name."""
    from spark_jobs.statement_engine import SparkEngine

    packages = {
        "spark.jars.packages": ICEBERG_PACKAGE,
        **EXTENSIONS,
        _ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
        f"{_ICEBERG}.type": "hadoop",
        f"{_ICEBERG}.warehouse": str(request.folder / "iceberg"),
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
    }
    with ExitStack() as exits:
        spark = exits.enter_context(session(request.folder / "spark", memory="2g", more=packages))
        catalog = exits.enter_context(Catalog.open(request.url))
        ours = exits.enter_context(
            Session(catalog, database="shop", start=lambda opened: SparkEngine(opened, spark), requested_by=None)
        )
        bench = _Bench(spark, catalog, ours, request)
        catalog.create_database("shop", location=str(request.folder / "shop"))
        bench.create()
        for number in range(request.runs + 1):
            if number == 1:
                # The first run is a warm-up.
                bench.times.clear()
            for what in _STATEMENTS:
                bench.change(what, number)
            bench.compact(number)
    return bench.times


class _Bench:
    """Makes each change with Calve and with its peer, in turn, and compares their rows."""

    def __init__(self, spark: SparkSession, catalog: Catalog, ours: Session, request: _Request) -> None:
        self.times: dict[str, list[float]] = {}
        self._spark, self._catalog, self._ours, self._request = spark, catalog, ours, request

    def create(self) -> None:
        """Create the tables with the same rows, and those that the statements read."""
        rows, days = self._request.row_count, DAYS
        frame = f"SELECT {_ROW.format(id='id')}, CAST(id % {days} AS int) AS day FROM range({rows})"
        # One of 100 rows of these days, and as many with new ids.
        chosen = f"id % {days} < {CHANGED_DAYS} AND id % {100 * days} < {days}"
        ids = f"SELECT explode(array(id, id + {rows})) AS number FROM range({rows}) WHERE {chosen}"
        changes = f"SELECT {_ROW.format(id='number')}, CAST(number % {days} AS int) AS day FROM ({ids})"
        for name, query in {"source": frame, "changes": changes}.items():
            self._spark.sql(query).write.parquet(str(self._request.folder / name))
            self._spark.sql("CREATE DATABASE IF NOT EXISTS ice.bench")
            self._spark.sql(f"CREATE TABLE ice.bench.{name} ({_COLUMNS}, day int) USING iceberg")
            read = self._spark.read.parquet(str(self._request.folder / name))
            read.writeTo(f"ice.bench.{name}").append()
            self._ours.execute(f"CREATE TABLE {name} ({_COLUMNS}, day int)")
            self._ours.execute(f"LOAD DATA INPATH '{self._request.folder / name}' INTO TABLE {name}")
        self._spark.sql(f"CREATE TABLE ice.bench.peer ({_COLUMNS}, day int) USING iceberg PARTITIONED BY (day)")
        self._spark.sql("INSERT INTO ice.bench.peer SELECT * FROM ice.bench.source")
        for kind, stored in KINDS.items():
            self._ours.execute(f"CREATE TABLE {kind} ({_COLUMNS}) PARTITIONED BY (day int) {stored}")
            self._ours.execute(f"INSERT INTO {kind} SELECT * FROM source")

    def change(self, what: str, number: int) -> None:
        """Run a statement on our tables and on Iceberg's."""
        text = _STATEMENTS[what]
        ice = {"source": "ice.bench.source", "changes": "ice.bench.changes", "table": "ice.bench.peer"}
        own = {"source": "source", "changes": "changes"}
        functions: dict[str, Callable[[], object]] = {
            f"{what}: {kind}": partial(self._ours.execute, text.format(table=kind, **own)) for kind in KINDS
        }
        functions[f"{what}: peer"] = lambda: self._spark.sql(text.format(**ice)).collect()
        take_in_turn(self.times, functions, number)
        query = "SELECT count(*), sum(id), sum(hash(note)), round(sum(amount), 3) FROM {}"
        theirs = tuple(self._spark.sql(query.format("ice.bench.peer")).first() or ())
        for kind in KINDS:
            mine = tuple(self._ours.execute(query.format(kind)).rows[0])
            if mine != theirs:
                raise BenchmarkError(f"after {what}, {kind} has {mine}; Iceberg's table has {theirs}")

    def compact(self, number: int) -> None:
        """Write small files, and compact them with Calve and with plain Spark."""
        name = f"small_{number}"
        folder = self._request.folder / name
        days = self._request.file_count // FILES_A_DAY
        _write_small_files(folder, days)
        self._ours.execute(f"CREATE EXTERNAL TABLE {name} ({_COLUMNS}) PARTITIONED BY (day int) LOCATION '{folder}'")
        partitions = [NewPartition((str(day),), file_count=FILES_A_DAY) for day in range(days)]
        self._catalog.add_partitions(f"shop.{name}", partitions)
        bare = folder.with_name(f"{name}_bare")

        def plainly() -> None:
            rows = self._spark.read.schema(f"{_COLUMNS}, day int").parquet(str(folder))
            rows.hint("rebalance", "day").write.partitionBy("day").parquet(str(bare))

        functions: dict[str, Callable[[], object]] = {
            "compact": partial(self._ours.execute, f"ALTER TABLE {name} COMPACT"),
            "compact: bare": plainly,
        }
        take_in_turn(self.times, functions, number)
        found = self._ours.execute(f"SELECT count(*), sum(id) FROM {name}").rows[0]
        rows = self._spark.read.parquet(str(bare)).selectExpr("count(*)", "sum(id)").first()
        if tuple(found) != tuple(rows or ()):
            raise BenchmarkError(f"{name} has {found} after COMPACT; plain Spark wrote {rows}")
        for path in (folder, bare):
            shutil.rmtree(path)


def _write_small_files(folder: Path, days: int, rows: int = 100) -> None:
    for day in range(days):
        of_day = folder / f"day={day}"
        of_day.mkdir(parents=True)
        for number in range(FILES_A_DAY):
            first = (day * FILES_A_DAY + number) * rows
            ids = pa.array(range(first, first + rows), pa.int64())
            columns = {"id": ids, "customer": ids, "amount": ids.cast(pa.float64()), "note": ids.cast(pa.string())}
            pq.write_table(pa.table(columns), of_day / f"{number}.parquet")
