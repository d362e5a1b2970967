"""Filters on timestamps in `read_table` have Spark's meaning in the session's time zone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog, NewPartition
from catalog.model import Column
from catalog.tables.schemes import scheme_from_properties
from tests.support.effort import effort

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

ZONES = effort(["America/New_York"], ["America/New_York", "Asia/Kathmandu", "+02:00"])
# Around the changes between standard and daylight saving time in New York.
TIMES = [
    *("2024-03-09 23:30:00", "2024-03-10 01:30:00", "2024-03-10 02:30:00", "2024-03-10 03:00:00"),
    *("2024-03-10 03:30:00", "2024-11-03 00:30:00", "2024-11-03 01:30:00", "2024-11-03 02:30:00"),
]
FILTERS = [
    *(f"at {operator} '{text}'" for text in TIMES[1:7:2] for operator in ("=", "<", ">=")),
    "at between '2024-03-10 02:30:00' and '2024-11-03 01:30:00'",
    "at in ('2024-03-10 02:30:00', '2024-11-03 01:30:00') or n = 1",
    "not (at < '2024-03-10 03:30:00')",
    "at = '2024-03-10 06:30:00Z'",
    "at is null",
]


@contextmanager
def zone(spark: SparkSession, name: str) -> Iterator[None]:
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def check(spark: SparkSession, catalog: Catalog, table: str) -> None:
    from spark_jobs.reading.tables import read_table

    for name in ("UTC", *ZONES):
        with zone(spark, name):
            whole = read_table(spark, table, catalog=catalog)
            verdicts = [f"({where}) AS f{number}" for number, where in enumerate(FILTERS)]
            rows = whole.selectExpr("n", *verdicts).collect()
            for number, where in enumerate(FILTERS):
                expected = sorted(row["n"] for row in rows if row[f"f{number}"])
                answer = sorted(row["n"] for row in read_table(spark, table, where, catalog=catalog).collect())
                assert answer == expected, (name, where)


@pytest.mark.long
@on_sqlite
def test_moments_in_data_files(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.writing.scheme_loading import load_rows

    catalog.create_database("shop")
    described = {"PARTITION_TYPE": "RANGE_INTERVAL", "RANGE_INFO": "2024-03-01", "INTERVAL": "1 day"}
    scheme = scheme_from_properties(Column("at", "timestamp"), described)
    catalog.create_table("shop.t", columns=[("n", "int"), ("at", "timestamp")], scheme=scheme)
    literals = ", ".join(f"({n}, '{text}')" for n, text in enumerate(TIMES))
    for number, name in enumerate(ZONES):
        with zone(spark, name):
            rows = spark.sql(f"SELECT col1 AS n, cast(col2 AS timestamp) AS at FROM VALUES {literals}, (99, NULL)")
            load_rows(spark, catalog, f"load-{number}", "shop.t", rows)
    check(spark, catalog, "shop.t")


@pytest.mark.long
@on_sqlite
def test_texts_in_paths(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    catalog.create_database("shop")
    catalog.create_table("shop.t", columns=[("n", "int")], partition_keys=[("at", "timestamp")])
    partitions = []
    for n, text in enumerate([*TIMES, None]):
        folder = tmp_path / str(n)
        folder.mkdir()
        pyarrow.parquet.write_table(pa.table({"n": pa.array([n], pa.int32())}), folder / "1.parquet")
        partitions.append(NewPartition([text], str(folder)))
    catalog.add_partitions("shop.t", partitions)
    check_keys(spark, catalog)


def check_keys(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.reading.tables import read_table

    keys = [where for where in FILTERS if "n = 1" not in where]
    for name in ("UTC", *ZONES):
        with zone(spark, name):
            whole = read_table(spark, "shop.t", catalog=catalog)
            verdicts = [f"({where}) AS f{number}" for number, where in enumerate(keys)]
            rows = whole.selectExpr("n", *verdicts).collect()
            for number, where in enumerate(keys):
                expected = sorted(row["n"] for row in rows if row[f"f{number}"])
                answer = sorted(row["n"] for row in read_table(spark, "shop.t", where, catalog=catalog).collect())
                assert answer == expected, (name, where)


def test_zones_have_java_spellings(spark: SparkSession) -> None:
    from spark_jobs.reading.tables import session_zone

    for name, seconds in {"GMT+2": 7200, "UTC-05:30": -19800, "+01:00": 3600}.items():
        with zone(spark, name):
            found = session_zone(spark)
            assert found is not None
            assert found.utcoffset(None).total_seconds() == seconds  # type: ignore[union-attr]
    assert session_zone(spark) is None
