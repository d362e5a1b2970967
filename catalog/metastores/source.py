"""What every source can be asked, and how one is opened.

The clients are imported only when a source is opened: Thrift's classes of the metastore and boto3 are large.
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
"""Partitions that are asked for at once: the most that Glue gives, and few enough for a metastore's memory."""

Entry = dict[str, Any]
"""All that a source keeps of a table, as JSON: what it takes to write the same again."""


class Source(Protocol):
    """A connection to a Hive Metastore or to Glue; for one thread.

    Every method raises `SourceUnavailableError` when the source does not answer, and `SourceError` when it answers
    that it cannot.
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
        """Return a database; its location is empty where the source has none.

        Raises:
            DatabaseNotFoundError: There is none of this name.
        """
        ...

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables and views."""
        ...

    def table(self, name: TableName) -> HiveTable:
        """Return a table or view.

        Raises:
            TableNotFoundError: There is none of this name.
        """
        ...

    def partitions(self, name: TableName) -> Iterator[list[HivePartition]]:
        """Yield a table's partitions, in pages of at most `PAGE`."""
        ...

    def entry(self, name: TableName) -> Entry:
        """Return all that the source keeps of a table.

        Raises:
            TableNotFoundError: There is none of this name.
        """
        ...

    def iceberg_entry(self, entry: Entry, metadata_location: str) -> Entry:
        """Return what a Hive table's entry becomes when the table is the Iceberg table of a metadata file."""
        ...

    def locked(self, name: TableName) -> AbstractContextManager[None]:
        """Return what keeps others from writing a table's entry, as far as the source has such a thing."""
        ...

    def differences(self, one: Entry, other: Entry) -> list[str]:
        """Return the names of the fields in which two entries differ, without those that change by themselves."""
        ...

    def replace_entry(self, name: TableName, expected: Entry, entry: Entry) -> None:
        """Write a table's entry in place of the one that was read just before.

        Raises:
            SourceEntryChangedError: The source itself noticed that somebody else has changed it since.
        """
        ...


def open_source(address: SourceAddress) -> Source:
    """Connect to a source.

    Raises:
        LocationNotAllowedError: Its host is not allowed.
        SourceClientMissingError: The package that speaks its protocol is not installed.
        SourceUnavailableError: It does not answer.
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
        raise SourceClientMissingError(f"{address} cannot be asked: {error}; install the package {package}") from error
