"""Spark joins Iceberg tables on their partition keys without a shuffle, by the settings that the docs name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet
import pytest

from catalog import Catalog, NewPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.migrating import Migrator

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

SETTINGS = {
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
SQL = "SELECT o.id FROM shop.orders o JOIN shop.returns r ON o.country = r.country AND o.id = r.id"


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_tables_with_the_same_keys_need_no_shuffle(
    iceberg_spark: SparkSession, catalog: Catalog, migrator: Migrator
) -> None:
    catalog.create_database("shop")
    for name, step in (("shop.orders", 2), ("shop.returns", 3)):
        table = catalog.create_table(name, columns=[("id", "bigint")], partition_keys=[("country", "string")])
        for country in ("DE", "US"):
            file = Path(table.location, f"country={country}", "data.parquet")
            file.parent.mkdir(parents=True)
            pyarrow.parquet.write_table(pyarrow.table({"id": list(range(0, 12, step))}), file)
        catalog.add_partitions(name, [NewPartition(("DE",)), NewPartition(("US",))])
        migrator.migrate(name, verify=False)
    page = Path(__file__).parents[3] / "docs/scaling.md"
    assert all(f"`{name}={value}`" in page.read_text() for name, value in SETTINGS.items())
    assert joined(iceberg_spark, catalog, {}) == (2, [0, 0, 6, 6])
    assert joined(iceberg_spark, catalog, SETTINGS) == (0, [0, 0, 6, 6])


def joined(spark: SparkSession, catalog: Catalog, settings: dict[str, str]) -> tuple[int, list[int]]:
    """Return the number of shuffles below the join, and its result, with these settings of Spark."""
    from spark_jobs.queries.query import query

    settings = {"spark.sql.autoBroadcastJoinThreshold": "-1", **settings}
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        frame = query(spark, SQL, catalog=catalog)
        plan = str(frame._jdf.queryExecution().executedPlan())
        return plan.count("Exchange hashpartitioning"), sorted(row.id for row in frame.collect())
    finally:
        for name, value_before in before.items():
            spark.conf.unset(name) if value_before is None else spark.conf.set(name, value_before)
