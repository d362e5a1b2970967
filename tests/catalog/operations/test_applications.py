"""Spark applications that accept jobs: no job goes to two of them, or to one that ends; on each database."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from catalog import Catalog
from catalog.operations.applications import LONGEST_MS, SparkApplications
from catalog.operations.records import JobKey, SparkApplication
from catalog.storage.schema import SparkApplicationRow

pytestmark = pytest.mark.smoke

HOST, KEY, LOG = "worker", "key", "/jobs/load/validate/log"


def job(number: int) -> JobKey:
    return JobKey(f"load/{number}", "write_partitions", 1, "write_partitions")


@pytest.fixture
def applications(catalog: Catalog) -> SparkApplications:
    return catalog.operations.applications


def at_once(functions: Sequence[Callable[[], bool]]) -> list[bool]:
    """Call functions in threads, all at the same time."""
    barrier = threading.Barrier(len(functions))

    def call(function: Callable[[], bool]) -> bool:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(call, functions))


def test_an_application_begins_with_its_first_job(applications: SparkApplications) -> None:
    applications.open("a", KEY, HOST, LOG, job(1))
    assert applications.find("a") == SparkApplication("a", LOG, job(1))
    assert list(applications.of_key(KEY, HOST)) == [SparkApplication("a", LOG, job(1))]
    assert not applications.hand_over("a", job(2))
    assert not applications.close_if_idle("a")


def test_an_idle_application_takes_a_job(applications: SparkApplications) -> None:
    applications.open("a", KEY, HOST, LOG, job(1))
    applications.become_idle("a")
    assert list(applications.of_key(KEY, HOST)) == [SparkApplication("a", LOG, None)]
    assert applications.hand_over("a", job(2))
    assert applications.find("a") == SparkApplication("a", LOG, job(2))


def test_applications_of_another_key_or_host_are_not_found(applications: SparkApplications) -> None:
    applications.open("a", KEY, HOST, LOG, job(1))
    assert list(applications.of_key("other", HOST)) == []
    assert list(applications.of_key(KEY, "other")) == []


def test_a_closed_application_takes_no_job(applications: SparkApplications) -> None:
    applications.open("a", KEY, HOST, LOG, job(1))
    applications.close("a")
    assert applications.find("a") is None
    assert not applications.hand_over("a", job(2))
    applications.become_idle("a")
    assert applications.find("a") is None


@pytest.mark.parametrize("round_number", range(5))
def test_one_of_many_jobs_gets_an_idle_application(applications: SparkApplications, round_number: int) -> None:
    applications.open("a", KEY, HOST, LOG, job(0))
    applications.become_idle("a")
    jobs = [job(number) for number in range(1, 7)]
    taken = at_once([lambda key=key: applications.hand_over("a", key) for key in jobs])  # type: ignore[misc]
    assert taken.count(True) == 1
    assert applications.find("a") == SparkApplication("a", LOG, jobs[taken.index(True)])


@pytest.mark.parametrize("round_number", range(10))
def test_a_job_goes_to_no_application_that_ends(applications: SparkApplications, round_number: int) -> None:
    applications.open("a", KEY, HOST, LOG, job(0))
    applications.become_idle("a")
    functions = [lambda: applications.hand_over("a", job(1)), lambda: applications.close_if_idle("a")]
    random.Random(round_number).shuffle(functions)
    assert sorted(at_once(functions)) == [False, True]
    left = applications.find("a")
    assert left is None or left.job == job(1)


def test_rows_of_killed_applications_are_removed(catalog: Catalog, applications: SparkApplications) -> None:
    applications.open("old", KEY, HOST, LOG, job(1))
    applications.open("young", KEY, HOST, LOG, job(2))
    row = SparkApplicationRow
    for name, age_ms in (("old", 2 * LONGEST_MS + 60_000), ("young", LONGEST_MS)):
        with catalog.storage.write() as connection:
            connection.execute(update(row).where(row.id == name).values(started_at_ms=row.started_at_ms - age_ms))
    applications.open("new", KEY, HOST, LOG, job(3))
    assert [application.id for application in applications.of_key(KEY, HOST)] == ["new", "young"]


@given(st.lists(st.tuples(st.sampled_from(["hand over", "idle", "close if idle", "close"]), st.integers(1, 9))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_application_has_one_job_or_none(applications: SparkApplications, steps: list[tuple[str, int]]) -> None:
    """The row is as a model of three states says: it has a job, is idle, or accepts no jobs any longer."""
    applications.close("a")
    applications.open("a", KEY, HOST, LOG, job(0))
    is_open, current = True, job(0)
    state: JobKey | None = current
    for step, number in steps:
        if step == "hand over":
            is_taken = applications.hand_over("a", job(number))
            assert is_taken == (is_open and state is None)
            state = job(number) if is_taken else state
        elif step == "idle":
            applications.become_idle("a")
            state = None
        elif step == "close if idle":
            is_open = is_open and state is not None
            assert applications.close_if_idle("a") == (not is_open)
        else:
            applications.close("a")
            is_open = False
        assert applications.find("a") == (SparkApplication("a", LOG, state) if is_open else None)
