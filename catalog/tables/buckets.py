"""The stored form of a table's buckets, Hive's CLUSTERED BY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catalog.errors import InvalidTableError
from catalog.model import Buckets, Column, Table
from catalog.model.identifiers import normalise_identifier


def buckets_from_json(stored: Mapping[str, Any] | None) -> Buckets | None:
    """Return the buckets of the JSON form of `buckets_json`."""
    return None if stored is None else Buckets(tuple(stored["columns"]), stored["count"])


def renamed_buckets(table: Table, columns: Sequence[Column]) -> dict[str, Any] | None:
    """Return the JSON form of a table's buckets after its columns were renamed."""
    if table.buckets is None:
        return None
    ids = {column.name: column.id for column in table.columns}
    names = {column.id: column.name for column in columns}
    return {"columns": [names[ids[name]] for name in table.buckets.columns], "count": table.buckets.count}


def buckets_json(table: str, columns: Sequence[Column], buckets: Buckets | None) -> dict[str, Any] | None:
    """Return the JSON form of buckets, or None without buckets.

    Raises:
        InvalidTableError: The number of buckets or of their columns is 0, or a column is unknown.
    """
    if buckets is None:
        return None
    names = [normalise_identifier(name, "column") for name in buckets.columns]
    known = [column.name for column in columns]
    if unknown := [name for name in names if name not in known]:
        raise InvalidTableError(
            f"table {table} is bucketed by {', '.join(unknown)}, but its columns are {', '.join(known)}"
        )
    if not names or buckets.count < 1:
        raise InvalidTableError(
            f"table {table} has {buckets.count} buckets of the columns ({', '.join(names)}); set at least one bucket "
            "and one column"
        )
    return {"columns": names, "count": buckets.count}
