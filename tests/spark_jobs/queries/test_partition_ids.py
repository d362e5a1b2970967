"""`_partition_id` can be used everywhere in a SELECT, and `*`, USING and NATURAL JOIN do not include it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog
from catalog.errors import UnsupportedExpressionError
from catalog.model import Column
from catalog.tables.schemes import scheme_from_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

# The statement over the tables, and over views in which the id is a column: `p` of `s`, `q` of `t`.
STATEMENTS = {
    "SELECT *, _partition_id FROM shop.sales": "SELECT v, id, p FROM s",
    "SELECT * FROM shop.sales WHERE _partition_id = 2": "SELECT v, id FROM s WHERE p = 2",
    "SELECT * FROM (SELECT *, _partition_id FROM shop.sales) WHERE _partition_id = 1": (
        "SELECT v, id, p FROM s WHERE p = 1"
    ),
    "SELECT * FROM (SELECT id, _partition_id FROM shop.sales) a JOIN shop.costs b USING (id)": (
        "SELECT s.id, p, t.c FROM s JOIN t USING (id)"
    ),
    "SELECT * FROM shop.sales a JOIN shop.costs b USING (id) WHERE a._partition_id <> b._partition_id": (
        "SELECT s.id, v, c FROM s JOIN t USING (id) WHERE p <> q"
    ),
    "SELECT a._partition_id, b.* FROM shop.sales a NATURAL JOIN shop.costs b": (
        "SELECT p, t.* EXCEPT (q) FROM s JOIN t USING (id)"
    ),
    "WITH x AS (SELECT *, _partition_id FROM shop.sales) SELECT _partition_id, count(*) FROM x GROUP BY 1": (
        "SELECT p, count(*) FROM s GROUP BY p"
    ),
    "WITH x AS (SELECT * FROM shop.sales) SELECT x.*, b._partition_id FROM x JOIN shop.costs b ON x.id = b.id": (
        "SELECT s.v, s.id, q FROM s JOIN t ON s.id = t.id"
    ),
    "SELECT id FROM shop.sales a WHERE EXISTS (SELECT * FROM shop.costs b WHERE b._partition_id = a._partition_id)": (
        "SELECT id FROM s WHERE p IN (SELECT q FROM t)"
    ),
    "SELECT id FROM shop.sales WHERE _partition_id IN (SELECT max(_partition_id) FROM shop.costs)": (
        "SELECT id FROM s WHERE p IN (SELECT max(q) FROM t)"
    ),
    "SELECT _partition_id, max(v) FROM shop.sales GROUP BY _partition_id HAVING _partition_id > 0 ORDER BY 2, 1": (
        "SELECT p, max(v) FROM s GROUP BY p HAVING p > 0"
    ),
    "SELECT DISTINCT _partition_id FROM shop.sales ORDER BY _partition_id": "SELECT DISTINCT p FROM s",
    "SELECT * EXCEPT (v), _partition_id + 1 AS next FROM shop.sales": "SELECT id, p + 1 FROM s",
    "SELECT * FROM shop.sales UNION ALL SELECT id, _partition_id FROM shop.costs": (
        "SELECT v, id FROM s UNION ALL SELECT id, q FROM t"
    ),
    "SELECT a.*, b.c FROM shop.sales a, shop.costs b WHERE a.id = b.id AND b._partition_id = 0": (
        "SELECT v, s.id, c FROM s, t WHERE s.id = t.id AND q = 0"
    ),
}
REFUSED = {
    "SELECT _partition_id FROM shop.sales a JOIN shop.costs b ON a.id = b.id": "write one of a._partition_id, b",
    "SELECT * FROM shop.sales JOIN shop.costs USING (_partition_id)": "is not a stored column",
    "SELECT struct(*) FROM shop.sales WHERE _partition_id = 1": "name the columns",
}


@pytest.fixture
def shop(spark: SparkSession, catalog: Catalog) -> Iterator[Catalog]:
    from pyspark.sql import functions as f

    from spark_jobs.rows.placement import partition_id
    from spark_jobs.writing.scheme_loading import load_rows

    catalog.create_database("shop")
    properties = {
        "sales": ("v", "p", "s", {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "3, 6"}),
        "costs": ("c", "q", "t", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "4"}),
    }
    for name, (column, ids, view, described) in properties.items():
        scheme = scheme_from_properties(Column("id", "int"), described)
        catalog.create_table(f"shop.{name}", columns=[("id", "int"), (column, "int")], scheme=scheme)
        rows = spark.range(10).select(f.col("id").cast("int"), (f.col("id") * 2 % 7).cast("int").alias(column))
        load_rows(spark, catalog, name, f"shop.{name}", rows)
        rows.withColumn(ids, partition_id(scheme)).createOrReplaceTempView(view)
    yield catalog
    spark.catalog.dropTempView("s")
    spark.catalog.dropTempView("t")


@pytest.mark.long
@on_sqlite
def test_ids_are_those_of_the_rows_wherever_they_are_named(spark: SparkSession, shop: Catalog) -> None:
    from spark_jobs.queries.query import prune_query, query

    for sql, expected in STATEMENTS.items():
        answer = Counter(map(tuple, query(spark, sql, catalog=shop).collect()))
        assert answer == Counter(map(tuple, spark.sql(expected).collect())), sql
    answer = query(spark, "SELECT *, _partition_id FROM shop.sales", catalog=shop)
    assert answer.columns == ["v", "id", "_partition_id"]
    pruned = prune_query(spark, "SELECT * FROM shop.sales a WHERE a._partition_id = 2", catalog=shop)
    assert [table.partitions_read for table in pruned.tables] == [1]
    for sql, words in REFUSED.items():
        with pytest.raises(UnsupportedExpressionError, match=words):
            query(spark, sql, catalog=shop)


@on_sqlite
def test_names_without_a_database_are_those_of_the_current_one(spark: SparkSession, shop: Catalog) -> None:
    from spark_jobs.queries.query import query

    spark.sql("CREATE DATABASE IF NOT EXISTS shop")
    spark.sql("USE shop")
    try:
        assert query(spark, "SELECT count(*) FROM sales", catalog=shop).collect()[0][0] == 10
    finally:
        spark.sql("USE default")
        spark.sql("DROP DATABASE shop CASCADE")
