from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferralTimeout, TaskDeferred

from calve_airflow.sensors.batches import PartitionIndexBatchSensor
from calve_airflow.sensors.indexes import PartitionIndexSensor
from calve_airflow.triggers.indexes import PartitionIndexTrigger
from catalog import Catalog
from catalog.errors import CatalogUnavailableError

TABLE = "demo.flights"


def execute(index: str | None) -> dict[str, str]:
    sensor = PartitionIndexSensor(task_id="wait", table=TABLE, index=index, poke_interval=0.01, timeout=60)
    result: dict[str, str] = sensor.execute(Context())
    return result


def trigger(index: str | None = "by_carrier") -> PartitionIndexTrigger:
    return PartitionIndexTrigger(TABLE, index, 0.01)


def first_event(index: str | None = "by_carrier") -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        event = await asyncio.wait_for(anext(aiter(trigger(index).run())), 120)
        payload: dict[str, Any] = event.payload
        return payload

    return asyncio.run(run())


def polls_of(monkeypatch: pytest.MonkeyPatch, before_third: Callable[[], object]) -> list[bool]:
    """Run an action before the trigger's third poll of the catalog; return the results of the polls."""
    answers: list[bool] = []
    read, is_over = PartitionIndexTrigger.read, PartitionIndexTrigger.is_over

    def read_after_action(catalog: Catalog, keys: Collection[str]) -> Any:
        if len(answers) == 2:
            before_third()
        return read(catalog, keys)

    def record(trigger: PartitionIndexTrigger, state: Any) -> bool:
        answers.append(is_over(trigger, state))
        return answers[-1]

    monkeypatch.setattr(PartitionIndexTrigger, "read", read_after_action)
    monkeypatch.setattr(PartitionIndexTrigger, "is_over", record)
    return answers


@pytest.mark.parametrize("state", ["ACTIVE", "CREATING"])
def test_a_sensor_that_starts_in_an_outage_waits_for_its_end(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    if state == "ACTIVE":
        catalog.build_partition_index(TABLE, "by_carrier")
    outage = [CatalogUnavailableError("the server is down"), Catalog.open()]
    monkeypatch.setattr(Catalog, "open", mock.Mock(side_effect=outage))
    with nullcontext() if state == "ACTIVE" else pytest.raises(TaskDeferred):
        assert execute("by_carrier") == {"by_carrier": "ACTIVE"}


def test_returns_at_once_when_the_index_is_active(catalog: Catalog) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    catalog.build_partition_index(TABLE, "by_carrier")
    assert execute("by_carrier") == {"by_carrier": "ACTIVE"}


def test_waits_in_the_triggerer_while_an_index_is_being_built(catalog: Catalog) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    with pytest.raises(TaskDeferred) as deferred:
        execute("by_carrier")
    path, arguments = deferred.value.trigger.serialize()
    assert path == "calve_airflow.triggers.indexes.PartitionIndexTrigger"
    assert PartitionIndexTrigger(**arguments).serialize() == (path, arguments)
    assert arguments == {"table": TABLE, "index": "by_carrier", "poll_seconds": 0.01}
    assert deferred.value.method_name == "execute_complete"
    assert deferred.value.timeout == timedelta(seconds=60)


def test_looks_again_when_the_trigger_has_fired(catalog: Catalog) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    sensor = PartitionIndexSensor(task_id="wait", table=TABLE, index="by_carrier")
    with pytest.raises(TaskDeferred):
        sensor.execute_complete(Context(), {})
    catalog.build_partition_index(TABLE, "by_carrier")
    assert sensor.execute_complete(Context(), {}) == {"by_carrier": "ACTIVE"}


def test_fails_for_good_with_code_and_detail_when_the_build_failed(catalog: Catalog) -> None:
    catalog.create_partition_index(TABLE, "by_month", ["month"])
    catalog.build_partition_index(TABLE, "by_month")
    with pytest.raises(AirflowFailException, match=r"by_month of demo.flights FAILED: INVALID_PARTITION.*foo"):
        execute("by_month")


def test_fails_for_good_when_there_is_no_such_index(catalog: Catalog) -> None:
    with pytest.raises(AirflowFailException, match=r"IndexNotFoundError: .*by_carrier"):
        execute("by_carrier")


def test_fails_for_good_when_there_is_no_such_table(catalog: Catalog) -> None:
    catalog.drop_table(TABLE)
    with pytest.raises(AirflowFailException, match=r"TableNotFoundError: .*demo.flights"):
        execute(None)


def test_without_a_name_waits_for_every_index(catalog: Catalog) -> None:
    assert execute(None) == {}
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    catalog.create_partition_index(TABLE, "by_both", ["carrier", "month"])
    catalog.build_partition_index(TABLE, "by_carrier")
    with pytest.raises(TaskDeferred):
        execute(None)
    catalog.delete_partition_index(TABLE, "by_both")
    assert execute(None) == {"by_carrier": "ACTIVE"}


def test_a_timeout_in_the_triggerer_is_a_sensor_timeout(catalog: Catalog) -> None:
    sensor = PartitionIndexSensor(task_id="wait", table=TABLE, index="by_carrier")
    with pytest.raises(AirflowSensorTimeout) as timeout:
        sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, Context())
    assert isinstance(timeout.value.__cause__, TaskDeferralTimeout)


@pytest.mark.parametrize("index", ["by_carrier", None])
def test_the_trigger_fires_when_the_index_becomes_active(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, index: str | None
) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    answers = polls_of(monkeypatch, before_third=lambda: catalog.build_partition_index(TABLE, "by_carrier"))
    assert first_event(index) == {"table": TABLE, "index": index, "poll_seconds": 0.01}
    assert answers == [False, False, True]


def test_the_trigger_fires_when_one_index_failed_though_another_is_being_built(catalog: Catalog) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    catalog.create_partition_index(TABLE, "by_month", ["month"])
    catalog.build_partition_index(TABLE, "by_month")
    assert first_event(None)["table"] == TABLE


def test_the_trigger_fires_when_the_index_is_gone(catalog: Catalog) -> None:
    assert first_event("by_carrier")["index"] == "by_carrier"


@pytest.mark.parametrize("index", ["By_Carrier ", ["by_carrier"], None])
def test_the_trigger_does_not_fire_while_the_index_is_being_built(catalog: Catalog, index: Any) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    assert not trigger(index).is_over(catalog.get_partition_index_states([TABLE])[TABLE])


DAG_FILE = """\
from airflow.sdk import DAG, task
from calve_airflow.sensors.batches import PartitionIndexBatchSensor
from calve_airflow.sensors.indexes import PartitionIndexSensor

with DAG("wait_for_index", schedule=None, params={"table": "demo.flights"}):

    @task
    def check(states):
        assert states == {"by_carrier": "ACTIVE"}, states

    wait = PartitionIndexSensor(task_id="wait", table="{{ params.table }}", index="by_carrier", poke_interval=0.05)
    check(wait.output)
"""


@pytest.mark.long
@pytest.mark.airflow
@pytest.mark.filterwarnings("ignore")  # Airflow's own
def test_a_dag_run_defers_and_resumes(
    catalog: Catalog, load_dag: Callable[[str, str], DAG], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    answers = polls_of(monkeypatch, before_third=lambda: catalog.build_partition_index(TABLE, "by_carrier"))
    assert load_dag(DAG_FILE, "wait_for_index").test().state == "success"
    assert answers == [False, False, True]


def test_each_table_of_a_batch_has_its_own_time(catalog: Catalog) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    sensor = PartitionIndexBatchSensor(task_id="wait", batch=[{"table": TABLE}], indexes=[["by_carrier"]], timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute_complete(Context(), {}, until=0.0)
    assert deferred.value.timeout == timedelta(seconds=60)
