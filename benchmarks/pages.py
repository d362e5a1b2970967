"""The pages in Airflow's UI, over a catalog of a million partitions in one table and of 1,000 tables in all."""

from __future__ import annotations

import http.client
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from statistics import median
from urllib.parse import quote, urlencode, urlsplit

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.sample import CATEGORIES, COUNTRIES
from benchmarks.spark_process import in_new_process
from benchmarks.timing import seconds
from catalog import Catalog, IndexDefinition, NewPartition
from catalog.schemes.ranges import RangeScheme
from standalone.environment import REPOSITORY
from standalone.pages_server import PagesServer

HEADINGS = {
    "pages_first": "First request for a page ÷ 1 s: to its first byte, 10 s after a start of Airflow's API server",
    "pages": "Later requests for a page ÷ 1 s: to its first byte",
    "pages_memory": "Memory of the API server after hundreds of requests for all pages ÷ before, in MB",
    "plugin": "Time by which the plugin slows the start of a component of Airflow ÷ the 0.5 s that it may take",
}

TABLE = "bench.events"
_FIRST_DAY = date(2015, 1, 1)
_PARTITIONS_PER_TABLE = 1_000
"""There is a table for so many partitions of the large table, but at least 10 tables."""

_RANGES = 20
PREPARATION_SECONDS = 10.0

LATER = 3
"""The number of later requests for each page."""

ROUNDS = 10
"""How often all pages are asked for between two looks at the memory."""

_MONTHS = 12

PAGES = {
    "overview": "/",
    "tables": "/tables",
    "tables_found": "/tables?search=7&sort=bytes",
    "table": "/tables/{table}",
    "partitions": "/tables/{table}/partitions",
    "partitions_last": "/tables/{table}/partitions?page=100",
    "partitions_by_rows": "/tables/{table}/partitions?sort=rows",
    "partitions_by_key": "/tables/{table}/partitions?sort=day",
    "partitions_bad": "/tables/{table}/partitions?only=bad",
    "filter_index": "/tables/{table}/partitions?where={index}",
    "filter_first_key": "/tables/{table}/partitions?where={first_key}",
    "filter_no_index": "/tables/{table}/partitions?where={no_index}",
    "filter_two_keys": "/tables/{table}/partitions?where={two_keys}",
    "filter_one_day": "/tables/{table}/partitions?where={day}",
    "picture": "/tables/{table}/picture",
    "calendar": "/tables/{table}/picture/data?view=calendar",
    "calendar_filter": "/tables/{table}/picture/data?view=calendar&where={no_index}",
    "treemap": "/tables/{table}/picture/data?view=keys",
    "missing": "/tables/{table}/missing?{days}",
    "explain": "/tables/{table}/explain",
    "explain_index": "/tables/{table}/explain?where={index}",
    "explain_no_index": "/tables/{table}/explain?where={two_keys}",
    "explain_values": "/tables/{table}/explain/values?key=category&prefix=cat",
    "files": "/tables/{table}/files",
    "table_quality": "/tables/{table}/quality",
    "table_operations": "/tables/{table}/operations",
    "operations": "/operations",
    "approvals": "/approvals",
    "migrations": "/migrations",
    "quality": "/quality",
    "quality_unchecked": "/quality?state=unchecked",
    "quality_tables": "/quality/tables",
    "studio": "/tables/{studio}/studio",
}
"""Name → address of each page, and of the parts that a page loads afterwards."""

_STUDIO = "bench.ranges"
_PARTS = ("missing",)
"""Addresses that return the page without what it loads, unless they are asked for a part."""

log = logging.getLogger(__name__)


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the time of each page on each database, the server's memory, and the time that the plugin takes to load."""
    count = ground.scales[-1]
    for database in ground.databases:
        log.info("Opening the pages of %s partitions on %s", f"{count:,}", database.name)
        catalog = ground.catalog(database, f"pages_{count}")
        folder = ground.folder / f"pages_{database.name}"
        folder.mkdir()
        fill(catalog, count, folder)
        database.settle(f"pages_{count}")
        url = catalog.storage.url.render_as_string(hide_password=False)
        yield from _of_database(folder / "airflow", url, f"{count}.{database.name}")
    log.info("Starting Airflow with and without the plugin")
    yield _of_plugin(ground)


def fill(catalog: Catalog, count: int, folder: Path) -> None:
    """Create a table with so many partitions, with an index over its keys, and one table for each 1,000 of them."""
    catalog.create_table(
        TABLE,
        columns=[("amount", "double")],
        partition_keys=[("country", "string"), ("category", "string"), ("day", "date")],
        indexes=[IndexDefinition("by_country", ("country", "category", "day"))],
    )
    catalog.add_partitions(TABLE, islice(_partitions(), count))
    bounds = tuple((number, str(100 * number)) for number in range(1, _RANGES))
    scheme = RangeScheme("id", "bigint", (), _RANGES, bounds)
    catalog.create_table(_STUDIO, columns=[("id", "bigint")], scheme=scheme, location=str(folder / "ranges"))
    months = [NewPartition((str(month),), file_count=3, row_count=month, size_bytes=1_000) for month in range(_MONTHS)]
    for number in range(max(10, count // _PARTITIONS_PER_TABLE) - 2):
        name = f"bench.table_{number:03}"
        catalog.create_table(name, columns=[("id", "bigint")], partition_keys=[("month", "int")])
        catalog.add_partitions(name, months)


def _partitions() -> Iterator[NewPartition]:
    """Yield partitions day by day; each country and category lacks some days."""
    number = 0
    while True:
        day = _FIRST_DAY + timedelta(number)
        number += 1
        for place, country in enumerate(COUNTRIES):
            for other, category in enumerate(CATEGORIES):
                if (number * 7 + place * 3 + other) % 97:
                    yield NewPartition(
                        (country, category, day.isoformat()),
                        file_count=1 + other % 3,
                        row_count=1_000 + 7 * other + number,
                        size_bytes=65_536 + 409 * other + number,
                    )


def _of_database(folder: Path, url: str, scale: str) -> Iterator[Figure]:
    folder.mkdir()
    with PagesServer(folder, url) as server:
        pages = _Pages(server)
        # The server prepares the pages when it starts.
        time.sleep(PREPARATION_SECONDS)
        first = {name: pages.time(name) for name in PAGES}
        later = {name: median(pages.time(name) for _ in range(LATER)) for name in PAGES}
        before = server.memory_mb
        for _ in range(ROUNDS):
            for name in PAGES:
                pages.time(name)
        after = server.memory_mb
    for what, times, runs in (("pages_first", first, 1), ("pages", later, LATER)):
        for name, taken in times.items():
            yield Figure(name=f"{what}.{name}.{scale}", ours=taken, peer=1.0, unit="s", runs=runs, goal=1.0)
    requests = ROUNDS * len(PAGES)
    yield Figure(name=f"pages_memory.after.{scale}", ours=after, peer=before, unit="MB", runs=requests, goal=1.1)


class _Pages:
    """Requests of a user who may do everything."""

    def __init__(self, server: PagesServer) -> None:
        self._address = urlsplit(server.url).netloc
        self._headers = {"Cookie": f"_token={server.token('admin')}"}
        last = _FIRST_DAY + timedelta(30)
        filters = {
            "index": "country = 'US' and category = 'category-05'",
            "first_key": "country = 'US'",
            "no_index": "category = 'category-05'",
            "two_keys": f"category = 'category-05' and day >= '{last}'",
            "day": f"day = '{_FIRST_DAY}'",
        }
        self._values = {
            **{name: quote(text) for name, text in filters.items()},
            "table": TABLE,
            "studio": _STUDIO,
            "days": urlencode({"first": str(_FIRST_DAY), "last": str(last)}),
        }

    def time(self, name: str) -> float:
        """Return the seconds to the first byte of a page, as for a browser that has to connect first.

        Raises:
            BenchmarkError: The page failed.
        """
        path = "/calve" + PAGES[name].format(**self._values)
        headers = {**self._headers, **({"HX-Request": "true"} if name in _PARTS else {})}
        with closing(http.client.HTTPConnection(self._address, timeout=300)) as connection:
            answers: list[http.client.HTTPResponse] = []

            def ask() -> None:
                connection.request("GET", path, headers=headers)
                answers.append(connection.getresponse())

            taken = seconds(ask)
            (answer,) = answers
            body = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise BenchmarkError(f"the page {path} failed with {answer.status}: {body[:500]!r}")
        return taken


def _of_plugin(ground: Ground) -> Figure:
    """Return the time by which loading the plugin slows the start of each component of Airflow."""
    empty = ground.folder / "no_plugins"
    empty.mkdir(exist_ok=True)
    log_path, runs = ground.folder / "airflow.log", ground.effort.least_runs
    folders = (REPOSITORY / "plugins", empty)
    times: list[Sequence[float]] = [
        [in_new_process(log_path, seconds_to_load, ground.folder, plugins) for plugins in folders] for _ in range(runs)
    ]
    slowed = median(with_plugin - without for with_plugin, without in times)
    # A figure is positive; the difference of two times is not always.
    return Figure(name="plugin.load.1.airflow", ours=max(slowed, 0.001), peer=0.5, unit="s", runs=runs, goal=1.0)


def seconds_to_load(folder: Path, plugins: Path) -> float:
    """Return the seconds in which Airflow loads the plugins of a folder, as its components do at their start."""
    os.environ |= {"AIRFLOW_HOME": str(folder / "airflow"), "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins)}
    # Imported late: Airflow reads its settings when it is imported.
    from airflow import plugins_manager

    def load() -> None:
        plugins_manager.ensure_plugins_loaded()
        plugins_manager.get_fastapi_plugins()
        plugins_manager.get_flask_plugins()

    taken = seconds(load)
    if errors := plugins_manager.get_import_errors():
        raise BenchmarkError(f"Airflow cannot load the plugins: {errors}")
    return taken
