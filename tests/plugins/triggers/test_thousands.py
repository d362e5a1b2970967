"""Thousands of triggers in one process: what they cost while they wait, and how soon they wake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from calve_airflow.triggers import polling
from calve_airflow.triggers.operations import OperationTrigger
from calve_airflow.triggers.partitions import PartitionTrigger
from catalog import Catalog, NewPartition
from catalog.operations.records import OperationKind
from catalog.partitions.waiting import PartitionWaits
from catalog.storage import Storage

POLL_SECONDS = 1.0
TABLES, NAMED, SEARCHES, OPERATIONS, CANCELLED = 20, 1_200, 400, 400, 100


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries of all catalogs that are opened from now on, and the searches for expressions."""
    recorded: list[str] = []
    create_engine, search = Storage._create_engine, PartitionWaits._search

    def create_recorded(storage: Storage, *arguments: Any, **options: Any) -> Any:
        engine = create_engine(storage, *arguments, **options)
        event.listen(engine, "before_cursor_execute", lambda *values: recorded.append(values[2]))
        return engine

    def record(waits: PartitionWaits, *arguments: Any) -> Any:
        recorded.append("search")
        return search(waits, *arguments)

    monkeypatch.setattr(Storage, "_create_engine", create_recorded)
    monkeypatch.setattr(PartitionWaits, "_search", record)
    return recorded


@pytest.fixture
def triggers(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sequence[Any]:
    """The triggers; no partition or operation that they wait for is there."""
    monkeypatch.setenv("CALVE_CATALOG_URL", postgres_url)
    with Catalog.open(postgres_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        for number in range(TABLES):
            keys = [("day", "int"), ("hour", "int")]
            catalog.create_table(f"demo.t{number}", columns=[("v", "int")], partition_keys=keys)
            catalog.create_partition_index(f"demo.t{number}", "by_day", ["day"])
        asked = catalog.waits.question
        named = [asked(f"demo.t{number % TABLES}", [f"day={number}/hour=0"]) for number in range(NAMED)]
        searched = [asked(f"demo.t{number % TABLES}", expression=f"day = {number}") for number in range(SEARCHES)]
        return [
            *(PartitionTrigger(question.as_json(), POLL_SECONDS) for question in (*named, *searched)),
            *(OperationTrigger(f"load/{number}", False, POLL_SECONDS) for number in range(OPERATIONS)),
        ]


def fulfil(catalog: Catalog) -> None:
    """Add the partitions and end the operations that the triggers wait for."""
    for number in range(TABLES):
        new = [NewPartition((str(day), "0")) for day in range(number, NAMED, TABLES)]
        catalog.add_partitions(f"demo.t{number}", new)
    for number in range(OPERATIONS):
        catalog.operations.begin(f"load/{number}", OperationKind.ADD_PARTITIONS, f"demo.t{number % TABLES}")
        catalog.operations.fail(f"load/{number}", "RUN_FAILED", "for the test")


@pytest.mark.long
def test_two_thousand_triggers_cost_a_few_queries_a_second_and_all_wake(
    triggers: Sequence[Any], statements: list[str]
) -> None:
    async def wait_for(trigger: Any) -> float:
        await anext(aiter(trigger.run()))
        return time.monotonic()

    async def run() -> None:
        waiting = [asyncio.create_task(wait_for(trigger)) for trigger in triggers]
        while statements.count("search") < SEARCHES:
            await asyncio.sleep(0.1)
        await asyncio.sleep(2 * POLL_SECONDS)
        statements.clear()
        began_at, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(5)
        seconds, cpu = time.monotonic() - began_at, time.process_time() - cpu
        assert not any(task.done() for task in waiting)
        rate, share = len(statements) / seconds, cpu / seconds
        print(f"{len(waiting):,} triggers: {rate:.1f} queries a second, {share:.1%} of a CPU")
        assert 0.3 < rate < 8
        assert share < 0.25
        for task in waiting[-CANCELLED:]:
            task.cancel()
        with Catalog.open() as catalog:
            await asyncio.to_thread(fulfil, catalog)
        fulfilled_at = time.monotonic()
        woken = await asyncio.wait_for(asyncio.gather(*waiting[:-CANCELLED]), 60)
        print(f"all awake {max(woken) - fulfilled_at:.1f} s after the last change")
        assert max(woken) - fulfilled_at < 10

    asyncio.run(run())
    assert not polling._Poll.running
    polling._CATALOG._executor.submit(int).result()
    assert polling._CATALOG._catalog is None
