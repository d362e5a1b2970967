"""Take in a caller's partitions before anything is locked.

A caller's iterator may be slow, wait for others, or use the catalog itself: none of that may happen inside a
transaction. A long one goes into a temporary file, so that memory does not grow with it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, Any

from catalog.model import NewPartition
from catalog.storage.bulk import batched


class Spool:
    """Partitions in batches, each short enough for one statement."""

    def __init__(self, file: IO[bytes]) -> None:
        """Take the file for the batches when there are several."""
        self._file = file
        self._only: Sequence[NewPartition] | None = None
        self._written_count = 0

    @property
    def is_long(self) -> bool:
        """Return whether there is more than one batch."""
        return self._written_count > 0

    def append(self, batch: Sequence[NewPartition]) -> None:
        """Add a batch."""
        if self._only is None and not self._written_count:
            self._only = batch
            return
        if self._only is not None:
            self._write(self._only)
            self._only = None
        self._write(batch)

    def _write(self, batch: Sequence[NewPartition]) -> None:
        pickle.dump([_plain(partition) for partition in batch], self._file, pickle.HIGHEST_PROTOCOL)
        self._written_count += 1

    def __iter__(self) -> Iterator[NewPartition]:
        """Yield the partitions in the order in which they came."""
        yield from self._only or ()
        self._file.seek(0)
        for _ in range(self._written_count):
            for fields in pickle.load(self._file):
                yield NewPartition(*fields)


@contextmanager
def taken_in(partitions: Iterable[NewPartition]) -> Iterator[Spool]:
    """Consume an iterable completely, and keep what it yielded until the end of the block."""
    with TemporaryFile(prefix="calve-") as file:
        spool = Spool(file)
        for batch in batched(partitions):
            spool.append(batch)
        yield spool


def _plain(partition: NewPartition) -> tuple[Any, ...]:
    """Return the fields of a partition; a caller's own kinds of sequences and mappings are not for a file."""
    return (
        tuple(partition.values),
        partition.location,
        partition.file_count,
        partition.row_count,
        partition.size_bytes,
        partition.properties and dict(partition.properties),
        partition.format,
    )
