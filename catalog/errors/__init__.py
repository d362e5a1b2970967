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
    ├── CommitOutcomeUnknownError    the connection was lost during a commit: look at the state before acting
    ├── CatalogVersionError          its schema is that of another version of Calve
    ├── CatalogReadOnlyError         its database, or its disk, cannot be written
    ├── CatalogAccessError           its database denies the user something
    ├── CatalogFullError             its disk is full
    └── CatalogRefusedError          its database refuses a statement for another reason
"""

from catalog.errors.availability import (
    CatalogAccessError,
    CatalogFullError,
    CatalogReadOnlyError,
    CatalogRefusedError,
    CatalogUnavailableError,
    CatalogVersionError,
    CommitOutcomeUnknownError,
)
from catalog.errors.base import (
    AlreadyExistsError,
    CatalogError,
    ConflictError,
    InvalidRequestError,
    LimitExceededError,
    NotFoundError,
    VerificationFailedError,
)
from catalog.errors.definitions import (
    DatabaseAlreadyExistsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    DuplicateColumnError,
    IcebergTableError,
    IndexAlreadyExistsError,
    IndexBuildEndedError,
    IndexedKeyError,
    IndexNotFoundError,
    InvalidIdentifierError,
    InvalidIndexError,
    InvalidKeyTypeError,
    InvalidTableError,
    NotATableError,
    NotIcebergTableError,
    OperationNotFoundError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    PropertyNotFoundError,
    ReservedPropertyError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFormatError,
)
from catalog.errors.iceberg import (
    AlreadyIcebergError,
    ColumnsDifferError,
    DataWrittenError,
    DuplicateFilesError,
    FileProblem,
    FilesNeededError,
    ForeignTableError,
    MigrationConflictError,
    MigrationRefusedError,
    NestedFolderError,
    PositionalTableError,
    QuarantinedPartitionError,
    RefusedFile,
    ReservedColumnError,
    ReservedFolderError,
    SharedLocationError,
    TransactionalTableError,
    UnreadableMetadataError,
    UnsupportedColumn,
    UnsupportedIcebergTypeError,
    UnusableFileError,
    UnusableFilesError,
)
from catalog.errors.locations import (
    FilesNotDeletedError,
    FolderBeingPurgedError,
    InvalidLocationError,
    LocationInUseError,
    LocationNotAllowedError,
    LocationNotEmptyError,
    LocationTakenError,
    MissingFileError,
    SourceFileError,
    StorageError,
)
from catalog.errors.metastores import (
    InvalidSourceError,
    SourceClientMissingError,
    SourceEntryChangedError,
    SourceError,
    SourceUnavailableError,
    TablesNotImportedError,
    UnsupportedSourceTableError,
)
from catalog.errors.operations import FencedError, OperationConflictError, OperationReusedError, PlanConflictError
from catalog.errors.partitions import (
    InvalidPartitionError,
    InvalidPartitionSpecError,
    InvalidRowsError,
    PartialPartitionSpecError,
    PartitionProblem,
    PartitionValueError,
    RefusedPartition,
)
from catalog.errors.schemes import (
    BoundOutsideRangeError,
    BoundsNotAscendingError,
    DefaultPartitionError,
    DuplicateListValueError,
    InvalidSchemeError,
    ListGroupMismatchError,
    PartitionsNotNeighboursError,
    SchemeValueError,
    UnsupportedChangeError,
)
from catalog.errors.settings import InvalidConfigurationError, WrongFieldError
from catalog.errors.statements import (
    EngineError,
    EngineUnavailableError,
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionTooComplexError,
    InvalidQueryError,
    InvalidValueError,
    LiteralTypeError,
    ProcedureArgumentError,
    RefusedStatementError,
    StatementError,
    StatementSyntaxError,
    StatementTooLongError,
    UnknownColumnError,
    UnknownProcedureError,
    UnknownTypeError,
    UnsupportedExpressionError,
    UnsupportedStatementError,
)

__all__ = [
    "AlreadyExistsError",
    "AlreadyIcebergError",
    "BoundOutsideRangeError",
    "BoundsNotAscendingError",
    "CatalogAccessError",
    "CatalogError",
    "CatalogFullError",
    "CatalogReadOnlyError",
    "CatalogRefusedError",
    "CatalogUnavailableError",
    "CatalogVersionError",
    "ColumnsDifferError",
    "CommitOutcomeUnknownError",
    "ConflictError",
    "DataWrittenError",
    "DatabaseAlreadyExistsError",
    "DatabaseNotEmptyError",
    "DatabaseNotFoundError",
    "DefaultPartitionError",
    "DuplicateColumnError",
    "DuplicateFilesError",
    "DuplicateListValueError",
    "EngineError",
    "EngineUnavailableError",
    "ExpressionError",
    "ExpressionSyntaxError",
    "ExpressionTooComplexError",
    "FencedError",
    "FileProblem",
    "FilesNeededError",
    "FilesNotDeletedError",
    "FolderBeingPurgedError",
    "ForeignTableError",
    "IcebergTableError",
    "IndexAlreadyExistsError",
    "IndexBuildEndedError",
    "IndexNotFoundError",
    "IndexedKeyError",
    "InvalidConfigurationError",
    "InvalidIdentifierError",
    "InvalidIndexError",
    "InvalidKeyTypeError",
    "InvalidLocationError",
    "InvalidPartitionError",
    "InvalidPartitionSpecError",
    "InvalidQueryError",
    "InvalidRequestError",
    "InvalidRowsError",
    "InvalidSchemeError",
    "InvalidSourceError",
    "InvalidTableError",
    "InvalidValueError",
    "LimitExceededError",
    "ListGroupMismatchError",
    "LiteralTypeError",
    "LocationInUseError",
    "LocationNotAllowedError",
    "LocationNotEmptyError",
    "LocationTakenError",
    "MigrationConflictError",
    "MigrationRefusedError",
    "MissingFileError",
    "NestedFolderError",
    "NotATableError",
    "NotFoundError",
    "NotIcebergTableError",
    "OperationConflictError",
    "OperationNotFoundError",
    "OperationReusedError",
    "PartialPartitionSpecError",
    "PartitionAlreadyExistsError",
    "PartitionNotFoundError",
    "PartitionProblem",
    "PartitionValueError",
    "PartitionsNotNeighboursError",
    "PlanConflictError",
    "PositionalTableError",
    "ProcedureArgumentError",
    "PropertyNotFoundError",
    "QuarantinedPartitionError",
    "RefusedFile",
    "RefusedPartition",
    "RefusedStatementError",
    "ReservedColumnError",
    "ReservedFolderError",
    "ReservedPropertyError",
    "SchemeValueError",
    "SharedLocationError",
    "SourceClientMissingError",
    "SourceEntryChangedError",
    "SourceError",
    "SourceFileError",
    "SourceUnavailableError",
    "StatementError",
    "StatementSyntaxError",
    "StatementTooLongError",
    "StorageError",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "TablesNotImportedError",
    "TransactionalTableError",
    "UnknownColumnError",
    "UnknownProcedureError",
    "UnknownTypeError",
    "UnreadableMetadataError",
    "UnsupportedChangeError",
    "UnsupportedColumn",
    "UnsupportedExpressionError",
    "UnsupportedFormatError",
    "UnsupportedIcebergTypeError",
    "UnsupportedSourceTableError",
    "UnsupportedStatementError",
    "UnusableFileError",
    "UnusableFilesError",
    "VerificationFailedError",
    "WrongFieldError",
]
