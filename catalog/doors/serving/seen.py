"""The signatures of the requests of the last minutes, in memory that all processes of a server share."""

from __future__ import annotations

import hashlib

from catalog.doors.serving.shared import SharedRecords

SKEW_SECONDS = 300
"""How much the time of a request may differ from that of the server. Source: AWS, 5 minutes."""

TWIN_SECONDS = 2.0
"""Equal requests of one second have equal signatures; after this time, an equal one counts as sent again."""

_BUCKETS, _RECORDS = 2**17, 8
"""A million signatures in 25 MB. In a full bucket, the oldest record is replaced."""


class SeenSignatures:
    """Tells which signatures were seen before; for forked processes and their threads."""

    def __init__(self) -> None:
        """Reserve the memory."""
        self._seen = SharedRecords("<d12s4s", buckets=_BUCKETS, records=_RECORDS)

    def add(self, signature: bytes, attempt: bytes, now: float) -> bool:
        """Return whether a request may be answered: it is new, or a different one of the same moment.

        Args:
            signature: 32 bytes.
            attempt: What distinguishes requests of the same moment that are equal.
            now: Seconds since 1970.
        """
        key, mark = signature[-12:], hashlib.blake2b(attempt, digest_size=4).digest()
        with self._seen.bucket(signature) as bucket:
            # Twice the skew: a request may be signed that much ahead of the server's clock.
            equal = [record for record in bucket.records if record[1] == key and record[0] >= now - 2 * SKEW_SECONDS]
            first = min((record[0] for record in equal), default=now)
            if now - first > TWIN_SECONDS or any(record[2] == mark for record in equal):
                return False
            oldest = min(range(_RECORDS), key=lambda number: bucket.records[number][0])
            # With the time of the first one, after which no other is accepted for long.
            bucket.put(oldest, first, key, mark)
            return True
