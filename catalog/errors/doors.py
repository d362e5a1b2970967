"""Errors of the front doors: Hive Metastore, Glue and Iceberg REST."""

from __future__ import annotations

from catalog.errors.base import CatalogError


class DoorError(CatalogError):
    """A front door refuses a request, before the catalog sees it."""


class AccessDeniedError(DoorError):
    """The client's role does not allow the request."""


class CredentialsError(DoorError):
    """The request has no credentials, or wrong ones."""


class RequestTooLargeError(DoorError):
    """The request is larger, or nested more deeply, than the server's limits allow."""


class SlowRequestError(DoorError):
    """The request did not arrive within the time that the server's limits allow; send it again."""

    retryable = True


class TooManyRequestsError(DoorError):
    """The client sends more requests, or has more connections, than the server's limits allow; try again later."""

    retryable = True
