"""Errors about databases, tables, keys, columns and indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from catalog.errors.base import AlreadyExistsError, ConflictError, InvalidRequestError, NotFoundError


class InvalidIdentifierError(InvalidRequestError):
    """A database, table, column or index name cannot be used."""


class InvalidKeyTypeError(InvalidRequestError):
    """A type cannot be the type of a partition key."""


class InvalidTableError(InvalidRequestError):
    """A table's definition contradicts itself."""


class DuplicateColumnError(InvalidTableError):
    """Two columns, or two fields inside columns, have one name, for instance because case does not count.

    Attributes:
        names: The names, those of fields with the names of what they are in: `column.field`.
    """

    def __init__(self, table: str, names: Sequence[str]) -> None:
        """Name all of them."""
        self.names = tuple(names)
        super().__init__(
            f"table {table}: more than one column or field has the name {', '.join(self.names)} (case does not count); "
            "rename all but one"
        )


class ReservedPropertyError(InvalidRequestError):
    """A property of a table is one that only Calve writes.

    Attributes:
        name: The property.
    """

    def __init__(self, name: str, settable: Sequence[str]) -> None:
        """Name the property, and those of Calve's that can be set."""
        self.name = name
        super().__init__(
            f"property {name!r} is reserved: of the properties that begin with 'calve.', only {', '.join(settable)} "
            "can be changed; choose another name"
        )


class InvalidIndexError(InvalidRequestError):
    """A partition index cannot be defined like this."""


class NotATableError(InvalidRequestError):
    """What a table can do was asked of a view."""


class IcebergTableError(InvalidRequestError):
    """What a Hive table can do was asked of an Iceberg table."""


class NotIcebergTableError(InvalidRequestError):
    """What an Iceberg table can do was asked of a table that is none."""


class UnsupportedFormatError(InvalidRequestError):
    """Files are in a format that the catalog records, and nobody here reads or writes."""


class DatabaseNotFoundError(NotFoundError):
    """No database has this name."""


class TableNotFoundError(NotFoundError):
    """No table has this name."""


class PartitionNotFoundError(NotFoundError):
    """The table has no such partition."""


class IndexNotFoundError(NotFoundError):
    """The table has no partition index of this name."""


class OperationNotFoundError(NotFoundError):
    """No operation, or no job of it, has this id."""


class PropertyNotFoundError(NotFoundError):
    """The table has no such property."""


class DatabaseAlreadyExistsError(AlreadyExistsError):
    """A database of this name exists."""


class TableAlreadyExistsError(AlreadyExistsError):
    """A table of this name exists."""


class PartitionAlreadyExistsError(AlreadyExistsError):
    """A partition with these values exists."""


class IndexAlreadyExistsError(AlreadyExistsError):
    """The table has an index of this name or with these keys."""


class DatabaseNotEmptyError(ConflictError):
    """The database still has tables."""

    retryable: ClassVar[bool] = False


class IndexedKeyError(ConflictError):
    """A partition key cannot change like this while partition indexes are on its table.

    Attributes:
        table: The table, `database.name`.
        indexes: Names of the indexes that forbid it.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, table: str, change: str, indexes: Sequence[str]) -> None:
        """Build the message from what was to change, for instance `key year cannot become string`."""
        self.table = table
        self.indexes = tuple(indexes)
        super().__init__(
            f"table {table}: {change} because of partition index {', '.join(indexes)}; delete the index first"
        )


class IndexBuildEndedError(ConflictError):
    """The partition index that is being built was deleted, cancelled, or has FAILED meanwhile."""

    retryable: ClassVar[bool] = False
