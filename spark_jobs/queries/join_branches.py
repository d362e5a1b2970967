"""Partition-wise joins as unions: one branch for each group of places, executed without a shuffle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from catalog.errors import VerificationFailedError
from catalog.schemes.aligning import Places
from spark_jobs.queries.catalyst import Catalyst, kind_of
from spark_jobs.queries.join_regions import Leaf, Region


def union_of_branches(
    catalyst: Catalyst, region: Region, places: Sequence[Places], groups: Sequence[Sequence[int]]
) -> Any:
    """Return a plan that computes a region with one task for each group of places.

    Args:
        places: The places of the partitions of each table in the region.

    Raises:
        VerificationFailedError: A data file of the tables is missing.
    """
    branches = _Branches(catalyst)
    readers = [_Reader(catalyst, leaf, own) for leaf, own in zip(region.leaves, places, strict=True)]
    plans = [branches.of(region, iter([reader.reading(group) for reader in readers])) for group in groups]
    nothing = _nothing(catalyst, region.node.output())
    return catalyst.logical.Union(catalyst.sequence([*plans, nothing]), False, False)


def _nothing(catalyst: Catalyst, output: Any) -> Any:
    """Return a plan without tasks; it prevents Spark from combining the branches, which have one task each."""
    none, empty = catalyst.none, catalyst.sequence([])
    context: Any = catalyst.spark.sparkContext._jsc
    rdd = context.sc().emptyRDD(catalyst.jvm.scala.reflect.ClassTag.Any())
    partitioning = catalyst.sql.catalyst.plans.physical.UnknownPartitioning(0)
    session, class_ = catalyst.session, catalyst.sql.execution.LogicalRDD
    return class_(output, rdd, partitioning, empty, False, none, session, none, none).newInstance()


def kept_in_place(catalyst: Catalyst, join: Any) -> Any:
    """Return a join that the optimizer does not move.

    It would push semi and anti joins below unions and repartitions; these become existence joins with a filter.
    """
    join_type = kind_of(join.joinType())
    if join_type not in ("LeftSemi$", "LeftAnti$"):
        return join
    types, expressions = catalyst.sql.types, catalyst.expressions
    exists = expressions.AttributeReference(
        "exists",
        types.DataTypes.BooleanType,
        False,
        types.Metadata.empty(),
        expressions.NamedExpression.newExprId(),
        catalyst.sequence([]),
    )
    marking = catalyst.sql.catalyst.plans.ExistenceJoin(exists)
    marked = join.copy(join.left(), join.right(), marking, join.condition(), join.hint())
    condition = exists if join_type == "LeftSemi$" else expressions.Not(exists)
    return catalyst.logical.Project(join.output(), catalyst.logical.Filter(condition, marked))


class _Branches:
    """Builds the branches of one union."""

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst

    def of(self, region: Region, leaves: Iterator[Any]) -> Any:
        """Return a region over replaced leaves, from left to right, to be executed in one task."""
        if region.is_one_table:
            # A single Spark partition satisfies the distribution that any join or aggregate requires.
            return self._catalyst.repartition(1, False, self._over(region, next(leaves)))
        children = [
            child if inner is None else self.of(inner, leaves)
            for child, inner in zip(region.children, region.inner, strict=True)
        ]
        node = region.node
        if region.kind != "Join":
            return node.withNewChildren(self._catalyst.sequence(children))
        is_region = [inner is not None for inner in region.inner]
        hint = self._sort_merge_hint if all(is_region) else self._broadcast_hint(is_region)
        joined = node.copy(*children, node.joinType(), node.condition(), hint)
        return kept_in_place(self._catalyst, joined) if all(is_region) else joined

    def _over(self, region: Region, leaf: Any) -> Any:
        if region.leaf is not None:
            return leaf
        [inner] = region.inner
        assert inner is not None
        return region.node.withNewChildren(self._catalyst.sequence([self._over(inner, leaf)]))

    @cached_property
    def _sort_merge_hint(self) -> Any:
        """The hint for a sort-merge join: it can spill, and is as fast as a hash join of sides of similar size."""
        return self._catalyst.logical.JoinHint(*[self._strategy("SHUFFLE_MERGE")] * 2)

    def _broadcast_hint(self, is_region: Sequence[bool]) -> Any:
        """Return the hint to broadcast the side that is no region: a branch of the other side may be even smaller."""
        sides = [self._catalyst.none if is_kept else self._strategy("BROADCAST") for is_kept in is_region]
        return self._catalyst.logical.JoinHint(*sides)

    def _strategy(self, name: str) -> Any:
        strategy = getattr(getattr(self._catalyst.logical, f"{name}$"), "MODULE$")
        return self._catalyst.some(self._catalyst.logical.HintInfo(self._catalyst.some(strategy)))


class _Reader:
    """Reads the files of groups of places of one table."""

    def __init__(self, catalyst: Catalyst, leaf: Leaf, places: Places) -> None:
        self._catalyst = catalyst
        self._leaf = leaf
        self._relation = leaf.relation.relation()
        self._paths = self._relation.location().rootPaths()
        self._positions = _positions(leaf, self._paths, places)
        self._options = self._relation.options()
        self._schema = catalyst.some(self._relation.dataSchema())
        # List all files once; the listings of the groups use the cache.
        self._cache = catalyst.sql.execution.datasources.FileStatusCache.getOrCreate(catalyst.session)
        self._index(self._paths, sum(map(len, self._positions.values())))

    def reading(self, group: Sequence[int]) -> Any:
        """Return the table's leaf restricted to the files of a group of places."""
        positions = sorted(position for place in group for position in self._positions.get(place, ()))
        if not positions:
            return self._nothing
        paths = self._catalyst.sequence(self._paths.apply(position) for position in positions)
        relation = self._relation.copy(self._index(paths, len(positions)), *self._rest_of_relation)
        return self._leaf.relation.copy(relation, *self._rest_of_leaf)

    @cached_property
    def _rest_of_relation(self) -> tuple[Any, ...]:
        whole = self._relation
        schemas = whole.partitionSchema(), whole.dataSchema()
        return (*schemas, whole.bucketSpec(), whole.fileFormat(), self._options, whole.sparkSession())

    @cached_property
    def _rest_of_leaf(self) -> tuple[Any, ...]:
        leaf = self._leaf.relation
        return leaf.output(), leaf.catalogTable(), leaf.isStreaming(), leaf.stream()

    @cached_property
    def _nothing(self) -> Any:
        output, none = self._leaf.relation.output(), self._catalyst.none
        return self._catalyst.logical.LocalRelation(output, self._catalyst.sequence([]), False, none)

    def _index(self, paths: Any, file_count: int) -> Any:
        none, session = self._catalyst.none, self._catalyst.session
        index = self._catalyst.file_index(session, paths, self._options, self._schema, self._cache, none, none)
        # Spark ignores missing files.
        existing_count = index.allFiles().size()
        if existing_count != file_count:
            raise VerificationFailedError(
                f"table {self._leaf.source.scan.table.full_name}: {file_count - existing_count:,} of {file_count:,} "
                "data files no longer exist; run the query again"
            )
        return index


def _positions(leaf: Leaf, paths: Any, places: Places) -> dict[int, list[int]]:
    """Return the positions of each place's files in Spark's list of paths.

    Raises:
        VerificationFailedError: A path is not a data file of the scan.
    """
    scan = leaf.source.scan
    partitions = {file.path: file.partition_id for file in scan.files}
    depths = {path.count("/") + 1 for path in partitions}
    positions: dict[int, list[int]] = defaultdict(list)
    for position, path in enumerate(paths.mkString("\n").split("\n")):
        parts = path.split("/")
        names = ("/".join(parts[-depth:]) for depth in depths)
        partition_id = next((partitions[name] for name in names if name in partitions), None)
        if partition_id is None:
            raise VerificationFailedError(f"table {scan.table.full_name}: {path} is not one of its data files")
        positions[places[partition_id]].append(position)
    return positions
