"""Errors about the catalog database."""

from __future__ import annotations

from typing import ClassVar

from catalog.errors.base import CatalogError


class CatalogUnavailableError(CatalogError):
    """The catalog cannot be reached, or its schema does not exist yet."""

    retryable: ClassVar[bool] = True


class CatalogNotConfiguredError(CatalogUnavailableError):
    """No catalog is configured, or its URL names none."""

    retryable: ClassVar[bool] = False


class CommitOutcomeUnknownError(CatalogUnavailableError):
    """The connection was lost during a commit: the change may have been made. Look at the state, then act.

    A retry of an operation, by its id, does so itself.
    """


class CatalogVersionError(CatalogUnavailableError):
    """The catalog's schema belongs to another version of Calve."""

    retryable: ClassVar[bool] = False


class CatalogEncodingError(CatalogUnavailableError):
    """The catalog's PostgreSQL database has another encoding than UTF8."""

    retryable: ClassVar[bool] = False


class CatalogReadOnlyError(CatalogUnavailableError):
    """The catalog's database, or its file, is read-only."""

    retryable: ClassVar[bool] = False


class CatalogAccessError(CatalogUnavailableError):
    """The catalog's database denies its user access."""

    retryable: ClassVar[bool] = False


class CatalogFullError(CatalogUnavailableError):
    """The disk of the catalog's database is full; a retry succeeds once space is available."""


class CatalogRefusedError(CatalogUnavailableError):
    """The catalog's database rejects a statement, and a retry would not help."""

    retryable: ClassVar[bool] = False
