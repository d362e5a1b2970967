"""Sensors wait in Airflow's triggerer for partitions, operations and indexes, and tell why they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.operations.records import OperationKind

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)),
    pytest.mark.parametrize("stack", ["postgresql"], indirect=True),
]

TABLE, OPERATION = "waiting.visits", "somebody/else"


def test_sensors_wait_in_the_triggerer(catalog: Catalog, stack: Stack, start_dag: Callable[..., Any]) -> None:
    catalog.create_database("waiting", if_not_exists=True)
    catalog.create_table(TABLE, columns=[("id", "int")], partition_keys=[("day", "int"), ("hour", "int")])
    catalog.add_partitions(TABLE, [NewPartition(("1", "0"))])
    run = start_dag("arrivals", {"table": TABLE, "operation": OPERATION})
    for task in ("named", "matching", "operation"):
        run.wait_for(task, "deferred")
    run.wait_for("refused", "failed")
    assert "UnknownColumnError" in run.log("refused")
    assert run.tries("refused") == 1
    catalog.add_partitions(TABLE, [NewPartition(("1", "1"))])
    catalog.operations.begin(OPERATION, OperationKind.ADD_PARTITIONS, TABLE)
    catalog.operations.fail(OPERATION, "RUN_FAILED", "the disk was full")
    run.wait("failed")
    states = run.states()
    assert states == {"named": "success", "matching": "success", "operation": "failed", "refused": "failed"}
    assert (run.result("named"), run.result("matching")) == (2, 2)
    assert f"operation {OPERATION} (add_partitions) on {TABLE} FAILED: RUN_FAILED: the disk was full" in run.log(
        "operation", run.tries("operation")
    )


def test_a_sensor_waits_without_a_worker_slot_until_an_index_is_active(
    catalog: Catalog, start_dag: Callable[..., Any]
) -> None:
    table, index = "waiting.months", "by_month"
    catalog.create_database("waiting", if_not_exists=True)
    catalog.create_table(table, columns=[("id", "int")], partition_keys=[("month", "int")])
    catalog.add_partitions(table, [NewPartition(("1",))])
    catalog.create_partition_index(table, index, ["month"])
    run = start_dag("waiter", {"table": table, "index": index})
    run.wait_for("wait", "deferred")
    assert catalog.build_partition_index(table, index).state is IndexState.ACTIVE
    assert run.wait().result("wait") == {index: "ACTIVE"}
