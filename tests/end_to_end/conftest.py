"""What a test of the whole path needs: real flights as raw files, runs of DAGs, and an independent reader."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import duckdb
import pytest
import yaml

from catalog import Catalog, PartitionState
from catalog.errors import NotFoundError
from standalone.environment import ADMIN, REPOSITORY, VIEWER

if TYPE_CHECKING:
    from standalone.airflow_api import AirflowApi
    from standalone.stack import Stack

CARRIERS = ("AS", "F9", "HA", "YV")
"""Four small carriers at all three airports: four partitions, and some 180 flights, a month."""

RUN_TIMEOUT_SECONDS = 900.0

ADVISED = "advisor.delays"
"""A table of the stack whose partitions may be changed without a person."""

COMPACTED = "lake.compacted"
"""A table of the stack whose small files are compacted."""

STORED_AS_ICEBERG = "lake.flights"
"""A table of the stack that is loaded like the demo's, but stored as Iceberg."""

BY_DAY = "lake.visits"
"""A table of the stack each of whose runs loads the file of its day."""

SHOPS = {"shop.hive": "parquet", "shop.iceberg": "iceberg"}
"""Tables of the stack, loaded from the files of days or from those that a form names → their format."""

WALKED, SPLIT_ON_THE_WALK = "walk.orders", "walk.delays"
"""Tables of the walk through the pages: one of files with a bad day, and one whose changes a person must approve."""

PEOPLE = ("ann", "ben")
"""Users of the stack with the role op."""

PLANTED = {
    "AIRFLOW__CORE__FERNET_KEY": "cGxhbnRlZC1mZXJuZXQta2V5LW9mLTMyLWJ5dGVzISE=",
    "AIRFLOW__API_AUTH__JWT_SECRET": "planted-jwt-secret-0123456789abcdef-0123456789abcdef-0123456789abcdef",
    "AIRFLOW_CONN_PLANTED": "postgresql://somebody:planted-connection-password@nowhere/db",
    "AIRFLOW_VAR_PLANTED": "planted-airflow-variable",
    "AWS_ACCESS_KEY_ID": "planted-access-key-id",
    "AWS_SECRET_ACCESS_KEY": "planted-secret-access-key",
    "AWS_SESSION_TOKEN": "planted-session-token",
    "AZURE_CLIENT_SECRET": "planted-client-secret",
    "SERVICE_TOKEN": "planted-token-of-another-service",
}
"""Secrets in the environment of the stack, none of which may be found anywhere else."""

USERS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
BUNDLES = "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"
_PARSING_PAUSE = "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"
SCHEDULING_PAUSE = "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME"


def _listed_tables() -> dict[str, Any]:
    """Return the list of tables with those that the tests load."""
    listed: dict[str, Any] = yaml.safe_load((REPOSITORY / "tables.yaml").read_text())
    listed["tables"] |= {
        ADVISED: {"rebalance": {"apply": True}},
        WALKED: {
            "source": "${CALVE_HOME}/landing/walk",
            "keys": {"country": "string", "day": "date"},
            "indexes": {"by_day": ["day", "country"]},
            "quality": {"on_failure": "quarantine", "columns": {"amount": {"min": 0}}},
        },
        SPLIT_ON_THE_WALK: {"rebalance": {"approval": True}},
        COMPACTED: {"compaction": {"min_files": 3, "min_age": "0m"}},
        BY_DAY: {"source": "${CALVE_HOME}/landing/visits/{{ ds }}.csv", "keys": {"day": "date"}, "schedule": "@daily"},
        **{
            name: {
                "source": f"${{CALVE_HOME}}/landing/{name}/daily/{{{{ ds }}}}.csv",
                "schedule": "@daily",
                "keys": {"country": "string", "day": "int"},
                "columns": {"id": "bigint", "customer": "bigint", "amount": "decimal(9,2)", "note": "string"},
                "format": table_format,
                "merge": {"keys": ["id"], "delete": "note = 'gone'"},
            }
            for name, table_format in SHOPS.items()
        },
        STORED_AS_ICEBERG: {
            **listed["tables"]["demo.flights"],
            "source": "${CALVE_HOME}/landing/iceberg",
            "format": "iceberg",
            "quality": {"columns": {"time_hour": {"max_null_ratio": 0}}},
        },
    }
    return listed


def bundles(folder: Path) -> str:
    """Return Airflow's list of the folders of DAGs: its own, and another one."""
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    of_tests = {"path": str(folder), "refresh_interval": 3600}
    return json.dumps(
        [
            {"name": "dags-folder", "classpath": local, "kwargs": {}},
            {"name": "tests", "classpath": local, "kwargs": of_tests},
        ]
    )


@pytest.fixture(scope="package", params=["postgresql", "sqlite"])
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark_configuration: Path
) -> Iterator[Stack]:
    """The whole stack, and test DAGs beside its own; the catalog on each database in turn, Airflow's on PostgreSQL.

    A test for one database only says `@pytest.mark.parametrize("stack", ["postgresql"], indirect=True)`, and one with
    many loads `postgresql-shared`, so that they start Spark once; there, nobody approves their own requests.
    """
    from standalone.stack import Stack

    database, _, scope = request.param.partition("-")
    home = tmp_path_factory.mktemp("stack")
    tables = home / "tables.yaml"
    tables.write_text(yaml.safe_dump(_listed_tables(), sort_keys=False))
    # No file changes, and parsing them as often as usual takes half of a core.
    environment = {
        BUNDLES: bundles(Path(__file__).parent / "dags"),
        _PARSING_PAUSE: "3600",
        SCHEDULING_PAUSE: "0.5",
        "CALVE_TABLES": str(tables),
        # The default, which the stack replaces.
        "CALVE_SPARK_SESSION": scope or "load",
        "CALVE_SELF_APPROVAL": str(scope != "shared").lower(),
        USERS: ",".join([f"{ADMIN}:admin", f"{VIEWER}:viewer", *(f"{person}:op" for person in PEOPLE)]),
        **PLANTED,
    }
    environment["CALVE_ALLOWED_LOCATIONS"] = str(tmp_path_factory.getbasetemp())
    catalog_url = f"sqlite:///{home}/catalog.db" if database == "sqlite" else None
    environment["SPARK_CONF_DIR"] = str(spark_configuration)
    with Stack(home, catalog_url=catalog_url, env=environment, durable=False) as running:
        yield running


@pytest.fixture(scope="package")
def spark_configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of settings with which Spark writes its events, as plain text, below `events`."""
    folder = tmp_path_factory.mktemp("spark")
    (folder / "events").mkdir()
    settings = {"enabled": "true", "compress": "false", "rolling.enabled": "false", "dir": f"file:{folder}/events"}
    lines = [f"spark.eventLog.{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder


@pytest.fixture(scope="package")
def catalog(stack: Stack) -> Iterator[Catalog]:
    """The stack's catalog, seen from outside."""
    with Catalog.open(stack.catalog_url, warehouse=stack.warehouse) as opened:
        yield opened


@dataclass(frozen=True)
class Run:
    """One run of a DAG."""

    api: AirflowApi
    dag_id: str
    id: str

    @property
    def operation_id(self) -> str:
        return f"{self.dag_id}/{self.id}"

    def wait(self, expected: str = "success") -> Run:
        """Wait for the run's end; when it ended otherwise than expected, say what its failed tasks said."""
        state = self.api.wait(self.dag_id, self.id, RUN_TIMEOUT_SECONDS)
        if state != expected:
            failed = [task for task in self.api.task_instances(self.dag_id, self.id) if task["state"] == "failed"]
            logs = [f"{task['task_id']}:\n{self.log(task['task_id'], task['try_number'])[-3000:]}" for task in failed]
            pytest.fail(f"{self.operation_id} ended as {state}, expected {expected}\n" + "\n".join(logs))
        return self

    def states(self) -> dict[str, str | None]:
        """The state of each task; of a mapped one, of its last instance."""
        return {task["task_id"]: task["state"] for task in self.api.task_instances(self.dag_id, self.id)}

    def wait_for(self, task_id: str, *states: str, try_number: int = 1) -> None:
        """Wait until a try of a task, or a later one, is in one of these states."""
        deadline = time.monotonic() + RUN_TIMEOUT_SECONDS
        while True:
            task = next(each for each in self.api.task_instances(self.dag_id, self.id) if each["task_id"] == task_id)
            if task["state"] in states and task["try_number"] >= try_number:
                return
            assert time.monotonic() < deadline, f"{task_id} is {task['state']}, try {task['try_number']}"
            assert task["state"] not in {"success", "failed", "upstream_failed", "skipped"}, task["state"]
            time.sleep(0.3)

    def question(self) -> tuple[str, str]:
        """Wait until the run asks a person something; return subject and body."""
        self.wait_for("approve", "awaiting_input")
        detail = self.api.get(self._approval)
        return detail["subject"], detail["body"]

    def answer(self, option: str, expected: str = "success") -> None:
        """Answer as a person does: not at once, and again, when it is asked again; `expected` is the task's last state.

        Of an answer that comes before the worker has left the task, which nobody can see from outside, Airflow takes it
        that the task was killed.
        """
        deadline = time.monotonic() + RUN_TIMEOUT_SECONDS
        while (state := self.states()["approve"]) != expected:
            assert time.monotonic() < deadline, f"approve is {state}"
            assert state not in {"success", "failed", "upstream_failed", "skipped"}, state
            if state == "awaiting_input":
                time.sleep(2)
                self.api.patch(self._approval, {"chosen_options": [option], "params_input": {}})
            time.sleep(0.3)

    @property
    def _approval(self) -> str:
        return f"/dags/{self.dag_id}/dagRuns/{quote(self.id, safe='')}/taskInstances/approve/-1/hitlDetails"

    def tries(self, task_id: str) -> int:
        tasks = self.api.task_instances(self.dag_id, self.id)
        return next(int(task["try_number"]) for task in tasks if task["task_id"] == task_id)

    def result(self, task_id: str) -> Any:
        return self.api.xcom(self.dag_id, self.id, task_id)

    def log(self, task_id: str, try_number: int = 1, *, is_aligned: bool = True) -> str:
        text = self.api.task_log(self.dag_id, self.id, task_id, try_number)
        return text if is_aligned else re.sub(" +", " ", text)


@pytest.fixture(scope="package")
def start_dag(stack: Stack) -> Callable[..., Run]:
    """A function that starts a run: DAG and form."""

    def start(dag_id: str, form: dict[str, object] | None = None) -> Run:
        return Run(stack.api, dag_id, stack.api.trigger(dag_id, form))

    return start


@pytest.fixture(scope="package")
def run_dag(start_dag: Callable[..., Run]) -> Callable[..., Run]:
    """A function that runs a DAG to its end: DAG, form, and the state in which it shall end."""

    def run(dag_id: str, form: dict[str, object] | None = None, expected: str = "success") -> Run:
        return start_dag(dag_id, form).wait(expected)

    return run


@pytest.fixture(scope="package")
def months(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, str]]]:
    """The first months' flights of a few carriers, as the source system has them."""
    from standalone.landing import land_flights

    flights = {}
    for month, path in enumerate(land_flights(tmp_path_factory.mktemp("flights"), range(1, 4)), 1):
        with path.open(encoding="utf-8", newline="") as file:
            flights[month] = [row for row in csv.DictReader(file) if row["carrier"] in CARRIERS]
    return flights


@pytest.fixture(scope="package")
def deliver() -> Callable[[Path, list[dict[str, str]]], Path]:
    """A function that writes flights to a raw file, all at once, and returns its path."""

    def write(path: Path, flights: list[dict[str, str]]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(flights[0]))
        writer.writeheader()
        writer.writerows(flights)
        part = path.with_name(f".{path.name}.part")
        part.write_text(text.getvalue(), encoding="utf-8", newline="")
        return part.rename(path)

    return write


# Counts, and enough of the contents that no row can have been lost, doubled or swapped.
_DIGEST = """
    count(*), sum(distance::BIGINT), sum(dep_delay::BIGINT), count(air_time), sum(flight::BIGINT), min(tailnum),
    max(tailnum), min(time_hour::TIMESTAMP), max(time_hour::TIMESTAMP)
"""


@pytest.fixture(scope="package")
def read_source() -> Callable[..., dict[str, tuple[Any, ...]]]:
    """A function that reads raw files with DuckDB and digests what belongs to each partition."""

    def read(pattern: Path, keys: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
        query = f"SELECT {', '.join(keys)}, {_DIGEST} FROM read_csv('{pattern}', all_varchar=true) GROUP BY ALL"
        return _by_partition(query, keys)

    return read


@pytest.fixture(scope="package")
def read_table(catalog: Catalog) -> Callable[..., dict[str, tuple[Any, ...]]]:
    """A function that digests, with DuckDB, every data file below a table's location, whatever the catalog says."""

    def read(table: str) -> dict[str, tuple[Any, ...]]:
        definition = catalog.get_table(table)
        keys = definition.key_names
        pattern = f"{definition.location}/**/*.parquet"
        files = f"read_parquet('{pattern}', hive_partitioning=true, hive_types_autocast=false)"
        return _by_partition(f"SELECT {', '.join(keys)}, {_DIGEST} FROM {files} GROUP BY ALL", keys)

    return read


def _by_partition(query: str, keys: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
    with duckdb.connect() as connection:
        rows = connection.sql(query).fetchall()
    count = len(keys)
    return {"/".join(f"{k}={v}" for k, v in zip(keys, row, strict=False)): row[count:] for row in rows}


@dataclass(frozen=True)
class TableState:
    """What the catalog and the disk hold of a table: row counts of partitions, and sizes of files."""

    visible: dict[str, int | None]
    quarantined: dict[str, int | None]
    files: dict[str, int]

    @property
    def leftovers(self) -> set[str]:
        """Files that belong to no partition."""
        folders = {*self.visible, *self.quarantined}
        return {file for file in self.files if file.rpartition("/")[0] not in folders}


@pytest.fixture(scope="package")
def state_of(catalog: Catalog) -> Callable[[str], TableState | None]:
    """A function that looks at a table; None when there is none."""

    def look(name: str) -> TableState | None:
        try:
            table = catalog.get_table(name)
        except NotFoundError:
            return None
        partitions = {
            state: {each.name(table): each.row_count for each in catalog.get_partitions(name, state=state)}
            for state in PartitionState
        }
        root = Path(table.location)
        files = {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}
        return TableState(partitions[PartitionState.VISIBLE], partitions[PartitionState.QUARANTINED], files)

    return look


@pytest.fixture(scope="package")
def items_of(catalog: Catalog) -> Callable[[str, str], Counter[int]]:
    """A function that returns how many items an index has for each partition id."""
    from sqlalchemy import select

    from catalog.storage.schema import IndexItemRow

    def count(table: str, index: str) -> Counter[int]:
        query = select(IndexItemRow.partition_id).where(
            IndexItemRow.index_id == catalog.get_partition_index(table, index).id
        )
        with catalog.storage.read() as connection:
            return Counter(connection.scalars(query))

    return count
