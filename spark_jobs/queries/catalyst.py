"""Access from Python to Spark's plans and expressions in the JVM.

Each access takes about a tenth of a millisecond, so frequently used objects are cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession


class Catalyst:
    """JVM classes and helpers to build logical plans in one session."""

    def __init__(self, spark: SparkSession) -> None:
        """Access the JVM of a session."""
        self.spark = spark
        self.session: Any = spark._jsparkSession
        self.jvm: Any = spark.sparkContext._jvm

    @cached_property
    def sql(self) -> Any:
        """The package `org.apache.spark.sql`."""
        return self.jvm.org.apache.spark.sql

    @cached_property
    def logical(self) -> Any:
        """The package of logical plans."""
        return self.sql.catalyst.plans.logical

    @cached_property
    def expressions(self) -> Any:
        """The package of expressions."""
        return self.sql.catalyst.expressions

    @cached_property
    def current_like(self) -> Any:
        """The tree pattern of expressions such as `current_date`."""
        return self.sql.catalyst.trees.TreePattern.CURRENT_LIKE()

    @cached_property
    def repartition(self) -> Any:
        """The class of `Repartition`."""
        return self.logical.Repartition

    @cached_property
    def file_index(self) -> Any:
        """The class of `InMemoryFileIndex`."""
        return self.sql.execution.datasources.InMemoryFileIndex

    @cached_property
    def none(self) -> Any:
        """Scala's None."""
        return self.jvm.scala.Option.empty()

    @cached_property
    def _to_sequence(self) -> Any:
        return self.jvm.PythonUtils.toSeq

    def some(self, value: Any) -> Any:
        """Return Scala's Some of a value."""
        return self.jvm.scala.Some(value)

    def sequence(self, elements: Iterable[Any]) -> Any:
        """Return a Scala sequence of objects of the JVM."""
        return self._to_sequence(list(elements))

    def frame_of(self, plan: Any) -> DataFrame:
        """Return the DataFrame of a logical plan."""
        return DataFrame(self.sql.classic.Dataset.ofRows(self.session, plan), self.spark)


def kind_of(node: Any) -> str:
    """Return the simple class name of a plan node or an expression."""
    return str(node.getClass().getSimpleName())


def items(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]


def operands(expression: Any, operator: str) -> Iterator[Any]:
    """Yield the operands of nested ANDs, or of nested ORs, in order."""
    rest = [expression]
    while rest:
        node = rest.pop()
        if kind_of(node) == operator:
            rest += [node.right(), node.left()]
        else:
            yield node
