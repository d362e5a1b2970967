"""Each DAG once on S3: loads, indexes, rebalances, a migration, statements and maintenance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.files import object_stores
from catalog.schemes.ranges import RangeScheme
from tests.on_s3.conftest import HIVE_STYLE, STORED_AS_ICEBERG, iceberg_rows, write_orders
from tests.support.iceberg_tables import COLUMNS, KEYS, PARTITIONS, expected_rows
from tests.support.object_store import StoreClient

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

RANGES, ORDERS, STATED = "lake.delays", "lake.orders", "lake.stated"
INDEX = "by_month"
DELAYS = range(-10, 70)


@dataclass(frozen=True)
class Loads:
    """The runs of two loads of a table, and the flights in both."""

    first: Any
    second: Any
    flights: list[dict[str, Any]]


@pytest.fixture(scope="module")
def loads(deliver: Callable[..., Any], start_dag: Callable[..., Any]) -> dict[str, Loads]:
    """Two loads of each of the two tables: of one month, and of another."""
    names, runs, flights = (HIVE_STYLE, STORED_AS_ICEBERG), [], []
    for month in (1, 2):
        flights += deliver(month)
        started = {name: start_dag(f"add_partitions.{name}") for name in names}
        runs.append({name: run.wait() for name, run in started.items()})
    return {name: Loads(runs[0][name], runs[1][name], flights) for name in names}


def partitions_of(flights: list[dict[str, Any]]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(row[key] for key in ("origin", "carrier", "year", "month")) for row in flights)


@pytest.mark.parametrize("name", [HIVE_STYLE, STORED_AS_ICEBERG])
def test_loads_make_partitions_with_all_rows(loads: dict[str, Loads], catalog: Catalog, name: str) -> None:
    expected = partitions_of(loads[name].flights)
    counts = {partition.values: partition.row_count for partition in catalog.get_partitions(name)}
    assert counts == expected
    assert catalog.get_partition_index(name, INDEX).state is IndexState.ACTIVE


def test_files_of_hive_style_partitions_are_where_engines_look_after_a_vacuum(
    loads: dict[str, Loads], catalog: Catalog, store: StoreClient
) -> None:
    for _ in range(2):
        assert catalog.vacuum(HIVE_STYLE, grace=timedelta(0)).problems == ()
    files = object_stores.s3_file_system("lake")
    location = catalog.get_table(HIVE_STYLE).location.removeprefix("s3://")
    data = pyarrow.dataset.dataset(location, filesystem=files, format="parquet", partitioning="hive")
    assert data.count_rows() == len(loads[HIVE_STYLE].flights)
    left = [key for key in store.objects(f"{location.removeprefix('lake/')}/_calve") if not key.endswith("/")]
    assert left == []


def test_spark_uploads_files_to_their_final_keys(loads: dict[str, Loads], catalog: Catalog, store: StoreClient) -> None:
    folder = catalog.get_table(STORED_AS_ICEBERG).location.removeprefix("s3://lake/")
    ends = [key for key in store.objects(folder) if key.endswith("/_SUCCESS")]
    assert len(ends) == 2
    for key in ends:
        assert json.loads(store.client.get_object(Bucket="lake", Key=key)["Body"].read())["committer"] == "magic"


def test_quality_is_checked_and_its_page_is_on_s3(loads: dict[str, Loads], store: StoreClient) -> None:
    report = loads[HIVE_STYLE].second.result("check_quality")
    assert report["checked"] == report["passed"] > 0
    bucket, _, key = report["docs_path"].removeprefix("s3://").partition("/")
    assert b"<style>" in store.client.get_object(Bucket=bucket, Key=key)["Body"].read()


def test_other_engines_read_the_snapshot(loads: dict[str, Loads], stack: Stack) -> None:
    rows = iceberg_rows(stack, STORED_AS_ICEBERG)
    flights = loads[STORED_AS_ICEBERG].flights
    assert Counter(row["tailnum"] for row in rows) == Counter(row["tailnum"] or None for row in flights)


def test_an_index_is_built_verified_and_backfilled(
    loads: dict[str, Loads], catalog: Catalog, start_dag: Callable[..., Any]
) -> None:
    form = {"table": HIVE_STYLE, "index": "by_carrier", "keys": ["carrier"]}
    start_dag("build_partition_index", form).wait()
    assert catalog.get_partition_index(HIVE_STYLE, "by_carrier").state is IndexState.ACTIVE
    start_dag("backfill_partition_indexes", {"tables": [HIVE_STYLE], "indexes": ["by_origin: origin"]}).wait()
    assert catalog.get_partition_index(HIVE_STYLE, "by_origin").state is IndexState.ACTIVE
    said = start_dag("verify_partition_indexes", {"tables": [HIVE_STYLE]}).wait().result("summarise")
    assert {row["outcome"] for row in said} == {"exact"}


@pytest.fixture(scope="module")
def ranges(catalog: Catalog, start_dag: Callable[..., Any]) -> str:
    """A table of ranges with rows from a statement."""
    catalog.create_database("lake", if_not_exists=True)
    scheme = RangeScheme("delay", "int", (), 4, ((1, "0"), (2, "30"), (3, "60")))
    catalog.create_table(RANGES, columns=[("id", "bigint"), ("delay", "int")], scheme=scheme)
    values = ", ".join(f"({number}, {delay})" for number, delay in enumerate(DELAYS))
    start_dag("run_statement", {"statement": f"INSERT INTO {RANGES} VALUES {values}"}).wait()
    return RANGES


def delays(stack: Stack) -> list[int]:
    return sorted(row["delay"] for row in iceberg_rows(stack, RANGES))


def test_partitions_are_split_merged_and_dropped(
    ranges: str,
    catalog: Catalog,
    stack: Stack,
    start_dag: Callable[..., Any],
    approve: Callable[[Any], None],
) -> None:
    assert delays(stack) == list(DELAYS)
    form = {"table": ranges, "dry_run": False}
    start_dag(
        "rebalance_partitions", {**form, "operation": "split", "partition_ids": [2], "items": ["15", "30"]}
    ).wait()
    counts = [(partition.id, partition.row_count) for partition in catalog.scheme_partitions(ranges)]
    assert counts == [(0, 10), (1, 0), (4, 15), (5, 15), (3, 40)] or sum(count for _, count in counts) == len(DELAYS)
    assert delays(stack) == list(DELAYS)
    start_dag("rebalance_partitions", {**form, "operation": "merge", "partition_ids": [4, 5]}).wait()
    assert delays(stack) == list(DELAYS)
    drop = {**form, "operation": "drop", "partition_ids": [3], "with_data": True}
    dropping = start_dag("rebalance_partitions", drop)
    approve(dropping)
    dropping.wait()
    assert delays(stack) == [delay for delay in DELAYS if not 30 <= delay < 60]


def test_a_hive_table_is_migrated_in_place(
    catalog: Catalog, stack: Stack, store: StoreClient, start_dag: Callable[..., Any]
) -> None:
    catalog.create_database("lake", if_not_exists=True)
    catalog.create_table(ORDERS, columns=COLUMNS, partition_keys=KEYS)
    catalog.add_partitions(ORDERS, [NewPartition(values) for values in PARTITIONS])
    write_orders(catalog, ORDERS)
    before = set(store.objects("warehouse/lake/orders"))
    start_dag("migrate_hive_to_iceberg", {"tables": [ORDERS], "dry_run": False}).wait()
    assert catalog.get_table(ORDERS).is_iceberg
    found = sorted((row["id"], row["note"], row["country"], row["year"]) for row in iceberg_rows(stack, ORDERS))
    assert found == sorted(tuple(row) for row in expected_rows())
    assert before <= set(store.objects("warehouse/lake/orders"))


def test_statements_are_answered(loads: dict[str, Loads], start_dag: Callable[..., Any]) -> None:
    query = f"SELECT count(*) AS n FROM {HIVE_STYLE} WHERE month = 2"
    run = start_dag("run_statement", {"statement": query}).wait()
    flights = [row for row in loads[HIVE_STYLE].flights if row["month"] == "2"]
    assert str(len(flights)) in str(run.result("run"))


def test_maintenance_leaves_what_is_referenced(
    loads: dict[str, Loads],
    ranges: str,
    stack: Stack,
    start_dag: Callable[..., Any],
    approve: Callable[[Any], None],
) -> None:
    before = delays(stack)
    cleaning = start_dag("catalog_maintenance", {"grace_hours": 0})
    approve(cleaning)
    cleaning.wait()
    assert delays(stack) == before
    rows = iceberg_rows(stack, STORED_AS_ICEBERG)
    assert len(rows) == len(loads[STORED_AS_ICEBERG].flights)
