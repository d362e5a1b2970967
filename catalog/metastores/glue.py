"""AWS Glue, or what speaks its protocol, as a source; credentials and region come as they do to every AWS client."""

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
    """Return a client; to make one takes as long as many of its requests."""
    session = boto3.Session(profile_name=profile, region_name=region)
    retries = Config(retries={"mode": "standard", "max_attempts": _RETRIES})
    return session.client("glue", endpoint_url=endpoint_url, config=retries)


class Glue:
    """A client of Glue."""

    def __init__(self, address: SourceAddress) -> None:
        """Make the client; nothing is asked yet."""
        self.address = address
        options = address.options
        self._catalog = {"CatalogId": options["catalog_id"]} if "catalog_id" in options else {}
        with self._errors():
            self._client = _client(address.region, options.get("profile"), options.get("endpoint_url"))

    def __enter__(self) -> Self:
        """Return the source, to be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Keep the client, for whoever opens the same source next."""

    def databases(self) -> list[str]:
        """Return the names of all databases."""
        return sorted(each["Name"] for each in self._listed("get_databases", "DatabaseList"))

    def database(self, name: str) -> Database:
        """Return a database."""
        with self._errors(DatabaseNotFoundError(f"{self.address} has no database {name}")):
            found = self._client.get_database(Name=name, **self._catalog)["Database"]
        parameters = dict(found.get("Parameters") or {})
        return Database(name, found.get("LocationUri") or "", found.get("Description") or None, parameters)

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables and views."""
        missing = DatabaseNotFoundError(f"{self.address} has no database {database}")
        return sorted(each["Name"] for each in self._listed("get_tables", "TableList", missing, DatabaseName=database))

    def table(self, name: TableName) -> HiveTable:
        """Return a table or view."""
        found = self._table(name)
        storage = found.get("StorageDescriptor") or {}
        return HiveTable(
            name=name,
            table_type=found.get("TableType"),
            columns=_columns(storage.get("Columns")),
            partition_keys=_columns(found.get("PartitionKeys")),
            storage=_storage(storage),
            parameters=dict(found.get("Parameters") or {}),
            description=found.get("Description") or None,
            view_text=found.get("ViewExpandedText") or found.get("ViewOriginalText") or None,
            bucket_columns=tuple(storage.get("BucketColumns") or ()),
            bucket_count=storage.get("NumberOfBuckets") or 0,
        )

    def partitions(self, name: TableName) -> Iterator[list[HivePartition]]:
        """Yield a table's partitions, a page of Glue's at a time."""
        missing = TableNotFoundError(f"{self.address} has no table {name}")
        pages = self._pages(
            "get_partitions", missing, DatabaseName=name.database, TableName=name.name, ExcludeColumnSchema=True
        )
        for page in pages:
            yield [
                HivePartition(
                    tuple(each["Values"]),
                    _storage(each.get("StorageDescriptor") or {}),
                    dict(each.get("Parameters") or {}),
                )
                for each in page["Partitions"]
            ]

    # --- the entry ----------------------------------------------------------------------------------------------

    def entry(self, name: TableName) -> Entry:
        """Return the fields of a table that can be written, and its version."""
        found = self._table(name)
        return {field: found[field] for field in (*_INPUT, _VERSION) if found.get(field) is not None}

    def iceberg_entry(self, entry: Entry, metadata_location: str) -> Entry:
        """Return an entry as Iceberg's GlueCatalog writes it: without formats, the keys among the columns.

        Glue keeps the partitions of a table even while it has no keys, and a revert gives these back.

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
        """Hold nothing: Glue compares versions."""
        return nullcontext()

    def differences(self, one: Entry, other: Entry) -> list[str]:
        """Return the names of the fields in which two entries differ; versions differ always."""
        return _differing(_input(one), _input(other))

    def replace_entry(self, name: TableName, expected: Entry, entry: Entry) -> None:
        """Write a table's entry, on the condition that its version is still the one that was read."""
        condition = {_VERSION: expected[_VERSION]} if _VERSION in expected else {}
        with self._errors(TableNotFoundError(f"{self.address} has no table {name}")):
            self._client.update_table(
                DatabaseName=name.database, TableInput=_input(entry), **condition, **self._catalog
            )

    # --- inside -------------------------------------------------------------------------------------------------

    def _table(self, name: TableName) -> dict[str, Any]:
        with self._errors(TableNotFoundError(f"{self.address} has no table {name}")):
            found: dict[str, Any] = self._client.get_table(DatabaseName=name.database, Name=name.name, **self._catalog)[
                "Table"
            ]
        return found

    def _listed(
        self, operation: str, field: str, missing: Exception | None = None, **arguments: Any
    ) -> Iterator[dict[str, Any]]:
        for page in self._pages(operation, missing, **arguments):
            yield from page[field]

    def _pages(self, operation: str, missing: Exception | None, **arguments: Any) -> Iterator[dict[str, Any]]:
        paginator = self._client.get_paginator(operation)
        # Glue gives at most 100 databases and tables at once, and says so if it is asked for more.
        size = {"PageSize": PAGE} if operation == "get_partitions" else {}
        with self._errors(missing):
            yield from paginator.paginate(**arguments, **self._catalog, PaginationConfig=size)

    @contextmanager
    def _errors(self, missing: Exception | None = None) -> Iterator[None]:
        """Raise the catalog's errors for those of boto3."""
        try:
            yield
        except ClientError as error:
            code, said = error.response["Error"].get("Code"), error.response["Error"].get("Message")
            if code == "EntityNotFoundException" and missing is not None:
                raise missing from error
            if code == "ConcurrentModificationException":
                raise SourceEntryChangedError(
                    f"{self.address}: the table was changed by somebody else just now; look at it, and try again"
                ) from error
            raise SourceError(f"{self.address} says: {code}: {said}") from error
        except (NoCredentialsError, NoRegionError) as error:
            raise InvalidSourceError(
                f"{self.address} cannot be asked: {error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a "
                "profile, and name the region: glue://region"
            ) from error
        except (BotoCoreError, OSError) as error:
            raise SourceUnavailableError(f"{self.address} does not answer: {error}") from error


def _columns(fields: Any) -> tuple[Column, ...]:
    return tuple(
        Column(each["Name"], each.get("Type") or "string", each.get("Comment") or None) for each in fields or ()
    )


def _storage(storage: Mapping[str, Any]) -> HiveStorage:
    serde = storage.get("SerdeInfo") or {}
    return HiveStorage(
        storage.get("Location") or None,
        storage.get("InputFormat") or None,
        serde.get("SerializationLibrary") or None,
        dict(serde.get("Parameters") or {}),
    )


def _input(entry: Entry) -> dict[str, Any]:
    return {field: entry[field] for field in _INPUT if field in entry}


def _differing(one: Any, other: Any, place: str = "") -> list[str]:
    """Return where two entries differ, such as `StorageDescriptor.Location`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            found
            for name in sorted(one.keys() | other.keys())
            for found in _differing(one.get(name), other.get(name), f"{place}.{name}" if place else name)
        ]
    return [] if one == other else [place]
