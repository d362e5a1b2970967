"""Iceberg's namespaces: the databases of the catalog, and namespaces that only Iceberg has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, exists, insert, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import InstrumentedAttribute

from catalog.engine_tables.names import Namespace
from catalog.errors import (
    DatabaseAlreadyExistsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    InvalidRequestError,
)
from catalog.iceberg.pointers import CATALOG
from catalog.model import Database
from catalog.model.identifiers import text_properties
from catalog.settings.places import require_location
from catalog.storage import Storage
from catalog.storage.locks import hold
from catalog.storage.schema import DatabaseRow, IcebergNamespaceRow, IcebergTableRow
from catalog.tables.definitions import Definitions

_EXISTS = "exists"
"""The property that Iceberg's SQL catalogs store so that a namespace without properties has a row."""

_LOCATION, _COMMENT = "location", "comment"
_LOCK = "calve namespaces"


@dataclass(frozen=True)
class ChangedProperties:
    """The names of the properties that a change has set and removed, and of those that were not there to remove."""

    updated: Sequence[str]
    removed: Sequence[str]
    missing: Sequence[str]


class Namespaces:
    """The namespaces of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Set the storage, and the databases."""
        self._storage = storage
        self._definitions = definitions

    def inside(self, parent: Namespace | None = None) -> list[Namespace]:
        """Return the namespaces directly inside a namespace, or the outermost ones, by name.

        Raises:
            DatabaseNotFoundError: The parent does not exist.
        """
        with self._storage.read() as connection:
            if parent is not None:
                self.require(connection, parent)
            names = set(connection.scalars(select(DatabaseRow.name))) if parent is None else set[str]()
            for column, mark in ((IcebergNamespaceRow.namespace, _namespaces()), (_OF_TABLES, _tables())):
                query = select(column).where(mark).distinct()
                names |= set(connection.scalars(query if parent is None else query.where(_inside(column, parent))))
        depth = 1 if parent is None else parent.depth + 1
        found = {Namespace.from_stored(name).levels[:depth] for name in names}
        return [Namespace(levels, ".".join(levels)) for levels in sorted(found)]

    def create(self, namespace: Namespace, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Create a namespace, and those around it that do not exist; return its properties.

        Raises:
            DatabaseAlreadyExistsError: It exists.
            InvalidRequestError: A property is no string, or `location` is not allowed.
        """
        given = {name: value for name, value in text_properties(properties).items() if value is not None}
        for parent in namespace.parents:
            if not self.exists(parent):
                self._create(parent, {}, if_not_exists=True)
        self._create(namespace, given)
        return self.load(namespace)

    def _create(self, namespace: Namespace, properties: Mapping[str, str], *, if_not_exists: bool = False) -> None:
        refusal = DatabaseAlreadyExistsError(f"Namespace already exists: {namespace}; choose another name")
        if namespace.is_database:
            own = dict(properties)
            location, comment = own.pop(_LOCATION, None), own.pop(_COMMENT, None)
            try:
                self._definitions.create_database(
                    namespace.stored,
                    location=location,
                    description=comment,
                    properties=own,
                    if_not_exists=if_not_exists,
                )
            except DatabaseAlreadyExistsError:
                raise refusal from None
            return
        if location := properties.get(_LOCATION):
            require_location(location)
        try:
            with self._storage.write() as connection:
                hold(connection, _LOCK)
                if not self._exists(connection, namespace):
                    connection.execute(insert(IcebergNamespaceRow), _rows(namespace, {**properties, _EXISTS: "true"}))
                elif not if_not_exists:
                    raise refusal
        except IntegrityError:
            raise refusal from None

    def exists(self, namespace: Namespace) -> bool:
        """Return whether a namespace exists; one around an existing namespace or table does."""
        with self._storage.read() as connection:
            return self._exists(connection, namespace)

    def require(self, connection: Connection, namespace: Namespace) -> None:
        """Check that a namespace exists.

        Raises:
            DatabaseNotFoundError: It does not.
        """
        if not self._exists(connection, namespace):
            raise DatabaseNotFoundError(f"Namespace does not exist: {namespace}")

    def lock(self, connection: Connection, namespace: Namespace) -> None:
        """Check that a namespace exists, and keep it until the transaction ends.

        Raises:
            DatabaseNotFoundError: It does not.
        """
        if namespace.is_database:
            row = DatabaseRow.name
            connection.execute(select(row).where(row == namespace.stored).with_for_update(read=True))
        else:
            hold(connection, _LOCK, is_shared=True)
        self.require(connection, namespace)

    def _exists(self, connection: Connection, namespace: Namespace) -> bool:
        own = IcebergNamespaceRow.namespace
        conditions = [
            exists().where(_namespaces(), or_(_is(own, namespace), _inside(own, namespace))),
            exists().where(_tables(), or_(_is(_OF_TABLES, namespace), _inside(_OF_TABLES, namespace))),
        ]
        if namespace.is_database:
            conditions.append(exists().where(DatabaseRow.name == namespace.stored))
        return bool(connection.scalar(select(or_(*conditions))))

    def load(self, namespace: Namespace) -> Mapping[str, str]:
        """Return the properties of a namespace, with `location` and `comment`.

        Raises:
            DatabaseNotFoundError: It does not exist.
        """
        with self._storage.read() as connection:
            self.require(connection, namespace)
            stored = self._stored(connection, namespace)
        database = self._database(namespace)
        if database is None:
            return stored
        comment = {} if database.description is None else {_COMMENT: database.description}
        return {**stored, **database.properties, **comment, _LOCATION: database.location}

    def _database(self, namespace: Namespace) -> Database | None:
        if not namespace.is_database:
            return None
        try:
            return self._definitions.get_database(namespace.stored)
        except DatabaseNotFoundError:
            # An engine has made it with Iceberg's SQL catalog.
            return None

    @staticmethod
    def _stored(connection: Connection, namespace: Namespace) -> dict[str, str]:
        row = IcebergNamespaceRow
        query = select(row.property_key, row.property_value).where(_namespaces(), row.namespace == namespace.stored)
        return {name: value for name, value in connection.execute(query) if name != _EXISTS}

    def change(self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]) -> ChangedProperties:
        """Set and remove properties of a namespace.

        Raises:
            DatabaseNotFoundError: It does not exist.
            InvalidRequestError: A property is set and removed, is no string, or is the location of a database.
        """
        if both := sorted(updates.keys() & set(removals)):
            raise InvalidRequestError(f"cannot set and remove the same property: {', '.join(both)}; choose one")
        before = self.load(namespace)
        text_properties(updates)
        removed = [name for name in dict.fromkeys(removals) if name in before]
        missing = [name for name in dict.fromkeys(removals) if name not in before]
        if self._database(namespace) is not None:
            self._change_database(namespace, before, updates, removed)
        else:
            if location := updates.get(_LOCATION):
                require_location(location)
            with self._storage.write() as connection:
                hold(connection, _LOCK)
                self.require(connection, namespace)
                row = IcebergNamespaceRow
                gone = [*updates, *removed]
                named = _namespaces(), row.namespace == namespace.stored, row.property_key.in_(gone)
                connection.execute(delete(row).where(*named))
                if updates:
                    connection.execute(insert(row), _rows(namespace, updates))
        return ChangedProperties(list(updates), removed, missing)

    def _change_database(
        self, namespace: Namespace, before: Mapping[str, str], updates: Mapping[str, str], removed: Sequence[str]
    ) -> None:
        changes: dict[str, str | None] = {**updates, **dict.fromkeys(removed)}
        location = changes.pop(_LOCATION, before[_LOCATION])
        if location != before[_LOCATION]:
            raise InvalidRequestError(
                f"namespace {namespace} has the location {before[_LOCATION]}, which cannot change; give its tables "
                "locations of their own"
            )
        description = changes.pop(_COMMENT) or "" if _COMMENT in changes else None
        self._definitions.alter_database(namespace.stored, description=description, properties=changes)

    def drop(self, namespace: Namespace) -> None:
        """Drop a namespace.

        Raises:
            DatabaseNotFoundError: It does not exist.
            DatabaseNotEmptyError: It has tables, views or namespaces.
        """
        if self._database(namespace) is not None:
            try:
                self._definitions.drop_database(namespace.stored)
            except DatabaseNotEmptyError as error:
                raise DatabaseNotEmptyError(f"Namespace {namespace} is not empty: {error}") from error
            return
        with self._storage.write() as connection:
            hold(connection, _LOCK)
            self.require(connection, namespace)
            own, tables = IcebergNamespaceRow.namespace, _OF_TABLES
            inner = or_(
                exists().where(_namespaces(), _inside(own, namespace)),
                exists().where(_tables(), or_(_is(tables, namespace), _inside(tables, namespace))),
            )
            if connection.scalar(select(inner)):
                raise DatabaseNotEmptyError(
                    f"Namespace {namespace} is not empty: it has tables, views or namespaces; drop these first"
                )
            connection.execute(delete(IcebergNamespaceRow).where(_namespaces(), own == namespace.stored))


_OF_TABLES = IcebergTableRow.table_namespace


def _namespaces() -> ColumnElement[bool]:
    return IcebergNamespaceRow.catalog_name == CATALOG


def _tables() -> ColumnElement[bool]:
    return IcebergTableRow.catalog_name == CATALOG


def _is(column: InstrumentedAttribute[str], namespace: Namespace) -> ColumnElement[bool]:
    return column == namespace.stored


def _inside(column: InstrumentedAttribute[str], namespace: Namespace) -> ColumnElement[bool]:
    return column.startswith(f"{namespace.stored}.", autoescape=True)


def _rows(namespace: Namespace, properties: Mapping[str, str]) -> list[dict[str, str]]:
    names = {"catalog_name": CATALOG, "namespace": namespace.stored}
    return [{**names, "property_key": name, "property_value": value} for name, value in properties.items()]
