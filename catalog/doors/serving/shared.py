"""Records in memory that all processes of a server share, because they are forked after it was reserved."""

from __future__ import annotations

import fcntl
import mmap
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class SharedRecords:
    """A table of buckets, each with a fixed number of records; for processes and their threads."""

    def __init__(self, form: str, *, buckets: int, records: int) -> None:
        """Reserve the memory, of which only what is written takes space.

        Args:
            form: The form of a record, as for `struct`; records are of zeros at first.
            records: Their number in each bucket.
        """
        self._form = struct.Struct(form)
        self._buckets = buckets
        self._records = records
        self._memory = mmap.mmap(-1, buckets * records * self._form.size)
        # The system releases the lock of a process that dies.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the memory
        self._lock = threading.Lock()

    @contextmanager
    def bucket(self, key: bytes) -> Iterator[Bucket]:
        """Lock the bucket of a key, of which 8 evenly distributed bytes count."""
        size = self._records * self._form.size
        place = int.from_bytes(key[:8]) % self._buckets * size
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield Bucket(self._form, self._memory, place, size)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)


class Bucket:
    """The records of one bucket, while it is locked."""

    def __init__(self, form: struct.Struct, memory: mmap.mmap, place: int, size: int) -> None:
        """Read the records."""
        self.records: Sequence[tuple[Any, ...]] = list(form.iter_unpack(memory[place : place + size]))
        self._form = form
        self._memory = memory
        self._place = place

    def put(self, number: int, *values: Any) -> None:
        """Replace a record."""
        self._form.pack_into(self._memory, self._place + number * self._form.size, *values)
