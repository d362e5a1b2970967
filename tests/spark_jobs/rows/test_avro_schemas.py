"""Avro files have the schema that Hive writes, and reads."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import UnsupportedFormatError
from spark_jobs.reading.tables import read_table
from spark_jobs.rows.avro_schemas import avro_schema
from spark_jobs.writing.value_loading import append_rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("avro_package")]

TABLE = "demo.t"


def types_of(schema: str) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}


def test_the_schema_is_that_of_hive(spark: SparkSession) -> None:
    columns = [
        *(("i", "tinyint"), ("b", "binary"), ("c", "char(3)"), ("d", "decimal(20,2)"), ("t", "timestamp")),
        ("s", "struct<Name:string,inner:struct<x:int>>"),
        ("m", "map<string,array<date>>"),
    ]
    inner = {"type": "record", "name": "record_0", "fields": [{"name": "x", "type": ["null", "int"], "default": None}]}
    assert types_of(avro_schema(TABLE, columns)) == {
        "i": ["null", "int"],
        "b": ["null", "bytes"],
        "c": ["null", {"type": "string", "logicalType": "char", "maxLength": 3}],
        "d": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}],
        "t": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
        "s": [
            "null",
            {
                "type": "record",
                "name": "record_1",
                "fields": [
                    {"name": "name", "type": ["null", "string"], "default": None},
                    {"name": "inner", "type": ["null", inner], "default": None},
                ],
            },
        ],
        "m": [
            "null",
            {
                "type": "map",
                "values": [
                    "null",
                    {"type": "array", "items": ["null", {"type": "int", "logicalType": "date"}]},
                ],
            },
        ],
    }


@pytest.mark.parametrize(
    ("name", "type_text", "reason"),
    [
        ("größe", "int", "'größe' does not consist of ASCII"),
        ("m", "map<int,int>", "the keys of its maps are strings, not int"),
    ],
)
def test_columns_that_avro_does_not_have_are_refused(
    spark: SparkSession, name: str, type_text: str, reason: str
) -> None:
    with pytest.raises(UnsupportedFormatError, match=reason):
        avro_schema(TABLE, [(name, type_text)])


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_rows_are_written_with_it_and_read_again(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_database("demo")
    columns = [
        *(("i", "smallint"), ("c", "char(3)"), ("d", "decimal(5,2)"), ("t", "timestamp"), ("day", "date")),
        ("s", "struct<Name:string,at:array<decimal(3,1)>>"),
    ]
    catalog.create_table(TABLE, columns=columns, partition_keys=[("k", "int")], format="avro")
    row = (7, "ab", Decimal("1.50"), datetime(2024, 5, 1, 12, 0, 0, 123000), date(2024, 5, 1), ("x", [Decimal("0.5")]))
    nulls = (None,) * len(columns)
    schema = "i smallint, c string, d decimal(5,2), t timestamp, day date, s struct<Name:string,at:array<decimal(3,1)>>"
    append_rows(spark, catalog, "1", TABLE, spark.createDataFrame([(*row, 1), (*nulls, 1)], f"{schema}, k int"))
    rows = read_table(spark, TABLE, "k = 1", catalog=catalog).select("i", "c", "d", "t", "day", "s.name", "s.at")
    assert set(map(str, rows.collect())) == {
        "Row(i=7, c='ab ', d=Decimal('1.50'), t=datetime.datetime(2024, 5, 1, 12, 0, 0, 123000), "
        "day=datetime.date(2024, 5, 1), name='x', at=[Decimal('0.5')])",
        "Row(i=None, c=None, d=None, t=None, day=None, name=None, at=None)",
    }
    (partition,) = catalog.get_partitions(TABLE)
    for path in Path(partition.location).glob("*.avro"):
        with path.open("rb") as file:
            types = types_of(json.dumps(fastavro.reader(file).writer_schema))
        assert (types["t"][1]["logicalType"], types["d"][1]["type"]) == ("timestamp-millis", "bytes")
    exact = spark.createDataFrame([(*row[:3], datetime(2024, 5, 1, 12, 0, 0, 123456), *row[4:], 1)], f"{schema}, k int")
    with pytest.raises(Exception, match=r"column t: '2024-05-01 12:00:00\.123456' has microseconds"):
        append_rows(spark, catalog, "2", TABLE, exact)
