"""Confirmation of deletions just before they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from catalog.model import Partition, Table


class PurgedPartition(NamedTuple):
    """A partition to be deleted with its files; counts are None when unknown."""

    id: int
    location: str
    row_count: int | None
    size_bytes: int | None

    @classmethod
    def of(cls, partition: Partition) -> PurgedPartition:
        """Return the values of a partition that are confirmed."""
        return cls(partition.id, partition.location, partition.row_count, partition.size_bytes)


class Confirmation:
    """A check before permanent deletions. Each method raises an error to refuse; this class refuses nothing."""

    def drop_table(self, table: Table) -> None:
        """Confirm that a table is dropped with its files; the table is locked."""

    def purge_partitions(self, table: Table, partitions: Sequence[PurgedPartition]) -> None:
        """Confirm that partitions are dropped with their files; those that change afterwards are not dropped."""

    def revert(self, table: Table) -> None:
        """Confirm that an Iceberg table with exactly this metadata is reverted to the Hive table."""
