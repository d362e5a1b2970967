"""Functions over shares of a list or over rows, run by Spark in Python processes that begin the next task soon."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar
from zipimport import zipimporter

if TYPE_CHECKING:
    import pyarrow
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

TASKS_A_CORE = 2
"""Tasks of many items each: one that does nothing takes Spark some 10 ms, and the first in a process a second."""

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_tasks(
    spark: SparkSession, items: Sequence[_T], task_count: int, function: Callable[[Iterable[_T]], Iterable[_R]]
) -> RDD[_R]:
    """Return what a function yields for its share of the items, in their order, as an RDD that is not yet run."""
    return spark.sparkContext.parallelize(items, task_count).mapPartitions(partial(_run, function))


def in_batches(
    rows: DataFrame, function: Callable[[Iterable[pyarrow.RecordBatch]], Iterable[pyarrow.RecordBatch]], shape: str
) -> DataFrame:
    """Return what a function yields for the rows of its task, in batches, as a frame that is not yet computed.

    Args:
        shape: The columns that it yields, as in `CREATE TABLE`.
    """
    return rows.mapInArrow(partial(_run, function), shape)


def _run(function: Callable[[Iterable[_T]], Iterable[_R]], items: Iterable[_T]) -> Iterator[_R]:
    yield from function(items)
    _forget_zip_files()
    _settle(len(sys.modules))


def _forget_zip_files() -> None:
    """Let the next task pass over the zip files on the path; whatever imports from them finds them again.

    Before each task, PySpark makes Python look for new modules: it reads the whole directory of the zip file that
    PySpark itself comes in, which takes it five times as long as all else that begins a task.
    """
    importers = sys.path_importer_cache
    for path in [path for path, importer in importers.items() if isinstance(importer, zipimporter)]:
        del importers[path]


@cache
def _settle(module_count: int) -> None:
    """Leave what is imported by now, so many modules, out of the garbage that PySpark looks for behind each task."""
    gc.collect()
    gc.freeze()
