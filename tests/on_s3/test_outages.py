"""The S3 server is down for half a minute while a run is at work: the run ends as if nothing had happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, NewPartition
from catalog.schemes.ranges import RangeScheme
from tests.on_s3.conftest import LANDING, iceberg_rows, write_orders
from tests.support.iceberg_tables import COLUMNS, KEYS, PARTITIONS
from tests.support.object_store import ObjectStore

if TYPE_CHECKING:
    from standalone.stack import Stack
    from tests.end_to_end.conftest import Run

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("stack", ["local"], indirect=True),
]

DOWN_SECONDS = 30


@contextmanager
def outage(store: ObjectStore, run: Run, task: str, after_seconds: float = 0.0) -> Iterator[None]:
    """Stop the server when a task runs, and start it again half a minute later."""
    run.wait_for(task, "running", "deferred")
    time.sleep(after_seconds)
    store.stop()
    restart = threading.Timer(DOWN_SECONDS, store.start)
    restart.start()
    try:
        yield
    finally:
        restart.join()


@pytest.mark.parametrize("task", ["discover", "validate", "write", "register", "check_quality"])
def test_a_load_goes_on(
    deliver: Callable[[int], list[dict[str, Any]]],
    start_dag: Callable[..., Run],
    catalog: Catalog,
    object_store_server: ObjectStore,
    task: str,
) -> None:
    flights, table = deliver(1), f"outage.{task}"
    catalog.create_database("outage", if_not_exists=True)
    keys = ["origin string", "carrier string", "month int"]
    form = {"table": table, "source": f"{LANDING}/flights-1.csv", "keys": keys, "dry_run": False}
    run = start_dag("add_partitions", form)
    with outage(object_store_server, run, task):
        run.wait()
    assert sum(partition.row_count or 0 for partition in catalog.get_partitions(table)) == len(flights)


@pytest.mark.parametrize("task", ["rewrite", "verify"])
def test_a_rebalance_goes_on(
    start_dag: Callable[..., Run], catalog: Catalog, stack: Stack, object_store_server: ObjectStore, task: str
) -> None:
    table = f"outage.split_{task}"
    catalog.create_database("outage", if_not_exists=True)
    scheme = RangeScheme("v", "int", (), 3, ((1, "10"), (2, "20")))
    catalog.create_table(table, columns=[("id", "bigint"), ("v", "int")], scheme=scheme)
    values = ", ".join(f"({number}, {number})" for number in range(30))
    start_dag("run_statement", {"statement": f"INSERT INTO {table} VALUES {values}"}).wait()
    form = {"table": table, "operation": "split", "partition_ids": [1], "items": ["5", "10"], "dry_run": False}
    run = start_dag("rebalance_partitions", form)
    with outage(object_store_server, run, task, after_seconds=5):
        run.wait()
    assert sorted(row["v"] for row in iceberg_rows(stack, table)) == list(range(30))


@pytest.mark.parametrize("task", ["stage", "verify"])
def test_a_migration_goes_on(
    start_dag: Callable[..., Run], catalog: Catalog, stack: Stack, object_store_server: ObjectStore, task: str
) -> None:
    table = f"outage.orders_{task}"
    catalog.create_database("outage", if_not_exists=True)
    catalog.create_table(table, columns=COLUMNS, partition_keys=KEYS)
    catalog.add_partitions(table, [NewPartition(values) for values in PARTITIONS])
    write_orders(catalog, table)
    run = start_dag("migrate_hive_to_iceberg", {"tables": [table], "dry_run": False})
    with outage(object_store_server, run, task, after_seconds=5):
        run.wait()
    assert sorted(row["id"] for row in iceberg_rows(stack, table)) == [1, 2, 3, 4, 5, 6, 7]
