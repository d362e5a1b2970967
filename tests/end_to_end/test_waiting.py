"""Sensors wait in Airflow's triggerer for partitions and operations, and tell why they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, NewPartition
from catalog.operations.records import OperationKind

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

TABLE, OPERATION = "waiting.visits", "somebody/else"


@pytest.mark.parametrize("stack", ["postgresql"], indirect=True)
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
