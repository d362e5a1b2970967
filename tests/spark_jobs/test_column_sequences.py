"""Random sequences of column changes, loads, rebalances and reads, on tables of schemes and of values.

A model knows what each row has in each column. After every few steps the rows that Spark reads are compared with it,
and so are those that DuckDB reads from the Parquet files by the field ids in their footers, without the catalog's
columns. `make test-all` runs 500 sequences, every fourth of them on PostgreSQL.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from catalog import Catalog
from spark_jobs.sessions.session import configure
from tests.support.column_sequences import Sequence
from tests.support.effort import effort

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.usefixtures("names_of_earlier_versions"),
]

SEQUENCES = effort(3, 500)


@pytest.fixture
def session(spark: Any) -> Any:
    return configure(spark)


@pytest.mark.long
@pytest.mark.timeout(900 + 60 * SEQUENCES)
@pytest.mark.parametrize(
    ("catalog_url", "seeds"),
    [
        ("sqlite", [seed for seed in range(SEQUENCES) if seed % 4 != 1]),
        ("postgresql", range(1, SEQUENCES, 4)),
    ],
    indirect=["catalog_url"],
    ids=["sqlite", "postgresql"],
)
def test_every_reader_keeps_to_the_ids_of_columns(catalog: Catalog, session: Any, seeds: Iterable[int]) -> None:
    catalog.create_database("demo")
    for seed in seeds:
        sequence = Sequence(session, catalog, f"demo.table_{seed}", seed % 3 != 2, random.Random(seed))
        try:
            sequence.run()
        except Exception as error:
            error.add_note(f"sequence {seed}: {', '.join(sequence.steps)}")
            raise
