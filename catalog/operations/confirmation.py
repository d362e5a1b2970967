"""Confirmation of deletions just before they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from catalog.model import Partition, Table


class PurgedPartition(NamedTuple):
    """A partition that is about to be deleted with its files; its counts are None where they are not known."""

    id: int
    location: str
    row_count: int | None
    size_bytes: int | None

    @classmethod
    def of(cls, partition: Partition) -> PurgedPartition:
        """Return what is confirmed of a partition."""
        return cls(partition.id, partition.location, partition.row_count, partition.size_bytes)


class Confirmation:
    """Is asked before something is deleted for good. Each method raises to refuse; this class refuses nothing."""

    def drop_table(self, table: Table) -> None:
        """Confirm that a table is dropped with its files; nobody else can change it now."""

    def purge_partitions(self, table: Table, partitions: Sequence[PurgedPartition]) -> None:
        """Confirm that partitions are dropped with their files; one that changes afterwards is not."""

    def revert(self, table: Table) -> None:
        """Confirm that an Iceberg table with just these metadata becomes the Hive table again."""
