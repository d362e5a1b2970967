"""Waiting for a catalog whose database is down for a while and for vacuum, and repeating work that others overtake."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from catalog.errors import CatalogError, CatalogUnavailableError, OperationConflictError, PlanConflictError
from catalog.operations.reading import JournalReader
from catalog.operations.records import OperationKind
from catalog.settings.environment import job_patience

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 15.0
_VACUUM_SECONDS = 30.0
_PLANS = 5

log = logging.getLogger(__name__)

T = TypeVar("T")


def planned_again(work: Callable[[], T]) -> T:
    """Return the result of work, which is done again, up to five times in all, if others change what it has read.

    Raises:
        PlanConflictError: Others have done so each time.
    """
    for _ in range(_PLANS - 1):
        try:
            return work()
        except PlanConflictError as error:
            log.info("%s; it is planned again", error)
    return work()


class Patience:
    """The pauses of one wait for the catalog: each longer than the last, in sum `CALVE_JOB_PATIENCE_SECONDS`."""

    def __init__(self, what: str) -> None:
        """Begin to wait.

        Args:
            what: The work that waits, for the log.
        """
        self._what = what
        self._began_at = time.monotonic()
        self._pause = _FIRST_PAUSE_SECONDS

    def pause_after(self, error: CatalogError) -> float:
        """Return the seconds to pause after an attempt that failed.

        Raises:
            CatalogError: The error, if the time is over.
        """
        left = job_patience() - (time.monotonic() - self._began_at)
        if left <= 0:
            raise error
        log.warning("%s waits for the catalog, up to %.0f s more: %s", self._what, left, error)
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        return min(pause, left)


def patiently(act: Callable[[], T], what: str, *, sleep: Callable[[float], None] = time.sleep) -> T:
    """Return what a function returns; call it again while the catalog cannot be reached.

    Args:
        act: A function that can be repeated after it could not reach the catalog.
        what: The work that waits meanwhile, for the log.

    Raises:
        CatalogUnavailableError: The catalog could not be reached for as long as `CALVE_JOB_PATIENCE_SECONDS` says.
    """
    patience = Patience(what)
    while True:
        try:
            return act()
        except CatalogUnavailableError as error:
            if not error.retryable:
                raise
            pause = patience.pause_after(error)
        sleep(pause)


def after_vacuum(operations: JournalReader, act: Callable[[], T], *, seconds: float = _VACUUM_SECONDS) -> T:
    """Return what a function returns; call it again while vacuum exchanges files of the table that it changes.

    Args:
        act: A function that is refused while another operation holds the table.

    Raises:
        OperationConflictError: Another operation than vacuum holds the table, or vacuum holds it for longer.
    """
    ends_at = time.monotonic() + seconds
    while True:
        try:
            return act()
        except OperationConflictError as error:
            holder = None if error.holder is None else operations.find(error.holder)
            is_vacuum = holder is not None and holder.kind is OperationKind.SETTLE_VERSIONS
            if not is_vacuum or time.monotonic() >= ends_at:
                raise
        time.sleep(_FIRST_PAUSE_SECONDS)
