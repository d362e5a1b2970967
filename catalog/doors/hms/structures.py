"""Databases, tables and partitions as Thrift's structures, and back without loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hive_metastore import ttypes

from catalog.doors.entries.forms import COMMENT
from catalog.doors.entries.kept import hive_parameters
from catalog.doors.entries.storages import qualified
from catalog.doors.hms.names import CATALOG, DatabaseName, parse_database
from catalog.metastores.types import HiveDatabase, HivePartition, HiveSkew, HiveStorage, HiveTable
from catalog.model import Column
from catalog.model.identifiers import DEFAULT_DATABASE, TableName

OWNER_TYPES = {
    ttypes.PrincipalType.USER: "USER",
    ttypes.PrincipalType.ROLE: "ROLE",
    ttypes.PrincipalType.GROUP: "GROUP",
}
OWNER_NUMBERS = {name: number for number, name in OWNER_TYPES.items()}

DDL_TIME = "transient_lastDdlTime"
"""The parameter with the time of the last change, which Hive Metastore sets."""

_DEFAULT_DESCRIPTION = "Default Hive database"
_TABLE_EXTRA = ("rewriteEnabled", "accessType", "requiredReadCapabilities", "requiredWriteCapabilities")
_WITHOUT_COLUMNS = "without_columns"
_SERDE_EXTRA = ("description", "serializerClass", "deserializerClass", "serdeType")


def unqualified(location: str | None, before: str | None) -> str | None:
    """Return the location that a client sends, as it was before, if it is the one that the client got."""
    return before if location == qualified(before) else location


# --- databases ------------------------------------------------------------------------------------------------------


def database_from(entry: Any) -> HiveDatabase:
    """Return the database that a client sends."""
    extra = {"managedLocationUri": entry.managedLocationUri} if entry.managedLocationUri else {}
    return HiveDatabase(
        name=parse_database(entry.name).database or "",
        location=entry.locationUri or None,
        description=entry.description,
        parameters=dict(entry.parameters or {}),
        owner=entry.ownerName,
        owner_type=OWNER_TYPES.get(entry.ownerType),
        created_at=None,
        extra=extra,
    )


def to_database(database: HiveDatabase) -> Any:
    """Return a database as clients get it."""
    is_default = database.name == DEFAULT_DATABASE
    return ttypes.Database(
        name=database.name,
        description=database.description or (_DEFAULT_DESCRIPTION if is_default else None),
        locationUri=qualified(database.location),
        parameters=dict(database.parameters),
        privileges=None,
        ownerName=database.owner or ("public" if is_default else None),
        ownerType=OWNER_NUMBERS.get(database.owner_type or ("ROLE" if is_default else "USER")),
        catalogName=CATALOG,
        createTime=database.created_at,
        managedLocationUri=database.extra.get("managedLocationUri"),
        type=ttypes.DatabaseType.NATIVE,
    )


# --- columns and storage --------------------------------------------------------------------------------------------


def columns_from(fields: Iterable[Any] | None) -> tuple[Column, ...]:
    """Return the columns that a client sends."""
    return tuple(Column((field.name or "").lower(), field.type or "", field.comment) for field in fields or ())


def to_fields(columns: Iterable[Column]) -> list[Any]:
    """Return columns as clients get them."""
    return [ttypes.FieldSchema(name=column.name, type=column.type, comment=column.comment) for column in columns]


def storage_from(descriptor: Any, table_columns: tuple[Column, ...] | None = None) -> HiveStorage:
    """Return the storage that a client sends.

    Args:
        table_columns: The columns of the table, if the descriptor is that of a partition.
    """
    if descriptor is None:
        return HiveStorage()
    serde = descriptor.serdeInfo or ttypes.SerDeInfo()
    columns = None if table_columns is None else columns_from(descriptor.cols)
    return HiveStorage(
        input_format=descriptor.inputFormat,
        serde=serde.serializationLib,
        serde_parameters=dict(serde.parameters or {}),
        output_format=descriptor.outputFormat,
        serde_name=serde.name,
        columns=None if columns == table_columns else columns,
        is_compressed=bool(descriptor.compressed),
        bucket_columns=tuple(descriptor.bucketCols or ()),
        bucket_count=descriptor.numBuckets or 0,
        sort_columns=tuple((order.col, order.order) for order in descriptor.sortCols or ()),
        parameters=dict(descriptor.parameters or {}),
        skew=_skew_from(descriptor.skewedInfo),
        is_stored_as_subdirectories=descriptor.storedAsSubDirectories,
        extra=_fields_of(serde, _SERDE_EXTRA) | ({_WITHOUT_COLUMNS: True} if descriptor.cols is None else {}),
    )


def to_descriptor(storage: HiveStorage, fields: list[Any] | None, location: str | None) -> Any:
    """Return storage as clients get it.

    Args:
        fields: The columns; empty for none at all, if the entry of the table had none.
    """
    return ttypes.StorageDescriptor(
        cols=None if storage.extra.get(_WITHOUT_COLUMNS) and not fields else fields,
        location=qualified(location),
        inputFormat=storage.input_format,
        outputFormat=storage.output_format,
        compressed=storage.is_compressed,
        numBuckets=storage.bucket_count,
        serdeInfo=ttypes.SerDeInfo(
            name=storage.serde_name,
            serializationLib=storage.serde,
            parameters=dict(storage.serde_parameters),
            **{name: storage.extra.get(name) for name in _SERDE_EXTRA},
        ),
        bucketCols=list(storage.bucket_columns),
        sortCols=[ttypes.Order(col=name, order=order) for name, order in storage.sort_columns],
        parameters=dict(storage.parameters),
        skewedInfo=_to_skew(storage.skew),
        storedAsSubDirectories=bool(storage.is_stored_as_subdirectories),
    )


def _skew_from(skew: Any) -> HiveSkew | None:
    if skew is None or not (skew.skewedColNames or skew.skewedColValues or skew.skewedColValueLocationMaps):
        return None
    return HiveSkew(
        columns=tuple(skew.skewedColNames or ()),
        values=tuple(tuple(values) for values in skew.skewedColValues or ()),
        locations=tuple((tuple(values), place) for values, place in (skew.skewedColValueLocationMaps or {}).items()),
    )


def _to_skew(skew: HiveSkew | None) -> Any:
    skew = skew or HiveSkew()
    return ttypes.SkewedInfo(
        skewedColNames=list(skew.columns),
        skewedColValues=[list(values) for values in skew.values],
        skewedColValueLocationMaps=dict(skew.locations),
    )


def _fields_of(structure: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(structure, name)) is not None}


# --- tables ---------------------------------------------------------------------------------------------------------


def table_from(entry: Any) -> HiveTable:
    """Return the table that a client sends; the caller has checked that it has a name, a database and storage."""
    parameters = dict(entry.parameters or {})
    return HiveTable(
        name=TableName((parse_database(entry.dbName).database or "").lower(), entry.tableName.lower()),
        table_type=entry.tableType,
        columns=columns_from(entry.sd.cols if entry.sd is not None else None),
        partition_keys=columns_from(entry.partitionKeys),
        storage=storage_from(entry.sd),
        location=(entry.sd.location or None) if entry.sd is not None else None,
        parameters=parameters,
        description=parameters.get(COMMENT),
        view_text=entry.viewExpandedText,
        original_view_text=entry.viewOriginalText,
        owner=entry.owner,
        owner_type=OWNER_TYPES.get(entry.ownerType),
        retention=entry.retention or 0,
        created_at=entry.createTime or None,
        accessed_at=entry.lastAccessTime or 0,
        extra=_fields_of(entry, _TABLE_EXTRA),
    )


def to_table(table: HiveTable) -> Any:
    """Return a table as clients get it."""
    return ttypes.Table(
        tableName=table.name.name,
        dbName=table.name.database,
        owner=table.owner,
        createTime=table.created_at or 0,
        lastAccessTime=table.accessed_at,
        retention=table.retention,
        sd=to_descriptor(table.storage, to_fields(table.columns), table.location),
        partitionKeys=to_fields(table.partition_keys),
        parameters=hive_parameters(table),
        viewOriginalText=table.original_view_text,
        viewExpandedText=table.view_text,
        tableType=table.table_type,
        temporary=None,
        rewriteEnabled=table.extra.get("rewriteEnabled", False),
        catName=CATALOG,
        ownerType=OWNER_NUMBERS.get(table.owner_type or "USER", ttypes.PrincipalType.USER),
        id=table.id,
        **{name: table.extra.get(name) for name in _TABLE_EXTRA[1:]},
    )


# --- partitions -----------------------------------------------------------------------------------------------------


def _without_slash(location: str) -> str:
    """Return a location without slashes at its end, unless it is the root folder."""
    stripped = location.rstrip("/")
    return location if stripped == "" or stripped.endswith(":") else stripped


def partition_from(entry: Any, table: HiveTable) -> HivePartition:
    """Return the partition that a client sends; its values have been checked."""
    return HivePartition(
        values=tuple(entry.values),
        storage=storage_from(entry.sd, table.columns) if entry.sd is not None else table.storage,
        parameters=dict(entry.parameters or {}),
        # As Hive, which takes locations as paths; Glue keeps their slash at the end.
        location=_without_slash(entry.sd.location) if entry.sd is not None and entry.sd.location else None,
        created_at=entry.createTime or None,
        accessed_at=entry.lastAccessTime or 0,
    )


class PartitionWriter:
    """Writes the partitions of one table as Thrift's structures, which share what is the same in many of them."""

    def __init__(self, table: HiveTable) -> None:
        """Use the table's names and columns."""
        self._columns = to_fields(table.columns)
        blank = ttypes.Partition(dbName=table.name.database, tableName=table.name.name, catName=CATALOG)
        self._blank = vars(blank)
        self._descriptors: dict[int, tuple[HiveStorage, dict[str, Any]]] = {}

    def write(self, partition: HivePartition) -> Any:
        """Return a partition as clients get it."""
        storage = partition.storage
        shared = self._descriptors.get(id(storage))
        if shared is None:
            fields = self._columns if storage.columns is None else to_fields(storage.columns)
            # The storage is kept, so that its id stays its own.
            shared = self._descriptors[id(storage)] = (storage, vars(to_descriptor(storage, fields, None)))
        descriptor = ttypes.StorageDescriptor.__new__(ttypes.StorageDescriptor)
        descriptor.__dict__ = {**shared[1], "location": qualified(partition.location)}
        parameters = partition.parameters
        written = ttypes.Partition.__new__(ttypes.Partition)
        written.__dict__ = {
            **self._blank,
            "values": partition.values,
            "createTime": partition.created_at or 0,
            "lastAccessTime": partition.accessed_at,
            "sd": descriptor,
            # Thrift's encoder in C takes nothing but a dictionary.
            "parameters": parameters if type(parameters) is dict else dict(parameters or {}),
        }
        return written

    def write_all(self, partitions: Iterable[HivePartition]) -> list[Any]:
        """Return partitions as clients get them."""
        return [self.write(partition) for partition in partitions]


def with_ddl_time(parameters: Mapping[str, str], seconds: int) -> dict[str, str]:
    """Return parameters with the time of the change, unless the client has set one."""
    return {**parameters, DDL_TIME: parameters.get(DDL_TIME) or str(seconds)}


def database_of(entry: Any) -> DatabaseName:
    """Return the database of a table or partition; its field for the catalog goes before the name's."""
    parsed = parse_database(entry.dbName)
    return DatabaseName(entry.catName or parsed.catalog, parsed.database)
