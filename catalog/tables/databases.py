"""Storage of databases: create, change, drop, look up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.errors import (
    ConflictError,
    DatabaseAlreadyExistsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    InvalidConfigurationError,
)
from catalog.model import Database
from catalog.model.identifiers import normalise_identifier, text_properties
from catalog.operations.tables import refuse_awaited_database
from catalog.settings.places import require_location, require_root
from catalog.storage import Storage
from catalog.storage.schema import DatabaseRow, FunctionRow, TableRow
from catalog.tables.normalising import normalise_location
from catalog.tables.only_iceberg import delete_iceberg_views, delete_namespace_rows, refuse_iceberg_objects

_DATABASE = select(DatabaseRow.__table__).where(DatabaseRow.name == bindparam("database"))
_DATABASE_TO_CHANGE = _DATABASE.with_for_update()


class DatabaseDefinitions:
    """The databases of one catalog."""

    def __init__(self, storage: Storage, warehouse: str | None) -> None:
        """Set the storage and the folder for databases that have no location of their own."""
        self._storage = storage
        self._warehouse = warehouse

    def create_database(
        self,
        name: str,
        *,
        location: str | None = None,
        description: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> Database:
        """Create a database; see `Catalog.create_database`."""
        name = normalise_identifier(name, "database")
        if if_not_exists:
            # An existing database needs no warehouse.
            with suppress(DatabaseNotFoundError):
                return self.get_database(name)
        database = Database(
            name, self.database_folder(name, location), description, changed_properties({}, properties), details
        )
        try:
            with self._storage.write() as connection:
                connection.execute(
                    insert(DatabaseRow).values(
                        name=name,
                        location=database.location,
                        description=description,
                        properties=dict(database.properties),
                        details=details,
                    )
                )
        except IntegrityError:
            if if_not_exists:
                return self.get_database(name)
            raise DatabaseAlreadyExistsError(f"database {name} exists; choose another name") from None
        return database

    def database_folder(self, name: str, location: str | None) -> str:
        """Return the folder of a database for which a location is requested, or None for the default."""
        if location is None:
            return self.usual_location(name)
        location = require_root(normalise_location(location), "location")
        require_location(location)
        return location

    @property
    def warehouse(self) -> str | None:
        """The folder for databases that have no location of their own; None if there is none."""
        return self._warehouse

    def usual_location(self, name: str) -> str:
        """Return the location of a database or namespace that is created without one.

        Raises:
            InvalidConfigurationError: There is no warehouse.
        """
        if self._warehouse is None:
            raise InvalidConfigurationError(
                f"database {name} has no location and CALVE_WAREHOUSE is not set; set it to the folder of all data, or "
                "give the database a location"
            )
        return normalise_location(f"{self._warehouse.rstrip('/')}/{name}")

    def get_database(self, name: str) -> Database:
        """Return a database."""
        with self._storage.read() as connection:
            row = self._database_row(connection, normalise_identifier(name, "database"))
        return _database(row)

    def list_databases(self) -> list[Database]:
        """Return all databases by name."""
        with self._storage.read() as connection:
            rows = connection.execute(select(DatabaseRow.__table__).order_by(DatabaseRow.name)).all()
        return [_database(row) for row in rows]

    def alter_database(
        self, name: str, *, description: str | None = None, properties: Mapping[str, str | None] | None = None
    ) -> Database:
        """Change a database; see `Catalog.alter_database`."""
        name = normalise_identifier(name, "database")
        with self._storage.write() as connection:
            row = self._database_row(connection, name, lock=True)
            connection.execute(
                update(DatabaseRow)
                .where(DatabaseRow.id == row.id)
                .values(
                    description=row.description if description is None else description,
                    properties=changed_properties(row.properties, properties),
                )
            )
        return self.get_database(name)

    def drop_database(self, name: str, joined: Connection | None = None) -> None:
        """Drop a database without tables; see `Catalog.drop_database`.

        Args:
            joined: The caller's transaction, which has dropped the tables.
        """
        name = normalise_identifier(name, "database")
        with self._storage.write() if joined is None else nullcontext(joined) as connection:
            row = self._database_row(connection, name, lock=True)
            count = connection.scalar(select(func.count()).select_from(TableRow).where(TableRow.database_id == row.id))
            if count and joined is not None:
                raise ConflictError(f"a table of database {name} was created meanwhile; nothing was dropped, try again")
            if count:
                raise DatabaseNotEmptyError(
                    f"database {name} still has {count} table(s); drop them first, or all with the database: CASCADE"
                )
            if joined is not None:
                delete_iceberg_views(connection, name)
            refuse_iceberg_objects(connection, name)
            refuse_awaited_database(connection, name)
            self._drop_functions(connection, row, cascade=joined is not None)
            delete_namespace_rows(connection, name)
            connection.execute(delete(DatabaseRow).where(DatabaseRow.id == row.id))

    @staticmethod
    def _drop_functions(connection: Connection, database: Row[Any], *, cascade: bool) -> None:
        is_of_database = FunctionRow.database_id == database.id
        count = connection.scalar(select(func.count()).select_from(FunctionRow).where(is_of_database))
        if count and not cascade:
            raise DatabaseNotEmptyError(
                f"database {database.name} still has {count} function(s) that engines have registered; drop them "
                "first, or all with the database: CASCADE"
            )
        connection.execute(delete(FunctionRow).where(is_of_database))

    def database_id(self, connection: Connection, name: str) -> int:
        """Return the id of a database.

        Raises:
            DatabaseNotFoundError: It does not exist.
        """
        return int(self._database_row(connection, name).id)

    def database_location(self, connection: Connection, name: str) -> str:
        """Return the folder for tables of a database that have no location of their own."""
        return str(self._database_row(connection, name).location)

    @staticmethod
    def _database_row(connection: Connection, name: str, *, lock: bool = False) -> Row[Any]:
        query = _DATABASE_TO_CHANGE if lock else _DATABASE
        row = connection.execute(query, {"database": name}).one_or_none()
        if row is None:
            raise DatabaseNotFoundError(f"database {name} does not exist; create it first")
        return row


def changed_properties(properties: Mapping[str, str], changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return properties after a change; None removes a property."""
    changed = {**properties, **text_properties(changes)}
    return {name: value for name, value in changed.items() if value is not None}


def _database(row: Row[Any]) -> Database:
    return Database(row.name, row.location, row.description, row.properties, row.details)
