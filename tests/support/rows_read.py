"""The rows that PostgreSQL reads for some work, whatever its plans and however the work sends its statements."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from catalog import Catalog

_READ = """
SELECT (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE relname = ANY(%(tables)s))
     + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname = ANY(%(tables)s))
"""


def rows_read(url: str, work: Callable[[Catalog], Any], *tables: str) -> int:
    """Return the number of rows and of index entries of some SQL tables that some work reads.

    All catalogs at the URL are closed before, because a session reports its numbers when it ends.
    """
    before = _rows_read(url, tables)
    with Catalog.open(url) as catalog:
        work(catalog)
    return _rows_read(url, tables) - before


def session(url: str) -> psycopg.Connection[Any]:
    """Return a session beside the catalog, in which each statement commits."""
    return psycopg.connect(url.replace("+psycopg", "", 1), autocommit=True)


def _rows_read(url: str, tables: tuple[str, ...]) -> int:
    with session(url) as connection:
        _wait_for_sessions(connection)
        [(number,)] = connection.execute(_READ, {"tables": list(tables)}).fetchall()
        return int(number)


def _wait_for_sessions(connection: psycopg.Connection[Any]) -> None:
    deadline = time.monotonic() + 30
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND application_name = 'calve'"
    )
    while connection.execute(others).fetchone() != (0,):
        assert time.monotonic() < deadline, "a catalog at this URL is still open"
        time.sleep(0.01)
