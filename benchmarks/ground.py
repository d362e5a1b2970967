"""The databases of the benchmarks, in a separate folder, with the sample at each scale."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

from benchmarks.databases import Database, Driver, Postgresql, Sqlite
from benchmarks.sample import KEYS, LOCATION, TABLE, partitions, raw_rows
from benchmarks.timing import Effort, Pair, seconds, settled_garbage
from catalog import Catalog, IndexDefinition
from standalone.postgres import PostgresServer

BY_COUNTRY = IndexDefinition("by_country", ("country", "category", "year", "month"))
BY_CATEGORY = IndexDefinition("by_category", ("category", "year", "month", "country"))

HAND_WRITTEN_TABLES = {
    "by_country": ("country", "category", "year", "month", "day"),
    "by_category": ("category", "year", "month", "day", "country"),
    "by_day": ("day", "country", "category", "year", "month"),
    "by_month": ("month", "category", "country", "year", "day"),
}
"""Names and keys of the hand-written tables for the queries."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """The sample at one scale on one database.

    Attributes:
        catalog: A catalog with `sample.TABLE` and the index `BY_COUNTRY`.
        own_index_catalog: A catalog with the same table and the index `BY_CATEGORY`.
        driver: A connection to the `HAND_WRITTEN_TABLES`.
        adding: The times to add the partitions, and the rows of a hand-written table.
    """

    catalog: Catalog
    own_index_catalog: Catalog
    driver: Driver
    adding: Pair


class Ground:
    """The databases of one run; a context manager that deletes them at the end.

    Attributes:
        scales: Numbers of partitions, ascending.
        databases: PostgreSQL and SQLite.
        folder: The folder of all files.
        effort: The number of repetitions.
    """

    postgresql: Postgresql
    databases: tuple[Database, ...]

    def __init__(self, folder: Path, scales: Sequence[int], effort: Effort) -> None:
        """Use a folder that only the benchmarks use."""
        self.folder = folder
        self.scales = tuple(sorted(scales))
        self.effort = effort
        self._sites: dict[tuple[str, int], Site] = {}
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        """Start PostgreSQL; stop the processes of a killed run, and overwrite its files."""
        with self._exits as exits:
            server = exits.enter_context(PostgresServer(self.folder / "postgresql"))
            exits.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.postgresql = Postgresql(server)
            self.databases = (self.postgresql, Sqlite(self.folder))
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections, stop the server, and delete the folder."""
        self._exits.close()

    def catalog(self, database: Database, name: str) -> Catalog:
        """Return a new, empty catalog, which is closed at the end of the run."""
        catalog = self._exits.enter_context(Catalog.initialise(database.create(name), warehouse="/warehouse"))
        catalog.create_database("bench")
        return catalog

    def driver(self, database: Database, name: str) -> Driver:
        """Return a connection to an existing database, which is closed at the end of the run."""
        driver = database.connect(name)
        self._exits.callback(driver.close)
        return driver

    def site(self, database: Database, partition_count: int) -> Site:
        """Return the sample at one scale; it is created at the first call."""
        key = (database.name, partition_count)
        if key not in self._sites:
            log.info("Adding %s partitions on %s", f"{partition_count:,}", database.name)
            self._sites[key] = self._fill(database, partition_count)
        return self._sites[key]

    def _fill(self, database: Database, partition_count: int) -> Site:
        new = list(partitions(partition_count))
        rows = list(raw_rows(new))
        hand_written = f"hand_written_{partition_count}"
        database.create(hand_written)
        driver = self.driver(database, hand_written)
        catalogs, adding = [], []
        with settled_garbage():
            for index in (BY_COUNTRY, BY_CATEGORY):
                catalogs.append(self.catalog(database, f"{index.name}_{partition_count}"))
                create_table(catalogs[-1], index)
                driver.create_table("arrived", HAND_WRITTEN_TABLES[index.name])
                ours = seconds(lambda: catalogs[-1].add_partitions(TABLE, new))
                adding.append((ours, seconds(lambda: driver.load("arrived", rows))))
                database.settle(f"{index.name}_{partition_count}")
        for table, keys in HAND_WRITTEN_TABLES.items():
            driver.create_table(table, keys)
            driver.run(f"INSERT INTO {table} SELECT * FROM arrived ORDER BY {', '.join(keys)}")
        driver.run("DROP TABLE arrived")
        database.settle(hand_written)
        pair = Pair(median(ours for ours, _ in adding), median(peer for _, peer in adding), len(adding))
        return Site(catalogs[0], catalogs[1], driver, pair)


def create_table(catalog: Catalog, *indexes: IndexDefinition, location: str = LOCATION) -> None:
    """Create the sample's table with these indexes."""
    catalog.create_table(TABLE, columns=[("amount", "double")], partition_keys=KEYS, location=location, indexes=indexes)
