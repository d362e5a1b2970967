"""Polling for many triggers with one query and one connection, also while the catalog is down for a while."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import event

from calve_airflow.triggers import polling
from calve_airflow.triggers.indexes import PartitionIndexTrigger
from catalog import Catalog, NewPartition
from catalog.model import IndexState
from catalog.storage import Storage
from standalone.postgres import PostgresServer

POLL_SECONDS = 0.05


def table(number: int) -> str:
    return f"demo.table_{number}"


def create_table(catalog: Catalog, number: int) -> None:
    """Create a table with an index that is being built."""
    catalog.create_table(table(number), columns=[("delay", "int")], partition_keys=[("month", "int")])
    catalog.add_partitions(table(number), [NewPartition(("1",))])
    catalog.create_partition_index(table(number), "by_month", ["month"])


def trigger(number: int) -> PartitionIndexTrigger:
    return PartitionIndexTrigger(table(number), "by_month", POLL_SECONDS)


async def event_of(waiting: PartitionIndexTrigger) -> dict[str, Any]:
    payload: dict[str, Any] = (await anext(aiter(waiting.run()))).payload
    return payload


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of all catalogs that are opened from now on."""
    recorded: list[str] = []
    create_engine = Storage._create_engine

    def create_recorded(storage: Storage, *arguments: Any, **options: Any) -> Any:
        engine = create_engine(storage, *arguments, **options)
        event.listen(engine, "before_cursor_execute", lambda *values: recorded.append(values[2]))
        return engine

    monkeypatch.setattr(Storage, "_create_engine", create_recorded)
    return recorded


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of objects that each poll asked for."""
    counts: list[int] = []
    read = PartitionIndexTrigger.read

    def record(catalog: Catalog, keys: Collection[str]) -> Mapping[str, Mapping[str, IndexState]]:
        counts.append(len(keys))
        return read(catalog, keys)

    monkeypatch.setattr(PartitionIndexTrigger, "read", record)
    return counts


@pytest.mark.smoke
def test_many_triggers_are_polled_with_one_statement_in_one_connection(
    catalog_url: str, tmp_path: Path, statements: list[str], polls: list[int]
) -> None:
    count = 20
    with Catalog.open(catalog_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        for number in range(count):
            create_table(catalog, number)

        async def run() -> list[dict[str, Any]]:
            waiting = [asyncio.create_task(event_of(trigger(number))) for number in range(count)]
            while len(polls) < 5:
                await asyncio.sleep(0.01)
            statements.clear()
            while len(polls) < 10:
                await asyncio.sleep(0.01)
            selected = sum("calve_partition_index" in statement for statement in statements)
            assert 4 <= selected <= 6
            assert not any(task.done() for task in waiting)
            for number in range(count):
                await asyncio.to_thread(catalog.build_partition_index, table(number), "by_month")
            return await asyncio.wait_for(asyncio.gather(*waiting), 120)

        assert [payload["table"] for payload in asyncio.run(run())] == [table(number) for number in range(count)]
    assert polls[0] == count
    assert not polling._Poll.running


def test_a_cancelled_trigger_is_no_longer_polled(catalog: Catalog, polls: list[int]) -> None:
    create_table(catalog, 1)
    create_table(catalog, 2)

    async def run() -> None:
        first, second = (asyncio.create_task(event_of(trigger(number))) for number in (1, 2))
        while 2 not in polls:
            await asyncio.sleep(0.01)
        first.cancel()
        while 1 not in polls:
            await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.wait([first, second])

    asyncio.run(run())
    assert not polling._Poll.running


def test_an_unexpected_error_fails_the_triggers(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(catalog: Catalog, keys: Collection[str]) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(PartitionIndexTrigger, "read", fail)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(event_of(trigger(1)))


def test_a_trigger_that_fails_to_look_ends_only_its_own_wait(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, polls: list[int]
) -> None:
    create_table(catalog, 1)
    create_table(catalog, 2)
    is_over = PartitionIndexTrigger.is_over

    def look(self: PartitionIndexTrigger, state: Any) -> bool:
        if self.key == trigger(1).key:
            raise PermissionError(self.key)
        return is_over(self, state)

    monkeypatch.setattr(PartitionIndexTrigger, "is_over", look)

    async def run() -> bool:
        first, second = (asyncio.create_task(event_of(trigger(number))) for number in (1, 2))
        await asyncio.wait_for(first, 120)
        while polls.count(1) < 2:
            await asyncio.sleep(0.01)
        is_waiting = not second.done()
        second.cancel()
        await asyncio.wait([second])
        return is_waiting

    assert asyncio.run(run())


def test_an_import_that_fails_does_not_hang_the_triggers(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(catalog, 1)
    with monkeypatch.context() as patch:
        patch.setattr(polling, "import_module", mock.Mock(side_effect=ImportError("the disk was full")))
        with pytest.raises(ImportError, match="the disk was full"):
            asyncio.run(asyncio.wait_for(event_of(trigger(1)), 120))
    catalog.build_partition_index(table(1), "by_month")
    assert asyncio.run(asyncio.wait_for(event_of(trigger(1)), 120))["table"] == table(1)


def test_an_error_that_does_not_pass_ends_the_wait(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_CONNECTIONS", "none")
    assert asyncio.run(event_of(trigger(1)))["table"] == table(1)


class TestOutage:
    """The catalog's server stops while triggers wait."""

    @pytest.fixture
    def catalog(self, stoppable_catalog: Catalog) -> Catalog:
        create_table(stoppable_catalog, 1)
        return stoppable_catalog

    @pytest.mark.long
    def test_triggers_wait_through_the_outage(
        self, catalog: Catalog, stoppable_server: PostgresServer, polls: list[int], caplog: pytest.LogCaptureFixture
    ) -> None:
        def interrupt() -> None:
            while not polls:
                time.sleep(0.01)
            stoppable_server.stop()
            time.sleep(2)
            stoppable_server.start()
            catalog.build_partition_index(table(1), "by_month")

        outage = threading.Thread(target=interrupt)
        outage.start()
        try:
            assert asyncio.run(asyncio.wait_for(event_of(trigger(1)), 120))["table"] == table(1)
        finally:
            outage.join()
        assert catalog.get_partition_index(table(1), "by_month").state is IndexState.ACTIVE
        assert "1 × PartitionIndexTrigger waits for the catalog" in caplog.text

    def test_the_wait_ends_after_the_patience(
        self, catalog: Catalog, stoppable_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CALVE_JOB_PATIENCE_SECONDS", "1")
        stoppable_server.stop()
        try:
            assert asyncio.run(asyncio.wait_for(event_of(trigger(1)), 120))["table"] == table(1)
        finally:
            stoppable_server.start()
