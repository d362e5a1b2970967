"""Trino's planning of a filtered query on a table of a front door, or of a Hive Metastore, in `make bench-trino`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

from benchmarks.door_planning import FILTER, FOUND
from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.sample import TABLE
from benchmarks.thrift_metastore import running
from benchmarks.timing import seconds, take_in_turn
from standalone.calve_server import CalveServer
from standalone.trino_server import TrinoClient, TrinoServer, installed, require_trino_java

HEADINGS = {
    "trino_planning": "Trino's planning with Calve's door ÷ with Hive Metastore: EXPLAIN, and a query of 372 partitions"
}
AHEAD = 1.0

_CALVE, _METASTORE = "calve", "metastore"
_WARM_UPS, _RUNS = 10, 15

log = logging.getLogger(__name__)


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the seconds of EXPLAIN, and of the query, whose partitions have no files, at the largest scale.

    Trino's caches of metadata are off, as by default.

    Raises:
        BenchmarkError: The filter finds other partitions than the query needs.
        SetUpError: Maven, with which Trino is downloaded, or a Java for Trino is missing.
        StackError: Trino, the doors or the metastore do not start.
    """
    java, home = require_trino_java(), installed()
    count = ground.scales[-1]
    url = ground.site(ground.postgresql, count).catalog.storage.url.render_as_string(hide_password=False)
    environment = {"CALVE_CATALOG_URL": url, "CALVE_WAREHOUSE": str(ground.folder / "door-warehouse")}
    server = CalveServer(ground.folder, doors=["hms"], options=("--log-level", "warning"), environment=environment)
    with running(ground.folder / "planned", ground.postgresql, count) as metastore, server:
        addresses = {_CALVE: server.address("hms"), _METASTORE: metastore}
        catalogs = {name: _hive(address) for name, address in addresses.items()}
        with TrinoServer(home, java, ground.folder / "planning", catalogs) as trino:
            log.info("Planning queries of %s partitions with Trino", f"{count:,}")
            for case, statement in {"explain": "EXPLAIN SELECT count(*)", "query": "SELECT count(*)"}.items():
                times = _times(trino.client, statement)
                yield Figure.of_runs(f"trino_planning.{case}.{count}", times[_CALVE], times[_METASTORE], AHEAD)


def _hive(address: str) -> dict[str, str]:
    return {
        "connector.name": "hive",
        "hive.metastore.uri": f"thrift://{address}",
        # The sample has no files.
        "hive.ignore-absent-partitions": "true",
    }


def _times(trino: TrinoClient, statement: str) -> dict[str, list[float]]:
    database, table = TABLE.split(".")
    for name in (_CALVE, _METASTORE):
        listed = f'SELECT count(*) FROM {name}.{database}."{table}$partitions" WHERE {FILTER}'
        [[found]] = trino.run(listed)
        if found != FOUND:
            raise BenchmarkError(f"Trino finds {found} partitions through {name} instead of {FOUND}: {listed}")
    asked = {
        name: partial(trino.run, f"{statement} FROM {name}.{TABLE} WHERE {FILTER}") for name in (_CALVE, _METASTORE)
    }
    for function in asked.values():
        for _ in range(_WARM_UPS):
            seconds(function)
    times: dict[str, list[float]] = {}
    for number in range(_RUNS):
        take_in_turn(times, asked, number)
    return times
