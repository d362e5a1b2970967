"""Former definitions of tables that a metastore's protocol has changed, as Glue's table versions show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from catalog.errors import TableNotFoundError
from catalog.model import Table
from catalog.storage import Storage
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import TableVersionRow

VERSION = "version"
"""The field of a table's `details` with the number of its current version; 0 without it."""

OWN = "own"
"""The field of `details` of a table that no protocol has defined; other tables without details have none."""

KEPT = 1_000
"""The number of former versions that a table keeps at most."""


def current_version(table: Table) -> int:
    """Return the number of the current version of a table."""
    return int((table.details or {}).get(VERSION, 0))


def details_of_change(table: Table) -> dict[str, Any]:
    """Return the details of a table after a change of its definition by Calve itself, which is its next version."""
    details = {OWN: True} if table.details is None else table.details
    return {**details, VERSION: current_version(table) + 1}


def is_own(table: Table) -> bool:
    """Return whether no protocol has defined the table as it is."""
    return table.details is None or OWN in table.details


def add_version(connection: Connection, table: Table, entry: Mapping[str, Any] | None) -> int:
    """Keep the definition of a table that the caller has locked exclusively; return the number of the next version.

    Args:
        entry: None to keep nothing.
    """
    number, row = current_version(table), TableVersionRow
    if entry is None:
        return number + 1
    values = {"table_id": table.id, "number": number, "entry": dict(entry), "replaced_at_ms": CurrentMs()}
    connection.execute(insert(row).values(**values))
    connection.execute(delete(row).where(row.table_id == table.id, row.number <= number - KEPT))
    return number + 1


class TableVersions:
    """The former versions of tables."""

    def __init__(self, storage: Storage) -> None:
        """Set the storage."""
        self._storage = storage

    def list(self, table: Table) -> dict[int, tuple[Mapping[str, Any], int]]:
        """Return the former versions of a table: number → (entry, time of its replacement in ms), the newest first."""
        row = TableVersionRow
        query = select(row.number, row.entry, row.replaced_at_ms).where(row.table_id == table.id)
        with self._storage.read() as connection:
            rows = connection.execute(query.order_by(row.number.desc())).all()
        return {version.number: (version.entry, version.replaced_at_ms) for version in rows}

    def delete(self, table: Table, number: int) -> None:
        """Delete a former version.

        Raises:
            TableNotFoundError: There is no such version.
        """
        row = TableVersionRow
        with self._storage.write() as connection:
            deleted = connection.execute(delete(row).where(row.table_id == table.id, row.number == number))
            if not deleted.rowcount:
                raise TableNotFoundError(f"table {table.full_name} has no former version {number}")
