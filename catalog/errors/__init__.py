"""Every error the catalog raises, in one tree.

CatalogError
├── InvalidRequestError              the request cannot be right, whenever it is sent
│   ├── InvalidIdentifierError
│   ├── InvalidKeyTypeError
│   ├── InvalidTableError
│   │   └── DuplicateColumnError     two columns, or fields of columns, have one name
│   ├── ReservedPropertyError        a property that only Calve writes
│   ├── InvalidIndexError
│   ├── InvalidPartitionError        carries the refused partitions
│   ├── InvalidPartitionSpecError    a partition is named by keys that its table does not have
│   │   └── PartialPartitionSpecError    one partition is meant, and not every key has a value
│   ├── NotATableError               it is a view
│   ├── IcebergTableError            what a Hive table can do was asked of an Iceberg table
│   ├── NotIcebergTableError         what an Iceberg table can do was asked of another one
│   ├── MigrationRefusedError        a table cannot become an Iceberg table; the subclasses say why
│   │   ├── AlreadyIcebergError
│   │   ├── ForeignTableError        its files belong to Delta, Hudi or another provider
│   │   ├── TransactionalTableError  its files are those of a transactional (ACID) table
│   │   ├── PositionalTableError     its columns are found by their position in the files
│   │   ├── SharedLocationError      another table, or another partition, has the same files
│   │   ├── QuarantinedPartitionError
│   │   ├── ReservedFolderError      the folder of Iceberg's metadata holds files of the table
│   │   ├── ColumnsDifferError       files cannot be added to an Iceberg table with other columns or keys
│   │   ├── UnusableFilesError       files are foreign, empty or damaged
│   │   └── DuplicateFilesError      an Iceberg table has the files already
│   ├── UnsupportedFormatError       the files are in a format that is recorded only
│   ├── InvalidRowsError             rows to append do not have the table's columns, or values of their types
│   ├── InvalidSchemeError           a partition scheme, or a change of one, contradicts itself
│   │   ├── BoundsNotAscendingError
│   │   ├── BoundOutsideRangeError
│   │   ├── DuplicateListValueError
│   │   ├── ListGroupMismatchError
│   │   ├── SchemeValueError         a text is not of the partition column's type
│   │   ├── DefaultPartitionError    the default partition can be neither split, dropped nor merged
│   │   ├── PartitionsNotNeighboursError
│   │   └── UnsupportedChangeError   the table's scheme does not know this change
│   ├── UnsupportedIcebergTypeError  columns have types that Iceberg does not have; carries them
│   ├── ReservedColumnError          columns have names that Iceberg keeps for its own
│   ├── PartitionValueError          a partition's value is not of its key's type
│   ├── WrongFieldError              a field of a form is missing, superfluous, or not right
│   ├── InvalidConfigurationError
│   ├── LocationNotAllowedError      a location or host lies outside those that the settings allow
│   ├── SourceFileError
│   ├── InvalidLocationError         a location is empty, or no file system is known for it
│   ├── InvalidSourceError           the address of a metastore, or a pattern behind it, cannot be read
│   ├── UnsupportedSourceTableError  a metastore's table cannot be kept in the catalog
│   ├── UnusableFileError            a data file cannot be a file of an Iceberg table
│   ├── NestedFolderError            a folder of data files has a folder inside, and none was expected
│   ├── ExpressionError              carries the position in the expression
│   │   ├── ExpressionSyntaxError
│   │   ├── UnknownColumnError
│   │   ├── LiteralTypeError
│   │   ├── UnsupportedExpressionError
│   │   └── ExpressionTooComplexError
│   └── StatementError               carries the position in the statement
│       ├── StatementSyntaxError
│       ├── UnsupportedStatementError
│       ├── StatementTooLongError
│       ├── UnknownTypeError         a column has a type that there is not
│       ├── InvalidValueError        a value of INSERT is not of its column's type
│       ├── UnknownProcedureError    there is no procedure of this name
│       ├── ProcedureArgumentError   an argument of a procedure is missing, unknown, or not right
│       ├── InvalidQueryError        Spark cannot make sense of a query
│       └── RefusedStatementError    it would read or call what statements may not
├── NotFoundError
│   ├── DatabaseNotFoundError, TableNotFoundError, PartitionNotFoundError,
│   └── IndexNotFoundError, OperationNotFoundError, PropertyNotFoundError
├── AlreadyExistsError
│   ├── DatabaseAlreadyExistsError, TableAlreadyExistsError,
│   └── PartitionAlreadyExistsError, IndexAlreadyExistsError
├── LimitExceededError
├── ConflictError                    somebody else changed it, or holds it now
│   ├── OperationConflictError
│   │   └── OperationReusedError
│   ├── DatabaseNotEmptyError
│   ├── LocationNotEmptyError
│   ├── LocationInUseError           a location is another table's, or inside or around it
│   │   ├── LocationTakenError       another partition of the table has the folder of a partition
│   │   └── FolderBeingPurgedError   a purge that has not ended deletes the files there
│   ├── IndexedKeyError              a partition index needs the key as it is
│   ├── IndexBuildEndedError         the index was deleted, cancelled or FAILED while it was being built
│   ├── PlanConflictError            the table is not any more as the plan expects it
│   │   └── MigrationConflictError   the table, or its files, changed after a migration was planned
│   ├── SourceEntryChangedError      a metastore's entry is not any more as it is expected
│   ├── DataWrittenError             to go back to Hive would lose what was written as Iceberg
│   ├── FilesNeededError             an Iceberg table needs the files that should go
│   ├── UnreadableMetadataError      it is not known which files an Iceberg table needs
│   └── FencedError                  this attempt was given up; it may not commit
├── VerificationFailedError
├── SourceError                      a metastore says that it cannot do it
│   ├── SourceUnavailableError       it does not answer
│   ├── SourceClientMissingError     the package that speaks its protocol is not installed
│   └── TablesNotImportedError       of the tables that were to be imported, some were not
├── StorageError                     a disk or object store cannot be read or written; an `OSError`, too
│   └── MissingFileError             a file or folder is not there; a `FileNotFoundError`, too
├── FilesNotDeletedError             the catalog has changed as asked, and files are left
├── EngineError                      a statement failed while Spark was running it
│   └── EngineUnavailableError       Spark is not installed, or does not start
└── CatalogUnavailableError          no catalog is named, reachable or initialised
    ├── CatalogVersionError          its schema is that of another version of Calve
    ├── CatalogReadOnlyError         its database, or its disk, cannot be written
    ├── CatalogAccessError           its database denies the user something
    ├── CatalogFullError             its disk is full
    └── CatalogRefusedError          its database refuses a statement for another reason
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class CatalogError(Exception):
    """Base of all errors of the catalog."""

    retryable: ClassVar[bool] = False

    position: int | None = None
    """Offset of the offending character in what was asked, from 0; None when no place can be named."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from attributes, because subclasses build their message from typed arguments."""
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(cls: type[CatalogError], args: tuple[Any, ...], attributes: dict[str, Any]) -> CatalogError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


class InvalidRequestError(CatalogError):
    """The request cannot be right, whenever it is sent."""


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


class InvalidSchemeError(InvalidRequestError):
    """A partition scheme, or a change of one, contradicts itself."""


class BoundsNotAscendingError(InvalidSchemeError):
    """Two neighbouring bounds of ranges do not ascend.

    Attributes:
        lower, upper: The pair, as written.
    """

    def __init__(self, place: str, lower: str, upper: str) -> None:
        """Name the pair; `place` says where it stands, for instance `RANGE_INFO`."""
        self.lower = lower
        self.upper = upper
        super().__init__(
            f"{place}: bound {upper} follows {lower} and is not greater; write the bounds in ascending order"
        )


class BoundOutsideRangeError(InvalidSchemeError):
    """A bound does not lie inside the range that is split, or not at its end where it has to."""


class DuplicateListValueError(InvalidSchemeError):
    """A value is named twice in the groups of a list."""


class ListGroupMismatchError(InvalidSchemeError):
    """The groups that a group is split into are not together exactly the old one."""


class SchemeValueError(InvalidSchemeError):
    """A bound, a list value or an interval is not of the partition column's type."""


class DefaultPartitionError(InvalidSchemeError):
    """Partition 0 takes what no other partition takes; it can be neither split, dropped nor merged."""


class PartitionsNotNeighboursError(InvalidSchemeError):
    """Ranges that are not side by side cannot become one."""


class UnsupportedChangeError(InvalidSchemeError):
    """A table's partition scheme does not know this change."""


@dataclass(frozen=True)
class UnsupportedColumn:
    """A column that cannot be a column of an Iceberg table.

    Attributes:
        type: As Hive writes it.
        problem: What about the type Iceberg does not have, and in which field of the column.
    """

    name: str
    type: str
    problem: str

    def __str__(self) -> str:
        """Say what is wrong in one line."""
        shown = self.type if len(self.type) <= 100 else self.type[:100] + "…"
        return f"column {self.name} of type {shown}: {self.problem}"


class UnsupportedIcebergTypeError(InvalidRequestError):
    """Columns have types that Iceberg does not have.

    Attributes:
        columns: All columns of the table that are like this.
    """

    def __init__(self, table: str, columns: Sequence[UnsupportedColumn]) -> None:
        """Name all of them."""
        self.columns = tuple(columns)
        super().__init__(
            f"table {table} cannot become an Iceberg table as it is: {'; '.join(map(str, self.columns))}. Nothing was "
            "changed; change or drop these columns first"
        )


class ReservedColumnError(InvalidRequestError):
    """Columns have names that Iceberg keeps for columns of its own.

    Attributes:
        columns: Their names.
    """

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        """Name all of them."""
        self.columns = tuple(columns)
        super().__init__(
            f"table {table} cannot become an Iceberg table as it is: Iceberg keeps the name {', '.join(self.columns)} "
            "for a column of its own. Nothing was changed; rename the column first"
        )


class PartitionValueError(InvalidRequestError):
    """The value of a partition is not of its key's type.

    Attributes:
        key: The partition key.
        value: The value as it was given.
        expected_type: The key's type as Hive writes it.
    """

    def __init__(self, key: str, value: str, expected_type: str, problem: str) -> None:
        """Name key, value and type; `problem` says what is wrong with the value."""
        self.key = key
        self.value = value
        self.expected_type = expected_type
        super().__init__(
            f"partition key {key} of type {expected_type} has the value {value[:100]!r} in a partition: {problem}. "
            "Rename or drop the partition, or make the key a string"
        )


class WrongFieldError(InvalidRequestError):
    """A field of a form is missing, superfluous, or not right.

    Attributes:
        field: Its name.
    """

    def __init__(self, field: str, problem: str) -> None:
        """Begin the message with the field's name."""
        self.field = field
        super().__init__(f"{field}: {problem}")


class InvalidConfigurationError(InvalidRequestError):
    """The YAML list of tables, or an environment variable, has a wrong entry."""


class LocationNotAllowedError(InvalidRequestError):
    """A location is below no allowed folder, or a host is not among the allowed ones."""


class SourceFileError(InvalidRequestError):
    """A source file is missing, changed after it was loaded, or cannot be parsed."""


class InvalidLocationError(InvalidRequestError):
    """A location is empty, has a password in it, or no file system is known for it."""


class InvalidSourceError(InvalidRequestError):
    """The address of a metastore, or a pattern of its tables, cannot be read."""


class UnsupportedSourceTableError(InvalidRequestError):
    """A metastore's table is of a kind or format that the catalog cannot keep so that it reads right."""


class FileProblem(StrEnum):
    """Why a data file cannot be a file of an Iceberg table."""

    EMPTY = "EMPTY"
    """It has no bytes at all."""
    FOREIGN = "FOREIGN"
    """It is not in the format that it should be in."""
    DAMAGED = "DAMAGED"
    """It is in that format, and what describes its rows cannot be read."""
    WIDER_COLUMN = "WIDER_COLUMN"
    """A column's values may not fit the type that the table's column has."""
    INCOMPATIBLE_COLUMN = "INCOMPATIBLE_COLUMN"
    """A column is of another type than the table's."""
    RESERVED_NAME = "RESERVED_NAME"
    """A column has a name that Iceberg gives to what it knows of each row."""
    AMBIGUOUS_NAME = "AMBIGUOUS_NAME"
    """Two columns differ only in case."""
    FIELD_ID = "FIELD_ID"
    """A column has a field id that is not the one of the table's column, and readers go by ids."""
    NO_COMMON_COLUMN = "NO_COMMON_COLUMN"
    """It has rows, and none of the table's columns."""
    NULLS = "NULLS"
    """It has nulls, or may have some, where the Iceberg table allows none."""
    OLD_CALENDAR = "OLD_CALENDAR"
    """It has dates or timestamps, or may have some, that Hive's readers convert and Iceberg's do not."""


class UnusableFileError(InvalidRequestError):
    """A data file cannot be a file of an Iceberg table.

    Attributes:
        path: The file.
        problem: What is wrong with it.
    """

    def __init__(self, path: str, problem: FileProblem, text: str) -> None:
        """Begin the message with the file's path."""
        self.path = path
        self.problem = problem
        super().__init__(f"file {path}: {text}")


class NestedFolderError(InvalidRequestError):
    """A folder of data files has a folder inside, and it was not said what to do with those.

    Attributes:
        folder: The folder inside.
    """

    def __init__(self, location: str, folder: str) -> None:
        """Name the first such folder below a location."""
        self.folder = folder
        super().__init__(
            f"folder {location} has a folder inside, {folder}; say recursive_directory => 'true' to take the files of "
            "nested folders too, or 'false' to leave them out"
        )


class PartitionProblem(StrEnum):
    """Why a partition does not fit an index; the spelling of Glue's backfill error codes.

    Source: AWS Glue API, `BackfillError.Code`.
    """

    ENCRYPTED = "ENCRYPTED_PARTITION_ERROR"
    INVALID_TYPE = "INVALID_PARTITION_TYPE_DATA_ERROR"
    MISSING_VALUE = "MISSING_PARTITION_VALUE_ERROR"
    UNSUPPORTED_CHARACTER = "UNSUPPORTED_PARTITION_CHARACTER_ERROR"


@dataclass(frozen=True)
class RefusedPartition:
    """One partition that a table's indexes do not admit.

    Attributes:
        partition: Its name in the form `k=v/k2=v2`.
        key: The indexed key whose value does not fit; None when the whole partition does not (`ENCRYPTED`).
        value: The value as it was given; None when it is missing.
        expected_type: The key's type, for instance `int` or `char(3)`; None when `key` is.
        code: What is wrong.
        index: The index that needs the key; None when the rows of a load would be read as null.
    """

    partition: str
    key: str | None
    value: str | None
    expected_type: str | None
    code: PartitionProblem
    index: str | None

    def __str__(self) -> str:
        """Say what is wrong in one line."""
        if self.code is PartitionProblem.ENCRYPTED:
            return (
                f"partition {self.partition!r}: its property has_encrypted_data is true, and partition index "
                f"{self.index!r} takes no encrypted partitions ({self.code})"
            )
        wrong = "has no value" if self.code is PartitionProblem.MISSING_VALUE else f"has the value {self.value!r}"
        because = "the key's type" if self.index is None else f"because partition index {self.index!r} is on it"
        return (
            f"partition {self.partition!r}: key {self.key!r} {wrong}, expected {self.expected_type} {because} "
            f"({self.code})"
        )


class InvalidPartitionError(InvalidRequestError):
    """Partitions cannot be added as they are given.

    Attributes:
        table: The table, `database.name`.
        refused: One entry for each partition that an index does not admit; empty when the request as a whole is wrong.
    """

    def __init__(
        self,
        table: str,
        refused: Sequence[RefusedPartition] = (),
        *,
        count: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Build the message from what was refused, of which there may be `count` in all, or from `reason`."""
        self.table = table
        self.refused = tuple(refused)
        count = len(self.refused) if count is None else count
        if reason is None:
            shown = "; ".join(str(problem) for problem in self.refused[:10])
            more = f"; and {count - 10:,} more" if count > 10 else ""
            reason = (
                f"{count:,} partition(s) refused: {shown}{more}. "
                "Nothing was added. Correct the values, or ask for the valid ones only"
            )
        super().__init__(f"table {table}: {reason}")


class InvalidPartitionSpecError(InvalidRequestError):
    """A partition is named by keys that its table does not have, or by one key twice."""


class PartialPartitionSpecError(InvalidPartitionSpecError):
    """One partition is meant, and a partition key has no value."""


class NotATableError(InvalidRequestError):
    """What a table can do was asked of a view."""


class IcebergTableError(InvalidRequestError):
    """What a Hive table can do was asked of an Iceberg table."""


class NotIcebergTableError(InvalidRequestError):
    """What an Iceberg table can do was asked of a table that is none."""


class MigrationRefusedError(InvalidRequestError):
    """A table cannot become an Iceberg table as it is; nothing was changed."""


class AlreadyIcebergError(MigrationRefusedError):
    """It is one."""


class ForeignTableError(MigrationRefusedError):
    """The table's files are not Hive's: a log of Delta, Hudi or another provider says which of them count."""


class TransactionalTableError(MigrationRefusedError):
    """The table's files are those of a transactional (ACID) table of Hive, with deltas that only Hive can merge."""


class PositionalTableError(MigrationRefusedError):
    """The table's columns are found by their position in the files, and Iceberg's readers find them by name."""


class SharedLocationError(MigrationRefusedError):
    """The same files would belong to two tables, or to two partitions."""


class QuarantinedPartitionError(MigrationRefusedError):
    """Partitions are held back from readers, and an Iceberg table would show them."""


class ReservedFolderError(MigrationRefusedError):
    """The folder where Iceberg's metadata usually are, and nobody looks for data, holds files of the table."""


class ColumnsDifferError(MigrationRefusedError):
    """The files of a Hive table cannot be added to an Iceberg table that has other columns or partition keys."""


@dataclass(frozen=True)
class RefusedFile:
    """A file that cannot be part of a table.

    Attributes:
        message: What is wrong, as a sentence.
    """

    path: str
    problem: FileProblem
    message: str

    @classmethod
    def of(cls, error: UnusableFileError) -> RefusedFile:
        """Return what an error says of a file."""
        return cls(error.path, error.problem, str(error).removeprefix(f"file {error.path}: "))

    def __str__(self) -> str:
        """Say what is wrong in one line."""
        return f"{self.path}: {self.message} ({self.problem})"


class UnusableFilesError(MigrationRefusedError):
    """Files of the table cannot be part of an Iceberg table.

    Attributes:
        problems: The first of them.
    """

    def __init__(self, table: str, problems: Sequence[RefusedFile], count: int | None = None) -> None:
        """Name the first of the files.

        Args:
            count: How many there are; None for just these.
        """
        self.problems = tuple(problems)
        count = len(problems) if count is None else count
        shown = "; ".join(map(str, problems[:10]))
        more = f"; and {count - 10:,} more" if count > 10 else ""
        super().__init__(
            f"table {table}: {count:,} file(s) cannot be part of an Iceberg table: {shown}{more}. Nothing was "
            "changed. Take them out of the table's folder, or, of empty and foreign ones, let them be skipped"
        )


class DuplicateFilesError(MigrationRefusedError):
    """Files that should be added to an Iceberg table are in it already.

    Attributes:
        paths: The first of them.
    """

    def __init__(self, table: str, paths: Sequence[str], count: int) -> None:
        """Name the first of the files."""
        self.paths = tuple(paths)
        super().__init__(
            f"Iceberg table {table} has {count:,} of the files already, for instance {', '.join(paths[:5])}; nothing "
            "was added. Add other partitions, or let duplicate files be skipped"
        )


class UnsupportedFormatError(InvalidRequestError):
    """Files are in a format that the catalog records, and nobody here reads or writes."""


class InvalidRowsError(InvalidRequestError):
    """Rows to append do not have the columns of the table, or not values of their types."""


class ExpressionError(InvalidRequestError):
    """A filter expression cannot be used.

    Attributes:
        expression: The whole text.
        position: Offset of the offending character, from 0; None when no place can be named.
    """

    def __init__(self, problem: str, expression: str, position: int | None = None) -> None:
        """Point at the place inside the expression."""
        self.expression = expression
        self.position = position
        shown = expression if len(expression) <= 200 else expression[:200] + "…"
        place = "" if position is None else f" at position {position}"
        super().__init__(f"{problem}{place} in expression: {shown}")


class ExpressionSyntaxError(ExpressionError):
    """The expression is not in the grammar."""


class UnknownColumnError(ExpressionError):
    """The expression names something that is not a partition key."""


class LiteralTypeError(ExpressionError):
    """A literal cannot be of the type of the key that it is compared with."""


class UnsupportedExpressionError(ExpressionError):
    """The expression is valid SQL but outside the filter language."""


class ExpressionTooComplexError(ExpressionError):
    """The expression is too long or too deep."""


class StatementError(InvalidRequestError):
    """A statement cannot be used.

    Attributes:
        statement: Its whole text.
        position: Offset of the offending character in it, from 0; None when no place can be named.
    """

    def __init__(self, problem: str, statement: str, position: int | None = None) -> None:
        """Point at the place inside the statement."""
        self.statement = statement
        self.position = position
        super().__init__(problem)


class StatementSyntaxError(StatementError):
    """The statement is not in the grammar."""


class UnsupportedStatementError(StatementError):
    """The statement is SQL that is done elsewhere, or in another way."""


class StatementTooLongError(StatementError):
    """The statement is longer than what is read."""


class UnknownTypeError(StatementError):
    """A column has a type that there is not, or with a size that it cannot have."""


class InvalidValueError(StatementError):
    """A value of an INSERT is not of its column's type."""


class UnknownProcedureError(StatementError):
    """There is no procedure of this name."""


class ProcedureArgumentError(StatementError):
    """An argument of a procedure is missing, unknown, given twice, or not right."""


class InvalidQueryError(StatementError):
    """Spark cannot make sense of a query."""


class RefusedStatementError(StatementError):
    """A statement would read or call what statements may not."""


class NotFoundError(CatalogError):
    """Something that the request names does not exist."""


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


class AlreadyExistsError(CatalogError):
    """Something of this name exists."""


class DatabaseAlreadyExistsError(AlreadyExistsError):
    """A database of this name exists."""


class TableAlreadyExistsError(AlreadyExistsError):
    """A table of this name exists."""


class PartitionAlreadyExistsError(AlreadyExistsError):
    """A partition with these values exists."""


class IndexAlreadyExistsError(AlreadyExistsError):
    """The table has an index of this name or with these keys."""


class LimitExceededError(CatalogError):
    """A documented limit would be passed."""


class ConflictError(CatalogError):
    """Somebody else changed, or holds, what the request is about; look again and retry."""

    retryable: ClassVar[bool] = True


class OperationConflictError(ConflictError):
    """Another operation is at work on the table."""


class OperationReusedError(OperationConflictError):
    """The operation of this id was begun for another request, whose outcome is not this one's.

    Attributes:
        operation_id: The id that was used again.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, operation_id: str, begun_for: str) -> None:
        """Name the id and the earlier request."""
        self.operation_id = operation_id
        super().__init__(
            f"operation {operation_id} was begun for another request, {begun_for}; start another operation, of an id "
            "of its own (in Airflow: a run with another run id)"
        )


class DatabaseNotEmptyError(ConflictError):
    """The database still has tables."""

    retryable: ClassVar[bool] = False


class LocationNotEmptyError(ConflictError):
    """Files that the catalog does not know are where a partition should go."""

    retryable: ClassVar[bool] = False


class LocationInUseError(ConflictError):
    """A table, or a partition, would lie where another has its files.

    Attributes:
        table: The table that cannot have the location.
        location: The location.
        owner, owner_location: The other table, which is in it or around it, and its location.
        others: The errors of other locations of the same request that were found together with this one.
    """

    retryable: ClassVar[bool] = False

    others: Sequence[LocationInUseError] = ()

    @staticmethod
    def raise_first(errors: Iterable[LocationInUseError]) -> None:
        """Raise the first of errors, if there is any, with the rest as its `others`."""
        found = list(errors)
        if found:
            first, *first.others = found
            raise first

    def __init__(
        self, table: str, location: str, owner: str, owner_location: str, *, reason: str | None = None
    ) -> None:
        """Keep the values and build the message; the reason names the owner, and what to do."""
        self.table, self.location, self.owner, self.owner_location = table, location, owner, owner_location
        reason = reason or (
            f"table {owner} lies in {owner_location}, and the files of one table may not be below another's location; "
            "choose another location"
        )
        super().__init__(f"table {table}: {location} cannot be used, because {reason}")


class FolderBeingPurgedError(LocationInUseError):
    """A table, or a partition, would lie where a purge that has not ended deletes the files.

    Attributes:
        operation: The id of the purge's operation; `owner` is the same.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, table: str, location: str, operation: str, purged_location: str) -> None:
        """Keep the values and build the message."""
        self.operation = operation
        reason = (
            f"operation {operation} is deleting the files in {purged_location}; wait until it has ended, or, if it "
            "was interrupted, run `calve vacuum`, which finishes it"
        )
        super().__init__(table, location, operation, purged_location, reason=reason)


class LocationTakenError(LocationInUseError):
    """A partition would lie in the folder of another partition of its table.

    Attributes:
        owner, owner_location: The other partition, and its folder.
    """

    def __init__(self, table: str, location: str, owner: str, owner_location: str) -> None:
        """Keep the values and build the message."""
        reason = (
            f"{owner} has its files in {owner_location}, and both would return them. Give the partition another "
            "location"
        )
        super().__init__(table, location, owner, owner_location, reason=reason)


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


class PlanConflictError(ConflictError):
    """The table is not any more as a plan expects it; make a new plan."""


class SourceEntryChangedError(ConflictError):
    """The entry of a table in its metastore is not any more as whoever wants to change it expects."""

    retryable: ClassVar[bool] = False


class MigrationConflictError(PlanConflictError):
    """The table, or its files, changed after its migration was planned."""


class DataWrittenError(ConflictError):
    """To go back to the Hive table would lose what was written into the Iceberg table since."""

    retryable: ClassVar[bool] = False


class FilesNeededError(ConflictError):
    """Files should be deleted that an Iceberg table needs."""

    retryable: ClassVar[bool] = False


class UnreadableMetadataError(ConflictError):
    """Metadata of an Iceberg table cannot be read, so it is not known which files it needs.

    Attributes:
        table: The table, `database.name`.
        path: The file.
        reason: What the reader said.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, table: str, path: str, reason: str) -> None:
        """Build the message."""
        self.table, self.path, self.reason = table, path, reason
        super().__init__(
            f"Iceberg table {table}: {path} cannot be read ({reason}), so it is not known which files the table needs, "
            "and none are deleted; restore the file, or drop the table"
        )


class FencedError(ConflictError):
    """This attempt of a job was given up and a later one, or nobody, may commit in its place."""

    retryable: ClassVar[bool] = False


class VerificationFailedError(CatalogError):
    """What was written differs from what should have been written."""


class SourceError(CatalogError):
    """A metastore that tables are imported from says that it cannot do what it was asked."""


class SourceUnavailableError(SourceError):
    """A metastore that tables are imported from does not answer."""

    retryable: ClassVar[bool] = True


class SourceClientMissingError(SourceError):
    """The package that speaks a metastore's protocol is not installed."""


class TablesNotImportedError(SourceError):
    """Of the tables that were to be imported, some were not; the others were."""


class StorageError(CatalogError, OSError):
    """Files cannot be read or written: a disk that is full or read-only, a missing permission, an unreachable store.

    It is an `OSError`, too, for callers that know files only as such.
    """

    retryable: ClassVar[bool] = True


class MissingFileError(StorageError, FileNotFoundError):
    """A file or folder is not there."""

    retryable: ClassVar[bool] = False


class FilesNotDeletedError(CatalogError):
    """The catalog has changed as asked, and files that should be gone could not be deleted."""


class EngineError(CatalogError):
    """Spark failed while it was running a statement."""


class EngineUnavailableError(EngineError):
    """A statement needs Spark, which is not installed or does not start."""


class CatalogUnavailableError(CatalogError):
    """No catalog is named, or it cannot be reached, or its schema is not there yet."""

    retryable: ClassVar[bool] = True


class CatalogVersionError(CatalogUnavailableError):
    """The catalog's schema is that of another version of Calve."""

    retryable: ClassVar[bool] = False


class CatalogReadOnlyError(CatalogUnavailableError):
    """The catalog's database, or its file, cannot be written."""

    retryable: ClassVar[bool] = False


class CatalogAccessError(CatalogUnavailableError):
    """The catalog's database denies its user something."""

    retryable: ClassVar[bool] = False


class CatalogFullError(CatalogUnavailableError):
    """The disk of the catalog's database is full; when there is room again, a retry succeeds."""


class CatalogRefusedError(CatalogUnavailableError):
    """The catalog's database refuses a statement for a reason that a retry does not change."""

    retryable: ClassVar[bool] = False
