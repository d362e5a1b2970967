"""The signatures of the requests of the last minutes, in memory that all processes of a server share."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SKEW_SECONDS = 300
"""How much the time of a request may differ from that of the server. Source: AWS, 5 minutes."""

TWIN_SECONDS = 2.0
"""Equal requests of one second have equal signatures; after this time, an equal one counts as sent again."""

_BUCKETS, _RECORDS = 2**17, 8
"""A million signatures. In a full bucket, the oldest record is replaced."""

_RECORD = struct.Struct("<d12s4s")
_BUCKET_BYTES = _RECORD.size * _RECORDS


class SeenSignatures:
    """Tells which signatures were seen before; processes that are forked share it, and threads may use it."""

    def __init__(self) -> None:
        """Reserve the memory, 25 MB, of which only what is written takes space."""
        self._memory = mmap.mmap(-1, _BUCKETS * _BUCKET_BYTES)
        # The system releases the lock of a process that dies.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the memory
        self._lock = threading.Lock()

    def add(self, signature: bytes, attempt: bytes, now: float) -> bool:
        """Return whether a request may be answered: it is new, or a different one of the same moment.

        Args:
            signature: 32 bytes.
            attempt: What distinguishes requests of the same moment that are equal.
            now: Seconds since 1970.
        """
        place = int.from_bytes(signature[:8]) % _BUCKETS * _BUCKET_BYTES
        key, mark = signature[-12:], hashlib.blake2b(attempt, digest_size=4).digest()
        with self._alone():
            records = list(_RECORD.iter_unpack(self._memory[place : place + _BUCKET_BYTES]))
            # Twice the skew: a request may be signed that much ahead of the server's clock.
            equal = [record for record in records if record[1] == key and record[0] >= now - 2 * SKEW_SECONDS]
            first = min((record[0] for record in equal), default=now)
            if now - first > TWIN_SECONDS or any(record[2] == mark for record in equal):
                return False
            oldest = min(range(_RECORDS), key=lambda number: records[number][0])
            # With the time of the first one, after which no other is accepted for long.
            _RECORD.pack_into(self._memory, place + oldest * _RECORD.size, first, key, mark)
            return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
