"""Bulk statements: COPY on PostgreSQL, one prepared statement on SQLite."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Executable,
    Integer,
    LargeBinary,
    Row,
    Select,
    Table,
    Tuple,
    any_,
    bindparam,
    delete,
    literal,
    select,
    text,
    tuple_,
)

from catalog.storage.engine import Storage
from catalog.storage.schema import Base

if TYPE_CHECKING:
    from sqlalchemy.orm import InstrumentedAttribute

BATCH = 10_000
"""Number of rows that fit into one statement on every database."""

_SHORT_SECONDS = 0.25
_GROWTH = 16

Key: TypeAlias = tuple[Any, ...]

T = TypeVar("T")


def insert_rows(
    connection: Connection, into: type[Base], columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert rows, with values in the order of `columns`, as one statement of the connection's transaction."""
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
    """Return `count` ascending ids that no other transaction gets."""
    if connection.dialect.name == "postgresql":
        query = text("SELECT nextval('calve_partition_id_seq') FROM generate_series(1, :count)")
        return connection.scalars(query, {"count": count}).all()
    first = (connection.scalar(text("SELECT seq FROM sqlite_sequence WHERE name = 'calve_partition'")) or 0) + 1
    return range(first, first + count)


def among(connection: Connection, column: InstrumentedAttribute[Any], values: Sequence[Any]) -> ColumnElement[bool]:
    """Return the condition that a column has one of many values: an array on PostgreSQL, a list on SQLite."""
    if connection.dialect.name == "postgresql":
        return column == any_(literal(list(values), ARRAY(column.type)))
    return column.in_(values)


def listed(dialect: str, name: str) -> str:
    """Return the SQL of a row source with a column `value`, one row per string of the named parameter."""
    return f"unnest(CAST(:{name} AS text[])) AS {name} (value)" if dialect == "postgresql" else f"json_each(:{name})"


def list_of_texts(connection: Connection, texts: Iterable[str]) -> list[str] | str:
    """Return the parameter value for `listed`."""
    return list(texts) if connection.dialect.name == "postgresql" else json.dumps(list(texts))


def batched(rows: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """Yield the rows in lists of `size`, the last one shorter."""
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one kind that belong to an owner.

    Attributes:
        owner: The column with the owner's id.
        order: Columns that identify a row among the owner's.
        returned: Columns of deleted rows that callers want to know.
    """

    row: type[Base]
    owner: InstrumentedAttribute[int]
    order: tuple[InstrumentedAttribute[Any], ...]
    returned: tuple[InstrumentedAttribute[Any], ...] = ()

    def delete_batch(
        self,
        connection: Connection,
        owner_id: int,
        after: Key | None = None,
        size: int = BATCH,
        *,
        then: Callable[[Connection, Sequence[Row[Any]]], None] | None = None,
    ) -> Key | None:
        """Delete the first rows after a key in the caller's transaction; return the last key, None if no rows are left.

        Args:
            then: Called in the transaction with the columns `returned` of the deleted rows.

        Continues after the last key, because deleted rows stay in the B-tree as long as an old snapshot may need them.
        """
        values = {"owner": owner_id, **_named("after", after)}
        end = connection.execute(_end_of_batch(self, after is None), {**values, "offset": size - 1}).one_or_none()
        last = None if end is None else tuple(end)
        deletion, bounds = _deletion(self, after is None, last is None), {**values, **_named("last", last)}
        deleted = connection.execute(deletion, bounds)
        if then is not None and self.returned:
            then(connection, deleted.all())
        return last

    def delete_all(
        self,
        storage: Storage,
        owner_id: int,
        turn: Select[Any],
        size: int = BATCH,
        *,
        then: Callable[[Connection, Sequence[Row[Any]]], None] | None = None,
    ) -> Iterator[None]:
        """Delete all rows, to which no others are added, in short transactions; yield after each.

        Args:
            turn: A row to lock in each transaction, so that concurrent callers take turns.
            size: Number of rows of the first transaction. It grows as long as transactions are short: the rows are
                spread over the indexes of other columns, whose pages each transaction writes again.
            then: See `delete_batch`.
        """
        after: Key | None = None
        least, largest = size, _GROWTH * size
        while True:
            start = time.monotonic()
            with storage.write() as connection:
                connection.execute(turn.with_for_update())
                after = self.delete_batch(connection, owner_id, after, size, then=then)
            is_short = time.monotonic() - start < _SHORT_SECONDS
            yield
            if after is None:
                return
            size = min(2 * size, largest) if is_short else max(size // 2, least)


def _named(name: str, key: Key | None) -> dict[str, Any]:
    return {f"{name}_{number}": value for number, value in enumerate(key or ())}


@cache
def _end_of_batch(rows: Rows, is_first: bool) -> Select[Any]:
    # Not for `owner = …`, for which PostgreSQL may walk over the rows of all other owners in another index.
    owner: BindParameter[int] = bindparam("owner")
    key = (rows.owner, *rows.order)
    first = rows.owner >= owner if is_first else tuple_(*key) > tuple_(owner, *_bound(rows, "after").clauses)
    query = select(*rows.order).where(first, rows.owner <= owner).order_by(*key)
    return query.offset(bindparam("offset")).limit(1)


@cache
def _deletion(rows: Rows, is_first: bool, is_last: bool) -> Executable:
    until = [] if is_last else [tuple_(*rows.order) <= _bound(rows, "last")]
    deletion = delete(rows.row).where(*_after(rows, is_first), *until)
    return deletion.returning(*rows.returned) if rows.returned else deletion


def _after(rows: Rows, is_first: bool) -> list[ColumnElement[bool]]:
    owned = rows.owner == bindparam("owner")
    return [owned] if is_first else [owned, tuple_(*rows.order) > _bound(rows, "after")]


def _bound(rows: Rows, name: str) -> Tuple:
    return tuple_(*(bindparam(f"{name}_{number}", type_=column.type) for number, column in enumerate(rows.order)))
