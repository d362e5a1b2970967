"""Fixtures for tests of Airflow tasks, without running components of Airflow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from catalog import Catalog
    from standalone.postgres import PostgresServer


@pytest.fixture
def empty_catalog(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog with a database `demo`, set in `CALVE_CATALOG_URL`."""
    from catalog import Catalog

    monkeypatch.setenv("CALVE_CATALOG_URL", sqlite_url)
    with Catalog.open(sqlite_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        yield catalog


@pytest.fixture
def catalog(empty_catalog: Catalog, unfit_values: None) -> Catalog:
    """A catalog with a table that has an invalid partition for an index on its month."""
    from catalog import NewPartition

    keys = [("carrier", "string"), ("month", "int")]
    empty_catalog.create_table("demo.flights", columns=[("delay", "int")], partition_keys=keys)
    empty_catalog.add_partitions("demo.flights", [NewPartition(("AA", "1")), NewPartition(("AA", "foo"))])
    return empty_catalog


@pytest.fixture
def stoppable_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A PostgreSQL server that belongs to one test, which may stop it and start it again."""
    from standalone.postgres import PostgresServer, free_port

    with PostgresServer(tmp_path_factory.mktemp("server"), free_port(), durable=False) as server:
        yield server


@pytest.fixture
def stoppable_catalog(
    stoppable_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    """A catalog on `stoppable_server`, with a database `demo`, set in `CALVE_CATALOG_URL`."""
    from catalog import Catalog

    stoppable_server.create_database("outage")
    url = stoppable_server.url("outage")
    monkeypatch.setenv("CALVE_CATALOG_URL", url)
    with Catalog.initialise(url, warehouse=str(tmp_path / "warehouse")) as catalog:
        catalog.create_database("demo")
        yield catalog


@pytest.fixture(scope="session")
def airflow_database() -> None:
    """Airflow's database, for `dag.test()`."""
    from airflow import settings
    from airflow.utils.db import initdb

    assert settings.SQL_ALCHEMY_CONN is not None
    assert os.environ["AIRFLOW_HOME"] in settings.SQL_ALCHEMY_CONN, "Airflow was imported before its settings were made"
    initdb()


@pytest.fixture
def load_dag(airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], DAG]:
    """A function that writes a DAG file and returns one of its DAGs, for `dag.test()`."""

    def load(code: str, dag_id: str) -> DAG:
        from airflow.dag_processing.dagbag import DagBag

        folder = tmp_path / "dags"
        folder.mkdir(exist_ok=True)
        (folder / "dags.py").write_text(code)
        monkeypatch.setattr("airflow.settings.DAGS_FOLDER", str(folder))
        bag = DagBag(str(folder), bundle_name="dags-folder")
        assert bag.import_errors == {}
        return bag.dags[dag_id]

    return load


@pytest.fixture(scope="session")
def java_home() -> Path:
    """The home of a Java that Spark supports."""
    from standalone.java import require_java

    return require_java()
