"""Conversion of a source's tables and partitions to the catalog's definitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from catalog.errors import UnsupportedSourceTableError
from catalog.importing.formats import file_format
from catalog.metastores.types import HivePartition, HiveStorage, HiveTable
from catalog.model import Buckets, Column, FileFormat, NewPartition, TableKind
from catalog.model.identifiers import TableName, normalise_identifier
from catalog.model.partition_names import NULL_TEXTS, partition_path
from catalog.tables.normalising import normalise_columns, normalise_location
from catalog.tables.own_properties import RESERVED, SOURCE_PROPERTY
from catalog.tables.spark_schema import real_columns, spark_provider

ROW_COUNT, FILE_COUNT, SIZE = "numRows", "numFiles", "totalSize"

# A managed table becomes external: the metastore owns its files, so Calve must not delete them.
_KINDS = {
    "MANAGED_TABLE": TableKind.EXTERNAL,
    "EXTERNAL_TABLE": TableKind.EXTERNAL,
    "VIRTUAL_VIEW": TableKind.VIEW,
}

# Parameters that change without a change of the definition, or that the catalog stores in other fields.
_PASSING = frozenset(
    {
        "COLUMN_STATS_ACCURATE",
        "EXTERNAL",
        "STATS_GENERATED",
        "comment",
        "last_modified_by",
        "last_modified_time",
        "numFilesErasureCoded",
        "numPartitions",
        "rawDataSize",
        "transient_lastDdlTime",
        ROW_COUNT,
        FILE_COUNT,
        SIZE,
    }
)
_STATISTICS = "spark.sql.statistics."
_ENCODED_VIEW = re.compile(r"\s*/\*\s*Presto (Materialized )?View")


@dataclass(frozen=True)
class Definition:
    """A table as the catalog stores it; the attributes are those of `catalog.model.Table`."""

    name: TableName
    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...]
    format: FileFormat
    location: str
    kind: TableKind
    properties: Mapping[str, str]
    description: str | None = None
    view_text: str | None = None
    buckets: Buckets | None = None


def definition_of(table: HiveTable, address: str) -> Definition:
    """Return the catalog's definition of a source's table.

    Args:
        address: The address of the table's entry (`SOURCE_PROPERTY`).

    Raises:
        UnsupportedSourceTableError: The catalog could not read the table correctly.
    """
    what = f"table {table.name}"
    _refuse_foreign(what, table)
    kind = _kind(what, table)
    keys = normalise_columns(table.partition_keys)
    provider = spark_provider(table.parameters)
    is_view = kind is TableKind.VIEW
    return Definition(
        name=table.name,
        columns=normalise_columns(real_columns(table.columns, table.partition_keys, table.parameters)),
        partition_keys=keys,
        format=FileFormat.PARQUET if is_view else file_format(what, table.storage, provider),
        location="" if is_view else _location(what, table, provider),
        kind=kind,
        properties={**_properties(table.parameters), SOURCE_PROPERTY: address},
        description=table.description or table.parameters.get("comment") or None,
        view_text=_view_text(what, table) if is_view else None,
        buckets=_buckets(table),
    )


def _refuse_foreign(what: str, table: HiveTable) -> None:
    """Refuse tables of other providers, whose folders contain files that are not part of the table."""
    parameters = {name.lower(): value.lower() for name, value in table.parameters.items()}
    types = {parameters.get("table_type"), spark_provider(table.parameters)}
    reason = None
    if "iceberg" in types or parameters.get("storage_handler", "").endswith("hiveicebergstoragehandler"):
        reason = "is an Iceberg table, whose metadata determine its files"
    elif "delta" in types:
        reason = "is a Delta table, whose log determines its files"
    elif "hudi" in types or "hoodie" in (table.storage.input_format or "").lower():
        reason = "is a Hudi table, whose timeline determines its files"
    elif parameters.get("transactional") == "true":
        reason = "is transactional (ACID), with deltas that only Hive can merge"
    elif "storage_handler" in parameters:
        reason = f"is stored by the storage handler {parameters['storage_handler']}, not in files"
    if reason is not None:
        raise UnsupportedSourceTableError(f"{what} {reason}; it is not imported")


def _kind(what: str, table: HiveTable) -> TableKind:
    if table.table_type is None or table.table_type == "":
        return TableKind.EXTERNAL
    kind = _KINDS.get(table.table_type.upper())
    if kind is None:
        raise UnsupportedSourceTableError(
            f"{what} is a {table.table_type}, which cannot be imported; supported types: {', '.join(_KINDS)}"
        )
    return kind


def _location(what: str, table: HiveTable, provider: str | None) -> str:
    # For its own tables that Hive cannot read, Spark stores the location here, and a placeholder in Hive's field.
    location = (table.storage.serde_parameters.get("path") if provider is not None else None) or table.location
    if not location:
        raise UnsupportedSourceTableError(f"{what} has no location; give it one in the source")
    return normalise_location(location)


def _view_text(what: str, table: HiveTable) -> str:
    if not table.view_text:
        raise UnsupportedSourceTableError(f"{what} is a view without a SELECT; recreate it with CREATE VIEW")
    if _ENCODED_VIEW.match(table.view_text):
        raise UnsupportedSourceTableError(
            f"{what} is a view of Trino or Presto, whose SELECT is encoded and in their dialect; recreate it with "
            "CREATE VIEW"
        )
    return table.view_text


def _buckets(table: HiveTable) -> Buckets | None:
    storage = table.storage
    if storage.bucket_count < 1 or not storage.bucket_columns:
        return None
    columns = tuple(normalise_identifier(name, "column") for name in storage.bucket_columns)
    return Buckets(columns, storage.bucket_count)


def _properties(parameters: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in parameters.items()
        if name not in _PASSING and not name.startswith((_STATISTICS, RESERVED)) and value is not None
    }


class Partitions:
    """Converts the partitions of one table; caches formats, because most partitions share one."""

    def __init__(self, definition: Definition, provider: str | None) -> None:
        """Set the definition, and Spark's name of the format if the table is one of Spark's own."""
        self._definition = definition
        self._provider = provider
        self._keys = tuple(key.name for key in definition.partition_keys)
        self._formats: dict[tuple[str | None, str | None], FileFormat] = {}

    def of(self, partition: HivePartition) -> NewPartition:
        """Return the catalog's description of a partition, always with its location and format.

        Raises:
            InvalidLocationError: Its location cannot be stored.
            UnsupportedSourceTableError: The catalog does not know its format.
        """
        values = tuple(None if value in NULL_TEXTS else value for value in partition.values)
        partition_format = self._format(partition.storage, values)
        return NewPartition(
            values,
            normalise_location(partition.location)
            if partition.location
            else f"{self._definition.location}/{partition_path(self._keys, values)}",
            file_count=_count(partition.parameters, FILE_COUNT),
            row_count=_count(partition.parameters, ROW_COUNT, f"{_STATISTICS}{ROW_COUNT}"),
            size_bytes=_count(partition.parameters, SIZE),
            properties=_properties(partition.parameters) or None,
            format=partition_format,
        )

    def _format(self, storage: HiveStorage, values: tuple[str | None, ...]) -> FileFormat:
        if self._provider is not None:
            return self._definition.format
        classes = storage.input_format, storage.serde
        if classes == (None, None):
            return self._definition.format
        if classes not in self._formats:
            what = f"partition {partition_path(self._keys, values)} of table {self._definition.name}"
            self._formats[classes] = file_format(what, storage)
        return self._formats[classes]


def _count(parameters: Mapping[str, str], *names: str) -> int | None:
    """Return the first number among a source's statistics of these names; None if unknown, which Hive writes as -1."""
    for name in names:
        text = parameters.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return None
