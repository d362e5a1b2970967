"""Interruption of the database work of one task, such as a request, by another thread."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from sqlalchemy import Connection

from catalog.errors import CatalogUnavailableError

_CANCEL_SECONDS = 10.0


class Task:
    """The database work that begins in a context (`begin`), in however many transactions; thread-safe."""

    def __init__(self) -> None:
        """Begin without a transaction."""
        self._lock = threading.Lock()
        self._connections: dict[int, Any] = {}
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Interrupt the statements that run now, and refuse further transactions; may take seconds.

        A transaction that is between two statements goes on, until it is interrupted again.
        """
        with self._lock:
            self._is_interrupted = True
            for driver in self._connections.values():
                # A connection that is lost, or has nothing to do, needs no interruption.
                with contextlib.suppress(Exception):
                    _interrupt(driver)

    def enter(self, connection: Connection) -> None:
        """Note a connection that has been taken for a transaction.

        Raises:
            CatalogUnavailableError: The task has been interrupted.
        """
        with self._lock:
            if self._is_interrupted:
                raise CatalogUnavailableError("the request took longer than the server allows, and was interrupted")
            self._connections[id(connection)] = connection.connection.driver_connection

    def leave(self, connection: Connection) -> None:
        """Forget a connection; one that may have been interrupted is closed, so that no other task is."""
        with self._lock:
            del self._connections[id(connection)]
            if self._is_interrupted:
                connection.invalidate()


_current: ContextVar[Task | None] = ContextVar("calve_task", default=None)


def begin(task: Task) -> None:
    """Count the transactions that begin in the current context from now on as a task's."""
    _current.set(task)


@contextlib.contextmanager
def interruptible(connection: Connection) -> Iterator[None]:
    """Allow another thread to interrupt what a connection does meanwhile, if it works for a task.

    Raises:
        CatalogUnavailableError: The task has been interrupted.
    """
    task = _current.get()
    if task is None:
        yield
        return
    task.enter(connection)
    try:
        yield
    finally:
        task.leave(connection)


def _interrupt(driver: Any) -> None:
    if isinstance(driver, sqlite3.Connection):
        driver.interrupt()
    else:
        driver.cancel_safe(timeout=_CANCEL_SECONDS)
