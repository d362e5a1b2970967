"""Conversion between Calve's definitions of databases and tables and the entries of metastores.

What Calve's definition of a table says is not stored twice: `details` has only those fields of an entry that differ
from the usual entry of the definition, each with the usual value. When Calve changes the definition later, and with it
the usual value, the stored one is outdated, and no longer used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from catalog.doors.entries.csv_tables import CSV_STORAGE, csv_format, is_calves, served, without_added
from catalog.doors.entries.storages import (
    PATH,
    STORAGE_FIELDS,
    USUAL,
    VIEW,
    as_json,
    from_json,
    recorded_format,
    storage_from_json,
    storage_json,
)
from catalog.metastores.types import HiveDatabase, HiveStorage, HiveTable
from catalog.model import Buckets, Column, Database, FileFormat, Table, TableKind
from catalog.model.identifiers import TableName
from catalog.settings.places import require_properties
from catalog.tables.entries import TableEntry
from catalog.tables.own_properties import without_records
from catalog.tables.spark_schema import real_columns, spark_provider
from catalog.tables.table_versions import is_own

COMMENT, EXTERNAL = "comment", "EXTERNAL"
"""Parameters of Hive's tables and Spark's SerDes."""

OF_PARTITIONS = "of_partitions"
"""The field of `details` with the storage of partitions that have no descriptor, if it is not that of the table."""

_TYPES = {
    TableKind.MANAGED: "MANAGED_TABLE",
    TableKind.EXTERNAL: "EXTERNAL_TABLE",
    TableKind.VIEW: "VIRTUAL_VIEW",
}
_MANAGED_TYPES = ("MANAGED_TABLE", "MATERIALIZED_VIEW", "INDEX_TABLE")
_TABLE_FIELDS = (
    *("table_type", "columns", "partition_keys", "location", "description", "view_text", "original_view_text"),
    *("owner", "owner_type", "retention", "created_at", "accessed_at", "extra"),
)
_DATABASE_FIELDS = ("location", "owner", "owner_type", "created_at", "extra")
_STORAGE = "storage"

_UNKNOWN_COLUMNS = (Column("unknown_columns_of_a_view_that_only_calve_reads", "unknown"),)
"""The columns of a view of a statement, which are not stored: without columns, Spark would return rows without any."""

Entry = TypeVar("Entry", HiveDatabase, HiveTable, HiveStorage)


# --- databases --------------------------------------------------------------------------------------------------------


def hive_database(database: Database) -> HiveDatabase:
    """Return the entry of a database."""
    return _patched(_usual_database(database), database.details or {}, _DATABASE_FIELDS)


def database_of(given: HiveDatabase, location: str) -> Database:
    """Return the definition of a database, given its entry.

    Args:
        location: The folder as Calve stores it.
    """
    database = Database(given.name, location, given.description, dict(given.parameters))
    usual = _usual_database(database)
    given = replace(given, location=given.location or usual.location)
    return replace(database, details=_differences(given, usual, _DATABASE_FIELDS))


def _usual_database(database: Database) -> HiveDatabase:
    return HiveDatabase(database.name, database.location, database.description, database.properties)


# --- tables -----------------------------------------------------------------------------------------------------------


def hive_table(table: Table) -> HiveTable:
    """Return the entry of a table or view."""
    return served(_stored_entry(table), table)


def _stored_entry(table: Table) -> HiveTable:
    usual = _usual_table(table)
    if is_own(table) or table.details is None:
        return usual
    storage = _patched(usual.storage, table.details.get(_STORAGE, {}), STORAGE_FIELDS)
    entry = replace(_patched(usual, table.details, _TABLE_FIELDS), storage=storage)
    shown, given = table.details.get(COMMENT, (None, None))
    if given is not None and shown == usual.parameters.get(COMMENT) and given == table.properties.get(COMMENT):
        entry = replace(entry, parameters={**usual.parameters, COMMENT: given})
    return entry


def partition_storage(table: Table, entry: HiveTable) -> HiveStorage:
    """Return the storage of partitions without a descriptor.

    `columns` is None if the columns are those of the table.
    """
    stored = (table.details or {}).get(OF_PARTITIONS)
    return entry.storage if stored is None else storage_from_json(stored)


def entry_of(given: HiveTable) -> TableEntry:
    """Return the definition of a table, given its entry.

    Raises:
        LocationNotAllowedError: A property of the SerDe would make readers read files elsewhere.
    """
    require_properties(given.storage.serde_parameters)
    kind = _kind(given)
    provider = spark_provider(given.parameters)
    columns = real_columns(given.columns, given.partition_keys, given.parameters)
    location = given.location or None
    if provider is not None:
        # Spark stores the location of its own tables here, and a placeholder in the other field.
        location = given.storage.serde_parameters.get(PATH) or location
    is_view = kind is TableKind.VIEW
    return TableEntry(
        columns=() if columns == _UNKNOWN_COLUMNS else columns,
        partition_keys=() if is_view else given.partition_keys,
        format=FileFormat.PARQUET if is_view else csv_format(given.storage) or recorded_format(given.storage, provider),
        location=None if is_view else location,
        properties=dict(given.parameters),
        kind=kind,
        description=given.parameters.get(COMMENT) if given.description is None else given.description,
        view_text=given.view_text if is_view else None,
        buckets=_buckets(given.storage, columns),
        details=lambda table: details_of(given, table),
    )


def details_of(given: HiveTable, table: Table) -> dict[str, Any]:
    """Return the details of a table that was stored for an entry."""
    usual = _usual_table(replace(table, details={}))
    given = replace(
        given,
        location=given.location or usual.location,
        created_at=usual.created_at if given.created_at is None else given.created_at,
    )
    details = _differences(given, usual, _TABLE_FIELDS)
    if storage := _differences(replace(given.storage, columns=None), usual.storage, STORAGE_FIELDS):
        details[_STORAGE] = storage
    comments = usual.parameters.get(COMMENT), given.parameters.get(COMMENT)
    if None not in comments and comments[0] != comments[1]:
        # In Glue, the description and the parameter differ.
        details[COMMENT] = list(comments)
    return details


def _kind(given: HiveTable) -> TableKind:
    table_type = (given.table_type or "").upper()
    if table_type == "VIRTUAL_VIEW":
        return TableKind.VIEW
    is_external = given.parameters.get(EXTERNAL, "").upper() == "TRUE"
    return TableKind.MANAGED if table_type in _MANAGED_TYPES and not is_external else TableKind.EXTERNAL


def _buckets(storage: HiveStorage, columns: Sequence[Column]) -> Buckets | None:
    known = {column.name.lower() for column in columns}
    names = tuple(name.lower() for name in storage.bucket_columns)
    is_usable = storage.bucket_count > 0 and names and len(set(names)) == len(names) and known >= set(names)
    return Buckets(names, storage.bucket_count) if is_usable else None


def _usual_table(table: Table) -> HiveTable:
    """Return the entry of a table by its definition alone."""
    storage = CSV_STORAGE if is_calves(table) else USUAL[table.format]
    columns = tuple(map(_plain, table.columns))
    if table.is_view and is_own(table):
        storage, columns = VIEW, columns or _UNKNOWN_COLUMNS
    if table.buckets is not None:
        storage = replace(storage, bucket_columns=table.buckets.columns, bucket_count=table.buckets.count)
    parameters = without_records(table.properties)
    if COMMENT in parameters and table.description is not None:
        parameters[COMMENT] = table.description
    if is_calves(table):
        parameters = without_added(parameters)
    if is_own(table) and table.kind is TableKind.EXTERNAL:
        parameters[EXTERNAL] = "TRUE"
    return HiveTable(
        name=TableName(table.database, table.name),
        table_type=_TYPES[table.kind],
        columns=columns,
        partition_keys=tuple(map(_plain, table.partition_keys)),
        storage=storage,
        location=table.location or None,
        parameters=parameters,
        description=table.description,
        view_text=table.view_text,
        original_view_text=table.view_text,
        created_at=table.created_at_ms // 1000,
        id=table.id or None,
    )


def _plain(column: Column) -> Column:
    return Column(column.name, column.type, column.comment)


def table_json(entry: HiveTable) -> dict[str, Any]:
    """Return an entry as JSON values."""
    fields = (*_TABLE_FIELDS, "parameters")
    return {
        "name": list(entry.name),
        _STORAGE: storage_json(entry.storage),
        **{name: as_json(getattr(entry, name)) for name in fields},
    }


def table_from_json(stored: Mapping[str, Any]) -> HiveTable:
    """Return the entry that `table_json` has written."""
    values = {name: from_json(name, value) for name, value in stored.items()}
    return HiveTable(**{**values, "name": TableName(*stored["name"]), _STORAGE: storage_from_json(stored[_STORAGE])})


def pinned_storage(table: Table, before: HiveTable, after: HiveTable, *, cascade: bool) -> dict[str, Any] | None:
    """Return the JSON of the storage that partitions without a descriptor keep when their table changes.

    Args:
        cascade: Partitions get the columns of the table.

    Returns:
        None if they have that of the table after the change.
    """
    storage = partition_storage(table, before)
    columns = before.columns if storage.columns is None else storage.columns
    storage = replace(storage, columns=None if cascade or columns == after.columns else columns)
    return None if storage == replace(after.storage, columns=None) else storage_json(storage)


# --- differences ------------------------------------------------------------------------------------------------------


def _differences(given: Any, usual: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return name → [usual value, given value] of fields that differ."""
    pairs = ((name, as_json(getattr(usual, name)), as_json(getattr(given, name))) for name in names)
    return {name: [usual_value, given_value] for name, usual_value, given_value in pairs if usual_value != given_value}


def _patched(usual: Entry, details: Mapping[str, Any], names: Sequence[str]) -> Entry:
    """Return an entry with the given values of those fields whose usual value is still the same."""
    values = {
        name: from_json(name, details[name][1])
        for name in names
        if name in details and as_json(getattr(usual, name)) == details[name][0]
    }
    return replace(usual, **values) if values else usual
