"""Spark works on tables through Iceberg's REST door as on any Iceberg table, and Calve takes its commits in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from catalog import Catalog, Column
from catalog.statements.session import Session
from catalog.tables.schemes import scheme_from_properties
from tests.support.rest_server import rest_server
from tests.support.spark_engine import rest_session

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(iceberg_spark: SparkSession, catalog: Catalog) -> Iterator[SparkSession]:
    """A session with the catalog `lake`, which is Calve's through the REST door."""
    with rest_server(catalog) as address:
        yield rest_session(iceberg_spark, address)


def make_visits(catalog: Catalog) -> None:
    columns = [("url", "string"), ("amount", "double"), ("n", "bigint")]
    scheme = scheme_from_properties(Column("n", "bigint"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"})
    catalog.create_table("shop.visits", columns=columns, scheme=scheme)


@pytest.mark.long
def test_append_and_merge_into_a_table_with_a_scheme(session: Session, catalog: Catalog, lake: SparkSession) -> None:
    make_visits(catalog)
    lake.sql("INSERT INTO lake.shop.visits VALUES ('/a', 1.0D, 1), ('/b', 2.0D, 15), ('/c', 3.0D, 25)")
    rows = lake.createDataFrame([("/d", 4.0, 16)], "url string, amount double, n bigint")
    rows.writeTo("lake.shop.visits").append()
    assert sum(partition.row_count for partition in catalog.scheme_partitions("shop.visits")) == 4
    lake.sql(
        "MERGE INTO lake.shop.visits t USING (SELECT '/b' AS url, 9.0D AS amount, 15L AS n UNION ALL "
        "SELECT '/e', 5.0D, 17L) s ON t.n = s.n WHEN MATCHED THEN UPDATE SET amount = s.amount "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    expected = [("/a", 1.0), ("/b", 9.0), ("/c", 3.0), ("/d", 4.0), ("/e", 5.0)]
    engine = lake.sql("SELECT url, amount FROM lake.shop.visits ORDER BY n, url").collect()
    assert sorted((row.url, row.amount) for row in engine) == expected
    own = session.execute("SELECT url, amount FROM shop.visits ORDER BY url").rows
    assert [tuple(row) for row in own] == expected
    session.execute("INSERT INTO shop.visits VALUES ('/f', 6.0, 5)")
    assert lake.table("lake.shop.visits").count() == 6


def test_statements_read_and_change_what_spark_created(session: Session, catalog: Catalog, lake: SparkSession) -> None:
    lake.sql("CREATE TABLE lake.shop.notes (id bigint, note string) USING iceberg PARTITIONED BY (bucket(4, id))")
    lake.sql("INSERT INTO lake.shop.notes VALUES (1, 'a'), (2, 'b')")
    lake.sql("ALTER TABLE lake.shop.notes ADD COLUMN more int")
    assert session.execute("SELECT id, note FROM shop.notes ORDER BY id").rows == [[1, "a"], [2, "b"]]
    described = [row[:2] for row in session.execute("DESCRIBE shop.notes").rows]
    assert described == [["id", "bigint"], ["note", "string"], ["more", "int"]]
    session.execute("INSERT INTO shop.notes VALUES (3, 'c', 1)")
    session.execute("DELETE FROM shop.notes WHERE id = 1")
    assert [row.id for row in lake.sql("SELECT id FROM lake.shop.notes ORDER BY id").collect()] == [2, 3]
    session.execute("DROP TABLE shop.notes PURGE")
    assert lake.sql("SHOW TABLES IN lake.shop").count() == 0
