"""Tables that Spark itself has made in a Hive Metastore come into the catalog as what they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog import Catalog, FileFormat
from catalog.importing.reports import ImportOutcome
from catalog.model import TableKind
from standalone.class_archive import jvm_options
from standalone.java import require_java
from tests.hive_metastore import HiveMetastoreServer

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STATEMENTS = (
    "CREATE DATABASE shop COMMENT 'What Spark made'",
    "CREATE TABLE shop.hive (id INT COMMENT 'which') COMMENT 'Hive' PARTITIONED BY (day DATE, k STRING) STORED AS ORC",
    "SET hive.exec.dynamic.partition.mode=nonstrict",
    "INSERT INTO shop.hive PARTITION (day, k) VALUES (1, DATE'2024-01-01', 'a/b'), (2, DATE'2024-01-02', NULL)",
    "CREATE TABLE shop.own (Id INT, name VARCHAR(5), day DATE) USING parquet PARTITIONED BY (day)",
    "INSERT INTO shop.own VALUES (1, 'x', DATE'2024-01-01'), (2, 'y', DATE'2024-01-01')",
    "ANALYZE TABLE shop.own PARTITION (day) COMPUTE STATISTICS",
    "CREATE TABLE shop.csv (Id INT, code CHAR(3)) USING csv OPTIONS (header 'true')",
    "CREATE TABLE shop.json (Id BIGINT, a ARRAY<STRUCT<X: INT>>, k INT) USING json PARTITIONED BY (k)",
    "CREATE VIEW shop.seen AS SELECT id FROM shop.own",
)

# A session with Hive's catalog cannot be in a process with one without.
SCRIPT = """
import sys
from pyspark.sql import SparkSession
uri, warehouse, *statements = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.catalogImplementation": "hive",
    "spark.hadoop.hive.metastore.uris": uri, "spark.sql.warehouse.dir": warehouse,
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
with builder.getOrCreate() as spark:
    for statement in statements:
        spark.sql(statement)
"""


def run_spark(metastore: HiveMetastoreServer, folder: Path) -> None:
    java_home = require_java()
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": jvm_options(java_home),
    }
    command = [sys.executable, "-c", SCRIPT, metastore.uri, f"file:{metastore.warehouse}", *STATEMENTS]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]


def test_what_spark_made_is_imported_as_it_is(
    hive_metastore: HiveMetastoreServer, sqlite_url: str, tmp_path: Path
) -> None:
    run_spark(hive_metastore, tmp_path)
    try:
        with Catalog.open(sqlite_url) as catalog:
            check(catalog, hive_metastore)
    finally:
        hive_metastore.drop_database("shop")


def check(catalog: Catalog, metastore: HiveMetastoreServer) -> None:
    _, reports = catalog.imports.import_tables(metastore.source("/shop"))
    assert {report.outcome for report in reports} == {ImportOutcome.CREATED}
    tables = {table.name: table for table in catalog.list_tables("shop")}
    home = f"file:{metastore.warehouse}/shop.db"
    assert {name: (table.kind, table.format) for name, table in tables.items()} == {
        "hive": (TableKind.MANAGED, FileFormat.ORC),
        "own": (TableKind.MANAGED, FileFormat.PARQUET),
        "csv": (TableKind.MANAGED, FileFormat.CSV),
        "json": (TableKind.MANAGED, FileFormat.JSONFILE),
        "seen": (TableKind.VIEW, FileFormat.PARQUET),
    }
    columns = {name: [(each.name, each.type) for each in table.columns] for name, table in tables.items()}
    assert columns["own"] == [("id", "int"), ("name", "varchar(5)")]
    assert columns["csv"] == [("id", "int"), ("code", "char(3)")]
    assert columns["json"] == [("id", "bigint"), ("a", "array<struct<x:int>>")]
    assert [(each.name, each.type) for each in tables["json"].partition_keys] == [("k", "int")]
    assert {tables[name].location for name in ("own", "csv")} == {f"{home}/own", f"{home}/csv"}
    assert (tables["hive"].description, tables["hive"].columns[0].comment) == ("Hive", "which")
    places = {each.values: each.location for each in catalog.get_partitions("shop.hive")}
    assert places == {
        ("2024-01-01", "a/b"): f"{home}/hive/day=2024-01-01/k=a%2Fb",
        ("2024-01-02", None): f"{home}/hive/day=2024-01-02/k=__HIVE_DEFAULT_PARTITION__",
    }
    (own,) = catalog.get_partitions("shop.own")
    assert (own.row_count, own.file_count) == (2, 1)
