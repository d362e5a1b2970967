"""Errors about the catalog's database."""

from __future__ import annotations

from typing import ClassVar

from catalog.errors.base import CatalogError


class CatalogUnavailableError(CatalogError):
    """No catalog is named, or it cannot be reached, or its schema is not there yet."""

    retryable: ClassVar[bool] = True


class CommitOutcomeUnknownError(CatalogUnavailableError):
    """The connection was lost during a commit: the change may have been made. Look at the state, then act.

    A retry of an operation, by its id, does so itself.
    """


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
