"""Reading of the footers of many files: several at a time, in this process or in Spark tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from catalog.files.filesystem import REMOTE_THREADS, Folder, in_parallel
from catalog.files.locations import is_local
from spark_jobs.sessions.python_tasks import in_tasks

_LOCAL_THREADS = 8
_FILES_HERE = 256
"""Maximum number of files that are read in this process: starting a Python task takes as long as some hundred."""

_FILES_A_TASK = 500

_T = TypeVar("_T")
_R = TypeVar("_R")


def read_footers(
    spark: SparkSession, files: Sequence[_T], read: Callable[[Sequence[_T]], Iterable[_R]]
) -> Iterator[_R]:
    """Yield the results of a function for files, in their order; results of a few tasks are in memory at once.

    Args:
        read: Returns the results for some files; see `in_threads`.
    """
    if len(files) <= _FILES_HERE:
        yield from read(files)
        return
    slices = -(-len(files) // _FILES_A_TASK)
    tasks = in_tasks(spark, files, slices, lambda task_files: read(list(task_files)))
    yield from tasks.toLocalIterator(prefetchPartitions=True)


def row_counts(spark: SparkSession, location: str, paths: Sequence[str], file_format: str) -> Iterator[int]:
    """Yield the number of rows of each of Parquet or ORC files, in their order.

    Args:
        location: The folder that has all or most of the files.
    """
    return read_footers(spark, paths, partial(_row_counts, location, file_format))


def _row_counts(location: str, file_format: str, paths: Sequence[str]) -> Iterator[int]:
    root = Folder(location)

    def row_count(path: str) -> int:
        folder, _, name = path.rpartition("/")
        return root.at(folder).row_count(name, file_format)

    return in_threads(row_count, paths, location)


def in_threads(read: Callable[[_T], _R], files: Iterable[_T], location: str) -> Iterator[_R]:
    """Yield the results of a function for files, in their order, with many open at a time if they are remote.

    Args:
        location: The folder of the files.
    """
    return in_parallel(read, files, _LOCAL_THREADS if is_local(location) else REMOTE_THREADS)
