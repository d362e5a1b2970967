"""The indexes that a backfill builds, its failures, and its summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.batches import all_items, in_batches
from calve_airflow.catalog_access import SparkJobLostError
from calve_airflow.operators.backfilling import BackfillIndexesOperator, PlanBackfillOperator, SummariseBackfillOperator
from calve_airflow.operators.spark_job import SparkJobOperator
from catalog import Catalog, IndexState
from catalog.operations.records import OperationKind, OperationState

TABLE = "demo.flights"
RUN = "backfill_partition_indexes/run"
BY_CARRIER = {"by_carrier": ["carrier"]}
BY_MONTH = ["by_month: month"]


class Task(dict[str, Any]):
    """The XComs of a run, as its tasks see them."""

    def context(self, **form: Any) -> Context:
        run = SimpleNamespace(triggering_user_name="somebody", dag_id="backfill_partition_indexes", run_id="run")
        params = {"tables": [TABLE], "indexes": None, **form}
        return Context(ti=self, dag_run=run, params=params)  # type: ignore[typeddict-item]  # other keys are not used

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value

    def xcom_pull(self, task_id: str, *, key: str, map_indexes: int) -> Any:
        assert (task_id, map_indexes) == ("build", 0)
        return self.get(key)


@pytest.fixture
def job(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """A function that replaces the Spark job: it builds indexes, or raises an error for one."""
    built: list[str] = []

    def become(errors: Mapping[str, Exception] | None = None) -> list[str]:
        def execute(operator: SparkJobOperator, context: Context) -> None:
            index = operator.request["index"]
            built.append(operator.operation_id)
            catalog.operations.start_job(operator.operation_id, operator.job)
            if errors and index in errors:
                raise errors[index]
            catalog.build_partition_index(operator.request["table"], index)

        monkeypatch.setattr(SparkJobOperator, "run_job", execute)
        return built

    return become


def plan(task: Task, **form: Any) -> list[dict[str, Any]]:
    return all_items(PlanBackfillOperator(task_id="plan").execute(task.context(**form)))


def build(task: Task, table: str = TABLE, **form: Any) -> list[str]:
    return BackfillIndexesOperator(task_id="build", table=table).execute(task.context(**form))


def summarise(task: Task, planned: list[dict[str, Any]]) -> list[str]:
    operator = SummariseBackfillOperator(
        task_id="summarise",
        operation_id=RUN,
        planned=in_batches(planned),
        wanted=task["wanted"],
        config_problems=task["config_problems"],
    )
    operator.execute(task.context())
    return [row["outcome"] for row in task["return_value"]]


def test_active_index_is_reported_and_not_built(catalog: Catalog) -> None:
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    catalog.build_partition_index(TABLE, "by_carrier")
    task = Task()
    assert plan(task, indexes=["By_Carrier: Carrier"]) == []
    assert summarise(task, []) == ["ACTIVE before"]


def test_index_that_is_not_active_is_missing(catalog: Catalog) -> None:
    catalog.create_partition_index(TABLE, "by_month", ["month"])
    catalog.build_partition_index(TABLE, "by_month")
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    wanted = ["by_month: month", "by_carrier: carrier", "both: carrier, month"]
    task = Task()
    assert plan(task, indexes=wanted) == [{"table": TABLE}]
    assert task["wanted"][0]["missing"] == ["by_month", "by_carrier", "both"]


def test_missing_indexes_are_created_and_built_one_after_the_other(catalog: Catalog, job: Callable[..., Any]) -> None:
    built = job()
    task = Task()
    form = {"indexes": ["by_carrier: carrier", "by_month: month"]}
    planned = plan(task, **form)
    assert build(task, **form) == ["by_carrier", "by_month"]
    states = {index.name: index.state for index in catalog.get_partition_indexes(TABLE)}
    assert states == {"by_carrier": IndexState.ACTIVE, "by_month": IndexState.FAILED}
    assert [each.rpartition("/")[0] for each in built] == [f"{RUN}/{TABLE}/by_carrier", f"{RUN}/{TABLE}/by_month"]
    assert catalog.operations.get(built[0]).requested_by == "somebody"
    with pytest.raises(AirflowFailException, match=r"1 of 2 failed: partition index by_month of demo.flights: FAILED"):
        summarise(task, planned)


def test_index_that_is_being_created_is_taken_up(catalog: Catalog, job: Callable[..., Any]) -> None:
    job()
    catalog.create_partition_index(TABLE, "by_carrier", ["carrier"])
    build(Task(), indexes=["by_carrier: carrier"])
    assert catalog.get_partition_index(TABLE, "by_carrier").state is IndexState.ACTIVE


def test_index_that_failed_is_created_again_by_an_operation_of_its_own(
    catalog: Catalog, job: Callable[..., Any]
) -> None:
    built = job()
    build(Task(), indexes=BY_MONTH)
    catalog.drop_partitions(TABLE, "month is null")
    build(Task(), indexes=BY_MONTH)
    assert catalog.get_partition_index(TABLE, "by_month").state is IndexState.ACTIVE
    assert len(set(built)) == 2


def test_index_that_cannot_be_created_does_not_stop_the_others(catalog: Catalog, job: Callable[..., Any]) -> None:
    job()
    catalog.create_partition_index(TABLE, "taken", ["month", "carrier"])
    task = Task()
    form = {"indexes": ["by_delay: delay", "taken: carrier, month", "by_carrier: carrier"]}
    planned = plan(task, **form)
    with pytest.raises(AirflowFailException, match="InvalidIndexError"):
        build(task, **form)
    assert catalog.get_partition_index(TABLE, "by_carrier").state is IndexState.ACTIVE
    with pytest.raises(AirflowFailException, match=r"2 of 3 failed: .*by_delay.*InvalidIndexError.*IndexAlreadyExists"):
        summarise(task, planned)
    assert [row["outcome"].partition(":")[0] for row in task["return_value"]] == [
        "not created",
        "not created",
        "ACTIVE, built by this run",
    ]


def test_lost_job_is_tried_again_and_its_operation_ends_with_the_run(catalog: Catalog, job: Callable[..., Any]) -> None:
    job({"by_carrier": SparkJobLostError("gone")})
    task = Task()
    form = {"indexes": ["by_carrier: carrier", "by_delay: delay"]}
    planned = plan(task, **form)
    with pytest.raises(SparkJobLostError):
        build(task, **form)
    with pytest.raises(AirflowFailException, match=r"by_carrier of demo.flights: CREATING: gone; the next run"):
        summarise(task, planned)
    (operation,) = catalog.operations.list(TABLE)
    assert (operation.kind, operation.state) == (OperationKind.BUILD_INDEX, OperationState.FAILED)


def test_table_that_does_not_exist_fails_where_it_would_be_built(catalog: Catalog, job: Callable[..., Any]) -> None:
    job()
    task = Task()
    form = {"tables": ["demo.none"], "indexes": ["by_carrier: carrier"]}
    planned = plan(task, **form)
    with pytest.raises(AirflowFailException, match="TableNotFoundError"):
        build(task, **planned[0], **form)
    with pytest.raises(AirflowFailException, match=r"not created: TableNotFoundError: .*demo.none"):
        summarise(task, planned)


def test_a_wrong_entry_of_the_list_fails_only_its_table(
    catalog: Catalog, job: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job()
    path = tmp_path / "tables.yaml"
    entries = {TABLE: {"source": "/raw", "indexes": BY_CARRIER}, "demo.wrong": {"sorce": "/raw"}}
    path.write_text(yaml.safe_dump({"tables": entries}))
    monkeypatch.setenv("CALVE_TABLES", str(path))
    for tables, others in ((None, []), ([TABLE, "demo.wrong", "demo.unlisted"], ["demo.unlisted"])):
        task = Task()
        planned = plan(task, tables=tables)
        for missing in planned:
            build(task, **missing, tables=tables)
        assert catalog.get_partition_index(TABLE, "by_carrier").state is IndexState.ACTIVE
        with pytest.raises(AirflowFailException, match=r"table demo\.wrong: unknown field sorce"):
            summarise(task, planned)
        rows = {row["table"]: row["outcome"] for row in task["return_value"]}
        assert sorted(rows) == sorted([TABLE, "demo.wrong", *others])
        assert rows[TABLE].startswith("ACTIVE")


@pytest.mark.parametrize("forged", ["demo.other", TABLE.upper(), {"table": TABLE}])
def test_a_table_that_the_form_does_not_mean_gets_no_index(
    catalog: Catalog, job: Callable[..., Any], forged: Any
) -> None:
    catalog.create_table("demo.other", columns=[("delay", "int")], partition_keys=[("carrier", "string")])
    built = job()
    with pytest.raises(AirflowFailException, match="WrongFieldError: table"):
        build(Task(), forged, indexes=["by_carrier: carrier"])
    assert built == []
    assert [catalog.get_partition_indexes(table) for table in ("demo.other", TABLE)] == [[], []]


def test_unreadable_index_fails_the_plan_for_good(catalog: Catalog) -> None:
    with pytest.raises(AirflowFailException, match="index 'by_carrier' has no keys"):
        plan(Task(), indexes=["by_carrier"])
