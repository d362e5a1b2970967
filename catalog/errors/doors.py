"""Errors of the front doors: Hive Metastore, Glue and Iceberg REST."""

from __future__ import annotations

from catalog.errors.base import CatalogError


class DoorError(CatalogError):
    """A front door refuses a request, before the catalog sees it."""


class AccessDeniedError(DoorError):
    """The client's role does not allow the request."""
