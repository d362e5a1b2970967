"""All errors of the catalog, as one tree.

CatalogError
├── InvalidRequestError              the request is invalid; sending it again does not help
│   ├── InvalidIdentifierError
│   ├── InvalidKeyTypeError
│   ├── InvalidTableError
│   │   └── DuplicateColumnError     two columns, or nested fields, have the same name
│   ├── ReservedPropertyError        only Calve may write this property
│   ├── InvalidIndexError
│   ├── InvalidPartitionError        lists the refused partitions
│   ├── InvalidPartitionSpecError    the keys of a partition specification are wrong
│   │   └── PartialPartitionSpecError    a key has no value where one partition is expected
│   ├── NotATableError               the object is a view
│   ├── IcebergTableError            the operation is for Hive tables only
│   ├── NotIcebergTableError         the operation is for Iceberg tables only
│   ├── MigrationRefusedError        a table cannot become an Iceberg table; subclasses give the reason
│   │   ├── AlreadyIcebergError
│   │   ├── ForeignTableError        its files belong to Delta, Hudi or another format
│   │   ├── TransactionalTableError  the table is a transactional (ACID) table
│   │   ├── PositionalTableError     its columns are resolved by position in the files
│   │   ├── SharedLocationError      another table or partition has the same files
│   │   ├── QuarantinedPartitionError
│   │   ├── ReservedFolderError      the folder for Iceberg metadata contains data files
│   │   ├── ColumnsDifferError       columns or keys differ from those of the target table
│   │   ├── UnusableFilesError       files are empty, damaged or of another format
│   │   └── DuplicateFilesError      the Iceberg table already contains the files
│   ├── UnsupportedFormatError       the catalog records this format but cannot read or write it
│   │   └── UnknownIcebergTypeError  a column of an Iceberg table has a type that only engines can read
│   ├── InvalidRowsError             rows to append do not match the table's columns or their types
│   ├── AmbiguousMergeError          several rows of the source of a MERGE match one row of the table
│   ├── InvalidSchemeError           a partition scheme, or a change to one, is invalid
│   │   ├── BoundsNotAscendingError
│   │   ├── BoundOutsideRangeError
│   │   ├── DuplicateListValueError
│   │   ├── ListGroupMismatchError
│   │   ├── SchemeValueError         a value is not of the partition column's type
│   │   ├── DefaultPartitionError    the default partition cannot be split, dropped or merged
│   │   ├── PartitionsNotNeighboursError
│   │   └── UnsupportedChangeError   the table's scheme does not support this change
│   ├── UnsupportedIcebergTypeError  column types that Iceberg does not support; lists the columns
│   ├── ReservedColumnError          column names that Iceberg reserves
│   ├── PartitionValueError          a partition value is not of its key's type
│   ├── WrongFieldError              a form field is missing, unexpected or invalid
│   ├── InvalidConfigurationError
│   ├── LocationNotAllowedError      the settings do not allow this location or host
│   ├── SourceFileError
│   ├── InvalidLocationError         a location is empty, or its file system is unknown
│   ├── InvalidSourceError           a metastore address, or its table pattern, is invalid
│   ├── UnsupportedSourceTableError  the catalog cannot represent a table of a metastore
│   ├── UnusableFileError            a data file cannot be used in an Iceberg table
│   ├── NestedFolderError            a folder of data files has an unexpected subfolder
│   ├── ExpressionError              has the position in the expression
│   │   ├── ExpressionSyntaxError
│   │   ├── UnknownColumnError
│   │   ├── LiteralTypeError
│   │   ├── UnsupportedExpressionError
│   │   └── ExpressionTooComplexError
│   └── StatementError               has the position in the statement
│       ├── StatementSyntaxError
│       ├── UnsupportedStatementError
│       ├── StatementTooLongError
│       ├── UnknownTypeError         unknown column type
│       ├── InvalidValueError        a value of an INSERT is not of its column's type
│       ├── UnknownProcedureError    unknown procedure
│       ├── ProcedureArgumentError   a procedure argument is missing, unknown or invalid
│       ├── InvalidQueryError        Spark cannot analyze the query
│       └── RefusedStatementError    statements may not read or call this
├── NotFoundError
│   ├── DatabaseNotFoundError, TableNotFoundError, PartitionNotFoundError,
│   ├── IndexNotFoundError, OperationNotFoundError, PropertyNotFoundError, PageNotFoundError
│   ├── FunctionNotFoundError
│   ├── MetastoreLockNotFoundError   a client of a metastore's protocol has no such lock, or not any longer
│   └── UnknownSnapshotError         a table has no such snapshot, or it cannot be restored
├── AlreadyExistsError
│   ├── DatabaseAlreadyExistsError, TableAlreadyExistsError,
│   └── PartitionAlreadyExistsError, IndexAlreadyExistsError, FunctionAlreadyExistsError
├── LimitExceededError
├── DoorError                        a front door refuses a request
│   ├── AccessDeniedError            the client's role does not allow it
│   ├── CredentialsError             it has no credentials, or wrong ones
│   ├── RequestTooLargeError         it is too large, or nested too deeply
│   ├── SlowRequestError             it did not arrive in time
│   └── TooManyRequestsError         the client sends too many requests, or has too many connections
├── ConflictError                    the object was changed, or is in use, by another request
│   ├── OperationConflictError
│   │   └── OperationReusedError
│   ├── DatabaseNotEmptyError
│   ├── LocationNotEmptyError
│   ├── LocationInUseError           a location is, contains or lies inside another table's location
│   │   ├── LocationTakenError       another partition of the table has this folder
│   │   ├── FolderBeingMovedError    a rename is moving a folder there
│   │   └── FolderBeingPurgedError   an unfinished purge is deleting the files there
│   ├── IndexedKeyError              a partition index depends on the key
│   ├── IndexBuildEndedError         the index was deleted, cancelled or FAILED during its build
│   ├── RequirementFailedError       a requirement of an engine's commit does not hold
│   ├── CatalogLockedError           another transaction has held a lock for longer than this one waits
│   ├── PlanConflictError            the table changed after the plan was made
│   │   └── MigrationConflictError   the table or its files changed after the migration was planned
│   ├── EntryModifiedError           a table is not as a client of a metastore's protocol expects it
│   ├── SourceEntryChangedError      a metastore's entry changed after it was read
│   ├── DataWrittenError             a revert to Hive would lose rows written to the Iceberg table
│   ├── FilesNeededError             an Iceberg table needs the files to be deleted
│   ├── UnplacedFilesError           files of other engines are in no partition yet
│   ├── UnsupportedCommitError       Calve cannot follow a commit of another engine
│   ├── UnreadableMetadataError      the files that an Iceberg table needs cannot be determined
│   └── FencedError                  this attempt is fenced; it may not commit
├── VerificationFailedError
├── SourceError                      a metastore reports a failure
│   ├── SourceUnavailableError       it does not respond
│   ├── SourceClientMissingError     its client package is not installed
│   └── TablesNotImportedError       some of the tables were not imported
├── StorageError                     a disk or object store cannot be read or written; also an `OSError`
│   └── MissingFileError             a file or folder does not exist; also a `FileNotFoundError`
├── FilesNotDeletedError             the change is committed, but files are left
├── EngineError                      a statement failed in Spark
│   └── EngineUnavailableError       Spark is not installed, or does not start
└── CatalogUnavailableError          the catalog cannot be reached, or is not initialised
    ├── CommitOutcomeUnknownError    the connection was lost during a commit; check the state before acting
    ├── CatalogNotConfiguredError    no catalog is configured, or its URL names none
    ├── CatalogVersionError          its schema belongs to another version of Calve
    ├── CatalogEncodingError         its database has another encoding than UTF8
    ├── CatalogReadOnlyError         its database or its disk is read-only
    ├── CatalogAccessError           its database denies access
    ├── CatalogFullError             its disk is full
    └── CatalogRefusedError          its database rejects a statement for another reason
"""

from catalog.errors.availability import (
    CatalogAccessError,
    CatalogEncodingError,
    CatalogFullError,
    CatalogNotConfiguredError,
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
    RequirementFailedError,
    VerificationFailedError,
)
from catalog.errors.definitions import (
    DatabaseAlreadyExistsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    DuplicateColumnError,
    EntryModifiedError,
    FunctionAlreadyExistsError,
    FunctionNotFoundError,
    IcebergTableError,
    IndexAlreadyExistsError,
    IndexBuildEndedError,
    IndexedKeyError,
    IndexNotFoundError,
    InvalidIdentifierError,
    InvalidIndexError,
    InvalidKeyTypeError,
    InvalidTableError,
    MetastoreLockNotFoundError,
    NotATableError,
    NotIcebergTableError,
    OperationNotFoundError,
    PageNotFoundError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    PropertyNotFoundError,
    ReservedPropertyError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnknownIcebergTypeError,
    UnsupportedFormatError,
)
from catalog.errors.doors import (
    AccessDeniedError,
    CredentialsError,
    DoorError,
    RequestTooLargeError,
    SlowRequestError,
    TooManyRequestsError,
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
    UnknownSnapshotError,
    UnplacedFilesError,
    UnreadableMetadataError,
    UnsupportedColumn,
    UnsupportedCommitError,
    UnsupportedIcebergTypeError,
    UnusableFileError,
    UnusableFilesError,
)
from catalog.errors.locations import (
    FilesNotDeletedError,
    FolderBeingMovedError,
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
from catalog.errors.operations import (
    CatalogLockedError,
    FencedError,
    OperationConflictError,
    OperationReusedError,
    PlanConflictError,
)
from catalog.errors.partitions import (
    AmbiguousMergeError,
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
    "AccessDeniedError",
    "AlreadyExistsError",
    "AlreadyIcebergError",
    "AmbiguousMergeError",
    "BoundOutsideRangeError",
    "BoundsNotAscendingError",
    "CatalogAccessError",
    "CatalogEncodingError",
    "CatalogError",
    "CatalogFullError",
    "CatalogLockedError",
    "CatalogNotConfiguredError",
    "CatalogReadOnlyError",
    "CatalogRefusedError",
    "CatalogUnavailableError",
    "CatalogVersionError",
    "ColumnsDifferError",
    "CommitOutcomeUnknownError",
    "ConflictError",
    "CredentialsError",
    "DataWrittenError",
    "DatabaseAlreadyExistsError",
    "DatabaseNotEmptyError",
    "DatabaseNotFoundError",
    "DefaultPartitionError",
    "DoorError",
    "DuplicateColumnError",
    "DuplicateFilesError",
    "DuplicateListValueError",
    "EngineError",
    "EngineUnavailableError",
    "EntryModifiedError",
    "ExpressionError",
    "ExpressionSyntaxError",
    "ExpressionTooComplexError",
    "FencedError",
    "FileProblem",
    "FilesNeededError",
    "FilesNotDeletedError",
    "FolderBeingMovedError",
    "FolderBeingPurgedError",
    "ForeignTableError",
    "FunctionAlreadyExistsError",
    "FunctionNotFoundError",
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
    "MetastoreLockNotFoundError",
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
    "PageNotFoundError",
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
    "RequestTooLargeError",
    "RequirementFailedError",
    "ReservedColumnError",
    "ReservedFolderError",
    "ReservedPropertyError",
    "SchemeValueError",
    "SharedLocationError",
    "SlowRequestError",
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
    "TooManyRequestsError",
    "TransactionalTableError",
    "UnknownColumnError",
    "UnknownIcebergTypeError",
    "UnknownProcedureError",
    "UnknownSnapshotError",
    "UnknownTypeError",
    "UnplacedFilesError",
    "UnreadableMetadataError",
    "UnsupportedChangeError",
    "UnsupportedColumn",
    "UnsupportedCommitError",
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
