"""Errors about Iceberg tables and migrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from catalog.errors.base import ConflictError, InvalidRequestError, NotFoundError, first_of
from catalog.errors.operations import PlanConflictError


@dataclass(frozen=True)
class UnsupportedColumn:
    """A column whose type Iceberg does not support.

    Attributes:
        type: As Hive writes it.
        problem: The unsupported part of the type, and the field of the column that has it.
    """

    name: str
    type: str
    problem: str

    def __str__(self) -> str:
        """Return the problem as one line."""
        shown = self.type if len(self.type) <= 100 else self.type[:100] + "…"
        return f"column {self.name} of type {shown}: {self.problem}"


class UnsupportedIcebergTypeError(InvalidRequestError):
    """Columns have types that Iceberg does not support.

    Attributes:
        columns: All such columns of the table.
    """

    def __init__(self, table: str, columns: Sequence[UnsupportedColumn]) -> None:
        """Build the message from all these columns."""
        self.columns = tuple(columns)
        super().__init__(
            f"table {table} cannot become an Iceberg table as it is: {'; '.join(map(str, self.columns))}. Nothing was "
            "changed; change or drop these columns first"
        )


class ReservedColumnError(InvalidRequestError):
    """Columns have names that Iceberg reserves for its metadata columns.

    Attributes:
        columns: Their names.
    """

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        """Build the message from all these columns."""
        self.columns = tuple(columns)
        super().__init__(
            f"table {table} cannot become an Iceberg table as it is: Iceberg reserves the name "
            f"{', '.join(self.columns)} for a metadata column. Nothing was changed; rename the column first"
        )


class UnknownSnapshotError(NotFoundError):
    """A table has no snapshot of an id or of a time, or the catalog has no record of its files.

    It never had the snapshot, it has expired, or engines committed again before the catalog took it in.

    Attributes:
        snapshot: The id or the time.
        known: The ids and times of the table's snapshots, the latest first.
    """

    def __init__(
        self, table: str, snapshot: int | datetime, known: Sequence[tuple[int, datetime]], *, exists: bool = False
    ) -> None:
        """Build the message from some of the known snapshots.

        Args:
            exists: Whether the table has the snapshot.
        """
        self.snapshot = snapshot
        self.known = tuple(known)
        what = f"snapshot {snapshot}" if isinstance(snapshot, int) else f"snapshot of {snapshot:%Y-%m-%d %H:%M:%S%z}"
        shown = [f"{snapshot_id} ({at:%Y-%m-%d %H:%M:%S} UTC)" for snapshot_id, at in self.known[:_SHOWN]]
        if len(self.known) > _SHOWN:
            shown.append(f"and {len(self.known) - _SHOWN:,} older ones")
        advice = f"use one of its snapshots: {', '.join(shown)}" if shown else "it has no snapshot to roll back to"
        finding = f"table {table} has no {what}, or it has expired"
        if exists:
            finding = f"the catalog has never read table {table} at its {what}, and does not know which files it had"
            advice += ", or roll the table back by an engine"
        super().__init__(f"{finding}; {advice}")


_SHOWN = 10


class FileProblem(StrEnum):
    """Reasons why a data file cannot be used in an Iceberg table."""

    EMPTY = "EMPTY"
    """The file has no bytes."""
    FOREIGN = "FOREIGN"
    """The file is not in the expected format."""
    DAMAGED = "DAMAGED"
    """The file is in the expected format, but its footer or header cannot be read."""
    WIDER_COLUMN = "WIDER_COLUMN"
    """A column's values may not fit the type of the table's column."""
    INCOMPATIBLE_COLUMN = "INCOMPATIBLE_COLUMN"
    """A column's type is incompatible with the table's."""
    RESERVED_NAME = "RESERVED_NAME"
    """A column has the name of one of Iceberg's metadata columns."""
    AMBIGUOUS_NAME = "AMBIGUOUS_NAME"
    """Two columns differ only in case."""
    FIELD_ID = "FIELD_ID"
    """A column's field id differs from that of the table's column; readers resolve columns by id."""
    NO_COMMON_COLUMN = "NO_COMMON_COLUMN"
    """The file has rows, but none of the table's columns."""
    NULLS = "NULLS"
    """The file has, or may have, nulls in a required column of the Iceberg table."""
    OLD_CALENDAR = "OLD_CALENDAR"
    """The file has, or may have, dates or timestamps of the old calendar, which only Hive's readers convert."""


class UnusableFileError(InvalidRequestError):
    """A data file cannot be used in an Iceberg table.

    Attributes:
        path: The file.
        problem: The reason.
    """

    def __init__(self, path: str, problem: FileProblem, text: str) -> None:
        """Build the message, which begins with the file's path."""
        self.path = path
        self.problem = problem
        super().__init__(f"file {path}: {text}")


class NestedFolderError(InvalidRequestError):
    """A folder of data files has a subfolder, and the request does not say whether to read subfolders.

    Attributes:
        folder: The subfolder.
    """

    def __init__(self, location: str, folder: str) -> None:
        """Build the message from the first subfolder of a location."""
        self.folder = folder
        super().__init__(
            f"folder {location} has a subfolder, {folder}; set recursive_directory => 'true' to include the files of "
            "subfolders, or 'false' to exclude them"
        )


class MigrationRefusedError(InvalidRequestError):
    """The table cannot become an Iceberg table as it is; nothing was changed."""


class AlreadyIcebergError(MigrationRefusedError):
    """The table is already an Iceberg table."""


class ForeignTableError(MigrationRefusedError):
    """The table is in Delta, Hudi or another format, whose log decides which of the files are valid."""


class TransactionalTableError(MigrationRefusedError):
    """The table is a transactional (ACID) Hive table; only Hive can merge its deltas."""


class PositionalTableError(MigrationRefusedError):
    """The table's columns are resolved by position in the files; Iceberg readers resolve them by name."""


class SharedLocationError(MigrationRefusedError):
    """The same files would belong to two tables or to two partitions."""


class QuarantinedPartitionError(MigrationRefusedError):
    """The table has quarantined partitions, which an Iceberg table would expose to readers."""


class ReservedFolderError(MigrationRefusedError):
    """The folder for Iceberg metadata, where readers expect no data, contains files of the table."""


class ColumnsDifferError(MigrationRefusedError):
    """The Iceberg table has other columns or partition keys than the Hive table whose files should be added."""


@dataclass(frozen=True)
class RefusedFile:
    """A file that cannot be part of a table.

    Attributes:
        message: The problem, as a sentence.
    """

    path: str
    problem: FileProblem
    message: str

    @classmethod
    def of(cls, error: UnusableFileError) -> RefusedFile:
        """Return the path, problem and message of an error."""
        return cls(error.path, error.problem, str(error).removeprefix(f"file {error.path}: "))

    def __str__(self) -> str:
        """Return the problem as one line."""
        return f"{self.path}: {self.message} ({self.problem})"


class UnusableFilesError(MigrationRefusedError):
    """Some files of the table cannot be used in an Iceberg table.

    Attributes:
        problems: The first of them.
    """

    def __init__(self, table: str, problems: Sequence[RefusedFile], count: int | None = None) -> None:
        """Build the message from the first of the files.

        Args:
            count: Their total number; None for the length of `problems`.
        """
        self.problems = tuple(problems)
        count = len(problems) if count is None else count
        shown = first_of(problems, 10, count=count, separator="; ")
        super().__init__(
            f"table {table}: {count:,} file(s) cannot be part of an Iceberg table: {shown}. Nothing was changed. Move "
            "them out of the table's folder, or skip those that are empty or of another format"
        )


class DuplicateFilesError(MigrationRefusedError):
    """The Iceberg table already contains files that should be added.

    Attributes:
        paths: The first of them.
    """

    def __init__(self, table: str, paths: Sequence[str], count: int) -> None:
        """Build the message from the first of the files."""
        self.paths = tuple(paths)
        super().__init__(
            f"Iceberg table {table} already contains {count:,} of the files, for instance {', '.join(paths[:5])}; "
            "nothing was added. Add other partitions, or skip duplicate files"
        )


class MigrationConflictError(PlanConflictError):
    """The table or its files changed after the migration was planned."""


class DataWrittenError(ConflictError):
    """A revert to the Hive table would lose rows that were written to the Iceberg table since."""

    retryable: ClassVar[bool] = False


class FilesNeededError(ConflictError):
    """An Iceberg table needs the files to be deleted."""

    retryable: ClassVar[bool] = False


class UnsupportedCommitError(ConflictError):
    """Another engine has committed a change that Calve cannot follow; the table can still be read.

    Attributes:
        table: The table, `database.name`.
        finding: The change.
        snapshot_id: The current snapshot; None without one.
        remedy: What to do.
        can_be_rolled_back: Calve can follow the table again after a roll-back to an earlier snapshot.
    """

    retryable: ClassVar[bool] = False

    def __init__(
        self, table: str, finding: str, snapshot_id: int | None, remedy: str, *, can_be_rolled_back: bool = False
    ) -> None:
        """Build the message from what was found and what to do."""
        self.table, self.finding, self.snapshot_id, self.remedy = table, finding, snapshot_id, remedy
        self.can_be_rolled_back = can_be_rolled_back
        snapshot = "" if snapshot_id is None else f" (snapshot {snapshot_id})"
        super().__init__(
            f"table {table} was changed by another engine in a way that Calve cannot follow{snapshot}: {finding}. The "
            f"table can still be read, and nothing was changed. {remedy}"
        )


class UnplacedFilesError(ConflictError):
    """Files that other engines wrote, and that are in no partition yet, prevent a change.

    Attributes:
        table: The table, `database.name`.
        count: The number of these files.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, table: str, partition_ids: Sequence[int], count: int, remedy: str) -> None:
        """Build the message.

        Args:
            remedy: The statement that places the files.
        """
        self.table, self.count = table, count
        super().__init__(
            f"table {table}: {count:,} file(s) that other engines wrote may have rows of partition "
            f"{', '.join(map(str, partition_ids))}, and are in no partition yet; nothing was changed. Place them "
            f"first: {remedy}"
        )


class UnreadableMetadataError(ConflictError):
    """Metadata of an Iceberg table cannot be read, so the files that it needs cannot be determined.

    Attributes:
        table: The table, `database.name`.
        path: The file.
        reason: The reader's message.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, table: str, path: str, reason: str) -> None:
        """Build the message from table, path and reason."""
        self.table, self.path, self.reason = table, path, reason
        super().__init__(
            f"Iceberg table {table}: {path} cannot be read ({reason}), so the files that the table needs cannot be "
            "determined, and none are deleted; restore the file, or drop the table"
        )
