"""Errors of the catalog as the protocol's exceptions."""

from __future__ import annotations

from collections.abc import Sequence

from hive_metastore import ttypes
from thrift.Thrift import TApplicationException, TException

from catalog.errors import (
    AlreadyExistsError,
    CatalogError,
    ConflictError,
    DatabaseNotFoundError,
    InvalidRequestError,
    NotFoundError,
    TableNotFoundError,
)

_PREFERRED: tuple[tuple[type[CatalogError], tuple[type[TException], ...]], ...] = (
    (
        DatabaseNotFoundError,
        (
            ttypes.NoSuchObjectException,
            ttypes.UnknownDBException,
            ttypes.InvalidOperationException,
            ttypes.InvalidObjectException,
        ),
    ),
    (
        TableNotFoundError,
        (
            ttypes.NoSuchObjectException,
            ttypes.UnknownTableException,
            ttypes.InvalidOperationException,
            ttypes.InvalidObjectException,
        ),
    ),
    (
        NotFoundError,
        (ttypes.NoSuchObjectException, ttypes.InvalidOperationException, ttypes.InvalidObjectException),
    ),
    (AlreadyExistsError, (ttypes.AlreadyExistsException, ttypes.InvalidOperationException)),
    (
        InvalidRequestError,
        (ttypes.InvalidObjectException, ttypes.InvalidOperationException, ttypes.InvalidInputException),
    ),
    (ConflictError, (ttypes.InvalidOperationException,)),
)
"""Class of errors → exceptions, best first; the first that a call declares is used."""


def as_exception(error: CatalogError, declared: Sequence[type[TException]]) -> TException:
    """Return the exception that tells a client of an error, with the error's message.

    Args:
        declared: The exceptions that the call may raise.
    """
    preferred = next((classes for kind, classes in _PREFERRED if isinstance(error, kind)), ())
    return of_declared(str(error), declared, preferred)


def of_declared(
    message: str, declared: Sequence[type[TException]], preferred: Sequence[type[TException]] = ()
) -> TException:
    """Return the best exception that a call may raise; where it declares none, the one of the protocol itself."""
    for kind in (*preferred, ttypes.MetaException):
        if kind in declared:
            return kind(message=message)
    return TApplicationException(TApplicationException.INTERNAL_ERROR, message)
