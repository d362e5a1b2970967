"""Points at which tests kill or stop a process, to prove that the operation still ends in the same state.

`CALVE_DIE_AT` and `CALVE_STOP_AT` name a point; they are only set in tests.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum

DIE_AT = "CALVE_DIE_AT"
STOP_AT = "CALVE_STOP_AT"


class Point(StrEnum):
    """The step just completed when the process dies, in the order of an operation."""

    JOURNALED = "journaled"
    """The operation is in the journal and holds the table."""
    STARTED = "started"
    """An attempt at a step has started."""
    FILES_WRITTEN = "files-written"
    """The new data files are written, but not listed."""
    LISTED = "listed"
    """Their list is written, except for its end."""
    MANIFEST_WRITTEN = "manifest-written"
    """Their list is complete."""
    PARTLY_COMMITTED = "partly-committed"
    """Some of several transactions are committed."""
    PARTLY_RESERVED = "partly-reserved"
    """The target folders of some of several batches of partitions are reserved."""
    RESERVED = "reserved"
    """All target folders are reserved, and no file has moved."""
    PARTLY_MOVED = "partly-moved"
    """The files of one more partition have moved."""
    MOVED = "moved"
    """All files are in their target folders, but not visible to readers."""
    WITHDRAWN = "withdrawn"
    """The staged files can no longer be published, but still exist."""
    STAGED_DATA_DELETED = "staged-data-deleted"
    """Staged files that were not moved are deleted."""
    MOVES_UNDONE = "moves-undone"
    """Moved files are deleted; their partitions are still reserved."""
    METADATA_WRITTEN = "metadata-written"
    """The first metadata file of an Iceberg table is written, but not referenced."""
    STAGED = "staged"
    """The staged files of a migration are complete, but not recorded in the catalog."""
    FILES_DELETED = "files-deleted"
    """Some files are deleted, but the rows that name them still exist."""
    FILES_COPIED = "files-copied"
    """The folder of one more partition has its current files, but is not the partition's location yet."""
    CHANGED = "changed"
    """All changes of the catalog are made in the transaction, which is not committed yet."""
    COMMITTED = "committed"
    """The transaction is committed, but the caller has no result yet."""


def reached(point: Point) -> None:
    """Kill or stop the process if the environment names this point; it stops once."""
    if os.environ.get(DIE_AT) == point:
        die()
    if os.environ.get(STOP_AT) == point:
        del os.environ[STOP_AT]
        os.kill(os.getpid(), signal.SIGSTOP)


def die() -> None:
    """Kill this process as `kill -9` does: without cleanup, and with open connections."""
    os.kill(os.getpid(), signal.SIGKILL)
