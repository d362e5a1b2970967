"""Functions of engines, and their locks, which several processes take at once."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import pairwise, product
from multiprocessing import get_context
from typing import Any

import pytest
from sqlalchemy import update

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.errors import (
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    FunctionAlreadyExistsError,
    FunctionNotFoundError,
    InvalidRequestError,
    MetastoreLockNotFoundError,
)
from catalog.metastores.types import HiveFunction
from catalog.operations.metastore_locks import LockComponent, LockState, LockType, MetastoreLock, MetastoreLocks
from catalog.storage.schema import MetastoreLockRow

MASK = HiveFunction(
    database="demo",
    name="mask",
    class_name="com.example.Mask",
    owner="ann",
    owner_type="USER",
    kind="JAVA",
    resources=(("JAR", "s3://lake/mask.jar"), ("FILE", "/x")),
    created_at=17,
    extra={"glue": {"a": None}},
)


# --- functions --------------------------------------------------------------------------------------------------------


def test_a_function_is_what_went_in(entries: Entries) -> None:
    assert entries.create_function(MASK) == MASK
    with pytest.raises(FunctionAlreadyExistsError):
        entries.create_function(replace(MASK, name="MASK"))
    with pytest.raises(DatabaseNotFoundError):
        entries.create_function(replace(MASK, database="missing"))
    entries.create_function(HiveFunction(database="default", name="other"))
    assert entries.functions("demo") == [MASK]
    assert [function.name for function in entries.functions()] == ["other", "mask"]
    changed = replace(MASK, database="default", name="veil", owner=None, resources=())
    assert entries.alter_function("demo", "mask", changed) == changed
    with pytest.raises(FunctionNotFoundError):
        entries.function("demo", "mask")
    with pytest.raises(FunctionAlreadyExistsError):
        entries.alter_function("default", "veil", replace(changed, name="other"))
    entries.drop_function("default", "veil")
    with pytest.raises(FunctionNotFoundError):
        entries.drop_function("default", "veil")


def test_functions_go_with_their_database(entries: Entries) -> None:
    entries.create_function(MASK)
    with pytest.raises(DatabaseNotEmptyError, match=r"1 function\(s\)"):
        entries.drop_database("demo")
    entries.drop_database("demo", cascade=True)
    assert entries.functions() == []


# --- locks ------------------------------------------------------------------------------------------------------------

READ, WRITE, ALONE = LockType


def lock(locks: MetastoreLocks, kind: LockType, *names: str) -> MetastoreLock:
    return locks.lock([LockComponent(kind, *names)], holder="ann", host="here")


@pytest.mark.parametrize(("first", "second"), product(LockType, LockType))
def test_locks_exclude_one_another_as_in_a_metastore(entries: Entries, first: LockType, second: LockType) -> None:
    locks = entries.locks
    held = lock(locks, first, "demo", "t")
    waiting = lock(locks, second, "demo", "t")
    is_shared = {first, second} in ({READ}, {READ, WRITE})
    assert held.state is LockState.ACQUIRED
    assert (waiting.state is LockState.ACQUIRED) is is_shared
    assert lock(locks, ALONE, "demo", "u").state is LockState.ACQUIRED
    locks.unlock(held.id)
    assert locks.check(waiting.id).state is LockState.ACQUIRED


@pytest.mark.parametrize(
    ("first", "second", "is_free"),
    [
        ((ALONE, "demo", "t", "k=1"), (ALONE, "demo", "t", "k=2"), True),
        ((ALONE, "demo", "t", "k=1"), (READ, "demo", "t"), False),
        ((ALONE, "demo", "t"), (READ, "demo", "t", "k=1"), False),
        ((READ, "demo"), (ALONE, "demo", "t"), True),
        ((ALONE, "demo", "t"), (READ, "demo"), True),
        ((WRITE, "demo"), (ALONE, "demo", "t"), False),
        ((ALONE, "demo"), (READ, "demo", "t"), False),
        ((ALONE, "demo"), (ALONE, "other"), True),
    ],
)
def test_a_lock_covers_what_is_inside(entries: Entries, first: Any, second: Any, is_free: bool) -> None:
    lock(entries.locks, *first)
    assert (lock(entries.locks, *second).state is LockState.ACQUIRED) is is_free


def test_later_requests_wait_behind_earlier_ones(entries: Entries) -> None:
    locks = entries.locks
    reader = lock(locks, READ, "demo", "t")
    writer = lock(locks, ALONE, "demo", "t")
    later = lock(locks, READ, "demo", "t")
    assert later.state is LockState.WAITING
    locks.unlock(reader.id)
    assert locks.check(later.id).state is LockState.WAITING
    assert locks.check(writer.id).state is LockState.ACQUIRED
    assert locks.check(writer.id).acquired_at_ms == locks.show()[0].acquired_at_ms
    assert [shown.id for shown in locks.show("demo", "t")] == [writer.id, later.id]
    assert locks.show("demo", "u") == []
    locks.unlock(writer.id)
    assert locks.check(later.id).state is LockState.ACQUIRED


def test_a_lock_is_all_or_nothing(entries: Entries) -> None:
    locks = entries.locks
    lock(locks, ALONE, "demo", "b")
    both = [LockComponent(ALONE, "demo", "a", extra={"n": 1}), LockComponent(READ, "demo", "b")]
    waiting = locks.lock(both, holder="h" * 999, host="here")
    assert (waiting.state, waiting.components) == (LockState.WAITING, tuple(both))
    with pytest.raises(InvalidRequestError, match="names no database"):
        locks.lock([], holder="ann", host="here")


def test_a_lock_without_heartbeats_is_free_again(entries: Entries) -> None:
    locks = entries.locks
    dead, alive = lock(locks, ALONE, "demo", "t"), lock(locks, ALONE, "demo", "u")
    with entries.catalog.storage.write() as connection:
        connection.execute(update(MetastoreLockRow).values(heartbeat_at_ms=MetastoreLockRow.heartbeat_at_ms - 290_000))
    locks.heartbeat(alive.id)
    with entries.catalog.storage.write() as connection:
        connection.execute(update(MetastoreLockRow).values(heartbeat_at_ms=MetastoreLockRow.heartbeat_at_ms - 20_000))
    assert [shown.id for shown in locks.show()] == [alive.id]
    assert lock(locks, ALONE, "demo", "t").state is LockState.ACQUIRED
    assert lock(locks, ALONE, "demo", "u").state is LockState.WAITING
    for call in (locks.check, locks.heartbeat, locks.unlock):
        with pytest.raises(MetastoreLockNotFoundError, match=f"no lock {dead.id}"):
            call(dead.id)


def increment(url: str, count: int, results: Any) -> None:
    """Take an exclusive lock `count` times, and report when it was held."""
    with Catalog.open(url, warehouse="/tmp") as catalog:
        for _ in range(count):
            held = lock(catalog.metastore_locks, ALONE, "demo", "t")
            while held.state is LockState.WAITING:
                time.sleep(random.uniform(0.001, 0.01))
                held = catalog.metastore_locks.check(held.id)
            started = time.monotonic()
            time.sleep(0.002)
            results.put((started, time.monotonic()))
            catalog.metastore_locks.unlock(held.id)


@pytest.mark.long
def test_processes_take_turns(entries: Entries, catalog_url: str) -> None:
    context, count = get_context("spawn"), 8
    results = context.Queue()
    workers = [context.Process(target=increment, args=(catalog_url, count, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    held = sorted(results.get(timeout=60) for _ in range(3 * count))
    for worker in workers:
        worker.join(60)
    assert all(end <= start for (_, end), (start, _) in pairwise(held))
    assert entries.locks.show() == []
