"""Data files of Hive-style tables have values that Hive's classes, and all other readers, read as they were given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest

from catalog import Catalog
from catalog.statements.session import Session
from tests.support.hive_reader import hive_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.migrating import Migrator

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

TYPES = {
    "a": "decimal(1,0)",
    "b": "decimal(9,2)",
    "c": "decimal(18,4)",
    "d": "decimal(38,10)",
    "at": "timestamp",
    "l": "array<decimal(5,2)>",
    "s": "struct<x:decimal(9,2),y:array<string>>",
    "m": "map<string,decimal(3,1)>",
}
NESTED = "array(1.5BD, NULL), named_struct('x', 0.25BD, 'y', array('t', NULL)), map('k', 1.5BD)"
ROW = f"-1, -1234567.89, 12345678901234.5678, 1.5, TIMESTAMP'2024-02-29 12:34:56.789012', {NESTED}"


def numbers(session: Session, table: str) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in session.execute(f"SELECT b, c, l[0], s.x FROM {table}").rows]


@pytest.mark.long
@on_sqlite
def test_hives_classes_read_decimals_in_parquet_files(
    session: Session, iceberg_spark: SparkSession, catalog: Catalog, migrator: Migrator
) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    session.execute(f"CREATE TABLE t ({columns}) PARTITIONED BY (k int)")
    session.execute(f"INSERT INTO t SELECT {ROW}, 1")
    assert numbers(session, "t") == [["-1234567.89", "12345678901234.5678", "1.50", "0.25"]]
    (partition,) = catalog.get_partitions("shop.t")
    (path,) = Path(partition.location).glob("*.parquet")
    assert hive_rows(iceberg_spark, path, TYPES) == [
        [
            *("-1", "-1234567.89", "12345678901234.5678", "1.5", "2024-02-29 12:34:56.789012"),
            *("[1.5,null]", "[0.25,[t,null]]", "[[k,1.5]]"),
        ]
    ]
    (row,) = pq.read_table(path).to_pylist()
    assert [str(row[name]) for name in "abcd"] == ["-1", "-1234567.89", "12345678901234.5678", "1.5000000000"]
    assert (str(row["l"][0]), str(row["s"]["x"]), str(row["m"])) == ("1.50", "0.25", "[('k', Decimal('1.5'))]")
    read = duckdb.sql(f"SELECT b::varchar, l[1]::varchar, s.x::varchar, m['k']::varchar FROM '{path}'").fetchall()
    assert read == [("-1234567.89", "1.50", "0.25", "1.5")]
    assert str(iceberg_spark.conf.get("spark.sql.parquet.writeLegacyFormat")) == "false"
    migrator.migrate("shop.t")
    assert numbers(session, "t") == [["-1234567.89", "12345678901234.5678", "1.50", "0.25"]]


@pytest.mark.long
@on_sqlite
def test_so_they_do_after_loads_and_changes(
    make_loader: Callable[..., Any], session: Session, iceberg_spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("k,b\n1,1.5\n2,2.5\n")
    types = {"b": "decimal(9,2)"}
    make_loader("shop.t", {"k": "int"}).load(tmp_path / "a.csv", columns=list(types.items()))
    session.execute("UPDATE t SET b = b + 1 WHERE k = 2")
    found = []
    for partition in catalog.get_partitions("shop.t"):
        (path,) = Path(partition.location).glob("*.parquet")
        found += hive_rows(iceberg_spark, path, types)
        # Readers that use ids find the column.
        assert pq.read_schema(path).field("b").metadata[b"PARQUET:field_id"] == b"1"
    assert sorted(found) == [["1.5"], ["3.5"]]
    session.execute("CREATE TABLE i (b decimal(9,2)) STORED AS ICEBERG")
    session.execute("INSERT INTO i VALUES (1.5)")
    written = map(pq.ParquetFile, Path(catalog.get_table("shop.i").location).rglob("*.parquet"))
    kinds = {file.schema.column(0).physical_type for file in written if file.schema.names == ["b"]}
    assert kinds == {"INT32"}, "as Iceberg's specification says"


@on_sqlite
def test_parquet_files_have_all_values_but_hive_takes_old_ones_for_julian(
    session: Session, iceberg_spark: SparkSession, catalog: Catalog
) -> None:
    catalog.create_table("shop.t", columns=[("d", "date"), ("at", "timestamp")])
    rows = [
        ["0001-01-01", "1582-10-03 10:00:00"],
        ["1582-10-04", "1582-10-10 10:00:00"],
        ["1582-10-14", "1969-12-31 23:59:59.001"],
        ["1582-10-15", "1969-12-31 23:59:59.999999"],
        ["2024-02-29", "2024-02-29 12:34:56.789012"],
    ]
    values = [f"('{day}', '{moment}')" for day, moment in rows]
    session.execute(f"INSERT INTO t VALUES {', '.join(values)}")
    query = "SELECT CAST(d AS string), CAST(at AS string) FROM t"
    assert sorted(list(row) for row in session.execute(query).rows) == sorted(rows)
    files = Path(catalog.get_table("shop.t").location).glob("*.parquet")
    read = [row for path in files for row in hive_rows(iceberg_spark, path, {"d": "date", "at": "timestamp"})]
    julian = {"0001-01-01": "0001-01-03", "1582-10-04": "1582-09-24", "1582-10-14": "1582-10-04"}
    assert sorted(day for day, _ in read) == sorted(julian.get(day, day) for day, _ in rows)
