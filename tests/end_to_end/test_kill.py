"""Runs recover from killed tasks, jobs and publications.

One load of a table that is not in the list is interrupted at three points; each test checks the result.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from catalog import Catalog, IndexState, NewPartition
from catalog.operations.records import JobRun, JobState, OperationKind, OperationState
from standalone.environment import REPOSITORY
from tests.support.killing import (
    PATIENCE_SECONDS,
    job_of,
    kill_task,
    leader_of,
    wait_until,
    wait_until_running,
)

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

LOAD, TABLE, KEYS = "add_partitions", "killed.flights", ("carrier", "month")
VALIDATE, WRITE, REGISTER = "validate_source", "write_partitions", "register"


@contextmanager
def commit_held_up(catalog: Catalog) -> Iterator[None]:
    """Block a publication before its commit. On SQLite this is not possible, and it may continue."""
    if catalog.storage.is_postgresql:
        with catalog.storage.write() as connection:
            connection.execute(text("LOCK TABLE calve_source_file IN ACCESS EXCLUSIVE MODE"))
            yield
    else:
        yield


@dataclass
class Disturbed:
    """A load, and the states after its processes were killed."""

    run: Any
    jobs: dict[str, JobRun | None] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def source(months: dict[int, Any], deliver: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deliver(tmp_path_factory.mktemp("killed") / "flights.csv", [*months[1], *months[2]])


@pytest.fixture(scope="module")
def disturbed(
    stack: Stack, catalog: Catalog, source: Path, start_dag: Callable[..., Any], state_of: Callable[..., Any]
) -> Disturbed:
    keys = ["carrier string", "month int"]
    run = start_dag(LOAD, {"table": TABLE, "source": str(source), "keys": keys, "dry_run": False})
    load = Disturbed(run)
    location = Path(stack.warehouse) / "killed" / "flights"

    # The task is killed while its job runs. The job is stopped until the next try has joined it.
    wait_until_running(catalog, run, VALIDATE)
    job = leader_of(job_of(catalog, run, VALIDATE))
    os.kill(job, signal.SIGSTOP)
    try:
        kill_task(run, stack, "validate")
        run.wait_for("validate", "running", try_number=2)
        wait_until(lambda: "Joining attempt 1" in run.log("validate", 2), "the second try has joined the job")
    finally:
        os.kill(job, signal.SIGCONT)

    # The job is killed while it writes files.
    wait_until(lambda: any(location.glob("_calve_staging/**/*.parquet")), "data files are being written", 0.005)
    os.killpg(leader_of(job_of(catalog, run, WRITE)), signal.SIGKILL)
    load.jobs[WRITE], load.tables[WRITE] = job_of(catalog, run, WRITE), state_of(TABLE)

    # The publishing task is killed between the moves and the commit.
    with commit_held_up(catalog):
        wait_until(lambda: any(location.glob("carrier=*/month=*")), "folders move to their places", 0.005)
        kill_task(run, stack, "register")
        load.tables[REGISTER] = state_of(TABLE)
    run.wait()
    return load


def test_table_is_as_if_nothing_had_happened(
    disturbed: Disturbed,
    source: Path,
    state_of: Callable[..., Any],
    read_source: Callable[..., Any],
    read_table: Callable[..., Any],
) -> None:
    delivered = read_source(source, KEYS)
    table = state_of(TABLE)
    assert table.visible == {name: digest[0] for name, digest in delivered.items()}
    assert len(delivered) == 8
    assert read_table(TABLE) == delivered


def test_nothing_is_left_behind(disturbed: Disturbed, catalog: Catalog, state_of: Callable[..., Any]) -> None:
    assert state_of(TABLE).leftovers == set()
    location = Path(catalog.get_table(TABLE).location)
    assert {path.name.partition("=")[0] for path in location.iterdir()} == {"carrier"}
    assert catalog.operations.get(disturbed.run.operation_id).state is OperationState.CLEANED


def test_retried_task_joined_the_job_that_still_ran(disturbed: Disturbed, catalog: Catalog, stack: Stack) -> None:
    job = job_of(catalog, disturbed.run, VALIDATE)
    assert job is not None
    assert (job.attempt, job.state) == (1, JobState.SUCCEEDED)
    assert job.log_path is not None
    assert len(list(Path(job.log_path).parent.parent.glob(f"{VALIDATE}-*"))) == 1
    assert disturbed.run.tries("validate") == 2


def test_killed_job_was_submitted_again(disturbed: Disturbed, catalog: Catalog) -> None:
    killed, last = disturbed.jobs[WRITE], job_of(catalog, disturbed.run, WRITE)
    assert killed is not None
    assert last is not None
    assert (killed.attempt, killed.state) == (1, JobState.RUNNING)
    assert (last.attempt, last.state) == (2, JobState.SUCCEEDED)
    assert "is lost" in disturbed.run.log("write", 1)
    assert disturbed.run.tries("write") == 1


@pytest.mark.parametrize("stack", ["postgresql"], indirect=True)
def test_publish_was_done_again(disturbed: Disturbed, catalog: Catalog) -> None:
    job = job_of(catalog, disturbed.run, REGISTER)
    assert job is not None
    assert (job.attempt, job.state) == (2, JobState.SUCCEEDED)
    assert disturbed.run.tries("register") == 2
    assert disturbed.tables[REGISTER].visible == {}


def test_no_partition_was_visible_without_its_files(disturbed: Disturbed) -> None:
    assert disturbed.tables[WRITE].visible == {}
    assert disturbed.tables[WRITE].files
    folders = {file.rpartition("/")[0] for file in disturbed.tables[REGISTER].files}
    assert disturbed.tables[REGISTER].visible.keys() <= folders


def test_cancelled_job_cannot_commit(stack: Stack, catalog: Catalog, items_of: Callable[..., Any]) -> None:
    """The job is stopped while another attempt takes over, and then continued."""
    table, index, operation_id, step = "killed.events", "by_month", "cancelled/1", "build_partition_index"
    catalog.create_database("killed", if_not_exists=True)
    catalog.create_table(table, columns=[("id", "int")], partition_keys=[("month", "int")])
    catalog.add_partitions(table, [NewPartition([str(month)]) for month in range(1, 13)])
    catalog.create_partition_index(table, index, ["month"])
    catalog.operations.begin(operation_id, OperationKind.BUILD_INDEX, table)
    request = {"operation_id": operation_id, "step": step, "table": table, "index": index}
    attempt = catalog.operations.start_job(operation_id, step, request=request)
    script = REPOSITORY / "spark_jobs" / f"{step}.py"
    command = [f"{stack.environment['SPARK_HOME']}/bin/spark-submit", "--master", "local[1]", str(script)]
    command += [operation_id, step, str(attempt)]
    job = subprocess.Popen(command, env=stack.environment, cwd=stack.home, start_new_session=True)
    try:
        wait_until(lambda: job_state(catalog, operation_id, step) is JobState.RUNNING, "the job runs")
        os.kill(job.pid, signal.SIGSTOP)
        assert catalog.operations.start_job(operation_id, step) == attempt + 1
        os.kill(job.pid, signal.SIGCONT)
        assert job.wait(PATIENCE_SECONDS) == 1
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    latest = catalog.operations.get_job(operation_id, step)
    assert latest is not None
    assert (latest.attempt, latest.state, latest.result) == (attempt + 1, JobState.SUBMITTED, {})
    assert catalog.get_partition_index(table, index).state is IndexState.CREATING
    assert not items_of(table, index)


def job_state(catalog: Catalog, operation_id: str, step: str) -> JobState | None:
    job = catalog.operations.get_job(operation_id, step)
    return None if job is None else job.state
