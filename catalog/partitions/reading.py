"""Reading of rows with the cursor of the database driver: creating SQLAlchemy's rows would take most of the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from typing import Any, NamedTuple

from sqlalchemy import Connection

from catalog.partitions.queries import Queries, Query
from catalog.storage.partition_rows import collected_once

PAGE = 5_000
"""The number of rows in memory."""

_NUMBERS = count(1)
"""Of the cursors, whose names differ because a transaction may have several at a time."""


def read_pages(connection: Connection, query: Query) -> Iterator[Sequence[Any]]:
    """Yield the rows of a query in pages, without loading all of them."""
    driver = connection.connection.driver_connection
    assert driver is not None
    is_postgresql = connection.dialect.name == "postgresql"
    name = f"calve_partitions_{next(_NUMBERS)}"
    with closing(driver.cursor(name, binary=True) if is_postgresql else driver.cursor()) as cursor:
        cursor.execute(*query)
        while page := _next_page(cursor):
            yield page
            if len(page) < PAGE:
                return


@collected_once()
def _next_page(cursor: Any) -> Sequence[Any]:
    page: Sequence[Any] = cursor.fetchmany(PAGE)
    return page


class Values(NamedTuple):
    """The values of some partitions of a table.

    Attributes:
        first, last: Their first and last id.
        number: How many they are.
        lines: The packed values in the order of the ids, separated by line breaks.
    """

    first: int
    last: int
    number: int
    lines: str


def read_values(
    connection: Connection, table_id: int, *, is_quarantined: bool | None = None, page: int | None = None
) -> Iterator[Values]:
    """Yield the values of all partitions of a table, many at a time.

    Args:
        is_quarantined: Of those that are hidden from readers, or are not; None for both.
        page: The number of partitions that one statement reads, by default as many as `read_pages`.
    """
    queries, size = Queries(connection.dialect.name == "postgresql"), page or PAGE
    number, after = size, 0
    while number == size:
        query = queries.values_after(table_id, after, size, is_quarantined=is_quarantined)
        [(first, after, number, lines)] = read_all(connection, query)
        if number:
            yield Values(first, after, number, lines)


def read_all(connection: Connection, query: Query) -> Sequence[Any]:
    """Return the rows of a query, which are not many."""
    driver = connection.connection.driver_connection
    assert driver is not None
    is_postgresql = connection.dialect.name == "postgresql"
    with closing(driver.cursor(binary=True) if is_postgresql else driver.cursor()) as cursor, collected_once():
        return list(cursor.execute(*query).fetchall())
