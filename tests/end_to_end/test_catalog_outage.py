"""The catalog's own PostgreSQL server is down for a while when five jobs run, each in a run of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.operations.records import JobState
from standalone.postgres import PostgresServer, free_port
from tests.end_to_end.conftest import Run
from tests.support.killing import job_of, jvm_of, wait_until_running

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

DAG, JOB, TASK, INDEX = "build_partition_index", "build_partition_index", "build", "by_month"
JOBS, DOWN_SECONDS, MONTHS = 5, 10, 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The catalog's server, which is not that of Airflow."""
    with PostgresServer(tmp_path_factory.mktemp("server"), free_port(), durable=False) as running:
        running.create_database("lake")
        yield running


@pytest.fixture(scope="module")
def stack(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack, with as many slots for Spark's jobs as there are jobs."""
    from standalone.stack import Stack

    home = tmp_path_factory.mktemp("outage")
    environment = {
        "CALVE_SPARK_POOL": "default_pool",
        "CALVE_SPARK_SESSION": "load",
        "AIRFLOW__CORE__PARALLELISM": str(2 * JOBS),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    }
    with Stack(home, catalog_url=server.url("lake"), env=environment, durable=False) as running:
        yield running


def test_five_jobs_end_right_in_their_first_try(stack: Stack, server: PostgresServer) -> None:
    tables = [f"outage.t{number}" for number in range(JOBS)]
    with Catalog.open(server.url("lake"), warehouse=stack.warehouse) as catalog:
        catalog.create_database("outage")
        runs = {}
        for table in tables:
            catalog.create_table(table, columns=[("id", "int")], partition_keys=[("month", "int")])
            catalog.add_partitions(table, [NewPartition((str(month),)) for month in range(MONTHS)])
            form = {"table": table, "index": INDEX, "keys": ["month"]}
            runs[table] = Run(stack.api, DAG, stack.api.trigger(DAG, form))
        leaders = []
        for run in runs.values():
            wait_until_running(catalog, run, JOB)
            leaders.append(jvm_of(run.operation_id, JOB))
            os.killpg(leaders[-1], signal.SIGSTOP)
    server.stop()
    for leader in leaders:
        os.killpg(leader, signal.SIGCONT)
    time.sleep(DOWN_SECONDS)
    server.start()
    with Catalog.open(server.url("lake"), warehouse=stack.warehouse) as catalog:
        for table, run in runs.items():
            run.wait()
            job = job_of(catalog, run, JOB)
            assert job is not None
            # Jobs that the outage interrupts are submitted again, which costs their tasks no try.
            assert (job.state, run.tries(TASK)) == (JobState.SUCCEEDED, 1)
            assert catalog.get_partition_index(table, INDEX).state is IndexState.ACTIVE
            assert catalog.verify_partition_index(table, INDEX).is_exact
