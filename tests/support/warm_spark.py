"""One JVM with Spark for many processes that run one operation and may be killed: `kill -9` costs a second.

    server    imports everything, and forks the others; it has no threads
    keeper    starts the JVM, and keeps it until the server ends
    process   attaches to the JVM, runs one operation, and is killed at a place, or reports

A place is where the code calls `reached`: the module, the function and the point. The server's processes record the
places that they pass, because the server replaces `reached` before it imports what calls it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from catalog.operations import failpoints

REPOSITORY = Path(__file__).parents[2]
_PRELOADED = (
    *("psycopg", "pyarrow.parquet", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"),
    *("sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite"),
    *("catalog.catalog", "catalog.statements.loads", "spark_jobs.statement_engine", "spark_jobs.write_partitions"),
)
_PASSED: dict[str, None] = {}
_ENDS = {"place": ""}


class WarmSpark:
    """A running server; a context manager that starts and stops it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Set the environment variables that the server has besides those of this process that are not AWS's."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self._environment = {**inherited, **environment, "PYTHONPATH": str(REPOSITORY)}

    def __enter__(self) -> Self:
        """Start the server and its JVM."""
        command = [sys.executable, "-m", "tests.support.warm_spark"]
        self._server = subprocess.Popen(
            command, env=self._environment, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server, whose JVM ends with it."""
        self._server.communicate(timeout=60)

    def run(self, environment: Mapping[str, str], work: Mapping[str, Any], place: str = "") -> dict[str, Any]:
        """Run an operation in a process of its own, which is killed at a place.

        Args:
            work: `statements` with an `operation`, or the `config` of a load with its `source`.

        Returns:
            `places`, those that it passed, and `results`; or nothing if it was killed.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps({"environment": dict(environment), "work": work, "place": place}), file=self._server.stdin)
        self._server.stdin.flush()
        ended: dict[str, Any] = json.loads(self._server.stdout.readline())
        assert ended["signal"] == (signal.SIGKILL if place else 0), ended
        assert "error" not in ended, ended["error"]
        return ended


def _reached(point: failpoints.Point) -> None:
    caller = sys._getframe(1)
    place = f"{caller.f_globals['__name__']} {caller.f_code.co_qualname}: {point}"
    _PASSED[place] = None
    if place == _ENDS["place"]:
        failpoints.die()


def _keep(ready: int, until: int) -> None:
    """Start the JVM, write how to reach it, and wait for the end of the server."""
    from sqlalchemy import make_url

    from catalog.settings.environment import spark_packages
    from spark_jobs.sessions.local_session import start_session, stop_session

    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1"}
    # For a few rows, generating code takes longer than running without.
    conf |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    spark = start_session("kills", make_url(os.environ["CALVE_CATALOG_URL"]), spark_packages(), conf)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.gateway_parameters
    os.write(ready, json.dumps({"port": java.port, "secret": java.auth_token}).encode())
    os.close(ready)
    os.read(until, 1)
    stop_session(spark)


def _attach(java: Mapping[str, Any]) -> Any:
    """Return a new session of the JVM."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_GATEWAY_PORT=str(java["port"]), PYSPARK_GATEWAY_SECRET=java["secret"])
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    context = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    spark_context = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    return SparkSession(spark_context).newSession()


def _run(java: Mapping[str, Any], work: Mapping[str, Any]) -> list[Any]:
    from catalog import Catalog
    from catalog.settings.table_config import TableConfig
    from catalog.statements.loads import TableLoads
    from catalog.statements.session import Session
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    def start(opened: Catalog) -> Any:
        return SparkEngine(opened, configure(_attach(java)))

    with Catalog.open() as catalog:
        if "config" in work:
            loads = TableLoads(catalog, start=start)
            reports = loads.load(TableConfig(**work["config"]), [work["config"]["source"]])
            return [[report.operation_id, report.is_continued] for report in reports]
        with Session(catalog, database="demo", start=start) as session:
            answers = [session.execute(text, operation_id=work.get("operation")) for text in work["statements"]]
            return [[list(row) for row in answer.rows] for answer in answers]


def _process(java: Mapping[str, Any], asked: Mapping[str, Any], answer: int) -> None:
    os.environ.update(asked["environment"])
    _ENDS["place"] = asked["place"]
    try:
        results = {"results": _run(java, asked["work"])}
    except BaseException:
        results = {"error": traceback.format_exc()}
    os.write(answer, json.dumps({**results, "places": list(_PASSED)}, default=str).encode())


def _forked(function: Any, *arguments: Any) -> int:
    if pid := os.fork():
        return pid
    # The server's standard output is for its answers.
    os.dup2(2, 1)
    try:
        function(*arguments)
    finally:
        sys.stderr.flush()
        os._exit(0)


def _read(descriptor: int) -> dict[str, Any]:
    with os.fdopen(descriptor, "rb") as file:
        content = file.read()
    return json.loads(content) if content else {}


def main() -> None:
    """Serve one request after another, each a line of JSON."""
    failpoints.reached = _reached
    for module in _PRELOADED:
        importlib.import_module(module)
    gc.freeze()

    ready, tell_ready = os.pipe()
    until, end = os.pipe()
    keeper = os.fork()
    if not keeper:
        os.close(end)
        # Closes what the server reads, so that the JVM does not keep it open.
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(2, 1)
        _keep(tell_ready, until)
        os._exit(0)
    os.close(tell_ready)
    java = _read(ready)
    for line in sys.stdin:
        found, answer = os.pipe()
        pid = _forked(_process, java, json.loads(line), answer)
        os.close(answer)
        ended = _read(found)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({**ended, "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}), flush=True)
    os.close(end)
    os.waitpid(keeper, 0)


if __name__ == "__main__":
    main()
