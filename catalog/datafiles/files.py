"""Rows of data files of tables with a partition scheme, and their statistics."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, delete, func, select

from catalog.datafiles.history import close_rows, move_rows, next_revision, with_paths
from catalog.indexes.keys import after_prefix
from catalog.model import Table
from catalog.schemes.model import NULL_RANGE
from catalog.storage.bulk import among, batched, insert_rows
from catalog.storage.schema import DataFileRow
from catalog.types.key_types import KeyType, KeyValue
from catalog.types.ranges import KeyRange, Ranges

_LONGEST_BYTES = 128
"""Longer minima are truncated, longer maxima are truncated and incremented, so that both stay bounds."""


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of one column in one file.

    Attributes:
        low, high: Encoded bounds (`catalog.types.key_types`) of the values, inclusive and exclusive; None if all values
            are null.
        null_count: The number of nulls; None if unknown.
    """

    low: bytes | None
    high: bytes | None
    null_count: int | None

    @classmethod
    def of_values(
        cls, value_type: KeyType, least: KeyValue, greatest: KeyValue, null_count: int | None
    ) -> ColumnStatistics:
        """Return the statistics of a column with these least and greatest values."""
        low, high = value_type.encode(least), after_prefix(value_type.encode(greatest))
        if len(low) > _LONGEST_BYTES:
            low = low[:_LONGEST_BYTES]
        if len(high) > _LONGEST_BYTES:
            high = after_prefix(high[:_LONGEST_BYTES])
        return cls(low, high, null_count)

    @cached_property
    def ranges(self) -> Ranges:
        """The ranges of encoded values, including the range of null if there may be nulls."""
        ranges = [NULL_RANGE] if self.null_count is None or self.null_count > 0 else []
        if self.low is not None and self.high is not None:
            is_point = len(self.low) < _LONGEST_BYTES and after_prefix(self.low) == self.high
            ranges.append(KeyRange(self.low, self.high, is_point))
        return ranges

    def overlaps(self, ranges: Ranges) -> bool:
        """Return whether a value may lie in one of these ranges."""
        return any(mine.low < other.high and other.low < mine.high for mine in self.ranges for other in ranges)

    def as_json(self) -> list[Any]:
        """Return the statistics as JSON values."""
        low, high = (None if bound is None else bound.hex() for bound in (self.low, self.high))
        return [low, high, self.null_count]

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> ColumnStatistics:
        """Return the statistics that `as_json` has stored."""
        low, high, null_count = stored
        return cls(low and bytes.fromhex(low), high and bytes.fromhex(high), null_count)


@dataclass(frozen=True)
class NewFile:
    """A data file that a job has written.

    Attributes:
        partition_id: The partition that its rows belong to.
        path: The path relative to the table's location.
        statistics: Statistics of the partition column and the sort columns, by name; a missing column may have any
            values.
        metrics: All columns' metrics for Iceberg's manifests (`catalog.iceberg.manifests.encode_metrics`); None if
            unknown.
        values: Its partition's values, in the order of the keys; empty in a table without partition keys.
        is_read_by_id: Another engine wrote it, with field ids, but with other names of columns than Calve's files have.
    """

    partition_id: int
    path: str
    row_count: int
    size_bytes: int
    statistics: Mapping[str, ColumnStatistics]
    metrics: bytes | None = None
    values: tuple[str | None, ...] = ()
    is_read_by_id: bool = False

    def as_json(self) -> list[Any]:
        """Return the file as JSON values."""
        metrics = None if self.metrics is None else b64encode(self.metrics).decode()
        fields = [self.partition_id, self.path, self.row_count, self.size_bytes, _plain(self.statistics), metrics]
        return [*fields, list(self.values)]

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> NewFile:
        """Return the file that `as_json` has stored.

        Raises:
            ValueError: The values do not describe a file.
        """
        partition_id, path, row_count, size_bytes, statistics, metrics, values = stored
        known = {name: ColumnStatistics.from_json(fields) for name, fields in statistics.items()}
        encoded = None if metrics is None else b64decode(metrics)
        return cls(partition_id, path, row_count, size_bytes, known, encoded, tuple(values))


def _plain(statistics: Mapping[str, ColumnStatistics]) -> dict[str, list[Any]]:
    return {name: column.as_json() for name, column in statistics.items()}


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Attributes:
        path: The path relative to the table's location.
        statistics_json: The statistics as stored in the catalog.
        operation_number: The operation that wrote it; 0 for another engine, or None if the file must be read by the
            field ids in it.
    """

    id: int
    partition_id: int
    path: str
    row_count: int
    size_bytes: int
    statistics_json: str
    operation_number: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether Calve wrote it."""
        return bool(self.operation_number)

    @property
    def is_read_by_id(self) -> bool:
        """Whether its columns are found by field ids, instead of by the names that files of Calve have."""
        return self.operation_number is None

    @cached_property
    def statistics(self) -> Mapping[str, ColumnStatistics]:
        """Statistics by column name; a missing column may have any values."""
        return {name: ColumnStatistics.from_json(stored) for name, stored in json.loads(self.statistics_json).items()}


@dataclass(frozen=True)
class Total:
    """The number of files, rows and bytes of some data files."""

    file_count: int = 0
    row_count: int = 0
    size_bytes: int = 0

    @classmethod
    def of(cls, files: Sequence[DataFile]) -> Total:
        """Return the total of some files."""
        return cls(len(files), sum(file.row_count for file in files), sum(file.size_bytes for file in files))

    def __add__(self, other: Total) -> Total:
        """Return the sum of both."""
        return Total(
            self.file_count + other.file_count, self.row_count + other.row_count, self.size_bytes + other.size_bytes
        )


_COLUMNS = (
    *("table_id", "partition_id", "path", "row_count", "size_bytes", "statistics", "operation_number"),
    "revision",
)


def insert_files(connection: Connection, table: Table, files: Iterable[NewFile], operation_number: int | None) -> Total:
    """Make files visible in the caller's transaction; return their total.

    Args:
        operation_number: The operation that wrote them; None for another engine.
    """
    total, revision = Total(), next_revision(connection, table)

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal total
        for file in files:
            total += Total(1, file.row_count, file.size_bytes)
            yield (
                table.id,
                file.partition_id,
                file.path,
                file.row_count,
                file.size_bytes,
                json.dumps(_plain(file.statistics), separators=(",", ":")),
                (None if file.is_read_by_id else 0) if operation_number is None else operation_number,
                revision,
            )

    insert_rows(connection, DataFileRow, _COLUMNS, rows())
    return total


def read_files(
    connection: Connection,
    table: Table,
    partition_ids: Iterable[int] | None = None,
    *,
    operation_number: int | None = None,
) -> Iterator[DataFile]:
    """Yield the files of some partitions of a table, or of all, ordered by partition and file id.

    Args:
        operation_number: Only those that this operation wrote; None for all.
    """
    query = select(
        DataFileRow.id,
        DataFileRow.partition_id,
        DataFileRow.path,
        DataFileRow.row_count,
        DataFileRow.size_bytes,
        DataFileRow.statistics,
        DataFileRow.operation_number,
    ).where(DataFileRow.table_id == table.id)
    if operation_number is not None:
        query = query.where(DataFileRow.operation_number == operation_number)
    chunks: Iterable[list[int] | None] = [None] if partition_ids is None else batched(sorted(partition_ids))
    for chunk in chunks:
        chosen = query if chunk is None else query.where(among(connection, DataFileRow.partition_id, chunk))
        ordered = chosen.order_by(DataFileRow.partition_id, DataFileRow.id)
        # Set for this statement only: as an option of the connection it would also apply to later statements, and
        # PostgreSQL has no server-side cursor for DELETE … RETURNING.
        for row in connection.execute(ordered, execution_options={"yield_per": 5_000}):
            yield DataFile(*row)


def number_of_files(connection: Connection, table: Table) -> int:
    """Return the number of a table's files."""
    query = select(func.count()).select_from(DataFileRow).where(DataFileRow.table_id == table.id)
    return int(connection.scalar(query) or 0)


def count_files(connection: Connection, table: Table, partition_ids: Collection[int] | None = None) -> dict[int, Total]:
    """Return the totals of some partitions, or of all, by partition id; partitions without files are missing."""
    query = (
        select(
            DataFileRow.partition_id,
            func.count(),
            func.sum(DataFileRow.row_count),
            func.sum(DataFileRow.size_bytes),
        )
        .where(DataFileRow.table_id == table.id)
        .group_by(DataFileRow.partition_id)
    )
    chunks: Iterable[list[int] | None] = [None] if partition_ids is None else batched(sorted(partition_ids))
    return {
        partition_id: Total(files, int(rows), int(size))
        for chunk in chunks
        for partition_id, files, rows, size in connection.execute(
            query if chunk is None else query.where(among(connection, DataFileRow.partition_id, chunk))
        )
    }


def relabel_files(connection: Connection, table: Table, partition_of: Mapping[int, int]) -> int:
    """Assign files to other partitions.

    Args:
        partition_of: File id → its new partition.

    Returns:
        The number of files that still existed.
    """
    by_target: dict[int, list[int]] = {}
    for file_id, partition_id in partition_of.items():
        by_target.setdefault(partition_id, []).append(file_id)
    return sum(
        move_rows(connection, table, chunk, partition_id)
        for partition_id, file_ids in by_target.items()
        for chunk in batched(sorted(file_ids))
    )


def delete_files(connection: Connection, table: Table, paths: Iterable[str]) -> int:
    """Delete the rows of files that are wrong, so that no earlier revision has them either; return their number.

    Args:
        paths: Relative to the table's location.
    """
    return sum(
        connection.execute(delete(DataFileRow).where(with_paths(connection, DataFileRow, table, chunk))).rowcount
        for chunk in batched(paths)
    )


def retire_files(connection: Connection, table: Table, file_ids: Iterable[int]) -> list[str]:
    """Remove files from a table, but keep them on disk for running readers until vacuum; return their paths."""
    return [path for chunk in batched(sorted(file_ids)) for path in close_rows(connection, table, chunk)]
