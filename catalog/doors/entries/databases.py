"""Entries of databases."""

from __future__ import annotations

from catalog.catalog import Catalog
from catalog.doors.entries.forms import database_of, hive_database
from catalog.doors.entries.iceberg import is_shown_as_iceberg
from catalog.engine_tables.names import Namespace
from catalog.errors import DatabaseNotEmptyError
from catalog.metastores.types import HiveDatabase
from catalog.model import Table, TableKind


def is_purgeable(table: Table) -> bool:
    """Return whether the files of a table are deleted with it; engines delete those of Iceberg tables themselves."""
    return table.kind is TableKind.MANAGED and not is_shown_as_iceberg(table)


class DatabaseMethods:
    """Creation, change and drop of databases."""

    def __init__(self, catalog: Catalog) -> None:
        """Set the catalog."""
        self.catalog = catalog

    def databases(self) -> list[HiveDatabase]:
        """Return the databases, sorted by name."""
        return [hive_database(database) for database in self.catalog.list_databases()]

    def database(self, name: str) -> HiveDatabase:
        """Return a database.

        Raises:
            DatabaseNotFoundError: It does not exist.
        """
        return hive_database(self.catalog.get_database(name))

    def create_database(self, given: HiveDatabase) -> HiveDatabase:
        """Create a database.

        Raises:
            DatabaseAlreadyExistsError: It exists.
            InvalidRequestError: Its name or its location is not allowed.
        """
        location = self.catalog.table_entries.database_folder(given.name, given.location)
        database = database_of(given, location)
        self.catalog.create_database(
            given.name,
            location=given.location,
            description=given.description,
            properties=given.parameters,
            details=database.details,
        )
        return self.database(given.name)

    def alter_database(self, name: str, given: HiveDatabase) -> HiveDatabase:
        """Replace all that an entry says of a database, except its name.

        A new location is for tables that are created later. Without a location or a time, the database keeps its own.

        Raises:
            DatabaseNotFoundError: It does not exist.
            InvalidRequestError: The location is not allowed.
        """
        before = self.database(name)
        location = before.location if given.location is None else given.location
        folder = self.catalog.table_entries.database_folder(name, location)
        return hive_database(self.catalog.table_entries.alter_database(name, database_of(given, folder)))

    def drop_database(self, name: str, *, cascade: bool = False, delete_data: bool = False) -> None:
        """Drop a database.

        Args:
            cascade: Drop its tables, too.
            delete_data: Delete the files of managed tables, as `drop_table` does, and the database's folder: inside the
                warehouse with all files that are left, elsewhere only if it is empty.

        Raises:
            DatabaseNotFoundError: It does not exist.
            DatabaseNotEmptyError: It has tables, and `cascade` is false; or engines have namespaces inside. Nothing was
                dropped.
        """
        database = self.catalog.get_database(name)
        if inside := self.catalog.iceberg.namespaces.inside(Namespace.of([database.name])):
            raise DatabaseNotEmptyError(
                f"database {database.name} has namespaces of engines, such as {inside[0].stored}; drop these first"
            )
        if cascade and delete_data:
            for table in self.catalog.list_tables(database.name):
                self.catalog.drop_table(table.full_name, purge=is_purgeable(table), all_files=True)
        self.catalog.drop_database(database.name, cascade=cascade)
        if delete_data:
            self.catalog.table_entries.delete_database_folder(database.location)
