"""Proposals to split, merge or add partitions of a table, from its file statistics.

A partition that is much larger than the others is split, a run of tiny neighbours is merged, and the values of a large
default partition get their own partitions. Sizes are bytes. After all proposals are applied, another run proposes
nothing: the advisor simulates the proposals and analyses the result before it returns them. Each partition is in at
most one proposal, so their order does not matter.

A partition can be cut only at the end of a cell (`catalog.rebalancing.contents`). If its cells are too coarse, its
values must be counted first; the advice names such partitions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from catalog.errors import CatalogError
from catalog.rebalancing.changes import (
    AddPartitions,
    MergePartitions,
    PartitionChange,
    SetPartitionCount,
    SplitPartition,
)
from catalog.rebalancing.contents import Cell, Content
from catalog.rebalancing.requests import RebalanceRequest
from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import DEFAULT_PARTITION, MAXIMUM_PARTITIONS, Scheme
from catalog.schemes.ranges import IntervalScheme, RangeScheme
from catalog.schemes.texts import format_group
from catalog.settings.rebalance_rules import RebalanceRules


@dataclass(frozen=True)
class Proposal:
    """A proposed change of a table's partitions, and its reason."""

    change: PartitionChange
    reason: str


@dataclass(frozen=True)
class Advice:
    """Advice on the partitions of a table.

    Attributes:
        proposals: Changes in any order; each can be applied without the others.
        to_count: Partitions that should be split or divided, if the file statistics do not show where.
        largest_bytes, median_bytes: Sizes of the partitions that have rows; the median excludes the default partition.
    """

    table: str
    proposals: tuple[Proposal, ...]
    to_count: tuple[int, ...]
    partition_count: int
    file_count: int
    total_bytes: int
    largest_bytes: int
    median_bytes: int

    @property
    def skew(self) -> float | None:
        """The ratio of the largest partition to the median; None if there is no median."""
        return round(self.largest_bytes / self.median_bytes, 1) if self.median_bytes else None

    def requests(self, *, dry_run: bool) -> list[dict[str, Any]]:
        """Return the proposals as forms of the DAG `rebalance_partitions`."""
        return [
            RebalanceRequest.of(self.table, proposal.change, dry_run=dry_run).as_form() for proposal in self.proposals
        ]

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "table": self.table,
            "partitions": self.partition_count,
            "files": self.file_count,
            "total_bytes": self.total_bytes,
            "largest_bytes": self.largest_bytes,
            "median_bytes": self.median_bytes,
            "skew": self.skew,
            "proposals": [
                {
                    "statement": f"ALTER TABLE {self.table} {proposal.change}",
                    "reason": proposal.reason,
                    "request": RebalanceRequest.of(self.table, proposal.change, dry_run=True).as_form(),
                }
                for proposal in self.proposals
            ],
            "to_count": list(self.to_count),
        }


def advise(table: str, scheme: Scheme, contents: Sequence[Content], rules: RebalanceRules, target_bytes: int) -> Advice:
    """Return advice on the partitions of a table; the same contents give the same advice.

    Args:
        contents: The contents of all partitions, in logical order.
        target_bytes: The target size of the table's data files.
    """
    sizes = _Sizes(rules, target_bytes)
    holdings = [_Holding.of(content) for content in contents]
    total = sum(content.total.size_bytes for content in contents)
    actions: Sequence[_Action] = ()
    to_count: set[int] = set()
    if total >= target_bytes:
        actions, to_count = _settled(scheme, holdings, sizes)
    return Advice(
        table,
        tuple(_valid(scheme, (_proposal(scheme, action, sizes, holdings) for action in actions))),
        tuple(partition_id for partition_id in scheme.ids if partition_id in to_count),
        len(scheme.ids),
        sum(content.total.file_count for content in contents),
        total,
        max((content.total.size_bytes for content in contents), default=0),
        _median(holdings),
    )


def _valid(scheme: Scheme, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
    """Yield the proposals that can be applied in order; others, for instance, exceed the maximum partition count."""
    for proposal in proposals:
        try:
            scheme = proposal.change.of(scheme).scheme
        except CatalogError:
            continue
        yield proposal


# --- sizes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sizes:
    """The rules' limits in bytes."""

    rules: RebalanceRules
    target: int

    @property
    def tiny(self) -> int:
        """Smaller partitions are merged."""
        return int(self.rules.merge_files * self.target)

    @property
    def maximum(self) -> int:
        return int(self.rules.maximum_files * self.target)

    def threshold(self, reference: int) -> int:
        """Return the size above which a partition is split, if the usual partition has `reference` bytes."""
        relative = max(int(self.rules.split_factor * reference), int(self.rules.split_files * self.target))
        return min(relative, self.maximum)

    def goal(self, reference: int) -> int:
        """Return the approximate size of a part of a split."""
        return min(max(reference, self.target), self.maximum // 2)


@dataclass(frozen=True)
class _Holding:
    """The contents of an existing or a simulated partition.

    Attributes:
        partition_id: None for a simulated partition.
        size_bytes: Size without the rows whose value is null.
    """

    partition_id: int | None
    cells: tuple[Cell, ...]
    size_bytes: int
    is_counted: bool

    @classmethod
    def of(cls, content: Content) -> _Holding:
        return cls(content.partition_id, content.cells, content.size_bytes, content.is_counted)

    @classmethod
    def simulated(cls, cells: Iterable[Cell], is_counted: bool) -> _Holding:
        cells = tuple(cells)
        return cls(None, cells, sum(cell.size_bytes for cell in cells), is_counted)

    @property
    def is_default(self) -> bool:
        return self.partition_id == DEFAULT_PARTITION


def _median(holdings: Iterable[_Holding]) -> int:
    sizes = [holding.size_bytes for holding in holdings if holding.size_bytes and not holding.is_default]
    return statistics.median_low(sizes) if sizes else 0


# --- one analysis -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Action:
    """A change of some neighbouring holdings: a split if it has parts, a new hash count, or a merge.

    Attributes:
        first, end: Their positions, `end` exclusive.
        parts: The cells of each new partition; for the default partition, the cells that stay come last.
        count: The new number of hash partitions.
    """

    first: int
    end: int
    parts: tuple[tuple[Cell, ...], ...] = ()
    count: int | None = None


def _settled(scheme: Scheme, holdings: Sequence[_Holding], sizes: _Sizes) -> tuple[list[_Action], set[int]]:
    """Return the actions after which another analysis has nothing to add, and the partitions to count.

    Splits make the usual partition smaller, so that other partitions become large in relation to it; then a lower
    reference is tried.
    """
    if isinstance(scheme, HashScheme):
        return list(_analyse_hash(scheme, holdings, sizes)), set()
    reference = _median(holdings)
    goal = sizes.goal(reference)
    while True:
        actions, coarse = _analyse(scheme, holdings, sizes, sizes.threshold(reference), goal)
        after = _simulated(holdings, actions)
        usual = _median(after)
        more, still_coarse = _analyse(scheme, after, sizes, sizes.threshold(usual), sizes.goal(usual))
        to_count = {number for position in coarse if (number := holdings[position].partition_id) is not None}
        unsettled = {after[action.first].partition_id for action in more}
        unsettled |= {after[position].partition_id for position in still_coarse} - to_count
        if not unsettled:
            return actions, to_count
        if not reference or goal <= sizes.tiny:
            return [], set()
        if None in unsettled:
            goal = min(sizes.goal(usual), goal - goal // 8)
        reference = min(usual, reference - max(1, reference // 8))


def _analyse(
    scheme: Scheme, holdings: Sequence[_Holding], sizes: _Sizes, threshold: int, goal: int
) -> tuple[list[_Action], list[int]]:
    """Return the actions, and the positions of large holdings whose cells are too coarse to be cut."""
    actions = []
    coarse = []
    for position, holding in enumerate(holdings):
        if holding.size_bytes <= threshold:
            continue
        if holding.is_default and isinstance(scheme, IntervalScheme):
            # A load creates partitions for the values of this scheme, so the default partition is not divided.
            continue
        if _is_coarse(scheme, holding, sizes, threshold):
            coarse.append(position)
        elif len(parts := _parts(scheme, holding, sizes, goal)) > 1:
            actions.append(_Action(position, position + 1, tuple(parts)))
    grows = any(holdings[action.first].is_default for action in actions)
    return [*_merges(scheme, holdings, sizes, grows), *actions], coarse


def _is_coarse(scheme: Scheme, holding: _Holding, sizes: _Sizes, threshold: int) -> bool:
    """Return whether the values of a holding that is too large must be counted first."""
    limit = max(1, sizes.tiny) if holding.is_default and isinstance(scheme, ListScheme) else threshold + 1
    is_large = any(not cell.is_single and cell.size_bytes >= limit for cell in holding.cells)
    return is_large and not holding.is_counted


def _parts(scheme: Scheme, holding: _Holding, sizes: _Sizes, goal: int) -> list[tuple[Cell, ...]]:
    """Return the parts of a holding that is too large."""
    if not holding.is_default or not isinstance(scheme, ListScheme):
        return cut(holding.cells, goal, sizes.tiny)
    own = [(cell,) for cell in holding.cells if cell.is_single and cell.size_bytes >= max(1, sizes.tiny)]
    own_cells = {cell for (cell,) in own}
    return [*own, tuple(cell for cell in holding.cells if cell not in own_cells)]


def cut(cells: Sequence[Cell], goal: int, least: int) -> list[tuple[Cell, ...]]:
    """Divide cells into parts of about equal size, none much larger than `goal` and none smaller than `least`."""
    rest = sum(cell.size_bytes for cell in cells)
    even = rest / max(1, math.ceil(rest / goal))
    parts: list[list[Cell]] = []
    current: list[Cell] = []
    size, part_goal = 0, even
    for cell in cells:
        if current and size >= max(1, least) and size + cell.size_bytes / 2 > part_goal:
            parts.append(current)
            rest -= size
            current, size = [], 0
            # The remaining parts share the deviation of the parts so far.
            part_goal = rest / max(1, round(rest / even))
        current.append(cell)
        size += cell.size_bytes
    if parts and size < max(1, least):
        parts[-1] += current
    else:
        parts.append(current)
    return [tuple(part) for part in parts]


def _merges(scheme: Scheme, holdings: Sequence[_Holding], sizes: _Sizes, grows: bool) -> Iterator[_Action]:
    """Yield the runs of tiny neighbours that become one partition each.

    Args:
        grows: Another action adds ranges with rows after the last one.
    """
    filled = [position for position, holding in enumerate(holdings) if holding.size_bytes and not holding.is_default]
    end = len(holdings)
    if isinstance(scheme, RangeScheme) and not grows:
        # The last range with rows may still receive rows, and the later ranges are for future rows.
        end = filled[-1] if filled else 0
    run: list[int] = []
    size = 0
    for position, holding in enumerate(holdings):
        is_tiny = holding.size_bytes < sizes.tiny and not holding.is_default and position < end
        if isinstance(scheme, ListScheme):
            # A user who defined an empty group expects rows for it.
            is_tiny = is_tiny and holding.size_bytes > 0
        if not is_tiny or size + holding.size_bytes > sizes.target:
            yield from _merge(run)
            run, size = [], 0
        if is_tiny:
            run.append(position)
            size += holding.size_bytes
    yield from _merge(run)


def _merge(run: Sequence[int]) -> Iterator[_Action]:
    if len(run) > 1:
        yield _Action(run[0], run[-1] + 1)


def _analyse_hash(scheme: HashScheme, holdings: Sequence[_Holding], sizes: _Sizes) -> Iterator[_Action]:
    """Yield the action that gives the partitions a suitable average size; hashing cannot balance frequent values."""
    total = sum(holding.size_bytes for holding in holdings)
    count = scheme.count
    while total / count > sizes.maximum and count * 2 <= MAXIMUM_PARTITIONS:
        count *= 2
    while total / count < sizes.tiny and count % 2 == 0:
        count //= 2
    if count != scheme.count:
        yield _Action(0, len(holdings), count=count)


def _simulated(holdings: Sequence[_Holding], actions: Iterable[_Action]) -> list[_Holding]:
    """Return the holdings after the actions."""
    by_position = {action.first: action for action in actions}
    after: list[_Holding] = []
    added: list[_Holding] = []
    position = 0
    while position < len(holdings):
        action = by_position.get(position)
        end = position + 1 if action is None else action.end
        affected = holdings[position:end]
        position = end
        is_counted = all(holding.is_counted for holding in affected)
        if action is None:
            after += affected
        elif not action.parts:
            after.append(_Holding.simulated((cell for holding in affected for cell in holding.cells), is_counted))
        elif affected[0].is_default:
            *own, remaining = action.parts
            after.append(replace(_Holding.simulated(remaining, is_counted), partition_id=DEFAULT_PARTITION))
            added = [_Holding.simulated(part, is_counted) for part in own]
        else:
            after += [_Holding.simulated(part, is_counted) for part in action.parts]
    return after + added


# --- proposals --------------------------------------------------------------------------------------------------------


def _proposal(scheme: Scheme, action: _Action, sizes: _Sizes, holdings: Sequence[_Holding]) -> Proposal:
    affected = holdings[action.first : action.end]
    ids = [holding.partition_id for holding in affected if holding.partition_id is not None]
    size = sum(holding.size_bytes for holding in affected)
    if action.count is not None:
        average = size // max(1, len(affected))
        return Proposal(
            SetPartitionCount(action.count),
            f"{len(affected):,} partitions have {_shown(average)} on average; {action.count:,} would have "
            f"{_shown(size // action.count)}",
        )
    if not action.parts:
        return Proposal(
            MergePartitions(tuple(ids)),
            f"{len(ids):,} neighbours have {_shown(size)} together, and each less than {_shown(sizes.tiny)}",
        )
    median = _median(holdings)
    usual = f", {size / median:.1f} times the median of {_shown(median)}" if median else ""
    if affected[0].is_default:
        return Proposal(AddPartitions(_added(scheme, action.parts)), f"the default partition has {_shown(size)}{usual}")
    return Proposal(
        SplitPartition(ids[0], _split(scheme, ids[0], action.parts)),
        f"partition {ids[0]} ({scheme.text_of(ids[0])}) has {_shown(size)}{usual}",
    )


def _added(scheme: Scheme, parts: Sequence[Sequence[Cell]]) -> tuple[str, ...]:
    if isinstance(scheme, ListScheme):
        return tuple(_group([cell.text for cell in part]) for part in parts[:-1])
    return tuple(part[0].text for part in parts[1:])


def _split(scheme: Scheme, partition_id: int, parts: Sequence[Sequence[Cell]]) -> tuple[str, ...]:
    if isinstance(scheme, ListScheme):
        return tuple(_group([cell.text for cell in part]) for part in parts)
    assert isinstance(scheme, RangeScheme)
    return (*(part[0].text for part in parts[1:]), dict(scheme.bounds)[partition_id])


def _group(texts: Sequence[str]) -> str:
    text = format_group(texts)
    return texts[0] if text == texts[0] else text if len(texts) > 1 else f"({text})"


def _shown(size_bytes: int) -> str:
    """Return a size with a readable unit."""
    value, unit = float(size_bytes), "bytes"
    for greater in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, greater
    return f"{size_bytes:,} bytes" if unit == "bytes" else f"{value:,.1f} {unit}"
