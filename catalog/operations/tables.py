"""The table of an operation: by its identity, or by its name until the table exists."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Exists,
    Label,
    ScalarSelect,
    SQLColumnExpression,
    exists,
    select,
    update,
)

from catalog.errors import OperationConflictError
from catalog.model.identifiers import TableName
from catalog.storage.locks import hold
from catalog.storage.schema import DatabaseRow, OperationRow, TableRow

_FULL_NAME = DatabaseRow.name + "." + TableRow.name


def find_table_id(connection: Connection, name: str) -> int | None:
    """Return the identity of the table of a name; None when there is none."""
    database, table = TableName.parse(name)
    query = select(TableRow.id).join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
    return connection.scalar(query.where(DatabaseRow.name == database, TableRow.name == table))


def current_name() -> Label[Any]:
    """Return a column for queries of operations: the current name of the table; null when it does not exist."""
    return name_of(OperationRow.table_id).label("current_name")


def name_of(table_id: SQLColumnExpression[Any]) -> ScalarSelect[Any]:
    """Return a subquery for the current name of the table with an id; null when it does not exist."""
    tables = select(_FULL_NAME).select_from(TableRow).join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
    return tables.where(TableRow.id == table_id).scalar_subquery()


def belongs_to(table_id: int | None, name: ColumnElement[str] | str) -> ColumnElement[bool]:
    """Return the condition that an operation belongs to a table, or to the name that it has or will have.

    Tables of former versions may share a location; their operations act on the same files, as if they were one table.
    """
    is_waiting = OperationRow.table_id.is_(None) & (OperationRow.table_name == name)
    if table_id is None:
        return is_waiting
    location = select(TableRow.location_key).where(TableRow.id == table_id).scalar_subquery()
    in_its_folder = select(TableRow.id).where(TableRow.location_key == location)
    return is_waiting | (OperationRow.table_id == table_id) | OperationRow.table_id.in_(in_its_folder)


def has_waiting(name: ColumnElement[str] | str) -> Exists:
    """Return the condition that operations wait for a table of a name, such as the load that will create it."""
    return exists().where(_waits_for(name))


def adopt_operations(connection: Connection, table_id: int, name: str) -> None:
    """Assign the operations that wait for a name, which the caller has locked, to the table that now has it."""
    connection.execute(update(OperationRow).where(_waits_for(name)).values(table_id=table_id))


def _waits_for(name: ColumnElement[str] | str) -> ColumnElement[bool]:
    return belongs_to(None, name) & OperationRow.state.in_(("PLANNED", "RUNNING", "FAILED"))


def refuse_awaited_name(connection: Connection, name: str) -> None:
    """Check that no operation holds a name under which it will create a table.

    Raises:
        OperationConflictError: One does.
    """
    hold_name(connection, name)
    is_running = OperationRow.is_exclusive & OperationRow.state.in_(("PLANNED", "RUNNING"))
    holder = connection.scalar(select(OperationRow.id).where(belongs_to(None, name), is_running).limit(1))
    if holder is not None:
        raise OperationConflictError(
            f"the name {name} is held by operation {holder}, which will create a table of this name; wait for it "
            f"to end, or cancel it: calve give-up '{holder}'",
            holder,
        )


def refuse_awaited_database(connection: Connection, name: str) -> None:
    """Check that no operation will create a table in a database, which the caller has locked.

    Raises:
        OperationConflictError: One will.
    """
    holder = connection.execute(
        select(OperationRow.id, OperationRow.table_name)
        .where(
            OperationRow.table_id.is_(None),
            OperationRow.table_name.startswith(f"{name}.", autoescape=True),
            OperationRow.is_exclusive,
            OperationRow.state.in_(("PLANNED", "RUNNING")),
        )
        .limit(1)
    ).one_or_none()
    if holder is not None:
        raise OperationConflictError(
            f"operation {holder.id} will create table {holder.table_name}, so database {name} stays; wait for it to "
            f"end, or cancel it: calve give-up '{holder.id}'",
            holder.id,
        )


def hold_name(connection: Connection, name: str) -> None:
    """Lock the operations on a name, which may have no table yet, until the transaction ends."""
    hold(connection, name_lock(name))


def name_lock(name: str) -> str:
    """Return the name of the lock of `hold_name`."""
    return f"calve:{name}"


def hold_operations(connection: Connection, table_id: int) -> None:
    """Lock the operations of a table until the transaction ends."""
    hold(connection, f"calve:#{table_id}")
