"""The base class of the handlers of all subjects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hive_metastore.ttypes import NoSuchObjectException

from catalog.catalog import Catalog
from catalog.doors.entries import Entries
from catalog.doors.entries.storages import qualified
from catalog.doors.hms.exceptions import MissingArgumentException
from catalog.doors.hms.names import CATALOG, DatabaseName, parse_database
from catalog.doors.serving.access import Client
from catalog.errors import InvalidIdentifierError
from catalog.metastores.types import HiveTable
from catalog.model.identifiers import DEFAULT_DATABASE, TableName, normalise_identifier

T = TypeVar("T")


class Base:
    """The catalog, and the names in calls.

    Attributes:
        user: The name that the client gives its user.
        is_of_release_4: Whether the client has made a call that Hive's clients make since release 4.
    """

    def __init__(self, catalog: Catalog, entries: Entries, client: Client) -> None:
        """Set the catalog, its entries, which all connections share, and the client of this connection."""
        self.catalog = catalog
        self.entries = entries
        self.client = client
        self.user = client.name
        self.is_of_release_4 = False

    @staticmethod
    def _given(value: T | None, what: str) -> T:
        """Return a value that a client must send.

        Raises:
            MissingArgumentException: It is missing.
        """
        if value is None:
            raise MissingArgumentException(what)
        return value

    @staticmethod
    def _database(text: str | None, catalog: str | None = None) -> str:
        """Return the name of a database.

        Args:
            text: As the client writes it.
            catalog: The catalog, where the protocol has a field for it.

        Raises:
            MissingArgumentException: It is missing.
            NoSuchObjectException: It is in another catalog than Hive's, or no database can have this name.
        """
        name = parse_database(text)
        name = DatabaseName(catalog or name.catalog, name.database)
        if name.database is None:
            raise MissingArgumentException("name of the database")
        if name.catalog.lower() != CATALOG:
            raise NoSuchObjectException(f"there is no catalog {name.catalog!r}; the only one is {CATALOG}")
        if not name.database:
            raise NoSuchObjectException("the name of the database is empty; send one")
        return _possible(name.database, "database")

    def _warehouse(self) -> str:
        """Return the folder in which databases are that are created without a location."""
        default = self.entries.database(DEFAULT_DATABASE)
        return qualified((default.location or "").rpartition("/")[0]) or ""

    def _table_name(self, database: str | None, table: str | None, catalog: str | None = None) -> TableName:
        """Return the name of a table.

        Raises:
            MetaException: The name of the database or of the table is missing.
            NoSuchObjectException: The catalog is not Hive's, a name is empty, or no table can have it.
        """
        known, name = self._database(database, catalog), self._given(table, "name of the table")
        if not name:
            raise NoSuchObjectException("the name of the table is empty; send one")
        return TableName(known, _possible(name, "table"))

    def _table(self, database: str | None, table: str | None, catalog: str | None = None) -> HiveTable:
        """Return a table.

        Raises:
            MetaException, NoSuchObjectException: As for `_table_name`.
            TableNotFoundError: It does not exist.
        """
        return self.entries.table(self._table_name(database, table, catalog))


def _possible(name: str, what: str) -> str:
    try:
        return normalise_identifier(name, what)
    except InvalidIdentifierError as error:
        raise NoSuchObjectException(f"there is no {what} {name!r}: {error}") from None


def key_names(table: HiveTable) -> Sequence[str]:
    """Return the names of a table's partition keys."""
    return [key.name for key in table.partition_keys]


def property_of(context: Any, name: str) -> str | None:
    """Return a property of an environment context, if there are any."""
    properties = getattr(context, "properties", None) or {}
    value: str | None = properties.get(name)
    return value
