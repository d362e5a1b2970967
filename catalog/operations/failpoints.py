"""Points at which a test kills or stops a process, to prove that the operation ends in the same state nevertheless.

`CALVE_DIE_AT` names one of them, `CALVE_STOP_AT` another; nobody sets them outside of tests.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum

DIE_AT = "CALVE_DIE_AT"
STOP_AT = "CALVE_STOP_AT"


class Point(StrEnum):
    """What has just been done when the process dies, in the order of an operation."""

    JOURNALED = "journaled"
    """The operation holds the table."""
    STARTED = "started"
    """An attempt at a step has begun."""
    FILES_WRITTEN = "files-written"
    """The new data files are there, and nobody knows which they are."""
    LISTED = "listed"
    """Their list is there, but for its end."""
    MANIFEST_WRITTEN = "manifest-written"
    """Their list is there."""
    PARTLY_COMMITTED = "partly-committed"
    """Some of several transactions have ended."""
    PARTLY_RESERVED = "partly-reserved"
    """It is decided where the files of some of several batches of partitions go."""
    RESERVED = "reserved"
    """It is decided where all files go, and none has moved."""
    PARTLY_MOVED = "partly-moved"
    """The files of one more partition have moved."""
    MOVED = "moved"
    """All files are in their places, and no reader knows them."""
    WITHDRAWN = "withdrawn"
    """Nobody can publish what was staged any longer; its files are still there."""
    STAGED_DATA_DELETED = "staged-data-deleted"
    """Staged files that had not moved are deleted."""
    MOVES_UNDONE = "moves-undone"
    """The files that had moved are deleted, and their partitions still reserved."""
    METADATA_WRITTEN = "metadata-written"
    """The first metadata of an Iceberg table are there, and nobody knows where."""
    STAGED = "staged"
    """What a migration has staged is there, and the catalog does not know it."""
    CHANGED = "changed"
    """All changes of the catalog are made in the transaction, which has not ended."""
    COMMITTED = "committed"
    """The transaction has ended, and the caller does not know yet."""


def reached(point: Point) -> None:
    """Kill or stop the process if this is the point that the environment names; it stops once."""
    if os.environ.get(DIE_AT) == point:
        die()
    if os.environ.get(STOP_AT) == point:
        del os.environ[STOP_AT]
        os.kill(os.getpid(), signal.SIGSTOP)


def die() -> None:
    """Kill this process as `kill -9` does: nothing is cleared up, and no connection closed."""
    os.kill(os.getpid(), signal.SIGKILL)
