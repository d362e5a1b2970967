"""Errors about locations, files and disks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from catalog.errors.base import CatalogError, ConflictError, InvalidRequestError


class LocationNotAllowedError(InvalidRequestError):
    """A location is below no allowed folder, or a host is not among the allowed ones."""


class SourceFileError(InvalidRequestError):
    """A source file is missing, changed after it was loaded, or cannot be parsed."""


class InvalidLocationError(InvalidRequestError):
    """A location is empty, has a password in it, or no file system is known for it."""


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
