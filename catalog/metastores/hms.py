"""A Hive Metastore, version 2.3 or later, as a source, over Thrift.

The protocol's classes come with PyIceberg (`hive_metastore`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from getpass import getuser
from socket import gethostname
from time import monotonic, sleep
from typing import Any, Self

from hive_metastore import ThriftHiveMetastore, ttypes
from thrift import Thrift, TSerialization
from thrift.protocol import TBinaryProtocol, TJSONProtocol
from thrift.transport import TTransport

from catalog.errors import (
    DatabaseNotFoundError,
    SourceEntryChangedError,
    SourceError,
    SourceUnavailableError,
    TableNotFoundError,
)
from catalog.metastores.address import SourceAddress
from catalog.metastores.hms_connection import advice_of, connect, reason_of
from catalog.metastores.source import PAGE, Entry
from catalog.metastores.thrift_keys import read_list_keys
from catalog.metastores.types import HivePartition, HiveStorage, HiveTable
from catalog.model import Column, Database
from catalog.model.identifiers import TableName
from catalog.storage.bulk import batched

LOCK_SECONDS = 60.0
"""Time to wait for a table's lock, for instance while another process commits."""

_LOOK_SECONDS = 0.1

log = logging.getLogger(__name__)

_DDL_TIME = "transient_lastDdlTime"
_SKEWED_PLACES = "skewed_places"
_ALL = -1


class HiveMetastore:
    """A connection to a Hive Metastore (`catalog.metastores.hms_connection`)."""

    def __init__(self, address: SourceAddress) -> None:
        """Connect to the metastore."""
        self.address = address
        read_list_keys()
        with self._errors():
            self._transport = connect(address)
        self._client: Any = ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocolAccelerated(self._transport))

    def __enter__(self) -> Self:
        """Return the source, to be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._transport.close()

    def databases(self) -> list[str]:
        """Return the names of all databases."""
        with self._errors():
            return sorted(self._client.get_all_databases())

    def database(self, name: str) -> Database:
        """Return a database."""
        missing = DatabaseNotFoundError(f"{self.address} has no database {name}")
        with self._errors(missing):
            entry = self._client.get_database(name)
        return Database(name, entry.locationUri or "", entry.description or None, dict(entry.parameters or {}))

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables and views."""
        with self._errors(DatabaseNotFoundError(f"{self.address} has no database {database}")):
            return sorted(self._client.get_all_tables(database))

    def table(self, name: TableName) -> HiveTable:
        """Return a table or view."""
        entry = self._table(name)
        storage = entry.sd
        return HiveTable(
            name=name,
            table_type=entry.tableType,
            columns=_columns(storage.cols if storage is not None else None),
            partition_keys=_columns(entry.partitionKeys),
            storage=_storage(storage),
            location=(storage.location if storage is not None else None) or None,
            parameters=dict(entry.parameters or {}),
            view_text=entry.viewExpandedText or entry.viewOriginalText or None,
        )

    def partitions(self, name: TableName) -> Iterator[list[HivePartition]]:
        """Yield a table's partitions in pages: the protocol has no pages, so all names are read first."""
        missing = TableNotFoundError(f"{self.address} has no table {name}")
        with self._errors(missing):
            names = self._client.get_partition_names(name.database, name.name, _ALL)
        for page in batched(names, PAGE):
            with self._errors(missing):
                partitions = self._client.get_partitions_by_names(name.database, name.name, page)
            yield [
                HivePartition(
                    tuple(partition.values),
                    _storage(partition.sd),
                    dict(partition.parameters or {}),
                    (partition.sd.location if partition.sd is not None else None) or None,
                )
                for partition in partitions
            ]

    # --- the entry ----------------------------------------------------------------------------------------------

    def entry(self, name: TableName) -> Entry:
        """Return Thrift's JSON of a table."""
        return _as_json(self._table(name))

    def iceberg_entry(self, entry: Entry, metadata_location: str) -> Entry:
        """Return an entry as Iceberg's HiveCatalog writes it, with another engine than Hive.

        Columns and partition keys are unchanged: a metastore does not allow changes of keys, and readers take the
        columns from Iceberg's metadata. The parameters are kept, too, and with them the metastore's partitions.

        Source: `HiveOperationsBase.storageDescriptor` and `newHmsTable`, `HMSTablePropertyHelper` of Apache Iceberg.
        """
        table = _from_json(entry)
        table.tableType = "EXTERNAL_TABLE"
        table.parameters = {
            **{name: value for name, value in (table.parameters or {}).items() if name != "storage_handler"},
            "EXTERNAL": "TRUE",
            "table_type": "ICEBERG",
            "metadata_location": metadata_location,
        }
        storage = deepcopy(table.sd)
        storage.inputFormat = "org.apache.hadoop.mapred.FileInputFormat"
        storage.outputFormat = "org.apache.hadoop.mapred.FileOutputFormat"
        storage.serdeInfo = ttypes.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        )
        table.sd = storage
        return _as_json(table)

    @contextmanager
    def locked(self, name: TableName) -> Iterator[None]:
        """Lock a table as Iceberg's HiveCatalog does for a commit, so that neither overwrites the other's change.

        A metastore without lock tables grants no locks; Iceberg must be configured for that, too.

        Source: `MetastoreLock` of Apache Iceberg.
        """
        component = ttypes.LockComponent(
            type=ttypes.LockType.EXCLUSIVE,
            level=ttypes.LockLevel.TABLE,
            dbname=name.database,
            tablename=name.name,
            operationType=ttypes.DataOperationType.NO_TXN,
        )
        lock = self._lock(name, ttypes.LockRequest(component=[component], user=getuser(), hostname=gethostname()))
        try:
            if lock is not None:
                self._wait_for(lock, name)
            yield
        finally:
            if lock is not None:
                with self._errors():
                    self._client.unlock(ttypes.UnlockRequest(lockid=lock.lockid))

    def _lock(self, name: TableName, request: Any) -> Any:
        """Request a lock; return None where locks are not supported."""
        try:
            with self._errors():
                return self._client.lock(request)
        except SourceUnavailableError:
            raise
        except SourceError as error:
            log.warning("Table %s is changed without a lock: %s", name, error)
            return None

    def _wait_for(self, lock: Any, name: TableName) -> None:
        until = monotonic() + LOCK_SECONDS
        while lock.state != ttypes.LockState.ACQUIRED:
            if lock.state != ttypes.LockState.WAITING or monotonic() > until:
                raise SourceUnavailableError(
                    f"table {name} of {self.address} is locked by another client; check it with SHOW LOCKS in Hive, "
                    "and try again later"
                )
            sleep(_LOOK_SECONDS)
            with self._errors():
                lock = self._client.check_lock(ttypes.CheckLockRequest(lockid=lock.lockid))

    def differences(self, one: Entry, other: Entry) -> list[str]:
        """Return the names of the fields in which two entries differ, without automatic timestamps."""
        tables = [_without_times(_from_json(entry)) for entry in (one, other)]
        return _differing(*tables)

    def replace_entry(self, name: TableName, expected: Entry, entry: Entry) -> None:
        """Write a table's entry; a metastore from 2.3.10 or 4.0 on checks the time of the last change itself.

        Source: HIVE-26882 (`expected_parameter_key`).
        """
        table, properties = _from_json(entry), {"DO_NOT_UPDATE_STATS": "true"}
        time = (_from_json(expected).parameters or {}).get(_DDL_TIME)
        if time is not None and _DDL_TIME in (table.parameters or {}):
            properties |= {"expected_parameter_key": _DDL_TIME, "expected_parameter_value": time}
        context = ttypes.EnvironmentContext(properties=properties)
        with self._errors(TableNotFoundError(f"{self.address} has no table {name}")):
            try:
                self._client.alter_table_with_environment_context(name.database, name.name, table, context)
            except ttypes.MetaException as error:
                if "has been modified" in str(error.message):
                    raise SourceEntryChangedError(
                        f"table {name} of {self.address} was changed concurrently; check it, and try again"
                    ) from error
                raise

    # --- inside -------------------------------------------------------------------------------------------------

    def _table(self, name: TableName) -> Any:
        with self._errors(TableNotFoundError(f"{self.address} has no table {name}")):
            return self._client.get_table(name.database, name.name)

    @contextmanager
    def _errors(self, missing: Exception | None = None) -> Iterator[None]:
        """Translate errors of Thrift and of the metastore into the catalog's errors."""
        try:
            yield
        except (ttypes.NoSuchObjectException, ttypes.UnknownDBException, ttypes.UnknownTableException) as error:
            if missing is None:
                raise SourceError(f"{self.address} reports: {error.message}") from error
            raise missing from error
        except (TTransport.TTransportException, EOFError, OSError) as error:
            raise SourceUnavailableError(
                f"{self.address} does not respond: {reason_of(error)}; {advice_of(self.address)}"
            ) from error
        except Thrift.TException as error:
            message = getattr(error, "message", None) or error
            raise SourceError(f"{self.address} reports: {message}") from error


def _columns(fields: Any) -> tuple[Column, ...]:
    return tuple(Column(field.name, field.type, field.comment or None) for field in fields or ())


def _storage(storage: Any) -> HiveStorage:
    if storage is None:
        return HiveStorage()
    serde = storage.serdeInfo
    return HiveStorage(
        storage.inputFormat or None,
        (serde.serializationLib if serde is not None else None) or None,
        dict((serde.parameters if serde is not None else None) or {}),
        bucket_columns=tuple(storage.bucketCols or ()),
        bucket_count=storage.numBuckets or 0,
    )


def _as_json(table: Any) -> Entry:
    table = deepcopy(table)
    skew = (table.sd and table.sd.skewedInfo) or ttypes.SkewedInfo()
    if places := skew.skewedColValueLocationMaps:
        # Thrift writes lists as keys, which is no JSON.
        skew.skewedColValueLocationMaps = {}
    text = TSerialization.serialize(table, TJSONProtocol.TJSONProtocolFactory())
    entry: Entry = json.loads(text)
    return {**entry, _SKEWED_PLACES: [[values, place] for values, place in places.items()]} if places else entry


def _from_json(entry: Entry) -> Any:
    entry = dict(entry)
    places = entry.pop(_SKEWED_PLACES, None)
    # Without blanks, which Thrift's parser does not accept.
    text = json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode()
    table = TSerialization.deserialize(ttypes.Table(), text, TJSONProtocol.TJSONProtocolFactory())
    if places:
        table.sd.skewedInfo.skewedColValueLocationMaps = {tuple(values): place for values, place in places}
    return table


def _without_times(table: Any) -> Any:
    table.lastAccessTime = None
    table.parameters = {name: value for name, value in (table.parameters or {}).items() if name != _DDL_TIME}
    return table


def _differing(one: Any, other: Any, place: str = "") -> list[str]:
    """Return the paths of differing fields of two Thrift structures, such as `sd.location` and `parameters.owner`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [f"{place}.{name}" for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    if hasattr(one, "thrift_spec") and type(one) is type(other):
        return [
            path
            for name in vars(one)
            for path in _differing(getattr(one, name), getattr(other, name), f"{place}.{name}" if place else name)
        ]
    return [] if one == other else [place]
