"""Spark's plans and expressions as they are in the JVM, seen from Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def sql_package(spark: SparkSession) -> Any:
    """Return the JVM's package `org.apache.spark.sql`."""
    return spark.sparkContext._jvm.org.apache.spark.sql  # type: ignore[union-attr]


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Return the DataFrame of a logical plan."""
    return DataFrame(sql_package(spark).classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def kind_of(node: Any) -> str:
    """Return the class of a node of a plan or of an expression, without its package."""
    return str(node.getClass().getSimpleName())


def items(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]


def sequence(spark: SparkSession, elements: Iterable[Any]) -> Any:
    """Return a Scala sequence of objects of the JVM."""
    jvm: Any = spark.sparkContext._jvm
    found = jvm.java.util.ArrayList()
    for each in elements:
        found.add(each)
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(found)


def operands(expression: Any, operator: str) -> Iterator[Any]:
    """Yield the parts of a chain of ANDs or of ORs, in order."""
    rest = [expression]
    while rest:
        node = rest.pop()
        if kind_of(node) == operator:
            rest += [node.right(), node.left()]
        else:
            yield node
