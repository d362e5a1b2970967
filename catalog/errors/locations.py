"""Errors about locations, files and disks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from catalog.errors.base import CatalogError, ConflictError, InvalidRequestError


class LocationNotAllowedError(InvalidRequestError):
    """A location is outside all allowed folders, or a host is not in the list of allowed hosts."""


class SourceFileError(InvalidRequestError):
    """A source file is missing, changed after it was loaded, or cannot be parsed."""


class InvalidLocationError(InvalidRequestError):
    """A location is empty, contains a password, or has an unknown file system."""


class LocationNotEmptyError(ConflictError):
    """The location of a new partition contains files that the catalog does not know."""

    retryable: ClassVar[bool] = False


class LocationInUseError(ConflictError):
    """The location of a table or partition overlaps with that of another.

    Attributes:
        table: The table that cannot have the location.
        location: The location.
        owner, owner_location: The other table, whose location contains it or lies inside it, and that location.
        others: The errors of other locations of the same request.
    """

    retryable: ClassVar[bool] = False

    others: Sequence[LocationInUseError] = ()

    @staticmethod
    def raise_first(errors: Iterable[LocationInUseError]) -> None:
        """Raise the first error, if any, with the rest as its `others`."""
        conflicts = list(errors)
        if conflicts:
            first, *first.others = conflicts
            raise first

    def __init__(
        self, table: str, location: str, owner: str, owner_location: str, *, reason: str | None = None
    ) -> None:
        """Keep the values and build the message; `reason` names the owner and what to do."""
        self.table, self.location, self.owner, self.owner_location = table, location, owner, owner_location
        reason = reason or (
            f"table {owner} lies in {owner_location}, and the locations of two tables may not overlap; "
            "choose another location"
        )
        super().__init__(f"table {table}: {location} cannot be used, because {reason}")


class FolderBeingPurgedError(LocationInUseError):
    """The location of a table or partition is a folder whose files an unfinished purge is deleting.

    Attributes:
        operation: The id of the purge's operation; `owner` is the same.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, table: str, location: str, operation: str, purged_location: str) -> None:
        """Keep the values and build the message."""
        self.operation = operation
        reason = (
            f"operation {operation} is deleting the files in {purged_location}; wait for it to end, or, if it "
            "was interrupted, run `calve vacuum` to finish it"
        )
        super().__init__(table, location, operation, purged_location, reason=reason)


class FolderBeingMovedError(LocationInUseError):
    """The location of a table or partition is a folder that a rename is moving.

    Attributes:
        operation: The id of the move's operation; `owner` is the same.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, table: str, location: str, operation: str, moved_location: str) -> None:
        """Keep the values and build the message."""
        self.operation = operation
        reason = f"operation {operation} is moving the folder {moved_location}; try again in a moment"
        super().__init__(table, location, operation, moved_location, reason=reason)


class LocationTakenError(LocationInUseError):
    """The folder of a new partition belongs to another partition of its table.

    Attributes:
        owner, owner_location: The other partition and its folder.
    """

    def __init__(self, table: str, location: str, owner: str, owner_location: str) -> None:
        """Keep the values and build the message."""
        reason = (
            f"{owner} has its files in {owner_location}, and both would return them. Give the partition another "
            "location"
        )
        super().__init__(table, location, owner, owner_location, reason=reason)


class StorageError(CatalogError, OSError):
    """Files cannot be read or written: disk full or read-only, permission denied, store unreachable.

    Also an `OSError`, for callers that handle file errors in general.
    """

    retryable: ClassVar[bool] = True


class MissingFileError(StorageError, FileNotFoundError):
    """A file or folder does not exist."""

    retryable: ClassVar[bool] = False


class FilesNotDeletedError(CatalogError):
    """The catalog change is committed, but obsolete files could not be deleted."""
