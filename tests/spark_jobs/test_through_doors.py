"""Spark, unmodified, on a running `calve serve`: the session that `calve spark-conf` prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, IndexDefinition
from standalone.calve_server import CalveServer
from tests.support.commands import calve
from tests.support.hive_spark import HiveSpark

pytestmark = pytest.mark.spark


@pytest.fixture
def server(catalog_url: str, warehouse: Path, tmp_path: Path) -> Iterator[CalveServer]:
    environment = {"CALVE_CATALOG_URL": catalog_url, "CALVE_WAREHOUSE": str(warehouse)}
    options = ("--workers", "1")
    doors = ("hms", "rest", "metrics")
    with CalveServer(tmp_path, doors=doors, options=options, environment=environment) as server:
        yield server


@pytest.fixture
def session(server: CalveServer, warehouse: Path, tmp_path: Path, iceberg_jar: Path) -> Iterator[HiveSpark]:
    arguments = ("--hms", server.address("hms"), "--rest", f"http://{server.address('rest')}")
    printed = calve("spark-conf", *arguments, CALVE_WAREHOUSE=str(warehouse), CALVE_SPARK_PACKAGES="none").stdout
    settings = dict(line.split(" ", 1) for line in printed.splitlines())
    with HiveSpark(None, tmp_path, iceberg_jar, settings) as spark:
        yield spark


MERGE = (
    "MERGE INTO {table} USING (SELECT {known}L AS id, 'paid' AS state UNION ALL SELECT {new}L, 'new') changes "
    "ON {table}.id = changes.id WHEN MATCHED THEN UPDATE SET state = changes.state WHEN NOT MATCHED THEN INSERT *"
)
EVENTS = (
    "CREATE TABLE shop.events (state string) PARTITIONED BY (id bigint) STORED BY 'carbondata' "
    "TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='100, 200')"
)


@pytest.mark.long
def test_tables_of_all_kinds_are_natural_in_one_session(
    session: HiveSpark, server: CalveServer, catalog: Catalog, catalog_url: str
) -> None:
    catalog.create_database("shop")
    catalog.create_table(
        "shop.clicks",
        columns=[("id", "bigint")],
        partition_keys=[("country", "string"), ("day", "date")],
        indexes=[IndexDefinition("by_day", ("day", "country"))],
    )
    # Hive-style, through the Hive Metastore door.
    days = ("2024-05-01", "2024-05-02")
    values = ", ".join(f"({number}, '{country}', DATE '{day}')" for number, (country, day) in enumerate(_pairs(days)))
    session.rows(f"INSERT INTO shop.clicks VALUES {values}")
    assert len(list(catalog.get_partitions("shop.clicks"))) == 4
    found = session.rows("SELECT id, day FROM shop.clicks WHERE day = DATE '2024-05-02' AND country = 'DE'")
    assert found == [(2, str(date(2024, 5, 2)))]
    assert 'calve_door_searches_total{table="shop.clicks",way="index"}' in _metrics(server)
    # Iceberg, through the REST door, in the same catalog of Spark.
    session.rows("CREATE TABLE shop.orders (id BIGINT, state STRING) USING iceberg")
    session.rows("INSERT INTO shop.orders VALUES (1, 'new'), (2, 'new')")
    session.rows(MERGE.format(table="shop.orders", known=2, new=3))
    expected = [(1, "new"), (2, "paid"), (3, "new")]
    assert session.rows("SELECT * FROM shop.orders ORDER BY id") == expected
    assert session.rows("SELECT * FROM calve.shop.orders ORDER BY id") == expected
    # With a partition scheme, through the REST door: what Spark commits is what the catalog has.
    assert calve("sql", EVENTS, CALVE_CATALOG_URL=catalog_url).exit_code == 0
    session.rows("INSERT INTO shop.events (id, state) VALUES (1, 'new'), (150, 'new')")
    session.rows(MERGE.format(table="shop.events", known=150, new=250))
    expected = [(1, "new"), (150, "paid"), (250, "new")]
    assert session.rows("SELECT id, state FROM shop.events ORDER BY id") == expected
    assert sum(partition.row_count or 0 for partition in catalog.scheme_partitions("shop.events")) == len(expected)
    assert {"clicks", "events", "orders"} <= {name for _, name, _ in session.rows("SHOW TABLES IN shop")}


def _pairs(days: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(country, day) for day in days for country in ("DE", "US")]


def _metrics(server: CalveServer) -> str:
    from urllib.request import urlopen

    with urlopen(f"http://{server.address('metrics')}/metrics", timeout=10) as response:
        return str(response.read().decode())


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_avro_rows_are_the_same_for_the_classes_of_hive(
    session: HiveSpark, catalog: Catalog, catalog_url: str, warehouse: Path
) -> None:
    values = "(1, 'ab', 1.50, TIMESTAMP '2024-05-01 12:00:00.123', array(named_struct('x', 2)), 1)"
    columns = "id smallint, c char(3), d decimal(5,2), t timestamp, a array<struct<x:int>>"
    text = (
        f"CREATE DATABASE shop; CREATE TABLE shop.facts ({columns}) PARTITIONED BY (k int) STORED AS AVRO; "
        f"INSERT INTO shop.facts SELECT * FROM VALUES {values}"
    )
    selected = "SELECT id, c, d, date_format(t, 'yyyy-MM-dd HH:mm:ss.SSS') AS t, a[0].x AS x, k FROM shop.facts"
    environment = {**os.environ, "CALVE_CATALOG_URL": catalog_url, "CALVE_WAREHOUSE": str(warehouse)}

    def run(statements: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "catalog.cli", "sql", "--json", statements]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        return [json.loads(line) for line in done.stdout.splitlines()]

    run(text)
    expected = (1, "ab ", "1.50", "2024-05-01 12:00:00.123", 2, 1)
    assert session.rows(selected) == [expected]
    session.rows(f"INSERT INTO shop.facts VALUES {values.replace('(1,', '(2,')}")
    assert session.rows(f"{selected} ORDER BY id") == [expected, (2, *expected[1:])]
    assert run(f"{selected} ORDER BY id")[-1]["rows"] == [[1, *expected[1:]], [2, *expected[1:]]]
