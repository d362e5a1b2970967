"""A search for partitions as its caller sees it: its partitions, its plan, and counts of what it has read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from catalog.indexes.planner import ScanPlan
from catalog.indexes.skipping import Reading
from catalog.model import Partition, Table
from catalog.storage.partition_rows import PartitionRecord
from catalog.types.ranges import Ranges


@dataclass
class ScanCounts:
    """Counts of what a search has read so far.

    Attributes:
        values_looked_up: Values of keys of the index that were looked up, to skip through them.
        partitions_in_other_states: Partitions that match the filter, and are quarantined, or are not, unlike those that
            the search looks for.
        is_cut: Whether the search has stopped at its limit, so that the counts are lower bounds.
    """

    values_looked_up: int = 0
    items_read: int = 0
    partitions_fetched: int = 0
    partitions_in_other_states: int = 0
    partitions_found: int = 0
    is_cut: bool = False


@dataclass
class ScanState:
    """The progress of a search; `Scan` describes the attributes."""

    table: Table
    plan: ScanPlan
    counts: ScanCounts = field(default_factory=ScanCounts)
    reading: Reading | None = None
    not_skipped: str | None = None
    limit: int | None = None


class _Planned:
    """The table and the index of a search, whatever it returns."""

    _state: ScanState

    @property
    def table(self) -> Table:
        """The table as of the search, once it has started; before, as of its plan."""
        return self._state.table

    @property
    def is_by_index(self) -> bool:
        """Whether an index is used."""
        return self._state.plan.index is not None


@dataclass(frozen=True)
class RowScan(_Planned):
    """A search, which runs as the caller iterates over `pages`: some columns of the rows of partitions.

    The whole search sees one committed state of the catalog.
    """

    pages: Iterator[Sequence[PartitionRecord]]
    _state: ScanState


@dataclass(frozen=True)
class Scan(_Planned):
    """A search, which runs as the caller iterates over `partitions`.

    The whole search sees one committed state of the catalog.
    """

    partitions: Iterator[Partition]
    # In an object of its own: the iterator updates it, and must not refer to the `Scan`. In a reference cycle, only the
    # garbage collector would close the connection when the caller stops early.
    _state: ScanState

    @property
    def plan(self) -> ScanPlan:
        """The plan of the search; it may change when the search starts, if the table has changed meanwhile."""
        return self._state.plan

    @property
    def counts(self) -> ScanCounts:
        """Counts of rows and index items read so far."""
        return self._state.counts

    @property
    def ranges(self) -> Ranges:
        """The ranges of index keys that the search reads, once it has started."""
        return self._state.reading.described(self.table) if self._state.reading else ()

    @property
    def not_skipped(self) -> str | None:
        """The reason why values of a key were not looked up, which the index would have allowed."""
        return self._state.not_skipped
