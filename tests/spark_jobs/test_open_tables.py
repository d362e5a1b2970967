"""Random sequences of changes by Calve and other engines; after each, all readers return the rows of a model.

`make test-all` runs 200 sequences, a quarter of them on PostgreSQL.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import duckdb
import pytest

from catalog import Catalog, Column
from catalog.tables.schemes import scheme_from_properties
from spark_jobs.reading.tables import read_table
from spark_jobs.sessions.session import configure
from tests.support.effort import seeds
from tests.support.open_tables import SCHEMES, OpenTable

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("catalog_url", "seeds"), seeds(2, 200), indirect=["catalog_url"])
def test_every_reader_has_the_rows_of_the_model(
    spark: Any,
    engine: Any,
    duck: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    catalog_url: str,
    seeds: Iterable[int],
) -> None:
    catalog.create_database("demo")
    for seed in seeds:
        table = OpenTable(configure(spark), catalog, f"demo.table_{seed}", True, random.Random(seed))
        table.engine, table.duck, table.url = engine, duck, catalog_url
        table.method = table.random.choice(sorted(SCHEMES))
        try:
            table.run()
        except Exception as error:
            error.add_note(f"sequence {seed}, {table.method}: {'; '.join(table.steps)}")
            raise


def test_files_of_engines_are_read_by_the_ids_of_columns(spark: Any, engine: Any, catalog: Catalog) -> None:
    """Spark finds columns by ids, but their types and the filters on them by the names in files."""
    catalog.create_database("demo")
    scheme = scheme_from_properties(Column("k", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table("demo.t", columns=[("a", "int"), ("b", "string"), ("k", "int")], scheme=scheme)
    engine.sql("SELECT 1 AS a, 'x' AS b, 3 AS k").writeTo("calve.demo.t").append()
    catalog.alter_table("demo.t", change_columns={"a": ("b", "bigint"), "b": ("c", "string")})
    catalog.alter_table("demo.t", add_columns=[("a", "int")])
    rows = read_table(configure(spark), "demo.t", catalog=catalog)
    assert [row.asDict() for row in rows.collect()] == [{"a": None, "b": 1, "c": "x", "k": 3}]
    for where in ("a is null", "b = 1", "c = 'x'", "k = 3 and a is null and b < 2 and c > 'w'"):
        assert read_table(spark, "demo.t", where, catalog=catalog).count() == 1
        assert rows.where(where).count() == 1
    assert rows.where("a = 1 or b is null or c is null").count() == 0
