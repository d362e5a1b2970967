"""Random sequences of changes by Calve and other engines; after each, all readers return the rows of a model.

`make test-all` runs 200 sequences, every fourth of them on PostgreSQL.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import duckdb
import pytest

from catalog import Catalog
from catalog.iceberg.jdbc import catalog_settings
from spark_jobs.sessions.session import configure
from tests.support.effort import effort
from tests.support.open_tables import SCHEMES, OpenTable

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SEQUENCES = effort(2, 200)


@pytest.fixture
def engine(iceberg_spark: Any, catalog: Catalog) -> Any:
    """A session whose Iceberg catalog `calve` is over the test's database."""
    session = configure(iceberg_spark.newSession())
    settings = {**catalog_settings(catalog.storage.url), "spark.sql.catalog.calve.cache-enabled": "false"}
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


@pytest.mark.timeout(900 + 180 * SEQUENCES)
@pytest.mark.parametrize(
    ("catalog_url", "seeds"),
    [
        ("sqlite", [seed for seed in range(SEQUENCES) if seed % 4 != 1]),
        ("postgresql", range(1, SEQUENCES, 4)),
    ],
    indirect=["catalog_url"],
    ids=["sqlite", "postgresql"],
)
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
