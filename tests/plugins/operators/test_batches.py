"""Mapped tasks of more items than Airflow maps tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from calve_airflow.batches import all_items, in_batches, title_of
from calve_airflow.operators.batches import BatchOperator
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.submitting.attempts import FollowedAttempt
from calve_airflow.submitting.job_process import JobProcess
from catalog import Catalog, IndexDefinition, NewPartition
from catalog.operations.records import OperationKind

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

DAGS = Path(__file__).parents[3] / "dags"

STAGES = """
import json, os
from airflow.sdk import DAG, BaseOperator, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from calve_airflow.batches import in_batches
from calve_airflow.operators.batches import BatchOperator

def note(**facts):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(json.dumps(facts) + chr(10))

class Handle(BaseOperator):
    template_fields = ()

    def __init__(self, *, table, conf=None, **kwargs):
        super().__init__(**kwargs)
        self.table, self.conf = table, conf

    def execute(self, context):
        conf_before, self.conf = self.conf, self.table
        note(task=self.task_id, table=self.table, conf=conf_before)
        if self.table.startswith("bad"):
            raise AirflowFailException(f"{self.table} is bad")
        if self.table.startswith("old"):
            raise AirflowSkipException(f"{self.table} is old")
        return self.table

class HandleBatch(BatchOperator, Handle):
    pass

class HandleFirst(BatchOperator, Handle):
    is_failing_last = False

    def fail_item(self, context, item, error):
        note(task=self.task_id, failed=item["table"], error=str(error))

with DAG("handle", schedule=None, params={"tables": []}):
    @task
    def plan(params=None):
        return in_batches([{"table": table} for table in params["tables"]])
    planned = plan()
    name = {"map_index_template": "{{ task.title }}"}
    first = HandleFirst.partial(task_id="first", **name).expand(batch=planned)
    last = HandleBatch.partial(task_id="last", trigger_rule="all_done", **name).expand(batch=planned)
    first >> last
"""


@pytest.fixture
def two_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set Airflow's limit of mapped tasks to two."""
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")


def tables(count: int) -> list[dict[str, str]]:
    return [{"table": f"t.t{number}"} for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 1024, 1025, 1100, 3 * 342, 100_000])
def test_there_are_at_most_as_many_batches_as_airflow_maps(count: int) -> None:
    batches = in_batches(tables(count))
    assert all_items(batches) == tables(count)
    assert len(batches) <= 1024
    assert all(batches)
    if count <= 1024:
        assert len(batches) == count


def test_a_batch_is_named_after_its_items() -> None:
    assert title_of([{"index": "c", "table": "a.b"}], ("table", "index")) == "a.b c"
    assert title_of(tables(5)) == "t.t0 … t.t4 (5)"


@pytest.mark.airflow
@pytest.mark.filterwarnings("ignore")  # Airflow's own
@pytest.mark.usefixtures("two_at_most")
def test_an_item_fails_alone(
    load_dag: Callable[[str, str], DAG], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    names = ["one", "bad1", "old1", "old2", "old3", "old4"]
    run = load_dag(STAGES, "handle").test(run_conf={"tables": names})
    notes = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    for task in ("first", "last"):
        handled = [note for note in notes if note["task"] == task and "table" in note]
        # No item sees what the one before it has set.
        assert sorted((note["table"], note["conf"] or "") for note in handled) == sorted((name, "") for name in names)
    assert [note["failed"] for note in notes if "failed" in note] == ["bad1"]
    states = {(ti.task_id, ti.map_index): ti.state for ti in run.get_task_instances()}
    assert states == {
        ("plan", -1): "success",
        ("first", 0): "success",
        ("first", 1): "skipped",
        ("last", 0): "failed",
        ("last", 1): "skipped",
    }
    titles = {ti.rendered_map_index for ti in run.get_task_instances() if ti.task_id == "last"}
    assert "one … old1 (3)" in titles


@pytest.mark.airflow
@pytest.mark.filterwarnings("ignore")  # Airflow's own
@pytest.mark.usefixtures("two_at_most")
def test_more_indexes_are_verified_than_airflow_maps_tasks(
    empty_catalog: Catalog, load_dag: Callable[[str, str], DAG], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        name = f"demo.t{number}"
        indexes = [IndexDefinition("by_day", ("day",)), IndexDefinition("by_hour", ("hour", "day"))]
        keys = [("day", "date"), ("hour", "int")]
        empty_catalog.create_table(name, columns=[("id", "int")], partition_keys=keys, indexes=indexes)
        empty_catalog.add_partitions(name, [NewPartition(("2024-01-01", "1"))])

    def verify(operator: SparkJobOperator, context: Any) -> dict[str, Any]:
        """Do as the Spark job does."""
        attempt = empty_catalog.operations.start_job(operator.operation_id, operator.step)
        result = empty_catalog.verify_partition_index(operator.request["table"], operator.request["index"]).as_dict()
        empty_catalog.operations.finish_job(operator.operation_id, operator.step, attempt, result)
        return result

    monkeypatch.setattr(SparkJobOperator, "run_job", verify)
    dag = load_dag((DAGS / "verify_partition_indexes_dag.py").read_text(), "verify_partition_indexes")
    run = dag.test()
    assert run.state == "success"
    verified = [
        operation for operation in empty_catalog.operations.list() if operation.kind is OperationKind.VERIFY_INDEX
    ]
    assert len(verified) == 6
    assert len([ti for ti in run.get_task_instances() if ti.task_id == "verify"]) == 2


class CountOperator(SparkJobOperator):
    """Runs a job for a table."""

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job="count", operation_id="", request={}, **kwargs)
        self.table = table

    def prepare(self, context: Context, catalog: Catalog) -> None:
        self.request = {"table": self.table}


class CountTablesOperator(BatchOperator, CountOperator):
    """Runs a job for each table of a batch."""


@pytest.mark.parametrize("count", [1, 2])
def test_only_a_task_with_one_item_is_deferred(
    empty_catalog: Catalog, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    ran: list[tuple[str, bool]] = []
    monkeypatch.setattr(SparkJobOperator, "run_job", lambda task, _: ran.append((task.table, task.deferrable)) or {})
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda **_: None)}
    CountTablesOperator(task_id="count", batch=tables(count), deferrable=True).execute(context)
    assert ran == [(item["table"], count == 1) for item in tables(count)]


def test_a_deferred_task_with_one_item_resumes_with_it(empty_catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkJobOperator, "_follow", lambda task, _: {**task.request, "attempt": task._followed.number})
    pushed: list[Any] = []
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: pushed.append(value))}
    event = {"attempt": FollowedAttempt(2, JobProcess(Path("/jobs/log"))).as_json()}
    task = CountTablesOperator(task_id="count", batch=tables(1), deferrable=True)
    settings = {"operation_id": "run", "request": {"table": "t.t0"}, "conf": None, "conn_id": "spark_default"}
    assert task.resume(context, event, settings=settings) == [{"table": "t.t0", "attempt": 2}]
    assert pushed == [[{"table": "t.t0", "attempt": 2}]]
