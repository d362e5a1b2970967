"""Reading of rows with the cursor of the database driver: creating SQLAlchemy's rows would take most of the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from sqlalchemy import Connection

from catalog.partitions.queries import Query

PAGE = 5_000
"""The number of rows in memory."""

_CURSOR = "calve_partitions"


def read_pages(connection: Connection, query: Query) -> Iterator[Sequence[Any]]:
    """Yield the rows of a query in pages, without loading all of them."""
    driver = connection.connection.driver_connection
    assert driver is not None
    is_postgresql = connection.dialect.name == "postgresql"
    with closing(driver.cursor(_CURSOR, binary=True) if is_postgresql else driver.cursor()) as cursor:
        cursor.execute(*query)
        while page := cursor.fetchmany(PAGE):
            yield page
            if len(page) < PAGE:
                return


def read_all(connection: Connection, query: Query) -> Sequence[Any]:
    """Return the rows of a query, which are not many."""
    driver = connection.connection.driver_connection
    assert driver is not None
    is_postgresql = connection.dialect.name == "postgresql"
    with closing(driver.cursor(binary=True) if is_postgresql else driver.cursor()) as cursor:
        return list(cursor.execute(*query).fetchall())
