"""EXPLAIN SELECT tells the partitions, the files and the joins with which the SELECT then runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.errors import CatalogError
from catalog.statements.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)]


@pytest.fixture
def shop(session: Session) -> Session:
    for text in (
        "CREATE TABLE orders (id bigint, customer bigint) PARTITIONED BY (country string, day date) "
        "PARTITION INDEX by_day (day, country)",
        "CREATE TABLE customers (customer bigint, name string) PARTITIONED BY (country string)",
        "CREATE TABLE visits (id bigint) PARTITIONED BY (day date) STORED BY 'carbondata' "
        "TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2026-01-02, 2026-01-03')",
        "CREATE TABLE lake (id bigint) PARTITIONED BY (country string) STORED AS ICEBERG",
        "INSERT INTO orders SELECT n, n % 5, c, date_add(DATE '2026-01-01', CAST(n % 3 AS int)) FROM "
        "(SELECT explode(sequence(1, 60)) AS n) CROSS JOIN (SELECT explode(array('DE', 'US', 'FR')) AS c)",
        "INSERT INTO orders SELECT 100, 1, 'DE', DATE '2026-01-01'",
        "INSERT INTO customers VALUES (1, 'a', 'DE'), (2, 'b', 'US')",
        "INSERT INTO visits VALUES (1, '2026-01-01'), (2, '2026-01-02'), (3, '2026-01-03')",
        "INSERT INTO lake VALUES (1, 'DE'), (2, 'US')",
    ):
        session.execute(text)
    return session


def explained(session: Session, query: str) -> tuple[str, dict[str, Any]]:
    result = session.execute(f"EXPLAIN {query}")
    [[plan]] = result.rows
    assert result.text is not None
    assert isinstance(plan, dict)
    return result.text, plan


def files_scanned(spark: SparkSession, catalog: Catalog, query: str) -> int:
    """Run a query, and return the number of files that its scans have read, by Spark's own metrics."""
    from spark_jobs.queries.catalyst import kind_of
    from spark_jobs.queries.explaining import _nodes
    from spark_jobs.queries.query import prune_query

    spark.catalog.setCurrentDatabase("default")
    frame = prune_query(spark, query, catalog=catalog).frame
    frame.collect()

    def stages(plan: Any) -> Iterator[Any]:
        for node in _nodes(plan):
            yield node
            if kind_of(node).endswith("QueryStageExec"):
                yield from stages(node.plan())

    return sum(
        int(node.metrics().apply("numFiles").value())
        for node in stages(frame._jdf.queryExecution().executedPlan())
        if kind_of(node) == "FileSourceScanExec"
    )


QUERIES: list[tuple[str, list[tuple[int, int]]]] = [
    ("SELECT * FROM shop.orders", [(9, 10)]),
    ("SELECT * FROM shop.orders WHERE day = '2026-01-01'", [(3, 4)]),
    ("SELECT count(*) FROM shop.orders WHERE day > '2026-01-01' AND country IN ('DE', 'US')", [(4, 4)]),
    ("SELECT * FROM shop.orders WHERE country = 'none'", [(0, 0)]),
    ("SELECT * FROM shop.visits WHERE day >= '2026-01-03'", [(1, 1)]),
    (
        "SELECT * FROM shop.orders o JOIN shop.customers c ON o.customer = c.customer AND o.country = c.country "
        "WHERE c.country = 'DE' AND o.day = '2026-01-01'",
        [(1, 2), (1, 1)],
    ),
    (
        "SELECT * FROM shop.orders WHERE country = 'US' AND day = (SELECT max(day) FROM shop.visits)",
        [(3, 3), (3, 3)],
    ),
]
"""Queries, and the partitions and files that they read of each table."""


@pytest.mark.long
def test_the_explained_files_are_those_that_are_read(shop: Session, spark: SparkSession, catalog: Catalog) -> None:
    for query, read in QUERIES:
        text, plan = explained(shop, query)
        assert [(table["partitions_read"], table["files_read"]) for table in plan["tables"]] == read, query
        scanned = files_scanned(spark, catalog, query)
        assert plan["is_at_most"] == ("(SELECT" in query)
        assert plan["files_scanned"] == scanned or (plan["is_at_most"] and plan["files_scanned"] > scanned), query
        assert plan["files_scanned"] <= sum(files for _, files in read)
        for table in plan["tables"]:
            assert f"partitions: {table['partitions_read']} of {table['partitions_total']} read" in text
            assert all(path in text for path in table["files"])
            assert len(table["files"]) == min(10, table["files_read"])


def test_the_index_and_its_ranges_are_told_and_wrong_queries_refused(shop: Session, catalog: Catalog) -> None:
    text, plan = explained(shop, "SELECT id FROM orders WHERE day = '2026-01-02' AND country = 'DE'")
    [table] = plan["tables"]
    assert (table["index"], table["ranges"]) == ("by_day", ["day = '2026-01-02' and country = 'DE'"])
    lines = text.splitlines()
    assert lines[0] == "shop.orders"
    assert lines[2:6] == [
        "  index:      by_day",
        "  range:      day = '2026-01-02' and country = 'DE'",
        "  partitions: 1 of 9 read, 8 pruned",
        "  files:      1 of 10 read",
    ]
    [partition] = catalog.get_partitions("shop.orders", "day = '2026-01-02' and country = 'DE'")
    assert table["files"][0].startswith(f"file:{partition.location}/") or table["files"][0].startswith(
        f"file://{partition.location}/"
    )
    for query in ("SELECT nothing FROM orders", "SELECT * FROM none", "SELECT * FROM text.`/etc/passwd`"):
        with pytest.raises(CatalogError):
            shop.execute(f"EXPLAIN {query}")


@pytest.mark.long
def test_joins_are_told_as_spark_plans_them(shop: Session, iceberg_spark: SparkSession) -> None:
    join = "SELECT * FROM orders o JOIN customers c ON o.customer = c.customer"
    _, plan = explained(shop, join)
    [planned] = plan["joins"]
    assert (planned["strategy"], planned["is_partition_wise"]) == ("BroadcastHashJoin", False)
    iceberg_spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        text, plan = explained(shop, join)
    finally:
        iceberg_spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    [planned] = plan["joins"]
    assert (planned["strategy"], planned["shuffled"]) == ("SortMergeJoin", ["left", "right"])
    assert not planned["is_partition_wise"]
    assert "INNER join on customer = customer: SortMergeJoin, not partition-wise: rows of left and right" in text
    _, plan = explained(shop, "SELECT * FROM orders o CROSS JOIN customers c")
    assert [planned["condition"] for planned in plan["joins"]] == ["nothing"]


@pytest.mark.long
def test_tables_without_partitions_and_own_joins_are_told_rightly(shop: Session, iceberg_spark: SparkSession) -> None:
    shop.execute("CREATE TABLE flat STORED AS PARQUET AS SELECT 1 AS customer")
    shop.execute("UPDATE orders SET customer = 9 WHERE id = 100")
    text, plan = explained(shop, "SELECT count(*) FROM orders o JOIN flat f ON o.customer = f.customer")
    [planned] = plan["joins"]
    assert "calve/" not in planned["condition"]
    lines = [line for line in text.split("shop.flat\n")[1].splitlines() if "file" in line or "partitions:" in line]
    assert lines[0].startswith("  files:      ")
    assert " of " not in lines[0]
