"""A server with clients and content, on PostgreSQL, whose processes, connections and log are watched."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from catalog import Catalog
from catalog.errors import AlreadyExistsError, CatalogError
from catalog.model import NewPartition
from standalone.calve_server import CalveServer
from standalone.postgres import PostgresServer
from standalone.state import write_private

ACCESS_KEY, SECRET_KEY = "OWNER", "a-secret-key-for-the-fuzzers"
KEYS = f"clients: {{owner: {{role: owner, access_key: {ACCESS_KEY}, secret_key: {SECRET_KEY}}}}}\n"
WORKERS = 2

_SAMPLE_SECONDS = 10.0
_SETTLED_SECONDS = 30.0
_WARM = 0.4
_GROWTH = 1.1
"""How much the memory may grow after the first part of a run, in which modules are imported and caches filled."""

_GROWTH_BYTES = 40 * 1024 * 1024
_FEW = 8
"""Threads, files and connections that come and go."""


@dataclass(frozen=True)
class Usage:
    """The memory, threads, files and connections of the processes of a server.

    Attributes:
        files: Open files and sockets, without the connections to the database, which are counted of their own.
    """

    memory_bytes: int
    threads: int
    files: int
    database_connections: int
    processes: tuple[int, ...]

    def __str__(self) -> str:
        """Return a line for the report."""
        return (
            f"{self.memory_bytes / 2**20:.0f} MiB, {self.threads} threads, {self.files} open files and sockets, "
            f"{self.database_connections} database connections"
        )


class Served:
    """A running server.

    Attributes:
        warehouse: The folder of all databases.
    """

    def __init__(self, server: CalveServer, catalog: Catalog, database_url: str, warehouse: Path) -> None:
        self.server = server
        self._catalog = catalog
        self.warehouse = warehouse
        self._database_url = database_url
        self._samples: list[int] = []
        self._stop = threading.Event()

    def usage(self) -> Usage:
        """Return what its processes use now."""
        supervisor = psutil.Process(self.server.pid)
        processes = [supervisor, *supervisor.children(recursive=True)]
        with psycopg.connect(self._database_url) as connection:
            count = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'calve'")
            connections: int = (count.fetchone() or (0,))[0]
        memory = threads = files = 0
        for process in processes:
            # One that has just died is missed in the list of processes.
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                memory += _memory(process.pid)
                threads += process.num_threads()
                files += process.num_fds()
        files -= connections
        return Usage(memory, threads, files, connections, tuple(sorted(process.pid for process in processes)))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take samples of the memory meanwhile, and create again what requests have dropped."""
        self._samples.clear()
        self._stop.clear()
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._samples.append(self.usage().memory_bytes)
            # Requests may have changed it into something else.
            with contextlib.suppress(CatalogError):
                _fill(self._catalog)

    def problems(self, before: Usage) -> list[str]:
        """Wait until the server has settled; return what is not as before, and what its log complains of."""
        until = time.monotonic() + _SETTLED_SECONDS
        while (found := self._differences(before, self.usage())) and time.monotonic() < until:
            time.sleep(1.0)
        return [*found, *self._growth(), *self._complaints()]

    def _growth(self) -> list[str]:
        if len(self._samples) < 4:
            return []
        warm = self._samples[int(len(self._samples) * _WARM)]
        last = min(self._samples[-3:])
        print(f"  memory: {' '.join(f'{sample / 2**20:.0f}' for sample in self._thinned())} MiB")
        if last > warm * _GROWTH and last > warm + _GROWTH_BYTES:
            return [f"memory has grown from {warm / 2**20:.0f} to {last / 2**20:.0f} MiB"]
        return []

    def _thinned(self) -> list[int]:
        step = max(1, len(self._samples) // 12)
        return self._samples[::step]

    @staticmethod
    def _differences(before: Usage, after: Usage) -> list[str]:
        found = []
        for name in ("threads", "files", "database_connections"):
            old, new = getattr(before, name), getattr(after, name)
            if new > old + _FEW * WORKERS:
                found.append(f"{name.replace('_', ' ')}: {old} before, {new} afterwards")
        if after.processes != before.processes:
            found.append(f"processes: {before.processes} before, {after.processes} afterwards")
        return found

    def _complaints(self) -> list[str]:
        """Return the unexpected errors of the log, each once."""
        found: dict[str, int] = {}
        for line in self.server.log.splitlines():
            try:
                entry: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            traceback = str(entry.get("traceback") or "")
            if entry.get("level") == "error" or traceback:
                last = traceback.strip().splitlines()[-1:] or [""]
                where = [place.strip() for place in traceback.splitlines() if "/catalog/" in place][-1:]
                text = f"{entry.get('event')} {entry.get('operation', '')} {' '.join(where)} {last[0]}"[:400]
                found[text] = found.get(text, 0) + 1
        return [f"log, {count} times: {text}" for text, count in found.items()]


def _memory(process: int) -> int:
    """Return the bytes of a process that are no file's; memory that processes share, as copies, counts once.

    The share in the pages of files, such as libraries, depends on other processes that use them.
    """
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    kilobytes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines[1:])}
    return 1024 * (kilobytes["Pss_Anon"] + kilobytes["Pss_Shmem"])


@contextmanager
def serving(folder: Path, door: str, *, has_keys: bool = True) -> Iterator[Served]:
    """Serve a fresh catalog with some content through one door.

    Args:
        has_keys: Whether clients need `ACCESS_KEY` and `SECRET_KEY`.
    """
    warehouse = folder / "warehouse"
    write_private(folder / "keys.yaml", KEYS)
    with PostgresServer(folder / "postgres", durable=False) as postgres:
        postgres.create_database("calve")
        url = postgres.url("calve")
        environment = {
            "CALVE_CATALOG_URL": url,
            "CALVE_WAREHOUSE": str(warehouse),
            "CALVE_HOME": str(folder),
            "CALVE_TABLES": str(folder / "tables.yaml"),
            # Only the warehouse: no request may touch other files of this machine.
            "CALVE_ALLOWED_LOCATIONS": "",
            "CALVE_DOOR_KEYS": str(folder / "keys.yaml") if has_keys else "",
        }
        with Catalog.initialise(url, warehouse=str(warehouse)) as catalog:
            _fill(catalog)
            options = ("--log-level", "warning", "--workers", str(WORKERS))
            with CalveServer(folder, doors=(door,), options=options, environment=environment) as server:
                yield Served(server, catalog, url.replace("+psycopg", ""), warehouse)


def _fill(catalog: Catalog) -> None:
    """Create what requests name, unless it is there."""
    for name in ("demo", "empty"):
        catalog.create_database(name, if_not_exists=True)
    keys = [("country", "string"), ("day", "date"), ("number", "int")]
    columns = [("id", "bigint"), ("note", "string")]
    with contextlib.suppress(AlreadyExistsError):
        catalog.create_table("demo.orders", columns=columns, partition_keys=keys)
    if not catalog.get_partition_indexes("demo.orders"):
        catalog.create_partition_index("demo.orders", "by_day", ["day", "country"])
    days = ("2024-05-01", "2024-05-02")
    values = [(country, day, str(number)) for country in ("DE", "US") for day in days for number in range(3)]
    catalog.add_partitions("demo.orders", map(NewPartition, values), if_not_exists=True)
    with contextlib.suppress(AlreadyExistsError):
        catalog.create_table("demo.plain", columns=columns[:1])
