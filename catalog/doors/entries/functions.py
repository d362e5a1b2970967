"""Functions that engines register, and their locks."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from catalog.doors.entries.statistics import StatisticsMethods
from catalog.metastores.types import HiveFunction
from catalog.operations.metastore_locks import MetastoreLocks
from catalog.tables.functions import Function

_FIELDS = tuple(field.name for field in fields(HiveFunction) if field.name not in ("database", "name"))


class FunctionMethods(StatisticsMethods):
    """Creation, change, look-up and drop of functions."""

    @property
    def locks(self) -> MetastoreLocks:
        """The locks of clients of the Hive Metastore's protocol."""
        return self.catalog.metastore_locks

    def create_function(self, given: HiveFunction) -> HiveFunction:
        """Register a function.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            FunctionAlreadyExistsError: It has a function of this name.
            InvalidIdentifierError: The name is not allowed.
        """
        return _read_back(self.catalog.functions.create(given.database, given.name, _stored(given)))

    def function(self, database: str, name: str) -> HiveFunction:
        """Return a function.

        Raises:
            DatabaseNotFoundError, FunctionNotFoundError: It does not exist.
        """
        return _read_back(self.catalog.functions.get(database, name))

    def functions(self, database: str | None = None) -> list[HiveFunction]:
        """Return the functions of one database, or of all, sorted by name.

        Raises:
            DatabaseNotFoundError: The database does not exist.
        """
        return [_read_back(known) for known in self.catalog.functions.list(database)]

    def alter_function(self, database: str, name: str, given: HiveFunction) -> HiveFunction:
        """Replace all that is known of a function, perhaps its database and name, too.

        Raises:
            DatabaseNotFoundError, FunctionNotFoundError: It does not exist.
            FunctionAlreadyExistsError: The new name is taken.
        """
        new_name = (given.database, given.name)
        return _read_back(self.catalog.functions.alter(database, name, new_name, _stored(given)))

    def drop_function(self, database: str, name: str) -> None:
        """Delete a function.

        Raises:
            DatabaseNotFoundError, FunctionNotFoundError: It does not exist.
        """
        self.catalog.functions.drop(database, name)


def _stored(given: HiveFunction) -> dict[str, Any]:
    return {name: value for name in _FIELDS if (value := getattr(given, name)) not in (None, (), {})}


def _read_back(stored: Function) -> HiveFunction:
    values = {"created_at": stored.created_at_ms // 1000, **stored.details}
    values["resources"] = tuple(map(tuple, values.get("resources", ())))
    return HiveFunction(database=stored.database, name=stored.name, **values)
