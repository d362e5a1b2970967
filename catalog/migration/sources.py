"""What has to be listed of a Hive table: the folders of its partitions, in the order of their typed values.

In that order the entries of a manifest are of partitions side by side, so that readers skip most manifests. Partitions
may be a million: they are sorted in runs on the disk, and come back a page at a time.
"""

from __future__ import annotations

import heapq
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

from sqlalchemy import Connection

from catalog.model import FileFormat, Partition, PartitionState, Table
from catalog.partitions.queries import Queries
from catalog.partitions.scanning import read_pages
from catalog.partitions.specs import spec_values
from catalog.storage.bulk import batched
from catalog.storage.partition_rows import PARTITION_COLUMNS, PartitionFactory
from catalog.storage.values import ValueEncoder

_LOCATION = PARTITION_COLUMNS.index("location")
_RUN = 50_000
"""Partitions that are in memory at once."""


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """A folder whose data files become part of an Iceberg table.

    Attributes:
        ordinal: Its place in the order of the typed partition values, from 0.
        values: One text for each partition key, in the order of the Iceberg table's spec; None is null.
        format: Of its files.
        partition_id: None for a table without partition keys.
    """

    ordinal: int
    location: str
    values: tuple[str | None, ...]
    format: FileFormat
    partition_id: int | None = None


def partitions_of(connection: Connection, table: Table) -> Iterator[tuple[Partition, bool]]:
    """Yield the partitions of a table, visible or not, by their ids, and whether each has a folder of its own."""
    factory = PartitionFactory(table)
    queries = Queries(connection.dialect.name == "postgresql")
    for page in read_pages(connection, queries.partitions_by_order(table.id)):
        yield from zip(factory.make_all(page), [row[_LOCATION] is not None for row in page], strict=True)


class Selection:
    """Which partitions of a table are meant, and in which order an Iceberg table's spec has their values."""

    def __init__(
        self,
        table: Table,
        chosen: Mapping[str, str | None] | None = None,
        key_order: Sequence[int] | None = None,
    ) -> None:
        """Take the table.

        Args:
            chosen: Partition key → value; only partitions with these values. None for all.
            key_order: The positions of the partition keys in the order of the spec; None for their own.

        Raises:
            InvalidPartitionSpecError: `chosen` names what is no partition key.
        """
        self._order = tuple(range(len(table.partition_keys))) if key_order is None else tuple(key_order)
        self._encoder = ValueEncoder(table)
        named = spec_values(table, chosen or {})
        self._wanted = {position: self._encoder.encoded(position, value) for position, value in named.items()}

    def includes(self, partition: Partition) -> bool:
        """Say whether a partition is meant."""
        return all(
            self._encoder.encoded(position, partition.values[position]) == value
            for position, value in self._wanted.items()
        )

    def values(self, partition: Partition) -> tuple[str | None, ...]:
        """Return the values of a partition in the order of the spec."""
        return tuple(partition.values[position] for position in self._order)

    def key(self, partition: Partition) -> tuple[bytes, ...]:
        """Return what sorts as the typed values do."""
        return tuple(self._encoder.encoded(position, partition.values[position]) for position in self._order)


def source_folders(connection: Connection, table: Table, selection: Selection) -> Iterator[SourceFolder]:
    """Yield the folders of a table's visible partitions that are meant, in the order of their typed values."""
    if not table.partition_keys:
        yield SourceFolder(0, table.location, (), table.format)
        return
    records = (
        (selection.key(each), each.id, each.location, selection.values(each), each.format)
        for each, _ in partitions_of(connection, table)
        if each.state is PartitionState.VISIBLE and selection.includes(each)
    )
    for ordinal, (_, number, location, values, own_format) in enumerate(_sorted(records)):
        yield SourceFolder(ordinal, location, values, own_format or table.format, number)


_Record = tuple[tuple[bytes, ...], int, str, tuple[str | None, ...], FileFormat | None]


def _sorted(records: Iterable[_Record]) -> Iterator[_Record]:
    """Yield records in order; more than fit into memory are sorted in runs, which are merged."""
    with ExitStack() as files:
        runs: list[Iterator[_Record]] = []
        for batch in batched(records, _RUN):
            # Ids are told apart by their second field, so nothing behind it is compared.
            run = sorted(batch, key=lambda each: each[:2])
            if len(run) < _RUN and not runs:
                yield from run
                return
            file = files.enter_context(tempfile.TemporaryFile())
            for part in batched(run, 1_000):
                pickle.dump(list(part), file, protocol=pickle.HIGHEST_PROTOCOL)
            file.seek(0)
            runs.append(_read(file))
        yield from heapq.merge(*runs, key=lambda each: each[:2])


def _read(file: IO[bytes]) -> Iterator[_Record]:
    while True:
        try:
            part = pickle.load(file)
        except EOFError:
            return
        yield from part
