"""Tables stored as Iceberg: statements and loads commit snapshots, and all engines read the same rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from catalog import Catalog, OnInvalid, PartitionState
from catalog.errors import InvalidPartitionError, UnsupportedCommitError
from catalog.model.partition_names import NULL_VALUE
from catalog.operations.job_requests import CheckQualityJob
from catalog.statements.session import Session
from spark_jobs.check_quality import check_quality
from tests.support.iceberg_tables import sql_catalog
from tests.support.partition_files import EXTREMES, KEYS, check_partitions, plain, rows_by_calve, rows_by_engines

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from tests.spark_jobs.conftest import Loader

pytestmark = pytest.mark.spark

TABLE = "shop.orders"
ORDERS = """CREATE TABLE orders (id int, note string) PARTITIONED BY (country string, day date)
PARTITION INDEX by_country (country), by_day (day) STORED AS ICEBERG"""


def check(
    spark: SparkSession, duck: duckdb.DuckDBPyConnection, catalog: Catalog, name: str = TABLE
) -> list[tuple[object, ...]]:
    """Check that catalog and snapshot agree, and that all readers do; return the rows."""
    check_partitions(catalog, name)
    rows = rows_by_calve(spark, catalog, name)
    for engine, read in rows_by_engines(spark, duck, catalog, name).items():
        assert list(map(plain, read)) == list(map(plain, rows)), engine
    return rows


def test_inserts_and_drops_are_snapshots_that_all_engines_read(
    iceberg_spark: SparkSession, duck: duckdb.DuckDBPyConnection, catalog: Catalog, session: Session
) -> None:
    session.execute(ORDERS)
    assert check(iceberg_spark, duck, catalog) == []
    session.execute("INSERT INTO orders VALUES (1, 'a', 'US', '2024-01-01'), (2, NULL, 'DE', '2024-01-02')")
    assert check(iceberg_spark, duck, catalog) == [
        (1, "a", "US", date(2024, 1, 1)),
        (2, None, "DE", date(2024, 1, 2)),
    ]
    session.execute(f"INSERT INTO orders VALUES (3, 'c', 'US', '2024-01-01'), (4, 'd', '{NULL_VALUE}', NULL)")
    check(iceberg_spark, duck, catalog)
    shown = [row[0] for row in session.execute("SHOW PARTITIONS orders").rows]
    assert sorted(map(str, shown)) == [
        "country=DE/day=2024-01-02",
        "country=US/day=2024-01-01",
        "country=__HIVE_DEFAULT_PARTITION__/day=__HIVE_DEFAULT_PARTITION__",
    ]
    assert [row[0] for row in session.execute("SELECT id FROM orders WHERE country = 'US' ORDER BY id").rows] == [1, 3]
    session.execute("ALTER TABLE orders DROP PARTITION (country = 'US')")
    assert [row[0] for row in check(iceberg_spark, duck, catalog)] == [2, 4]


@pytest.mark.long
def test_keys_of_all_types_are_the_same_for_all_engines(
    iceberg_spark: SparkSession, duck: duckdb.DuckDBPyConnection, catalog: Catalog, session: Session
) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in KEYS.items())
    session.execute(f"CREATE TABLE orders (id int) PARTITIONED BY ({columns}) STORED AS ICEBERG")
    session.execute(f"INSERT INTO orders VALUES {', '.join(EXTREMES)}")
    assert len(check(iceberg_spark, duck, catalog)) == len(EXTREMES)
    for condition, ids in (
        ("a = -128", [1]),
        ("d = 0.01", [2]),
        ("e = '1582-10-04'", [2]),
        ("e < '1600-01-01'", [1, 2]),
        ("f <= '1969-12-31 23:59:59.999999'", [1, 2]),
        ("f >= '1500-02-28 23:59:59.000001' and f < '1600-01-01'", [1]),
        ("g = 'é/=%#漢 \U0001f600'", [1]),
        ("i = 'ab'", [1]),
        ("j = true", [1, 4]),
        ("k = 0", [4]),
    ):
        assert sorted(row[0] for row in rows_by_calve(iceberg_spark, catalog, TABLE, condition)) == ids, condition


def test_instants_in_keys_do_not_depend_on_the_time_zone(
    iceberg_spark: SparkSession, duck: duckdb.DuckDBPyConnection, catalog: Catalog, session: Session
) -> None:
    session.execute("CREATE TABLE orders (id int) PARTITIONED BY (at timestamp) STORED AS ICEBERG")
    iceberg_spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        # The hour from 01:00 exists twice.
        session.execute(
            "INSERT INTO orders "
            "SELECT id, timestamp_seconds(1699160400 + 3600 * id) FROM VALUES (0), (1), (2) AS t (id)"
        )
        read = rows_by_calve(iceberg_spark, catalog, TABLE, "at < '2023-11-05 02:00:00'")
    finally:
        iceberg_spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert sorted(each.values for each in catalog.get_partitions(TABLE)) == [
        ("2023-11-05 05:00:00",),
        ("2023-11-05 06:00:00",),
        ("2023-11-05 07:00:00",),
    ]
    assert [row[0] for row in read] == [0, 1]
    check(iceberg_spark, duck, catalog)


@pytest.mark.long
def test_source_files_are_loaded_as_by_the_dag(
    iceberg_spark: SparkSession,
    duck: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    make_loader: Callable[..., Loader],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    loader = make_loader()
    loader.request |= {"format": "iceberg", "indexes": {"by_day": ["day"]}, "null_keys": "allow"}
    first, second, third = (tmp_path / f"{number}.csv" for number in range(3))
    first.write_text("id,country,day\n1,US,1\n2,,02\n3,US,1\n")
    second.write_text("id,country,day\n4,US,1\n5,FR,x\n")
    assert loader.load(first)["partitions"] == 2
    assert check(iceberg_spark, duck, catalog) == [(1, "US", 1), (2, None, 2), (3, "US", 1)]
    with pytest.raises(InvalidPartitionError, match="day=x"):
        loader.load(second)
    report = loader.load(second, on_invalid=OnInvalid.SKIP, invalid_partitions="skip")
    assert (report["partitions"], report["partitions_extended"], report["refused"]) == (0, 1, 1)
    assert check(iceberg_spark, duck, catalog) == [(1, "US", 1), (2, None, 2), (3, "US", 1), (4, "US", 1)]
    third.write_text("id,country,day\n6,US,7\n7,US,8\n8,US,8\n")
    operation = loader.new_operation()
    loader.validate(operation, third)
    loader.register(operation, loader.write(operation)["staging"], is_quarantined=True)
    rules = {"columns": {"id": {"max": 6}}, "on_failure": "quarantine"}
    with catalog.operations.attempt(operation, "check_quality") as attempt:
        job = CheckQualityJob(
            operation_id=operation, step="check_quality", attempt=attempt, table=loader.table, rules=rules
        )
        check_quality(loader.spark, catalog, job)
    assert [row[0] for row in check(iceberg_spark, duck, catalog)] == [1, 2, 3, 4, 6]
    hidden = [each.values for each in catalog.get_partitions(TABLE, state=PartitionState.QUARANTINED)]
    assert hidden == [("US", "8")]


@pytest.mark.long
@pytest.mark.parametrize("stored", ["ICEBERG", "PARQUET"])
def test_days_that_the_julian_calendar_does_not_have_are_found_and_deleted(
    session: Session, iceberg_spark: SparkSession, stored: str
) -> None:
    session.execute(f"CREATE TABLE gap (id int, d date, at timestamp) PARTITIONED BY (k date) STORED AS {stored}")
    row = "DATE '1582-10-10', TIMESTAMP '1582-10-10 00:00:00', DATE '1582-10-10'"
    session.execute(f"INSERT INTO gap VALUES (1, {row}), (2, DATE '1582-10-15', NULL, DATE '1582-10-15')")
    conditions = ("d = DATE '1582-10-10'", "k = DATE '1582-10-10'", "at = TIMESTAMP '1582-10-10 00:00:00'")
    for condition in conditions:
        assert [row[0] for row in session.execute(f"SELECT id FROM gap WHERE {condition}").rows] == [1], condition
    session.execute(f"DELETE FROM gap WHERE {conditions[0]}")
    assert [row[0] for row in session.execute("SELECT id FROM gap").rows] == [2]


@pytest.mark.parametrize("values", [(2, "n", "", date(2024, 1, 2)), (2, "n", "__HIVE_DEFAULT_PARTITION__", None)])
def test_a_table_with_a_commit_that_cannot_be_followed_is_read_as_its_engine_reads_it(
    iceberg_spark: SparkSession,
    catalog: Catalog,
    catalog_url: str,
    session: Session,
    values: tuple[int, str, str, date | None],
) -> None:
    """In Hive, neither of these strings is a value of a partition key."""
    session.execute(ORDERS)
    session.execute("INSERT INTO orders VALUES (1, 'a', 'US', '2024-01-01')")
    with sql_catalog(catalog_url) as iceberg:
        table = iceberg.load_table(TABLE)
        table.append(
            pa.Table.from_pylist(
                [dict(zip(table.schema().column_names, values, strict=True))], table.schema().as_arrow()
            )
        )
    assert sorted(row[0] for row in session.execute("SELECT id FROM orders").rows) == [1, 2]
    assert [row[0] for row in session.execute("SELECT id FROM orders WHERE country = 'US'").rows] == [1]
    with pytest.raises(UnsupportedCommitError, match="The table can still be read"):
        session.execute("SHOW PARTITIONS orders")
