"""Counted values determine how a partition is split; after the split, nothing is proposed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from catalog import Catalog
from catalog.model import Column
from catalog.operations.job_requests import CountValuesJob
from catalog.rebalancing.contents import ValueCount
from catalog.tables.schemes import scheme_from_properties
from spark_jobs.count_values import count_values
from spark_jobs.reading.tables import read_table
from spark_jobs.rebalance import rebalance
from spark_jobs.sessions.session import configure
from spark_jobs.writing.scheme_loading import load_rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    # The counts do not depend on the database.
    pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True),
]

TABLE = "shop.t"


def load(spark: Any, catalog: Catalog, column_type: str, values: str, **properties: str) -> None:
    """Make a table with a row for each of 6000 ids; `values` says the partition column's by the id."""
    catalog.create_database("shop")
    scheme = scheme_from_properties(Column("c", column_type), properties)
    catalog.create_table(
        TABLE,
        columns=[("note", "string"), ("c", column_type)],
        scheme=scheme,
        properties={"calve.target_file_bytes": "20000"},
    )
    rows = configure(spark).range(6000).selectExpr("sha2(string(id), 256) AS note", f"{values} AS c")
    load_rows(spark, catalog, "load", TABLE, rows)


def count(spark: Any, catalog: Catalog, *partition_ids: int) -> dict[int, list[ValueCount]]:
    job = CountValuesJob(operation_id="o", step="s", attempt=1, table=TABLE, partition_ids=partition_ids)
    counts = count_values(spark, catalog, CountValuesJob.from_json(job.to_json()))["counts"]
    return {int(number): [ValueCount(*each) for each in found] for number, found in counts.items()}


def test_all_rows_are_counted_and_frequent_values_alone(spark: Any, catalog: Catalog) -> None:
    values = "if(id % 3 = 0, 100, if(id % 7 = 0, null, cast(id AS int)))"
    load(spark, catalog, "int", values, PARTITION_TYPE="RANGE", RANGE_INFO="50, 2000, 3000, 4000")
    counts = count(spark, catalog, 0, 2)
    expected = [100 if number % 3 == 0 else None if number % 7 == 0 else number for number in range(6000)]
    for number, low, high in ((2, 50, 2000), (0, 4000, 6000)):
        own = sorted(value for value in expected if value is not None and low <= value < high)
        found = counts[number]
        assert sum(each.row_count for each in found) == len(own)
        assert (int(found[0].least), int(found[-1].greatest)) == (own[0], own[-1])
        for each, following in pairwise(found):
            assert int(each.greatest) < int(following.least)
        for each in found:
            assert each.row_count == sum(int(each.least) <= value <= int(each.greatest) for value in own)
        assert 50 < len(found) < 600
    assert ValueCount("100", "100", expected.count(100)) in counts[2]
    assert counts.keys() == {0, 2}


@pytest.mark.long
def test_what_is_proposed_then_is_done_and_settles_it(spark: Any, catalog: Catalog) -> None:
    values = (
        "timestamp '2024-01-01 00:00:00' + make_dt_interval(0, 0, 0, if(id < 5000, 30000.5 + id, (id - 5000) * 60))"
    )
    bounds = "2024-01-01 06:00:00, 2024-01-01 12:00:00, 2024-01-01 18:00:00"
    load(spark, catalog, "timestamp", values, PARTITION_TYPE="RANGE", RANGE_INFO=bounds)
    before = Counter(read_table(spark, TABLE, catalog=catalog).collect())
    coarse = catalog.rebalancing.advise(TABLE)
    assert (coarse.proposals, coarse.to_count) == ((), (2,))
    counts = count(spark, catalog, *coarse.to_count)
    advice = catalog.rebalancing.advise(TABLE, counts=counts)
    [proposal] = advice.proposals
    assert str(proposal.change).startswith("SPLIT PARTITION (2) INTO ('2024-01-01 08:")
    report = rebalance(spark, catalog, "split", TABLE, proposal.change)
    assert report["rows_moved"] > 4900
    assert Counter(read_table(spark, TABLE, catalog=catalog).collect()) == before
    again = catalog.rebalancing.advise(TABLE)
    assert again.largest_bytes < coarse.largest_bytes / 2
    assert [each for each in again.proposals if each.change.kind == "split"] == []


def test_values_of_lists_are_counted_one_by_one(spark: Any, catalog: Catalog) -> None:
    values = (
        "case when id < 4000 then 'a, b' when id < 5000 then 'c' when id < 5200 then 'e' else concat('r', id % 10) end"
    )
    load(spark, catalog, "string", values, PARTITION_TYPE="LIST", LIST_INFO=r"(a\, b, c, d), e")
    counts = count(spark, catalog, 0, 1)
    assert counts[1] == [ValueCount("a, b", "a, b", 4000), ValueCount("c", "c", 1000)]
    assert counts[0] == [ValueCount(f"r{number}", f"r{number}", 80) for number in range(10)]
    advice = catalog.rebalancing.advise(TABLE, counts=counts)
    assert [str(each.change) for each in advice.proposals] == [r"SPLIT PARTITION (1) INTO ('(a\\, b)', '(c, d)')"]


def test_nothing_is_counted_of_partitions_without_rows(spark: Any, catalog: Catalog) -> None:
    load(spark, catalog, "string", "'b'", PARTITION_TYPE="RANGE", RANGE_INFO="a, c")
    assert count(spark, catalog, 1) == {}
    assert count(spark, catalog) == {}
