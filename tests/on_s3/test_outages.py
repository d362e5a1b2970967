"""The S3 server is down for half a minute while a run is at work: the run ends as if nothing had happened.

A phase is a task that runs, or the request before which the server is stopped: Hadoop's committer uploads the parts of
files while tasks write them, and completes the uploads of all files when the job commits. Files of Hive-style tables
are then published by copies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, NewPartition
from catalog.schemes.ranges import RangeScheme
from tests.end_to_end.conftest import RUN_TIMEOUT_SECONDS
from tests.on_s3.conftest import LANDING, iceberg_rows, write_orders
from tests.support.iceberg_tables import COLUMNS, KEYS, PARTITIONS
from tests.support.object_store import ObjectStore
from tests.support.watched_endpoint import WatchedEndpoint

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
_FILE = r"\S*/[^/\s]+-\d{5}-[^/\s]+"
COMMIT = {
    "upload of parts": rf"PUT {_FILE}[?&]partNumber=",
    "completion of uploads": rf"POST {_FILE}[?&]uploadId=",
}
REQUESTS = {**COMMIT, "publication": r"GET \S*/_calve_staging/\S+/files/\S+\.parquet[ ?]"}


@pytest.fixture
def outage(object_store_server: ObjectStore, endpoint: WatchedEndpoint) -> Callable[..., AbstractContextManager[None]]:
    """A function that stops the server in a phase of a run, and starts it again half a minute later."""
    server = object_store_server

    @contextmanager
    def stop(run: Run, phase: str, after_seconds: float = 0.0) -> Iterator[None]:
        if phase in REQUESTS:
            assert endpoint.before(REQUESTS[phase], server.stop).wait(RUN_TIMEOUT_SECONDS)
        else:
            run.wait_for(phase, "running", "deferred")
            time.sleep(after_seconds)
            server.stop()
        restart = threading.Timer(DOWN_SECONDS, server.start)
        restart.start()
        try:
            yield
        finally:
            restart.join()

    return stop


@pytest.mark.parametrize("phase", ["discover", "validate", "write", *REQUESTS, "register", "check_quality"])
def test_a_load_goes_on(
    deliver: Callable[[int], list[dict[str, Any]]],
    start_dag: Callable[..., Run],
    catalog: Catalog,
    outage: Callable[..., AbstractContextManager[None]],
    phase: str,
) -> None:
    flights, table = deliver(1), f"outage.{phase.replace(' ', '_')}"
    catalog.create_database("outage", if_not_exists=True)
    keys = ["origin string", "carrier string", "month int"]
    form = {"table": table, "source": f"{LANDING}/flights-1.csv", "keys": keys, "dry_run": False}
    run = start_dag("add_partitions", form)
    with outage(run, phase):
        run.wait()
    assert sum(partition.row_count or 0 for partition in catalog.get_partitions(table)) == len(flights)


@pytest.mark.parametrize("phase", ["rewrite", *COMMIT, "verify"])
def test_a_rebalance_goes_on(
    start_dag: Callable[..., Run],
    catalog: Catalog,
    stack: Stack,
    outage: Callable[..., AbstractContextManager[None]],
    phase: str,
) -> None:
    table = f"outage.split_{phase.replace(' ', '_')}"
    catalog.create_database("outage", if_not_exists=True)
    scheme = RangeScheme("v", "int", (), 3, ((1, "10"), (2, "20")))
    catalog.create_table(table, columns=[("id", "bigint"), ("v", "int")], scheme=scheme)
    values = ", ".join(f"({number}, {number})" for number in range(30))
    start_dag("run_statement", {"statement": f"INSERT INTO {table} VALUES {values}"}).wait()
    form = {"table": table, "operation": "split", "partition_ids": [1], "items": ["5", "10"], "dry_run": False}
    run = start_dag("rebalance_partitions", form)
    with outage(run, phase, after_seconds=5):
        run.wait()
    assert sorted(row["v"] for row in iceberg_rows(stack, table)) == list(range(30))


@pytest.mark.parametrize("phase", ["stage", "verify"])
def test_a_migration_goes_on(
    start_dag: Callable[..., Run],
    catalog: Catalog,
    stack: Stack,
    outage: Callable[..., AbstractContextManager[None]],
    phase: str,
) -> None:
    table = f"outage.orders_{phase}"
    catalog.create_database("outage", if_not_exists=True)
    catalog.create_table(table, columns=COLUMNS, partition_keys=KEYS)
    catalog.add_partitions(table, [NewPartition(values) for values in PARTITIONS])
    write_orders(catalog, table)
    run = start_dag("migrate_hive_to_iceberg", {"tables": [table], "dry_run": False})
    with outage(run, phase, after_seconds=5):
        run.wait()
    assert sorted(row["id"] for row in iceberg_rows(stack, table)) == [1, 2, 3, 4, 5, 6, 7]
