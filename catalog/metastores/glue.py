"""AWS Glue, or a service with its protocol, as a source; credentials and region come from the AWS environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from catalog.errors import (
    DatabaseNotFoundError,
    InvalidSourceError,
    SourceEntryChangedError,
    SourceError,
    SourceUnavailableError,
    TableNotFoundError,
)
from catalog.metastores.address import SourceAddress
from catalog.metastores.source import PAGE, Entry
from catalog.metastores.types import HivePartition, HiveStorage, HiveTable
from catalog.model import Column, Database
from catalog.model.identifiers import TableName

_RETRIES = 10

_INPUT = (
    "Name",
    "Description",
    "Owner",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
)
"""The fields of a table that a client may write. Source: AWS Glue API, `TableInput`, without times."""

_VERSION = "VersionId"


@lru_cache(maxsize=16)
def _client(region: str | None, profile: str | None, endpoint_url: str | None) -> Any:
    """Return a client; cached, because creating one takes as long as many requests."""
    session = boto3.Session(profile_name=profile, region_name=region)
    retries = Config(retries={"mode": "standard", "max_attempts": _RETRIES})
    return session.client("glue", endpoint_url=endpoint_url, config=retries)


class Glue:
    """A client of Glue."""

    def __init__(self, address: SourceAddress) -> None:
        """Create the client without a request."""
        self.address = address
        options = address.options
        self._catalog = {"CatalogId": options["catalog_id"]} if "catalog_id" in options else {}
        with self._errors():
            self._client = _client(address.region, options.get("profile"), options.get("endpoint_url"))

    def __enter__(self) -> Self:
        """Return the source, to be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the client is cached for the next use of the source."""

    def databases(self) -> list[str]:
        """Return the names of all databases."""
        return sorted(database["Name"] for database in self._listed("get_databases", "DatabaseList"))

    def database(self, name: str) -> Database:
        """Return a database."""
        with self._errors(DatabaseNotFoundError(f"{self.address} has no database {name}")):
            entry = self._client.get_database(Name=name, **self._catalog)["Database"]
        parameters = dict(entry.get("Parameters") or {})
        return Database(name, entry.get("LocationUri") or "", entry.get("Description") or None, parameters)

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables and views."""
        missing = DatabaseNotFoundError(f"{self.address} has no database {database}")
        tables = self._listed("get_tables", "TableList", missing, DatabaseName=database)
        return sorted(table["Name"] for table in tables)

    def table(self, name: TableName) -> HiveTable:
        """Return a table or view."""
        entry = self._table(name)
        storage = entry.get("StorageDescriptor") or {}
        return HiveTable(
            name=name,
            table_type=entry.get("TableType"),
            columns=_columns(storage.get("Columns")),
            partition_keys=_columns(entry.get("PartitionKeys")),
            storage=_storage(storage),
            location=storage.get("Location") or None,
            parameters=dict(entry.get("Parameters") or {}),
            description=entry.get("Description") or None,
            view_text=entry.get("ViewExpandedText") or entry.get("ViewOriginalText") or None,
        )

    def partitions(self, name: TableName) -> Iterator[list[HivePartition]]:
        """Yield a table's partitions, in pages of Glue."""
        missing = TableNotFoundError(f"{self.address} has no table {name}")
        pages = self._pages(
            "get_partitions", missing, DatabaseName=name.database, TableName=name.name, ExcludeColumnSchema=True
        )
        for page in pages:
            yield [
                HivePartition(
                    tuple(partition["Values"]),
                    _storage(partition.get("StorageDescriptor") or {}),
                    dict(partition.get("Parameters") or {}),
                    (partition.get("StorageDescriptor") or {}).get("Location") or None,
                )
                for partition in page["Partitions"]
            ]

    # --- the entry ----------------------------------------------------------------------------------------------

    def entry(self, name: TableName) -> Entry:
        """Return the writable fields of a table, and its version."""
        entry = self._table(name)
        return {field: entry[field] for field in (*_INPUT, _VERSION) if entry.get(field) is not None}

    def iceberg_entry(self, entry: Entry, metadata_location: str) -> Entry:
        """Return an entry as Iceberg's GlueCatalog writes it: without formats, and with the keys among the columns.

        Glue keeps the partitions of a table even while it has no keys, and a revert restores the keys.

        Source: `GlueTableOperations` and `IcebergToGlueConverter` of Apache Iceberg.
        """
        storage = entry.get("StorageDescriptor") or {}
        columns = [*(storage.get("Columns") or ()), *(entry.get("PartitionKeys") or ())]
        kept: Entry = {field: entry[field] for field in ("Name", "Description", "Owner", "Retention") if field in entry}
        return {
            **kept,
            "TableType": "EXTERNAL_TABLE",
            "StorageDescriptor": {"Columns": columns, "Location": storage.get("Location", "")},
            "Parameters": {
                **(entry.get("Parameters") or {}),
                "EXTERNAL": "TRUE",
                "table_type": "ICEBERG",
                "metadata_location": metadata_location,
            },
        }

    def locked(self, name: TableName) -> AbstractContextManager[None]:
        """Return an empty context: Glue compares versions instead."""
        return nullcontext()

    def differences(self, one: Entry, other: Entry) -> list[str]:
        """Return the names of the fields in which two entries differ, except the version, which always differs."""
        return _differing(_input(one), _input(other))

    def replace_entry(self, name: TableName, expected: Entry, entry: Entry) -> None:
        """Write a table's entry if its version has not changed since it was read."""
        condition = {_VERSION: expected[_VERSION]} if _VERSION in expected else {}
        with self._errors(TableNotFoundError(f"{self.address} has no table {name}")):
            self._client.update_table(
                DatabaseName=name.database, TableInput=_input(entry), **condition, **self._catalog
            )

    # --- inside -------------------------------------------------------------------------------------------------

    def _table(self, name: TableName) -> dict[str, Any]:
        with self._errors(TableNotFoundError(f"{self.address} has no table {name}")):
            entry: dict[str, Any] = self._client.get_table(DatabaseName=name.database, Name=name.name, **self._catalog)[
                "Table"
            ]
        return entry

    def _listed(
        self, operation: str, field: str, missing: Exception | None = None, **arguments: Any
    ) -> Iterator[dict[str, Any]]:
        for page in self._pages(operation, missing, **arguments):
            yield from page[field]

    def _pages(self, operation: str, missing: Exception | None, **arguments: Any) -> Iterator[dict[str, Any]]:
        paginator = self._client.get_paginator(operation)
        # Glue returns at most 100 databases or tables at once, and rejects requests for more.
        size = {"PageSize": PAGE} if operation == "get_partitions" else {}
        with self._errors(missing):
            yield from paginator.paginate(**arguments, **self._catalog, PaginationConfig=size)

    @contextmanager
    def _errors(self, missing: Exception | None = None) -> Iterator[None]:
        """Translate boto3's errors into the catalog's errors."""
        try:
            yield
        except ClientError as error:
            code, message = error.response["Error"].get("Code"), error.response["Error"].get("Message")
            if code == "EntityNotFoundException" and missing is not None:
                raise missing from error
            if code == "ConcurrentModificationException":
                raise SourceEntryChangedError(
                    f"{self.address}: the table was changed concurrently; check it, and try again"
                ) from error
            raise SourceError(f"{self.address} reports: {code}: {message}") from error
        except (NoCredentialsError, NoRegionError) as error:
            raise InvalidSourceError(
                f"{self.address} cannot be used: {error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a "
                "profile, and name the region: glue://region"
            ) from error
        except (BotoCoreError, OSError) as error:
            raise SourceUnavailableError(f"{self.address} does not respond: {error}") from error


def _columns(fields: Any) -> tuple[Column, ...]:
    return tuple(
        Column(field["Name"], field.get("Type") or "string", field.get("Comment") or None) for field in fields or ()
    )


def _storage(storage: Mapping[str, Any]) -> HiveStorage:
    serde = storage.get("SerdeInfo") or {}
    return HiveStorage(
        storage.get("InputFormat") or None,
        serde.get("SerializationLibrary") or None,
        dict(serde.get("Parameters") or {}),
        bucket_columns=tuple(storage.get("BucketColumns") or ()),
        bucket_count=storage.get("NumberOfBuckets") or 0,
    )


def _input(entry: Entry) -> dict[str, Any]:
    return {field: entry[field] for field in _INPUT if field in entry}


def _differing(one: Any, other: Any, place: str = "") -> list[str]:
    """Return the paths of differing fields of two entries, such as `StorageDescriptor.Location`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            path
            for name in sorted(one.keys() | other.keys())
            for path in _differing(one.get(name), other.get(name), f"{place}.{name}" if place else name)
        ]
    return [] if one == other else [place]
