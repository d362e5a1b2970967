from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from calve_airflow.sensors.operations import OperationSensor
from calve_airflow.triggers.operations import OperationTrigger
from catalog import Catalog
from catalog.operations.records import OperationKind, OperationState

TABLE, ID = "demo.flights", "load/run"


@pytest.fixture
def running(catalog: Catalog) -> Catalog:
    catalog.operations.begin(ID, OperationKind.ADD_PARTITIONS, TABLE)
    catalog.operations.start_job(ID, "write")
    return catalog


def execute(**arguments: Any) -> dict[str, str]:
    result: dict[str, str] = OperationSensor(task_id="wait", operation_id=ID, **arguments).execute(Context())
    return result


def commit(catalog: Catalog) -> None:
    with catalog.storage.write() as connection:
        catalog.operations.advance(connection, ID, OperationState.COMMITTED)


def is_over(catalog: Catalog, *, must_exist: bool = True) -> bool:
    trigger = OperationTrigger(ID, must_exist, 0.01)
    return trigger.is_over(trigger.read(catalog, [ID]).get(ID))


def test_waits_until_the_operation_is_committed(running: Catalog) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        execute()
    path, fields = deferred.value.trigger.serialize()
    assert path == "calve_airflow.triggers.operations.OperationTrigger"
    assert OperationTrigger(**fields).serialize() == (path, fields)

    async def run() -> Any:
        waiting = asyncio.ensure_future(anext(aiter(OperationTrigger(ID, True, 0.01).run())))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await asyncio.to_thread(commit, running)
        return await asyncio.wait_for(waiting, 120)

    asyncio.run(run())
    assert execute() == {"table": TABLE, "kind": "add_partitions", "state": "COMMITTED"}


def test_fails_with_the_failure_of_the_operation(running: Catalog) -> None:
    assert not is_over(running)
    running.operations.fail(ID, "RUN_FAILED", "the disk was full")
    assert is_over(running)
    with pytest.raises(AirflowFailException, match=r"load/run .* demo.flights FAILED: RUN_FAILED: the"):
        OperationSensor(task_id="wait", operation_id=ID).execute_complete(Context(), {})


def test_an_operation_that_does_not_exist_fails_the_task_or_is_waited_for(catalog: Catalog) -> None:
    assert (is_over(catalog), is_over(catalog, must_exist=False)) == (True, False)
    with pytest.raises(AirflowFailException, match="OperationNotFoundError: there is no operation load/run"):
        execute()
    with pytest.raises(TaskDeferred):
        execute(must_exist=False)
    catalog.operations.begin(ID, OperationKind.ADD_PARTITIONS, TABLE)
    catalog.operations.start_job(ID, "write")
    commit(catalog)
    assert execute(must_exist=False)["state"] == "COMMITTED"


@pytest.mark.usefixtures("running")
def test_a_wait_that_begins_again_does_not_get_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000_000.0]
    monkeypatch.setattr("calve_airflow.sensors.waiting.time.time", lambda: clock[0])
    event: dict[str, Any] = {}
    left = []
    for seconds in (0, 40, 50, 60):
        clock[0] += seconds
        sensor = OperationSensor(task_id="wait", operation_id=ID, timeout=100)
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute_complete(Context(), {}, **event) if event else sensor.execute(Context())
        event, timeout = deferred.value.kwargs or {}, deferred.value.timeout
        left.append(timeout.total_seconds() if isinstance(timeout, timedelta) else timeout)
    assert left == [100, 60, 10, 0]
