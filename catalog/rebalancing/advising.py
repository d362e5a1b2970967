"""Which partitions of a table should be split, merged or added, by what its files say.

A partition is split that is much larger than the others; a run of tiny neighbours is merged; the values of a default
partition that has grown get partitions of their own. Sizes are bytes. A second look, after all that is proposed was
done, has nothing to add: the proposals are done in thought, and looked at again, before they are made. Each partition
is in one proposal at most, so that their order makes no difference.

Only where a cell ends (`catalog.rebalancing.contents`), a partition can be cut. If its cells are too coarse for that,
its values have to be counted first; the advice names such partitions.
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
    """A change that would make a table's partitions better, and why."""

    change: PartitionChange
    reason: str


@dataclass(frozen=True)
class Advice:
    """What to do about the partitions of a table.

    Attributes:
        proposals: In any order; each can be done without the others.
        to_count: Partitions that should be split, or taken apart, and of which the files do not say where.
        largest_bytes, median_bytes: Of the partitions that have rows; the default one does not count for the median.
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
        """How many times the median partition the largest is; None when there is no median."""
        return round(self.largest_bytes / self.median_bytes, 1) if self.median_bytes else None

    def requests(self, *, dry_run: bool) -> list[dict[str, Any]]:
        """Return what the proposals are for the form of the DAG `rebalance_partitions`."""
        return [RebalanceRequest.of(self.table, each.change, dry_run=dry_run).as_form() for each in self.proposals]

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
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
                    "statement": f"ALTER TABLE {self.table} {each.change}",
                    "reason": each.reason,
                    "request": RebalanceRequest.of(self.table, each.change, dry_run=True).as_form(),
                }
                for each in self.proposals
            ],
            "to_count": list(self.to_count),
        }


def advise(table: str, scheme: Scheme, contents: Sequence[Content], rules: RebalanceRules, target_bytes: int) -> Advice:
    """Say what to do about the partitions of a table; the same contents give the same advice.

    Args:
        contents: Of all partitions, in logical order.
        target_bytes: The size that the table's data files aim at.
    """
    sizes = _Sizes(rules, target_bytes)
    holdings = [_Holding.of(each) for each in contents]
    total = sum(each.total.size_bytes for each in contents)
    actions: Sequence[_Action] = ()
    to_count: set[int] = set()
    if total >= target_bytes:
        actions, to_count = _settled(scheme, holdings, sizes)
    return Advice(
        table,
        tuple(_valid(scheme, (_proposal(scheme, each, sizes, holdings) for each in actions))),
        tuple(each for each in scheme.ids if each in to_count),
        len(scheme.ids),
        sum(each.total.file_count for each in contents),
        total,
        max((each.total.size_bytes for each in contents), default=0),
        _median(holdings),
    )


def _valid(scheme: Scheme, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
    """Yield the proposals that can be done one after the other; some may be one partition too many."""
    for proposal in proposals:
        try:
            scheme = proposal.change.of(scheme).scheme
        except CatalogError:
            continue
        yield proposal


# --- sizes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sizes:
    """The rules in bytes."""

    rules: RebalanceRules
    target: int

    @property
    def tiny(self) -> int:
        """Less than so much is merged."""
        return int(self.rules.merge_files * self.target)

    @property
    def maximum(self) -> int:
        return int(self.rules.maximum_files * self.target)

    def threshold(self, reference: int) -> int:
        """More than so much is split, where the usual partition has `reference` bytes."""
        relative = max(int(self.rules.split_factor * reference), int(self.rules.split_files * self.target))
        return min(relative, self.maximum)

    def goal(self, reference: int) -> int:
        """About so much a part shall have."""
        return min(max(reference, self.target), self.maximum // 2)


@dataclass(frozen=True)
class _Holding:
    """What a partition has, or would have.

    Attributes:
        partition_id: None for one that is only thought of.
        size_bytes: Without nulls.
    """

    partition_id: int | None
    cells: tuple[Cell, ...]
    size_bytes: int
    is_counted: bool

    @classmethod
    def of(cls, content: Content) -> _Holding:
        return cls(content.partition_id, content.cells, content.size_bytes, content.is_counted)

    @classmethod
    def thought(cls, cells: Iterable[Cell], is_counted: bool) -> _Holding:
        cells = tuple(cells)
        return cls(None, cells, sum(cell.size_bytes for cell in cells), is_counted)

    @property
    def is_default(self) -> bool:
        return self.partition_id == DEFAULT_PARTITION


def _median(holdings: Iterable[_Holding]) -> int:
    sizes = [each.size_bytes for each in holdings if each.size_bytes and not each.is_default]
    return statistics.median_low(sizes) if sizes else 0


# --- one look ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Action:
    """What shall become of some neighbouring holdings.

    Attributes:
        first, end: Their positions, `end` exclusive.
        parts: The cells of each new partition; of the default one, what stays there comes last.
    """

    first: int
    end: int
    parts: tuple[tuple[Cell, ...], ...] = ()
    count: int | None = None


def _settled(scheme: Scheme, holdings: Sequence[_Holding], sizes: _Sizes) -> tuple[list[_Action], set[int]]:
    """Return the actions after which a second look has nothing to add, and the partitions to count.

    What is split makes the usual partition smaller, and others great beside it; so a lower reference is tried then.
    """
    if isinstance(scheme, HashScheme):
        return list(_look_at_hash(scheme, holdings, sizes)), set()
    reference = _median(holdings)
    goal = sizes.goal(reference)
    while True:
        actions, coarse = _look(scheme, holdings, sizes, sizes.threshold(reference), goal)
        after = _done(holdings, actions)
        usual = _median(after)
        more, again = _look(scheme, after, sizes, sizes.threshold(usual), sizes.goal(usual))
        to_count = {number for each in coarse if (number := holdings[each].partition_id) is not None}
        unsettled = {after[each.first].partition_id for each in more}
        unsettled |= {after[each].partition_id for each in again} - to_count
        if not unsettled:
            return actions, to_count
        if not reference or goal <= sizes.tiny:
            return [], set()
        if None in unsettled:
            goal = min(sizes.goal(usual), goal - goal // 8)
        reference = min(usual, reference - max(1, reference // 8))


def _look(
    scheme: Scheme, holdings: Sequence[_Holding], sizes: _Sizes, threshold: int, goal: int
) -> tuple[list[_Action], list[int]]:
    """Return what should be done, and the positions of holdings whose cells are too coarse to tell."""
    actions = []
    coarse = []
    for position, holding in enumerate(holdings):
        if holding.size_bytes <= threshold:
            continue
        if holding.is_default and isinstance(scheme, IntervalScheme):
            # Its values have partitions of their own as soon as they are loaded.
            continue
        if _is_coarse(scheme, holding, sizes, threshold):
            coarse.append(position)
        elif len(parts := _parts(scheme, holding, sizes, goal)) > 1:
            actions.append(_Action(position, position + 1, tuple(parts)))
    grows = any(holdings[each.first].is_default for each in actions)
    return [*_merges(scheme, holdings, sizes, grows), *actions], coarse


def _is_coarse(scheme: Scheme, holding: _Holding, sizes: _Sizes, threshold: int) -> bool:
    """Say whether the values of a holding that is too large have to be counted first."""
    limit = max(1, sizes.tiny) if holding.is_default and isinstance(scheme, ListScheme) else threshold + 1
    is_large = any(not cell.is_single and cell.size_bytes >= limit for cell in holding.cells)
    return is_large and not holding.is_counted


def _parts(scheme: Scheme, holding: _Holding, sizes: _Sizes, goal: int) -> list[tuple[Cell, ...]]:
    """Return the parts of a holding that is too large."""
    if not holding.is_default or not isinstance(scheme, ListScheme):
        return cut(holding.cells, goal, sizes.tiny)
    own = [(cell,) for cell in holding.cells if cell.is_single and cell.size_bytes >= max(1, sizes.tiny)]
    taken = {cell for (cell,) in own}
    return [*own, tuple(cell for cell in holding.cells if cell not in taken)]


def cut(cells: Sequence[Cell], goal: int, least: int) -> list[tuple[Cell, ...]]:
    """Cut cells into parts of about equal size, none much greater than `goal`, and none smaller than `least`."""
    rest = sum(cell.size_bytes for cell in cells)
    even = rest / max(1, math.ceil(rest / goal))
    parts: list[list[Cell]] = []
    current: list[Cell] = []
    size, wanted = 0, even
    for cell in cells:
        if current and size >= max(1, least) and size + cell.size_bytes / 2 > wanted:
            parts.append(current)
            rest -= size
            current, size = [], 0
            # What the parts until now have too much or too little, the others share.
            wanted = rest / max(1, round(rest / even))
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
        grows: Ranges with rows come behind the last one.
    """
    filled = [position for position, each in enumerate(holdings) if each.size_bytes and not each.is_default]
    end = len(holdings)
    if isinstance(scheme, RangeScheme) and not grows:
        # The last range with rows is perhaps being filled, and those behind it wait for theirs.
        end = filled[-1] if filled else 0
    run: list[int] = []
    size = 0
    for position, holding in enumerate(holdings):
        is_tiny = holding.size_bytes < sizes.tiny and not holding.is_default and position < end
        if isinstance(scheme, ListScheme):
            # Who named a group that has no rows yet expects some.
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


def _look_at_hash(scheme: HashScheme, holdings: Sequence[_Holding], sizes: _Sizes) -> Iterator[_Action]:
    """Yield the action by which the partitions get a sensible size on average; their differences are the values'."""
    total = sum(each.size_bytes for each in holdings)
    count = scheme.count
    while total / count > sizes.maximum and count * 2 <= MAXIMUM_PARTITIONS:
        count *= 2
    while total / count < sizes.tiny and count % 2 == 0:
        count //= 2
    if count != scheme.count:
        yield _Action(0, len(holdings), count=count)


def _done(holdings: Sequence[_Holding], actions: Iterable[_Action]) -> list[_Holding]:
    """Return what partitions would have afterwards."""
    by_position = {action.first: action for action in actions}
    after: list[_Holding] = []
    behind: list[_Holding] = []
    position = 0
    while position < len(holdings):
        action = by_position.get(position)
        end = position + 1 if action is None else action.end
        concerned = holdings[position:end]
        position = end
        is_counted = all(each.is_counted for each in concerned)
        if action is None:
            after += concerned
        elif not action.parts:
            after.append(_Holding.thought((cell for each in concerned for cell in each.cells), is_counted))
        elif concerned[0].is_default:
            *own, stays = action.parts
            after.append(replace(_Holding.thought(stays, is_counted), partition_id=DEFAULT_PARTITION))
            behind = [_Holding.thought(part, is_counted) for part in own]
        else:
            after += [_Holding.thought(part, is_counted) for part in action.parts]
    return after + behind


# --- proposals --------------------------------------------------------------------------------------------------------


def _proposal(scheme: Scheme, action: _Action, sizes: _Sizes, holdings: Sequence[_Holding]) -> Proposal:
    concerned = holdings[action.first : action.end]
    ids = [each.partition_id for each in concerned if each.partition_id is not None]
    size = sum(each.size_bytes for each in concerned)
    if action.count is not None:
        average = size // max(1, len(concerned))
        return Proposal(
            SetPartitionCount(action.count),
            f"{len(concerned):,} partitions have {_shown(average)} on average; {action.count:,} would have "
            f"{_shown(size // action.count)}",
        )
    if not action.parts:
        return Proposal(
            MergePartitions(tuple(ids)),
            f"{len(ids):,} neighbours have {_shown(size)} together, and each less than {_shown(sizes.tiny)}",
        )
    median = _median(holdings)
    usual = f", {size / median:.1f} times the median of {_shown(median)}" if median else ""
    if concerned[0].is_default:
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
    """Return a size for people."""
    value, unit = float(size_bytes), "bytes"
    for greater in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, greater
    return f"{size_bytes:,} bytes" if unit == "bytes" else f"{value:,.1f} {unit}"
