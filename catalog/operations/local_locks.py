"""Locks of operations whose steps run in a process of this host, such as those of `calve load`.

A lock is a file in the state folder that the process keeps locked. The kernel releases it when the process ends,
however it ends, so a file that exists and is not locked is that of a killed process: its operation can be continued
without waiting until it is abandoned.
"""

from __future__ import annotations

import fcntl
import hashlib
from types import TracebackType
from typing import Self

from catalog.errors import OperationConflictError
from catalog.settings.environment import state_folder
from catalog.storage import Storage

_FOLDER = "operations"


class LocalLock:
    """The lock of one operation; the block holds it, and its end keeps the file unless `discard` was called."""

    def __init__(self, storage: Storage, operation_id: str) -> None:
        """Refer to the lock of an operation of a catalog."""
        digest = hashlib.sha256(f"{storage.identity}/{operation_id}".encode()).hexdigest()[:32]
        self._operation_id = operation_id
        self._path = state_folder() / _FOLDER / f"{digest}.lock"

    @property
    def is_left(self) -> bool:
        """Whether a process of this host that ran the operation has ended without discarding the lock."""
        try:
            with self._path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            OperationConflictError: Another process holds it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise OperationConflictError(
                f"operation {self._operation_id} is running in another process of this host; wait for it to end",
                self._operation_id,
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        self._file.close()

    def discard(self) -> None:
        """Delete the file, because there is nothing to continue."""
        self._path.unlink(missing_ok=True)
