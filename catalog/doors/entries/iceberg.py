"""Entries of Iceberg tables, as Iceberg's HiveCatalog and GlueCatalog write and read them.

Such an entry names the metadata file, and nothing else in it decides: columns and properties are those of the metadata.
Source: `HMSTablePropertyHelper` and `HiveOperationsBase.storageDescriptor` of Apache Iceberg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from catalog.doors.entries.forms import EXTERNAL, hive_table
from catalog.engine_tables.names import Identifier, Namespace
from catalog.files.locations import comparable
from catalog.metastores.types import HiveStorage, HiveTable
from catalog.model import Table
from catalog.model.identifiers import TableName

TABLE_TYPE, ICEBERG = "table_type", "ICEBERG"
METADATA, PREVIOUS = "metadata_location", "previous_metadata_location"

_STORAGE = HiveStorage(
    "org.apache.hadoop.mapred.FileInputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    output_format="org.apache.hadoop.mapred.FileOutputFormat",
    bucket_count=-1,
    is_stored_as_subdirectories=False,
)
_HIVE = "org.apache.iceberg.mr.hive.HiveIceberg"
_OF_HIVE = HiveStorage(
    f"{_HIVE}InputFormat",
    f"{_HIVE}SerDe",
    output_format=f"{_HIVE}OutputFormat",
    bucket_count=-1,
    is_stored_as_subdirectories=False,
)
_OWNER = "hive.metastore.table.owner"
"""Property with the owner of the entry, which is a field of its own there."""

_FOR_HIVE, _HANDLER = "engine.hive.enabled", "storage_handler"
"""Property of tables that Hive reads, and the parameter with the class by which it does."""


def is_shown_as_iceberg(table: Table) -> bool:
    """Return whether engines read a table as an Iceberg table."""
    return pointer_of(table) is not None


def pointer_of(table: Table) -> str | None:
    """Return the metadata file of a table that engines read as an Iceberg table; None for other tables."""
    return table.metadata_location if table.is_iceberg else table.live_location


def metadata_of(given: HiveTable) -> str | None:
    """Return the metadata file that an entry names, if it is that of an Iceberg table.

    An entry that names the table's own folder is one that Trino's procedure `migrate` prepares: the table is not an
    Iceberg table until an entry names the first metadata file. Source: `MigrateProcedure` of Trino.
    """
    location = given.parameters.get(METADATA)
    if not location or given.parameters.get(TABLE_TYPE, "").upper() != ICEBERG:
        return None
    is_prepared = given.location is not None and comparable(location) == comparable(given.location)
    return None if is_prepared else location


def without_pointer(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return parameters without those that make an entry one of an Iceberg table."""
    return {name: value for name, value in parameters.items() if name not in (TABLE_TYPE, METADATA, PREVIOUS)}


def iceberg_entry(table: Table, previous: str | None, derived: Mapping[str, str]) -> HiveTable:
    """Return the entry of an Iceberg table, with the columns of its metadata.

    Args:
        previous: The metadata file before the current one.
        derived: What a metastore has of the metadata in the parameters.
    """
    location = pointer_of(table)
    assert location is not None
    entry = hive_table(table)
    parameters = {**entry.parameters, **derived, EXTERNAL: "TRUE", TABLE_TYPE: ICEBERG, METADATA: location}
    owner = parameters.pop(_OWNER, None) or entry.owner or parameters.get("owner")
    parameters.pop(PREVIOUS, None)
    if previous is not None:
        parameters[PREVIOUS] = previous
    is_for_hive = parameters.get(_FOR_HIVE, "").lower() == "true"
    if is_for_hive:
        parameters[_HANDLER] = f"{_HIVE}StorageHandler"
    return replace(
        entry,
        table_type="EXTERNAL_TABLE",
        owner=owner,
        columns=(*entry.columns, *entry.partition_keys),
        partition_keys=(),
        storage=_OF_HIVE if is_for_hive else _STORAGE,
        parameters=parameters,
    )


def identifier_of(name: TableName) -> Identifier:
    """Return the name of a table as Iceberg's catalogs have it."""
    return Identifier.of(Namespace.of([name.database]), name.name)
