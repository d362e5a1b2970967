"""Spark session in this process without spark-submit, with a fast start and little output."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from sqlalchemy import URL

from catalog.errors import EngineUnavailableError
from catalog.settings.environment import SPARK_JVM_OPTIONS, is_local_master
from catalog.settings.spark_settings import session_defaults, with_storage
from spark_jobs.sessions.executors import executor_settings
from spark_jobs.sessions.session import configure

DEFAULT_MASTER = "local[*]"

_NO_MASTER = ("Cannot call methods on a stopped SparkContext", "All masters are unresponsive")
"""Spark stops a session whose master it cannot reach for a minute, which the constructor of the session finds later."""
_OF_STACK = re.compile(r"\s*at |\s*\.\.\. \d+ more|[\w.$/<>]+\((\w+\.(java|scala):\d+|Native Method)\)$")
"""Lines of Java's stack traces, as exceptions have them, and as Spark tells where a session was created."""


def start_session(
    name: str, database: URL, packages: Sequence[str] = (), conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session on the master in `CALVE_SPARK_MASTER`, by default all cores of this machine.

    `SPARK_SUBMIT_OPTS` replaces the options of the JVM, and `PYSPARK_SUBMIT_ARGS` adds to Spark's settings, as for
    every PySpark program.

    Args:
        database: The catalog's database, which executors on other hosts reach with its password.
        packages: Maven coordinates of packages that Spark needs besides its own jars.
        conf: Further settings, which override the defaults.

    Raises:
        EngineUnavailableError: Spark does not start.
    """
    master = os.environ.get("CALVE_SPARK_MASTER") or DEFAULT_MASTER
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _jvm_options())
    if is_local_master(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        **session_defaults(),
        "spark.log.level": "ERROR",
        "spark.sql.ansi.enabled": "true",
        **({"spark.jars.packages": ",".join(packages)} if packages else {}),
        **(conf or {}),
    }
    spark_conf = SparkConf().setMaster(master).setAppName(name).setAll(list(with_storage(settings).items()))
    # Errors arrive as exceptions; the JVM's other output is useful only if it does not start.
    with tempfile.TemporaryFile() as stderr:
        try:
            if SparkContext._active_spark_context is None:
                gateway = launch_gateway(spark_conf, {"stderr": stderr})  # type: ignore[no-untyped-call]
                # Set after the start of the JVM, on whose command line the other settings are.
                spark_conf.setAll(list(executor_settings(database, master).items()))
                SparkContext(conf=spark_conf, gateway=gateway)
            return configure(SparkSession.builder.getOrCreate())
        except Exception as error:
            stderr.seek(0)
            raise EngineUnavailableError(_why(master, f"{error}\n{stderr.read().decode(errors='replace')}")) from error


def _why(master: str, output: str) -> str:
    """Return why Spark does not start, from the text of its exception and its output, and what to do."""
    if "Could not parse Master URL" in output:
        return f"CALVE_SPARK_MASTER is {master!r}, which is no master; use one such as local[*] or spark://host:7077"
    if any(sign in output for sign in _NO_MASTER):
        return (
            f"Spark's master {master} does not accept the session; start it, correct CALVE_SPARK_MASTER, or check that "
            "spark.authenticate and its secret are those of the cluster"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _OF_STACK.match(line)]
    # Spark names packages that it cannot resolve only after a page of other lines.
    lines.sort(key=lambda line: "unresolved dependency" not in line)
    return (
        f"Spark does not start on {master}; it needs Java 17 or 21 in JAVA_HOME or PATH, and "
        f"CALVE_SPARK_MASTER selects another master. Its output: {' / '.join(lines)[:1000]}"
    )


def stop_session(spark: SparkSession) -> None:
    """Stop a session and its JVM, so that another session can start with other packages."""
    spark.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        # The JVM exits when its standard input is closed.
        gateway.proc.stdin.close()
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None


def _jvm_options() -> str:
    options = [SPARK_JVM_OPTIONS]
    # Written by `standalone.class_archive`; Java ignores an archive of another Java version.
    archives = sorted(Path(sys.prefix).glob("spark-*.jsa"))
    if archives and " " not in str(archives[0]):
        options.append(f"-XX:SharedArchiveFile={archives[0]} -Xshare:auto")
    return " ".join(options)
