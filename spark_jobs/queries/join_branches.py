"""A part of a plan as the union of its answers for some partitions at a time, each found without exchanging rows."""

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
    """Return a plan with the rows of a region, which has a task for each group of places.

    Args:
        places: Of the partitions of each of its tables.

    Raises:
        VerificationFailedError: A file of the tables is not there.
    """
    branches = _Branches(catalyst)
    readers = [_Reader(catalyst, *each) for each in zip(region.leaves, places, strict=True)]
    plans = [branches.of(region, iter([reader.reading(group) for reader in readers])) for group in groups]
    nothing = _nothing(catalyst, region.node.output())
    return catalyst.logical.Union(catalyst.sequence([*plans, nothing]), False, False)


def _nothing(catalyst: Catalyst, output: Any) -> Any:
    """Return a plan without tasks. Otherwise Spark would see that all branches have one, and make one of them."""
    none, empty = catalyst.none, catalyst.sequence([])
    context: Any = catalyst.spark.sparkContext._jsc
    rdd = context.sc().emptyRDD(catalyst.jvm.scala.reflect.ClassTag.Any())
    partitioning = catalyst.sql.catalyst.plans.physical.UnknownPartitioning(0)
    session, class_ = catalyst.session, catalyst.sql.execution.LogicalRDD
    return class_(output, rdd, partitioning, empty, False, none, session, none, none).newInstance()


def kept_in_place(catalyst: Catalyst, join: Any) -> Any:
    """Return a join that Spark leaves where it is: semi and anti joins it would put below single partitions and unions.

    These become existence joins with a filter.
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
    """Makes the branches of one union."""

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst

    def of(self, region: Region, leaves: Iterator[Any]) -> Any:
        """Return a region over other leaves, which are taken from left to right, in one task."""
        if region.is_one_table:
            # What is in a single partition already is distributed as any join or aggregate needs it.
            return self._catalyst.repartition(1, False, self._over(region, next(leaves)))
        children = [
            child if inner is None else self.of(inner, leaves)
            for child, inner in zip(region.children, region.inner, strict=True)
        ]
        node = region.node
        if region.kind != "Join":
            return node.withNewChildren(self._catalyst.sequence(children))
        is_region = [inner is not None for inner in region.inner]
        hint = self._shuffled if all(is_region) else self._sent(is_region)
        joined = node.copy(*children, node.joinType(), node.condition(), hint)
        return kept_in_place(self._catalyst, joined) if all(is_region) else joined

    def _over(self, region: Region, leaf: Any) -> Any:
        if region.leaf is not None:
            return leaf
        [inner] = region.inner
        assert inner is not None
        return region.node.withNewChildren(self._catalyst.sequence([self._over(inner, leaf)]))

    @cached_property
    def _shuffled(self) -> Any:
        """For a sort-merge join: it can spill, and takes no longer than one by hash where both sides are alike."""
        return self._catalyst.logical.JoinHint(*[self._strategy("SHUFFLE_MERGE")] * 2)

    def _sent(self, is_region: Sequence[bool]) -> Any:
        """Return the hint to send what is no region to all tasks: the other side is even smaller in one of them."""
        sides = [self._catalyst.none if each else self._strategy("BROADCAST") for each in is_region]
        return self._catalyst.logical.JoinHint(*sides)

    def _strategy(self, name: str) -> Any:
        strategy = getattr(getattr(self._catalyst.logical, f"{name}$"), "MODULE$")
        return self._catalyst.some(self._catalyst.logical.HintInfo(self._catalyst.some(strategy)))


class _Reader:
    """Reads the files of some places of one table."""

    def __init__(self, catalyst: Catalyst, leaf: Leaf, places: Places) -> None:
        self._catalyst = catalyst
        self._leaf = leaf
        self._relation = leaf.relation.relation()
        self._paths = self._relation.location().rootPaths()
        self._positions = _positions(leaf, self._paths, places)
        self._options = self._relation.options()
        self._schema = catalyst.some(self._relation.dataSchema())
        # Lists all files at once, so that the lists of each group need not ask for them again.
        self._cache = catalyst.sql.execution.datasources.FileStatusCache.getOrCreate(catalyst.session)
        self._index(self._paths, sum(map(len, self._positions.values())))

    def reading(self, group: Sequence[int]) -> Any:
        """Return the table's leaf over the files of these places alone."""
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
        # Spark is silent about a file that is not there.
        found = index.allFiles().size()
        if found != file_count:
            raise VerificationFailedError(
                f"table {self._leaf.source.scan.table.full_name}: {file_count - found:,} of {file_count:,} data files "
                "are not there any more; run the query again"
            )
        return index


def _positions(leaf: Leaf, paths: Any, places: Places) -> dict[int, list[int]]:
    """Return, by place, where its files stand in Spark's list.

    Raises:
        VerificationFailedError: There are other files in it.
    """
    scan = leaf.source.scan
    partitions = {file.path: file.partition_id for file in scan.files}
    depths = {path.count("/") + 1 for path in partitions}
    found: dict[int, list[int]] = defaultdict(list)
    for position, path in enumerate(paths.mkString("\n").split("\n")):
        parts = path.split("/")
        names = ("/".join(parts[-depth:]) for depth in depths)
        partition_id = next((partitions[name] for name in names if name in partitions), None)
        if partition_id is None:
            raise VerificationFailedError(f"table {scan.table.full_name}: {path} is no data file of it")
        found[places[partition_id]].append(position)
    return found
