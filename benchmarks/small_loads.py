"""Loads of few rows through Airflow, whose time is that of starting tasks and Spark."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from statistics import median

import yaml

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from catalog import Catalog
from catalog.settings.environment import SessionScope
from standalone.stack import Stack

HEADINGS = {
    "small_loads": "Loads of 200 rows in 5 partitions through Airflow: one start of Spark ÷ a start for each step; "
    "and an application that still runs ÷ the same",
}

PARTITIONS = ("DE", "ES", "FR", "GB", "US")
ROWS = 200
ROUNDS = 2
"""Each round starts Airflow once for each way, so that load on the machine affects all of them."""
_GOALS = {SessionScope.LOAD: 0.6, SessionScope.SHARED: 0.35}
"""15 s and 6 s on two idle cores, where a start for each step took 27 s."""

_TABLE = "bench.orders"
_DAG = f"add_partitions.{_TABLE}"
_ENTRY = {
    "source": "${CALVE_HOME}/landing/orders",
    "keys": {"country": "string", "day": "date"},
    "indexes": {"by_day": ["day", "country"]},
    "quality": {"on_failure": "quarantine", "columns": {"amount": {"min": 0, "max_null_ratio": 0.01}}},
}
_POLL_SECONDS = 0.1

log = logging.getLogger(__name__)


def measure(ground: Ground, rounds: int = ROUNDS) -> Iterator[Figure]:
    """Yield the seconds of a load from its trigger to its end, for each way to start Spark."""
    times: dict[SessionScope, list[float]] = {scope: [] for scope in SessionScope}
    for _ in range(rounds):
        for scope in SessionScope:
            log.info("Loading small files through Airflow with CALVE_SPARK_SESSION=%s", scope)
            times[scope] += seconds_of_loads(ground.folder / f"small-loads-{scope}", scope, ground.effort.least_runs)
    for scope, goal in _GOALS.items():
        yield Figure(
            name=f"small_loads.{scope}.{len(PARTITIONS)}.postgresql",
            ours=median(times[scope]),
            peer=median(times[SessionScope.STEP]),
            unit="s",
            runs=len(times[scope]),
            goal=goal,
        )


def seconds_of_loads(home: Path, scope: SessionScope, count: int) -> Sequence[float]:
    """Return the seconds of loads, after one that creates the table."""
    home.mkdir(parents=True, exist_ok=True)
    tables = home / "tables.yaml"
    tables.write_text(yaml.safe_dump({"tables": {_TABLE: _ENTRY}}, sort_keys=False))
    with Stack(home, env={"CALVE_TABLES": str(tables), "CALVE_SPARK_SESSION": scope}) as stack:
        times = [_load(stack) for _ in range(count + 1)]
        with Catalog.open(stack.catalog_url, warehouse=stack.warehouse) as catalog:
            found = sum(partition.row_count or 0 for partition in catalog.get_partitions(_TABLE))
    delivered = sum(1 for _ in (home / "landing" / "orders").iterdir()) * ROWS
    if found != delivered:
        raise BenchmarkError(f"{_TABLE} has {found:,} rows of {delivered:,} that were delivered")
    log.info("%s: %s", scope, json.dumps([round(seconds, 1) for seconds in times[1:]]))
    return times[1:]


def _load(stack: Stack) -> float:
    folder = stack.home / "landing" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    number = sum(1 for _ in folder.iterdir())
    day = date(2024, 1, 1) + timedelta(days=number)
    rows = [f"{row},{row / 10},{PARTITIONS[row % len(PARTITIONS)]},{day}" for row in range(ROWS)]
    (folder / f"{day}.csv").write_text("\n".join(["id,amount,country,day", *rows, ""]))
    began = time.monotonic()
    run_id = stack.api.trigger(_DAG)
    while (state := stack.api.dag_run(_DAG, run_id)["state"]) not in ("success", "failed"):
        time.sleep(_POLL_SECONDS)
    if state == "failed":
        raise BenchmarkError(f"run {run_id} of {_DAG} failed; its logs are in {stack.home}")
    return time.monotonic() - began
