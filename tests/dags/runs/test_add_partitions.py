"""From raw files to an indexed, checked table, by the DAG of a listed table and Spark.

One table has this history: two months are loaded, no new files arrive, a third month arrives with a defect in one
partition, and an invalid file and one with an unreadable line are refused. Each fixture is one step of it,
with the state of the table after the step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, IndexState
from catalog.operations.records import OperationState
from tests.dags.runs.conftest import LISTED as TABLE

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
]

LOAD, INDEX = f"add_partitions.{TABLE}", "by_month"
KEYS = ("origin", "carrier", "year", "month")
OTHER_TABLE = "shop.departures"
DEFECT = "origin=LGA/carrier=YV/year=2013/month=3"


@dataclass(frozen=True)
class Step:
    """A run, and the table after it."""

    run: Any
    table: Any


@pytest.fixture(scope="module")
def landing(home: Path) -> Path:
    return home / "landing" / "flights"


@pytest.fixture(scope="module")
def two_months(
    landing: Path,
    months: dict[int, Any],
    deliver: Callable[..., Path],
    run_dag: Callable[..., Any],
    state_of: Callable[..., Any],
) -> Step:
    for month in (1, 2):
        deliver(landing / f"flights-2013-{month:02}.csv", months[month])
    return Step(run_dag(LOAD), state_of(TABLE))


@pytest.fixture(scope="module")
def nothing_new(two_months: Step, run_dag: Callable[..., Any], state_of: Callable[..., Any]) -> Step:
    return Step(run_dag(LOAD), state_of(TABLE))


@pytest.fixture(scope="module")
def third_month(
    landing: Path,
    nothing_new: Step,
    months: dict[int, Any],
    deliver: Callable[..., Path],
    run_dag: Callable[..., Any],
    state_of: Callable[..., Any],
) -> Step:
    """March, with null times for the flights of one carrier."""
    flights = [{**row, "time_hour": "" if row["carrier"] == "YV" else row["time_hour"]} for row in months[3]]
    deliver(landing / "flights-2013-03.csv", flights)
    return Step(run_dag(LOAD), state_of(TABLE))


@pytest.fixture(scope="module")
def foo(
    third_month: Step,
    months: dict[int, Any],
    deliver: Callable[..., Path],
    run_dag: Callable[..., Any],
    state_of: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Step:
    """A file with rows of the month `foo` and valid rows."""
    flights = [*({**row, "month": "4"} for row in months[3][:5]), {**months[3][5], "month": "foo"}]
    source = deliver(tmp_path_factory.mktemp("foo") / "foo.csv", flights)
    form = {"table": TABLE, "source": str(source), "dry_run": False}
    return Step(run_dag("add_partitions", form, "failed"), state_of(TABLE))


@pytest.fixture(scope="module")
def unreadable(
    third_month: Step,
    months: dict[int, Any],
    deliver: Callable[..., Path],
    run_dag: Callable[..., Any],
    state_of: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Step:
    """A file whose third flight has an invalid distance."""
    flights = [*months[3][:2], {**months[3][2], "distance": "far"}]
    source = deliver(tmp_path_factory.mktemp("unreadable") / "unreadable.csv", flights)
    form = {"table": TABLE, "source": str(source), "dry_run": False}
    return Step(run_dag("add_partitions", form, "failed"), state_of(TABLE))


def expect_refusal(catalog: Catalog, step: Step, error_class: str, *said: str) -> None:
    """Check that the run failed at its first Spark job without retries, with the reason in the job and the log."""
    job = catalog.operations.get_job(step.run.operation_id, "validate_source")
    assert job is not None
    assert job.error_class == error_class
    for text in said:
        assert text in (job.error_message or "")
        assert text in step.run.log("validate")
    assert step.run.tries("validate") == 1
    assert step.run.states()["write"] == "upstream_failed"


# --- the first load ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_rows_and_partitions_equal_the_source(
    two_months: Step, landing: Path, read_source: Callable[..., Any], read_table: Callable[..., Any]
) -> None:
    source = read_source(landing / "flights-2013-0[12].csv", KEYS)
    assert two_months.table.visible == {name: digest[0] for name, digest in source.items()}
    assert len(source) == 8
    assert {name: digest for name, digest in read_table(TABLE).items() if name in source} == source


@pytest.mark.long
def test_every_file_belongs_to_a_partition(two_months: Step) -> None:
    assert two_months.table.leftovers == set()
    assert two_months.table.quarantined == {}


@pytest.mark.long
def test_counts_in_the_catalog_are_those_on_the_disk(two_months: Step, catalog: Catalog) -> None:
    partitions = list(catalog.get_partitions(TABLE, "month <= 2"))
    assert partitions
    for partition in partitions:
        sizes = [path.stat().st_size for path in Path(partition.location).glob("*.parquet")]
        assert (partition.file_count, partition.size_bytes) == (len(sizes), sum(sizes))


@pytest.mark.long
def test_index_of_the_list_is_active_with_one_item_per_partition(
    third_month: Step, catalog: Catalog, items_of: Callable[..., Any]
) -> None:
    index = catalog.get_partition_index(TABLE, INDEX)
    assert (index.state, index.keys) == (IndexState.ACTIVE, ("year", "month"))
    ids = [partition.id for partition in catalog.get_partitions(TABLE, state=None)]
    assert items_of(TABLE, INDEX) == dict.fromkeys(ids, 1)
    explanation = catalog.explain_partitions(TABLE, "year = 2013 and month = 2")
    assert (explanation.index, explanation.partitions_found, explanation.partitions_fetched) == (INDEX, 4, 4)


@pytest.mark.long
def test_operation_is_finished_and_says_who_asked(two_months: Step, catalog: Catalog) -> None:
    operation = catalog.operations.get(two_months.run.operation_id)
    assert (operation.state, operation.table, operation.requested_by) == (OperationState.CLEANED, TABLE, "dag_test")
    assert operation.report["register"]["partitions"] == 8


@pytest.mark.long
def test_quality_report_is_there(two_months: Step) -> None:
    report = two_months.run.result("check_quality")
    assert (report["checked"], report["passed"], report["failed"]) == (8, 8, 0)
    assert two_months.run.states()["quarantined"] == "skipped"
    assert Path(report["docs_path"]).is_file()


@pytest.mark.long
def test_job_log_is_in_the_task_log(two_months: Step) -> None:
    log = two_months.run.log("write")
    assert "Attempt 1 of Spark job write_partitions runs in the running application" in log
    assert re.search("demo.flights: staged [0-9]+ rows in ", log)


# --- nothing new ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_run_without_new_files_skips_everything_and_changes_nothing(two_months: Step, nothing_new: Step) -> None:
    assert set(nothing_new.run.states().values()) == {"skipped"}
    assert nothing_new.table == two_months.table


# --- the next month ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_new_month_is_all_that_is_added(nothing_new: Step, third_month: Step) -> None:
    before, after = nothing_new.table, third_month.table
    assert before.visible.items() <= after.visible.items()
    assert before.files.items() <= after.files.items()
    added = {*after.visible, *after.quarantined} - before.visible.keys()
    assert len(added) == 4
    assert {name.rpartition("/")[2] for name in added} == {"month=3"}
    assert after.leftovers == set()
    assert third_month.run.result("register")["partitions"] == 4


@pytest.mark.long
def test_partition_that_fails_its_checks_stays_invisible(
    third_month: Step, catalog: Catalog, read_table: Callable[..., Any], months: dict[int, Any]
) -> None:
    flights = sum(row["carrier"] == "YV" for row in months[3])
    assert third_month.table.quarantined == {DEFECT: flights}
    assert DEFECT not in third_month.table.visible
    assert len(third_month.table.visible) == 11
    assert catalog.explain_partitions(TABLE, "carrier = 'YV' and month = 3").partitions_found == 0
    report = third_month.run.result("check_quality")
    assert (report["checked"], report["passed"], report["failed"]) == (4, 3, 1)
    assert DEFECT in report["failures"][0]
    assert "time_hour" in report["failures"][0]
    # A state that is seen, in a run that has loaded the other partitions.
    assert third_month.run.states()["quarantined"] == "failed"
    assert f"QUARANTINED: 1 partition(s) of {TABLE} failed" in third_month.run.log("quarantined")


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_partition_that_does_not_fit_fails_the_run_and_changes_nothing(
    third_month: Step, foo: Step, catalog: Catalog
) -> None:
    expect_refusal(
        catalog, foo, "InvalidPartitionError", TABLE, "'month'", "'foo'", "int", "INVALID_PARTITION_TYPE_DATA_ERROR"
    )
    assert foo.table == third_month.table


@pytest.mark.long
def test_line_that_cannot_be_read_fails_the_run_and_is_named(
    third_month: Step, unreadable: Step, catalog: Catalog
) -> None:
    expect_refusal(catalog, unreadable, "SourceFileError", "unreadable.csv, line 4: column distance: 'far' is no int")
    assert unreadable.table == third_month.table


@pytest.mark.long
def test_failed_run_does_not_hold_its_table(foo: Step, catalog: Catalog) -> None:
    operation = catalog.operations.get(foo.run.operation_id)
    assert (operation.state, operation.failure_code) == (OperationState.FAILED, "RUN_FAILED")
    assert "Spark job validate_source: " in (operation.failure_detail or "")


@pytest.mark.long
def test_reason_of_a_failure_is_recorded_for_the_page_of_its_run(foo: Step) -> None:
    assert foo.run.result("validate", "failure").startswith("Spark job validate_source: ")


# --- a table that is not in the list ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dry_run(
    months: dict[int, Any],
    deliver: Callable[..., Path],
    run_dag: Callable[..., Any],
    state_of: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Step:
    """A load by hand is a dry run by default; tests/end_to_end/test_kill.py has one that is not."""
    source = deliver(tmp_path_factory.mktemp("other") / "january.csv", months[1])
    form = {"table": OTHER_TABLE, "source": str(source), "keys": ["carrier string", "month int"]}
    return Step(run_dag("add_partitions", form), state_of(OTHER_TABLE))


def test_dry_run_says_what_would_be_and_changes_nothing(dry_run: Step, months: dict[int, Any], home: Path) -> None:
    states = dry_run.run.states()
    assert {states.pop("discover"), states.pop("validate")} == {"success"}
    assert set(states.values()) == {"skipped"}
    report = dry_run.run.result("validate")
    assert (report["files"], report["rows"], report["partitions"]) == (1, len(months[1]), 4)
    assert dry_run.table is None
    assert not (home / "warehouse" / "shop").exists()
