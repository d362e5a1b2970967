"""The advisor finds an oversized partition, and splits it through Airflow and Spark if the list allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog import Catalog
from tests.end_to_end.conftest import ADVISED
from tests.support.delays import load_delays, make_delays, read_delays, row_counts

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("stack", ["postgresql"], indirect=True),
]

DAG = "rebalance_advisor"
OTHER = "advisor.others"
TABLES = [ADVISED, OTHER]


@pytest.mark.long
def test_what_is_allowed_is_done_and_settles_it(catalog: Catalog, run_dag: Callable[..., Any]) -> None:
    for table in TABLES:
        make_delays(catalog, table)
    quiet = run_dag(DAG, {"tables": TABLES})
    assert (quiet.states()["count_values"], quiet.result("summarise")) == ("skipped", [])

    for table in TABLES:
        catalog.alter_table(table, properties={"calve.target_file_bytes": "4000"})
        load_delays(catalog, table, (30 + number % 30 for number in range(4000)))
    rows = {table: read_delays(catalog, table) for table in TABLES}
    before = {table: row_counts(catalog, table) for table in TABLES}

    run = run_dag(DAG, {"tables": TABLES})
    said = {row["table"]: row for row in run.result("summarise")}
    assert {table: said[table]["outcome"] for table in TABLES} == {ADVISED: "done", OTHER: "proposed"}
    assert said[OTHER]["proposal"].startswith(f"ALTER TABLE {OTHER} SPLIT PARTITION (3) INTO ('3")
    assert f"| {OTHER} | ALTER TABLE {OTHER} SPLIT PARTITION (3)" in run.log("summarise", is_aligned=False)
    assert {table: read_delays(catalog, table) for table in TABLES} == rows
    after = {table: row_counts(catalog, table) for table in TABLES}
    assert after[OTHER] == before[OTHER]
    assert 3 not in after[ADVISED]
    assert max(after[ADVISED].values()) < before[ADVISED][3] / 4

    again = run_dag(DAG, {"tables": TABLES})
    assert [row["table"] for row in again.result("summarise")] == [OTHER]
    assert again.states()["apply"] == "skipped"
