"""Builders and deleters that were stopped between transactions do not affect an index that was created meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.indexes import building
from tests.support import stopped_processes
from tests.support.index_items import assert_every_partition_has_its_item
from tests.support.processes import context
from tests.support.stopped_processes import BUILD_ENDED, Moment

TABLE = "demo.t"
PARTITIONS = 300
TIMEOUT_SECONDS = 240


@pytest.fixture
def url(catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog with a table whose builds have three ranges, and an index on `n`."""
    monkeypatch.setattr(building, "RANGE_SIZE", PARTITIONS // 3)
    catalog.create_table(TABLE, columns=[], partition_keys=[("s", "string"), ("n", "int")])
    catalog.add_partitions(TABLE, [NewPartition([f"s{n % 7}", str(n)]) for n in range(PARTITIONS)])
    catalog.create_partition_index(TABLE, "old", ["n"])
    return catalog_url


def start(work: Callable[..., None], url: str, moments: Sequence[Moment]) -> BaseProcess:
    """Start a process, and wait until it has stopped itself."""
    process = context.Process(target=work, args=(url, TABLE, "old", moments))
    process.start()
    wait_until_stopped(process)
    return process


def wait_until_stopped(process: BaseProcess) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while state_of(process) != "T":
        assert process.is_alive(), f"the process ended with {process.exitcode}"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state_of(process: BaseProcess) -> str:
    """Return the letter of a process's state; T is stopped."""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def wake(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)


def end(process: BaseProcess, *, is_killed: bool) -> None:
    """Kill a stopped process, or continue it and wait for its end."""
    if is_killed:
        process.kill()
    else:
        wake(process)
    process.join(TIMEOUT_SECONDS)


def replace_index(catalog: Catalog) -> None:
    """Delete the index, if it is not being deleted, and create another one."""
    if catalog.get_partition_index(TABLE, "old").state is not IndexState.DELETING:
        catalog.delete_partition_index(TABLE, "old")
    catalog.create_partition_index(TABLE, "new", ["s"])


def assert_new_index_is_right(catalog: Catalog) -> None:
    assert catalog.build_partition_index(TABLE, "new").state is IndexState.ACTIVE
    assert [index.name for index in catalog.get_partition_indexes(TABLE)] == ["new"]
    assert_every_partition_has_its_item(catalog, TABLE)
    for number in range(7):
        expected = len(range(number, PARTITIONS, 7))
        assert len(list(catalog.get_partitions(TABLE, f"s = 's{number}'"))) == expected
    assert len(list(catalog.get_partitions(TABLE, "n between 100 and 199"))) == 100


@pytest.mark.parametrize("is_killed", [False, True], ids=["continues", "is killed"])
@pytest.mark.parametrize("moment", [Moment.BETWEEN_RANGES, Moment.BEFORE_COUNT, Moment.BEFORE_END])
def test_a_stopped_builder_leaves_another_index_alone(
    catalog: Catalog, url: str, moment: Moment, is_killed: bool
) -> None:
    builder = start(stopped_processes.build, url, [moment])
    replace_index(catalog)
    end(builder, is_killed=is_killed)
    assert catalog.get_partition_index(TABLE, "new").state is IndexState.CREATING
    assert_new_index_is_right(catalog)
    assert builder.exitcode == (-signal.SIGKILL if is_killed else BUILD_ENDED)


@pytest.mark.parametrize("is_killed", [False, True], ids=["continues", "is killed"])
@pytest.mark.parametrize("is_built", [False, True], ids=["CREATING", "ACTIVE"])
@pytest.mark.parametrize("moment", [Moment.BEFORE_CLEARING, Moment.BEFORE_ITEMS])
def test_a_stopped_deleter_leaves_another_index_alone(
    catalog: Catalog, url: str, moment: Moment, is_built: bool, is_killed: bool
) -> None:
    catalog.build_partition_index(TABLE, "old")
    deleter = start(stopped_processes.delete, url, [moment, Moment.AFTER_ITEMS])
    replace_index(catalog)
    if is_built:
        catalog.build_partition_index(TABLE, "new")
    wake(deleter)
    wait_until_stopped(deleter)
    end(deleter, is_killed=is_killed)
    assert_new_index_is_right(catalog)
    assert deleter.exitcode == (-signal.SIGKILL if is_killed else 0)
