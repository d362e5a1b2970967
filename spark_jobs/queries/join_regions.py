"""Regions of a plan that can be computed partition-wise: for groups of partitions, independently of each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame

from catalog.datafiles.pruning import FileScan
from spark_jobs.queries.catalyst import Catalyst, items, kind_of, operands

_JOINS = {"Inner$", "Cross$", "LeftOuter$", "RightOuter$", "FullOuter$", "LeftSemi$", "LeftAnti$", "ExistenceJoin"}
_BROADCASTING_LEFT = {"Inner$", "Cross$", "RightOuter$"}
_BROADCASTING_RIGHT = _JOINS - {"RightOuter$", "FullOuter$"}
_SHOWING_RIGHT = _JOINS - {"LeftSemi$", "LeftAnti$", "ExistenceJoin"}
_KEEPING_LEFT = _JOINS - {"RightOuter$", "FullOuter$"}
_KEEPING_RIGHT = {"Inner$", "Cross$", "RightOuter$"}

_REPEATABLE = {"Aggregate", "Filter", "Join", "LocalRelation", "LogicalRDD", "LogicalRelation", "Project", "Union"}

_GROUPING = {"Aggregate": "groupingExpressions", "Window": "partitionSpec", "WindowGroupLimit": "partitionSpec"}
"""Plan nodes that group rows by equal values → the attribute with their grouping expressions."""


@dataclass(frozen=True)
class Source:
    """The pruned files of a table with a partition scheme.

    Attributes:
        frame: A DataFrame of exactly these files.
        scan: The files.
    """

    frame: DataFrame
    scan: FileScan

    @cached_property
    def index(self) -> Any | None:
        """Spark's file index; None if the frame is not a single file relation."""
        leaves = items(self.frame._jdf.queryExecution().analyzed().collectLeaves())
        if len(leaves) != 1 or kind_of(leaves[0]) != "LogicalRelation":
            return None
        relation = leaves[0].relation()
        return relation.location() if kind_of(relation) == "HadoopFsRelation" else None

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(self.bytes_by_partition.values())

    @cached_property
    def bytes_by_partition(self) -> Mapping[int, int]:
        """The size of each partition that has files; an empty file counts as one byte."""
        sizes: dict[int, int] = defaultdict(int)
        for file in self.scan.files:
            sizes[file.partition_id] += max(1, file.size_bytes)
        return sizes


@dataclass(frozen=True)
class Leaf:
    """An occurrence of a table in a plan: its `LogicalRelation`."""

    source: Source
    relation: Any


@dataclass(frozen=True)
class Region:
    """A subtree of a plan that can be computed for each place independently.

    Attributes:
        node: The root of the subtree.
        inner: The regions of the node's children; None for a child that is no region and is the same for all places.
        leaf: The table, if the node is one.
        keys: Expression ids of the partition columns in the output. Rows with the same value, except null, come from
            the same place.
        whole_keys: The keys of which this also holds for nulls, because no outer join added any.
    """

    node: Any
    inner: tuple[Region | None, ...]
    leaf: Leaf | None
    keys: frozenset[int]
    whole_keys: frozenset[int]

    @cached_property
    def kind(self) -> str:
        """The class of the node."""
        return kind_of(self.node)

    @cached_property
    def children(self) -> list[Any]:
        """The children of the node."""
        return items(self.node.children())

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tables, from left to right."""
        if self.leaf is not None:
            return (self.leaf,)
        return tuple(leaf for region in self.inner if region is not None for leaf in region.leaves)

    @cached_property
    def is_one_table(self) -> bool:
        """Whether the region is one table, perhaps filtered."""
        if self.kind in ("Project", "Filter"):
            return self.inner[0] is not None and self.inner[0].is_one_table
        return self.leaf is not None


class RegionFinder:
    """Finds regions with joins for which Spark would shuffle both sides.

    Attributes:
        broadcast_bytes: The maximum size of a join side that Spark broadcasts instead.
    """

    def __init__(self, catalyst: Catalyst, sources: Sequence[Source]) -> None:
        """Search plans that read these tables."""
        self._sources = sources
        self.broadcast_bytes: int = catalyst.session.sessionState().conf().autoBroadcastJoinThreshold()

    def find(self, node: Any) -> Region | None:
        """Return the region of a node of an optimized plan with all nodes below it; None if it is no region."""
        kind = kind_of(node)
        if kind == "LogicalRelation":
            return self._table(node)
        if not _is_plain(node):
            return None
        if kind in ("Project", "Filter") or kind in _GROUPING:
            inner = self.find(node.child())
            if inner is None or (kind in _GROUPING and not _groups_by(node, inner.whole_keys)):
                return None
            return Region(node, (inner,), None, _above(node, inner.keys), _above(node, inner.whole_keys))
        return self._join(node) if kind == "Join" else None

    def _table(self, node: Any) -> Region | None:
        relation = node.relation()
        if kind_of(relation) != "HadoopFsRelation" or not relation.partitionSchema().isEmpty():
            return None
        for source in self._sources:
            if source.index is not None and source.index.equals(relation.location()):
                column = source.scan.scheme.column
                keys = frozenset(_id(output) for output in items(node.output()) if output.name().lower() == column)
                return Region(node, (), Leaf(source, node), keys, keys)
        return None

    def _join(self, node: Any) -> Region | None:
        join_type = kind_of(node.joinType())
        if join_type not in _JOINS or _is_hinted(node):
            return None
        if join_type in _BROADCASTING_RIGHT and self.is_small(node.right()):
            left = self.find(node.left()) if _is_repeatable(node.right()) else None
            return left and Region(node, (left, None), None, left.keys, left.whole_keys)
        if join_type in _BROADCASTING_LEFT and self.is_small(node.left()):
            right = self.find(node.right()) if _is_repeatable(node.left()) else None
            return right and Region(node, (None, right), None, right.keys, right.whole_keys)
        if node.condition().isEmpty():
            return None
        left = self.find(node.left())
        right = left and self.find(node.right())
        if left is None or right is None or not _equates(node.condition().get(), left, right):
            return None
        keys = left.keys | right.keys if join_type in _SHOWING_RIGHT else left.keys
        whole_keys = frozenset[int]()
        if join_type in _KEEPING_LEFT:
            whole_keys |= left.whole_keys
        if join_type in _KEEPING_RIGHT:
            whole_keys |= right.whole_keys
        return Region(node, (left, right), None, keys, whole_keys)

    def is_small(self, plan: Any) -> bool:
        """Return whether a plan is small enough for Spark to broadcast it."""
        return int(str(plan.stats().sizeInBytes())) <= self.broadcast_bytes


def _is_repeatable(plan: Any) -> bool:
    """Return whether each execution of a plan returns the same rows."""
    is_known = kind_of(plan) in _REPEATABLE and bool(plan.deterministic())
    return is_known and all(map(_is_repeatable, items(plan.children())))


def _is_hinted(join: Any) -> bool:
    sides = join.hint().leftHint(), join.hint().rightHint()
    return any(side.isDefined() and side.get().strategy().isDefined() for side in sides)


def has_equation(join: Any) -> bool:
    """Return whether the condition of a join has an equality, by which both sides can be shuffled."""
    condition = join.condition()
    if not condition.isDefined():
        return False
    return any(kind_of(operand) == "EqualTo" for operand in operands(condition.get(), "And"))


def _is_plain(node: Any) -> bool:
    """Return whether a node's expressions are deterministic and contain no subquery."""
    return bool(node.deterministic()) and bool(node.subqueries().isEmpty())


def _groups_by(node: Any, whole_keys: frozenset[int]) -> bool:
    expressions = getattr(node, _GROUPING[kind_of(node)])()
    return any(_is_one_of(expression, whole_keys) for expression in items(expressions))


def _above(node: Any, keys: frozenset[int]) -> frozenset[int]:
    """Return the keys in a node's output, given those of its child, which the node may rename."""
    match kind_of(node):
        case "Project":
            columns = items(node.projectList())
        case "Aggregate":
            columns = items(node.aggregateExpressions())
        case _:
            return keys
    return frozenset(
        _id(column) for column in columns if _is_one_of(column.child() if kind_of(column) == "Alias" else column, keys)
    )


def _equates(condition: Any, left: Region, right: Region) -> bool:
    """Return whether a condition requires that a partition column of the left equals one of the right."""
    for operand in operands(condition, "And"):
        match kind_of(operand):
            case "EqualTo":
                lefts, rights = left.keys, right.keys
            case "EqualNullSafe":
                lefts, rights = left.whole_keys, right.whole_keys
            case _:
                continue
        sides = operand.left(), operand.right()
        if any(_is_one_of(one, lefts) and _is_one_of(other, rights) for one, other in (sides, sides[::-1])):
            return True
    return False


def _is_one_of(expression: Any, keys: frozenset[int]) -> bool:
    return kind_of(expression) == "AttributeReference" and _id(expression) in keys


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())
