"""Search for partitions of the catalog that another list, of folders or of a source, lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from sqlalchemy import Row, select

from catalog.model import Table
from catalog.storage import Storage
from catalog.storage.partition_rows import IN_ORDER, newest_partition, partitions_after
from catalog.storage.schema import PartitionRow

Digests: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
"""Digests of 8 bytes each, for which collisions are practically impossible."""


class Seen:
    """The partitions of another list, to find those of the catalog that it lacks.

    Ignores partitions that are added while the other list is read, because that list may be older.
    """

    def __init__(self, storage: Storage, table: Table) -> None:
        """Note the newest partition; create the object before reading the other list."""
        self._storage = storage
        self._table = table
        self._digests: list[Digests] = []
        with storage.read() as connection:
            self._last_id = connection.scalar(newest_partition(table.id)) or 0

    def add(self, identities: Sequence[bytes]) -> None:
        """Add partitions of the other list by their identities (`PartitionRow.identity`)."""
        self._digests.append(_digests(identities))

    def lacking(self, size: int) -> Iterator[list[Row[*tuple[Any, ...]]]]:
        """Yield pages of partitions that were not added: their `id`, `packed_values` and `location`.

        Args:
            size: The number of the catalog's partitions that are compared per page; pages may be empty.
        """
        seen = np.unique(np.concatenate([np.empty(0, np.uint64), *self._digests]))
        row, after = PartitionRow, 0
        query = select(row.id, row.identity, row.packed_values, row.location).where(row.id <= self._last_id)
        while True:
            with self._storage.read() as connection:
                following = query.where(partitions_after(self._table.id, after)).order_by(*IN_ORDER)
                page = connection.execute(following.limit(size)).all()
            if not page:
                return
            after = page[-1].id
            is_seen = np.isin(_digests([partition.identity for partition in page]), seen)
            yield [partition for partition, is_there in zip(page, is_seen, strict=True) if not is_there]


def _digests(identities: Sequence[bytes]) -> Digests:
    """Return the first 8 bytes of each identity as a number."""
    return np.frombuffer(b"".join(bytes(identity)[:8] for identity in identities), np.uint64)
