"""Migrations compared with Trino's procedure on the same files: the benchmark of `make bench-trino`."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.many_files import DATABASE, table_of
from benchmarks.migrating import FORMATS, create_table, migrate_table
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import seconds
from catalog import Catalog, FileFormat, Table
from standalone.hive_metastore import HiveMetastoreServer
from standalone.trino_server import TrinoClient, TrinoServer, installed, require_trino_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADINGS = {"migrate_trino": "Migrating ÷ Trino's migrate: files of 50 columns a second, two cores"}
LEAST_OF_TRINO = 1.2

_RUNS = 5
_WARM_UPS = 3
"""The number of runs with ten thousand files until Trino's JVM has compiled the hot code."""

log = logging.getLogger(__name__)

_Contents: TypeAlias = tuple[int, int]
"""Files and rows of an Iceberg table."""


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the number of files per second that we and Trino migrate, alternating, in both formats.

    Trino's tables have hard links to the same files in other folders, so that neither reads metadata of the other.

    Raises:
        SetUpError: Maven, with which Trino is downloaded, or a Java for Trino is missing.
        StackError: Trino or its metastore does not start.
    """
    java, home = require_trino_java(), installed()
    catalog = ground.catalog(ground.postgresql, "trino")
    url = catalog.storage.url.render_as_string(hide_password=False)
    folder, file_count = ground.folder / "trino", ground.scales[0]
    with (
        HiveMetastoreServer(folder / "metastore") as metastore,
        TrinoServer(home, java, folder / "server", _catalogs(metastore.uri)) as trino,
    ):
        request = _Request(url, folder, file_count, trino.client)
        log.info("Migrating tables of %s files, and with Trino", f"{file_count:,}")
        for file_format in FORMATS:
            create_table(catalog, request.table(file_format), file_count)
        times = in_new_process(ground.folder / "spark.log", _times, request)
    for file_format, (ours, theirs) in times.items():
        peer = file_count / median(theirs)
        yield Figure(
            name=f"migrate_trino.{file_format}.{file_count}.postgresql",
            ours=file_count / median(ours),
            peer=peer,
            unit="files/s",
            runs=len(ours),
            goal=LEAST_OF_TRINO * peer,
        )


def _catalogs(metastore_uri: str) -> dict[str, dict[str, str]]:
    metastore = {"hive.metastore.uri": metastore_uri}
    # The metastore has the locks of Hive's tests, which reject Trino's requests.
    settings = {"iceberg.catalog.type": "hive_metastore", "iceberg.hive-catalog.locking-enabled": "false"}
    return {
        "hive": {"connector.name": "hive", **metastore},
        "iceberg": {"connector.name": "iceberg", **settings, **metastore},
    }


@dataclass(frozen=True)
class _Request:
    """The arguments of the process with Spark."""

    url: str
    folder: Path
    file_count: int
    trino: TrinoClient

    def table(self, file_format: FileFormat) -> Table:
        return table_of(self.folder / "ours", file_format, self.file_count)


def _times(request: _Request) -> dict[FileFormat, tuple[list[float], list[float]]]:
    """Return the seconds of our migrations and of Trino's, by format."""
    request.trino.run(f"CREATE SCHEMA hive.{DATABASE}")
    with session(request.folder / "spark") as spark, Catalog.open(request.url) as catalog:
        return {name: _times_in_turn(request, spark, catalog, request.table(name)) for name in FORMATS}


def _times_in_turn(
    request: _Request, spark: SparkSession, catalog: Catalog, table: Table
) -> tuple[list[float], list[float]]:
    folder = request.folder / "theirs" / table.name
    shutil.copytree(table.location, folder, copy_function=os.link)
    ours = partial(_migrated_by_us, spark, catalog, table)
    theirs = partial(_migrated_by_trino, request.trino, table, folder)
    pairs = [(ours(), theirs()) for _ in range(_WARM_UPS + _RUNS)]
    distinct = {contents for pair in pairs for _, contents in pair}
    if len(distinct) != 1 or distinct.pop()[0] != request.file_count:
        raise BenchmarkError(f"the migrations of {request.file_count} files differ (seconds, (files, rows)): {pairs}")
    return [ours for (ours, _), _ in pairs[_WARM_UPS:]], [theirs for _, (theirs, _) in pairs[_WARM_UPS:]]


def _migrated_by_us(spark: SparkSession, catalog: Catalog, table: Table) -> tuple[float, _Contents]:
    """Migrate a table, and revert it; return the seconds of the migration, and the Iceberg table's contents."""
    from pyiceberg.table import StaticTable

    taken = seconds(lambda: migrate_table(spark, catalog, table.full_name))
    location = catalog.get_table(table.full_name).metadata_location
    snapshot = StaticTable.from_metadata(str(location)).current_snapshot()
    catalog.migrations.revert(uuid4().hex, table.full_name)
    if snapshot is None or snapshot.summary is None:
        raise BenchmarkError(f"{location} has no snapshot")
    totals = snapshot.summary.additional_properties
    return taken, (int(totals["total-data-files"]), int(totals["total-records"]))


def _migrated_by_trino(trino: TrinoClient, table: Table, folder: Path) -> tuple[float, _Contents]:
    """Migrate a folder's files as a new table, and drop it; return the seconds, and the Iceberg table's contents."""
    name = f"'{DATABASE}', '{table.name}'"
    fields = (*table.columns, *table.partition_keys)
    columns = ", ".join(f"{field.name} {'varchar' if field.type == 'string' else field.type}" for field in fields)
    trino.run(
        f"CREATE TABLE hive.{DATABASE}.{table.name} ({columns}) WITH (format = '{table.format.upper()}', "
        f"external_location = '{folder.as_uri()}', partitioned_by = ARRAY['day'])"
    )
    trino.run(f"CALL hive.system.sync_partition_metadata({name}, 'ADD')")
    taken = seconds(lambda: trino.run(f"CALL iceberg.system.migrate({name})"))
    files = f'iceberg.{DATABASE}."{table.name}$files"'
    [(file_count, row_count)] = trino.run(f"SELECT count(*), sum(record_count) FROM {files}")
    trino.run(f"CALL iceberg.system.unregister_table({name})")
    shutil.rmtree(folder / "metadata")
    return taken, (file_count, row_count)
