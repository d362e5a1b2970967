"""Entries of tables and views."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from catalog.doors.entries.databases import DatabaseMethods, matcher
from catalog.doors.entries.forms import entry_of, hive_table
from catalog.metastores.types import HiveTable
from catalog.model import Table
from catalog.model.identifiers import TableName, normalise_identifier


class TableMethods(DatabaseMethods):
    """Creation, change and drop of tables and views."""

    def table_names(self, database: str, pattern: str | None = None, kind: str | None = None) -> list[str]:
        """Return the names of a database's tables and views, sorted.

        Args:
            pattern: As for `matcher`.
            kind: Only tables of this type, for instance `VIRTUAL_VIEW`.

        Raises:
            DatabaseNotFoundError: The database does not exist.
        """
        matches = matcher(pattern)
        tables = (table for table in self.catalog.list_tables(database) if matches(table.name))
        return [table.name for table in tables if kind is None or hive_table(table).table_type == kind]

    def table(self, name: TableName) -> HiveTable:
        """Return a table or view.

        Raises:
            DatabaseNotFoundError, TableNotFoundError: It does not exist.
        """
        return hive_table(self._table(name))

    def tables(self, names: Iterable[TableName]) -> list[HiveTable]:
        """Return those of many tables that exist, in the order of the names."""
        wanted = [normalised(name) for name in names]
        found: dict[str, Table] = {}
        for database in dict.fromkeys(name.database for name in wanted):
            if any(known.name == database for known in self.catalog.list_databases()):
                found |= {table.full_name: table for table in self.catalog.list_tables(database)}
        return [hive_table(found[str(name)]) for name in dict.fromkeys(wanted) if str(name) in found]

    def create_table(self, given: HiveTable) -> HiveTable:
        """Create a table or view, and its folder.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table or view of this name exists.
            InvalidRequestError: A name, parameter or location is not allowed.
            LocationInUseError: The location overlaps that of another table.
        """
        given = replace(given, name=normalised(given.name))
        return hive_table(self.catalog.table_entries.create(given.name, entry_of(given)))

    def drop_table(self, name: TableName, *, delete_data: bool = False) -> None:
        """Drop a table with its partitions and indexes, or a view.

        Args:
            delete_data: Delete the files of a managed table.

        Raises:
            DatabaseNotFoundError, TableNotFoundError: It does not exist.
        """
        self.catalog.drop_table(str(normalised(name)), purge=delete_data)

    def _table(self, name: TableName) -> Table:
        return self.catalog.get_table(str(normalised(name)))


def normalised(name: TableName) -> TableName:
    """Return a name as Calve has it, in lower case.

    Raises:
        InvalidIdentifierError: It is not allowed.
    """
    return TableName(normalise_identifier(name.database, "database"), normalise_identifier(name.name, "table"))
