"""Entries of Iceberg's catalog: which tables and views exist, their names, renames and drops."""

from __future__ import annotations

from typing import Any, Protocol
from uuid import uuid4

from sqlalchemy import Connection

from catalog.engine_tables.claims import own_id
from catalog.engine_tables.model import Loaded
from catalog.engine_tables.names import Identifier, Namespace
from catalog.engine_tables.namespaces import Namespaces
from catalog.engine_tables.places import place_of
from catalog.errors import ConflictError, InvalidRequestError, TableAlreadyExistsError, TableNotFoundError
from catalog.iceberg.documents.files import read_document
from catalog.iceberg.documents.tables import normalised
from catalog.iceberg.pointers import Entry, delete_pointer, find_entry, list_names, rename_pointer
from catalog.model import FileFormat, Table, TableType
from catalog.operations.confirmation import Confirmation
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind
from catalog.operations.tables import name_lock, refuse_awaited_name
from catalog.storage import Storage
from catalog.storage.locks import hold
from catalog.tables.definitions import Definitions
from catalog.tables.dropping import finish_drop
from catalog.tables.own_files import PurgedFiles
from catalog.tables.ownership import LOCATIONS

_ATTEMPTS = 10


class OwnTables(Protocol):
    """The methods of `Catalog` for its own tables."""

    def drop_table(self, name: str, *, purge: bool = False) -> PurgedFiles:
        """Drop it; see `Catalog.drop_table`."""

    def alter_table(self, name: str, *, rename_to: str | None = None) -> object:
        """Rename it; see `Catalog.alter_table`."""


class EngineEntries:
    """The tables and views of one catalog, as engines see them."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations, own: OwnTables) -> None:
        """Set the storage, the journal, and the methods for tables that Calve itself manages."""
        self.namespaces = Namespaces(storage, definitions)
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._own = own

    # --- Reading ------------------------------------------------------------------------------------------------------

    def names(
        self, namespace: Namespace, *, is_view: bool = False, after: str | None = None, limit: int | None = None
    ) -> list[str]:
        """Return the names of the tables or views of a namespace, in order.

        Args:
            after: Only those after this name.

        Raises:
            DatabaseNotFoundError: The namespace does not exist.
        """
        with self._storage.read() as connection:
            self.namespaces.require(connection, namespace)
            return list_names(connection, namespace.stored, is_view=is_view, after=after, limit=limit)

    def exists(self, identifier: Identifier, *, is_view: bool = False) -> bool:
        """Return whether a table or view exists."""
        with self._storage.read() as connection:
            entry = find(connection, identifier)
        return entry is not None and entry.is_view is is_view

    def location(self, identifier: Identifier, *, is_view: bool = False) -> str:
        """Return the location of a table's or view's current metadata.

        Raises:
            TableNotFoundError: It does not exist.
        """
        with self._storage.read() as connection:
            entry = find(connection, identifier)
        if entry is None or entry.is_view is not is_view:
            raise _not_found(identifier, is_view=is_view)
        return entry.location

    def load(self, identifier: Identifier, *, is_view: bool = False) -> Loaded:
        """Return a table or view.

        Raises:
            TableNotFoundError: It does not exist.
            StorageError: Its metadata cannot be read.
            InvalidTableError: Its metadata are of an unknown version, or damaged.
        """
        location = self.location(identifier, is_view=is_view)
        document = read_document(location)
        return Loaded(location, document if is_view else normalised(document))

    def _refuse_taken(self, connection: Connection, identifier: Identifier, *, is_view: bool) -> None:
        entry = find(connection, identifier)
        if entry is None:
            if self._is_own(connection, identifier):
                raise TableAlreadyExistsError(
                    f"Table already exists: {identifier}; it is a table of Calve that is no Iceberg table. Choose "
                    "another name"
                )
            return
        if entry.is_view is is_view:
            raise TableAlreadyExistsError(f"{_label(is_view)} already exists: {identifier}; choose another name")
        raise TableAlreadyExistsError(
            f"{_label(entry.is_view)} with same name already exists: {identifier}; choose another name"
        )

    @staticmethod
    def _is_own(connection: Connection, identifier: Identifier) -> bool:
        """Return whether Calve itself manages a table or view of this name."""
        return own_id(connection, identifier) is not None

    # --- Renames and drops --------------------------------------------------------------------------------------------

    def rename(self, source: Identifier, target: Identifier, *, is_view: bool = False) -> None:
        """Rename a table or view, also into another namespace.

        Raises:
            TableNotFoundError: It does not exist.
            DatabaseNotFoundError: The new namespace does not exist.
            TableAlreadyExistsError: A table or view has the new name.
            InvalidRequestError: Calve manages the table, and does not rename it like this.
        """
        with self._storage.write() as connection:
            entry = find(connection, source)
            if entry is None or entry.is_view is not is_view:
                raise _not_found(source, is_view=is_view)
            self.namespaces.lock(connection, target.namespace)
            hold(connection, LOCATIONS, name_lock(f"{target.namespace.stored}.{target.name}"))
            taken = find(connection, target)
            if taken is not None or self._is_own(connection, target):
                kind = _label(taken is not None and taken.is_view)
                raise TableAlreadyExistsError(f"Cannot rename {source} to {target}. {kind} already exists")
            if not self._is_own(connection, source):
                if target.table is not None:
                    refuse_awaited_name(connection, str(target.table))
                new_database = target.namespace.stored
                if not rename_pointer(
                    connection, entry.database, entry.name, target.name, new_database=new_database, is_view=is_view
                ):
                    # Another client has dropped or renamed it meanwhile.
                    raise _not_found(source, is_view=is_view)
                return
        self._rename_own(source, target)

    def _rename_own(self, source: Identifier, target: Identifier) -> None:
        if target.namespace != source.namespace or target.table is None:
            raise InvalidRequestError(
                f"table {source} is managed by Calve and cannot become {target}; choose a plain name in its namespace"
            )
        self._own.alter_table(str(source.table), rename_to=target.name)

    def drop(self, identifier: Identifier, *, purge: bool = False, is_view: bool = False) -> PurgedFiles:
        """Drop a table or view; one that Calve manages with all that belongs to it, as DROP TABLE does.

        Args:
            purge: Also delete the files in the table's folder that its metadata name, and that no other table reaches.

        Raises:
            TableNotFoundError: It does not exist.
            FilesNotDeletedError: It is dropped, but files could not be deleted.
            CatalogError: As for `Catalog.drop_table`.
        """
        if not is_view and self.exists(identifier):
            with self._storage.read() as connection:
                is_own = self._is_own(connection, identifier)
            if is_own:
                return self._own.drop_table(str(identifier.table), purge=purge)
        return self.drop_engines(identifier, purge=purge, is_view=is_view)

    def drop_engines(
        self,
        identifier: Identifier,
        *,
        purge: bool = False,
        is_view: bool = False,
        confirmation: Confirmation | None = None,
    ) -> PurgedFiles:
        """Drop a table or view that only engines manage; see `drop`.

        Args:
            confirmation: Asked before a purge.
        """
        for _ in range(_ATTEMPTS):
            location = self.location(identifier, is_view=is_view)
            folder = place_of(location) if purge and not is_view else None
            with self._storage.write() as connection:
                names = identifier.namespace.stored, identifier.name
                operation = None
                if folder is not None and identifier.table is not None and confirmation is not None:
                    confirmation.drop_table(self._definitions.get_table(identifier.table, connection))
                if not delete_pointer(connection, *names, location, is_view=is_view):
                    continue
                if folder is not None:
                    operation = self._journal(connection, identifier, location, folder)
            return PurgedFiles() if operation is None else finish_drop(self._storage, self._operations, operation)
        raise ConflictError(f"{identifier}: other commits came first {_ATTEMPTS} times; try again later")

    def _journal(self, connection: Connection, identifier: Identifier, location: str, folder: str) -> Operation:
        table = Table(
            identifier.namespace.stored,
            identifier.name,
            (),
            (),
            FileFormat.PARQUET,
            folder,
            table_type=TableType.ICEBERG,
        )
        request: dict[str, Any] = {"location": None, "index_ids": [], "metadata_location": location, "folder": folder}
        operation_id = f"drop-{identifier}-{uuid4().hex}"
        return self._operations.record(connection, operation_id, OperationKind.DROP_TABLE, table, request)


def find(connection: Connection, identifier: Identifier) -> Entry | None:
    """Return the entry of a table or view; None when there is none."""
    return find_entry(connection, identifier.namespace.stored, identifier.name)


def _label(is_view: bool) -> str:
    return "View" if is_view else "Table"


def _not_found(identifier: Identifier, *, is_view: bool) -> TableNotFoundError:
    return TableNotFoundError(f"{_label(is_view)} does not exist: {identifier}")
