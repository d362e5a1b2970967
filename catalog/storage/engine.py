"""Connections to the catalog's database, and the differences between PostgreSQL and SQLite."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import Semaphore
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sqlalchemy import Connection, Engine, create_engine, event, func, make_url, select, update
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from catalog.errors import CatalogEncodingError, CatalogNotConfiguredError, InvalidConfigurationError
from catalog.storage.arrays import register_arrays
from catalog.storage.clock import read_clock_ms
from catalog.storage.failures import commit_translated, lost_connection_errors, translated
from catalog.storage.interrupting import interruptible
from catalog.storage.locks import TABLE_LOCKS
from catalog.storage.schema import CatalogRow, TableRow, new_version
from catalog.storage.urls import has_half_a_password, shown_url
from catalog.storage.waiting import client_options, holder, keep_alive, limit_waiting

if TYPE_CHECKING:
    import psycopg

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_BUSY_TIMEOUT_MS = 60_000
_CACHE_KILOBYTES = 16_384
"""The cache of a connection of SQLite; with the default of 2,000, look-ups in large tables read most pages again."""

_PAUSE_SECONDS = 1.0
_LEFT_AT = "calve_left_at"
# As `TABLE_LOCKS`.
_PARTITION_LOCKS = 6015_2026


class Storage:
    """The database of one catalog.

    All transactions of the catalog use `read` or `write`; nothing else commits.
    """

    def __init__(self, url: str) -> None:
        """Prepare the connection pools without opening a connection.

        Raises:
            CatalogNotConfiguredError: The URL is not one of PostgreSQL or SQLite, or has an invalid parameter.
        """
        self.url = _normalise_url(url)
        self.is_postgresql = self.url.get_backend_name() == "postgresql"
        self.engine = self._create_engine()
        self._reader = (
            self.engine.execution_options(isolation_level="REPEATABLE READ") if self.is_postgresql else self.engine
        )
        # A separate pool, because switching a connection's mode back and forth takes as long as a short look-up.
        self._alone = (
            self._create_engine("AUTOCOMMIT", pool_reset_on_return=None) if self.is_postgresql else self.engine
        )
        # Limits the readers that keep a connection between results, because their callers may need others meanwhile.
        self.streams = Semaphore(_connection_limit() // 2)
        self._writer = self.engine if self.is_postgresql else self.engine.execution_options(begin_immediate=True)

    def _create_engine(self, isolation: str = "READ COMMITTED", **options: Any) -> Engine:
        if self.is_postgresql:
            # Not the server's default: with a snapshot, a writer that waited for a lock would miss the other's changes.
            arguments = {"application_name": "calve", **client_options(self.url)}
            engine = _new_engine(self.url, connect_args=arguments, isolation_level=isolation, **options)
            # Before SQLAlchemy's own first queries, which fail if the driver cannot decode the texts of the server.
            event.listen(engine, "connect", lambda connection, _record: _require_utf8(connection), insert=True)
            if isolation == "AUTOCOMMIT":
                event.listen(engine, "connect", _pin_isolation)
            event.listen(engine, "connect", lambda connection, _record: register_arrays(connection))
            event.listen(engine, "connect", keep_alive)
            _ping_after_a_pause(engine)
            return engine
        engine = _new_engine(self.url, connect_args={"timeout": _BUSY_TIMEOUT_MS / 1000})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def make_folder(self) -> None:
        """Create the folder of an SQLite database that does not exist.

        Raises:
            CatalogNotConfiguredError: It cannot be created.
        """
        if (file := self._file()) is not None:
            _make_folder(file.parent)

    def require_file(self) -> None:
        """Check that an SQLite database exists; a connection would create an empty one.

        Raises:
            CatalogNotConfiguredError: There is no such file.
        """
        if not self.has_file():
            raise CatalogNotConfiguredError(
                f"there is no catalog at {shown_url(self.url)}; check CALVE_CATALOG_URL, or create the catalog: "
                "calve init"
            )

    def has_file(self) -> bool:
        """Return whether the file of an SQLite database exists; always true for other databases."""
        return (file := self._file()) is None or file.exists()

    def _file(self) -> Path | None:
        """Return the file of an SQLite database; None for PostgreSQL, a database in memory, and a URI."""
        name = self.url.database or ""
        if self.is_postgresql or name in ("", ":memory:") or name.startswith("file:"):
            return None
        return Path(name).expanduser().absolute()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction with one snapshot of the catalog, unaffected by concurrent commits."""
        with translated(self.url), self._reader.connect() as connection, interruptible(connection), connection.begin():
            yield connection

    @contextmanager
    def write(self, *, lock_ms: int | None = None) -> Iterator[Connection]:
        """Open a transaction that commits at its end, and rolls back if an error is raised.

        Args:
            lock_ms: How long to wait for a lock; None for the usual time.

        Raises:
            CatalogLockedError: Others have held a lock for longer.
            CommitOutcomeUnknownError: The connection was lost during the commit.
        """
        with (
            translated(self.url, self._holder),
            self._writer.connect() as connection,
            interruptible(connection),
            _waiting(connection, lock_ms),
            connection.begin() as transaction,
        ):
            if self.is_postgresql:
                limit_waiting(connection, lock_ms)
            yield connection
            with commit_translated(self.url):
                transaction.commit()

    def _holder(self) -> str:
        return holder(self._alone) if self.is_postgresql else ""

    @cached_property
    def identity(self) -> str:
        """Identifier of this catalog in the names of files and folders; 16 hexadecimal digits."""
        with self.read() as connection:
            return str(connection.scalar(select(CatalogRow.identity)))

    @contextmanager
    def migrate(self) -> Iterator[Connection]:
        """Open a writing transaction in which tables may be replaced by new ones of the same names.

        SQLite needs that for most schema changes, and would otherwise delete or reject rows that refer to the old
        table.
        """
        with translated(self.url), self._writer.connect() as connection:
            self._enforce_references(connection, is_on=False)
            try:
                with connection.begin():
                    yield connection
            finally:
                self._enforce_references(connection, is_on=True)

    def _enforce_references(self, connection: Connection, *, is_on: bool) -> None:
        # Must run outside a transaction, in which SQLite ignores it.
        driver = connection.connection.driver_connection
        if not self.is_postgresql and driver is not None:
            driver.execute(f"PRAGMA foreign_keys = {'ON' if is_on else 'OFF'}").close()

    def fetch(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of one reading statement in the driver's syntax, bypassing SQLAlchemy.

        Returns:
            The rows; none when the connection was lost, so callers with an empty result query again in a transaction.
        """
        with translated(self.url), self._alone.connect() as connection, interruptible(connection):
            driver = connection.connection.driver_connection
            assert driver is not None
            try:
                cursor = driver.cursor(binary=True) if self.is_postgresql else driver.cursor()
                rows: list[tuple[Any, ...]] = cursor.execute(sql, parameters).fetchall()
            except lost_connection_errors() as error:
                connection.invalidate(error)
                return []
            return rows

    def lock_table(
        self,
        connection: Connection,
        table_id: int,
        *,
        exclusive: bool,
        version: int | None = None,
        is_bulk: bool = False,
    ) -> bool:
        """Lock the table's row until the transaction ends; return whether the table still exists.

        Adding or dropping partitions needs a shared lock; changing the table or its indexes an exclusive one, which
        gives the table a new version. On SQLite all writing transactions are serialized anyway.

        Args:
            is_bulk: Allow only one bulk transaction among the shared locks. For transactions that lock partitions in
                batches: each batch is locked in one order, but several batches could deadlock. Also for those that
                compare the locations of partitions (`catalog.partitions.folders`).
            version: Lock exclusively only if the table still has this version.
        """
        if self.is_postgresql:
            # Overlapping shared row locks would starve an exclusive one; advisory locks are granted in order.
            alone, shared = func.pg_advisory_xact_lock, func.pg_advisory_xact_lock_shared
            locks = [(alone if exclusive else shared)(TABLE_LOCKS, table_id)]
            if not exclusive:
                locks.append((alone if is_bulk else shared)(_PARTITION_LOCKS, table_id))
            connection.execute(select(*locks))
        if exclusive:
            change = update(TableRow).where(TableRow.id == table_id).values(version=new_version())
            if version is not None:
                change = change.where(TableRow.version == version)
            return connection.execute(change).rowcount == 1
        query = select(TableRow.id).where(TableRow.id == table_id).with_for_update(read=True)
        return connection.scalar(query) is not None

    def now_ms(self) -> int:
        """Return the database's time in milliseconds since 1970 UTC."""
        with self.read() as connection:
            return read_clock_ms(connection)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
        self._alone.dispose()


def _require_utf8(connection: psycopg.Connection[Any]) -> None:
    """Check the encoding of the database, which the server has reported with the connection.

    Raises:
        CatalogEncodingError: It is not UTF8.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        name = connection.info.dbname
        raise CatalogEncodingError(
            f"the catalog's database {name} has the encoding {encoding}, expected UTF8; create it with CREATE DATABASE "
            f"{name} ENCODING 'UTF8' TEMPLATE template0"
        )


def _pin_isolation(connection: psycopg.Connection[Any], _record: Any) -> None:
    """Set the isolation level of single statements, which have no BEGIN."""
    connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")


def _ping_after_a_pause(engine: Engine) -> None:
    """Ping a connection that was idle for a second, as the server may be gone; not before each short look-up."""

    def left(_connection: Any, record: ConnectionPoolEntry) -> None:
        record.info[_LEFT_AT] = time.monotonic()

    def taken(connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
        if time.monotonic() - record.info.get(_LEFT_AT, time.monotonic()) > _PAUSE_SECONDS:
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error as error:
                raise InvalidatePoolError from error

    event.listen(engine, "checkin", left)
    event.listen(engine, "checkout", taken)


def catalog_url() -> str:
    """Return the catalog's URL from the environment.

    Raises:
        CatalogNotConfiguredError: `CALVE_CATALOG_URL` is not set.
    """
    url = os.environ.get("CALVE_CATALOG_URL")
    if not url or not url.strip():
        raise CatalogNotConfiguredError(
            "CALVE_CATALOG_URL is not set; set it to the catalog's database, for instance "
            "sqlite:////tmp/calve.db or postgresql://user:password@host/calve"
        )
    return url


def _pool_settings() -> dict[str, int]:
    """Return the maximum number of connections per pool and process, and the time to wait for one.

    Raises:
        InvalidConfigurationError: A setting is not a number, or too small.
    """
    limit = _connection_limit()
    kept = min(limit, 5)
    timeout_seconds = _setting("CALVE_CONNECTION_TIMEOUT_SECONDS", 30, minimum=0)
    return {"pool_size": kept, "max_overflow": limit - kept, "pool_timeout": timeout_seconds}


def _connection_limit() -> int:
    return _setting("CALVE_CONNECTIONS", 15, minimum=1)


def _setting(name: str, default: int, *, minimum: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isascii() or not text.isdecimal() or int(text) < minimum:
        raise InvalidConfigurationError(f"{name} is {text!r}; set it to a whole number, {minimum} or more")
    return int(text)


def _new_engine(url: URL, **options: Any) -> Engine:
    try:
        # Statements have properties of tables, which may be secrets; they belong in no traceback.
        return create_engine(url, hide_parameters=True, **_pool_settings(), **options)
    except (ArgumentError, ValueError):
        # Without the original message, which may show a secret.
        raise CatalogNotConfiguredError(
            f"the catalog {shown_url(url)} has an invalid parameter in its URL; correct hosts, ports and options in "
            "CALVE_CATALOG_URL"
        ) from None


def _normalise_url(text: str) -> URL:
    try:
        text.encode()
        if "\0" in unquote(text):
            raise ValueError
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        backend = ""
    if backend == "postgresql":
        if has_half_a_password(text, url):
            raise CatalogNotConfiguredError(
                "the catalog's URL has a second @ after the password, so the end of the password is ambiguous; write "
                "each @ of the password as %40, each / as %2F and each ? as %3F in CALVE_CATALOG_URL"
            )
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite":
        return url.set(drivername="sqlite+pysqlite")
    raise CatalogNotConfiguredError(
        "the catalog's URL is neither for PostgreSQL nor for SQLite; use postgresql://user:password@host/database "
        "or sqlite:////absolute/path.db"
    )


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CatalogNotConfiguredError(
            f"the catalog's folder {path} cannot be created: {error.strerror}; check CALVE_CATALOG_URL"
        ) from None


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # Emulates PostgreSQL's function, so that one query serves both databases.
    connection.create_function("split_part", 3, lambda text, by, number: text.split(by)[number - 1], deterministic=True)
    connection.isolation_level = None  # the `begin` event starts each transaction
    for pragma in (
        f"busy_timeout = {_BUSY_TIMEOUT_MS}",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        f"cache_size = -{_CACHE_KILOBYTES}",
    ):
        connection.execute(f"PRAGMA {pragma}").close()
    _use_write_ahead_log(connection)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Set the journal mode of a new database; SQLite's busy timeout does not cover concurrent changes of the mode."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            # Only a lock is temporary; a full or read-only disk is reported at once.
            if error.sqlite_errorcode & 0xFF not in _LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def _waiting(connection: Connection, lock_ms: int | None) -> Iterator[None]:
    """Limit how long SQLite waits for another writer."""
    driver = connection.connection.driver_connection
    if lock_ms is None or not isinstance(driver, sqlite3.Connection):
        yield
        return
    driver.execute(f"PRAGMA busy_timeout = {lock_ms:d}").close()
    try:
        yield
    finally:
        driver.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}").close()


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("begin_immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
