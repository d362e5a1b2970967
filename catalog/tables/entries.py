"""Definitions of tables as metastores' protocols give them: with details that Calve itself does not use.

`details` is JSON that only the front doors read (`catalog.doors.entries`). It is stored in the transaction that creates
or changes the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, update

from catalog.files.folders import make_folders
from catalog.model import Buckets, Column, Database, FileFormat, Table, TableKind
from catalog.model.identifiers import TableName, normalise_identifier
from catalog.storage import Storage
from catalog.storage.schema import DatabaseRow, TableRow
from catalog.tables.definitions import Definitions
from catalog.tables.own_properties import check_own_properties

Details = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """A table or view as a protocol defines it, in Calve's terms.

    Attributes:
        location: None for the default folder, and for views.
        details: Returns the details of the table as it is stored.
    """

    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...] = ()
    format: FileFormat = FileFormat.PARQUET
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    kind: TableKind = TableKind.MANAGED
    description: str | None = None
    view_text: str | None = None
    buckets: Buckets | None = None
    details: Callable[[Table], Details]


class TableEntries:
    """Creates and changes tables by entries of metastores' protocols."""

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Set the storage and the definitions in it."""
        self._storage = storage
        self._definitions = definitions

    def create(self, name: TableName, entry: TableEntry) -> Table:
        """Create a table or view, with any columns and keys; make its folder.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table or view of this name exists.
            InvalidRequestError: A name, property or location is not allowed.
            LocationInUseError: The location overlaps that of another table.
            StorageError: The folder cannot be created.
        """
        check_own_properties(entry.properties)
        with self._storage.write() as connection:
            table = self._definitions.insert_table(
                connection,
                name,
                columns=entry.columns,
                partition_keys=entry.partition_keys,
                format=entry.format,
                location=entry.location,
                properties=entry.properties,
                kind=entry.kind,
                description=entry.description,
                view_text=entry.view_text,
                buckets=entry.buckets,
                is_recorded=True,
            )
            table = self._with_details(connection, table, entry)
            if not table.is_view:
                make_folders([table.location])
        return table

    @staticmethod
    def _with_details(connection: Connection, table: Table, entry: TableEntry) -> Table:
        details = dict(entry.details(table))
        connection.execute(update(TableRow).where(TableRow.id == table.id).values(details=details))
        return replace(table, details=details)

    def database_folder(self, name: str, location: str | None) -> str:
        """Return the folder of a database, as it is stored, for which a location is requested, or None for the default.

        Raises:
            InvalidRequestError: The name or the location is not allowed.
        """
        return self._definitions.database_folder(normalise_identifier(name, "database"), location)

    def alter_database(self, name: str, database: Database) -> Database:
        """Replace the location, description, properties and details of a database.

        Raises:
            DatabaseNotFoundError: It does not exist.
            LocationNotAllowedError: The new location is not allowed.
        """
        name = normalise_identifier(name, "database")
        before = self._definitions.get_database(name)
        location = before.location
        if database.location != location:
            location = self._definitions.database_folder(name, database.location)
        values = {
            "location": location,
            "description": database.description,
            "properties": dict(database.properties),
            "details": None if database.details is None else dict(database.details),
        }
        with self._storage.write() as connection:
            connection.execute(update(DatabaseRow).where(DatabaseRow.name == name).values(**values))
        return self._definitions.get_database(name)
