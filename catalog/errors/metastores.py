"""Errors about other metastores."""

from __future__ import annotations

from typing import ClassVar

from catalog.errors.base import CatalogError, ConflictError, InvalidRequestError


class InvalidSourceError(InvalidRequestError):
    """A metastore address, or its table pattern, is invalid."""


class UnsupportedSourceTableError(InvalidRequestError):
    """A metastore's table is of a kind or format that the catalog cannot represent faithfully."""


class SourceEntryChangedError(ConflictError):
    """The metastore's entry of a table changed after it was read."""

    retryable: ClassVar[bool] = False


class SourceError(CatalogError):
    """The metastore that tables are imported from reports a failure."""


class SourceUnavailableError(SourceError):
    """The metastore that tables are imported from does not respond."""

    retryable: ClassVar[bool] = True


class SourceClientMissingError(SourceError):
    """The client package for a metastore's protocol is not installed."""


class TablesNotImportedError(SourceError):
    """Some of the tables were not imported; the others were."""
