"""Spark 4.1 works on the door as on a Hive Metastore, and an index serves its filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, FileFormat, NewPartition
from tests.support.hive_spark import SESSION_CATALOG, HiveSpark
from tests.support.hms_door import HmsDoor

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("door")
    (folder / "catalog.db").write_bytes(sqlite_template.read_bytes())
    return folder


@pytest.fixture(scope="module")
def catalog(folder: Path) -> Iterator[Catalog]:
    with Catalog.open(f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "warehouse")) as catalog:
        yield catalog


@pytest.fixture(scope="module")
def door(catalog: Catalog, folder: Path) -> Iterator[HmsDoor]:
    with HmsDoor(catalog, folder, folder / "warehouse") as door:
        yield door


@pytest.fixture(scope="module")
def hive(door: HmsDoor, tmp_path_factory: pytest.TempPathFactory, iceberg_jar: Path) -> Iterator[HiveSpark]:
    # Iceberg's HiveCatalog locks a table for each commit, unless told otherwise.
    settings = {**SESSION_CATALOG, "spark.hadoop.iceberg.engine.hive.lock-enabled": "true"}
    with HiveSpark(door, tmp_path_factory.mktemp("spark"), iceberg_jar, settings) as spark:
        spark.rows("CREATE DATABASE shop COMMENT 'what we sell'")
        yield spark


def test_tables_are_created_filled_altered_and_dropped(hive: HiveSpark, catalog: Catalog) -> None:
    hive.rows(
        "CREATE TABLE shop.orders (id bigint COMMENT 'its number', amount double) "
        "PARTITIONED BY (country string, day date) STORED AS PARQUET TBLPROPERTIES ('by' = 'me')"
    )
    hive.rows(
        "INSERT INTO shop.orders PARTITION (country, day) VALUES (1, 1.5, 'DE', DATE '2024-05-01'), "
        "(2, 2.5, 'US', DATE '2024-05-01'), (3, 3.5, 'US', DATE '2024-05-02'), (4, 4.5, NULL, DATE '2024-05-02')"
    )
    assert hive.rows("SHOW PARTITIONS shop.orders") == [
        ("country=DE/day=2024-05-01",),
        ("country=US/day=2024-05-01",),
        ("country=US/day=2024-05-02",),
        ("country=__HIVE_DEFAULT_PARTITION__/day=2024-05-02",),
    ]
    table = catalog.get_table("shop.orders")
    assert table.columns[0].comment == "its number"
    assert len(list(catalog.get_partitions("shop.orders", "country = 'US'"))) == 2
    hive.rows("ALTER TABLE shop.orders ADD COLUMNS (note string)")
    hive.rows("ALTER TABLE shop.orders SET TBLPROPERTIES ('by' = 'you')")
    former, new = (f"PARTITION (country = '{country}', day = '2024-05-01')" for country in ("DE", "AT"))
    hive.rows(f"ALTER TABLE shop.orders {former} RENAME TO {new}")
    hive.rows("INSERT OVERWRITE shop.orders PARTITION (country = 'US', day = '2024-05-01') SELECT 7, 7.5, 'seven'")
    hive.rows("ALTER TABLE shop.orders DROP PARTITION (country = 'US', day = '2024-05-02')")
    assert hive.rows("SELECT id, note, country FROM shop.orders ORDER BY id") == [
        (1, None, "AT"),
        (4, None, None),
        (7, "seven", "US"),
    ]
    assert catalog.get_table("shop.orders").properties["by"] == "you"
    hive.rows("ALTER TABLE shop.orders RENAME TO shop.former_orders")
    assert hive.rows("SELECT count(*) FROM shop.former_orders") == [(3,)]
    hive.rows("TRUNCATE TABLE shop.former_orders")
    assert hive.rows("SELECT count(*) FROM shop.former_orders") == [(0,)]
    hive.rows("DROP TABLE shop.former_orders")
    assert hive.rows("SHOW TABLES IN shop") == []


@pytest.mark.long
def test_renamed_tables_keep_their_rows_in_a_database_of_calve(hive: HiveSpark, catalog: Catalog) -> None:
    catalog.create_database("own")
    keys = [("country", "string")]
    catalog.create_table("own.made", columns=[("id", "bigint")], partition_keys=keys, format=FileFormat.PARQUET)
    hive.rows("CREATE TABLE own.plain (id bigint) USING parquet")
    hive.rows("CREATE TABLE own.parted (id bigint, country string) USING parquet PARTITIONED BY (country)")
    for name, values in (("made", "(1, 'DE')"), ("plain", "(1)"), ("parted", "(1, 'DE')")):
        hive.rows(f"INSERT INTO own.{name} VALUES {values}")
        hive.rows(f"ALTER TABLE own.{name} RENAME TO own.new_{name}")
        assert hive.rows(f"SELECT id FROM own.new_{name}") == [(1,)], name
        hive.rows(f"INSERT INTO own.new_{name} VALUES {values}")
        assert hive.rows(f"SELECT id FROM own.new_{name}") == [(1,), (1,)], name
        hive.rows(f"CREATE TABLE own.{name} (id bigint) STORED AS PARQUET")
        assert hive.rows(f"SELECT id FROM own.{name}") == [], name


def test_an_index_serves_the_filters_of_selects(hive: HiveSpark, catalog: Catalog, door: HmsDoor) -> None:
    hive.rows("CREATE TABLE shop.visits (id int) PARTITIONED BY (year int, day string) STORED AS ORC")
    hive.rows("INSERT INTO shop.visits PARTITION (year, day) SELECT id, 2024, concat('d', id % 3) FROM range(9)")
    catalog.add_partitions("shop.visits", [NewPartition((str(year), "d0")) for year in range(3_000, 6_000)])
    catalog.create_partition_index("shop.visits", "by_year", ["year", "day"])
    catalog.build_partition_index("shop.visits", "by_year")
    filters = "year = 2024 AND day LIKE 'd1%' AND day IN ('d1', 'd2')"
    assert hive.rows(f"SELECT count(*), min(id) FROM shop.visits WHERE {filters}") == [(3, 1)]
    assert 'table="shop.visits",way="index"' in door.serving.metrics.text()
    assert 'operation="get_partitions_by_filter"' in door.serving.metrics.text()


@pytest.mark.long
def test_folders_are_found_and_statistics_stored(hive: HiveSpark, catalog: Catalog) -> None:
    hive.rows("CREATE TABLE shop.events (id int) PARTITIONED BY (day string) STORED AS PARQUET")
    folder = catalog.get_table("shop.events").location
    for number in range(3):
        hive.rows(f"INSERT OVERWRITE DIRECTORY '{folder}/day=d{number}' USING parquet SELECT {number} AS id")
    hive.rows("MSCK REPAIR TABLE shop.events")
    assert hive.rows("SELECT id, day FROM shop.events ORDER BY id") == [(0, "d0"), (1, "d1"), (2, "d2")]
    hive.rows("ANALYZE TABLE shop.events COMPUTE STATISTICS")
    hive.rows("ANALYZE TABLE shop.events COMPUTE STATISTICS FOR COLUMNS id")
    hive.rows("ANALYZE TABLE shop.events PARTITION (day) COMPUTE STATISTICS")
    described = dict(row[:2] for row in hive.rows("DESCRIBE EXTENDED shop.events"))
    assert "3 rows" in described["Statistics"]
    assert dict(hive.rows("DESCRIBE EXTENDED shop.events id"))["distinct_count"] == "3"


def test_views_and_ctas(hive: HiveSpark, catalog: Catalog) -> None:
    hive.rows("CREATE TABLE shop.numbers AS SELECT id, id * 2 AS twice FROM range(5)")
    hive.rows("CREATE VIEW shop.large AS SELECT twice FROM shop.numbers WHERE id > 2")
    assert hive.rows("SELECT sum(twice) FROM shop.large") == [(14,)]
    assert catalog.get_table("shop.large").is_view
    hive.rows("ALTER VIEW shop.large AS SELECT twice FROM shop.numbers WHERE id > 3")
    assert hive.rows("SELECT sum(twice) FROM shop.large") == [(8,)]
    hive.rows("DROP VIEW shop.large")


@pytest.mark.long
def test_iceberg_tables_of_the_hive_catalog(hive: HiveSpark, catalog: Catalog, door: HmsDoor) -> None:
    hive.rows("CREATE TABLE shop.ice (id int, day string) USING iceberg PARTITIONED BY (day)")
    hive.rows("INSERT INTO shop.ice VALUES (1, 'a'), (2, 'b')")
    hive.rows("DELETE FROM shop.ice WHERE id = 1")
    assert hive.rows("SELECT id FROM shop.ice") == [(2,)]
    with door.client() as client:
        table: Any = client.get_table("shop", "ice")
    assert table.parameters["table_type"].upper() == "ICEBERG"
    assert table.parameters["metadata_location"] != table.parameters["previous_metadata_location"]
    assert 'operation="lock"' in door.serving.metrics.text()
    hive.rows("DROP TABLE shop.ice")
    assert "ice" not in [table.name for table in catalog.list_tables("shop")]


def test_csv_tables_have_the_same_rows_in_spark(hive: HiveSpark, catalog: Catalog) -> None:
    columns = [("a", "int"), ("b", "string"), ("t", "timestamp"), ("n", "decimal(5,1)")]
    table = catalog.create_table("shop.texts", columns=columns, partition_keys=[("k", "string")], format="csv")
    folder = Path(table.location.removeprefix("file:")) / "k=x"
    folder.mkdir(parents=True)
    lines = [
        "a,b,t,n",
        '1,"a,b",2024-01-01T00:00:00.123456Z,2.5',
        '2,"say \\"hi\\"",2024-01-02 03:04:05,',
        '3,"",,',
        "4,,,",
    ]
    (folder / "one.csv").write_text("\n".join([*lines, ""]))
    catalog.add_partitions("shop.texts", [NewPartition(("x",))])
    selected = "SELECT a, b, CAST(t AS string), n FROM shop.texts WHERE k ="
    assert hive.rows(f"{selected} 'x' ORDER BY a") == [
        (1, "a,b", "2024-01-01 00:00:00.123456", "2.5"),
        (2, 'say "hi"', "2024-01-02 03:04:05", None),
        # As Calve, Spark reads an empty string as null.
        (3, None, None, None),
        (4, None, None, None),
    ]
    values = "(7, ' sp,\"ark ', TIMESTAMP '2024-01-01 00:00:00.123456', 1.5, 'y'), (8, '', NULL, NULL, 'y')"
    hive.rows(f"INSERT INTO shop.texts VALUES {values}")
    expected = [(7, ' sp,"ark ', "2024-01-01 00:00:00.123456", "1.5"), (8, None, None, None)]
    assert hive.rows(f"{selected} 'y' ORDER BY a") == expected
    hive.rows("ALTER TABLE shop.texts SET TBLPROPERTIES ('by' = 'me')")
    hive.rows("ALTER TABLE shop.texts ADD COLUMNS (later date)")
    after = catalog.get_table("shop.texts")
    assert (after.format, after.properties["by"]) == ("csv", "me")
    assert [(column.name, column.type) for column in after.columns] == [*columns, ("later", "date")]
    assert not any(name.startswith("spark.sql.sources") for name in after.properties)
    assert [found.format for found in catalog.get_partitions("shop.texts")] == [None, None]
    hive.rows("ALTER TABLE shop.texts RENAME TO shop.lines")
    assert catalog.get_table("shop.lines").columns == after.columns
    assert hive.rows("SELECT count(*), count(later) FROM shop.lines") == [(6, 0)]
    catalog.alter_table("shop.lines", drop_columns=["b"])
    with pytest.raises(RuntimeError, match="only_calve_reads_these_files"):
        hive.rows("SELECT * FROM shop.lines")
    hive.rows("DROP TABLE shop.lines")


@pytest.mark.long
def test_spark_sees_and_keeps_the_columns_that_calve_adds_to_its_own_tables(hive: HiveSpark, catalog: Catalog) -> None:
    hive.rows("CREATE TABLE shop.own (Id INT, k STRING) USING parquet PARTITIONED BY (k)")
    hive.rows("INSERT INTO shop.own VALUES (1, 'a')")
    catalog.alter_table("shop.own", add_columns=[("note", "array<struct<x:int>>")])
    hive.rows("REFRESH TABLE shop.own")
    hive.rows("INSERT INTO shop.own VALUES (2, array(named_struct('x', 3)), 'a')")
    assert hive.rows("SELECT Id, note[0].x AS x, k FROM shop.own ORDER BY Id") == [(1, None, "a"), (2, 3, "a")]
    hive.rows("ALTER TABLE shop.own ADD COLUMNS (more date)")
    assert [column.name for column in catalog.get_table("shop.own").columns] == ["id", "note", "more"]
    hive.rows("DROP TABLE shop.own")


def test_views_of_statements_are_not_read_without_columns(hive: HiveSpark, catalog: Catalog) -> None:
    catalog.create_view("shop.unknown", "SELECT 1 AS a")
    with pytest.raises(RuntimeError, match="unknown_columns_of_a_view"):
        hive.rows("SELECT * FROM shop.unknown")
    catalog.create_view("shop.known", "SELECT 1 AS a", columns=[("a", "int")])
    assert hive.rows("SELECT * FROM shop.known") == [(1,)]
    hive.rows("DROP VIEW shop.known")


def test_the_classes_of_hive_read_a_csv_table_and_do_not_write_it(hive: HiveSpark, catalog: Catalog) -> None:
    # Spark uses them for a table that is not one of its own.
    hive.rows(
        "CREATE TABLE shop.plain (a string, b string) ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde' "
        "WITH SERDEPROPERTIES ('separatorChar' = ',', 'quoteChar' = '\"', 'escapeChar' = '\\\\') STORED AS "
        "INPUTFORMAT 'org.apache.hadoop.mapred.TextInputFormat' "
        "OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.HiveOutputFormat'"
    )
    folder = Path(catalog.get_table("shop.plain").location.removeprefix("file:"))
    (folder / "one.csv").write_text('1,"a,\\"b\\""\n2,\n')
    assert hive.rows("SELECT * FROM shop.plain ORDER BY a") == [("1", 'a,"b"'), ("2", "")]
    with pytest.raises(RuntimeError, match="HiveOutputFormat"):
        hive.rows("INSERT INTO shop.plain VALUES ('3', 'c')")
    assert hive.rows("SELECT count(*) FROM shop.plain") == [(2,)]
    hive.rows("DROP TABLE shop.plain")
