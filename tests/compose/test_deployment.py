"""docker-compose.yaml in real containers: loads, front doors, a migration, failures of each service, an upgrade."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError

from standalone.environment import REPOSITORY
from standalone.landing import land_flights
from tests.support.deployment import ACCESS_KEY, Deployment, wait
from tests.support.hms_door import connected
from tests.support.image_scan import places, settings_of_this_machine

DATABASE, NAME, KEYS = "demo", "flights", ("origin", "carrier", "year", "month")
TABLE, MIGRATED = f"{DATABASE}.{NAME}", f"{DATABASE}.migrated"
"""A table that is loaded every now and then, and one that becomes an Iceberg table after its first load."""

MIGRATE = "migrate_hive_to_iceberg"
RUN_SECONDS = 1800

GROUPS = [
    *(("postgres",), ("s3",), ("spark-master",), ("spark-worker-1", "spark-worker-2"), ("doors",), ("api-server",)),
    ("scheduler", "dag-processor", "triggerer"),
]
"""All services but the set-up; those whose health is seldom checked fail together."""


class Flights:
    """The flights of 2013 that have been loaded.

    Attributes:
        rows: How many there are.
        migrated_rows: How many there were when a table was migrated.
        partitions: Their partitions.
    """

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.rows = self.migrated_rows = 0
        self.partitions: set[tuple[str, ...]] = set()
        self._deployment = deployment
        self._folder = folder
        self._months = iter(range(1, 13))

    def load(self, what: str, *tables: str) -> None:
        """Deliver the flights of the next month, and load them into tables through Airflow's API."""
        (path,) = land_flights(self._folder, [next(self._months)])
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        self._deployment.storage.put_object(Bucket="lake", Key=f"landing/flights/{path.name}", Body=path.read_bytes())
        with self._deployment.step(f"load a month {what}"):
            for table in tables or (TABLE,):
                run_dag(self._deployment, f"add_partitions.{table}", {})
        self.rows += len(rows)
        self.partitions |= {tuple(row[key] for key in KEYS) for row in rows}


def run_dag(deployment: Deployment, dag: str, form: dict[str, object]) -> None:
    api = deployment.api
    run = api.trigger(dag, form, timeout_seconds=180)
    state = api.wait(dag, run, RUN_SECONDS)
    tasks = {task["task_id"]: task["state"] for task in api.task_instances(dag, run)}
    failed = [task for task, state in tasks.items() if state == "failed"]
    assert state == "success", "\n".join([str(tasks), *(api.task_log(dag, run, task)[-3000:] for task in failed)])


@pytest.fixture(scope="module")
def flights(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Flights:
    """The flights; no test has loaded any yet."""
    return Flights(deployment, tmp_path_factory.mktemp("flights"))


@contextmanager
def metastore(deployment: Deployment, secret: str) -> Iterator[Any]:
    with connected(deployment.ports["hms"], (ACCESS_KEY, secret)) as client:
        yield client


def glue(deployment: Deployment, secret: str) -> Any:
    return boto3.client(
        "glue",
        endpoint_url=f"http://127.0.0.1:{deployment.ports['glue']}",
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=secret,
    )


def rest(deployment: Deployment, secret: str) -> RestCatalog:
    options = deployment.storage_options
    return RestCatalog(
        "calve",
        **{
            "uri": f"http://127.0.0.1:{deployment.ports['rest']}",
            "credential": f"{ACCESS_KEY}:{secret}",
            "s3.endpoint": options["endpoint_url"],
            "s3.region": options["region_name"],
            "s3.access-key-id": options["aws_access_key_id"],
            "s3.secret-access-key": options["aws_secret_access_key"],
        },
    )


def assert_loaded(deployment: Deployment, flights: Flights) -> None:
    """Compare the partitions that two doors list, and the rows of their files."""
    secret = deployment.values["DOOR_SECRET_KEY"]
    with metastore(deployment, secret) as client:
        partitions = client.get_partitions(DATABASE, NAME, -1)
        assert client.get_partitions_by_filter(DATABASE, NAME, "month = 12", -1) == []
    assert {tuple(part.values) for part in partitions} == flights.partitions
    pages = glue(deployment, secret).get_paginator("get_partitions").paginate(DatabaseName=DATABASE, TableName=NAME)
    assert {tuple(part["Values"]) for page in pages for part in page["Partitions"]} == flights.partitions
    assert deployment.parquet_rows(part.sd.location for part in partitions) == flights.rows


def rows_of_pyiceberg(deployment: Deployment) -> int:
    """Return the number of rows that PyIceberg reads of the migrated table, which the other doors have to name."""
    secret = deployment.values["DOOR_SECRET_KEY"]
    table = rest(deployment, secret).load_table(MIGRATED)
    name = MIGRATED.partition(".")[2]
    with metastore(deployment, secret) as client:
        assert client.get_table(DATABASE, name).parameters["metadata_location"] == table.metadata_location
    shown = glue(deployment, secret).get_table(DatabaseName=DATABASE, Name=name)["Table"]
    assert shown["Parameters"]["metadata_location"] == table.metadata_location
    return int(table.scan(selected_fields=("flight",)).to_arrow().num_rows)


def test_the_image_has_nothing_of_this_machine(deployment: Deployment) -> None:
    with deployment.step("search the image"):
        description = re.search(r'^description = "(.*)"', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
        assert description is not None
        known = {"description": description[1].encode(), "a layer's file": b"/pyspark/jars/spark-core_"}
        secrets = {name: value.encode() for name, value in deployment.values.items() if len(value) > 30}
        wanted = {**settings_of_this_machine(), **secrets}
        found = places(deployment.engine, deployment.images[-1], {**wanted, **known})
    assert found.keys() == known.keys(), found
    (shown,) = json.loads(deployment.engine.run("image", "inspect", deployment.images[-1]))
    named = set(re.findall(r"(\w+)=", " ".join(re.findall(r"^ENV .*(?:\n {4}.*)*", dockerfile(), re.MULTILINE))))
    base = {"PATH", "LANG", "GPG_KEY", "PYTHON_VERSION", "PYTHON_SHA256"}
    assert named <= {variable.partition("=")[0] for variable in shown["Config"]["Env"]} <= named | base


def dockerfile() -> str:
    return (REPOSITORY / "Dockerfile").read_text()


def test_the_scheduler_has_the_processors_of_env(deployment: Deployment) -> None:
    limits = {service: entry["HostConfig"]["CpuQuota"] / 1e5 for service, entry in deployment.containers().items()}
    assert limits == {**dict.fromkeys(limits, 2), "scheduler": int(deployment.values["SCHEDULER_CPUS"])}


def test_no_process_is_of_root(deployment: Deployment) -> None:
    for service, container in deployment.containers().items():
        if container["State"]["Running"]:
            _, *lines = deployment.engine.run("top", container["Id"], "-eo", "pid,uid").splitlines()
            users = {line.split()[1] for line in lines}
            assert users, service
            assert "0" not in users, service


def test_files_on_s3_are_loaded_through_the_api_of_airflow(deployment: Deployment, flights: Flights) -> None:
    flights.load("into two new tables", TABLE, MIGRATED)
    assert_loaded(deployment, flights)


def test_the_doors_refuse_wrong_keys(deployment: Deployment) -> None:
    with pytest.raises(AssertionError, match="no client has this access key"), metastore(deployment, "wrong"):
        pass
    with pytest.raises(ClientError, match=r"[Ss]ignature"):
        glue(deployment, "wrong").get_databases()
    with pytest.raises(RESTError):
        rest(deployment, "wrong")


def test_a_table_is_migrated_and_read_by_pyiceberg(deployment: Deployment, flights: Flights) -> None:
    assert not rest(deployment, deployment.values["DOOR_SECRET_KEY"]).table_exists(MIGRATED)
    with deployment.step("migrate a table"):
        run_dag(deployment, MIGRATE, {"tables": [MIGRATED], "dry_run": False})
    flights.migrated_rows = flights.rows
    assert rows_of_pyiceberg(deployment) == flights.migrated_rows


@pytest.mark.parametrize("services", GROUPS, ids=" ".join)
def test_a_restarted_service_is_healthy_again(deployment: Deployment, services: tuple[str, ...]) -> None:
    before = {service: deployment.starts()[service] for service in services}
    with deployment.step(f"restart {' '.join(services)}"):
        deployment.compose("restart", "--no-deps", *services)
        deployment.wait_until_healthy(before)
        deployment.wait_for_heartbeats()


def test_loads_work_after_all_restarts(deployment: Deployment, flights: Flights) -> None:
    flights.load("after the restarts")
    assert_loaded(deployment, flights)


@pytest.mark.parametrize("services", GROUPS, ids=" ".join)
def test_a_killed_service_recovers(deployment: Deployment, services: tuple[str, ...]) -> None:
    before = {service: deployment.starts()[service] for service in services}
    with deployment.step(f"kill {' '.join(services)}"):
        for service in services:
            deployment.kill(service)
        deployment.wait_until_healthy(before)
        deployment.wait_for_heartbeats()


def test_loads_work_after_all_kills(deployment: Deployment, flights: Flights) -> None:
    wait(lambda: 2 - alive_workers(deployment), "workers are missing at Spark's master", 120)
    flights.load("after the kills")
    assert_loaded(deployment, flights)


def alive_workers(deployment: Deployment) -> int:
    script = "import json, urllib.request as r; print(json.load(r.urlopen('http://spark-master:8081/json/'))['aliveworkers'])"
    return int(deployment.compose("exec", "--no-TTY", "scheduler", "python", "-c", script))


def test_an_upgraded_image_has_the_data_of_the_former_one(deployment: Deployment, flights: Flights) -> None:
    project = deployment.folder / "pyproject.toml"
    project.write_text(re.sub(r'^version = "(.*)"', r'version = "\1.post1"', project.read_text(), flags=re.MULTILINE))
    former, before = deployment.images[-1], deployment.containers()
    with deployment.step("build the next image"):
        image = deployment.build()
    with deployment.step("replace the containers"):
        deployment.up()
    after = deployment.containers()
    for service, container in before.items():
        expected = image if container["Config"]["Image"] == former else container["Config"]["Image"]
        assert after[service]["Config"]["Image"] == expected, service
    version = deployment.compose("exec", "--no-TTY", "doors", "calve", "--version")
    assert ".post1" in version
    assert_loaded(deployment, flights)
    assert rows_of_pyiceberg(deployment) == flights.migrated_rows
    flights.load("after the upgrade")
    assert_loaded(deployment, flights)


def test_nothing_is_left(deployment: Deployment) -> None:
    with deployment.step("take it down"):
        deployment.down()
    assert deployment.leftovers() == ""
