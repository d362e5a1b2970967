"""The requests of a load's tasks, and their repetition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped
from airflow.sdk.execution_time.context import OutletEventAccessors
from sqlalchemy import update

from calve_airflow.assets import Change, change_asset
from calve_airflow.operators.announcing import AnnounceNewPartitionsOperator
from calve_airflow.operators.loading import (
    CREATE_INDEXES,
    QUARANTINED,
    BuildLoadedIndexOperator,
    CheckQualityOperator,
    CreateIndexesOperator,
    DiscoverSourcesOperator,
    LoadJobOperator,
    RegisterPartitionsOperator,
    ReportQuarantineOperator,
    WritePartitionsOperator,
)
from calve_airflow.operators.spark_job import SparkJobOperator
from catalog import Catalog
from catalog.operations.changes import ANNOUNCES, record_changed
from catalog.operations.records import OperationKind, OperationState
from catalog.operations.staging import STAGING
from catalog.storage.schema import PartitionRow

TABLE, RUN, STEP = "demo.flights", "add_partitions/run", "register"


def commit(catalog: Catalog, staging: str, settings: Mapping[str, Any]) -> None:
    """Journal a load that was killed after its commit, which registered three partitions."""
    catalog.operations.begin(RUN, OperationKind.ADD_PARTITIONS, TABLE, {"settings": settings})
    written = catalog.operations.start_job(RUN, "write_partitions")
    catalog.operations.finish_job(RUN, "write_partitions", written, {"staging": staging})
    attempt = catalog.operations.start_job(RUN, STEP)
    catalog.operations.finish_job(RUN, STEP, attempt, {"partitions": 3})
    with catalog.storage.write() as connection:
        catalog.operations.advance(connection, RUN, OperationState.COMMITTED)


def test_a_try_after_one_that_died_behind_its_commit_clears_up(catalog: Catalog) -> None:
    staging = f"{STAGING}/1-1"
    commit(catalog, staging, {})
    location = Path(catalog.get_table(TABLE).location)
    (location / staging).mkdir(parents=True)
    operator = RegisterPartitionsOperator(task_id=STEP, operation_id=RUN)
    assert operator.execute(Context()) == {"partitions": 3}
    assert catalog.operations.get(RUN).state is OperationState.CLEANED
    assert not (location / STAGING).exists()


def test_the_task_that_creates_indexes_is_skipped_where_all_are_there(catalog: Catalog) -> None:
    commit(catalog, f"{STAGING}/1-1", {"indexes": {"By_Carrier": ["carrier"]}})
    report = {"partitions": 3}
    with DAG("add_partitions", schedule=None):
        operator = RegisterPartitionsOperator(task_id=STEP, operation_id=RUN)
        operator >> CreateIndexesOperator(task_id=CREATE_INDEXES, operation_id=RUN)
    pushed: list[Any] = []
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: pushed.append((key, value)))}
    assert operator.execute(context) == report
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    assert operator.execute(context) == report
    catalog.build_partition_index(TABLE, "by_carrier")
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        operator.execute(context)
    assert (list(skipped.value.tasks), pushed) == ([CREATE_INDEXES], [("return_value", report)])


def test_a_load_that_has_written_nothing_is_not_registered(catalog: Catalog) -> None:
    catalog.operations.begin(RUN, OperationKind.ADD_PARTITIONS, TABLE)
    with pytest.raises(AirflowFailException, match="clear its task that writes"):
        RegisterPartitionsOperator(task_id=STEP, operation_id=RUN).execute(Context())


def test_the_tasks_of_a_load_do_what_its_form_says_whatever_was_written_into_xcoms(
    empty_catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "days.csv"
    source.write_text("day,n\n2024-01-01,1\n")
    pushed: dict[str, Any] = {}
    run = SimpleNamespace(triggering_user_name="somebody")
    form = {"table": "demo.days", "source": str(source), "source_format": "csv", "keys": ["day date"], "dry_run": False}
    form["spark_conf"] = {"spark.cores.max": 8}
    ti = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    context: Any = {"dag_run": run, "ti": ti, "params": form}
    asked: dict[str, Any] = {}
    spark: list[Any] = []

    def execute(operator: SparkJobOperator, context: Context) -> dict[str, Any]:
        asked[operator.job] = operator.request
        spark.append((operator.conf, operator.conn_id))
        return {"failed": 0}

    monkeypatch.setattr(SparkJobOperator, "run_job", execute)
    assert DiscoverSourcesOperator(task_id="discover", operation_id=RUN).execute(context) == 1
    for task in (
        LoadJobOperator(task_id="validate", job="validate_source", operation_id=RUN),
        WritePartitionsOperator(task_id="write", operation_id=RUN),
        CheckQualityOperator(task_id="check", job="check_quality", setting="quality", operation_id=RUN),
    ):
        assert set(task.template_fields) == {"operation_id"}
        task.execute(context)
    assert asked["validate_source"] == asked["write_partitions"]
    assert asked["validate_source"]["keys"] == [["day", "date"]]
    assert asked["check_quality"] == {"table": "demo.days", "rules": {}}
    assert spark == [({"spark.cores.max": "8"}, "spark_default")] * 3
    assert pushed == {"table": "demo.days", "index_names": []}


@pytest.fixture
def built(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The operations and requests of the submitted Spark jobs; the run's load has an index."""

    def execute(operator: SparkJobOperator, context: Context) -> dict[str, Any]:
        assert (operator.conf, operator.conn_id) == ({"spark.executor.memory": "4g"}, "night")
        built.append((operator.operation_id, operator.request))
        return {}

    built: list[tuple[str, Any]] = []
    monkeypatch.setattr(SparkJobOperator, "run_job", execute)
    spark = {"conf": {"spark.executor.memory": "4g"}, "connection": "night"}
    settings = {"request": {}, "quality": {}, "indexes": {"By_Carrier": ["carrier"]}, "spark": spark}
    catalog.operations.begin(RUN, OperationKind.ADD_PARTITIONS, TABLE, {"settings": settings})
    return built


def context_of_run() -> Any:
    run = SimpleNamespace(triggering_user_name="somebody", dag_id="add_partitions", run_id="run")
    return {"dag_run": run, "params": {"table": TABLE}}


def test_the_indexes_of_a_load_are_built_below_its_operation(catalog: Catalog, built: list[tuple[str, Any]]) -> None:
    context = context_of_run()
    names = CreateIndexesOperator(task_id="create", operation_id=RUN).execute(context)
    assert names == ["By_Carrier"]
    index = catalog.get_partition_index(TABLE, "by_carrier")
    for _ in range(2):
        BuildLoadedIndexOperator(task_id="build", index=names[0]).execute(context)
    operation_id = f"{RUN}/{TABLE}/by_carrier/{index.id}"
    assert built == [(operation_id, {"table": TABLE, "index": "by_carrier"})] * 2
    operation = catalog.operations.get(operation_id)
    assert (operation.kind, operation.table, operation.requested_by) == (OperationKind.BUILD_INDEX, TABLE, "somebody")


@pytest.mark.parametrize(
    "forged",
    ["by_month", {"operation_id": "add_partitions/other", "request": {"table": TABLE, "index": "by_month"}}],
)
def test_no_xcom_says_what_else_a_load_builds(catalog: Catalog, built: list[tuple[str, Any]], forged: Any) -> None:
    catalog.create_partition_index(TABLE, "by_month", ["month"])
    assert BuildLoadedIndexOperator.template_fields == ()
    with pytest.raises(AirflowFailException, match="WrongFieldError: index: "):
        BuildLoadedIndexOperator(task_id="build", index=forged).execute(context_of_run())
    assert built == []
    assert [operation.id for operation in catalog.operations.list()] == [RUN]


def test_each_run_loads_the_day_that_its_source_names_and_no_form_is_a_template(
    empty_catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import DAG

    days = ["2024-05-01", "2024-05-02", "2024-05-03"]
    for day in days:
        (tmp_path / "in" / day).mkdir(parents=True)
        (tmp_path / "in" / day / "a.csv").write_text(f"day,n\n{day},1\n")
    source = f"{tmp_path}/in/{{{{ ds }}}}/*.csv"
    (tmp_path / "tables.yaml").write_text(f"tables: {{demo.days: {{source: '{source}', keys: {{day: date}}}}}}")
    monkeypatch.setenv("CALVE_TABLES", str(tmp_path / "tables.yaml"))
    # The fixed part of the source is allowed without more.
    monkeypatch.delenv("CALVE_ALLOWED_LOCATIONS")
    dag = DAG("load", schedule=None, render_template_as_native_obj=True)
    run, ti = SimpleNamespace(triggering_user_name=None), SimpleNamespace(xcom_push=lambda **_: None)

    def discover(day: str, **form: Any) -> int:
        params = {"table": "demo.days", "dry_run": True, **form}
        context: Any = {"dag": dag, "dag_run": run, "ti": ti, "params": params, "ds": day}
        operation_id = f"add_partitions/{day}/{len(form)}"
        return DiscoverSourcesOperator(task_id="discover", operation_id=operation_id).execute(context)

    assert [discover(day) for day in days] == [1, 1, 1]
    sources = {operation.request["source"] for operation in empty_catalog.operations.list()}
    assert sources == {f"{tmp_path}/in/{day}/*.csv" for day in days}
    with pytest.raises(AirflowFailException, match="SourceFileError"):
        discover("2024-05-01", source=source)


def test_all_partitions_that_a_load_has_changed_are_announced(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"settings": {ANNOUNCES: True}}
    operation = catalog.operations.begin(RUN, OperationKind.ADD_PARTITIONS, TABLE, settings)
    table, (first, second, *_) = catalog.get_table(TABLE), list(catalog.get_partitions(TABLE))
    with catalog.storage.write() as connection:
        own = update(PartitionRow).where(PartitionRow.id == second.id)
        connection.execute(own.values(operation_number=operation.number))
        # The first has been rewritten by another operation since.
        record_changed(connection, table, [first.id, second.id], operation.number)
    announced: list[str] = []
    monkeypatch.setattr(
        "calve_airflow.operators.announcing.announce", lambda _context, _table, names: announced.extend(names)
    )
    task = AnnounceNewPartitionsOperator(task_id="announce", operation_id=RUN)
    assert task.execute(Context()) == []
    assert sorted(announced) == sorted([first.name(table), second.name(table)])
    announced.clear()
    task.execute(Context())
    assert announced == [second.name(table)], "a retry"


def test_a_load_is_an_event_with_its_counts(catalog: Catalog) -> None:
    operation = catalog.operations.begin(RUN, OperationKind.ADD_PARTITIONS, TABLE)
    report = {"partitions": 2, "partitions_extended": 1, "partitions_replaced": 0, "row_count": 7, "file_count": 3}
    for step, result in (("register", {**report, "size_bytes": None}), ("check_quality", {"failed": 1})):
        attempt = catalog.operations.start_job(RUN, step)
        catalog.operations.finish_job(RUN, step, attempt, result)
    with catalog.storage.write() as connection:
        hidden = update(PartitionRow).where(PartitionRow.packed_values == "AA/1")
        connection.execute(hidden.values(is_quarantined=True, operation_number=operation.number))
    task = AnnounceNewPartitionsOperator(task_id="announce", operation_id=RUN)
    context = Context(ti=SimpleNamespace(task=task), outlet_events=OutletEventAccessors())  # type: ignore[typeddict-item]
    task.execute(context)
    assert task.outlets == [], "nothing is committed"
    with catalog.storage.write() as connection:
        catalog.operations.advance(connection, RUN, OperationState.COMMITTED)
    task.execute(context)
    asset = change_asset(TABLE, Change.LOADED)
    assert task.outlets == [asset]
    counts = {"partitions_added": 2, "partitions_extended": 1, "partitions_replaced": 0, "rows": 7, "files": 3}
    assert context["outlet_events"][asset].extra == {"operation": RUN, **counts, "partitions_quarantined": 1}


def test_quarantined_partitions_are_named_by_a_task_that_fails(catalog: Catalog) -> None:
    report = ReportQuarantineOperator(task_id="quarantined", operation_id=RUN)
    context = Context()
    with pytest.raises(AirflowSkipException):
        report.execute(context)
    operation = catalog.operations.begin(RUN, OperationKind.ADD_PARTITIONS, TABLE)
    attempt = catalog.operations.start_job(RUN, "check_quality")
    catalog.operations.finish_job(RUN, "check_quality", attempt, {"failed": 1})
    with pytest.raises(AirflowSkipException):
        report.execute(context)
    with catalog.storage.write() as connection:
        hidden = update(PartitionRow).where(PartitionRow.packed_values == "AA/1")
        connection.execute(hidden.values(is_quarantined=True, operation_number=operation.number))
    message = r"QUARANTINED: 1 partition\(s\) of demo.flights failed their quality checks, .*: carrier=AA/month=1\. The"
    with pytest.raises(AirflowFailException, match=message):
        report.execute(context)
    catalog.release_partitions(TABLE)
    with pytest.raises(AirflowSkipException):
        report.execute(context)


@pytest.mark.parametrize(
    ("rules", "failed", "is_skipped"),
    [({"on_failure": "quarantine"}, 0, True), ({"on_failure": "quarantine"}, 1, False), ({}, 1, True)],
)
def test_the_task_is_skipped_unless_partitions_are_quarantined(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, rules: dict[str, str], failed: int, is_skipped: bool
) -> None:
    pushed: dict[str, Any] = {}
    context = Context(ti=SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value})))  # type: ignore[typeddict-item]  # other keys are not used
    told: list[Any] = []
    monkeypatch.setattr("calve_airflow.operators.loading.notify", lambda _, *what, **more: told.append((what, more)))
    result = {"failed": failed, "checked": 3, "failures": ["a: b"], "docs_path": "/page"}
    with DAG("load", schedule=None):
        check = CheckQualityOperator(task_id="check", job="check_quality", setting="quality", operation_id=RUN)
        alone = CheckQualityOperator(task_id="alone", job="check_quality", setting="quality", operation_id=RUN)
        check >> ReportQuarantineOperator(task_id=QUARANTINED, operation_id=RUN)
    for task in (check, alone):
        task.request = {"table": TABLE, "rules": rules}
    assert alone.finish(context, catalog, result) == result
    counts = {"failed": failed, "checked": 3, "docs_path": "/page"}
    expected = f"{failed} of 3 new partitions of demo.flights failed their quality checks: a: b. The report is /page"
    assert told == ([(("on_quality", TABLE, expected), counts)] if failed else [])
    if not is_skipped:
        assert check.finish(context, catalog, result) == result
        return
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        check.finish(context, catalog, result)
    assert (skipped.value.tasks, pushed) == ([QUARANTINED], {"return_value": result})
