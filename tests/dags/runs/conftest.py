"""Runs of the DAGs in this process, by `dag.test()`, with real Spark, on local files.

The first job starts a Spark application, which runs the jobs of all tests here; the catalog is one for all of them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

import pytest
import yaml

from calve_airflow.submitting.attempts import recorded_process
from catalog import Catalog
from standalone.class_archive import jvm_options
from standalone.java import require_java
from tests.conftest import CATALOG_OWNER, REPOSITORY, spark_jars
from tests.end_to_end.conftest import deliver as deliver
from tests.end_to_end.conftest import items_of as items_of
from tests.end_to_end.conftest import months as months
from tests.end_to_end.conftest import read_source as read_source
from tests.end_to_end.conftest import read_table as read_table
from tests.end_to_end.conftest import state_of as state_of
from tests.plugins.conftest import airflow_database as airflow_database
from tests.support.effort import CODE_GENERATION
from tests.support.killing import wait_until

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.sdk import DAG
    from structlog.typing import EventDict

    from standalone.postgres import PostgresServer

LISTED = "demo.flights"
"""The table of the list, as the demo has it."""

COMPACTED = "lake.compacted"
"""A table of the list whose small files are compacted."""

_TASK_STARTS = re.compile(r"^\[DAG TEST\] starting task_id=(\S+)")


@dataclass(frozen=True)
class Run:
    """A run of a DAG that has ended, and what its tasks logged."""

    dag_run: DagRun
    lines: tuple[str, ...]

    @property
    def operation_id(self) -> str:
        return f"{self.dag_run.dag_id}/{self.dag_run.run_id}"

    def tasks(self) -> list[TaskInstance]:
        from airflow.utils.session import create_session

        with create_session() as session:
            return sorted(self.dag_run.get_task_instances(session=session), key=lambda task: task.map_index)

    def states(self) -> dict[str, str | None]:
        """The state of each task; of a mapped one, of its last instance."""
        return {task.task_id: task.state for task in self.tasks()}

    def named_states(self) -> dict[tuple[str, str | None], str | None]:
        """The state of each task, by its id and its name in Airflow's UI."""
        return {(task.task_id, task.rendered_map_index): task.state for task in self.tasks()}

    def tries(self, task_id: str) -> int:
        return next(task.try_number for task in self.tasks() if task.task_id == task_id)

    def result(self, task_id: str, key: str = "return_value") -> Any:
        """The value that a task, not a mapped one, pushed."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        of_run = {"dag_ids": self.dag_run.dag_id, "run_id": self.dag_run.run_id}
        with create_session() as session:
            row = session.scalars(XComModel.get_many(key=key, task_ids=task_id, **of_run)).first()
            assert row is not None, f"{task_id} pushed no {key}"
            return XComModel.deserialize_value(row)

    def log(self, task_id: str) -> str:
        """The lines that the instances of a task logged, without the padding of tables."""
        task, found = None, []
        for line in self.lines:
            if start := _TASK_STARTS.match(line):
                task = start[1]
            if task == task_id:
                found.append(re.sub(" +", " ", line))
        return "\n".join(found)


@pytest.fixture(scope="package", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The database of the catalog: each in turn."""
    return str(request.param)


@pytest.fixture(scope="package")
def home(database: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all files: raw ones in `landing`, tables in `warehouse`, logs of jobs, and the list of tables."""
    home = tmp_path_factory.mktemp("runs")
    listed: dict[str, Any] = yaml.safe_load((REPOSITORY / "tables.yaml").read_text())
    tables = {LISTED: listed["tables"][LISTED], COMPACTED: {"compaction": {"min_files": 3, "min_age": "0m"}}}
    (home / "tables.yaml").write_text(yaml.safe_dump({**listed, "tables": tables}, sort_keys=False))
    settings = {"spark.jars": ",".join(map(str, spark_jars())), **CODE_GENERATION}
    (home / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return home


@pytest.fixture(scope="package")
def environment(request: pytest.FixtureRequest, database: str, home: Path) -> dict[str, str]:
    """The variables of runs. They are set only while one runs: this folder's fixtures stay until all tests have run."""
    if database == "sqlite":
        url = f"sqlite:///{home}/catalog.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        server.create_database("runs", owner=CATALOG_OWNER, template=request.getfixturevalue("postgres_template"))
        url = server.url("runs", user=CATALOG_OWNER)
    java_home = require_java()
    return {
        "CALVE_CATALOG_URL": url,
        "CALVE_HOME": str(home),
        "CALVE_WAREHOUSE": str(home / "warehouse"),
        "CALVE_TABLES": str(home / "tables.yaml"),
        "CALVE_SPARK_SESSION": "shared",
        "CALVE_SPARK_IDLE_SECONDS": "120",
        # All packages are among Spark's jars, so that jobs with and without them share an application.
        "CALVE_SPARK_PACKAGES": "none",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "SPARK_CONF_DIR": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": jvm_options(java_home),
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "plugins"))),
    }


@pytest.fixture(scope="package")
def catalog(environment: dict[str, str]) -> Iterator[Catalog]:
    """The catalog of all runs; each test has databases of its own."""
    url, warehouse = environment["CALVE_CATALOG_URL"], environment["CALVE_WAREHOUSE"]
    with Catalog.initialise(url, warehouse=warehouse) as catalog:
        yield catalog
        with patch.dict(os.environ, environment):
            _end_applications(catalog)


def _end_applications(catalog: Catalog) -> None:
    from sqlalchemy import select

    from catalog.storage.schema import SparkApplicationRow

    with catalog.storage.read() as connection:
        running = connection.execute(select(SparkApplicationRow.id, SparkApplicationRow.log_path)).all()
    for application_id, log_path in running:
        catalog.operations.applications.close(application_id)
        process = recorded_process(log_path)
        wait_until(lambda process=process: not process.is_application_alive, "the Spark application has ended")


def _read_dag(dag_id: str, form: Mapping[str, object]) -> DAG:
    """Return a DAG of the folder `dags` for a run with a form."""
    from airflow.dag_processing.dagbag import DagBag

    path = REPOSITORY / "dags" / f"{dag_id.partition('.')[0]}_dag.py"
    bag = DagBag(str(path), bundle_name="dags-folder")
    assert bag.import_errors == {}
    dag: DAG = bag.dags[dag_id]
    # Else `dag.test()` has no values of required fields when it calls the DAG's own callback for a failure.
    dag.params.update(form)
    return dag


class _Lines(logging.Handler):
    """The lines that are logged in a block: by tasks through structlog, by all others through `logging`."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += record.getMessage().splitlines()

    def __call__(self, logger: object, method: str, event: EventDict) -> EventDict:
        """Take an event as a processor of structlog."""
        from structlog.processors import format_exc_info

        shown = format_exc_info(logger, method, dict(event))
        # The reason is that of a skipped task.
        self.lines += [
            line for name in ("event", "reason", "exception") for line in str(shown.get(name, "")).splitlines()
        ]
        return event

    def __enter__(self) -> Self:
        import structlog

        # In place: loggers keep the list that they had when they were used first. The last one writes.
        self._processors = structlog.get_config()["processors"]
        self._processors.insert(len(self._processors) - 1, self)
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._processors.remove(self)
        logging.getLogger().removeHandler(self)


@pytest.fixture(scope="package")
def run_dag(catalog: Catalog, environment: dict[str, str], airflow_database: None) -> Callable[..., Run]:
    """A function that runs a DAG to its end: DAG, form, and the state in which it shall end."""

    def run(dag_id: str, form: dict[str, object] | None = None, expected: str = "success") -> Run:
        with patch.dict(os.environ, environment), _Lines() as logged:
            ended = _read_dag(dag_id, form or {}).test(run_conf=form)
        assert ended.state == expected, "\n".join(logged.lines[-200:])
        return Run(ended, tuple(logged.lines))

    return run
