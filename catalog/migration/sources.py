"""The folders of a Hive table to list, in the order of their partitions' typed values.

This order puts neighbouring partitions into the same manifests, so that readers can skip most manifests. For up to a
million partitions, they are sorted in runs on disk and merged.
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
from catalog.partitions.reading import read_pages
from catalog.partitions.specs import spec_values
from catalog.storage.bulk import batched
from catalog.storage.partition_rows import PARTITION_COLUMNS, PartitionFactory
from catalog.storage.values import ValueEncoder
from catalog.tables.own_files import require_no_links_outside

_LOCATION = PARTITION_COLUMNS.index("location")
_RUN = 50_000
"""The number of partitions that are sorted in memory."""


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """A folder whose data files become part of an Iceberg table.

    Attributes:
        ordinal: Its position in the order of the typed partition values, from 0.
        values: One string per partition key, in the order of the Iceberg table's spec; None is null.
        format: The format of its files.
        partition_id: The id of the partition; None for a table without partition keys.
    """

    ordinal: int
    location: str
    values: tuple[str | None, ...]
    format: FileFormat
    partition_id: int | None = None


def partitions_of(connection: Connection, table: Table) -> Iterator[tuple[Partition, bool]]:
    """Yield the partitions of a table, visible and hidden, ordered by id, and whether each has a stored location."""
    factory = PartitionFactory(table)
    queries = Queries(connection.dialect.name == "postgresql")
    for page in read_pages(connection, queries.partitions_by_order(table.id)):
        yield from zip(factory.make_all(page), [row[_LOCATION] is not None for row in page], strict=True)


class Selection:
    """The partitions of a table to include, and the order of their values in an Iceberg table's spec."""

    def __init__(
        self,
        table: Table,
        chosen: Mapping[str, str | None] | None = None,
        key_order: Sequence[int] | None = None,
    ) -> None:
        """Create a selection of a table's partitions.

        Args:
            chosen: Partition key → value, to include only partitions with these values; None for all.
            key_order: The positions of the partition keys in the order of the spec; None for the table's order.

        Raises:
            InvalidPartitionSpecError: `chosen` contains a name that is not a partition key.
        """
        self._order = tuple(range(len(table.partition_keys))) if key_order is None else tuple(key_order)
        self._encoder = ValueEncoder(table)
        named = spec_values(table, chosen or {})
        self._expected = {position: self._encoder.encoded(position, value) for position, value in named.items()}

    def includes(self, partition: Partition) -> bool:
        """Return whether a partition is included."""
        return all(
            self._encoder.encoded(position, partition.values[position]) == value
            for position, value in self._expected.items()
        )

    def values(self, partition: Partition) -> tuple[str | None, ...]:
        """Return the values of a partition in the order of the spec."""
        return tuple(partition.values[position] for position in self._order)

    def key(self, partition: Partition) -> tuple[bytes, ...]:
        """Return a key that sorts as the typed values do."""
        return tuple(self._encoder.encoded(position, partition.values[position]) for position in self._order)


def source_folders(connection: Connection, table: Table, selection: Selection) -> Iterator[SourceFolder]:
    """Yield the folders of a table's visible, included partitions, in the order of their typed values.

    Raises:
        LocationNotAllowedError: A symbolic link in a folder, or on the way to it, leads out of the allowed folders.
    """
    for page in batched(_folders(connection, table, selection), 1_000):
        require_no_links_outside(table, [folder.location for folder in page])
        yield from page


def _folders(connection: Connection, table: Table, selection: Selection) -> Iterator[SourceFolder]:
    if not table.partition_keys:
        yield SourceFolder(0, table.location, (), table.format)
        return
    records = (
        (selection.key(partition), partition.id, partition.location, selection.values(partition), partition.format)
        for partition, _ in partitions_of(connection, table)
        if partition.state is PartitionState.VISIBLE and selection.includes(partition)
    )
    for ordinal, (_, number, location, values, own_format) in enumerate(_sorted(records)):
        yield SourceFolder(ordinal, location, values, own_format or table.format, number)


_Record = tuple[tuple[bytes, ...], int, str, tuple[str | None, ...], FileFormat | None]


def _sorted(records: Iterable[_Record]) -> Iterator[_Record]:
    """Yield records in order; sorts and merges runs on disk if there are more records than one run."""
    with ExitStack() as files:
        runs: list[Iterator[_Record]] = []
        for batch in batched(records, _RUN):
            # Keys and ids are unique, and the other fields may not be comparable.
            run = sorted(batch, key=lambda record: record[:2])
            if len(run) < _RUN and not runs:
                yield from run
                return
            file = files.enter_context(tempfile.TemporaryFile())
            for part in batched(run, 1_000):
                pickle.dump(list(part), file, protocol=pickle.HIGHEST_PROTOCOL)
            file.seek(0)
            runs.append(_read(file))
        yield from heapq.merge(*runs, key=lambda record: record[:2])


def _read(file: IO[bytes]) -> Iterator[_Record]:
    while True:
        try:
            part = pickle.load(file)
        except EOFError:
            return
        yield from part
