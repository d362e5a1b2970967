"""A task that follows a Spark job in the triggerer holds no worker slot, and recovers from the job's death."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from calve_airflow.submitting.job_process import JobProcess
from catalog import Catalog, IndexState, NewPartition
from catalog.operations.records import JobState
from standalone.environment import SPARK_POOL
from tests.support.killing import job_of, jvm_of, processes, wait_until, wait_until_running

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

DAG, TASK, JOB = "deferring", "build", "build_partition_index"


def start_deferred(catalog: Catalog, start_dag: Callable[..., Any], table: str) -> Any:
    """Start a run that builds an index, stop its job, and wait until the task is deferred."""
    catalog.create_database("deferred", if_not_exists=True)
    catalog.create_table(table, columns=[("id", "int")], partition_keys=[("month", "int")])
    catalog.add_partitions(table, [NewPartition((str(month),)) for month in range(1, 13)])
    run = start_dag(DAG, {"table": table, "index": "by_month", "keys": ["month"]})
    wait_until_running(catalog, run, JOB)
    os.killpg(jvm_of(run.operation_id, JOB), signal.SIGSTOP)
    run.wait_for(TASK, "deferred")
    return run


def test_a_job_that_dies_while_its_task_is_deferred_is_submitted_again_in_the_same_try(
    catalog: Catalog, stack: Stack, start_dag: Callable[..., Any]
) -> None:
    table = "deferred.killed"
    run = start_deferred(catalog, start_dag, table)
    pool = stack.api.get(f"/pools/{SPARK_POOL}")
    assert (pool["running_slots"], pool["deferred_slots"]) == (0, 1)
    instance = next(task["id"] for task in stack.api.task_instances(run.dag_id, run.id) if task["task_id"] == TASK)
    assert not processes(f"airflow worker -- {instance}")
    os.killpg(jvm_of(run.operation_id, JOB), signal.SIGKILL)
    run.wait()
    job = job_of(catalog, run, JOB)
    assert job is not None
    assert (job.attempt, job.state) == (2, JobState.SUCCEEDED)
    assert run.tries(TASK) == 1
    assert "submitting another (1 of 2)" in run.log(TASK)
    assert catalog.get_partition_index(table, "by_month").state is IndexState.ACTIVE


def test_a_user_who_fails_a_deferred_task_cancels_its_job(
    catalog: Catalog, stack: Stack, start_dag: Callable[..., Any]
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
