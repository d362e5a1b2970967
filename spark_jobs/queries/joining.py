"""Partition-wise joins: joins of tables on their partition columns without a shuffle.

Rows with equal partition columns are in the same place (`catalog.schemes.aligning`), so a join on these columns is the
union of the joins of each place's files. This holds for outer, semi and anti joins, because all matches of a row are in
its place; for joins of joins, because the nulls that an outer join adds equal nothing; and for aggregates that are
grouped by such a column.

The joins are replaced in Spark's optimized plan, where filters are at the tables and subqueries are joins.

Spark's own storage-partitioned joins do not apply to these tables: they need the partition transforms of Iceberg, whose
list is closed, and neither CRC-32 (`catalog.schemes.hashing`) nor ranges or lists are among them.
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

LEAST_BYTES = 250_000_000
"""Minimum size of the data files of joined tables; with less, the joins are Spark's own.

Measured with the five statements of `benchmarks.joining`, time of the partition-wise join ÷ Spark's, Spark 4.1.3 on two
cores: 0.86 to 1.19 with 27 MB (500,000 rows a table), 0.87 to 1.21 with 67 MB, 0.74 to 0.94 with 134 MB, and 0.66 to
0.81 with 268 MB (5 million rows).
"""

TASKS_A_CORE = 4
LEAST_TASKS, MOST_TASKS = 8, 64
"""Limits of the number of tasks: Spark plans the join of each task separately, which takes some milliseconds."""

MOST_UNEVEN = 1.5
"""Maximum skew: the load of the busiest core, divided by the average. At more, a shuffle is cheaper."""

# A plan with the nodes that these rules add cannot be optimized again. They apply after the joins are replaced.
_ADDED_LAST = ("spark.sql.optimizer.dynamicPartitionPruning.enabled", "spark.sql.optimizer.runtime.bloomFilter.enabled")


@dataclass(frozen=True)
class PartitionWise:
    """The DataFrame of a statement, in which joins may be partition-wise.

    Attributes:
        joins: Descriptions of the partition-wise joins.
    """

    frame: DataFrame
    joins: tuple[str, ...]


def join_partition_wise(frame: DataFrame, sources: Sequence[Source]) -> PartitionWise:
    """Return an equivalent DataFrame with partition-wise joins where they are faster; otherwise the frame itself.

    They are faster if the tables have `LEAST_BYTES`, Spark would shuffle both sides, and the partitions keep all cores
    evenly busy. For less than `LEAST_BYTES`, the frame is not even planned.

    Raises:
        VerificationFailedError: A data file of the tables is missing.
    """
    if sum(source.size_bytes for source in sources) < LEAST_BYTES:
        return PartitionWise(frame, ())
    catalyst = Catalyst(frame.sparkSession)
    known = [source for source in sources if source.scan.files and source.index is not None]
    if not known or not _has_join(frame._jdf.queryExecution().optimizedPlan()):
        return PartitionWise(frame, ())
    with _switched_off(frame.sparkSession, _ADDED_LAST):
        plan = catalyst.frame_of(frame._jdf.queryExecution().analyzed())._jdf.queryExecution().optimizedPlan()
    rewriter = _JoinRewriter(catalyst, known)
    rewritten = rewriter.rewritten(plan)
    if not rewriter.joins:
        return PartitionWise(frame, ())
    # The optimizer does not preserve the case of column names.
    return PartitionWise(catalyst.frame_of(rewritten).toDF(*frame.columns), tuple(rewriter.joins))


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


class _JoinRewriter:
    """Replaces joins of one plan by partition-wise joins.

    Attributes:
        joins: Descriptions of the replaced joins.
    """

    def __init__(self, catalyst: Catalyst, sources: Sequence[Source]) -> None:
        self.joins: list[str] = []
        self._catalyst = catalyst
        self._finder = RegionFinder(catalyst, sources)

    def rewritten(self, node: Any) -> Any:
        region = self._finder.find(node)
        if region is not None and len(region.leaves) > 1 and (replaced := self._replaced(region)) is not None:
            return replaced
        children = items(node.children())
        new_children = [self.rewritten(child) for child in children]
        if all(new is old for new, old in zip(new_children, children, strict=True)):
            return node
        rebuilt = node.withNewChildren(self._catalyst.sequence(new_children))
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
        if sum(sizes.values()) < max(LEAST_BYTES, self._finder.broadcast_bytes + 1):
            return None
        groups = packed(sizes, self._catalyst.spark.sparkContext.defaultParallelism)
        if groups is None:
            return None
        self.joins.append(_description(region, len(sizes), len(groups)))
        return union_of_branches(self._catalyst, region, places, groups)


def _description(region: Region, place_count: int, task_count: int) -> str:
    *names, last = (leaf.source.scan.table.full_name for leaf in region.leaves)
    columns = dict.fromkeys(leaf.source.scan.scheme.column for leaf in region.leaves)
    return (
        f"{', '.join(names)} and {last} are joined partition by partition on {' = '.join(columns)}, "
        f"{place_count:,} partitions in {task_count:,} tasks"
    )


def packed(sizes: Mapping[int, int], cores: int) -> list[list[int]] | None:
    """Return groups of places of about the same size, the largest first; None if they cannot keep all cores busy.

    Args:
        sizes: The size of each place, in bytes.
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
    """Return `count` groups of items with their total sizes, the largest first.

    The items are added by descending size, each to the smallest group.
    """
    heap: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(count)]
    for item in sorted(sizes, key=lambda item: (-sizes[item], item)):
        size, number, members = heap[0]
        members.append(item)
        heapq.heapreplace(heap, (size + sizes[item], number, members))
    return sorted(((size, members) for size, _, members in heap), key=lambda group: -group[0])
