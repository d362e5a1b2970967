"""Errors about Iceberg tables and migrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from catalog.errors.base import ConflictError, InvalidRequestError
from catalog.errors.operations import PlanConflictError


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
