"""Statements that wait for operations that hold their tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from catalog import Catalog, NewPartition
from catalog.errors import OperationConflictError, TableAlreadyExistsError
from catalog.operations.records import OperationKind
from catalog.statements import waiting
from catalog.statements.session import Session
from tests.support.commands import calve

TABLE = "demo.orders"


@pytest.fixture
def orders(catalog: Catalog) -> Catalog:
    catalog.create_table(TABLE, columns=[("id", "int")], partition_keys=[("day", "date")])
    catalog.add_partitions(TABLE, [NewPartition(("2024-05-01",))])
    return catalog


def hold(catalog: Catalog, name: str = "night", table: str = TABLE) -> None:
    catalog.operations.begin(name, OperationKind.LOAD_ROWS, table, is_exclusive=True)
    catalog.operations.start_job(name, "load")


@pytest.fixture
def later() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """A function that runs another one after half a second."""
    threads: list[Thread] = []

    def run(act: Callable[[], Any]) -> None:
        def wait() -> None:
            time.sleep(0.5)
            act()

        threads.append(Thread(target=wait))
        threads[-1].start()

    yield run
    for thread in threads:
        thread.join()


def session(catalog: Catalog, seconds: float, said: list[str]) -> Session:
    return Session(catalog, database="demo", wait=timedelta(seconds=seconds), on_wait=said.append)


@pytest.mark.parametrize(
    "statement", ["DROP TABLE orders", "ALTER TABLE orders RENAME TO sales", "MSCK REPAIR TABLE orders"]
)
def test_a_statement_runs_when_the_operation_has_ended(
    orders: Catalog, later: Callable[[Callable[[], Any]], None], statement: str
) -> None:
    hold(orders)
    said: list[str] = []
    with session(orders, 0, said) as impatient, pytest.raises(OperationConflictError, match="night") as refused:
        impatient.execute(statement)
    assert (refused.value.holder, said) == ("night", [])
    later(lambda: orders.operations.fail("night", "TEST", "ended"))
    with session(orders, 60, said) as patient:
        patient.execute(statement)
    assert said == ["waiting up to 60 s for operation night"]


def test_a_statement_waits_for_one_operation_after_the_other(
    orders: Catalog, later: Callable[[Callable[[], Any]], None]
) -> None:
    hold(orders)

    def hand_over() -> None:
        orders.operations.fail("night", "TEST", "ended")
        hold(orders, "morning")
        time.sleep(1)
        orders.operations.fail("morning", "TEST", "ended")

    said: list[str] = []
    later(hand_over)
    with session(orders, 60, said) as patient:
        patient.execute("DROP TABLE orders")
    assert said[0] == "waiting up to 60 s for operation night"
    # The statement may find the moment between both.
    assert [message.rpartition(" ")[2] for message in said[1:]] in ([], ["morning"])


def test_the_message_names_the_operation_when_the_time_is_over(orders: Catalog) -> None:
    hold(orders)
    said: list[str] = []
    began_at = time.monotonic()
    with session(orders, 0.7, said) as patient, pytest.raises(OperationConflictError) as refused:
        patient.execute("DROP TABLE orders")
    assert 0.7 <= time.monotonic() - began_at < 10
    assert str(refused.value).startswith(f"operation night is changing table {TABLE}; wait for it, or cancel it: ")
    assert str(refused.value).endswith(". Waited 0.7 s for operation night")
    assert refused.value.position == len("DROP TABLE ")
    assert len(orders.list_tables("demo")) == 1


def test_a_table_that_a_load_will_create_is_waited_for(
    orders: Catalog, later: Callable[[Callable[[], Any]], None]
) -> None:
    hold(orders, "first", "demo.new")
    later(lambda: orders.operations.fail("first", "TEST", "ended"))
    said: list[str] = []
    with session(orders, 60, said) as patient:
        patient.execute("DROP DATABASE demo CASCADE")
    assert said == ["waiting up to 60 s for operation first"]


def test_other_errors_are_not_waited_for(orders: Catalog) -> None:
    began_at = time.monotonic()
    with session(orders, 60, []) as patient, pytest.raises(TableAlreadyExistsError):
        patient.execute("CREATE TABLE orders (id int) STORED AS PARQUET")
    assert time.monotonic() - began_at < 10


def test_the_command_line_says_what_it_waits_for(
    orders: Catalog, later: Callable[[Callable[[], Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(orders)
    over = calve("sql", "DROP TABLE demo.orders", "--wait", "0.3")
    assert over.exit_code == 1
    # On a busy machine, the time may be over before the message.
    said = [line for line in over.stderr.splitlines() if line.startswith("waiting")]
    assert said in ([], ["waiting up to 1 s for operation night"])
    assert "Waited 0.3 s for operation night" in over.stderr
    later(lambda: orders.operations.fail("night", "TEST", "ended"))
    with monkeypatch.context() as patched:
        # On a busy machine, some of the time has passed before the message.
        patched.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: 0.0))
        done = calve("sql", "DROP TABLE demo.orders", "--wait", "60")
    assert (done.exit_code, done.stderr) == (0, "waiting up to 60 s for operation night\n")
    assert calve("sql", "SHOW DATABASES", "--wait", "-1").exit_code == 2
