"""What was measured of a table and of the queries that read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from catalog.types.column_types import parse_column_type
from catalog.types.key_types import KeyType, KeyValueError
from catalog.types.ranges import KeyRange, Ranges

_FREQUENT = 64
"""The most frequent values that are kept of each column."""


@dataclass(frozen=True)
class ColumnProfile:
    """The values of one column.

    Attributes:
        type: As Hive writes it; its values compare.
        distinct_count: About how many different values there are, null not counted.
        null_share: Of all rows, 0 to 1.
        sample: Some values, ascending: texts as the catalog writes them, with their bytes.
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
        """Return the profile of a column of which some rows' values are known; null is among them."""
        value_type = parse_column_type(column_type)
        assert value_type is not None
        sample = []
        for text in texts:
            if text is not None and (encoded := _encoded(value_type, text)) is not None:
                sample.append((encoded, text))
        return cls(name, column_type, distinct_count, null_share, tuple(sorted(sample)))

    @property
    def value_type(self) -> KeyType:
        """The type that values compare by."""
        found = parse_column_type(self.type)
        assert found is not None
        return found

    @cached_property
    def frequent(self) -> list[tuple[str, float]]:
        """The most frequent values and their shares of all rows, the greatest first."""
        counts = Counter(text for _, text in self.sample)
        rows = max(1, len(self.sample))
        return [(text, count / rows * (1 - self.null_share)) for text, count in counts.most_common(_FREQUENT)]

    @property
    def largest_share(self) -> float:
        """The share of all rows that have the most frequent value."""
        return self.frequent[0][1] if self.frequent else 0.0

    def quantiles(self, count: int) -> list[str]:
        """Return up to `count` - 1 different values that cut the rows into about equal parts, ascending."""
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
    """What one query asks of the table.

    Attributes:
        text: The query.
        reads_table: Whether it reads the table at all.
        bounds: Column → the ranges that its values have to be in. A column that is compared with nothing is not there.
        error: Why nothing is known of it; None if it could be understood.
    """

    text: str
    reads_table: bool = True
    bounds: Mapping[str, Ranges] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class TableProfile:
    """What was measured of a table.

    Attributes:
        table: `database.name`.
        size_bytes: Of its data files; None when the catalog does not know.
        columns: Those whose values compare, in the table's order.
    """

    table: str
    row_count: int
    size_bytes: int | None
    columns: tuple[ColumnProfile, ...]
    queries: tuple[QueryProfile, ...] = ()


@dataclass(frozen=True)
class PartitionSpread:
    """What one partition would hold.

    Attributes:
        extremes: Column → its least and greatest value, as texts; one of nulls only is not there.
    """

    partition_id: int
    row_count: int
    extremes: Mapping[str, tuple[str, str]]


def only_not_null(ranges: Ranges) -> bool:
    """Say whether ranges keep out nothing but null."""
    return len(ranges) == 1 and ranges[0].low <= b"\x01" and ranges[0].high >= b"\xff"


def overlapping(ranges: Ranges, low: bytes, high: bytes) -> bool:
    """Say whether bytes from `low` to `high`, both inclusive, touch one of the ranges."""
    return any(each.low <= high and low < each.high for each in ranges)


def window(low: bytes, high: bytes) -> Ranges:
    """Return the range between two encoded values, the second exclusive."""
    return (KeyRange(low, high),)
