"""Tables as Glue describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.doors.entries.kept import COLUMN_PARAMETERS, GLUE
from catalog.doors.glue.forms.storages import (
    column_parameters,
    columns_from_glue,
    columns_to_glue,
    storage_from_glue,
    storage_to_glue,
)
from catalog.doors.glue.names import to_glue
from catalog.metastores.types import HiveTable
from catalog.model.identifiers import TableName

UPDATED = "UpdateTime"
_LOCATION = "Location"
_OWN_FIELDS = ("LastAnalyzedTime", "TargetTable", "FederatedTable", "ViewDefinition")


def table_from_glue(given: Mapping[str, Any], name: TableName, updated_at: int | None = None) -> HiveTable:
    """Return the entry of a table, given a `TableInput`.

    Args:
        name: Calve's spelling of its name.
        updated_at: The time of the update, in seconds since 1970 UTC; None for a new table.
    """
    storage = given.get("StorageDescriptor", {})
    columns, keys = storage.get("Columns", ()), given.get("PartitionKeys", ())
    own = {field: given[field] for field in _OWN_FIELDS if field in given}
    if storage.get(_LOCATION) == "":
        own[_LOCATION] = ""
    if parameters := column_parameters(columns, keys):
        own[COLUMN_PARAMETERS] = parameters
    if updated_at is not None:
        own[UPDATED] = updated_at
    return HiveTable(
        name=name,
        table_type=given.get("TableType"),
        columns=columns_from_glue(columns),
        partition_keys=columns_from_glue(keys),
        storage=storage_from_glue(storage, with_columns=False),
        location=storage.get(_LOCATION) or None,
        parameters=given.get("Parameters", {}),
        description=given.get("Description"),
        view_text=given.get("ViewExpandedText"),
        original_view_text=given.get("ViewOriginalText"),
        owner=given.get("Owner"),
        retention=given.get("Retention", 0),
        accessed_at=int(given.get("LastAccessTime", 0)),
        extra={GLUE: own} if own else {},
    )


def table_to_glue(table: HiveTable, catalog_id: str, version_id: str) -> dict[str, Any]:
    """Return the `Table` of an entry; without an update by a client of Glue, its `UpdateTime` is that of its creation.

    Args:
        version_id: Its `VersionId`.
    """
    own = dict(table.extra.get(GLUE, {}))
    parameters = own.pop(COLUMN_PARAMETERS, {})
    # A table has a folder, also if none was given; a view has none.
    given_location = own.pop(_LOCATION, None)
    location = given_location if table.location is None else table.location
    shown: dict[str, Any] = {
        "Name": to_glue(table.name.name),
        "DatabaseName": to_glue(table.name.database),
        "Description": table.description,
        "Owner": table.owner,
        "CreateTime": table.created_at,
        UPDATED: table.created_at,
        "LastAccessTime": table.accessed_at or None,
        "Retention": table.retention,
        "StorageDescriptor": storage_to_glue(table.storage, table.columns, location, parameters),
        "PartitionKeys": columns_to_glue(table.partition_keys, parameters),
        "ViewOriginalText": table.original_view_text,
        "ViewExpandedText": table.view_text,
        "TableType": table.table_type,
        "Parameters": dict(table.parameters),
        **own,
        "IsRegisteredWithLakeFormation": False,
        "CatalogId": catalog_id,
        "VersionId": version_id,
    }
    return {name: value for name, value in shown.items() if value is not None}
