"""Running of a function over tasks in executors, with unchanged catalog errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from catalog.errors import CatalogError
from spark_jobs.sessions.python_tasks import in_tasks

_T = TypeVar("_T")
_R = TypeVar("_R")


def run_tasks(
    spark: SparkSession,
    function: Callable[[_T], _R],
    tasks: Sequence[_T],
    counted: Callable[[_R], int] | None = None,
    counter: Accumulator[int] | None = None,
) -> list[_R]:
    """Return the results of a function for all tasks, in their order.

    Args:
        counted: Returns the amount to add to `counter` for a task's result.

    Raises:
        CatalogError: The first error of a task that is not retryable.
    """
    if not tasks:
        return []
    results: list[_R] = []
    for outcome in in_tasks(spark, tasks, len(tasks), partial(_run, function, counted, counter)).collect():
        if isinstance(outcome, CatalogError):
            raise outcome
        results.append(outcome)
    return results


def _run(
    function: Callable[[_T], _R],
    counted: Callable[[_R], int] | None,
    counter: Accumulator[int] | None,
    tasks: Iterable[_T],
) -> Iterator[_R | CatalogError]:
    for task in tasks:
        try:
            result = function(task)
        except CatalogError as error:
            if error.retryable:
                raise
            # Returned, because Spark would wrap a raised error in a JVM stack trace.
            yield error
            return
        if counter is not None and counted is not None:
            counter.add(counted(result))
        yield result
