"""Errors of the catalog as the protocol has them."""

from __future__ import annotations

from catalog.doors.rest.asking import Answer
from catalog.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogError,
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    ConflictError,
    CredentialsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    InvalidRequestError,
    InvalidTableError,
    LocationInUseError,
    MissingFileError,
    NotFoundError,
    RequirementFailedError,
    StorageError,
    TableNotFoundError,
    TooManyRequestsError,
)

_KINDS: tuple[tuple[type[CatalogError], int, str], ...] = (
    (CredentialsError, 401, "NotAuthorizedException"),
    (AccessDeniedError, 403, "ForbiddenException"),
    (TooManyRequestsError, 429, "TooManyRequestsException"),
    (DatabaseNotFoundError, 404, "NoSuchNamespaceException"),
    (TableNotFoundError, 404, "NoSuchTableException"),
    (MissingFileError, 404, "NotFoundException"),
    (NotFoundError, 404, "NotFoundException"),
    (DatabaseNotEmptyError, 409, "NamespaceNotEmptyException"),
    (AlreadyExistsError, 409, "AlreadyExistsException"),
    (LocationInUseError, 400, "BadRequestException"),
    (ConflictError, 409, "CommitFailedException"),
    (InvalidTableError, 400, "IllegalArgumentException"),
    (InvalidRequestError, 400, "BadRequestException"),
    (CommitOutcomeUnknownError, 500, "CommitStateUnknownException"),
    (CatalogUnavailableError, 503, "ServiceUnavailableException"),
    (StorageError, 503, "ServiceUnavailableException"),
)
"""The first class that fits decides: status, and name of the exception in Iceberg's clients."""


def error_answer(error: CatalogError, *, is_view: bool = False) -> Answer:
    """Return the answer for an error; its message is written for users.

    Args:
        is_view: The request is about a view.
    """
    status, kind = next(((status, kind) for base, status, kind in _KINDS if isinstance(error, base)), (400, ""))
    if kind == "CommitFailedException" and not (error.retryable or isinstance(error, RequirementFailedError)):
        # Clients would commit again and again.
        status, kind = 400, "BadRequestException"
    if kind == "NoSuchTableException" and is_view:
        kind = "NoSuchViewException"
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return Answer(status, error_body(status, kind or "BadRequestException", str(error)), headers)


def error_body(status: int, kind: str, message: str) -> dict[str, object]:
    """Return the body of an error: the specification's `IcebergErrorResponse`."""
    return {"error": {"message": message, "type": kind, "code": status}}
