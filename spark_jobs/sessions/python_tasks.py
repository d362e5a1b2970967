"""Python functions over parts of a list or over rows as Spark tasks, with a low start-up cost of the next task."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar
from zipimport import zipimporter

from catalog.settings.environment import executor_connections

if TYPE_CHECKING:
    import pyarrow
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

TASKS_A_CORE = 2
"""Number of tasks for each core: an empty task takes Spark some 10 ms, and the first in a process a second."""

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_tasks(
    spark: SparkSession, items: Sequence[_T], task_count: int, function: Callable[[Iterable[_T]], Iterable[_R]]
) -> RDD[_R]:
    """Return the results of a function for parts of the items, in their order, as a lazy RDD."""
    return spark.sparkContext.parallelize(items, task_count).mapPartitions(partial(_run, function))


def connecting_task_count(spark: SparkSession, item_count: int) -> int:
    """Return the number of tasks that each open a connection to the catalog's database.

    It does not exceed `CALVE_EXECUTOR_CONNECTIONS`, however many executors there are.

    Raises:
        InvalidConfigurationError: The variable is not a whole number, or 0.
    """
    return min(item_count, TASKS_A_CORE * spark.sparkContext.defaultParallelism, executor_connections())


def in_batches(
    rows: DataFrame, function: Callable[[Iterable[pyarrow.RecordBatch]], Iterable[pyarrow.RecordBatch]], shape: str
) -> DataFrame:
    """Return the results of a function for the rows of each task, in batches, as a lazy frame.

    Args:
        shape: The columns of the results, as in `CREATE TABLE`.
    """
    return rows.mapInArrow(partial(_run, function), shape)


def _run(function: Callable[[Iterable[_T]], Iterable[_R]], items: Iterable[_T]) -> Iterator[_R]:
    yield from function(items)
    _forget_zip_files()
    _settle(len(sys.modules))


def _forget_zip_files() -> None:
    """Remove the importers of zip files on the path, which the next import from them creates again.

    Before each task, PySpark invalidates Python's import caches: Python then reads the whole directory of PySpark's own
    zip file, which takes five times as long as the rest of starting a task.
    """
    importers = sys.path_importer_cache
    for path in [path for path, importer in importers.items() if isinstance(importer, zipimporter)]:
        del importers[path]


@cache
def _settle(module_count: int) -> None:
    """Exclude all imported modules from the garbage collection after each task, once for each number of modules."""
    gc.collect()
    gc.freeze()
