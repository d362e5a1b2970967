from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import DAG, Asset, Context
from airflow.sdk.execution_time.context import OutletEventAccessors

from calve_airflow.assets import (
    MAX_KEYS,
    Change,
    announce,
    announce_change,
    announcement_batches,
    change_asset,
    partition_key,
    table_asset,
)


@pytest.fixture
def context() -> Context:
    others = [table_asset("demo.flights"), table_asset("demo.other")]
    task = SimpleNamespace(outlets=others)
    return cast("Context", {"ti": SimpleNamespace(task=task), "outlet_events": OutletEventAccessors()})


def emitted(context: Context) -> dict[Asset, set[str]]:
    """Asset events as Airflow registers them: the keys of a finished task's outlets."""
    values = cast("dict[str, Any]", context)
    return {outlet: values["outlet_events"][outlet].partition_keys for outlet in values["ti"].task.outlets}


@pytest.mark.parametrize(
    ("table", "name", "uri"),
    [
        ("demo.flights", "demo.flights", "x-calve://demo/flights"),
        (" Demo.Flights ", "demo.flights", "x-calve://demo/flights"),
        ("flights", "default.flights", "x-calve://default/flights"),
        ("größe.müll", "größe.müll", "x-calve://größe/müll"),
        ("[a.b", "[a.b", "x-calve:///[a/b"),
        ("a℀b.c", "a℀b.c", "x-calve:///a℀b/c"),
    ],
)
def test_a_table_is_an_asset(table: str, name: str, uri: str) -> None:
    assert table_asset(table) == Asset(name=name, uri=uri)


def test_announces_the_loaded_table_only(context: Context) -> None:
    announce(context, "demo.flights", ["month=1", "month=2", "month=1"])
    assert emitted(context) == {table_asset("demo.flights"): {"month=1", "month=2"}}


def test_announces_a_table_that_the_task_does_not_declare(context: Context) -> None:
    announce(context, "demo.new", iter(["month=1"]))
    assert emitted(context) == {table_asset("demo.new"): {"month=1"}}


def test_announces_nothing_without_new_partitions(context: Context) -> None:
    announce(context, "demo.flights", [])
    assert emitted(context) == {}


def test_refuses_more_keys_than_airflow_takes(context: Context) -> None:
    announce(context, "demo.flights", [f"day={day}" for day in range(MAX_KEYS)])
    with pytest.raises(ValueError, match=r"501 partitions of demo.flights, .* announcement_batches"):
        announce(context, "demo.flights", [f"day={day}" for day in range(MAX_KEYS + 1)])


def test_batches_hold_all_names_in_order() -> None:
    names = [f"day={day}" for day in range(2 * MAX_KEYS + 1)]
    batches = announcement_batches(iter(names))
    assert [len(batch) for batch in batches] == [MAX_KEYS, MAX_KEYS, 1]
    assert [name for batch in batches for name in batch] == names
    assert announcement_batches([]) == []


def test_a_short_name_is_its_own_key() -> None:
    assert partition_key("k=" + "x" * 248) == "k=" + "x" * 248


def test_a_long_name_gets_a_key_that_airflow_takes(context: Context) -> None:
    names = ["k=" + "x" * 249 + end for end in "ab"]
    announce(context, "demo.flights", names)
    keys = emitted(context)[table_asset("demo.flights")]
    assert keys == {partition_key(name) for name in names}
    assert len(keys) == 2
    assert {len(key) for key in keys} == {250}


def test_a_change_is_an_event_besides_those_of_partitions(context: Context) -> None:
    announce(context, "demo.flights", ["month=1"])
    announce_change(context, "demo.flights", Change.LOADED, {"rows": 7})
    asset = change_asset("demo.flights", Change.LOADED)
    assert (asset.name, asset.uri) == ("demo.flights (loaded)", "x-calve://demo/flights/loaded")
    assert emitted(context) == {table_asset("demo.flights"): {"month=1"}, asset: set()}
    assert context["outlet_events"][asset].extra == {"rows": 7}


DAG_FILE = """\
from airflow.sdk import DAG, FixedKeyMapper, PartitionedAssetTimetable, task
from calve_airflow.assets import Change, announce, announce_change, change_asset, table_asset

with DAG("load", schedule=None, params={"table": "news.flights", "names": []}, render_template_as_native_obj=True):

    @task(outlets=[table_asset("news.flights"), table_asset("news.other")])
    def announce_partitions(params=None, **context):
        announce(context, params["table"], params["names"])
        announce_change(context, params["table"], Change.LOADED, {"rows": len(params["names"])})

    announce_partitions()

for table in "flights", "other", "only_consumed":
    schedule = PartitionedAssetTimetable(assets=table_asset(f"news.{table}"))
    with DAG(f"use_{table}", schedule=schedule, is_paused_upon_creation=False):
        task(lambda: None, task_id="use")()

once = PartitionedAssetTimetable(assets=table_asset("news.flights"), default_partition_mapper=FixedKeyMapper("load"))
with DAG("use_load", schedule=once, is_paused_upon_creation=False):
    task(lambda: None, task_id="use")()

loads = [change_asset("news.flights", Change.LOADED)]
with DAG("use_each_load", schedule=loads, is_paused_upon_creation=False):
    task(lambda: None, task_id="use")()
"""


@pytest.mark.long
@pytest.mark.airflow
@pytest.mark.filterwarnings("ignore")  # Airflow's own
def test_consumers_get_one_run_for_each_new_partition_of_their_table(load_dag: Callable[[str, str], DAG]) -> None:
    from airflow.models.asset import AssetDagRunQueue, AssetEvent, AssetModel, AssetPartitionDagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    load = load_dag(DAG_FILE, "load")
    for table, names in {
        "news.flights": ["month=1", "month=2"],
        "news.only_consumed": ["month=3"],
        "news.unknown_to_every_dag": ["month=4"],
        "news.other": [],
    }.items():
        assert load.test(run_conf={"table": table, "names": names}).state == "success"
    with create_session() as session:
        # Other tests in this process may have emitted events of other tables.
        own = AssetModel.name.startswith("news.")
        events = select(AssetEvent.partition_key).join(AssetModel, AssetModel.id == AssetEvent.asset_id).where(own)
        keys = session.scalars(events).all()
        loaded = select(AssetEvent.extra).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        extras = session.scalars(loaded.where(AssetModel.name == "news.flights (loaded)")).all()
        queued_loads = session.scalars(select(AssetDagRunQueue.target_dag_id)).all()
        runs = select(AssetPartitionDagRun.target_dag_id, AssetPartitionDagRun.partition_key)
        queued = session.execute(runs.where(AssetPartitionDagRun.target_dag_id.startswith("use_"))).all()
    assert (extras, queued_loads) == ([{"rows": 2}], ["use_each_load"])
    assert sorted(str(key) for key in keys if key) == ["month=1", "month=2", "month=3"]
    assert sorted(map(tuple, queued)) == [
        ("use_flights", "month=1"),
        ("use_flights", "month=2"),
        ("use_load", "load"),
        ("use_only_consumed", "month=3"),
    ]
