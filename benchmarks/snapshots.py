"""Look-ups of partitions in tables stored as Iceberg: by an index of the catalog, and by Iceberg's own planning."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from benchmarks.figures import Figure
from benchmarks.ground import Ground
from benchmarks.timing import compare
from catalog import Catalog, IndexDefinition
from catalog.datafiles.files import NewFile
from catalog.datafiles.manifest import write_manifest
from catalog.operations.records import OperationKind

if TYPE_CHECKING:
    from pyiceberg.table import Table

HEADINGS = {
    "snapshot_find": "Files of the partitions of a filter, by a partition index ÷ by PyIceberg's planning: one table "
    "stored as Iceberg, with a file in each partition",
}

TABLE = "bench.snapshots"
COUNTRIES = 100
_PARTITIONS_A_SCALE = 10
"""The number of partitions of the largest scale for each partition: 100,000 partitions at the full scale."""

_ROWS, _BYTES = 1_000, 1_000_000
FILTERS = {
    "one": ("country = 'c07' and day = '2000-02-01'", 1),
    "month": ("country = 'c07' and day >= '2000-02-01' and day < '2000-03-01'", 29),
}
"""Case → the filter, and the number of partitions that match it."""

log = logging.getLogger(__name__)


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the time of finding the files of one partition, and of a month."""
    from pyiceberg.catalog.sql import SqlCatalog

    count = ground.scales[-1] // _PARTITIONS_A_SCALE
    for database in ground.databases:
        log.info("Finding some of %s partitions of a snapshot on %s", f"{count:,}", database.name)
        catalog = ground.catalog(database, "snapshots")
        make_table(catalog, str(ground.folder / f"snapshots-{database.name}"), count)
        iceberg = SqlCatalog("calve", uri=catalog.storage.url.render_as_string(hide_password=False))
        try:
            peer = iceberg.load_table(TABLE)
            for case, (expression, _) in FILTERS.items():
                pair = compare(partial(find, catalog, expression), partial(plan, peer, expression), ground.effort)
                name = f"snapshot_find.{case}.{count}.{database.name}"
                yield Figure(name=name, ours=pair.ours, peer=pair.peer, unit="s", runs=pair.runs, goal=1.0)
        finally:
            iceberg.engine.dispose()


def make_table(catalog: Catalog, location: str, count: int) -> None:
    """Create a table of `count` partitions with a file each, which is only in the catalog and in manifests."""
    catalog.create_table(
        TABLE,
        columns=[("id", "bigint")],
        partition_keys=[("country", "string"), ("day", "date")],
        indexes=[IndexDefinition("by_country", ("country", "day"))],
        location=location,
        format="iceberg",
    )
    days = [str(date(2000, 1, 1) + timedelta(number)) for number in range(max(60, count // COUNTRIES))]
    names = [f"c{number:02d}" for number in range(COUNTRIES)]
    operation = catalog.operations.begin("load", OperationKind.APPEND_ROWS, TABLE, is_exclusive=True)
    with catalog.operations.attempt(operation.id, "append_rows") as attempt:
        table = catalog.get_table(TABLE)
        folder = catalog.loading.files_folder(table, operation, attempt)
        files = (
            NewFile(
                0, f"{folder}/key.country={country}/key.day={day}/0.parquet", _ROWS, _BYTES, {}, None, (country, day)
            )
            for country, day in product(names, days)
        )
        write_manifest(table, folder, files)
        catalog.loading.publish(operation.id, "append_rows", attempt, folder, is_load=False)


def find(catalog: Catalog, expression: str) -> int:
    """Return the number of files that the catalog finds."""
    return len(catalog.scan_partition_files(TABLE, expression).files)


def plan(table: Table, expression: str) -> int:
    """Return the number of files that PyIceberg plans to read."""
    return len(list(table.scan(row_filter=expression).plan_files()))
