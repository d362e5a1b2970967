"""Many rows at once: COPY on PostgreSQL, one prepared statement on SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Table,
    any_,
    literal,
    text,
)
from sqlalchemy.orm import InstrumentedAttribute

from catalog.storage.schema import Base

T = TypeVar("T")


def insert_rows(
    connection: Connection, into: type[Base], columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert rows, in the order of `columns`, as one statement of the connection's transaction."""
    table, names = into.__table__, ", ".join(columns)
    assert isinstance(table, Table)
    if connection.dialect.name == "postgresql":
        driver = connection.connection.driver_connection
        assert driver is not None
        with (
            driver.cursor() as cursor,
            cursor.copy(f"COPY {table.name} ({names}) FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types([_copy_type(table.c[name]) for name in columns])
            for row in rows:
                copy.write_row(row)
        return
    marks = ", ".join("?" * len(columns))
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows).close()


def _copy_type(column: Column[Any]) -> str:
    if isinstance(column.type, (BigInteger, Integer)):
        return "int8"
    if isinstance(column.type, LargeBinary):
        return "bytea"
    return "bool" if isinstance(column.type, Boolean) else "text"


def reserve_partition_ids(connection: Connection, count: int) -> Sequence[int]:
    """Return so many ids, ascending, that no other transaction gets."""
    if connection.dialect.name == "postgresql":
        query = text("SELECT nextval('calve_partition_id_seq') FROM generate_series(1, :count)")
        return connection.scalars(query, {"count": count}).all()
    first = (connection.scalar(text("SELECT seq FROM sqlite_sequence WHERE name = 'calve_partition'")) or 0) + 1
    return range(first, first + count)


def among(connection: Connection, column: InstrumentedAttribute[Any], values: Sequence[Any]) -> ColumnElement[bool]:
    """Return the condition that a column has one of many values: one array on PostgreSQL, a list on SQLite."""
    if connection.dialect.name == "postgresql":
        return column == any_(literal(list(values), ARRAY(column.type)))
    return column.in_(values)


def batched(rows: Iterable[T], size: int = 10_000) -> Iterator[list[T]]:
    """Yield the rows in lists of `size`, the last one shorter; 10,000 fit into one statement on every database."""
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch
