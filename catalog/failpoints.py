"""Points at which a test lets a process die, to prove that whoever runs the operation again ends it in the same state.

`CALVE_DIE_AT` names one of them; nobody sets it outside of tests.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum

DIE_AT = "CALVE_DIE_AT"


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
    METADATA_WRITTEN = "metadata-written"
    """The first metadata of an Iceberg table are there, and nobody knows where."""
    STAGED = "staged"
    """What a migration has staged is there, and the catalog does not know it."""
    CHANGED = "changed"
    """All changes of the catalog are made in the transaction, which has not ended."""
    COMMITTED = "committed"
    """The transaction has ended, and the caller does not know yet."""


def reached(point: Point) -> None:
    """Let the process die if this is the point that the environment names."""
    if os.environ.get(DIE_AT) == point:
        die()


def die() -> None:
    """Kill this process as `kill -9` does: nothing is cleared up, and no connection closed."""
    os.kill(os.getpid(), signal.SIGKILL)
