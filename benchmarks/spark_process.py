"""What is measured in Spark, in a process of its own: it has done nothing before, and gives all its memory back."""

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
    """Return what a function of a module returns, called in a new process whose output goes to a file.

    Raises:
        BenchmarkError: As the function; any other error of its becomes one, too.
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
        # Spark's own errors do not survive the way to another process.
        raise BenchmarkError(f"{type(error).__name__}: {str(error)[:2000]}") from None


@contextmanager
def session(
    folder: Path, *, memory: str = "1g", is_long: bool = False, more: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start Spark on two cores as the embedded stack does, and stop it at the end of the block.

    Args:
        folder: For what Spark cannot keep in memory.
        memory: The most that the JVM takes.
        more: Further settings of Spark.
        is_long: Let the JVM take its time to compile well, as for large tables, instead of to start quickly.
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
        # Its JVM ends with its standard input, and cleans up behind itself then.
        gateway.proc.stdin.close()  # type: ignore[union-attr]
        gateway.proc.wait()  # type: ignore[union-attr]
