"""Functions that engines register in a metastore; Calve keeps them, and calls none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.errors import FunctionAlreadyExistsError, FunctionNotFoundError
from catalog.model.identifiers import normalise_identifier
from catalog.storage import Storage
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import DatabaseRow, FunctionRow
from catalog.tables.definitions import Definitions


class Function(NamedTuple):
    """A function; `details` is JSON that only the front doors read."""

    database: str
    name: str
    details: Mapping[str, Any]
    created_at_ms: int


class Functions:
    """The functions in one catalog. Their names are lower case."""

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Set the storage and the definitions in it."""
        self._storage = storage
        self._definitions = definitions

    def create(self, database: str, name: str, details: Mapping[str, Any]) -> Function:
        """Register a function.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            FunctionAlreadyExistsError: It has a function of this name.
            InvalidIdentifierError: The name is not allowed.
        """
        database, name = _normalised(database, name)
        with self._storage.write() as connection:
            number = self._definitions.database_id(connection, database)
            values = {"database_id": number, "name": name, "details": dict(details), "created_at_ms": CurrentMs()}
            try:
                connection.execute(insert(FunctionRow).values(**values))
            except IntegrityError:
                raise _taken(database, name) from None
        return self.get(database, name)

    def get(self, database: str, name: str) -> Function:
        """Return a function.

        Raises:
            DatabaseNotFoundError, FunctionNotFoundError: It does not exist.
        """
        database, name = _normalised(database, name)
        with self._storage.read() as connection:
            number = self._definitions.database_id(connection, database)
            row = connection.execute(
                _OF_DATABASE.where(DatabaseRow.id == number, FunctionRow.name == name)
            ).one_or_none()
        if row is None:
            raise _missing(database, name)
        return Function(*row)

    def list(self, database: str | None = None) -> list[Function]:
        """Return the functions of one database, or of all, sorted by name.

        Raises:
            DatabaseNotFoundError: The database does not exist.
        """
        query = _OF_DATABASE.order_by(DatabaseRow.name, FunctionRow.name)
        with self._storage.read() as connection:
            if database is not None:
                number = self._definitions.database_id(connection, normalise_identifier(database, "database"))
                query = query.where(DatabaseRow.id == number)
            return [Function(*row) for row in connection.execute(query)]

    def alter(self, database: str, name: str, new_name: tuple[str, str], details: Mapping[str, Any]) -> Function:
        """Replace what is known of a function, perhaps its database and name, too.

        Raises:
            DatabaseNotFoundError, FunctionNotFoundError: It does not exist.
            FunctionAlreadyExistsError: The new name is taken.
        """
        database, name = _normalised(database, name)
        target = _normalised(*new_name)
        with self._storage.write() as connection:
            is_function = self._is_function(connection, database, name)
            values = {"database_id": self._definitions.database_id(connection, target[0]), "name": target[1]}
            try:
                changed = connection.execute(
                    update(FunctionRow).where(*is_function).values(**values, details=dict(details))
                )
            except IntegrityError:
                raise _taken(*target) from None
            if not changed.rowcount:
                raise _missing(database, name)
        return self.get(*target)

    def drop(self, database: str, name: str) -> None:
        """Delete a function.

        Raises:
            DatabaseNotFoundError, FunctionNotFoundError: It does not exist.
        """
        database, name = _normalised(database, name)
        with self._storage.write() as connection:
            if not connection.execute(
                delete(FunctionRow).where(*self._is_function(connection, database, name))
            ).rowcount:
                raise _missing(database, name)

    def _is_function(self, connection: Connection, database: str, name: str) -> tuple[Any, ...]:
        return FunctionRow.database_id == self._definitions.database_id(connection, database), FunctionRow.name == name


_OF_DATABASE = select(DatabaseRow.name, FunctionRow.name, FunctionRow.details, FunctionRow.created_at_ms).join(
    FunctionRow, FunctionRow.database_id == DatabaseRow.id
)


def _normalised(database: str, name: str) -> tuple[str, str]:
    return normalise_identifier(database, "database"), normalise_identifier(name, "function")


def _missing(database: str, name: str) -> FunctionNotFoundError:
    return FunctionNotFoundError(f"function {database}.{name} does not exist")


def _taken(database: str, name: str) -> FunctionAlreadyExistsError:
    return FunctionAlreadyExistsError(f"function {database}.{name} exists; choose another name, or drop it first")
