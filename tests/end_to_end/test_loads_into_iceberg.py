"""From raw files to a table stored as Iceberg, with Airflow and Spark, and to the engines that read it.

Two months are loaded, without the first flights of the second one; these and a third month, with a defect in one
partition, are loaded by the next run. Then both runs are repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from catalog import Catalog, IndexState
from tests.end_to_end.conftest import STORED_AS_ICEBERG
from tests.support.partition_files import check_partitions, plain, rows_by_calve, rows_by_engines
from tests.support.published import duckdb_reader, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

LOAD, INDEX = f"add_partitions.{STORED_AS_ICEBERG}", "by_month"
LATE = 20
"""The number of flights of the second month that come later."""


@pytest.fixture(scope="module")
def landing(stack: Stack) -> Path:
    return stack.home / "landing" / "iceberg"


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    return duckdb_reader()


@pytest.fixture(scope="module")
def first(
    landing: Path, months: dict[int, Any], deliver: Callable[..., Path], run_dag: Callable[..., Any]
) -> dict[str, Any]:
    """The report of the first load."""
    deliver(landing / "flights-2013-01.csv", months[1])
    deliver(landing / "flights-2013-02.csv", months[2][LATE:])
    report: dict[str, Any] = run_dag(LOAD).result("register")
    return report


@pytest.fixture(scope="module")
def second(
    first: dict[str, Any],
    landing: Path,
    months: dict[int, Any],
    deliver: Callable[..., Path],
    run_dag: Callable[..., Any],
) -> Any:
    """The run of the second load."""
    flights = [{**row, "time_hour": "" if row["carrier"] == "YV" else row["time_hour"]} for row in months[3]]
    deliver(landing / "flights-2013-02-late.csv", months[2][:LATE])
    deliver(landing / "flights-2013-03.csv", flights)
    return run_dag(LOAD)


@pytest.fixture(scope="module")
def rows(
    second: Any, catalog: Catalog, spark: SparkSession, duck: duckdb.DuckDBPyConnection
) -> dict[str, list[tuple[Any, ...]]]:
    """The rows after both loads, by reader."""
    from spark_jobs.sessions.session import configure

    configured = configure(spark)
    return {
        "calve": rows_by_calve(configured, catalog, STORED_AS_ICEBERG),
        **rows_by_engines(configured, duck, catalog, STORED_AS_ICEBERG),
    }


def flights_by_partition(flights: list[dict[str, str]]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(row[key] for key in ("origin", "carrier", "year", "month")) for row in flights)


def test_the_first_load_is_a_snapshot(
    first: dict[str, Any], second: Any, months: dict[int, Any], catalog: Catalog
) -> None:
    assert (first["partitions"], first["partitions_extended"]) == (8, 0)
    snapshot = published(catalog, STORED_AS_ICEBERG).snapshots()[0]
    assert snapshot.summary is not None
    assert snapshot.summary["total-records"] == str(len(months[1]) + len(months[2]) - LATE) == str(first["row_count"])


def test_the_second_load_adds_and_extends_partitions(second: Any, months: dict[int, Any], catalog: Catalog) -> None:
    report, late = second.result("register"), flights_by_partition(months[2][:LATE])
    assert (report["partitions"], report["partitions_extended"]) == (4, len(late))
    counts = {partition.values: partition.row_count for partition in catalog.get_partitions(STORED_AS_ICEBERG)}
    assert counts == flights_by_partition([*months[1], *months[2], *months[3]])
    check_partitions(catalog, STORED_AS_ICEBERG)
    snapshots = published(catalog, STORED_AS_ICEBERG).snapshots()
    assert [snapshot.summary.operation.value for snapshot in snapshots if snapshot.summary] == ["append", "append"]


def test_indexes_of_the_list_answer_for_the_snapshot(second: Any, months: dict[int, Any], catalog: Catalog) -> None:
    assert catalog.get_partition_index(STORED_AS_ICEBERG, INDEX).state is IndexState.ACTIVE
    explanation = catalog.explain_partitions(STORED_AS_ICEBERG, "year = 2013 and month = 2")
    assert (explanation.index, explanation.partitions_found, explanation.partitions_fetched) == (INDEX, 4, 4)
    assert catalog.verify_partition_index(STORED_AS_ICEBERG, INDEX).is_exact


def test_the_checks_see_the_rows_of_the_load(second: Any, months: dict[int, Any]) -> None:
    report, late = second.result("check_quality"), flights_by_partition(months[2][:LATE])
    assert (report["checked"], report["failed"]) == (4 + len(late), 1)
    assert "carrier=YV/year=2013/month=3" in report["failures"][0]
    assert Path(report["docs_path"]).is_file()


def test_all_readers_have_the_rows_of_the_source(
    rows: dict[str, list[tuple[Any, ...]]], months: dict[int, Any], catalog: Catalog
) -> None:
    calve = list(map(plain, rows.pop("calve")))
    assert sorted(rows) == ["duckdb", "pyiceberg", "spark"]
    for engine, read in rows.items():
        assert list(map(plain, read)) == calve, engine
    table = catalog.get_table(STORED_AS_ICEBERG)
    names = [column.name for column in table.in_files.columns]
    at = [names.index(name) for name in ("flight", "distance", "tailnum", "dest", "carrier", "month", "day")]
    found = Counter(tuple("" if row[number] is None else str(row[number]) for number in at) for row in calve)
    assert found == Counter(
        tuple("" if row[names[number]] == "NA" else row[names[number]] for number in at)
        for month in (1, 2, 3)
        for row in months[month]
    )


def test_a_repeated_load_adds_nothing(
    second: Any, rows: dict[str, list[tuple[Any, ...]]], catalog: Catalog, stack: Stack, run_dag: Callable[..., Any]
) -> None:
    before = published(catalog, STORED_AS_ICEBERG).metadata
    cleared = {"dag_run_id": second.id, "task_ids": ["discover"], "include_downstream": True, "dry_run": False}
    stack.api.post(f"/dags/{LOAD}/clearTaskInstances", {**cleared, "only_failed": False})
    second.wait()
    assert second.tries("register") == 2
    assert set(run_dag(LOAD).states().values()) == {"skipped"}
    assert published(catalog, STORED_AS_ICEBERG).metadata == before
    check_partitions(catalog, STORED_AS_ICEBERG)


def test_a_corrected_file_replaces_its_partitions(
    rows: dict[str, list[tuple[Any, ...]]],
    catalog: Catalog,
    landing: Path,
    months: dict[int, Any],
    deliver: Callable[..., Path],
    run_dag: Callable[..., Any],
) -> None:
    corrected = [*months[3], months[3][0]]
    deliver(landing / "flights-2013-03.csv", corrected)
    refused = run_dag(LOAD, {}, "failed")
    assert "changed after they were loaded" in refused.log("discover")
    run = run_dag(LOAD, {"mode": "replace"})
    assert "their partitions are replaced: " in run.log("discover")
    report = run.result("register")
    assert (report["partitions"], report["partitions_replaced"], report["row_count"]) == (0, 4, len(corrected))
    counts = {partition.values: partition.row_count for partition in catalog.get_partitions(STORED_AS_ICEBERG)}
    assert counts == flights_by_partition([*months[1], *months[2], *corrected])
    check_partitions(catalog, STORED_AS_ICEBERG)
