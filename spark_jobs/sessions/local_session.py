"""A Spark session in this process, for whoever is not run by spark-submit; quick to start and quiet."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from catalog.errors import EngineUnavailableError
from catalog.settings.environment import state_folder
from spark_jobs.sessions.session import configure

DEFAULT_MASTER = "local[*]"

# Small statements spend most of their time in starting the JVM: the quick compiler and the simplest collector halve it.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def start_session(name: str, packages: Sequence[str] = ()) -> SparkSession:
    """Start a session on the master that `CALVE_SPARK_MASTER` names, by default all cores of this machine.

    `SPARK_SUBMIT_OPTS` takes the place of the options of the JVM, and `PYSPARK_SUBMIT_ARGS` adds to Spark's settings,
    as for every PySpark program.

    Args:
        packages: Maven coordinates of what Spark needs besides its own jars.

    Raises:
        EngineUnavailableError: Spark does not start.
    """
    master = os.environ.get("CALVE_SPARK_MASTER") or DEFAULT_MASTER
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _jvm_options())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = (
        SparkConf()
        .setMaster(master)
        .setAppName(name)
        .setAll(
            [
                ("spark.log.level", "ERROR"),
                ("spark.sql.ansi.enabled", "true"),
                ("spark.sql.session.timeZone", "UTC"),
                ("spark.sql.warehouse.dir", str(state_folder() / "spark-warehouse")),
                ("spark.ui.enabled", "false"),
                ("spark.ui.showConsoleProgress", "false"),
                *([("spark.jars.packages", ",".join(packages))] if packages else []),
            ]
        )
    )
    # Errors arrive as exceptions; what the JVM says besides is of use only if it does not start.
    with tempfile.TemporaryFile() as said:
        try:
            if SparkContext._active_spark_context is None:
                gateway = launch_gateway(conf, {"stderr": said})  # type: ignore[no-untyped-call]
                SparkContext(conf=conf, gateway=gateway)
            return configure(SparkSession.builder.getOrCreate())
        except Exception as error:
            said.seek(0)
            lines = [*str(error).splitlines(), *said.read().decode(errors="replace").splitlines()]
            # Of packages that cannot be had, Spark says which behind a page of others.
            lines.sort(key=lambda line: "unresolved dependency" not in line)
            raise EngineUnavailableError(
                f"Spark does not start on {master}; it needs Java 17 or 21, which JAVA_HOME or PATH name, and "
                f"CALVE_SPARK_MASTER names another master. It says: {' / '.join(lines)[:1000]}"
            ) from error


def stop_session(spark: SparkSession) -> None:
    """Stop a session with its JVM, so that another one can be started with other packages."""
    spark.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        # The JVM ends with its input.
        gateway.proc.stdin.close()
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None


def _jvm_options() -> str:
    options = [_JVM_OPTIONS]
    # Made by `standalone.class_archive`; one of another Java is passed over.
    archives = sorted(Path(sys.prefix).glob("spark-*.jsa"))
    if archives and " " not in str(archives[0]):
        options.append(f"-XX:SharedArchiveFile={archives[0]} -Xshare:auto")
    return " ".join(options)
