"""The catalog with other settings of servers and hosts: isolation levels and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Thread

import pytest
from sqlalchemy import text

from catalog import Catalog, IndexState, NewPartition
from catalog.errors import OperationConflictError
from catalog.model import OnInvalid
from catalog.operations.records import OperationKind
from catalog.partitions.adding import PartitionAdder
from standalone.postgres import PostgresServer

SKEW_SECONDS = 16 * 60

Configure = Callable[..., Catalog]


@pytest.fixture
def configured(postgres: PostgresServer, postgres_url: str) -> Iterator[Configure]:
    """A function that opens a catalog in a database with the given default settings."""
    opened: list[Catalog] = []

    def configure(**settings: str) -> Catalog:
        database = postgres_url.rpartition("/")[2]
        with postgres.connect() as connection:
            connection.autocommit = True
            for name, value in settings.items():
                connection.execute(f"ALTER DATABASE {database} SET {name} = '{value}'")  # type: ignore[arg-type]
        opened.append(Catalog.open(postgres_url, warehouse="/warehouse"))
        return opened[-1]

    yield configure
    for catalog in opened:
        catalog.close()


def wait_until_blocked(catalog: Catalog, thread: Thread) -> None:
    """Wait until a transaction of the server waits for a lock."""
    with catalog.storage.engine.connect() as connection:
        while thread.is_alive() and not connection.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")):
            pass


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_an_index_created_beside_an_add_is_complete_under_any_default_isolation(
    configured: Configure, isolation: str
) -> None:
    catalog = configured(default_transaction_isolation=isolation)
    catalog.create_database("demo")
    catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("day", "int")])
    creator = Thread(target=catalog.create_partition_index, args=("demo.t", "by_day", ["day"]))
    with catalog.storage.write() as connection:
        adder = PartitionAdder(connection, catalog._definitions, "demo.t")
        adder.add([NewPartition([str(day)]) for day in range(10)], if_not_exists=False, on_invalid=OnInvalid.REFUSE)
        creator.start()
        wait_until_blocked(catalog, creator)
    creator.join()
    assert catalog.build_partition_index("demo.t", "by_day").state is IndexState.ACTIVE
    assert len(list(catalog.get_partitions("demo.t", "day >= 0"))) == 10
    assert catalog.verify_partition_index("demo.t", "by_day").is_exact


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_every_connection_pins_its_isolation(configured: Configure, isolation: str) -> None:
    storage = configured(default_transaction_isolation=isolation).storage
    query = "SHOW transaction_isolation"
    with storage.write() as connection:
        assert connection.scalar(text(query)) == "read committed"
    with storage.read() as connection:
        assert connection.scalar(text(query)) == "repeatable read"
    with storage.write() as connection:
        assert connection.scalar(text(query)) == "read committed"
    assert storage.fetch(query, ()) == [("read committed",)]


# --- clocks ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[-SKEW_SECONDS, SKEW_SECONDS], ids=["behind", "ahead"])
def skew_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that sets this host's clock back or forward."""
    true_time_ns = time.time_ns

    def skew() -> None:
        monkeypatch.setattr(time, "time_ns", lambda: true_time_ns() + request.param * 1_000_000_000)
        monkeypatch.setattr(time, "time", lambda: true_time_ns() / 1e9 + request.param)

    return skew


def test_a_caller_with_a_wrong_clock_takes_no_live_operation_over(
    catalog: Catalog, skew_clock: Callable[[], None]
) -> None:
    catalog.operations.begin("load-1", OperationKind.ADD_PARTITIONS, "demo.t", is_exclusive=True)
    attempt = catalog.operations.start_job("load-1", "write")
    skew_clock()
    with pytest.raises(OperationConflictError, match="load-1"):
        catalog.operations.begin("load-2", OperationKind.ADD_PARTITIONS, "demo.t", is_exclusive=True)
    assert catalog.operations.abandoned() == []
    catalog.operations.heartbeat("load-1", "write", attempt)
    job = catalog.operations.get_job("load-1", "write")
    assert job is not None
    assert job.silent_ms < SKEW_SECONDS * 1000 / 2


def test_times_come_from_the_database(catalog: Catalog, skew_clock: Callable[[], None]) -> None:
    before = time.time_ns() // 1_000_000
    skew_clock()
    catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("day", "int")])
    catalog.add_partitions("demo.t", [NewPartition(["1"])])
    operation = catalog.operations.begin("one", OperationKind.BUILD_INDEX, "demo.t")
    [partition] = catalog.get_partitions("demo.t")
    tolerance_ms = SKEW_SECONDS * 1000 // 2
    for created_at_ms in (partition.created_at_ms, operation.created_at_ms, catalog.storage.now_ms()):
        assert abs(created_at_ms - before) < tolerance_ms


def test_a_wrong_clock_shortens_no_grace_period(catalog: Catalog, skew_clock: Callable[[], None]) -> None:
    insert = (
        "INSERT INTO calve_former_file (table_id, file_id, partition_id, path, row_count, size_bytes, statistics, "
        "revision, until_revision, retired_at_ms) VALUES (0, 0, 0, '/nowhere/f', 0, 1, '{}', 0, 0, :now)"
    )
    now = catalog.storage.now_ms()
    skew_clock()
    catalog.create_table("demo.t", columns=[("v", "int")])
    with catalog.storage.write() as connection:
        connection.execute(
            text(insert),
            {"now": now},
        )
    report = catalog.vacuum(grace=timedelta(minutes=10), dry_run=True)
    assert report.tables == ()
