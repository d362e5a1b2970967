"""Spark's plans and expressions in the JVM, of the releases of Spark whose plans are known.

Plans are no public interface of Spark, and sessions of Spark Connect have none. Code that uses them runs inside
`known_plans`, whose error says why they cannot be used; its caller then does without, or refuses.

Each access to the JVM takes about a tenth of a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from catalog.errors import EngineError
from spark_jobs.sessions.java_classes import java_class

KNOWN_RELEASES = ("4.1",)
"""The releases of Spark with which the tests of this package pass."""


class UnknownPlansError(EngineError):
    """The plans of this Spark session cannot be used."""


@contextmanager
def known_plans(spark: SparkSession) -> Iterator[None]:
    """Allow the block to use Spark's plans, if they are as this package knows them.

    Raises:
        UnknownPlansError: The release of Spark is unknown, the session has no JVM (Spark Connect), or a class, method
            or constructor that the block uses does not exist.
    """
    release = ".".join(spark.version.split(".")[:2])
    if release not in KNOWN_RELEASES:
        raise UnknownPlansError(_unknown(f"this is Spark {spark.version}"))
    if not hasattr(spark, "_jsparkSession"):
        raise UnknownPlansError(_unknown("this is a session of Spark Connect"))
    try:
        yield
    except Py4JJavaError:
        # An error of the statement.
        raise
    except (Py4JError, TypeError) as error:
        # py4j takes an unknown class for a package, which cannot be called.
        if isinstance(error, TypeError) and "JavaPackage" not in str(error):
            raise
        problem = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UnknownPlansError(_unknown(f"in Spark {spark.version}, {problem}")) from error


def _unknown(what: str) -> str:
    return (
        f"Calve knows the plans of Spark {', '.join(KNOWN_RELEASES)}, and {what}; use a classic session of a known one"
    )


@lru_cache(maxsize=64)
def frame_of_unknown(spark: SparkSession, schema: str) -> DataFrame:
    """Return an empty frame of a schema, as JSON; the optimizer does not know that it is empty."""
    # In the JVM: an RDD from Python would take several times as long.
    context, session = spark.sparkContext, spark._jsparkSession
    return DataFrame(session.createDataFrame(context._jsc.emptyRDD(), session.parseDataType(schema)), spark)


def reads_clock(frame: DataFrame) -> bool:
    """Return whether a frame's query has `current_date` or similar functions."""
    pattern = _sql_class(frame.sparkSession, "catalyst.trees.TreePattern").CURRENT_LIKE()
    return bool(frame._jdf.queryExecution().analyzed().containsPattern(pattern))


def has_subquery(spark: SparkSession, expression: Any) -> bool:
    """Return whether the value of a physical plan's expression is known only when a subquery has run."""
    return bool(expression.containsPattern(_sql_class(spark, "catalyst.trees.TreePattern").PLAN_EXPRESSION()))


def as_of_now(frame: DataFrame) -> DataFrame:
    """Return a frame with `current_date` and similar functions replaced by their current values."""
    if not reads_clock(frame):
        return frame
    spark = frame.sparkSession
    compute = _sql_class(spark, "catalyst.optimizer.ComputeCurrentTime")
    plan = compute.apply(frame._jdf.queryExecution().analyzed())
    return DataFrame(_sql_class(spark, "classic.Dataset").ofRows(spark._jsparkSession, plan), spark)


def _sql_class(spark: SparkSession, name: str) -> Any:
    """Return a class of the package `org.apache.spark.sql`."""
    return java_class(spark.sparkContext, f"org.apache.spark.sql.{name}")


def filtered_leaves(frame: DataFrame) -> Iterator[tuple[Any, Any]]:
    """Yield the leaves of a frame's optimized plan and its subqueries, each with the condition of a filter above it.

    The condition is None if there is no filter directly above the leaf.
    """
    rest = [(frame._jdf.queryExecution().optimizedPlan(), None)]
    while rest:
        node, condition = rest.pop()
        children = items(node.children())
        if not children:
            yield node, condition
        own = node.condition() if kind_of(node) == "Filter" else None
        rest += [(child, own) for child in children]
        rest += [(inner, None) for inner in items(node.innerChildren())]


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
