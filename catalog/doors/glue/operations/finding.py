"""Tables as operations look them up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from catalog.doors.entries.iceberg import metadata_of
from catalog.doors.glue.calls import Call, Door
from catalog.doors.glue.failures import not_found
from catalog.doors.glue.forms.tables import table_to_glue
from catalog.doors.glue.names import table_name
from catalog.errors import DatabaseNotFoundError, InvalidIdentifierError, NotFoundError, TableNotFoundError
from catalog.metastores.types import HiveTable
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.tables.table_versions import current_version

_VERSION_BITS = 62


class Found(NamedTuple):
    """A table: its definition, and its entry."""

    table: Table
    entry: HiveTable

    @property
    def is_iceberg(self) -> bool:
        """Return whether it is shown as an Iceberg table, which has no partitions in Glue."""
        return metadata_of(self.entry) is not None


def find_table(call: Call, database: str, name: str) -> Found:
    """Return a table or view.

    Raises:
        GlueError: It does not exist, or its database.
    """
    try:
        return found(call.door, call.door.catalog.get_table(str(table_name(database, name))))
    except TableNotFoundError:
        raise not_found(f"Table {name} not found.") from None
    except DatabaseNotFoundError:
        raise not_found(f"Database {database} not found.") from None


def found(door: Door, table: Table) -> Found:
    """Return a table with its entry."""
    return Found(table, door.entries.entry(table))


def find_many(call: Call, names: Sequence[TableName]) -> Iterator[Found]:
    """Yield those of many tables and views that exist and have names of Calve, in the order of the names."""
    own = {(table.database, table.name): table for table in call.door.catalog.table_entries.find(names)}
    for name in names:
        # Iceberg tables of engines are not among Calve's own.
        with suppress(NotFoundError, InvalidIdentifierError):
            table = own.get(name) or call.door.catalog.get_table(str(name))
            if name == (table.database, table.name):
                yield found(call.door, table)


def found_whole(door: Door, table: Table) -> Found:
    """Return a table of a list with its entry; lists have no columns of Iceberg tables that an engine has made."""
    if table.is_only_iceberg:
        with suppress(NotFoundError):
            table = door.catalog.get_table(table.full_name)
    return found(door, table)


def of_members(call: Call) -> Found:
    """Return the table that a request names by `DatabaseName` and `TableName`."""
    return find_table(call, call.members["DatabaseName"], call.members["TableName"])


def version_of(table: Found) -> str:
    """Return the `VersionId` of a table, which changes with each change of its definition.

    Versions are numbers from 1. Those of an Iceberg table are derived from its metadata file instead, also when another
    engine has committed it; its history is in Iceberg's metadata.
    """
    location = metadata_of(table.entry)
    if location is None:
        return version_id(current_version(table.table))
    digest = hashlib.blake2b(location.encode(), digest_size=8).digest()
    return str(int.from_bytes(digest) >> (64 - _VERSION_BITS))


def version_id(number: int) -> str:
    """Return the `VersionId` of a version of Calve, which begin with 0."""
    return str(number + 1)


def shown(door: Door, table: Found) -> dict[str, Any]:
    """Return the `Table` of Glue."""
    return table_to_glue(table.entry, door.catalog_id, version_of(table))
