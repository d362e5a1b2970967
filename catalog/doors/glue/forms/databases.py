"""Databases and functions as Glue describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.doors.entries.kept import GLUE
from catalog.doors.glue.names import to_glue
from catalog.metastores.types import HiveDatabase

NO_LOCATION = "NoLocationUri"
"""The field that marks a database which was created without a location: Glue shows none, Calve has the default."""

_OWN_FIELDS = ("CreateTableDefaultPermissions", "TargetDatabase", "FederatedDatabase")


def database_from_glue(given: Mapping[str, Any], name: str) -> HiveDatabase:
    """Return the entry of a database, given a `DatabaseInput`.

    Args:
        name: Calve's spelling of its name.
    """
    own: dict[str, Any] = {field: given[field] for field in _OWN_FIELDS if field in given}
    location = given.get("LocationUri") or None
    if location is None:
        own[NO_LOCATION] = True
    return HiveDatabase(
        name,
        location,
        given.get("Description"),
        given.get("Parameters", {}),
        extra={GLUE: own} if own else {},
    )


def database_to_glue(database: HiveDatabase, catalog_id: str) -> dict[str, Any]:
    """Return the `Database` of an entry."""
    own = dict(database.extra.get(GLUE, {}))
    is_default = own.pop(NO_LOCATION, False)
    shown: dict[str, Any] = {
        "Name": to_glue(database.name),
        "Description": database.description,
        "LocationUri": None if is_default else database.location,
        "Parameters": dict(database.parameters),
        "CreateTime": database.created_at,
        **own,
        "CatalogId": catalog_id,
    }
    return {name: value for name, value in shown.items() if value is not None}
