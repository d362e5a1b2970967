"""Measurements of a table and of the queries that read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from catalog.types.column_types import parse_column_type
from catalog.types.key_types import KeyType, KeyValueError
from catalog.types.ranges import KeyRange, Ranges

_FREQUENT = 64
"""The number of most frequent values to keep for each column."""


@dataclass(frozen=True)
class ColumnProfile:
    """The distribution of one column's values.

    Attributes:
        type: The comparable type in Hive's notation.
        distinct_count: The approximate number of distinct values, without null.
        null_share: The share of nulls in all rows, 0 to 1.
        sample: Some values in ascending order: their encoded bytes and their strings as the catalog writes them.
    """

    name: str
    type: str
    distinct_count: int
    null_share: float
    sample: tuple[tuple[bytes, str], ...] = ()

    @classmethod
    def of_sample(
        cls, name: str, column_type: str, distinct_count: int, null_share: float, texts: Sequence[str | None]
    ) -> ColumnProfile:
        """Return the profile of a column from a sample of its values, including nulls."""
        value_type = parse_column_type(column_type)
        assert value_type is not None
        sample = []
        for text in texts:
            if text is not None and (encoded := _encoded(value_type, text)) is not None:
                sample.append((encoded, text))
        return cls(name, column_type, distinct_count, null_share, tuple(sorted(sample)))

    @property
    def value_type(self) -> KeyType:
        """The type by which values are compared."""
        value_type = parse_column_type(self.type)
        assert value_type is not None
        return value_type

    @cached_property
    def frequent(self) -> list[tuple[str, float]]:
        """The most frequent values with their shares of all rows, in descending order."""
        counts = Counter(text for _, text in self.sample)
        rows = max(1, len(self.sample))
        return [(text, count / rows * (1 - self.null_share)) for text, count in counts.most_common(_FREQUENT)]

    @property
    def largest_share(self) -> float:
        """The share of the most frequent value in all rows."""
        return self.frequent[0][1] if self.frequent else 0.0

    def quantiles(self, count: int) -> list[str]:
        """Return up to `count` - 1 distinct values, ascending, that divide the rows into about equal parts."""
        cuts: dict[bytes, str] = {}
        for number in range(1, count):
            encoded, text = self.sample[number * len(self.sample) // count] if self.sample else (b"", "")
            if self.sample and encoded > self.sample[0][0]:
                cuts[encoded] = text
        return [cuts[encoded] for encoded in sorted(cuts)]


def _encoded(value_type: KeyType, text: str) -> bytes | None:
    try:
        return value_type.encode(value_type.parse(text))
    except KeyValueError:
        return None


@dataclass(frozen=True)
class QueryProfile:
    """The conditions of one query on the table.

    Attributes:
        text: The query.
        reads_table: Whether it reads the table at all.
        bounds: Column → the ranges of matching values. Columns without conditions are missing.
        error: The reason why the query was not understood; None if it was.
    """

    text: str
    reads_table: bool = True
    bounds: Mapping[str, Ranges] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class TableProfile:
    """The measurements of a table.

    Attributes:
        table: `database.name`.
        size_bytes: The total size of its data files; None if unknown.
        columns: The columns with comparable values, in the table's order.
    """

    table: str
    row_count: int
    size_bytes: int | None
    columns: tuple[ColumnProfile, ...]
    queries: tuple[QueryProfile, ...] = ()


@dataclass(frozen=True)
class PartitionSpread:
    """The rows that one partition of a scheme would contain.

    Attributes:
        extremes: Column → its least and greatest value, as strings; columns with only nulls are missing.
    """

    partition_id: int
    row_count: int
    extremes: Mapping[str, tuple[str, str]]


def only_not_null(ranges: Ranges) -> bool:
    """Return whether ranges exclude only null."""
    return len(ranges) == 1 and ranges[0].low <= b"\x01" and ranges[0].high >= b"\xff"


def overlapping(ranges: Ranges, low: bytes, high: bytes) -> bool:
    """Return whether the values from `low` to `high`, both inclusive, overlap one of the ranges."""
    return any(key_range.low <= high and low < key_range.high for key_range in ranges)


def window(low: bytes, high: bytes) -> Ranges:
    """Return the range from one encoded value to another, which is exclusive."""
    return (KeyRange(low, high),)
