"""Functions of Hive that engines register in a database; Calve only keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.errors import DatabaseNotFoundError
from catalog.errors.definitions import FunctionAlreadyExistsError, FunctionNotFoundError
from catalog.model.identifiers import normalise_identifier
from catalog.storage import Storage
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import DatabaseRow, FunctionRow


@dataclass(frozen=True)
class Function:
    """A function.

    Attributes:
        details: JSON that only the front doors read.
    """

    database: str
    name: str
    details: Mapping[str, Any]
    created_at_ms: int


_FUNCTIONS = select(
    DatabaseRow.name.label("database"), FunctionRow.name, FunctionRow.details, FunctionRow.created_at_ms, FunctionRow.id
).join(DatabaseRow, FunctionRow.database_id == DatabaseRow.id)


class Functions:
    """The functions in one catalog."""

    def __init__(self, storage: Storage) -> None:
        """Use the catalog's database."""
        self._storage = storage

    def create(self, database: str, name: str, details: Mapping[str, Any]) -> None:
        """Register a function.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            FunctionAlreadyExistsError: The database has a function of this name.
            InvalidIdentifierError: The name is not allowed.
        """
        name = normalise_identifier(name, "function")
        try:
            with self._storage.write() as connection:
                values = {"name": name, "details": dict(details), "created_at_ms": CurrentMs()}
                connection.execute(insert(FunctionRow).values(database_id=_database_id(connection, database), **values))
        except IntegrityError:
            raise FunctionAlreadyExistsError(f"function {database}.{name} exists; choose another name") from None

    def get(self, database: str, name: str) -> Function:
        """Return a function.

        Raises:
            DatabaseNotFoundError, FunctionNotFoundError: It does not exist.
        """
        with self._storage.read() as connection:
            _database_id(connection, database)
            return self._function(connection, database, name)[0]

    def all(self, database: str | None = None) -> list[Function]:
        """Return the functions of a database, or of all, sorted by database and name."""
        query = _FUNCTIONS.order_by(DatabaseRow.name, FunctionRow.name)
        if database is not None:
            query = query.where(DatabaseRow.name == database.lower())
        with self._storage.read() as connection:
            return [Function(*row[:4]) for row in connection.execute(query)]

    def alter(self, database: str, name: str, to_database: str, new_name: str, details: Mapping[str, Any]) -> None:
        """Replace a function's details, and its name and database.

        Raises:
            DatabaseNotFoundError, FunctionNotFoundError: The function or the new database does not exist.
            FunctionAlreadyExistsError: Another function has the new name.
            InvalidIdentifierError: The new name is not allowed.
        """
        new_name = normalise_identifier(new_name, "function")
        try:
            with self._storage.write() as connection:
                _, number = self._function(connection, database, name)
                values = {"database_id": _database_id(connection, to_database), "name": new_name}
                change = update(FunctionRow).where(FunctionRow.id == number)
                connection.execute(change.values(details=dict(details), **values))
        except IntegrityError:
            raise FunctionAlreadyExistsError(f"function {to_database}.{new_name} exists; choose another name") from None

    def drop(self, database: str, name: str) -> None:
        """Remove a function.

        Raises:
            FunctionNotFoundError: It does not exist.
        """
        with self._storage.write() as connection:
            _, number = self._function(connection, database, name)
            connection.execute(delete(FunctionRow).where(FunctionRow.id == number))

    @staticmethod
    def _function(connection: Connection, database: str, name: str) -> tuple[Function, int]:
        query = _FUNCTIONS.where(DatabaseRow.name == database.lower(), FunctionRow.name == name.lower())
        row = connection.execute(query).one_or_none()
        if row is None:
            raise FunctionNotFoundError(f"function {database}.{name} does not exist")
        return Function(*row[:4]), row.id


def _database_id(connection: Connection, database: str) -> int:
    number = connection.scalar(select(DatabaseRow.id).where(DatabaseRow.name == database.lower()))
    if number is None:
        raise DatabaseNotFoundError(f"database {database} does not exist; create it first")
    return number
