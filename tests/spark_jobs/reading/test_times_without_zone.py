"""Times without zone, as programs write them by default: tables have the same wall clock, in types of all engines."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastavro import writer
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.statements.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

TABLE = "shop.t"
MOMENTS = [datetime(2024, 3, 10, 2, 30, 15, 123456), datetime(1969, 12, 31, 23, 59, 59, 999000)]


def by_pandas(path: Path) -> None:
    frame = pd.DataFrame({"k": [1, 2], "at": pd.Series(MOMENTS, dtype="datetime64[us]")})
    frame.to_parquet(path)


def by_arrow(path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "at": MOMENTS}), path)


def by_duckdb(path: Path) -> None:
    rows = ", ".join(f"({number}, TIMESTAMP '{moment}')" for number, moment in enumerate(MOMENTS, 1))
    duckdb.sql(f"COPY (FROM (VALUES {rows}) t (k, \"at\")) TO '{path}' (FORMAT parquet)")


def nested(path: Path) -> None:
    kinds = pa.struct([("at", pa.list_(pa.timestamp("us")))])
    values = pa.array([{"at": [moment, None]} for moment in MOMENTS], kinds)
    pq.write_table(pa.table({"k": [1, 2], "at": MOMENTS, "part": values}), path)


def avro(path: Path) -> None:
    kind = {"type": "long", "logicalType": "local-timestamp-micros"}
    fields = [{"name": "k", "type": "long"}, {"name": "at", "type": kind}]
    records = [{"k": number, "at": moment} for number, moment in enumerate(MOMENTS, 1)]
    with path.open("wb") as file:
        writer(file, {"type": "record", "name": "row", "fields": fields}, records)


WRITERS = {"pandas": by_pandas, "arrow": by_arrow, "duckdb": by_duckdb, "nested": nested, "avro": avro}


@pytest.fixture
def loader(make_loader: Callable[..., Any]) -> Any:
    return make_loader(TABLE, {"k": "int"})


def options(name: str, **others: Any) -> dict[str, Any]:
    return {"source_format": "avro" if name == "avro" else "parquet", "source_options": {}, **others}


def types(catalog: Catalog) -> dict[str, str]:
    return {column.name: column.type for column in catalog.get_table(TABLE).columns}


def texts(spark: SparkSession, catalog: Catalog, column: str = "at") -> list[str]:
    from spark_jobs.reading.tables import read_table

    rows = read_table(spark, TABLE, catalog=catalog).orderBy("k").selectExpr(f"CAST({column} AS string) AS text")
    return [row.text for row in rows.collect()]


EXPECTED = ["2024-03-10 02:30:15.123456", "1969-12-31 23:59:59.999"]


@on_sqlite
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_a_hive_style_table_has_them_as_hives_timestamps(
    avro_package: None, loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, name: str, zone: str
) -> None:
    WRITERS[name](tmp_path / "a")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        loader.load(tmp_path / "a", **options(name))
        assert texts(spark, catalog) == EXPECTED
        if name == "nested":
            assert texts(spark, catalog, "part.at[0]") == EXPECTED
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    more = {"part": "struct<at:array<timestamp>>"} if name == "nested" else {}
    assert types(catalog) == {"at": "timestamp", **more}
    hive = spark._jvm.org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils  # type: ignore[union-attr]
    for kind in types(catalog).values():
        assert str(hive.getTypeInfoFromTypeString(kind)) == kind


@pytest.mark.long
@on_sqlite
def test_an_iceberg_table_has_them_without_zone(
    loader: Any, iceberg_spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    by_arrow(tmp_path / "a")
    loader.load(tmp_path / "a", **options("arrow", format="iceberg", mode="append"))
    assert types(catalog) == {"at": "timestamp_ntz"}
    assert texts(iceberg_spark, catalog) == EXPECTED


@pytest.mark.long
@on_sqlite
def test_new_columns_and_files_with_and_without_zone_have_one_type(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    pq.write_table(pa.table({"k": [0], "at": pa.array([None], pa.timestamp("us"))}), folder / "0.parquet")
    loader.load(folder, **options("arrow", columns=[("at", "timestamp_ntz")]))
    assert types(catalog) == {"at": "timestamp_ntz"}, "a type that is declared stays"
    by_arrow(folder / "1.parquet")
    with_zone = pa.array(MOMENTS, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": [3, 4], "at": MOMENTS, "seen": with_zone}), folder / "2.parquet")
    pq.write_table(pa.table({"k": [5, 6], "at": MOMENTS, "seen": MOMENTS}), folder / "3.parquet")
    loader.load(folder, **options("arrow", contract={"columns": "evolve"}))
    assert types(catalog) == {"at": "timestamp_ntz", "seen": "timestamp"}
    assert texts(spark, catalog)[1:] == EXPECTED * 3
    assert texts(spark, catalog, "seen")[3:] == EXPECTED * 2


@on_sqlite
def test_so_have_tables_of_selects(session: Session, catalog: Catalog) -> None:
    select = "AS SELECT struct(TIMESTAMP_NTZ'2024-03-10 02:30:15') AS part, TIMESTAMP_NTZ'2024-03-10 02:30:15' AS at"
    for name, clause, kind in (("plain", "", "timestamp"), ("iceberg", "STORED AS ICEBERG", "timestamp_ntz")):
        session.execute(f"CREATE TABLE {name} {clause} {select}")
        columns = {column.name: column.type for column in catalog.get_table(f"shop.{name}").columns}
        assert columns == {"part": f"struct<col1:{kind}>", "at": kind}
        (row,) = session.execute(f"SELECT CAST(at AS string), CAST(part.col1 AS string) FROM {name}").rows
        assert list(row) == ["2024-03-10 02:30:15"] * 2
