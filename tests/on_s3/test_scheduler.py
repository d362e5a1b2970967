"""Runs that need Airflow's scheduler, triggerer and users, at the same time.

A person asks for two deletions, and another one answers for one of them; a Spark job is killed while its task is
deferred; the S3 server is down while a load publishes its files, whose events start other DAGs. Partitions that were
added outside of Airflow are noticed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow.dataset
import pytest

from calve_airflow.submitting.job_process import JobProcess
from catalog import Catalog, IndexState, NewPartition
from catalog.files import object_stores
from catalog.operations.records import JobState, OperationState
from standalone.environment import SPARK_POOL
from tests.end_to_end.conftest import PEOPLE, RUN_TIMEOUT_SECONDS, Run
from tests.on_s3.conftest import HIVE_STYLE, user_api
from tests.on_s3.test_outages import COMMIT, REQUESTS
from tests.support.iceberg_tables import COLUMNS, KEYS, PARTITIONS
from tests.support.killing import job_of, leader_of, processes, wait_until, wait_until_running
from tests.support.object_store import ObjectStore, StoreClient
from tests.support.watched_endpoint import WatchedEndpoint
from tests.support.written_files import own_name

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)),
    pytest.mark.parametrize("stack", ["local"], indirect=True),
]

OWN, OTHERS = "deleted.own", "deleted.others"
"""Tables of two deletions that ann asks for: she approves the first one herself, and ben the second one."""

DEFERRING, TASK, JOB, INDEX = "deferring", "build", "build_partition_index", "by_month"
ANNOUNCE = "announce_changes"
DOWN_SECONDS = 5


def start_deferred(catalog: Catalog, start_dag: Callable[..., Run], table: str) -> Run:
    """Start a run that builds an index, stop its job, and wait until the task is deferred."""
    catalog.create_database("deferred", if_not_exists=True)
    catalog.create_table(table, columns=[("id", "int")], partition_keys=[("month", "int")])
    catalog.add_partitions(table, [NewPartition((str(month),)) for month in range(1, 13)])
    run = start_dag(DEFERRING, {"table": table, "index": INDEX, "keys": ["month"]})
    wait_until_running(catalog, run, JOB)
    os.killpg(leader_of(job_of(catalog, run, JOB)), signal.SIGSTOP)
    run.wait_for(TASK, "deferred")
    return run


@dataclass(frozen=True)
class Runs:
    """The runs: the deletions by table, one with a task that was deferred, and a load; and what was seen meanwhile."""

    deletions: dict[str, Run]
    question: tuple[str, str]
    deferred: Run
    pool: dict[str, Any]
    waiting_processes: list[int]
    load: Run
    flights: list[dict[str, Any]]


@pytest.fixture(scope="module")
def one_job_at_a_time(stack: Stack) -> Iterator[None]:
    """Run all Spark jobs in one application, one after the other, instead of in several at once."""
    path = f"/pools/{SPARK_POOL}"
    pool = {name: value for name, value in stack.api.get(path).items() if name in ("slots", "include_deferred")}
    stack.api.patch(path, {"pool": SPARK_POOL, **pool, "slots": 1})
    yield
    stack.api.patch(path, {"pool": SPARK_POOL, **pool})


@pytest.fixture(scope="module")
def runs(
    one_job_at_a_time: None,
    stack: Stack,
    catalog: Catalog,
    start_dag: Callable[..., Run],
    approve: Callable[[Run], None],
    deliver: Callable[[int], list[dict[str, Any]]],
    endpoint: WatchedEndpoint,
    store: StoreClient,
    object_store_server: ObjectStore,
) -> Runs:
    ann = user_api(stack, PEOPLE[0])
    catalog.create_database("deleted")
    deletions = {}
    for table in (OWN, OTHERS):
        catalog.create_table(table, columns=COLUMNS, partition_keys=KEYS)
        catalog.add_partitions(table, [NewPartition(values) for values in PARTITIONS])
        folders = [partition.location.removeprefix("s3://lake/") for partition in catalog.get_partitions(table)]
        store.put({f"{folder}/{own_name(catalog)}": b"rows" for folder in folders})
        deletions[table] = Run(
            ann, "run_statement", ann.trigger("run_statement", {"statement": f"DROP TABLE {table} PURGE"})
        )

    deferred = start_deferred(catalog, start_dag, "deferred.killed")
    instance = next(task["id"] for task in stack.api.task_instances(DEFERRING, deferred.id) if task["task_id"] == TASK)
    waiting = processes(f"airflow worker -- {instance}")
    pool = stack.api.get(f"/pools/{SPARK_POOL}")

    # No further run of it is needed: it would announce what the deletions drop.
    announced = wait_until(lambda: stack.api.dag_runs(ANNOUNCE), "a change has started a run")[0]
    Run(stack.api, ANNOUNCE, announced["dag_run_id"]).wait()
    stack.api.patch(f"/dags/{ANNOUNCE}", {"is_paused": True})

    question = deletions[OTHERS].question()
    deletions[OWN].question()
    os.killpg(leader_of(job_of(catalog, deferred, JOB)), signal.SIGKILL)
    flights = [*deliver(1), *deliver(2)]
    restart = threading.Timer(DOWN_SECONDS, object_store_server.start)

    def interrupt() -> None:
        object_store_server.stop()
        restart.start()

    interrupted: list[threading.Event] = []
    # Files get their final keys when the job commits: Spark completes uploads then, and renames nothing.
    completed = endpoint.before(
        COMMIT["completion of uploads"],
        lambda: interrupted.append(endpoint.before(REQUESTS["publication"], interrupt)),
    )
    load = start_dag(f"add_partitions.{HIVE_STYLE}")
    deletions[OWN].answer("Approve", "failed")
    approve(deletions[OTHERS])
    assert completed.wait(RUN_TIMEOUT_SECONDS)
    assert interrupted[0].wait(RUN_TIMEOUT_SECONDS)
    restart.join()
    return Runs(deletions, question, deferred, pool, waiting, load, flights)


def test_a_deletion_is_carried_out_when_another_person_approves_it(
    runs: Runs, catalog: Catalog, store: StoreClient
) -> None:
    subject, body = runs.question
    assert OTHERS in subject
    assert "**ann** requests" in body
    run = runs.deletions[OTHERS].wait()
    assert run.result("approve")["approved_by"] == "ben"
    assert [table.full_name for table in catalog.list_tables("deleted")] == [OWN]
    assert run.result("run")["rows"] == [[len(PARTITIONS), len(PARTITIONS) * len(b"rows"), 0]]
    assert [key for key in store.objects("warehouse/deleted/others/") if not key.endswith("/")] == []


def test_nobody_approves_their_own_deletion(runs: Runs, catalog: Catalog, store: StoreClient) -> None:
    run = runs.deletions[OWN].wait("failed")
    assert "ann requested and approved this, but another person must approve it" in run.log("approve")
    assert len(list(catalog.get_partitions(OWN))) == len(store.objects("warehouse/deleted/own/")) == len(PARTITIONS)


@pytest.mark.usefixtures("runs")
def test_partitions_added_outside_of_airflow_start_the_dag_that_announces_them(stack: Stack) -> None:
    run = stack.api.dag_runs(ANNOUNCE)[-1]
    assert (run["run_type"], run["state"]) == ("asset_triggered", "success")
    states = {task["task_id"]: task["state"] for task in stack.api.task_instances(ANNOUNCE, run["dag_run_id"])}
    assert (states["claim"], states["announce"], states["finish"]) == ("success", "success", "success")


def test_a_deferred_task_holds_no_worker(runs: Runs) -> None:
    assert (runs.pool["running_slots"], runs.pool["deferred_slots"]) == (0, 1)
    assert runs.waiting_processes == []


def test_a_job_that_dies_while_its_task_is_deferred_is_submitted_again_in_the_same_try(
    runs: Runs, catalog: Catalog
) -> None:
    run = runs.deferred.wait()
    job = job_of(catalog, run, JOB)
    assert job is not None
    assert (job.attempt, job.state) == (2, JobState.SUCCEEDED)
    assert run.tries(TASK) == 1
    assert "submitting another (1 of 2)" in run.log(TASK)
    assert catalog.get_partition_index("deferred.killed", INDEX).state is IndexState.ACTIVE


def test_a_load_ends_as_if_the_server_had_never_been_down(runs: Runs, catalog: Catalog, store: StoreClient) -> None:
    run = runs.load.wait()
    expected = Counter(tuple(row[key] for key in ("origin", "carrier", "year", "month")) for row in runs.flights)
    assert {partition.values: partition.row_count for partition in catalog.get_partitions(HIVE_STYLE)} == expected
    assert catalog.get_partition_index(HIVE_STYLE, "by_month").state is IndexState.ACTIVE
    assert catalog.operations.get(run.operation_id).state is OperationState.CLEANED
    # Readers that only list the table's folder see the rows when vacuum has settled the partitions.
    for _ in range(2):
        assert catalog.vacuum(HIVE_STYLE, grace=timedelta(0)).problems == ()
    location = catalog.get_table(HIVE_STYLE).location.removeprefix("s3://")
    files = object_stores.s3_file_system("lake")
    data = pyarrow.dataset.dataset(location, filesystem=files, format="parquet", partitioning="hive").to_table()
    for column in ("tailnum", "flight"):
        read = Counter(str(value) for value in data.column(column).to_pylist() if value is not None)
        assert read == Counter(row[column] for row in runs.flights if row[column])
    left = [key for key in store.objects(f"{location.removeprefix('lake/')}/_calve") if not key.endswith("/")]
    assert left == []


def test_quality_is_checked_and_its_page_is_on_s3(runs: Runs, store: StoreClient) -> None:
    report = runs.load.wait().result("check_quality")
    assert report["checked"] == report["passed"] > 0
    bucket, _, key = report["docs_path"].removeprefix("s3://").partition("/")
    assert b"<style>" in store.client.get_object(Bucket=bucket, Key=key)["Body"].read()


def test_other_dags_run_for_each_new_partition_and_for_the_load(runs: Runs, catalog: Catalog, stack: Stack) -> None:
    table = catalog.get_table(HIVE_STYLE)
    runs.load.wait()
    expected = sorted(partition.name(table) for partition in catalog.get_partitions(HIVE_STYLE))
    wait_until(lambda: len(stack.api.dag_runs("consumer")) >= len(expected), "each partition has started a run")
    assert sorted(run["partition_key"] for run in stack.api.dag_runs("consumer")) == expected
    (of_load,) = wait_until(lambda: stack.api.dag_runs("loads"), "the load has started a run")
    assert of_load["run_type"] == "asset_triggered"
    (event,) = (event for event in stack.api.asset_events() if event["name"] == f"{HIVE_STYLE} (loaded)")
    report = runs.load.result("register")
    assert (event["extra"]["rows"], event["extra"]["partitions_added"]) == (report["row_count"], len(expected))


@pytest.mark.long
def test_a_user_who_fails_a_deferred_task_cancels_its_job(
    catalog: Catalog, stack: Stack, start_dag: Callable[..., Run]
) -> None:
    run = start_deferred(catalog, start_dag, "deferred.cancelled")
    path = f"/dags/{run.dag_id}/dagRuns/{quote(run.id, safe='')}/taskInstances/{TASK}"
    stack.api.patch(path, {"new_state": "failed"})
    run.wait("failed")

    def is_cancelled() -> bool:
        job = job_of(catalog, run, JOB)
        return job is not None and (job.state, job.error_class) == (JobState.FAILED, "CANCELLED")

    wait_until(is_cancelled, "the job is cancelled")
    job = job_of(catalog, run, JOB)
    assert job is not None
    wait_until(lambda: not JobProcess(Path(str(job.log_path))).is_alive(), "the job's process has ended")
