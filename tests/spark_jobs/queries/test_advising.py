"""Spark's measurements of tables of each kind, and of queries, are correct."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from catalog.advice.profile import ColumnProfile
from catalog.advice.report import advise_table
from catalog.model import Column
from catalog.tables.schemes import scheme_from_properties
from catalog.types.key_types import IntegerType
from catalog.types.ranges import KeyRange
from spark_jobs.sessions.session import configure
from spark_jobs.statement_engine import SparkEngine
from spark_jobs.writing.scheme_loading import load_rows
from spark_jobs.writing.value_loading import append_rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    # The measurements do not depend on the database.
    pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True),
]

ROWS = 3000
SELECTED = [
    "id",
    "date_add(date '2024-01-01', cast(id / 10 AS int)) AS day",
    "timestamp '2024-01-01 00:00:00' + make_dt_interval(0, 0, cast(id * 144 AS int)) AS sent_at",
    "if(id % 10 = 0, null, if(id % 3 = 0, 'Rome', concat('city ', id % 7))) AS city",
    "cast(id % 100 AS decimal(9,2)) AS price",
    "map('a', 1) AS tags",
]
COLUMNS = [
    ("id", "bigint"),
    ("sent_at", "timestamp"),
    ("city", "string"),
    ("price", "decimal(9,2)"),
    ("tags", "map<string,int>"),
]


@pytest.fixture
def engine(spark: Any, catalog: Catalog) -> SparkEngine:
    catalog.create_database("shop")
    return SparkEngine(catalog, configure(spark))


def make(catalog: Catalog, spark: Any, kind: str) -> Any:
    rows = spark.range(ROWS).selectExpr(*SELECTED)
    columns = [*COLUMNS, ("day", "date")]
    if kind == "no partitions":
        table = catalog.create_table("shop.t", columns=columns)
        append_rows(spark, catalog, "load", "shop.t", rows)
    elif kind == "partition keys":
        table = catalog.create_table("shop.t", columns=columns[:2] + columns[3:], partition_keys=[("city", "string")])
        append_rows(spark, catalog, "load", "shop.t", rows)
    else:
        scheme = scheme_from_properties(Column("day", "date"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"})
        table = catalog.create_table("shop.t", columns=columns, scheme=scheme)
        load_rows(spark, catalog, "load", "shop.t", rows)
    return table


@pytest.mark.long
@pytest.mark.parametrize("kind", ["no partitions", "partition keys", "scheme"])
def test_columns_are_measured_in_one_pass(engine: SparkEngine, catalog: Catalog, spark: Any, kind: str) -> None:
    table = make(catalog, spark, kind)
    profile = engine.profile(table, [], "shop")
    assert (profile.table, profile.row_count, profile.size_bytes is None) == ("shop.t", ROWS, kind == "no partitions")
    found: dict[str, ColumnProfile] = {each.name: each for each in profile.columns}
    assert set(found) == {"id", "sent_at", "city", "price", "day"}
    for name, distinct in {"id": 3000, "sent_at": 3000, "city": 8, "price": 100, "day": 300}.items():
        assert found[name].distinct_count == pytest.approx(distinct, rel=0.15), name
    assert found["city"].null_share == pytest.approx(0.1)
    assert len(found["city"].sample) == 2700
    assert found["city"].frequent[0] == ("Rome", pytest.approx(0.3))
    assert found["sent_at"].sample[0][1] == "2024-01-01 00:00:00.000000"
    assert found["day"].quantiles(3) == ["2024-04-10", "2024-07-19"]


@pytest.mark.long
def test_queries_are_understood_as_spark_understands_them(engine: SparkEngine, catalog: Catalog, spark: Any) -> None:
    table = make(catalog, spark, "scheme")
    catalog.create_view("shop.v", "SELECT * FROM t WHERE price > 5")
    queries = [
        "SELECT count(*) FROM shop.t WHERE id = 7 AND upper(city) = 'ROME'",
        "SELECT 1 FROM t a JOIN (SELECT day FROM t WHERE day < date '2024-02-01') b ON a.day = b.day WHERE a.id > 5",
        "SELECT * FROM v WHERE city LIKE 'city%'",
        "SELECT * FROM t",
        "SELECT * FROM t WHERE id = 1 UNION ALL SELECT * FROM t WHERE id = 2 AND city = 'Rome'",
        "SELECT 1",
        "SELECT nothing FROM t",
        "DROP TABLE t",
    ]
    found = engine.profile(table, queries, "shop").queries
    bound = [set(each.bounds) for each in found]
    assert bound == [{"id"}, {"day"}, {"price", "city"}, set(), {"id"}, set(), set(), set()]
    kind = IntegerType("bigint")
    assert [(each.low, each.is_point) for each in found[0].bounds["id"]] == [(kind.encode(7), True)]
    assert [each.low for each in found[4].bounds["id"]] == [kind.encode(1), kind.encode(2)]
    assert isinstance(found[0].bounds["id"][0], KeyRange)
    assert [each.reads_table for each in found] == [True, True, True, True, True, False, True, True]
    assert [each.error is None for each in found] == [True] * 6 + [False] * 2
    assert "nothing" in str(found[6].error)


@pytest.mark.long
def test_a_column_that_goes_with_the_days_is_found_and_proposed(
    engine: SparkEngine, catalog: Catalog, spark: Any, tmp_path: Path
) -> None:
    table = make(catalog, spark, "no partitions")
    report = advise_table(engine, table, ["SELECT count(*) FROM t WHERE day = date '2024-03-05'"], "shop", None)
    assert report.scheme is not None
    assert (report.scheme.column, str(report.scheme.type)) == ("day", "RANGE_INTERVAL")
    assert [each.column for each in report.following] == ["id", "sent_at"]
    assert all(0.2 < each.read_share < 0.34 for each in report.following)
    assert report.candidates[0].read_share == pytest.approx(0.3, abs=0.02)
    assert report.scheme.sort_columns == ("id", "sent_at")
