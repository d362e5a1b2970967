"""The whole stack with its warehouse and its raw files on an S3 server, whose credentials are in the environment."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow.parquet
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from catalog import Catalog
from catalog.files import object_stores
from standalone.airflow_api import AirflowApi
from standalone.environment import ADMIN, REPOSITORY, VIEWER
from standalone.state import read_passwords
from tests.end_to_end.conftest import BUNDLES, CARRIERS, PEOPLE, SCHEDULING_PAUSE, USERS, Run, bundles
from tests.support.cluster_stack import cluster_stack
from tests.support.iceberg_tables import PARTITIONS
from tests.support.object_store import ObjectStore, StoreClient
from tests.support.watched_endpoint import WatchedEndpoint

if TYPE_CHECKING:
    from standalone.stack import Stack

LANDING = "s3a://lake/landing"
HIVE_STYLE, STORED_AS_ICEBERG = "demo.flights", "lake.flights"
DAGS = "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"


@pytest.fixture(scope="package", params=["local", pytest.param("cluster", marks=pytest.mark.long)])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack, with two listed tables whose sources are on S3, and with its credentials in this process.

    Its Spark is local, or a cluster of two workers; then, all its processes belong to another user than root.
    """
    home, listed = tmp_path_factory.mktemp("stack-on-s3"), _listed_tables()
    if request.param == "cluster":
        with cluster_stack(home) as running:
            Path(running.environment["CALVE_TABLES"]).write_text(listed)
            object_stores.forget()
            yield running
    else:
        server, endpoint = (request.getfixturevalue(name) for name in ("object_store_server", "endpoint"))
        with _local_stack(home, listed, {**server.environment, "AWS_ENDPOINT_URL": endpoint.url}) as running:
            object_stores.forget()
            yield running
    object_stores.forget()


@contextmanager
def _local_stack(home: Path, listed: str, storage: Mapping[str, str]) -> Iterator[Stack]:
    from standalone.stack import Stack, use_storage

    tables = home / "tables.yaml"
    tables.write_text(listed)
    environment = {
        **storage,
        "CALVE_TABLES": str(tables),
        DAGS: "3600",
        SCHEDULING_PAUSE: "1",
        "CALVE_ALLOWED_LOCATIONS": LANDING,
        "CALVE_QUALITY_PAGES": "s3://lake/quality",
        "CALVE_SELF_APPROVAL": "false",
        USERS: ",".join([f"{ADMIN}:admin", f"{VIEWER}:viewer", *(f"{person}:op" for person in PEOPLE)]),
        BUNDLES: bundles(Path(__file__).parent / "dags"),
    }
    with mock.patch.dict(os.environ):
        use_storage(storage)
        with Stack(home, warehouse="s3://lake/warehouse", env=environment, durable=False) as running:
            yield running


def _listed_tables() -> str:
    listed = yaml.safe_load((REPOSITORY / "tables.yaml").read_text())["tables"][HIVE_STYLE]
    listed["source"] = f"{LANDING}/*.csv"
    listing = {"tables": {HIVE_STYLE: listed, STORED_AS_ICEBERG: {**listed, "format": "iceberg"}}}
    return yaml.safe_dump(listing, sort_keys=False)


@pytest.fixture(scope="package")
def endpoint(object_store_server: ObjectStore) -> Iterator[WatchedEndpoint]:
    """The address under which the local stack reaches the server, which has an empty bucket `lake`."""
    object_store_server.empty_bucket()
    with WatchedEndpoint(object_store_server.url) as endpoint:
        yield endpoint


@pytest.fixture(scope="package")
def store(stack: Stack) -> StoreClient:
    """The stack's S3 server."""
    return StoreClient(stack.environment)


@pytest.fixture(scope="package")
def catalog(stack: Stack) -> Iterator[Catalog]:
    """The stack's catalog, seen from outside."""
    with Catalog.open(stack.catalog_url, warehouse=stack.warehouse) as opened:
        yield opened


@pytest.fixture(scope="package")
def start_dag(stack: Stack) -> Callable[..., Run]:
    """A function that starts a run: DAG and form."""

    def start(dag_id: str, form: dict[str, object] | None = None) -> Run:
        return Run(stack.api, dag_id, stack.api.trigger(dag_id, form))

    return start


@pytest.fixture(scope="package")
def approve(stack: Stack) -> Callable[[Run], None]:
    """A function that approves what a run asks for, as another person than who has started it, if there is one."""

    def answer(run: Run) -> None:
        name = PEOPLE[1] if PEOPLE[1] in read_passwords(stack.home) else ADMIN
        Run(user_api(stack, name), run.dag_id, run.id).answer("Approve")

    return answer


def user_api(stack: Stack, name: str) -> AirflowApi:
    """Return Airflow's REST API as a user of the stack."""
    return AirflowApi(stack.url, name, read_passwords(stack.home)[name])


@pytest.fixture(scope="package")
def deliver(store: StoreClient, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[dict[str, Any]]]:
    """A function that puts the flights of a month on S3 as a raw file, and returns them."""
    from standalone.landing import land_flights

    paths = list(land_flights(tmp_path_factory.mktemp("flights"), range(1, 3)))

    def put(month: int) -> list[dict[str, Any]]:
        with paths[month - 1].open(encoding="utf-8", newline="") as file:
            flights = [row for row in csv.DictReader(file) if row["carrier"] in CARRIERS]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(flights[0]))
        writer.writeheader()
        writer.writerows(flights)
        store.put({f"landing/flights-{month}.csv": text.getvalue().encode()})
        return flights

    return put


def iceberg_rows(stack: Stack, table: str) -> list[dict[str, Any]]:
    """Return the rows that PyIceberg reads."""
    properties = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": os.environ["AWS_REGION"]}
    iceberg = SqlCatalog("calve", uri=stack.catalog_url, **properties)
    try:
        rows: list[dict[str, Any]] = iceberg.load_table(table).scan().to_arrow().to_pylist()
        return rows
    finally:
        iceberg.engine.dispose()


def write_orders(catalog: Catalog, name: str) -> None:
    """Write the files of a table of orders, as Hive does, into the folders of its partitions."""
    for values, ids in PARTITIONS.items():
        path = f"{catalog.get_partition(name, values).location.removeprefix('s3://')}/part-0.parquet"
        rows = {"id": pyarrow.array(ids, pyarrow.int64()), "note": pyarrow.array([f"n{number}" for number in ids])}
        pyarrow.parquet.write_table(pyarrow.table(rows), path, filesystem=object_stores.s3_file_system("lake"))
