"""Translation of errors of the database, its driver and SQLAlchemy into errors of the catalog."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Index
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError, StatementError, TimeoutError

from catalog.errors import (
    CatalogAccessError,
    CatalogError,
    CatalogFullError,
    CatalogLockedError,
    CatalogReadOnlyError,
    CatalogRefusedError,
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    ConflictError,
    InvalidRequestError,
)
from catalog.storage.urls import shown_url

_LOST_RACES = ("40001", "40P01")
"""PostgreSQL's codes for a serialization failure and a deadlock."""

_LOCKED = "55P03"
"""PostgreSQL's code for an expired lock_timeout."""

_IDLE = "25P03"
"""PostgreSQL's code for an expired idle_in_transaction_session_timeout."""

_SERVER_GONE = ("08", "57P")
"""PostgreSQL's code classes for lost connections, and for a server that stops or starts."""


@contextmanager
def translated(url: URL, holder: Callable[[], str] = str) -> Iterator[None]:
    """Translate errors of the database into a CatalogError with advice.

    Args:
        holder: Returns a phrase about who holds a lock, or an empty string; called when it was not had in time.
    """
    try:
        yield
    except CatalogError:
        raise
    except Exception as error:
        translation = _translation(error, url)
        if isinstance(translation, CatalogLockedError) and (found := holder()):
            translation = CatalogLockedError(f"{translation}: {found}")
        if translation is None:
            raise
        raise translation from error


def lost_connection_errors() -> tuple[type[Exception], ...]:
    """Return the classes of the drivers' errors about lost connections."""
    import psycopg

    return psycopg.OperationalError, sqlite3.OperationalError


@contextmanager
def commit_translated(url: URL) -> Iterator[None]:
    """Raise a lost connection as an unknown outcome: the server may have committed before it was lost.

    Raises:
        CommitOutcomeUnknownError: The connection was lost.
    """
    try:
        yield
    except DBAPIError as error:
        code = getattr(error.orig, "sqlstate", None) or ""
        if code == _IDLE or (not error.connection_invalidated and not code.startswith(_SERVER_GONE)):
            raise
        message = str(error.orig).strip().partition("\n")[0]
        raise CommitOutcomeUnknownError(
            f"the connection to the catalog {shown_url(url)} was lost during a commit: {message}; the change may have "
            "been made or not. Look at the state, or repeat the operation by its id, before you do it again"
        ) from error


def _translation(error: Exception, url: URL) -> CatalogError | None:
    if isinstance(error, StatementError) and isinstance(error.orig, CatalogError):
        return error.orig
    if isinstance(error, UnicodeEncodeError):
        return InvalidRequestError(
            f"a string is not valid Unicode and cannot be stored: {error.object!r:.100}; decode it first"
        )
    # Imported late: psycopg takes longer than most commands, and only its connections raise its errors.
    import psycopg

    if isinstance(error, IntegrityError) or not isinstance(error, SQLAlchemyError | psycopg.Error | sqlite3.Error):
        return None
    shown = shown_url(url)
    if isinstance(error, TimeoutError):
        return CatalogUnavailableError(
            f"the catalog {shown}: all connections of this process are in use; close open readers, or allow more "
            "with CALVE_CONNECTIONS"
        )
    # SQLite ends the transaction when its disk is full; the next error only reports the missing transaction.
    while "no such savepoint" in str(error) and isinstance(error.__context__, Exception):
        error = error.__context__
    cause = error.orig if isinstance(error, DBAPIError) else error
    message = str(cause).strip().partition("\n")[0]
    if isinstance(cause, UnicodeEncodeError):
        return _translation(cause, url)
    if _is_read_only(url, message):
        message = f"{message}, because its folder is read-only, and SQLite writes there even to read"
        return _read_only(message, shown)
    return _by_code(getattr(cause, "sqlstate", None) or "", message, shown) or _otherwise(error, message, shown)


def _is_read_only(url: URL, message: str) -> bool:
    """Return whether an SQLite file cannot be opened because its folder is read-only."""
    if "unable to open database file" not in message or not url.database:
        return False
    folder = os.path.dirname(os.path.abspath(url.database))
    return os.path.isdir(folder) and not os.access(folder, os.W_OK)


def _read_only(message: str, shown: str) -> CatalogReadOnlyError:
    return CatalogReadOnlyError(
        f"the catalog {shown} cannot be written: {message}; nothing was changed. Use a writable database or folder"
    )


def _by_code(code: str, message: str, shown: str) -> CatalogError | None:
    """Return the error for a PostgreSQL error code or an SQLite message."""
    if code == _IDLE:
        return CatalogUnavailableError(
            f"the catalog {shown} ended a transaction in which this process did nothing for too long: {message}; "
            "nothing was changed, try again"
        )
    if code in _LOST_RACES or code == _LOCKED or "database is locked" in message or "table is locked" in message:
        kind = ConflictError if code in _LOST_RACES else CatalogLockedError
        return kind(f"the catalog {shown} was locked by others: {message}; the transaction changed nothing, try again")
    if code == "57014":
        return CatalogUnavailableError(
            f"the catalog {shown} ended a statement: {message}; try again, or allow more time (statement_timeout)"
        )
    if code == "25006" or "readonly database" in message:
        return _read_only(message, shown)
    if code == "42501":
        return CatalogAccessError(
            f"the catalog {shown} denies this user access: {message}; grant it, or use the owner of the schema"
        )
    if code == "53100" or "disk is full" in message:
        return CatalogFullError(
            f"the disk of the catalog {shown} is full: {message}; nothing was changed. Free some space"
        )
    if code == "58030" or "disk I/O error" in message:
        return CatalogUnavailableError(
            f"the disk of the catalog {shown} failed: {message}; nothing was changed. Check the disk and its quotas"
        )
    if code in ("22001", "22021") or "NUL (0x00)" in message:
        return InvalidRequestError(f"a string cannot be stored in the catalog: {message}; nothing was changed")
    if code.startswith(_SERVER_GONE):
        return _unavailable(message, shown)
    return None


def _otherwise(error: Exception, message: str, shown: str) -> CatalogError:
    if "no such table: calve_" in message or 'relation "calve_' in message:
        return CatalogUnavailableError(f"the catalog {shown} has no schema yet; run `calve init`")

    is_lost = isinstance(error, DBAPIError) and (error.statement is None or error.connection_invalidated)
    if is_lost or isinstance(error, lost_connection_errors()[0]):
        return _unavailable(message, shown)
    return CatalogRefusedError(f"the catalog {shown} rejected a statement: {message}; nothing was changed")


def _unavailable(message: str, shown: str) -> CatalogUnavailableError:
    return CatalogUnavailableError(
        f"the catalog {shown} cannot be reached: {message}; check CALVE_CATALOG_URL and whether the database server "
        "is running"
    )


def violates_unique_index(error: Exception, index: Index) -> bool:
    """Return whether a driver rejected a row because of a unique index; bulk statements bypass SQLAlchemy's errors."""
    import psycopg

    if isinstance(error, psycopg.errors.UniqueViolation):
        return error.diag.constraint_name == index.name
    columns = ", ".join(f"{column.table.name}.{column.name}" for column in index.columns)
    return str(error) == f"UNIQUE constraint failed: {columns}"
