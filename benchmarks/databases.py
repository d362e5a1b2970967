"""The two databases: for catalogs, and with their drivers for the hand-written peers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import psycopg
from psycopg import sql

from standalone.postgres import PostgresServer

Row: TypeAlias = tuple[Any, ...]

COLUMNS = (
    ("country", "text"),
    ("category", "text"),
    ("year", "int"),
    ("month", "int"),
    ("day", "int"),
    ("location", "text"),
    ("file_count", "bigint"),
    ("row_count", "bigint"),
    ("size_bytes", "bigint"),
    ("properties", "text"),
    ("created_at_ms", "bigint"),
    ("id", "bigint"),
)
"""The columns of `sample.raw_rows`, with types that both databases support."""


class Database(Protocol):
    """A database system, with any number of databases."""

    name: str

    def create(self, name: str) -> str:
        """Create an empty database and return its URL."""

    def settle(self, name: str) -> None:
        """Run the maintenance that the database would run later after a bulk load."""

    def connect(self, name: str) -> Driver:
        """Open a connection of the driver."""


class Driver(Protocol):
    """A connection of a database driver, without Calve and SQLAlchemy."""

    def run(self, statement: str) -> None:
        """Run a statement and commit."""

    def create_table(self, table: str, keys: Sequence[str]) -> None:
        """Create a table of `COLUMNS` that is optimised for queries with a prefix of these keys."""

    def load(self, table: str, rows: Iterable[Row]) -> None:
        """Insert rows in bulk, and commit."""

    def query(self, statement: str, values: Sequence[object]) -> Callable[[], list[Row]]:
        """Return a function that fetches all rows of a prepared statement with values for its `?`."""

    def close(self) -> None:
        """Close the connection."""


class Postgresql:
    """The embedded PostgreSQL server."""

    name = "postgresql"
    _owner = "calve"

    def __init__(self, server: PostgresServer) -> None:
        """Use a running server."""
        self._server = server

    def create(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self._server.drop_database(name)
        self._server.create_database(name, owner=self._owner)
        return self._server.url(name, user=self._owner)

    def settle(self, name: str) -> None:
        """Run VACUUM and ANALYZE, as autovacuum would do later, and write dirty pages to disk."""
        with self._server.connect(name) as connection:
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")

    def connect(self, name: str) -> PostgresqlDriver:
        """Open a connection of psycopg."""
        return PostgresqlDriver(self._server.connect(name, user=self._owner))


class PostgresqlDriver:
    """psycopg, in autocommit mode."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        """Use a connection, which `close` closes."""
        self.connection = connection

    def run(self, statement: str) -> None:
        """Run a statement and commit."""
        self.connection.execute(statement.encode())

    def create_table(self, table: str, keys: Sequence[str]) -> None:
        """Create a table with a B-tree over its keys; its rows are in insertion order."""
        columns = ", ".join(f"{name} {type_name} NOT NULL" for name, type_name in COLUMNS)
        self.run(f"DROP TABLE IF EXISTS {table}")
        self.run(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(keys)}))")

    def load(self, table: str, rows: Iterable[Row]) -> None:
        """Insert rows with a binary COPY, and commit."""
        into = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(sql.Identifier(table))
        with self.connection.transaction(), self.connection.cursor() as cursor, cursor.copy(into) as copy:
            copy.set_types([{"int": "int4", "bigint": "int8"}.get(type_name, type_name) for _, type_name in COLUMNS])
            for row in rows:
                copy.write_row(row)

    def query(self, statement: str, values: Sequence[object]) -> Callable[[], list[Row]]:
        """Return a function that fetches all rows of a prepared statement in the binary format, which is faster."""
        query = statement.replace("?", "%s").encode()
        cursor = self.connection.cursor(binary=True)
        return lambda: cursor.execute(query, values, prepare=True).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class Sqlite:
    """SQLite files in a folder."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        """Use an existing folder."""
        self._folder = folder

    def create(self, name: str) -> str:
        """Delete the file of an earlier run, and return the URL of the new file."""
        for path in self._folder.glob(f"{name}.db*"):
            path.unlink()
        return f"sqlite:///{self._path(name)}"

    def settle(self, name: str) -> None:
        """Write the write-ahead log to the database file."""
        connection = sqlite3.connect(self._path(name))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()

    def connect(self, name: str) -> SqliteDriver:
        """Open a connection of sqlite3 with the catalog's settings."""
        connection = sqlite3.connect(self._path(name), isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL").close()
        connection.execute("PRAGMA synchronous = NORMAL").close()
        return SqliteDriver(connection)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.db"


class SqliteDriver:
    """The standard library's sqlite3, in autocommit mode; it caches prepared statements."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use a connection, which `close` closes."""
        self.connection = connection

    def run(self, statement: str) -> None:
        """Run a statement and commit."""
        self.connection.execute(statement).close()

    def create_table(self, table: str, keys: Sequence[str]) -> None:
        """Create a table that is a B-tree over its keys, so that the rows of a range are adjacent."""
        columns = ", ".join(f"{name} {type_name} NOT NULL" for name, type_name in COLUMNS)
        self.run(f"DROP TABLE IF EXISTS {table}")
        self.run(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(keys)})) WITHOUT ROWID")

    def load(self, table: str, rows: Iterable[Row]) -> None:
        """Insert rows with one prepared statement in one transaction."""
        self.run("BEGIN")
        self.connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(COLUMNS))})", rows).close()
        self.run("COMMIT")

    def query(self, statement: str, values: Sequence[object]) -> Callable[[], list[Row]]:
        """Return a function that fetches all rows of a statement."""
        cursor = self.connection.cursor()
        return lambda: cursor.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
