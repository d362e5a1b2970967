"""A part of a plan as the union of its answers for some partitions at a time, each found without exchanging rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession

from catalog.errors import VerificationFailedError
from catalog.schemes.aligning import Places
from spark_jobs.catalyst import items, kind_of, sequence, sql_package
from spark_jobs.join_regions import Leaf, Region


def union_of_branches(
    spark: SparkSession, region: Region, places: Sequence[Places], groups: Sequence[Sequence[int]]
) -> Any:
    """Return a plan with the rows of a region, which has a task for each group of places.

    Args:
        places: Of the partitions of each of its tables.

    Raises:
        VerificationFailedError: A file of the tables is not there.
    """
    branches = _Branches(spark)
    readers = [_Reader(spark, *each) for each in zip(region.leaves, places, strict=True)]
    plans = [branches.of(region, iter([reader.reading(group) for reader in readers])) for group in groups]
    return branches.logical.Union(sequence(spark, [*plans, branches.nothing(region.node.output())]), False, False)


def kept_in_place(spark: SparkSession, join: Any) -> Any:
    """Return a join that Spark leaves where it is: semi and anti joins it would put below single partitions and unions.

    These become existence joins with a filter.
    """
    join_type = kind_of(join.joinType())
    if join_type not in ("LeftSemi$", "LeftAnti$"):
        return join
    sql = sql_package(spark)
    expressions, types, logical = sql.catalyst.expressions, sql.types, sql.catalyst.plans.logical
    exists = expressions.AttributeReference(
        "exists",
        types.DataTypes.BooleanType,
        False,
        types.Metadata.empty(),
        expressions.NamedExpression.newExprId(),
        sequence(spark, []),
    )
    marked = join.copy(
        join.left(), join.right(), sql.catalyst.plans.ExistenceJoin(exists), join.condition(), join.hint()
    )
    condition = exists if join_type == "LeftSemi$" else expressions.Not(exists)
    return logical.Project(join.output(), logical.Filter(condition, marked))


class _Branches:
    """Makes the branches of one union."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = spark.sparkContext._jvm
        self._sql = sql_package(spark)
        self.logical = self._sql.catalyst.plans.logical

    def of(self, region: Region, leaves: Iterator[Any]) -> Any:
        """Return a region over other leaves, which are taken from left to right, in one task."""
        node = region.node
        if region.is_one_table:
            # What is in a single partition already is distributed as any join or aggregate needs it.
            return self.logical.Repartition(1, False, self._over(node, next(leaves)))
        children = [
            child if inner is None else self.of(inner, leaves)
            for child, inner in zip(items(node.children()), region.inner, strict=True)
        ]
        if kind_of(node) != "Join":
            return node.withNewChildren(sequence(self._spark, children))
        is_region = [inner is not None for inner in region.inner]
        hint = self._shuffled if all(is_region) else self._sent(is_region)
        joined = node.copy(*children, node.joinType(), node.condition(), hint)
        return kept_in_place(self._spark, joined) if all(is_region) else joined

    def nothing(self, output: Any) -> Any:
        """Return a plan without tasks. Otherwise Spark would see that all branches have one, and make one of them."""
        none, empty = self._jvm.scala.Option.empty(), sequence(self._spark, [])
        context: Any = self._spark.sparkContext._jsc
        rdd = context.sc().emptyRDD(self._jvm.scala.reflect.ClassTag.Any())
        partitioning = self._sql.catalyst.plans.physical.UnknownPartitioning(0)
        session = self._spark._jsparkSession
        rows = self._sql.execution.LogicalRDD(output, rdd, partitioning, empty, False, none, session, none, none)
        return rows.newInstance()

    def _over(self, node: Any, leaf: Any) -> Any:
        if kind_of(node) == "LogicalRelation":
            return leaf
        return node.withNewChildren(sequence(self._spark, [self._over(node.child(), leaf)]))

    @cached_property
    def _shuffled(self) -> Any:
        """For a sort-merge join: it can spill, and takes no longer than one by hash where both sides are alike."""
        return self.logical.JoinHint(*[self._strategy("SHUFFLE_MERGE")] * 2)

    def _sent(self, is_region: Sequence[bool]) -> Any:
        """Return the hint to send what is no region to all tasks: the other side is even smaller in one of them."""
        none = self._jvm.scala.Option.empty()
        return self.logical.JoinHint(*[none if each else self._strategy("BROADCAST") for each in is_region])

    def _strategy(self, name: str) -> Any:
        strategy = getattr(getattr(self.logical, f"{name}$"), "MODULE$")
        return self._jvm.scala.Some(self.logical.HintInfo(self._jvm.scala.Some(strategy)))


class _Reader:
    """Reads the files of some places of one table."""

    def __init__(self, spark: SparkSession, leaf: Leaf, places: Places) -> None:
        self._spark = spark
        self._leaf = leaf
        self._sql = sql_package(spark)
        self._paths = leaf.relation.relation().location().rootPaths()
        self._positions = _positions(leaf, self._paths, places)
        # Lists all files at once, so that the lists of each group need not ask for them again.
        self._cache = self._sql.execution.datasources.FileStatusCache.getOrCreate(spark._jsparkSession)
        self._index(self._paths)

    def reading(self, group: Sequence[int]) -> Any:
        """Return the table's leaf over the files of these places alone."""
        leaf = self._leaf.relation
        positions = sorted(position for place in group for position in self._positions.get(place, ()))
        if not positions:
            none: Any = self._spark.sparkContext._jvm.scala.Option.empty()  # type: ignore[union-attr]
            empty = sequence(self._spark, [])
            return self._sql.catalyst.plans.logical.LocalRelation(leaf.output(), empty, False, none)
        whole = leaf.relation()
        relation = whole.copy(
            self._index(sequence(self._spark, [self._paths.apply(position) for position in positions])),
            whole.partitionSchema(),
            whole.dataSchema(),
            whole.bucketSpec(),
            whole.fileFormat(),
            whole.options(),
            whole.sparkSession(),
        )
        return leaf.copy(relation, leaf.output(), leaf.catalogTable(), leaf.isStreaming(), leaf.stream())

    def _index(self, paths: Any) -> Any:
        scala: Any = self._spark.sparkContext._jvm.scala  # type: ignore[union-attr]
        relation = self._leaf.relation.relation()
        none, schema = scala.Option.empty(), scala.Some(relation.dataSchema())
        index = self._sql.execution.datasources.InMemoryFileIndex(
            self._spark._jsparkSession, paths, relation.options(), schema, self._cache, none, none
        )
        # Spark is silent about a file that is not there.
        expected, found = paths.size(), index.allFiles().size()
        if found != expected:
            raise VerificationFailedError(
                f"table {self._leaf.source.scan.table.full_name}: {expected - found:,} of {expected:,} data files are "
                "not there any more; run the query again"
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
