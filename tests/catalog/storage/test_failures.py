"""All database failures are one-line errors of the catalog that are correctly marked as retryable or not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
from sqlalchemy import event, text

from catalog import Catalog, NewPartition
from catalog.errors import (
    CatalogAccessError,
    CatalogEncodingError,
    CatalogError,
    CatalogFullError,
    CatalogReadOnlyError,
    CatalogUnavailableError,
    CatalogVersionError,
    CommitOutcomeUnknownError,
    ConflictError,
    InvalidConfigurationError,
    InvalidRequestError,
)
from catalog.operations.records import OperationKind
from standalone.postgres import PostgresServer
from tests.support import on_small_disk as small_disk

pytestmark = pytest.mark.smoke


@pytest.fixture
def administer(postgres: PostgresServer, postgres_url: str) -> Callable[[str], None]:
    """A function that runs a statement as the server's superuser; `{database}` is the catalog's."""
    database = postgres_url.rpartition("/")[2]

    def run(statement: str) -> None:
        with postgres.connect(database) as connection:
            connection.autocommit = True
            connection.execute(statement.format(database=database))  # type: ignore[arg-type]

    return run


@pytest.fixture
def postgres_catalog(postgres_url: str, tmp_path: Path) -> Iterator[Callable[[], Catalog]]:
    """A function that opens the catalog on PostgreSQL."""
    opened: list[Catalog] = []

    def open_catalog() -> Catalog:
        opened.append(Catalog.open(postgres_url, warehouse=str(tmp_path)))
        return opened[-1]

    yield open_catalog
    for catalog in opened:
        catalog.close()


def assert_says(error: CatalogError, *, retryable: bool) -> None:
    assert error.retryable is retryable
    assert "\n" not in str(error)


# --- server failures ------------------------------------------------------------------------------------------------


def test_a_lock_that_is_not_had_in_time_is_a_conflict(
    administer: Callable[[str], None], postgres_catalog: Callable[[], Catalog]
) -> None:
    administer("ALTER DATABASE {database} SET lock_timeout = '50ms'")
    catalog = postgres_catalog()
    catalog.create_database("demo")
    table = catalog.create_table("demo.t", columns=[("v", "int")])
    with catalog.storage.write() as connection:
        catalog.storage.lock_table(connection, table.id, exclusive=True)
        with pytest.raises(ConflictError, match="lock timeout") as refused:
            catalog.alter_table("demo.t", properties={"a": "b"})
    assert_says(refused.value, retryable=True)


def test_a_statement_that_took_too_long_may_be_tried_again(postgres_catalog: Callable[[], Catalog]) -> None:
    catalog = postgres_catalog()

    def sleep() -> None:
        with catalog.storage.read() as connection:
            connection.execute(text("SET LOCAL statement_timeout = '1ms'"))
            connection.execute(text("SELECT pg_sleep(60)"))

    with pytest.raises(CatalogUnavailableError, match="statement_timeout") as refused:
        sleep()
    assert_says(refused.value, retryable=True)


def test_a_server_that_only_reads_is_named(
    administer: Callable[[str], None], postgres_catalog: Callable[[], Catalog]
) -> None:
    administer("ALTER DATABASE {database} SET default_transaction_read_only = on")
    catalog = postgres_catalog()
    assert catalog.list_databases() == []
    with pytest.raises(CatalogReadOnlyError, match="read-only") as refused:
        catalog.create_database("demo")
    assert_says(refused.value, retryable=False)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_is_not_utf8_is_refused_with_the_statement_that_creates_a_right_one(
    postgres: PostgresServer, encoding: str
) -> None:
    name = "other_encoding"
    with postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")  # type: ignore[call-overload]
    try:
        for open_catalog in (Catalog.initialise, Catalog.open):
            with pytest.raises(CatalogEncodingError, match=f"{name} has the encoding {encoding}") as refused:
                open_catalog(postgres.url(name, user="postgres"))
            assert_says(refused.value, retryable=False)
        postgres.drop_database(name)
        _, _, statement = str(refused.value).partition("create it with ")
        with postgres.connect() as connection:
            connection.execute(statement)  # type: ignore[call-overload]
        with Catalog.initialise(postgres.url(name, user="postgres")) as catalog:
            assert catalog.list_databases() == []
    finally:
        postgres.drop_database(name)


def test_a_lacking_privilege_is_named(
    administer: Callable[[str], None], postgres_catalog: Callable[[], Catalog]
) -> None:
    catalog = postgres_catalog()
    administer("REVOKE ALL ON calve_database FROM calve; ALTER TABLE calve_database OWNER TO postgres")
    with pytest.raises(CatalogAccessError, match="calve_database") as refused:
        catalog.list_databases()
    assert_says(refused.value, retryable=False)


def test_a_connection_that_ends_in_mid_transaction_may_be_tried_again(
    administer: Callable[[str], None], postgres_catalog: Callable[[], Catalog]
) -> None:
    catalog = postgres_catalog()
    end_others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "

    def change_twice() -> None:
        with catalog.storage.write() as connection:
            connection.execute(text("UPDATE calve_database SET name = name"))
            administer(end_others + "datname = '{database}'")
            connection.execute(text("UPDATE calve_database SET name = name"))

    with pytest.raises(CatalogUnavailableError, match="cannot be reached") as refused:
        change_twice()
    assert_says(refused.value, retryable=True)
    assert catalog.list_databases() == []


def test_a_connection_that_is_lost_during_a_commit_leaves_the_outcome_unknown(
    administer: Callable[[str], None], postgres_catalog: Callable[[], Catalog]
) -> None:
    catalog = postgres_catalog()
    end_others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
    event.listen(
        catalog.storage.engine, "commit", lambda _: administer(end_others + "datname = '{database}'"), once=True
    )
    with pytest.raises(CommitOutcomeUnknownError, match="may have been made or not") as refused:
        catalog.create_database("demo")
    assert_says(refused.value, retryable=True)
    assert catalog.list_databases() == []


def test_a_connection_that_ends_while_rows_are_copied_may_be_tried_again(
    administer: Callable[[str], None], postgres_catalog: Callable[[], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = postgres_catalog()
    catalog.create_database("demo")
    catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("k", "int")])
    end_others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
    start_copy = psycopg.Cursor.copy

    def end_and_copy(*arguments: object, **named: object) -> object:
        administer(end_others + "datname = '{database}'")
        return start_copy(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(psycopg.Cursor, "copy", end_and_copy)
    with pytest.raises(CatalogUnavailableError) as refused:
        catalog.add_partitions("demo.t", [NewPartition(["1"])])
    assert_says(refused.value, retryable=True)


# --- SQLite ---------------------------------------------------------------------------------------------------------


def test_a_sqlite_file_that_cannot_be_written_is_named(sqlite_url: str) -> None:
    with Catalog.open(sqlite_url, warehouse="/warehouse") as catalog:
        catalog.storage.engine.dispose()
        with catalog.storage.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only = ON")
        with pytest.raises(CatalogReadOnlyError, match="readonly") as refused:
            catalog.create_database("demo")
        assert_says(refused.value, retryable=False)


def test_a_full_disk_is_named(sqlite_url: str, tmp_path: Path) -> None:
    with Catalog.open(sqlite_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("k", "int")])
        catalog.storage.engine.dispose()
        with catalog.storage.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(CatalogFullError, match="full") as refused:
            catalog.add_partitions("demo.t", [NewPartition([str(key)]) for key in range(5_000)])
        assert_says(refused.value, retryable=True)
        assert list(catalog.get_partitions("demo.t")) == []


@pytest.fixture(scope="module")
def on_small_disk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The output of `on_small_disk.py`, which uses a disk that is full, and then read-only."""
    unshare = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        pytest.skip("this system mounts nothing for its users")
    script = Path(small_disk.__file__)
    command = [*unshare, sys.executable, str(script), str(tmp_path_factory.mktemp("disk"))]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, list[str]] = json.loads(done.stdout)
    return outcomes


@pytest.mark.parametrize(
    ("attempt", "outcome", "words"),
    [
        ("write a file", "StorageError", "No space left on device"),
        ("add", "CatalogFullError", "is full"),
        ("create", "CatalogFullError", "is full"),
        ("initialise", "CatalogFullError", "is full"),
        ("sql full", "1", "CatalogFullError: "),
        ("read", "", ""),
        ("add again", "", ""),
        ("open", "CatalogReadOnlyError", "cannot be written"),
        ("initialise read-only", "CatalogReadOnlyError", "cannot be written"),
        ("write a file read-only", "StorageError", "Read-only file system"),
        ("delete read-only", "StorageError", "Read-only file system"),
        ("sql read-only", "1", "CatalogReadOnlyError: "),
        ("tables read-only", "1", "CatalogReadOnlyError: "),
    ],
)
def test_a_real_disk_that_is_full_or_read_only_is_named(
    on_small_disk: dict[str, list[str]], attempt: str, outcome: str, words: str
) -> None:
    result, message = on_small_disk[attempt]
    assert result == outcome, message
    assert words in message
    assert len(message.splitlines()) <= 1


def test_a_full_disk_loses_nothing(on_small_disk: dict[str, list[str]]) -> None:
    assert on_small_disk["partitions"] == ["50"]


def test_a_file_that_may_not_grow_is_a_failing_disk(sqlite_url: str, tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys\n"
        "from catalog import Catalog, NewPartition\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "catalog = Catalog.open(sys.argv[1], warehouse=sys.argv[2])\n"
        "catalog.create_database('demo')\n"
        "catalog.create_table('demo.t', columns=[('v', 'int')], partition_keys=[('k', 'int')])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))\n"
        "try:\n"
        "    catalog.add_partitions('demo.t', [NewPartition([str(key)]) for key in range(20_000)])\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))\n"
        "print(len(list(catalog.get_partitions('demo.t'))))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", script, sqlite_url, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, count = done.stdout.splitlines()
    assert said.startswith("CatalogUnavailableError the disk of the catalog")
    assert count == "0"


# --- texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x" * 513, "nul\x00", "half\ud800"], ids=["long", "nul", "surrogate"])
def test_an_operation_id_that_cannot_be_stored_is_refused(catalog: Catalog, name: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        catalog.operations.begin(name, OperationKind.ADD_PARTITIONS, "demo.t")
    assert_says(refused.value, retryable=False)
    with pytest.raises(InvalidRequestError):
        catalog.operations.find(name)


@pytest.mark.parametrize("text_", ["nul\x00", "half\ud800"], ids=["nul", "surrogate"])
def test_a_description_that_cannot_be_stored_is_refused(catalog: Catalog, text_: str) -> None:
    with pytest.raises(InvalidRequestError):
        catalog.create_database("other", description=text_)
    with pytest.raises(InvalidRequestError):
        catalog.create_table("demo.t", columns=[("v", "int")], description=text_)
    assert catalog.list_tables() == []


# --- connections and versions ---------------------------------------------------------------------------------------


def test_a_process_without_free_connections_says_which_setting_gives_more(
    catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_CONNECTIONS", "1")
    monkeypatch.setenv("CALVE_CONNECTION_TIMEOUT_SECONDS", "0")
    with Catalog.open(catalog_url) as catalog:
        held, release = Event(), Event()

        def hold() -> None:
            with catalog.storage.read():
                held.set()
                release.wait(300)

        thread = Thread(target=hold)
        thread.start()
        held.wait(300)
        with pytest.raises(CatalogUnavailableError, match="CALVE_CONNECTIONS") as refused:
            catalog.list_databases()
        release.set()
        thread.join()
        assert_says(refused.value, retryable=True)
        assert catalog.list_databases() == []


def test_a_wrong_number_of_connections_is_refused(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("CALVE_CONNECTIONS", wrong)
        with pytest.raises(InvalidConfigurationError, match="CALVE_CONNECTIONS"):
            Catalog.open(sqlite_url)


@pytest.mark.parametrize(("revision", "advice"), [("9999", "Upgrade Calve"), ("0001", "calve init")])
def test_a_schema_of_another_version_says_what_to_do(
    catalog: Catalog, catalog_url: str, revision: str, advice: str
) -> None:
    with catalog.storage.write() as connection:
        connection.execute(text(f"UPDATE calve_alembic_version SET version_num = '{revision}'"))
    with pytest.raises(CatalogVersionError, match=advice) as refused:
        Catalog.open(catalog_url)
    assert_says(refused.value, retryable=False)
    if revision == "9999":
        with pytest.raises(CatalogVersionError, match="Upgrade Calve"):
            Catalog.initialise(catalog_url)
