"""The files of one table as its metadata, the catalog and the storage have them, in a temporary database on disk.

The three are compared by SQL, so that memory does not grow with the number of files. Paths are compared by
`catalog.files.locations.reach_key`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from catalog.maintenance.findings import SHOWN
from catalog.storage.bulk import batched

_SCHEMA = """
CREATE TABLE listed (key TEXT, path TEXT, folder TEXT, content INT, is_live INT, format TEXT, row_count INT,
    size_bytes INT, identity BLOB, statistics TEXT, bounds BLOB);
CREATE TABLE recorded (key TEXT, path TEXT, folder TEXT, row_count INT, size_bytes INT, identity BLOB, statistics TEXT);
CREATE TABLE stored (key TEXT, path TEXT, size_bytes INT, modified_at_ms INT);
CREATE TABLE former (key TEXT);
CREATE TABLE wrong (key TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_INDEXES = "".join(f"CREATE INDEX ix_{name} ON {name} (key);" for name in ("listed", "recorded", "stored", "former"))


class Listed(NamedTuple):
    """A file as the metadata have it.

    Attributes:
        identity: That of its partition (`catalog.storage.schema.PartitionRow`); None if it is not compared.
        statistics: JSON, as in a file row; None if they are not compared.
        bounds: The marshalled lower and upper bounds; None if they are not compared.
    """

    key: str
    path: str
    folder: str
    content: int
    is_live: bool
    format: str
    row_count: int
    size_bytes: int
    identity: bytes | None = None
    statistics: str | None = None
    bounds: bytes | None = None


class Recorded(NamedTuple):
    """A file row of the catalog; `identity` and `statistics` as in `Listed`."""

    key: str
    path: str
    folder: str
    row_count: int
    size_bytes: int
    identity: bytes | None
    statistics: str | None


class Stored(NamedTuple):
    """A file in the storage."""

    key: str
    path: str
    size_bytes: int
    modified_at_ms: int


@dataclass(frozen=True)
class Found:
    """The rows of a query: their number, and the first texts."""

    count: int
    texts: tuple[str, ...]


class Ledger:
    """A temporary database; a context manager, after which it is gone."""

    def __init__(self) -> None:
        """Create the database in a file without a name."""
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.executescript(_SCHEMA)

    def __enter__(self) -> Self:
        """Return the ledger."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the database."""
        self._database.close()

    def add(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows to a table, which has their fields in their order."""
        for batch in batched(rows):
            marks = ", ".join("?" * len(batch[0]))
            self._database.execute("BEGIN")
            self._database.executemany(f"INSERT INTO {table} VALUES ({marks})", batch)
            self._database.execute("COMMIT")

    def index(self) -> None:
        """Index all tables by their keys; called once, after rows of metadata and catalog were added."""
        self._database.executescript(_INDEXES)

    def list_recorded(self) -> None:
        """Add the file rows that metadata do not have, as if these had them."""
        self._database.execute(
            "INSERT INTO listed SELECT key, path, folder, 0, 1, 'PARQUET', row_count, size_bytes, NULL, NULL, NULL "
            "FROM recorded r WHERE NOT EXISTS (SELECT 1 FROM listed l WHERE l.key = r.key)"
        )

    def note_wrong(self, keys: Iterable[str]) -> None:
        """Note the files whose rows are wrong, for `is_wrong` and `extra_paths`."""
        for batch in batched(keys):
            self._database.executemany("INSERT OR IGNORE INTO wrong VALUES (?)", [(key,) for key in batch])

    def is_wrong(self, key: str) -> bool:
        """Return whether the row of a file was noted."""
        return self._database.execute("SELECT 1 FROM wrong WHERE key = ?", (key,)).fetchone() is not None

    def extra_paths(self) -> Iterator[str]:
        """Yield the paths of noted file rows whose files are not in the current snapshot."""
        query = (
            "SELECT DISTINCT r.path FROM recorded r JOIN wrong w ON w.key = r.key WHERE NOT EXISTS (SELECT 1 FROM "
            "listed l WHERE l.key = r.key AND l.is_live AND l.content = 0)"
        )
        return (path for (path,) in self.rows(query))

    def rows(self, query: str, *parameters: Any) -> Iterator[Any]:
        """Yield the rows of a query; other rows may be added meanwhile to tables that it does not read."""
        yield from self._database.execute(query, parameters)

    def found(self, query: str, *parameters: Any) -> Found:
        """Return the number of a query's rows, and their first texts."""
        (count,) = self._database.execute(f"SELECT count(*) FROM ({query})", parameters).fetchone()
        shown = self._database.execute(f"{query} ORDER BY 1 LIMIT {SHOWN}", parameters) if count else ()
        return Found(count, tuple(row[0] for row in shown))
