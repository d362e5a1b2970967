"""Explanation of a SELECT: the partitions and files that it reads of each table, and how its joins are done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from catalog import Catalog
from catalog.datafiles.files import number_of_files
from catalog.partitions.counting import count_visible
from catalog.partitions.explaining import Explanation
from catalog.statements.results import StatementResult
from spark_jobs.queries.catalyst import has_subquery, items, kind_of, known_plans
from spark_jobs.queries.query import PrunedQuery
from spark_jobs.reading.files import FOLDER
from spark_jobs.reading.tables import PrunedTable

_SHOWN_FILES = 10
_SHOWN_RANGES = 5
_NOTHING = "false"
_LONGEST_CONDITION = 200

_BROADCASTS = ("BroadcastHashJoinExec", "BroadcastNestedLoopJoinExec")
_JOINS = (*_BROADCASTS, "SortMergeJoinExec", "ShuffledHashJoinExec", "CartesianProductExec")


@dataclass(frozen=True)
class ExplainedTable:
    """An occurrence of a table in a SELECT.

    Attributes:
        condition: What the SELECT needs of the table's partitions; None for all of them.
        index: The partition index that finds the partitions; None for a table with a scheme, or where none is used.
        ranges: The first ranges of the index that are read.
        files_read: The files that Spark gets to read; None if Iceberg's reader prunes them itself.
        files_total: None if the catalog does not know it.
        files: The first files.
    """

    table: str
    condition: str | None
    index: str | None
    ranges: list[str]
    partitions_read: int
    partitions_total: int
    files_read: int | None
    files_total: int | None
    files: list[str]

    def lines(self) -> Iterator[str]:
        """Yield the text form."""
        yield self.table
        if self.condition == _NOTHING:
            yield "  condition:  no rows are needed"
        else:
            yield f"  condition:  {self.condition or 'none on partitions, so all are read'}"
        if self.index is not None:
            yield f"  index:      {self.index}"
            yield from (f"  range:      {text}" for text in self.ranges)
        pruned = self.partitions_total - self.partitions_read
        if self.partitions_total:
            yield f"  partitions: {self.partitions_read:,} of {self.partitions_total:,} read, {pruned:,} pruned"
        if self.files_read is None:
            yield "  files:      pruned by Iceberg's reader when the query runs"
            return
        total = "" if self.files_total is None else f" of {self.files_total:,}"
        yield f"  files:      {self.files_read:,}{total} read"
        yield from (f"    {path}" for path in self.files)
        if self.files_read > len(self.files):
            yield f"    and {self.files_read - len(self.files):,} more"


@dataclass(frozen=True)
class ExplainedJoin:
    """A join in the physical plan with which the query starts.

    Attributes:
        strategy: Spark's name of the operator.
        shuffled: The sides whose rows move between tasks by the join keys: `left`, `right`.
        is_partition_wise: Each task joins a partition of one side with the same partition of the other; no row moves.
    """

    strategy: str
    join_type: str
    condition: str
    shuffled: list[str]
    is_partition_wise: bool

    def __str__(self) -> str:
        """Return one line."""
        if self.is_partition_wise:
            how = "partition-wise, no rows move"
        elif self.strategy.startswith("Broadcast"):
            how = "not partition-wise: one side is sent to all tasks"
        else:
            how = f"not partition-wise: rows of {' and '.join(self.shuffled) or 'all partitions'} move between tasks"
        return f"{self.join_type} join on {self.condition}: {self.strategy}, {how}"


@dataclass(frozen=True)
class ExplainedQuery:
    """The tables, files and joins of a SELECT.

    Attributes:
        files_scanned: The files that Spark's scans select, after its own pruning too; without those of `by_iceberg`.
        is_at_most: Subqueries or joins may prune some of these files when the query runs.
        by_iceberg: The tables that Iceberg reads and prunes.
    """

    tables: list[ExplainedTable] = field(default_factory=list)
    joins: list[ExplainedJoin] = field(default_factory=list)
    files_scanned: int = 0
    is_at_most: bool = False
    by_iceberg: list[str] = field(default_factory=list)

    def as_result(self) -> StatementResult:
        """Return the text form, and one row with the JSON form."""
        lines = [line for table in self.tables for line in table.lines()]
        lines += [f"{table}\n  files:      pruned by Iceberg's reader when the query runs" for table in self.by_iceberg]
        lines += [str(join) for join in self.joins]
        bound = "at most " if self.is_at_most else ""
        lines.append(f"files that Spark scans: {bound}{self.files_scanned:,}")
        return StatementResult(("plan",), [[asdict(self)]], text="\n".join(lines))


def explain_query(catalog: Catalog, pruned: PrunedQuery) -> ExplainedQuery:
    """Explain a query that was pruned; no file is read.

    Raises:
        EngineError: The plans of this release of Spark are unknown.
    """
    frame = pruned.frame
    with known_plans(frame.sparkSession):
        joins, files_scanned, is_at_most, by_iceberg = [], 0, False, []
        for node in _nodes(frame._jdf.queryExecution().executedPlan()):
            kind = kind_of(node)
            if kind in _JOINS:
                # Not the join that gives rows the keys of their folders.
                if FOLDER not in (join := _join(node, kind)).condition:
                    joins.append(join)
            elif kind == "FileSourceScanExec":
                files_scanned += int(node.selectedPartitions().totalNumberOfFiles())
                filters = items(node.partitionFilters())
                is_at_most = is_at_most or any(has_subquery(frame.sparkSession, condition) for condition in filters)
            elif kind == "BatchScanExec":
                by_iceberg.append(str(node.table().name()))
        tables = [_table(catalog, table) for table in pruned.tables]
    return ExplainedQuery(tables, joins, files_scanned, is_at_most, by_iceberg)


def _table(catalog: Catalog, pruned: PrunedTable) -> ExplainedTable:
    condition = None if pruned.where is None else pruned.where[:_LONGEST_CONDITION]
    index, ranges = None, list[str]()
    if pruned.where not in (None, _NOTHING):
        explanation = catalog.explain_partitions(pruned.table, pruned.where)
        if isinstance(explanation, Explanation):
            index, ranges = explanation.index, list(explanation.ranges)
    partitions_total, files_total = _totals(catalog, pruned.table)
    has_iceberg = any(kind_of(leaf).startswith("DataSourceV2") for leaf in _leaves(pruned.frame))
    paths = [] if has_iceberg else pruned.frame._jdf.inputFiles()
    return ExplainedTable(
        table=pruned.table,
        condition=condition,
        index=index,
        ranges=ranges[:_SHOWN_RANGES],
        partitions_read=pruned.partitions_read,
        partitions_total=partitions_total,
        files_read=None if has_iceberg else len(paths),
        files_total=files_total,
        files=[str(paths[number]) for number in range(min(len(paths), _SHOWN_FILES))],
    )


def _totals(catalog: Catalog, name: str) -> tuple[int, int | None]:
    """Return the numbers of a table's partitions and files; None for files that the catalog does not count."""
    table = catalog.get_table(name)
    if table.scheme is not None:
        with catalog.storage.read() as connection:
            return len(table.scheme.ids), number_of_files(connection, table)
    total = count_visible(catalog.storage, table)
    return total.partitions, total.files if total.partitions else None


def _leaves(frame: DataFrame) -> list[Any]:
    return items(frame._jdf.queryExecution().optimizedPlan().collectLeaves())


def _nodes(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a physical plan and of its subqueries; an exchange that is used twice, once."""
    rest = [plan]
    while rest:
        node = rest.pop()
        if kind_of(node) == "AdaptiveSparkPlanExec":
            # Before the query runs, this is the plan with which it starts.
            rest.append(node.executedPlan())
            continue
        yield node
        rest += reversed(items(node.children()))
        # One that is used again is among those of another node, too.
        rest += [subquery for subquery in items(node.subqueries()) if not kind_of(subquery).startswith("Reused")]


def _join(node: Any, kind: str) -> ExplainedJoin:
    shuffled = [name for name, side in (("left", node.left()), ("right", node.right())) if _is_shuffled(side)]
    has_keys = kind in ("SortMergeJoinExec", "ShuffledHashJoinExec")
    keys = (
        zip(items(node.leftKeys()), items(node.rightKeys()), strict=True) if has_keys or kind == _BROADCASTS[0] else ()
    )
    equal = " AND ".join(f"{left.sql()} = {right.sql()}" for left, right in keys)
    other = node.condition().get().sql() if node.condition().isDefined() else ""
    return ExplainedJoin(
        strategy=kind.removesuffix("Exec"),
        join_type=str(node.joinType().sql()) if hasattr(node, "joinType") else "CROSS",
        condition=" AND ".join(part for part in (equal, other) if part)[:_LONGEST_CONDITION] or "nothing",
        shuffled=shuffled,
        is_partition_wise=has_keys and not shuffled,
    )


def _is_shuffled(side: Any) -> bool:
    """Return whether the rows of a join's side come from a shuffle, and not as its scan or a join below has them."""
    node = side
    while kind_of(node) not in _JOINS:
        if "Exchange" in kind_of(node) or kind_of(node).endswith("QueryStageExec"):
            return True
        children = items(node.children())
        if len(children) != 1:
            return False
        node = children[0]
    return False
