"""Errors about databases, tables, keys, columns and indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from catalog.errors.base import AlreadyExistsError, ConflictError, InvalidRequestError, NotFoundError


class InvalidIdentifierError(InvalidRequestError):
    """Invalid name of a database, table, column or index."""


class InvalidKeyTypeError(InvalidRequestError):
    """A type that partition keys cannot have."""


class InvalidTableError(InvalidRequestError):
    """An invalid or inconsistent table definition."""


class DuplicateColumnError(InvalidTableError):
    """Two columns, or two fields inside columns, have the same name; names are case-insensitive.

    Attributes:
        names: The duplicate names; fields with the path to them: `column.field`.
    """

    def __init__(self, table: str, names: Sequence[str]) -> None:
        """Build the message from the duplicate names."""
        self.names = tuple(names)
        super().__init__(
            f"table {table}: more than one column or field has the name {', '.join(self.names)} (names are "
            "case-insensitive); rename all but one"
        )


class ReservedPropertyError(InvalidRequestError):
    """A table property that only Calve may write.

    Attributes:
        name: The property.
    """

    def __init__(self, name: str, settable: Sequence[str]) -> None:
        """Build the message from the property and Calve's properties that users may set."""
        self.name = name
        super().__init__(
            f"property {name!r} is reserved: of the properties that begin with 'calve.', only {', '.join(settable)} "
            "can be changed; choose another name"
        )


class InvalidIndexError(InvalidRequestError):
    """An invalid definition of a partition index."""


class NotATableError(InvalidRequestError):
    """An operation for tables was requested on a view."""


class IcebergTableError(InvalidRequestError):
    """An operation for Hive tables was requested on an Iceberg table."""


class NotIcebergTableError(InvalidRequestError):
    """An operation for Iceberg tables was requested on another table."""


class UnsupportedFormatError(InvalidRequestError):
    """The catalog records this file format but cannot read or write it."""


class UnknownIcebergTypeError(UnsupportedFormatError):
    """An Iceberg table has a column of a type that only engines can read, such as `variant`.

    Attributes:
        location: The folder of the table.
        column: The full name of the column.
        type: Its type, as Iceberg writes it.
    """

    def __init__(self, location: str, column: str, type_name: str) -> None:
        """Build the message from location, column and type."""
        self.location, self.column, self.type = location, column, type_name
        super().__init__(
            f"the Iceberg table in {location} has the column {column} of the type {type_name}, which Calve does not "
            "support here; use the engine that added it, or drop the column there"
        )


class DatabaseNotFoundError(NotFoundError):
    """No database has this name."""

    @classmethod
    def of_table(cls, database: str, table: str) -> Self:
        """Return the error about a table that was looked for in a database that the catalog does not have."""
        error = cls(
            f"database {database} does not exist, so there is no table {database}.{table}; `calve tables` lists all "
            "tables"
        )
        error.table = f"{database}.{table}"
        return error


class TableNotFoundError(NotFoundError):
    """No table has this name."""

    @classmethod
    def named(cls, table: str, advice: str = "`calve tables` lists all tables") -> Self:
        """Return the error about a table that the catalog does not have."""
        error = cls(f"table {table} does not exist; {advice}")
        error.table = table
        return error


class PartitionNotFoundError(NotFoundError):
    """The table has no such partition."""


class IndexNotFoundError(NotFoundError):
    """The table has no partition index of this name."""


class FunctionNotFoundError(NotFoundError):
    """The database has no function of this name."""


class MetastoreLockNotFoundError(NotFoundError):
    """A client of a metastore's protocol has no such lock, or not any longer."""


class OperationNotFoundError(NotFoundError):
    """No operation, or no job of one, has this id."""


class PageNotFoundError(NotFoundError):
    """No page of quality checks has this name."""


class PropertyNotFoundError(NotFoundError):
    """The table has no such property."""


class DatabaseAlreadyExistsError(AlreadyExistsError):
    """A database of this name already exists."""


class TableAlreadyExistsError(AlreadyExistsError):
    """A table of this name already exists."""


class PartitionAlreadyExistsError(AlreadyExistsError):
    """A partition with these values already exists."""


class FunctionAlreadyExistsError(AlreadyExistsError):
    """The database has a function of this name."""


class IndexAlreadyExistsError(AlreadyExistsError):
    """The table already has an index of this name or with these keys."""


class DatabaseNotEmptyError(ConflictError):
    """The database still has tables."""

    retryable: ClassVar[bool] = False


class EntryModifiedError(ConflictError):
    """A table is not as a client of a metastore's protocol expects it for a change.

    Attributes:
        table: The table, `database.name`.
        parameter: The parameter whose value the client compared.
        actual, expected: Its values; None if the table has no such parameter.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, table: str, parameter: str, actual: str | None, expected: str | None) -> None:
        """Build the message."""
        self.table, self.parameter, self.actual, self.expected = table, parameter, actual, expected
        super().__init__(
            f"table {table} has been modified: its parameter {parameter} is {actual!r}, expected {expected!r}; nothing "
            "was changed. Read the table again, and repeat the change"
        )


class IndexedKeyError(ConflictError):
    """A partition key cannot change in this way while partition indexes use it.

    Attributes:
        table: The table, `database.name`.
        indexes: Names of the indexes that prevent the change.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, table: str, change: str, indexes: Sequence[str]) -> None:
        """Build the message; `change` names the rejected change, for instance `key year cannot become string`."""
        self.table = table
        self.indexes = tuple(indexes)
        super().__init__(
            f"table {table}: {change} because of partition index {', '.join(indexes)}; delete the index first"
        )


class IndexBuildEndedError(ConflictError):
    """The partition index was deleted, cancelled or FAILED during its build."""

    retryable: ClassVar[bool] = False
