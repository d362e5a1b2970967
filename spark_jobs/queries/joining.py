"""Joins of tables by their partition columns, some partitions at a time, without moving rows between tasks.

Rows with equal partition columns lie in partitions of one place (`catalog.schemes.aligning`). So a join on these
columns is the union of the joins of each place's files. That holds for outer, semi and anti joins, because all matches
of a row are in its own place; for joins of joins, because a column that an outer join filled with nulls equals nothing;
and for what is grouped by such a column afterwards.

It is done to Spark's optimized plan, where filters stand at the tables and subqueries are joins.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from catalog.schemes.aligning import align
from spark_jobs.queries.catalyst import Catalyst, items, kind_of
from spark_jobs.queries.join_branches import kept_in_place, union_of_branches
from spark_jobs.queries.join_regions import Region, RegionFinder, Source, has_equation

TASKS_A_CORE = 4
LEAST_TASKS, MOST_TASKS = 8, 64
"""Spark plans each task's join by itself, which takes some milliseconds."""

MOST_UNEVEN = 1.5
"""How much longer the fullest core may be at work than if all had the same; to shuffle costs about as much."""

# What the optimizer adds to a plan with these cannot be optimized again; it will, when the joins are in their places.
_ADDED_LAST = ("spark.sql.optimizer.dynamicPartitionPruning.enabled", "spark.sql.optimizer.runtime.bloomFilter.enabled")


@dataclass(frozen=True)
class PartitionWise:
    """A statement's answer, of which some joins may go partition by partition.

    Attributes:
        joins: In words, those that do.
    """

    frame: DataFrame
    joins: tuple[str, ...]


def join_partition_wise(frame: DataFrame, sources: Sequence[Source]) -> PartitionWise:
    """Return the same rows, with joins partition by partition where that helps; the frame itself where it does not.

    It helps where Spark would shuffle both sides, and the partitions keep all cores busy alike.

    Raises:
        VerificationFailedError: A file of the tables is not there.
    """
    catalyst = Catalyst(frame.sparkSession)
    known = [source for source in sources if source.scan.files and source.index is not None]
    if not known or not _has_join(frame._jdf.queryExecution().optimizedPlan()):
        return PartitionWise(frame, ())
    with _switched_off(frame.sparkSession, _ADDED_LAST):
        plan = catalyst.frame_of(frame._jdf.queryExecution().analyzed())._jdf.queryExecution().optimizedPlan()
    surgeon = _Surgeon(catalyst, known)
    changed = surgeon.operated(plan)
    if not surgeon.joins:
        return PartitionWise(frame, ())
    # The optimizer does not keep the spelling of names.
    return PartitionWise(catalyst.frame_of(changed).toDF(*frame.columns), tuple(surgeon.joins))


def _has_join(plan: Any) -> bool:
    return kind_of(plan) == "Join" or any(_has_join(child) for child in items(plan.children()))


@contextmanager
def _switched_off(spark: SparkSession, names: Sequence[str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in names}
    for name in names:
        spark.conf.set(name, "false")
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


class _Surgeon:
    """Replaces the joins of one plan.

    Attributes:
        joins: In words, those that were.
    """

    def __init__(self, catalyst: Catalyst, sources: Sequence[Source]) -> None:
        self.joins: list[str] = []
        self._catalyst = catalyst
        self._finder = RegionFinder(catalyst, sources)

    def operated(self, node: Any) -> Any:
        region = self._finder.find(node)
        if region is not None and len(region.leaves) > 1 and (replaced := self._replaced(region)) is not None:
            return replaced
        children = items(node.children())
        changed = [self.operated(child) for child in children]
        if all(new is old for new, old in zip(changed, children, strict=True)):
            return node
        rebuilt = node.withNewChildren(self._catalyst.sequence(changed))
        is_shuffled = kind_of(node) == "Join" and has_equation(node) and not self._finder.is_small(node.right())
        return kept_in_place(self._catalyst, rebuilt) if is_shuffled else rebuilt

    def _replaced(self, region: Region) -> Any | None:
        places = align([leaf.source.scan.scheme for leaf in region.leaves])
        if places is None:
            return None
        sizes: dict[int, int] = defaultdict(int)
        for leaf, own in zip(region.leaves, places, strict=True):
            for partition_id, size_bytes in leaf.source.bytes_by_partition.items():
                sizes[own[partition_id]] += size_bytes
        groups = packed(sizes, self._catalyst.spark.sparkContext.defaultParallelism)
        if groups is None or sum(sizes.values()) <= self._finder.broadcast_bytes:
            return None
        self.joins.append(_in_words(region, len(sizes), len(groups)))
        return union_of_branches(self._catalyst, region, places, groups)


def _in_words(region: Region, place_count: int, task_count: int) -> str:
    *names, last = (leaf.source.scan.table.full_name for leaf in region.leaves)
    columns = dict.fromkeys(leaf.source.scan.scheme.column for leaf in region.leaves)
    return (
        f"{', '.join(names)} and {last} are joined partition by partition on {' = '.join(columns)}, "
        f"{place_count:,} partitions in {task_count:,} tasks"
    )


def packed(sizes: Mapping[int, int], cores: int) -> list[list[int]] | None:
    """Return places in groups of about the same size, the largest first; None when they cannot keep all cores busy.

    Args:
        sizes: The bytes of each place.
    """
    count = min(len(sizes), MOST_TASKS, max(LEAST_TASKS, TASKS_A_CORE * cores))
    if count < cores:
        return None
    groups = _spread(sizes, count)
    loads = _spread({number: size for number, (size, _) in enumerate(groups)}, cores)
    if loads[0][0] * cores > MOST_UNEVEN * sum(sizes.values()):
        return None
    return [members for _, members in groups]


def _spread(sizes: Mapping[int, int], count: int) -> list[tuple[int, list[int]]]:
    """Give each, the largest first, to whom has least so far; return what each has, the most first."""
    heap: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(count)]
    for each in sorted(sizes, key=lambda each: (-sizes[each], each)):
        size, number, members = heap[0]
        members.append(each)
        heapq.heapreplace(heap, (size + sizes[each], number, members))
    return sorted(((size, members) for size, _, members in heap), key=lambda group: -group[0])
