"""The verification of many indexes: results and repetition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.batches import in_batches
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.verifying import (
    JOB,
    PlanVerificationOperator,
    SummariseVerificationOperator,
    VerifyIndexOperator,
)
from catalog import Catalog, IndexDefinition, NewPartition
from catalog.operations.records import OperationKind, OperationState

TABLE, INDEX = "demo.flights", "by_carrier"
RUN = "verify_partition_indexes/run"
OPERATION = f"{RUN}/{TABLE}/{INDEX}"
PLANNED = {"table": TABLE, "index": INDEX}


@pytest.fixture
def catalog(empty_catalog: Catalog) -> Catalog:
    keys = [("carrier", "string"), ("month", "int")]
    indexes = [IndexDefinition(INDEX, ("carrier",))]
    empty_catalog.create_table(TABLE, columns=[("delay", "int")], partition_keys=keys, indexes=indexes)
    empty_catalog.add_partitions(TABLE, [NewPartition(("AA", "1")), NewPartition(("AA", "2"))])
    return empty_catalog


class Pushed(dict[str, Any]):
    """The XComs of a task."""

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


def record(catalog: Catalog) -> int:
    """Verify as the Spark job does."""
    catalog.operations.begin(OPERATION, OperationKind.VERIFY_INDEX, TABLE)
    attempt = catalog.operations.start_job(OPERATION, JOB)
    result = catalog.verify_partition_index(TABLE, INDEX).as_dict()
    catalog.operations.finish_job(OPERATION, JOB, attempt, result)
    return attempt


def damage(catalog: Catalog) -> None:
    with catalog.storage.write() as connection:
        connection.exec_driver_sql("DELETE FROM calve_index_item")


def summarise(planned: Any = None) -> list[dict[str, Any]]:
    pushed = Pushed()
    operator = SummariseVerificationOperator(
        task_id="summarise", operation_id=RUN, planned=in_batches(planned or [PLANNED])
    )
    operator.execute(Context(ti=pushed))  # type: ignore[typeddict-item]  # only XComs are asked for
    rows: list[dict[str, Any]] = pushed["return_value"]
    return rows


def operator() -> VerifyIndexOperator:
    return VerifyIndexOperator(task_id="verify", **PLANNED)


def context_of_run(**form: Any) -> Context:
    run = SimpleNamespace(triggering_user_name=None, dag_id="verify_partition_indexes", run_id="run")
    return Context(dag_run=run, params={"tables": None, "repair": False, **form})  # type: ignore[typeddict-item]


def test_plan_takes_the_active_indexes(catalog: Catalog) -> None:
    catalog.create_partition_index(TABLE, "late", ["month"])
    plan = PlanVerificationOperator(task_id="plan")
    assert plan.execute(context_of_run()) == [[PLANNED]]
    assert plan.execute(context_of_run(tables=[TABLE.upper()])) == [[PLANNED]]


def test_summary_of_an_exact_index(catalog: Catalog) -> None:
    record(catalog)
    (row,) = summarise()
    assert (row["outcome"], row["partitions"], row["items"], row["missing"]) == ("exact", 2, 2, 0)


def test_summary_fails_for_differences(catalog: Catalog) -> None:
    damage(catalog)
    record(catalog)
    with pytest.raises(AirflowFailException, match=r"1 of 1 failed: .*2 difference.*2 MISSING.*--repair"):
        summarise()


def test_summary_fails_for_a_job_that_did_not_end_and_closes_its_operation(catalog: Catalog) -> None:
    catalog.operations.begin(OPERATION, OperationKind.VERIFY_INDEX, TABLE)
    attempt = catalog.operations.start_job(OPERATION, JOB)
    catalog.operations.fail_job(OPERATION, JOB, attempt, "MemoryError", "no memory")
    with pytest.raises(AirflowFailException, match="was not verified: MemoryError: no memory"):
        summarise()
    operation = catalog.operations.get(OPERATION)
    assert (operation.state, operation.failure_detail) == (OperationState.FAILED, "MemoryError: no memory")


def test_summary_fails_for_an_index_that_no_task_looked_at(catalog: Catalog) -> None:
    with pytest.raises(AirflowFailException, match="was not verified: see the log of its task"):
        summarise()


def test_index_deleted_meanwhile_is_no_failure(catalog: Catalog) -> None:
    catalog.delete_partition_index(TABLE, INDEX)
    with pytest.raises(AirflowSkipException, match="no longer ACTIVE"):
        operator().execute(context_of_run())
    assert [row["outcome"] for row in summarise()] == ["no longer ACTIVE"]


def test_summary_of_a_failed_plan_fails() -> None:
    task = SummariseVerificationOperator(task_id="summarise", operation_id=RUN, planned=None)
    with pytest.raises(AirflowFailException, match="nothing was planned"):
        task.execute(Context())


def test_cleared_task_verifies_anew_and_does_not_repeat_what_was_found(catalog: Catalog) -> None:
    record(catalog)
    cleared = operator()
    cleared.operation_id = OPERATION
    assert cleared._existing_job(catalog) is None


def test_what_is_verified_and_repaired_is_what_the_form_says(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def execute(operator: SparkJobOperator, context: Context) -> dict[str, Any]:
        asked.append((operator.operation_id, operator.request))
        return {"is_exact": True, "message": ""}

    monkeypatch.setattr(SparkJobOperator, "run_job", execute)
    operator().execute(context_of_run(repair=True, tables=[TABLE.upper()]))
    assert asked.pop() == (OPERATION, {**PLANNED, "repair": True})
    assert VerifyIndexOperator.template_fields == ()
    forged: Any
    for forged in ({"table": TABLE, "repair": True}, TABLE, TABLE.upper()):
        task = VerifyIndexOperator(task_id="verify", table=forged, index=INDEX)
        with pytest.raises(AirflowFailException, match="WrongFieldError: table"):
            task.execute(context_of_run(tables=["demo.another"]))
    assert asked == []


def test_a_summary_ends_no_operation_of_another_run(catalog: Catalog) -> None:
    others = "add_partitions/another"
    catalog.operations.begin(others, OperationKind.ADD_PARTITIONS, TABLE, is_exclusive=True)
    with pytest.raises(AirflowFailException, match="was not verified"):
        summarise([{"operation_id": others, **PLANNED}])
    assert catalog.operations.get(others).state is OperationState.PLANNED
