"""Tables that Spark created in a Hive Metastore: import, migration and revert."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog, FileFormat
from catalog.errors import SourceEntryChangedError
from catalog.importing.reports import ImportOutcome
from catalog.model import TableKind
from tests.support.hive_metastore import HiveMetastoreServer
from tests.support.hive_spark import SESSION_CATALOG, HiveSpark

if TYPE_CHECKING:
    from tests.support.migrating import Migrator

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STATEMENTS = (
    "CREATE DATABASE shop COMMENT 'What Spark made'",
    "CREATE TABLE shop.hive (id INT COMMENT 'which') COMMENT 'Hive' PARTITIONED BY (day DATE, k STRING) STORED AS ORC",
    "INSERT INTO shop.hive PARTITION (day, k) VALUES (1, DATE'2024-01-01', 'a/b'), (2, DATE'2024-01-02', NULL)",
    "CREATE TABLE shop.own (Id INT, name VARCHAR(5), day DATE) USING parquet PARTITIONED BY (day)",
    "INSERT INTO shop.own VALUES (1, 'x', DATE'2024-01-01'), (2, 'y', DATE'2024-01-01')",
    "ANALYZE TABLE shop.own PARTITION (day) COMPUTE STATISTICS",
    "CREATE TABLE shop.csv (Id INT, code CHAR(3)) USING csv OPTIONS (header 'true')",
    "CREATE TABLE shop.json (Id BIGINT, a ARRAY<STRUCT<X: INT>>, k INT) USING json PARTITIONED BY (k)",
    "CREATE VIEW shop.seen AS SELECT id FROM shop.own",
)


@pytest.fixture(scope="module")
def hive_spark(
    hive_metastore: HiveMetastoreServer, tmp_path_factory: pytest.TempPathFactory, iceberg_jar: Path
) -> Iterator[HiveSpark]:
    with HiveSpark(hive_metastore, tmp_path_factory.mktemp("hive-spark"), iceberg_jar) as running:
        yield running


@pytest.fixture
def catalog_url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """On one database, because the metastore gets the same requests."""
    monkeypatch.setenv("CALVE_CATALOG_URL", sqlite_url)
    return sqlite_url


@pytest.mark.long
def test_what_spark_made_is_imported_as_it_is(
    hive_metastore: HiveMetastoreServer, hive_spark: HiveSpark, catalog: Catalog
) -> None:
    hive_spark.begin()
    for statement in STATEMENTS:
        hive_spark.rows(statement)
    try:
        check(catalog, hive_metastore)
    finally:
        hive_metastore.drop_database("shop")


def check(catalog: Catalog, metastore: HiveMetastoreServer) -> None:
    _, reports = catalog.imports.import_tables(metastore.source("/shop"))
    assert {report.outcome for report in reports} == {ImportOutcome.CREATED}
    tables = {table.name: table for table in catalog.list_tables("shop")}
    home = f"file:{metastore.warehouse}/shop.db"
    # Calve did not write the files, so the tables are external here, even if they are managed in the metastore.
    assert {name: (table.kind, table.format) for name, table in tables.items()} == {
        "hive": (TableKind.EXTERNAL, FileFormat.ORC),
        "own": (TableKind.EXTERNAL, FileFormat.PARQUET),
        "csv": (TableKind.EXTERNAL, FileFormat.CSV),
        "json": (TableKind.EXTERNAL, FileFormat.JSONFILE),
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


@pytest.fixture
def orders(hive_metastore: HiveMetastoreServer, hive_spark: HiveSpark, tmp_path: Path) -> Iterator[str]:
    """A table that Spark wrote through the metastore: null and unusual keys, and a partition outside its folder."""
    hive_spark.begin()
    for statement in (
        "CREATE DATABASE depot",
        "CREATE TABLE depot.orders (id BIGINT, note STRING, price DECIMAL(9,2))"
        " PARTITIONED BY (country STRING, day DATE) STORED AS PARQUET",
        "INSERT INTO depot.orders PARTITION (country, day) SELECT id, concat('n', id), id / 4,"
        " CASE id % 4 WHEN 0 THEN 'nl' WHEN 1 THEN 'd/e' END, CASE id % 2 WHEN 0 THEN DATE'2024-02-29' END"
        " FROM range(60)",
        f"ALTER TABLE depot.orders ADD PARTITION (country='far', day=DATE'2024-03-01') LOCATION '{tmp_path}/outside'",
        "INSERT INTO depot.orders PARTITION (country='far', day=DATE'2024-03-01') VALUES (60, NULL, 0.25)",
    ):
        hive_spark.rows(statement)
    yield "depot.orders"
    hive_metastore.drop_database("depot")


@pytest.fixture
def flat(hive_metastore: HiveMetastoreServer, hive_spark: HiveSpark, tmp_path: Path) -> Iterator[Mapping[str, Path]]:
    """Tables without partition keys: their names → their folders."""
    hive_spark.begin()
    hive_spark.rows("CREATE DATABASE flats")
    folders = {f"flats.{stored.lower()}": tmp_path / stored for stored in ("PARQUET", "ORC")}
    for name, folder in folders.items():
        hive_spark.rows(f"CREATE TABLE {name} (id BIGINT) STORED AS {folder.name} LOCATION '{folder}'")
        hive_spark.rows(f"INSERT INTO {name} VALUES (1), (2)")
    yield folders
    hive_metastore.drop_database("flats")


ROWS = "SELECT * FROM depot.orders ORDER BY id"


def provider(spark: HiveSpark) -> str:
    """Return Spark's description of a table."""
    (found,) = (row[1] for row in spark.rows("DESCRIBE EXTENDED depot.orders") if row[0] == "Provider")
    return str(found)


@pytest.mark.long
def test_spark_on_the_metastore_reads_a_migrated_table_as_iceberg_and_a_reverted_one_as_hive(
    hive_metastore: HiveMetastoreServer, hive_spark: HiveSpark, orders: str, catalog: Catalog, migrator: Migrator
) -> None:
    rows = hive_spark.rows(ROWS)
    assert (len(rows), rows[60]) == (61, (60, None, "0.25", "far", "2024-03-01"))
    keys = {row[3:] for row in rows[:60]}
    assert keys == {("nl", "2024-02-29"), ("d/e", None), (None, "2024-02-29"), (None, None)}
    assert provider(hive_spark) == "hive"

    catalog.imports.import_tables(hive_metastore.source("/depot"))
    report = migrator.migrate(orders, flip_source=True)
    hive_spark.begin(SESSION_CATALOG)
    assert provider(hive_spark) == "iceberg"
    assert hive_spark.rows(ROWS) == rows
    metadata = f"spark_catalog.{orders}"
    snapshots = hive_spark.rows(f"SELECT operation, summary['added-records'] FROM {metadata}.snapshots")
    assert snapshots == [("append", "61")]
    files = hive_spark.rows(f"SELECT count(*), sum(record_count) FROM {metadata}.files")
    assert files == [(report["files"], 61)]
    outside = hive_spark.rows(f"SELECT record_count FROM {metadata}.files WHERE partition.country = 'far'")
    assert outside == [(1,)]

    catalog.migrations.revert("back", orders)
    hive_spark.begin(SESSION_CATALOG)
    assert provider(hive_spark) == "hive"
    assert hive_spark.rows(ROWS) == rows

    # Migrate again, and write with Spark.
    migrator.migrate(orders, flip_source=True, verify=False)
    hive_spark.begin(SESSION_CATALOG)
    hive_spark.rows(f"INSERT INTO {orders} VALUES (61, 'new', 1, 'nl', DATE'2024-03-02')")
    more = [*rows, (61, "new", "1.00", "nl", "2024-03-02")]
    assert hive_spark.rows(ROWS) == more
    with pytest.raises(SourceEntryChangedError, match=r"parameters\.metadata_location.*lose_data"):
        catalog.migrations.revert("back-2", orders)
    hive_spark.begin(SESSION_CATALOG)
    assert hive_spark.rows(ROWS) == more

    catalog.migrations.revert("back-3", orders, lose_data=True)
    hive_spark.begin(SESSION_CATALOG)
    assert provider(hive_spark) == "hive"
    assert hive_spark.rows(ROWS) == rows


HIVE_READERS = {"spark.sql.hive.convertMetastoreParquet": "false", "spark.sql.hive.convertMetastoreOrc": "false"}
"""Hive's readers instead of Spark's: they fail on a nested folder, or read it."""


@pytest.mark.long
def test_hives_readers_never_trip_over_what_iceberg_writes_into_a_table_without_partitions(
    hive_metastore: HiveMetastoreServer,
    hive_spark: HiveSpark,
    flat: Mapping[str, Path],
    catalog: Catalog,
    migrator: Migrator,
) -> None:
    catalog.imports.import_tables(hive_metastore.source("/flats"))

    def ids(settings: Mapping[str, str]) -> list[list[int]]:
        hive_spark.begin(settings)
        return [[row[0] for row in hive_spark.rows(f"SELECT id FROM {name} ORDER BY id")] for name in flat]

    operations = {name: migrator.begin(name, flip_source=True, verify=False) for name in flat}
    for operation_id in operations.values():
        migrator.stage(operation_id)
    assert ids(HIVE_READERS) == [[1, 2], [1, 2]]

    for name, folder in flat.items():
        catalog.migrations.flip(operations[name])
        hive_spark.begin(SESSION_CATALOG)
        hive_spark.rows(f"INSERT INTO {name} VALUES (3)")
        orphan = folder / "_iceberg" / "data" / "orphan"
        orphan.touch()
        os.utime(orphan, (1, 1))
        removed = hive_spark.rows(
            f"CALL spark_catalog.system.remove_orphan_files(table => '{name}', location => '{folder}/_iceberg')"
        )
        assert [Path(each) for (each,) in removed] == [Path(f"file:{orphan}")]
    assert ids(SESSION_CATALOG) == [[1, 2, 3], [1, 2, 3]]

    for name in flat:
        catalog.migrations.revert(f"back-{name}", name, lose_data=True)
    assert ids(HIVE_READERS) == [[1, 2], [1, 2]]
