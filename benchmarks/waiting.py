"""Sensors that wait for partition indexes in one triggerer: together, or with a poll of its own for each."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.building import own_memory_mb
from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.spark_process import in_new_process
from catalog import Catalog, IndexState, NewPartition

HEADINGS = {
    "waiting_sensors": "Waiting sensors, polled together ÷ each on its own, every 5 s: queries per second, memory of "
    "the triggerer's process, and time to notice that an index is built",
}

SENSORS = 1_000
POLL_SECONDS = 5.0
_GOALS = {"queries": ("queries per second", 0.01), "memory": ("MB", 1.0), "notice": ("s", None)}
"""The unit of each figure, and the maximum ratio. The time to notice is within the interval, by chance."""

_INDEX = "by_month"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Load:
    """The cost of the sensors of a process: queries per second, MB, and the seconds until a change is noticed."""

    queries: float
    memory: float
    notice: float


def measure(ground: Ground, count: int = SENSORS, poll_seconds: float = POLL_SECONDS) -> Iterator[Figure]:
    """Yield the load of the sensors on each database."""
    for database in ground.databases:
        log.info("Waiting with %s sensors on %s", f"{count:,}", database.name)
        name = f"waiting_{count}"
        catalog = ground.catalog(database, name)
        for number in range(count):
            catalog.create_table(_table(number), columns=[("id", "int")], partition_keys=[("month", "int")])
            catalog.add_partitions(_table(number), [NewPartition(("1",))])
            catalog.create_partition_index(_table(number), _INDEX, ["month"])
        url = catalog.storage.url.render_as_string(hide_password=False)
        loads = [
            in_new_process(
                ground.folder / "triggerer.log", load_of, ground.folder, url, range(first, count), way, poll_seconds
            )
            # Each time builds the index of one table, which is no longer waited for afterwards.
            for first, way in enumerate(("together", "alone"))
        ]
        for case, (unit, goal) in _GOALS.items():
            ours, peer = (getattr(load, case) for load in loads)
            name = f"waiting_sensors.{case}.{count}.{database.name}"
            yield Figure(name=name, ours=ours, peer=peer, unit=unit, runs=1, goal=goal)


def load_of(folder: Path, url: str, tables: range, way: str, poll_seconds: float) -> Load:
    """Return the load of sensors that wait for the indexes of these tables; the index of the first one is built."""
    os.environ |= {"AIRFLOW_HOME": str(folder / "airflow"), "CALVE_CATALOG_URL": url}
    return asyncio.run(_load_of(tables, way, poll_seconds))


async def _load_of(tables: range, way: str, poll_seconds: float) -> Load:
    # Imported late: Airflow reads its settings when it is imported.
    from sqlalchemy import Engine, event

    from calve_airflow.triggers.indexes import PartitionIndexTrigger

    statements: list[str] = []
    event.listen(Engine, "before_cursor_execute", lambda *values: statements.append(values[2]))

    async def wait(number: int) -> None:
        if way == "together":
            await anext(aiter(PartitionIndexTrigger(_table(number), _INDEX, poll_seconds).run()))
            return
        while not await asyncio.to_thread(_is_active, number):
            await asyncio.sleep(poll_seconds)

    waiting = [asyncio.create_task(wait(number)) for number in tables]
    # The first poll also imports the catalog.
    while not any("calve_partition_index" in statement for statement in statements):
        await asyncio.sleep(0.1)
    await asyncio.sleep(poll_seconds)
    began, before = time.monotonic(), len(statements)
    await asyncio.sleep(2 * poll_seconds)
    queries = (len(statements) - before) / (time.monotonic() - began)
    memory = own_memory_mb("VmRSS")
    await asyncio.to_thread(_build, tables[0])
    built_at = time.monotonic()
    await waiting[0]
    notice = time.monotonic() - built_at
    for task in waiting[1:]:
        if task.done():
            raise BenchmarkError(f"a sensor no longer waits: {task.exception()}")
        task.cancel()
    await asyncio.wait(waiting)
    return Load(queries, memory, notice)


def _is_active(number: int) -> bool:
    """Poll as a sensor on its own does."""
    with Catalog.open() as catalog:
        return catalog.get_partition_index(_table(number), _INDEX).state is IndexState.ACTIVE


def _build(number: int) -> None:
    with Catalog.open() as catalog:
        catalog.build_partition_index(_table(number), _INDEX)


def _table(number: int) -> str:
    return f"bench.table_{number}"
