"""The steps of migrations of many tables: decisions, failures, and the summary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from calve_airflow.assets import Change, change_asset
from calve_airflow.batches import all_items
from calve_airflow.forms.iceberg import AS_TRINO, migration_params
from calve_airflow.operators.migrating import (
    FlipMigrationOperator,
    PlanMigrationsOperator,
    StageMigrationOperator,
    SummariseMigrationsOperator,
    VerifyMigrationOperator,
    fail_migration,
)
from calve_airflow.operators.spark_job import SparkJobOperator
from catalog import Catalog, NewPartition
from catalog.errors import VerificationFailedError
from catalog.migration import forms as migration_forms
from catalog.migration.requests import MigrationRequest
from catalog.model import FileFormat
from catalog.operations.dry_runs import plan_of
from catalog.operations.records import OperationKind, OperationState
from tests.support.iceberg_tables import expected_rows, iceberg_rows, make_orders, stage, write_rows

RUN = "migrate_hive_to_iceberg/run"
FIRST, LAST, TEXTS = "demo.orders_1", "demo.orders_2", "demo.texts"
FORM = {"tables": ["demo.orders_*"], "dry_run": False}

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
"""For tests that do not depend on the database."""


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """Two tables that can be migrated, and one that cannot."""
    monkeypatch.setenv("CALVE_CATALOG_URL", catalog_url)
    with Catalog.open(catalog_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        make_orders(catalog, FIRST)
        make_orders(catalog, LAST)
        catalog.create_table(TEXTS, columns=[("a", "int")], format="textfile")
        yield catalog


class Task(dict[str, Any]):
    """The XComs of a run, as its tasks see them."""

    def __init__(self) -> None:
        super().__init__()
        self.task = SimpleNamespace(outlets=[])
        self.events = OutletEventAccessors()

    def context(self, form: dict[str, Any] | None = None, **more: Any) -> Context:
        run = SimpleNamespace(triggering_user_name="somebody", run_id="run", dag_id="migrate_hive_to_iceberg")
        return Context(ti=self, dag_run=run, outlet_events=self.events, params=form or FORM, **more)  # type: ignore[typeddict-item]  # other keys are not used

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.fixture
def jobs(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A replacement of the Spark jobs: errors by (step, table), and the recorded runs with their settings."""
    state: dict[str, Any] = {"errors": {}, "ran": [], "conf": {}}

    def execute(operator: SparkJobOperator, context: Context) -> dict[str, Any]:
        table, step, operation_id = operator.request["table"], operator.step, operator.operation_id
        if operator._existing_job(catalog) is None:
            state["ran"].append((step, table))
            state["conf"] = operator.conf
            if error := state["errors"].get((step, table)):
                attempt = catalog.operations.start_job(operation_id, step)
                catalog.operations.fail_job(operation_id, step, attempt, type(error).__name__, str(error))
                raise AirflowFailException(f"{type(error).__name__}: {error}")
            if step == "stage" and not operator.request["dry_run"]:
                stage(catalog, catalog.operations.get(operation_id))
            else:
                with catalog.operations.attempt(operation_id, step) as attempt:
                    catalog.operations.finish_job(operation_id, step, attempt, result(operation_id, step))
        job = catalog.operations.get_job(operation_id, step)
        assert job is not None
        return dict(job.result)

    def result(operation_id: str, step: str) -> dict[str, Any]:
        if step == "stage":
            problems = state.get("problems", [])
            return {"files": 4, "rows": 7, "bytes": 2048, "problem_count": len(problems), "problems": problems}
        _, location = catalog.migrations.staged(operation_id)
        return {"metadata_location": location, "partitions": 4, "partitions_total": 4, "rows": 7}

    monkeypatch.setattr(SparkJobOperator, "run_job", execute)
    return state


def plan(form: dict[str, Any], task: Task | None = None) -> list[dict[str, Any]]:
    operator = PlanMigrationsOperator(task_id="plan", operation_id=RUN, form=form)
    return all_items(operator.execute((Task() if task is None else task).context()))


def migrate(arguments: dict[str, Any], form: dict[str, Any] = FORM) -> str | None:
    """Run the tasks of one table until one fails; return its error."""
    for number, operator in enumerate((StageMigrationOperator, VerifyMigrationOperator, FlipMigrationOperator)):
        task = operator(task_id=f"task_{number}", **arguments)
        try:
            task.execute(Task().context(form))
        except AirflowSkipException:
            continue
        except Exception as error:
            fail_migration(Task().context(form, task=task, exception=error))
            return str(error)
    return None


def summarise(task: Task, form: dict[str, Any]) -> list[dict[str, Any]]:
    operator = SummariseMigrationsOperator(task_id="report", operation_id=RUN, planned=task["plans"], form=form)
    operator.execute(task.context())
    rows: list[dict[str, Any]] = task["return_value"]
    return rows


def run(form: dict[str, Any]) -> list[dict[str, Any]]:
    task = Task()
    for arguments in plan(form, task):
        migrate(arguments, form)
    return summarise(task, form)


def failed(form: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the error of the run's last task, and the outcome of each table."""
    task = Task()
    for arguments in plan(form, task):
        migrate(arguments, form)
    with pytest.raises(AirflowFailException) as caught:
        summarise(task, form)
    return str(caught.value), {row["table"]: row["outcome"] for row in task["return_value"]}


def test_tables_of_a_pattern_become_iceberg_tables(catalog: Catalog, catalog_url: str, jobs: dict[str, Any]) -> None:
    rows = run(FORM)
    assert [(row["table"], row["files"], row["rows"], row["partitions verified"]) for row in rows] == [
        (FIRST, 4, 7, 4),
        (LAST, 4, 7, 4),
    ]
    assert all(row["outcome"].startswith("Iceberg table now; metadata: ") for row in rows)
    assert iceberg_rows(catalog_url, LAST) == expected_rows()
    assert catalog.operations.get(f"{RUN}/{LAST}").requested_by == "somebody"
    assert jobs["ran"] == [("stage", FIRST), ("verify", FIRST), ("stage", LAST), ("verify", LAST)]


@on_sqlite
def test_a_run_that_is_cleared_does_nothing_again(catalog: Catalog, jobs: dict[str, Any]) -> None:
    first = run(FORM)
    jobs["ran"].clear()
    again = run(FORM)
    assert [row["outcome"] for row in again] == [row["outcome"] for row in first]
    assert jobs["ran"] == []


@on_sqlite
def test_a_migration_is_an_event_with_its_counts(catalog: Catalog, jobs: dict[str, Any]) -> None:
    form = {**FORM, "tables": [FIRST]}
    run(form)
    task = Task()
    flip = FlipMigrationOperator(task_id="flip", table=FIRST)
    flip.execute(task.context(form))
    assert [dataset.table for dataset in (*flip.lineage.inputs, *flip.lineage.outputs)] == [FIRST, FIRST]
    assert flip.lineage.outputs[0].rows == 7
    asset = change_asset(FIRST, Change.MIGRATED)
    assert task.task.outlets == [asset]
    extra = dict(task.events[asset].extra)
    assert extra.pop("bytes") > 0
    assert extra == {"operation": f"{RUN}/{FIRST}", "partitions": 4, "rows": 7, "files": 4}


@on_sqlite
def test_a_later_run_passes_over_what_a_pattern_finds_migrated(catalog: Catalog, jobs: dict[str, Any]) -> None:
    run(FORM)
    catalog.create_view("demo.orders_view", "SELECT 1 AS a")
    operator = PlanMigrationsOperator(task_id="plan", operation_id="another", form=FORM)
    task = Task()
    assert operator.execute(task.context()) == []
    assert [each["verdict"] for each in task["plans"]] == ["skipped"] * 3
    summary = SummariseMigrationsOperator(task_id="report", operation_id="another", planned=task["plans"], form=FORM)
    summary.execute(task.context())
    assert "AlreadyIcebergError" in task["return_value"][0]["outcome"]
    # A table that is selected by name is treated differently.
    named = {**FORM, "tables": [FIRST]}
    operator = PlanMigrationsOperator(task_id="plan", operation_id="third", form=named)
    operator.execute(task.context())
    assert [each["verdict"] for each in task["plans"]] == ["refused"]


def test_a_table_that_fails_stops_no_other_and_is_not_held(catalog: Catalog, jobs: dict[str, Any]) -> None:
    jobs["errors"]["verify", FIRST] = VerificationFailedError("they differ")
    said, outcomes = failed({**FORM, "tables": ["demo.*", "demo.gone"]})
    assert outcomes[LAST].startswith("Iceberg table now")
    assert outcomes[FIRST] == "not migrated: VerificationFailedError: they differ"
    assert outcomes[TEXTS].startswith("refused: UnsupportedFormatError: ")
    assert outcomes["demo.gone"].startswith("refused: TableNotFoundError: ")
    assert said.startswith("3 of 4 failed: ")
    assert not catalog.get_table(FIRST).is_iceberg
    assert catalog.operations.get(f"{RUN}/{FIRST}").state is OperationState.FAILED
    catalog.add_partitions(FIRST, [NewPartition(("fr", "1"))])


def test_files_that_differed_are_staged_again_when_the_run_is_cleared(catalog: Catalog, jobs: dict[str, Any]) -> None:
    jobs["errors"]["verify", FIRST] = VerificationFailedError("they differ")
    failed({**FORM, "tables": [FIRST]})
    jobs["errors"].clear()
    jobs["ran"].clear()
    assert run({**FORM, "tables": [FIRST]})[0]["outcome"].startswith("Iceberg table now")
    assert jobs["ran"] == [("stage", FIRST), ("verify", FIRST)]


@on_sqlite
def test_what_changes_before_the_flip_is_noticed_and_a_cleared_stage_takes_it_in(
    catalog: Catalog, catalog_url: str, jobs: dict[str, Any]
) -> None:
    form = {**FORM, "tables": [FIRST]}
    (arguments,) = plan(form)
    StageMigrationOperator(task_id="stage", **arguments).execute(Task().context())
    VerifyMigrationOperator(task_id="verify", **arguments).execute(Task().context())
    write_rows(catalog.get_partition(FIRST, ("nl", "2025")).location, [8], "late.parquet")
    flip = FlipMigrationOperator(task_id="flip", **arguments)
    with pytest.raises(AirflowFailException, match=r"MigrationConflictError: .*: clear `stage` of demo.orders_1"):
        flip.execute(Task().context())
    migrate(arguments)
    assert (8, "n8", "nl", 2025) in iceberg_rows(catalog_url, FIRST)


@on_sqlite
def test_a_plan_that_does_not_fit_any_more_is_made_anew(
    catalog: Catalog, catalog_url: str, jobs: dict[str, Any]
) -> None:
    (arguments,) = plan({**FORM, "tables": [FIRST]})
    catalog.add_partitions(FIRST, [NewPartition(("fr", "2026"))])
    write_rows(catalog.get_partition(FIRST, ("fr", "2026")).location, [8])
    migrate(arguments)
    assert (8, "n8", "fr", 2026) in iceberg_rows(catalog_url, FIRST)


def test_a_dry_run_reads_the_files_and_changes_nothing(catalog: Catalog, jobs: dict[str, Any]) -> None:
    before = [list(catalog.get_partitions(name)) for name in (FIRST, LAST)]
    rows = run({"tables": ["demo.orders_*"]})
    assert [(row["table"], row["files"], row["rows"], row["bytes"], row["outcome"]) for row in rows] == [
        (FIRST, 4, 7, "2.0 KiB", "can be migrated"),
        (LAST, 4, 7, "2.0 KiB", "can be migrated"),
    ]
    assert jobs["ran"] == [("stage", FIRST), ("stage", LAST)]
    operation = catalog.operations.get(f"{RUN}/{FIRST}")
    assert (operation.state, operation.failure_code) == (OperationState.FAILED, "DRY_RUN")
    assert [list(catalog.get_partitions(name)) for name in (FIRST, LAST)] == before
    assert not catalog.get_table(FIRST).is_iceberg


@on_sqlite
def test_a_cleared_dry_run_reads_the_files_again(catalog: Catalog, jobs: dict[str, Any]) -> None:
    form = {"tables": [FIRST]}
    run(form)
    run(form)
    assert jobs["ran"] == [("stage", FIRST), ("stage", FIRST)]


@on_sqlite
def test_a_dry_run_names_the_files_that_would_refuse_the_table(catalog: Catalog, jobs: dict[str, Any]) -> None:
    jobs["problems"] = [{"path": "/x/empty.parquet", "problem": "EMPTY", "message": "it has no bytes"}]
    said, outcomes = failed({"tables": [FIRST]})
    assert (
        "1 file(s) cannot be part of the table, the first: /x/empty.parquet: it has no bytes (EMPTY)" in outcomes[FIRST]
    )
    assert said.startswith("1 of 1 failed")
    assert run({"tables": [FIRST], "unusable_files": "skip"})[0]["outcome"] == "can be migrated"


@on_sqlite
def test_a_dry_run_without_files_needs_no_spark(catalog: Catalog, jobs: dict[str, Any]) -> None:
    task, form = Task(), {"tables": [FIRST], "read_files": False}
    assert plan(form, task) == []
    (planned,) = task["plans"]
    assert planned["plan"]["columns"][0] == {
        "name": "id",
        "hive_type": "bigint",
        "iceberg_type": "long",
        "is_partition_key": False,
    }
    assert summarise(task, form)[0]["outcome"].startswith("can be migrated, as far as the catalog knows")
    (kept,) = catalog.operations.list(FIRST)
    assert plan_of(kept) == planned["plan"]


@on_sqlite
def test_without_verification_no_job_compares(catalog: Catalog, jobs: dict[str, Any]) -> None:
    (row,) = run({**FORM, "tables": [FIRST], "verify": False})
    assert (row["partitions verified"], jobs["ran"]) == (None, [("stage", FIRST)])


@on_sqlite
def test_the_comparison_gets_icebergs_runtime_and_avros_reader_where_it_needs_it(
    catalog: Catalog, jobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (arguments,) = plan({**FORM, "tables": [FIRST]})
    StageMigrationOperator(task_id="stage", **arguments).execute(Task().context())
    VerifyMigrationOperator(task_id="verify", **arguments).execute(Task().context())
    assert jobs["conf"]["spark.jars.packages"] == "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
    catalog.add_partitions(LAST, [NewPartition(("fr", "2026"), format=FileFormat.AVRO)])
    (arguments,) = plan({**FORM, "tables": [LAST]})
    StageMigrationOperator(task_id="stage", **arguments).execute(Task().context())
    VerifyMigrationOperator(task_id="verify", **arguments).execute(Task().context())
    assert "org.apache.spark:spark-avro_2.13:" in jobs["conf"]["spark.jars.packages"]


@on_sqlite
@pytest.mark.parametrize("forged", [LAST, FIRST.upper(), {"table": FIRST}])
def test_a_table_that_the_form_does_not_mean_is_not_migrated(
    catalog: Catalog, jobs: dict[str, Any], forged: Any
) -> None:
    form = {**FORM, "tables": [FIRST, "demo.*_1"]}
    assert "WrongFieldError: table" in str(migrate({"table": forged}, form))
    context = Task().context(form)
    for operator in (VerifyMigrationOperator, FlipMigrationOperator):
        with pytest.raises(AirflowFailException, match="WrongFieldError: table"):
            operator(task_id="task", table=forged).execute(context)
    assert (jobs["ran"], catalog.operations.list()) == ([], [])


@on_sqlite
def test_a_dry_run_migrates_nothing_whichever_task_is_run(catalog: Catalog, jobs: dict[str, Any]) -> None:
    catalog.migrations.begin(f"{RUN}/{FIRST}", FIRST, MigrationRequest(verify=False))
    stage(catalog, catalog.operations.get(f"{RUN}/{FIRST}"))
    for operator in (VerifyMigrationOperator, FlipMigrationOperator):
        with pytest.raises(AirflowSkipException, match="this is a dry run"):
            operator(task_id="task", table=FIRST).execute(Task().context({"tables": [FIRST]}))
    assert not catalog.get_table(FIRST).is_iceberg


@on_sqlite
def test_what_is_compared_is_what_the_form_says(
    catalog: Catalog, jobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {**FORM, "tables": [FIRST], "verified_partitions": 2}
    StageMigrationOperator(task_id="stage", table=FIRST).execute(Task().context(form))
    asked: list[Any] = []
    monkeypatch.setattr(SparkJobOperator, "run_job", lambda self, _: asked.append(self.request) or {})
    VerifyMigrationOperator(task_id="verify", table=FIRST).execute(Task().context(form))
    assert asked == [{"table": FIRST, "partitions": 2}]


@on_sqlite
def test_a_task_that_failed_fails_no_operation_of_another_run(catalog: Catalog) -> None:
    others = "add_partitions/another"
    catalog.operations.begin(others, OperationKind.ADD_PARTITIONS, FIRST, is_exclusive=True)
    for table in (f"../{others}", others, FIRST):
        task = StageMigrationOperator(task_id="stage", table=table)
        task.operation_id = others
        fail_migration(Task().context(task=task))
    assert catalog.operations.get(others).state is OperationState.PLANNED


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"tables": []}, "tables: there is none"),
        ({"tables": ["demo.order_*"]}, "tables: no table matches 'demo.order_\\*'; existing tables: demo.orders_1"),
        ({"tables": [FIRST], "recursive_directory": "maybe"}, "recursive_directory: is 'maybe'"),
        ({"tables": [FIRST], "timestamps": "utc"}, "timestamps: is 'utc'"),
        ({"tables": [FIRST], "unusable_files": "drop"}, "unusable_files: "),
    ],
)
@on_sqlite
def test_a_field_that_is_not_right_is_named(catalog: Catalog, form: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=f"WrongFieldError: {said}"):
        plan(form)


def test_the_form_offers_what_a_request_takes() -> None:
    assert AS_TRINO == migration_forms.AS_TRINO
    offered = {name: param.value for name, param in migration_params().items() if name != "tables"}
    form = migration_forms.MigrationForm.read({**offered, "tables": [FIRST]})
    assert (form.dry_run, form.read_files, form.request) == (True, True, migration_forms.MigrationRequest())
