"""Errors about other metastores."""

from __future__ import annotations

from typing import ClassVar

from catalog.errors.base import CatalogError, ConflictError, InvalidRequestError


class InvalidSourceError(InvalidRequestError):
    """The address of a metastore, or a pattern of its tables, cannot be read."""


class UnsupportedSourceTableError(InvalidRequestError):
    """A metastore's table is of a kind or format that the catalog cannot keep so that it reads right."""


class SourceEntryChangedError(ConflictError):
    """The entry of a table in its metastore is not any more as whoever wants to change it expects."""

    retryable: ClassVar[bool] = False


class SourceError(CatalogError):
    """A metastore that tables are imported from says that it cannot do what it was asked."""


class SourceUnavailableError(SourceError):
    """A metastore that tables are imported from does not answer."""

    retryable: ClassVar[bool] = True


class SourceClientMissingError(SourceError):
    """The package that speaks a metastore's protocol is not installed."""


class TablesNotImportedError(SourceError):
    """Of the tables that were to be imported, some were not; the others were."""
