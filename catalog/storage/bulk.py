"""Many rows at once: COPY on PostgreSQL, one prepared statement on SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Select,
    Table,
    any_,
    delete,
    literal,
    select,
    text,
    tuple_,
)
from sqlalchemy.orm import InstrumentedAttribute

from catalog.storage.engine import Storage
from catalog.storage.schema import Base

Key: TypeAlias = tuple[Any, ...]

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


@dataclass(frozen=True)
class Rows:
    """Rows that go together: those of `row` that meet a condition, in the order of columns that tell them apart."""

    row: type[Base]
    condition: ColumnElement[bool]
    order: tuple[InstrumentedAttribute[Any], ...]

    def delete_batch(self, connection: Connection, after: Key | None = None, size: int = 10_000) -> Key | None:
        """Delete the first rows after a key in the caller's transaction; return the last one's, None if none is left.

        Not from the first row each time: what is deleted stays in the B-tree as long as an old reader may need it.
        """
        key = tuple_(*self.order)
        left = [self.condition, *([] if after is None else [key > after])]
        end = connection.execute(select(*self.order).where(*left).order_by(*self.order).offset(size - 1).limit(1))
        last = end.one_or_none()
        batch = left if last is None else [*left, key <= tuple(last)]
        connection.execute(delete(self.row).where(*batch))
        return None if last is None else tuple(last)

    def delete_all(self, storage: Storage, turn: Select[Any], size: int = 10_000) -> Iterator[None]:
        """Delete the rows, which nobody adds to, a short transaction at a time; yield after each.

        Args:
            turn: A row that is locked for each transaction, so that several who do the same take turns.
        """
        after: Key | None = None
        while True:
            with storage.write() as connection:
                connection.execute(turn.with_for_update())
                after = self.delete_batch(connection, after, size)
            yield
            if after is None:
                return
