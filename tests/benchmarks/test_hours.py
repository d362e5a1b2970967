"""The sample tables of the benchmark of hourly ranges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.carbon import QUERIES
from benchmarks.hours import PLAIN, TABLE, create
from catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.long
def test_both_tables_answer_every_query_alike(
    spark: SparkSession, catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.queries.query import query

    monkeypatch.setenv("CALVE_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "*")
    with Catalog.open(catalog_url) as catalog:
        catalog.create_database(TABLE.split(".", maxsplit=1)[0])
        create(spark, catalog, tmp_path, 40_000)
        for text in (*QUERIES.values(), "SELECT * FROM {table} LIMIT 0"):
            ours = query(spark, text.format(table=TABLE), catalog=catalog)
            plain = spark.sql(text.format(table=PLAIN))
            assert ours.columns == plain.columns
            assert sorted(ours.collect()) == sorted(plain.collect())
    spark.catalog.dropTempView(PLAIN)
