from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from calve_airflow.sensors.partitions import PartitionSensor
from calve_airflow.triggers.partitions import PartitionTrigger
from catalog import Catalog, NewPartition

TABLE = "demo.flights"


@pytest.fixture(autouse=True)
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The list of tables, without entries."""
    path = tmp_path / "tables.yaml"
    path.write_text("tables: {}")
    monkeypatch.setenv("CALVE_TABLES", str(path))
    return path


def execute(**arguments: Any) -> int:
    sensor = PartitionSensor(task_id="wait", **{"table": TABLE, "poke_interval": 0.01, "timeout": 60, **arguments})
    result: int = sensor.execute(Context())
    return result


def trigger_of(**arguments: Any) -> PartitionTrigger:
    """Return the trigger of a sensor that defers, as the triggerer recreates it."""
    with pytest.raises(TaskDeferred) as deferred:
        execute(**arguments)
    assert deferred.value.method_name == "execute_complete"
    assert deferred.value.timeout == timedelta(seconds=60)
    path, fields = deferred.value.trigger.serialize()
    assert path == "calve_airflow.triggers.partitions.PartitionTrigger"
    trigger = PartitionTrigger(**fields)
    assert trigger.serialize() == (path, fields)
    return trigger


def event_of(trigger: PartitionTrigger, meanwhile: Callable[[], object]) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        waiting = asyncio.ensure_future(anext(aiter(trigger.run())))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await asyncio.to_thread(meanwhile)
        payload: dict[str, Any] = (await asyncio.wait_for(waiting, 120)).payload
        return payload

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"partition": "carrier=AA/month=1"}, 1),
        ({"partition": {"carrier": "AA", "month": 1}}, 1),
        ({"partition": ["AA", "01"]}, 1),
        ({"partitions": ["carrier=AA/month=1", ("AA", "foo")]}, 2),
        ({"expression": "carrier = 'AA'", "at_least": "2"}, 2),
    ],
)
def test_returns_at_once_when_the_partitions_are_there(catalog: Catalog, arguments: Any, count: int) -> None:
    assert execute(**arguments) == count


@pytest.mark.parametrize(
    "arguments",
    [
        {"partition": "carrier=BB/month=1"},
        {"partitions": ["carrier=AA/month=1", ("BB", 1)]},
        {"expression": "month = 1", "at_least": 2},
    ],
)
def test_waits_in_the_triggerer_until_the_partitions_are_there(catalog: Catalog, arguments: Any) -> None:
    trigger = trigger_of(**arguments)
    event = event_of(trigger, lambda: catalog.add_partitions(TABLE, [NewPartition(("BB", "1"))]))
    assert event == trigger.arguments()
    assert execute(**arguments) == len(arguments.get("partitions", [1, 2] if "expression" in arguments else [1]))


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table": "demo.none", "partition": "month=1"}, r"TableNotFoundError: table demo.none does not exist"),
        ({"expression": "year = 2024"}, r"UnknownColumnError: .*year"),
        ({"expression": 5}, r"has the expression 5, expected a string"),
        ({"expression": "month ="}, r"ExpressionSyntaxError"),
        ({"expression": "month = 1", "at_least": "many"}, r"WrongFieldError: at_least: 'many' is not a whole number"),
        ({"partition": "carrier=AA"}, r"PartialPartitionSpecError: .*month has no value"),
        ({"partitions": "carrier=AA/month=1"}, r"expected a list; use partition= for one"),
        ({"partition": "carrier=AA/month=1", "expression": "month = 1"}, r"has partition and expression; give exactly"),
        ({}, r"has none of partition, partitions, expression; give exactly one"),
    ],
)
def test_fails_for_good_when_no_wait_can_help(catalog: Catalog, arguments: Any, message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        execute(**arguments)


@pytest.mark.first_case
@pytest.mark.parametrize("arguments", [{"partition": "carrier=BB/month=1"}, {"expression": "carrier = 'BB'"}])
def test_fails_for_good_when_the_table_is_dropped_meanwhile(catalog: Catalog, arguments: Any) -> None:
    event_of(trigger_of(**arguments), lambda: catalog.drop_table(TABLE))
    with pytest.raises(AirflowFailException, match=r"TableNotFoundError: .*demo.flights"):
        PartitionSensor(task_id="wait", table=TABLE, **arguments).execute_complete(Context(), {})


def test_the_table_list_says_whether_a_check_is_needed(catalog: Catalog, tables: Path) -> None:
    partition = "carrier=AA/month=1"
    tables.write_text("tables: {demo.flights: {source: /data, keys: {carrier: string, month: int}}}")
    assert execute(partition=partition) == 1
    tables.write_text(
        "tables: {demo.flights: {source: /data, keys: {carrier: string, month: int}, quality: {row_count: {min: 1}}}}"
    )
    assert trigger_of(partition=partition).question["quality"] == "required"
    assert execute(partition=partition, quality=False) == 1
    tables.write_text("tables: {demo.flights: {source: /data, quality: 7}}")
    with pytest.raises(AirflowFailException, match=r"InvalidConfigurationError: .*demo.flights"):
        execute(partition=partition)
    tables.write_text("tables: {}")
    assert trigger_of(partition=partition, quality=True).question["quality"] == "required"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"partitions": [("AA", month) for month in range(9)]},
            "after 60 s, demo.flights: 1 of 9 partition(s) ready: 8 missing (carrier=AA/month=0, carrier=AA/month=2, "
            "carrier=AA/month=3, carrier=AA/month=4, carrier=AA/month=5 and 3 more)",
        ),
        (
            {"expression": "carrier = 'AA'", "at_least": 3},
            "after 60 s, demo.flights: 2 of 3 partition(s) ready: 1 missing",
        ),
    ],
)
def test_a_timeout_says_what_is_missing(catalog: Catalog, arguments: Any, told: str) -> None:
    sensor = PartitionSensor(task_id="wait", table=TABLE, timeout=60, **arguments)
    with pytest.raises(AirflowSensorTimeout) as timeout:
        sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, Context())
    assert str(timeout.value) == told
    catalog.drop_table(TABLE)
    with pytest.raises(AirflowSensorTimeout):
        sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, Context())


DAG_FILE = """\
from airflow.sdk import DAG, task
from calve_airflow.sensors.partitions import PartitionSensor

with DAG("wait_for_partitions", schedule=None, params={"months": [1, 2]}, render_template_as_native_obj=True):

    @task
    def names(params=None):
        return [f"carrier=AA/month={month}" for month in params["months"]]

    @task
    def check(count):
        assert count == 2, count

    wait = PartitionSensor(task_id="wait", table="demo.flights", partitions=names(), poke_interval=0.05, timeout=60)
    check(wait.output)
"""


@pytest.mark.airflow
@pytest.mark.filterwarnings("ignore")  # Airflow's own
def test_a_dag_run_defers_and_resumes(
    catalog: Catalog, load_dag: Callable[[str, str], DAG], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bool] = []
    is_over = PartitionTrigger.is_over

    def record(trigger: PartitionTrigger, state: Any) -> bool:
        answers.append(is_over(trigger, state))
        if len(answers) == 2:
            catalog.add_partitions(TABLE, [NewPartition(("AA", "2"))])
        return answers[-1]

    monkeypatch.setattr(PartitionTrigger, "is_over", record)
    assert load_dag(DAG_FILE, "wait_for_partitions").test().state == "success"
    assert answers == [False, False, True]
