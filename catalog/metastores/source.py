"""The common interface of all sources, and how to open one.

Clients are imported only when a source is opened, because the Thrift classes of the metastore and boto3 are large.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

from catalog.errors import SourceClientMissingError
from catalog.metastores.address import SourceAddress, SourceKind
from catalog.metastores.types import HivePartition, HiveTable
from catalog.model import Database
from catalog.model.identifiers import TableName
from catalog.settings.places import require_endpoint, require_host

PAGE = 1_000
"""Partitions per request: the maximum of Glue, and few enough for a metastore's memory."""

Entry = dict[str, Any]
"""The complete entry of a table in a source, as JSON, from which it can be written again."""


class Source(Protocol):
    """A connection to a Hive Metastore or to Glue; not thread-safe.

    Every method raises `SourceUnavailableError` when the source does not respond, and `SourceError` when it reports a
    failure.
    """

    address: SourceAddress

    def __enter__(self) -> Self:
        """Return the source, to be closed at the end of the block."""
        ...

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        ...

    def databases(self) -> list[str]:
        """Return the names of all databases."""
        ...

    def database(self, name: str) -> Database:
        """Return a database; its location is empty if the source has none.

        Raises:
            DatabaseNotFoundError: There is no database of this name.
        """
        ...

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables and views."""
        ...

    def table(self, name: TableName) -> HiveTable:
        """Return a table or view.

        Raises:
            TableNotFoundError: There is no table of this name.
        """
        ...

    def partitions(self, name: TableName) -> Iterator[list[HivePartition]]:
        """Yield a table's partitions, in pages of at most `PAGE`."""
        ...

    def entry(self, name: TableName) -> Entry:
        """Return the source's complete entry of a table.

        Raises:
            TableNotFoundError: There is no table of this name.
        """
        ...

    def iceberg_entry(self, entry: Entry, metadata_location: str) -> Entry:
        """Return a Hive table's entry, changed to that of the Iceberg table with the given metadata file."""
        ...

    def locked(self, name: TableName) -> AbstractContextManager[None]:
        """Return a context that prevents writes of a table's entry by others, if the source supports that."""
        ...

    def differences(self, one: Entry, other: Entry) -> list[str]:
        """Return the names of the fields in which two entries differ, without those that change automatically."""
        ...

    def replace_entry(self, name: TableName, expected: Entry, entry: Entry) -> None:
        """Replace a table's entry, which was read just before.

        Raises:
            SourceEntryChangedError: The source reports a concurrent change.
        """
        ...


def open_source(address: SourceAddress) -> Source:
    """Connect to a source.

    Raises:
        LocationNotAllowedError: Its host is not allowed.
        SourceClientMissingError: The package for its protocol is not installed.
        SourceUnavailableError: It does not respond.
    """
    if address.kind is SourceKind.HMS:
        require_host(address.host, address.port)
    elif endpoint_url := address.options.get("endpoint_url"):
        require_endpoint(endpoint_url)
    try:
        if address.kind is SourceKind.HMS:
            from catalog.metastores.hms import HiveMetastore

            return HiveMetastore(address)
        from catalog.metastores.glue import Glue

        return Glue(address)
    except ImportError as error:
        package = "pyiceberg[hive]" if address.kind is SourceKind.HMS else "boto3"
        raise SourceClientMissingError(f"{address} cannot be used: {error}; install the package {package}") from error
