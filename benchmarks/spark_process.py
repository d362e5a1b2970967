"""Measurements with Spark in a new process, which frees its memory at the end."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from benchmarks.figures import BenchmarkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_P = ParamSpec("_P")
_T = TypeVar("_T")


def in_new_process(log_path: Path, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a module-level function in a new process with its output in a file; return its result.

    Raises:
        BenchmarkError: The function failed, with this or another error.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _redirect, (log_path,)) as process:
        return process.submit(_call, function, *args, **kwargs).result()  # type: ignore[arg-type]


def _redirect(log_path: Path) -> None:
    with log_path.open("ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())


def _call(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    try:
        return function(*args, **kwargs)
    except BenchmarkError:
        raise
    except Exception as error:
        # Spark's errors cannot be pickled.
        raise BenchmarkError(f"{type(error).__name__}: {str(error)[:2000]}") from None


@contextmanager
def session(
    folder: Path, *, memory: str = "1g", is_long: bool = False, more: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start Spark on two cores as the embedded stack does, and stop it at the end of the block.

    Args:
        folder: Folder for temporary files of Spark.
        memory: The maximum heap of the JVM.
        more: Additional settings of Spark.
        is_long: Use the JVM's optimising compiler, for long queries, instead of the settings for a fast start.
    """
    from pyspark.sql import SparkSession

    from spark_jobs.sessions.session import configure
    from standalone.class_archive import jvm_options
    from standalone.java import require_java

    java_home = require_java()
    os.environ["JAVA_HOME"] = str(java_home)
    os.environ["SPARK_SUBMIT_OPTS"] = "-XX:+UseSerialGC" if is_long else jvm_options(java_home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.local.dir": str(folder),
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(more or {}),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = configure(builder.getOrCreate())
    gateway = spark.sparkContext._gateway
    try:
        yield spark
    finally:
        spark.stop()
        # The JVM ends when its standard input is closed, and then deletes its temporary files.
        gateway.proc.stdin.close()  # type: ignore[union-attr]
        gateway.proc.wait()  # type: ignore[union-attr]
