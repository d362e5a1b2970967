"""Spark on a Hive Metastore in a separate process, because Hive support applies to the whole JVM.

The process reads a line of JSON for each statement, and writes one as its result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from standalone.class_archive import jvm_options
from standalone.java import require_java

if TYPE_CHECKING:
    from tests.support.hive_metastore import HiveMetastoreServer

_REPOSITORY = Path(__file__).parents[2]
_END_SECONDS = 60

SESSION_CATALOG = {
    "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
    "spark.sql.catalog.spark_catalog.type": "hive",
}
"""Settings with which Spark reads both the Iceberg tables and the Hive tables of its metastore."""


class HiveSpark:
    """A context manager that runs Spark with the tables of a metastore."""

    def __init__(
        self,
        metastore: HiveMetastoreServer | None,
        folder: Path,
        jar: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Use a working folder and the jar of Iceberg's runtime.

        Args:
            metastore: None if the settings name one.
            settings: More settings of the session.
        """
        self._folder = folder
        of_metastore = (
            {
                "spark.hadoop.hive.metastore.uris": metastore.uri,
                "spark.sql.warehouse.dir": f"file:{metastore.warehouse}",
            }
            if metastore is not None
            else {}
        )
        self._settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
            # A metastore that creates its lock tables automatically rejects Iceberg's lock requests, because they have
            # no operation type. Without locks, it compares the entry with Iceberg's expected one.
            "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
            "spark.jars": str(jar),
            "spark.log.level": "ERROR",
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **of_metastore,
            **(settings or {}),
        }
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the process; the first statement waits for it."""
        java_home = require_java()
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home),
            "PYTHONPATH": str(_REPOSITORY),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": jvm_options(java_home),
        }
        self._log = (self._folder / "spark.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(self._settings)],
            env=environment,
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """End the process by closing its input."""
        assert self._process is not None
        assert self._log is not None
        try:
            self._process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            # It is running a statement. Its JVM ends with it.
            self._process.kill()
            self._process.communicate()
        self._log.close()

    def begin(self, settings: Mapping[str, str] | None = None) -> None:
        """Start a session with settings and without the caches of earlier ones."""
        self._ask({"settings": dict(settings or {})})

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows, with strings for values that JSON does not have."""
        return [tuple(each) for each in self._ask({"statement": statement})["rows"]]

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(question)}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            said = (self._folder / "spark.log").read_text(errors="replace")[-4_000:]
            raise RuntimeError(f"Spark has ended; it said: {said}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{question}: {answer['error']}")
        return answer


def main(settings: Mapping[str, str]) -> None:
    # The JVM's output must not be mixed with the results.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("hive spark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with builder.getOrCreate() as first:
        session = first
        for line in sys.stdin:
            question = json.loads(line)
            answer: dict[str, Any]
            try:
                if "settings" in question:
                    session = first.newSession()
                    for name, value in question["settings"].items():
                        session.conf.set(name, value)
                    answer = {}
                else:
                    answer = {"rows": [list(row) for row in session.sql(question["statement"]).collect()]}
            except Exception as error:
                answer = {"error": str(error)[:4_000]}
            print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
