"""Failures of requests, by the names and HTTP status codes of AWS Glue."""

from __future__ import annotations

import re
from collections.abc import Mapping

from catalog.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogAccessError,
    CatalogError,
    CatalogReadOnlyError,
    CatalogUnavailableError,
    ConflictError,
    DatabaseNotEmptyError,
    DoorError,
    InvalidRequestError,
    LimitExceededError,
    NotFoundError,
    StorageError,
)

MAXIMUM_MESSAGE = 2_048
"""Maximum length of an error's message in characters. Source: AWS Glue API, `DescriptionString`."""


class GlueError(DoorError):
    """A request that the Glue door refuses.

    Attributes:
        code: The exception's name in Glue's service model, or in AWS's list of common errors.
        status: The HTTP status code.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        """Keep the code with the message."""
        self.code = code
        self.status = status
        super().__init__(message)


def invalid_input(message: str) -> GlueError:
    """Return the error for a request that is well-formed but cannot be carried out as given."""
    return GlueError("InvalidInputException", message)


def not_found(message: str) -> GlueError:
    """Return the error for an object that does not exist."""
    return GlueError("EntityNotFoundException", message)


_CODES: Mapping[type[CatalogError], tuple[str, int]] = {
    AccessDeniedError: ("AccessDeniedException", 400),
    InvalidRequestError: ("InvalidInputException", 400),
    NotFoundError: ("EntityNotFoundException", 400),
    AlreadyExistsError: ("AlreadyExistsException", 400),
    LimitExceededError: ("ResourceNumberLimitExceededException", 400),
    DatabaseNotEmptyError: ("InvalidInputException", 400),
    ConflictError: ("ConcurrentModificationException", 400),
    CatalogReadOnlyError: ("InternalServiceException", 500),
    CatalogAccessError: ("InternalServiceException", 500),
    CatalogUnavailableError: ("InternalServiceException", 500),
    StorageError: ("InternalServiceException", 500),
}
"""The exception for each branch of the catalog's errors; the nearest base class decides."""

_HIDDEN = (CatalogUnavailableError, StorageError)
"""Errors whose messages name hosts and paths of the server."""

_NAMED = re.compile(r"(?:database|table) (\S+?)(?: does not exist| exists|;|$)")


def glue_error(error: Exception) -> GlueError:
    """Return the error of Glue for an error of the catalog; anything else is an internal failure without details."""
    if isinstance(error, GlueError):
        return error
    for kind in type(error).__mro__:
        if kind in _CODES:
            code, status = _CODES[kind]
            return GlueError(code, _message(error), status)
    return GlueError("InternalServiceException", "the request failed; the server's log tells why", 500)


def _message(error: Exception) -> str:
    if isinstance(error, _HIDDEN):
        return "the catalog's database or storage does not respond as expected; the server's log tells why"
    return str(error)[:MAXIMUM_MESSAGE]


def is_internal(error: GlueError) -> bool:
    """Return whether the failure is the server's, so that its log should have the cause."""
    return error.status >= 500
