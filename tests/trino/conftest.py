"""Trino on all doors of one catalog, with two tables that Calve has written."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog
from standalone.postgres import PostgresServer
from tests.support.trino_lake import Lake, running_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTRIES = [f"C{number:02}" for number in range(20)]
_NUMBERS = itertools.count(1)
DAYS = [date(2024, 1, 1) + timedelta(number) for number in range(50)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.trino)


@pytest.fixture(scope="session")
def lake(
    postgres: PostgresServer, postgres_template: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """The lake, with the tables `calve.visits` of 1,000 partitions and an index, and `calve.ranged` with a scheme."""
    from catalog.statements.session import Session
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    folder = tmp_path_factory.mktemp("lake")
    postgres.create_database("trino_lake")
    url = postgres.url("trino_lake")
    environment = {
        "CALVE_CATALOG_URL": url,
        "CALVE_WAREHOUSE": str(folder / "warehouse"),
        "CALVE_HOME": str(folder),
        "CALVE_ALLOWED_LOCATIONS": str(folder / "tables"),
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        Catalog.initialise(url, warehouse=environment["CALVE_WAREHOUSE"]) as catalog,
    ):
        patch.setenv("CALVE_WAREHOUSE", environment["CALVE_WAREHOUSE"])
        configured = configure(spark)
        with (
            Session(catalog, start=lambda opened: SparkEngine(opened, configured)) as session,
            running_lake(catalog, session, folder, environment) as lake,
        ):
            _write(lake)
            yield lake


def _write(lake: Lake) -> None:
    source = lake.folder / "visits.csv"
    with source.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "amount", "country", "day"])
        for number, (country, day) in enumerate(itertools.product(COUNTRIES, DAYS)):
            writer.writerow([number, number / 4, country, day])
    for statement in (
        "CREATE DATABASE calve",
        "CREATE TABLE calve.visits (id bigint, amount double) PARTITIONED BY (country string, day date) "
        "PARTITION INDEX by_country (country, day), PARTITION INDEX by_day (day) STORED AS PARQUET",
        f"LOAD DATA INPATH '{source}' INTO TABLE calve.visits",
        "CREATE TABLE calve.ranged (id bigint, amount double) PARTITIONED BY (day date) STORED BY 'carbondata' "
        "TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2024-01-11, 2024-02-01', 'SORT_COLUMNS'='id')",
        "INSERT INTO calve.ranged SELECT id, amount, day FROM calve.visits",
    ):
        lake.session.execute(statement)


@pytest.fixture
def schema(lake: Lake) -> Iterator[str]:
    """The name of a new database, which is dropped at the end with what a test has left in it."""
    name = f"schema{next(_NUMBERS)}"
    lake.trino.run(f"CREATE SCHEMA hive.{name}")
    yield name
    lake.catalog.drop_database(name, cascade=True)
