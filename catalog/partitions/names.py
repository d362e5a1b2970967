"""The names of many partitions in their order, with a few bytes of memory for each.

Many partitions share the values of all keys but the last, and many the value of the last. Until its name is needed, a
partition is the numbers of both; Arrow and NumPy do the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from catalog.indexes.encoding import split_lines
from catalog.model import Table
from catalog.partitions.reading import read_values
from catalog.storage.partition_rows import names_of

_READ = 50_000
"""The number of partitions that one statement reads."""

_PAGE = 50_000
_GREATEST = 2**63 - 1

Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"


class SortedNames:
    """Names `k=v/k2=v2` of partitions of one table, as `Partition.name` returns them, ordered by their characters."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Set the names of the partition keys."""
        self._keys = [part for part in (keys[:-1], keys[-1:]) if part]
        self._columns: list[list[pa.DictionaryArray]] = [[] for _ in self._keys]
        self._count = 0

    def __len__(self) -> int:
        """Return the number of names."""
        return self._count

    def add(self, packed: pa.StringArray) -> None:
        """Add partitions, given their values as `catalog.model.partition_names.pack_values` returns them."""
        parts, width = packed, len(self._keys)
        if width > 1:
            parts = pc.split_pattern(packed, "/", max_splits=width - 1, reverse=True).flatten()
        for position, column in enumerate(self._columns):
            column.append(parts.take(pa.array(np.arange(position, len(parts), width))).dictionary_encode())
        self._count += len(packed)

    def pages(self) -> Iterator[list[pa.StringArray]]:
        """Yield the names in their order, many at a time: arrays of their parts, which follow one another."""
        if not self._count:
            return
        columns = [pa.chunked_array(column).unify_dictionaries().combine_chunks() for column in self._columns]
        numbers = [column.indices.to_numpy() for column in columns]
        ends = ["/", ""][-len(columns) :]
        parts = [
            pa.array([name + end for name in names_of(keys, column.dictionary.to_pylist())])
            for keys, column, end in zip(self._keys, columns, ends, strict=True)
        ]
        order = _ordered([_ranks(part)[of] for part, of in zip(parts, numbers, strict=True)])
        for first in range(0, self._count, _PAGE):
            chosen = order[first : first + _PAGE]
            yield [part.take(pa.array(of[chosen])) for part, of in zip(parts, numbers, strict=True)]

    def as_list(self) -> list[str]:
        """Return the names in their order."""
        return [name for page in self.pages() for name in pc.binary_join_element_wise(*page, "").to_pylist()]


def read_names(connection: Connection, table: Table, *, is_quarantined: bool | None) -> SortedNames:
    """Return the names of all partitions of a table.

    Args:
        is_quarantined: Of those that are hidden from readers, or are not; None for both.
    """
    names = SortedNames(table.key_names)
    for values in read_values(connection, table.id, is_quarantined=is_quarantined, page=_READ):
        names.add(split_lines(values.lines))
    return names


def _ranks(texts: pa.StringArray) -> Numbers:
    """Return the place of each string in the order of their characters; equal strings have the same one."""
    ranks: Numbers = pc.rank(texts, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _ordered(columns: Sequence[Numbers]) -> Numbers:
    """Return the places of rows in the order of their first column, then of their second one."""
    counts = [int(column.max()) + 1 for column in columns]
    if len(columns) > 1 and counts[0] <= _GREATEST // counts[1]:
        # One number sorts faster than two.
        columns = [columns[0] * counts[1] + columns[1]]
    return np.lexsort(columns[::-1]) if len(columns) > 1 else np.argsort(columns[0])
