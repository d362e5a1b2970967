"""Errors of the catalog as the protocol's exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


class MissingArgumentException(ttypes.MetaException):  # type: ignore[misc]
    """A call lacks an argument that it needs.

    Attributes:
        what: The argument.
    """

    def __init__(self, what: str) -> None:
        """Build the message."""
        super().__init__(message=f"the {what} is missing; send one")
        self.__dict__["what"] = what


_ANY = frozenset[str]()
_CLOSING: Mapping[str, frozenset[str]] = {
    "add_partitions": frozenset({"list of the partitions"}),
    "add_partitions_pspec": _ANY,
    "alter_function": _ANY,
    "alter_partition_with_environment_context": frozenset({"partition"}),
    "alter_table_with_environment_context": frozenset({"new table"}),
    "create_function": _ANY,
    "drop_function": _ANY,
    "get_partition_names": _ANY,
    "get_partition_names_ps": frozenset({"name of the database", "name of the table"}),
    "get_partition_values": frozenset({"list of the keys"}),
    "get_partition_with_auth": frozenset({"name of the database", "name of the table"}),
    "get_partitions": _ANY,
    "get_partitions_by_filter": _ANY,
    "get_partitions_by_names": frozenset({"name of the database", "name of the table"}),
    "get_partitions_ps_with_auth": frozenset({"name of the database", "name of the table"}),
    "get_partitions_pspec": frozenset({"name of the table"}),
    "rename_partition": frozenset({"new partition"}),
}


def closes_connection(call: str, what: str) -> bool:
    """Return whether metastores of releases 2 and 3 close the connection because a call lacks an argument.

    Clients of those releases rely on it, as Hive's own tests of 3.1 show; release 4 answers with a MetaException.
    """
    arguments = _CLOSING.get(call)
    return arguments is not None and (not arguments or what in arguments)
