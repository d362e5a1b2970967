"""Waiting for operations that hold the table of a statement."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from math import ceil
from threading import Event

from catalog.errors import OperationConflictError
from catalog.operations.journal import Operations

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0

Report = Callable[[str], object]
"""A function that shows a message while a statement waits."""


class TableWait:
    """The wait of one statement, perhaps for several operations, one after the other."""

    def __init__(self, operations: Operations, limit: timedelta, report: Report, cancelled: Event) -> None:
        """Begin to wait.

        Args:
            limit: The time after which the statement fails.
            report: Shows the operation that is waited for.
            cancelled: Ends the wait when it is set.
        """
        self._operations = operations
        self._limit = limit
        self._report = report
        self._cancelled = cancelled
        self._ends_at = time.monotonic() + limit.total_seconds()
        self._holder: str | None = None

    def after(self, error: OperationConflictError) -> None:
        """Return when the operation that refused the statement has ended, so that the statement can be repeated.

        Raises:
            OperationConflictError: The time is over, or waiting does not help.
        """
        if error.holder is None or not self._limit:
            raise error
        if self._holder != error.holder and (left := self._left()) > 0:
            self._holder = error.holder
            self._report(f"waiting up to {ceil(left)} s for operation {error.holder}")
        pause = _FIRST_PAUSE_SECONDS
        while (left := self._left()) > 0:
            if self._cancelled.wait(min(pause, left)):
                raise error
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            if not self._operations.is_running(error.holder):
                return
        waited = f"{error}. Waited {self._limit.total_seconds():g} s for operation {error.holder}"
        over = OperationConflictError(waited, error.holder)
        over.position = error.position
        raise over from error

    def _left(self) -> float:
        return self._ends_at - time.monotonic()
