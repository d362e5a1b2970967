"""Random sequences of column changes, loads, rebalances and reads, on tables of schemes and of values.

A model knows what each row has in each column. After every few steps the rows that Spark reads are compared with it,
and so are those that DuckDB reads from the Parquet files by the field ids in their footers, without the catalog's
columns. `make test-all` runs 500 sequences, a quarter of them on PostgreSQL.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from catalog import Catalog
from spark_jobs.sessions.session import configure
from tests.support.column_sequences import Sequence
from tests.support.effort import seeds

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.usefixtures("names_of_earlier_versions"),
]


@pytest.fixture
def session(spark: Any) -> Any:
    return configure(spark)


@pytest.mark.long
@pytest.mark.parametrize(("catalog_url", "seeds"), seeds(3, 500), indirect=["catalog_url"])
def test_every_reader_keeps_to_the_ids_of_columns(catalog: Catalog, session: Any, seeds: Iterable[int]) -> None:
    catalog.create_database("demo")
    for seed in seeds:
        sequence = Sequence(session, catalog, f"demo.table_{seed}", seed % 3 != 2, random.Random(seed))
        try:
            sequence.run()
        except Exception as error:
            error.add_note(f"sequence {seed}: {', '.join(sequence.steps)}")
            raise
