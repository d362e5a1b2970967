"""The methods of `Catalog` for databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.catalog.tables import TableMethods
from catalog.model import Database, Table
from catalog.operations.failpoints import Point, reached


class DatabaseMethods(TableMethods):
    """Creation, change and drop of databases."""

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
        """Create a database.

        Args:
            location: Folder for its tables; by default `<warehouse>/<name>`.
            if_not_exists: Return an existing database, unchanged.
            details: As in `Database`.

        Raises:
            DatabaseAlreadyExistsError: It exists, and `if_not_exists` is false.
            InvalidIdentifierError: The name is not allowed.
            InvalidConfigurationError: Neither a location nor a warehouse is set.
        """
        return self._definitions.create_database(
            name,
            location=location,
            description=description,
            properties=properties,
            if_not_exists=if_not_exists,
            details=details,
        )

    def get_database(self, name: str) -> Database:
        """Return a database.

        Raises:
            DatabaseNotFoundError: It does not exist.
        """
        return self._definitions.get_database(name)

    def list_databases(self) -> list[Database]:
        """Return all databases, sorted by name."""
        return self._definitions.list_databases()

    def alter_database(
        self, name: str, *, description: str | None = None, properties: Mapping[str, str | None] | None = None
    ) -> Database:
        """Change a database's description or some of its properties; None removes a property.

        Raises:
            DatabaseNotFoundError: It does not exist.
        """
        return self._definitions.alter_database(name, description=description, properties=properties)

    def drop_database(self, name: str, *, cascade: bool = False) -> list[Table]:
        """Drop a database; its folder stays.

        Args:
            cascade: Drop its tables and views, too, in the same transaction, with the views of engines; their files
                stay, as with `drop_table` without PURGE. After the commit, rows of large tables are deleted in short
                transactions; `vacuum` finishes interrupted deletions.

        Returns:
            The dropped tables and views.

        Raises:
            DatabaseNotFoundError: It does not exist.
            DatabaseNotEmptyError: It has tables, and `cascade` is false.
            ConflictError: An operation is changing one of the tables, or a table was created meanwhile; nothing was
                dropped.
        """
        if not cascade:
            self._definitions.drop_database(name)
            return []
        from catalog.datafiles.publishing import delete_metadata
        from catalog.tables.dropping import finish_drop

        with self.storage.write() as connection:
            # Tables first, as transactions do that change a table and its name.
            tables = [
                self._definitions.lock_table(connection, table, exclusive=True, or_iceberg=True)
                for table in self._definitions.list_tables(name, connection)
            ]
            drops = [self._drop_table(connection, table, with_files=False) for table in tables]
            self._definitions.drop_database(name, connection)
        reached(Point.COMMITTED)
        for drop in drops:
            if drop.has_metadata_only:
                delete_metadata(drop.table)
            if drop.operation_id is not None:
                finish_drop(self.storage, self.operations, self.operations.get(drop.operation_id))
        return tables
