"""On PostgreSQL, no transaction waits, or makes others wait, without end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import text

from catalog import Catalog, Column, Table
from catalog.errors import CatalogLockedError, CatalogUnavailableError, CommitOutcomeUnknownError
from catalog.iceberg.pointers import hold_pointer
from catalog.storage import Storage, waiting
from catalog.tables.schemes import scheme_from_properties
from tests.support.iceberg_tables import sql_catalog

NAME = "demo.t"


@pytest.fixture
def postgres_catalog(postgres_url: str, tmp_path: Path) -> Iterator[Catalog]:
    with Catalog.open(postgres_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"})
        catalog.create_table(NAME, columns=[("c", "int")], scheme=scheme)
        yield catalog


def committed_by_engine(catalog: Catalog, url: str) -> Table:
    """Append a row by PyIceberg; return the table, whose pointer has moved."""
    with sql_catalog(url) as iceberg:
        iceberg.load_table(NAME).append(pa.table({"c": pa.array([1], pa.int32())}))
    with catalog.storage.read() as connection:
        return catalog._definitions.get_table(NAME, connection)


def test_a_writer_that_does_nothing_loses_its_locks(postgres_catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "IDLE_MS", 300)
    storage, frozen = postgres_catalog.storage, threading.Event()
    table = postgres_catalog.get_table(NAME)
    failures: list[Exception] = []

    def freeze() -> None:
        try:
            with storage.write() as connection:
                storage.lock_table(connection, table.id, exclusive=True)
                frozen.set()
                time.sleep(1.5)
        except CatalogUnavailableError as error:
            failures.append(error)

    thread = threading.Thread(target=freeze)
    thread.start()
    frozen.wait()
    postgres_catalog.alter_table(NAME, properties={"a": "b"})
    assert thread.is_alive()
    thread.join()
    (failure,) = failures
    assert "did nothing for too long" in str(failure)
    assert not isinstance(failure, CommitOutcomeUnknownError)
    assert postgres_catalog.get_table(NAME).properties["a"] == "b"


@pytest.mark.parametrize("lock", ["table", "pointer"])
def test_a_wait_ends_by_naming_the_session_that_holds_the_lock(
    postgres_catalog: Catalog, postgres_url: str, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr(waiting, "LOCK_MS", 100)
    storage, table = postgres_catalog.storage, committed_by_engine(postgres_catalog, postgres_url)
    with storage.write() as connection:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        if lock == "table":
            storage.lock_table(connection, table.id, exclusive=True)
        else:
            hold_pointer(connection, "demo", "t")
            # As an engine that is about to commit.
            connection.execute(text("UPDATE iceberg_tables SET table_name = table_name"))
        with pytest.raises(CatalogLockedError, match=rf"session {pid} \(calve, user .* and is idle in transaction"):
            postgres_catalog.alter_table(NAME, properties={"a": "b"})
    postgres_catalog.alter_table(NAME, properties={"a": "b"})


@pytest.mark.parametrize("lock", ["table", "pointer"])
def test_readers_do_not_wait_for_writers(postgres_catalog: Catalog, postgres_url: str, lock: str) -> None:
    storage, table = postgres_catalog.storage, committed_by_engine(postgres_catalog, postgres_url)
    with storage.write() as connection:
        if lock == "table":
            storage.lock_table(connection, table.id, exclusive=True)
        else:
            hold_pointer(connection, "demo", "t")
        began = time.monotonic()
        scan = postgres_catalog.scan_files(NAME)
        assert postgres_catalog.get_table(NAME).live_location == table.live_location
        assert time.monotonic() - began < 5
    # The engine's commit is read as it is.
    assert scan.engine_location == table.live_location
    assert [file.row_count for file in postgres_catalog.scan_files(NAME).files] == [1]
    assert postgres_catalog.scan_files(NAME).engine_location is None


def test_a_reader_does_not_wait_for_a_writer_of_sqlite(sqlite_url: str, tmp_path: Path) -> None:
    with Catalog.open(sqlite_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        catalog.create_table(NAME, columns=[("v", "int")], partition_keys=[("c", "int")], format="iceberg")
        with sql_catalog(sqlite_url) as iceberg:
            rows = {name: pa.array([1], pa.int32()) for name in ("v", "c")}
            iceberg.load_table(NAME).append(pa.table(rows))
        with catalog.storage.write():
            assert list(catalog.scan_partitions(NAME).partitions) == []
        assert len(list(catalog.scan_partitions(NAME).partitions)) == 1
        with catalog.storage.read() as connection:
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 60_000


def test_lost_connections_end(postgres_url: str) -> None:
    storage = Storage(f"{postgres_url}?keepalives_idle=7")
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    try:
        with storage.read() as connection:
            shown = [connection.scalar(text(f"SHOW {name}")) for name in names]
            driver = connection.connection.driver_connection
            assert driver is not None
            options = driver.info.get_parameters()
        assert shown == ["60", "15", "4", "120000"]
        assert (options["keepalives_idle"], options["keepalives_interval"], options["tcp_user_timeout"]) == (
            *("7", "15"),
            "120000",
        )
    finally:
        storage.close()


def test_limits_of_the_database_come_first(postgres_catalog: Catalog) -> None:
    with postgres_catalog.storage.write() as connection:
        assert connection.scalar(text("SHOW lock_timeout")) == "5min"
        assert connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "15min"
    with postgres_catalog.storage.read() as connection:
        assert connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "0"
    with postgres_catalog.storage.write(lock_ms=70) as connection:
        assert connection.scalar(text("SHOW lock_timeout")) == "70ms"
