"""The DAGs of the tables in the YAML list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tests.dags.test_dags import DAG_IDS, LISTED
from tests.dags.test_dags import read_dags_of as read_dags_of
from tests.support.effort import sampled

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG


def test_entry_of_the_list_is_all_that_a_new_table_needs(read_dags_of: Callable[..., DagBag]) -> None:
    bag = read_dags_of("{source: /data, keys: {day: date}, schedule: '@daily'}")
    assert bag.import_errors == {}
    assert set(bag.dags) == DAG_IDS - {LISTED} | {"add_partitions.shop.orders"}
    assert bag.dags["add_partitions.shop.orders"].schedule == "@daily"
    assert bag.dags["add_partitions"].params["table"] == "shop.orders"


def test_the_form_of_a_list_without_sources_has_an_example(read_dags_of: Callable[..., DagBag]) -> None:
    bag = read_dags_of("{rebalance: {apply: true}}")
    assert bag.dags["add_partitions"].params["table"] == "demo.flights"


WRONG_ENTRIES = [
    ("{source: /data, keyz: {day: date}}", "keyz"),
    ("{keys: {day: date}}", "source"),
    ("{source: /data, keys: {day: dat}}", "dat"),
    ("{source: /data, keys: [day]}", "keys"),
    ("{source: /data, invalid_partitions: drop}", "invalid_partitions"),
    ("{source: /data, schedule: whenever}", "schedule"),
    ("{source: /data, schedule: 5}", "schedule"),
    ("{source: /data, schedule: '99 99 * * *'}", "schedule"),
    ("nothing", "mapping"),
    ("{source: /data, quality: {on_failure: shout}}", "on_failure"),
]


@pytest.mark.parametrize(("entry", "named"), sampled(WRONG_ENTRIES, WRONG_ENTRIES[4:9:2]))
def test_a_wrong_entry_of_the_list_stops_only_its_own_table(
    read_dags_of: Callable[..., DagBag], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, named: str
) -> None:
    from catalog import Catalog

    monkeypatch.setenv("CALVE_CATALOG_URL", f"sqlite:///{tmp_path}/catalog.db")
    Catalog.initialise().close()
    bag = read_dags_of(entry, "shop.returns: {source: /data, keys: {day: date}, schedule: '@daily'}")
    assert bag.import_errors == {}
    assert set(bag.dags) == DAG_IDS - {LISTED} | {"add_partitions.shop.orders", "add_partitions.shop.returns"}
    assert bag.dags["add_partitions.shop.returns"].schedule == "@daily"
    assert "wrong entry" not in bag.dags["add_partitions.shop.returns"].tags
    wrong = bag.dags["add_partitions.shop.orders"]
    assert "wrong entry" in wrong.tags
    assert wrong.schedule == ("@once" if named in ("schedule", "mapping") else None)
    first_line = str(wrong.doc_md).splitlines()[0]
    assert all(part in first_line for part in ("tables.yaml", "shop.orders", named))
    with pytest.raises(AirflowFailException) as failure:
        run_discover(wrong)
    assert str(failure.value).removeprefix("InvalidConfigurationError: ") in first_line


@pytest.mark.parametrize(
    "name",
    ["shop.or ders", "a.b.c", "'shop.ö/?'", "'[a.b'", r'"shop.\ud800\0"', *(f"shop.{'x' * n}" for n in (300, 3000))],
)
def test_a_name_that_airflow_does_not_take_stops_no_other_table(read_dags_of: Callable[..., DagBag], name: str) -> None:
    bag = read_dags_of("{source: /data}", f"? {name} : {{source: /data}}")
    assert bag.import_errors == {}
    (other,) = bag.dags.keys() - DAG_IDS - {"add_partitions.shop.orders"}
    assert len(other) < 250
    if name == "a.b.c" or "xxx" in name:
        assert name in str(bag.dags[other].doc_md).splitlines()[0]


def test_two_entries_of_one_table_are_both_refused(read_dags_of: Callable[..., DagBag]) -> None:
    bag = read_dags_of("{source: /data}", "Shop.Orders: {source: /other}")
    assert bag.import_errors == {}
    assert "two entries of shop.orders" in str(bag.dags["add_partitions.shop.orders"].doc_md).splitlines()[0]


@pytest.mark.parametrize("dag_id", ["add_partitions", "add_partitions.shop.orders", "add_partitions.shop.wrong"])
def test_a_task_builds_only_its_own_dag(
    read_dags_of: Callable[..., DagBag], monkeypatch: pytest.MonkeyPatch, dag_id: str
) -> None:
    # As Airflow's task runner sets it.
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)
    bag = read_dags_of("{source: /data, keys: {day: date}}", "shop.returns: {source: /data}", "shop.wrong: nothing")
    assert {dag_id for dag_id in bag.dags if dag_id.startswith("add_partitions")} == {dag_id}
    assert ("wrong entry" in bag.dags[dag_id].tags) == dag_id.endswith("wrong")
    announced = bag.dags[dag_id].get_task("announce").outlets
    assert len(announced) == {"add_partitions": 2, "add_partitions.shop.orders": 1}.get(dag_id, 0)


def run_discover(dag: DAG) -> None:
    from airflow.sdk import Context

    discover = dag.get_task("discover")
    discover.operation_id = "run"
    discover.execute(Context(params=dict(dag.params)))
