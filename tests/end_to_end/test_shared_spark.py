"""The steps of loads share a Spark application, which is killed between two steps and within one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.operations.records import JobRun, JobState
from tests.support.killing import job_of, leader_of, wait_until

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

LOAD, KEYS = "add_partitions", ("carrier", "month")
VALIDATE, WRITE, CHECK = "validate_source", "write_partitions", "check_quality"
STEPS = (VALIDATE, WRITE, CHECK)


@pytest.fixture(scope="module")
def source(months: dict[int, Any], deliver: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deliver(tmp_path_factory.mktemp("shared") / "flights.csv", [*months[1], *months[2]])


@pytest.fixture(scope="module")
def start(start_dag: Callable[..., Any], source: Path) -> Callable[[str], Any]:
    """A function that starts a load of a table."""
    form = {"source": str(source), "keys": [f"{KEYS[0]} string", f"{KEYS[1]} int"], "dry_run": False}
    return lambda table: start_dag(LOAD, {**form, "table": table})


def leaders(catalog: Catalog, run: Any) -> Iterator[int]:
    """Yield the process of each step, in their order, as soon as it runs."""

    def running(step: str) -> JobRun | None:
        job = job_of(catalog, run, step)
        return job if job is not None and job.state is JobState.RUNNING else None

    for step in STEPS:
        yield leader_of(wait_until(lambda step=step: running(step), f"{step} runs", 0.01))


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text()


def folders_with_application(job: JobRun | None) -> list[str]:
    """Return the steps of a load that started Spark."""
    assert job is not None
    folder = Path(str(job.log_path)).parent.parent
    return sorted(path.parent.name.rpartition("-")[0] for path in folder.glob("*/application"))


def assert_loaded(run: Any, table: str, source: Path, state_of: Any, read_source: Any, read_table: Any) -> None:
    delivered = read_source(source, KEYS)
    assert state_of(table).visible == {name: digest[0] for name, digest in delivered.items()}
    assert state_of(table).leftovers == set()
    assert read_table(table) == delivered
    assert run.result(CHECK)["checked"] == len(delivered)


def test_the_steps_of_a_load_start_spark_once(
    catalog: Catalog,
    start: Callable[[str], Any],
    source: Path,
    state_of: Callable[..., Any],
    read_source: Callable[..., Any],
    read_table: Callable[..., Any],
) -> None:
    run = start("shared.once")
    (leader,) = set(leaders(catalog, run))
    run.wait()
    assert_loaded(run, "shared.once", source, state_of, read_source, read_table)
    assert folders_with_application(job_of(catalog, run, VALIDATE)) == [VALIDATE]
    lines = {VALIDATE: "files would add 8 partitions", WRITE: "staged", CHECK: "8 of 8 partitions passed"}
    for task, step in (("validate", VALIDATE), ("write", WRITE), ("check_quality", CHECK)):
        job = job_of(catalog, run, step)
        assert job is not None
        for owner, line in lines.items():
            assert (line in run.log(task)) == (line in Path(str(job.log_path)).read_text()) == (owner == step)
    # It does not wait for further jobs, because the load has ended.
    wait_until(lambda: has_ended(leader), "the application has ended")


def test_a_load_ends_as_if_nothing_had_happened_when_its_application_is_killed(
    catalog: Catalog,
    start: Callable[[str], Any],
    source: Path,
    state_of: Callable[..., Any],
    read_source: Callable[..., Any],
    read_table: Callable[..., Any],
) -> None:
    run = start("shared.killed")
    first = next(leaders(catalog, run))
    # Between two steps: the first one has succeeded, and the task of the second one has not begun.
    validated = wait_until(
        lambda: (job := job_of(catalog, run, VALIDATE)) and job.state is JobState.SUCCEEDED, "validate has ended", 0.01
    )
    assert validated
    os.killpg(first, signal.SIGKILL)
    # Within a step.
    location = Path(wait_until(lambda: state_of("shared.killed") and catalog.get_table("shared.killed").location, ""))
    wait_until(lambda: any(location.glob("_calve_staging/**/*.parquet")), "data files are being written", 0.005)
    second = leader_of(job_of(catalog, run, WRITE))
    assert second != first
    os.killpg(second, signal.SIGKILL)
    run.wait()
    assert_loaded(run, "shared.killed", source, state_of, read_source, read_table)
    attempts = {step: getattr(job_of(catalog, run, step), "attempt", None) for step in STEPS}
    assert attempts == {VALIDATE: 1, WRITE: 2, CHECK: 1}
    assert run.tries("write") == 1
    assert "is lost" in run.log("write")


def test_a_cleared_step_runs_again_by_itself(
    stack: Stack, catalog: Catalog, start: Callable[[str], Any], state_of: Callable[..., Any]
) -> None:
    run = start("shared.cleared").wait()
    before = state_of("shared.cleared").visible
    with catalog.storage.write() as connection:
        # As after a result that is no longer valid.
        connection.exec_driver_sql(
            f"UPDATE calve_job SET state = 'FAILED', error_class = 'REPLACED', error_message = 'again' "
            f"WHERE step = '{CHECK}' AND operation_number = {catalog.operations.get(run.operation_id).number}"
        )
    tasks = {"dag_run_id": run.id, "task_ids": [CHECK], "dry_run": False, "only_failed": False}
    stack.api.post(f"/dags/{LOAD}/clearTaskInstances", tasks)
    wait_until(lambda: (job := job_of(catalog, run, CHECK)) and job.attempt == 2, "the step runs again")
    run.wait()
    job = job_of(catalog, run, CHECK)
    assert job is not None
    assert (job.state, job.result["checked"]) == (JobState.SUCCEEDED, len(before))
    assert folders_with_application(job) == [CHECK, VALIDATE]
