"""Buffers of partitions between a transaction and its caller, so that neither waits for the other.

A caller's iterator may be slow, wait for other threads, or use the catalog itself. None of that may happen inside a
transaction, so partitions to add are read before it, and results are returned after it. Large sets go to a temporary
file, which bounds the memory.
"""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from tempfile import TemporaryFile
from typing import IO, Any, Self, TypeAlias, TypeGuard

from sqlalchemy import Connection

from catalog.model import NewPartition
from catalog.storage import Storage
from catalog.storage.bulk import BATCH, batched

_ROWS_IN_MEMORY = 5 * BATCH

Page: TypeAlias = Sequence[Sequence[Any]]
"""Rows of plain values: numbers, strings and None."""


def read_apart(storage: Storage, read: Callable[[Connection], Iterator[Page]]) -> Iterator[Page]:
    """Yield pages that are read in one transaction, without letting open iterators use up all connections.

    A limited number of iterators keep their connections (`Storage.streams`), and fetch on demand. All others fetch
    everything first, and keep no connection while the caller works.
    """
    if storage.streams.acquire(blocking=False):
        try:
            with storage.read() as connection:
                yield from read(connection)
        finally:
            storage.streams.release()
        return
    with RowSpool() as spool:
        with storage.read() as connection:
            for page in read(connection):
                spool.append(page)
        yield from spool


class RowSpool:
    """A buffer of pages: the first in memory, the others in a temporary file."""

    def __init__(self) -> None:
        """Create an empty buffer."""
        self._pages: list[Page] = []
        self._row_count = 0
        self._file: IO[bytes] | None = None
        self._written_count = 0

    def __enter__(self) -> Self:
        """Return the spool."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close and thereby delete the file, if there is one."""
        if self._file is not None:
            self._file.close()

    def append(self, page: Page) -> None:
        """Add a page."""
        self._row_count += len(page)
        if self._row_count <= _ROWS_IN_MEMORY:
            self._pages.append(page)
            return
        if self._file is None:
            self._file = TemporaryFile(prefix="calve-")  # noqa: SIM115 - closed by __exit__
        # Faster than pickle, and safe: the file has no name, so no other process can write it.
        marshal.dump(list(map(tuple, page)), self._file)
        self._written_count += 1

    def __iter__(self) -> Iterator[Page]:
        """Yield the pages in the order in which they were added; works once."""
        self._pages.reverse()
        while self._pages:
            yield self._pages.pop()
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self._written_count):
                yield marshal.load(self._file)


class PartitionFile:
    """A buffer of partitions in a file."""

    def __init__(self, file: IO[bytes]) -> None:
        """Set the open, empty file."""
        self._file = file
        self._written_count = 0

    def append(self, batch: Sequence[NewPartition]) -> None:
        """Add a batch."""
        pickle.dump([_plain(partition) for partition in batch], self._file, pickle.HIGHEST_PROTOCOL)
        self._written_count += 1

    def __iter__(self) -> Iterator[NewPartition]:
        """Yield the partitions in the order in which they were added."""
        self._file.seek(0)
        for _ in range(self._written_count):
            for fields in pickle.load(self._file):
                yield NewPartition(*fields)


@dataclass(frozen=True)
class TakenIn:
    """Partitions copied from the caller, so that none of its code runs while they are read.

    Attributes:
        is_bulk: Whether they do not fit into one statement, or one of them has a custom location.
    """

    partitions: Iterable[NewPartition]
    is_bulk: bool


def is_here(partitions: Iterable[NewPartition]) -> TypeGuard[Sequence[NewPartition]]:
    """Return whether iterating runs no code of the caller."""
    return type(partitions) in (list, tuple)


@contextmanager
def taken_in(partitions: Iterable[NewPartition]) -> Iterator[TakenIn]:
    """Consume an iterable completely, and keep its partitions until the end of the block."""
    if is_here(partitions):
        yield TakenIn(partitions, _is_bulk(partitions))
        return
    batches = batched(partitions)
    first = list(chain.from_iterable(islice(batches, _ROWS_IN_MEMORY // BATCH)))
    with TemporaryFile(prefix="calve-") if len(first) == _ROWS_IN_MEMORY else nullcontext() as file:
        rest: Iterable[NewPartition] = ()
        if file is not None:
            rest = PartitionFile(file)
            for batch in batches:
                rest.append(batch)
        yield TakenIn(chain(first, rest), _is_bulk(first))


def _is_bulk(partitions: Sequence[NewPartition]) -> bool:
    return len(partitions) > BATCH or any(partition.location is not None for partition in partitions)


def _plain(partition: NewPartition) -> tuple[Any, ...]:
    """Return the fields of a partition as plain types, because a caller's own classes may not pickle."""
    return (
        tuple(partition.values),
        partition.location,
        partition.file_count,
        partition.row_count,
        partition.size_bytes,
        partition.properties and dict(partition.properties),
        partition.format,
        partition.descriptor,
    )
