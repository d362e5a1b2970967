"""The compaction of small files by policies: the plan of a run, its jobs, and its summary."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from sqlalchemy import text

from calve_airflow.batches import all_items
from calve_airflow.operators.compacting import (
    JOB,
    CompactPartitionsOperator,
    CompactTablesOperator,
    PlanCompactionOperator,
    SummariseCompactionOperator,
)
from calve_airflow.operators.spark_job import SparkJobOperator
from catalog import Catalog, NewPartition
from catalog.operations.dry_runs import plan_of
from catalog.operations.records import OperationKind
from tests.support.iceberg_tables import make_orders, migrate

RUN = "compact_partitions/run"
SMALL = "demo.small"


class Task(dict[str, Any]):
    """The XComs of a run, as its tasks see them."""

    def context(self, tables: list[str] | None = None, *, dry_run: bool = False) -> Context:
        run = SimpleNamespace(triggering_user_name="somebody", dag_id="compact_partitions", run_id="run")
        form = {"tables": tables, "dry_run": dry_run}
        return Context(ti=self, dag_run=run, params=form)  # type: ignore[typeddict-item]  # other keys are not used

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value

    def xcom_pull(self, task_ids: list[str], key: str) -> list[Any]:
        return [self.get(key) for _ in task_ids]


@pytest.fixture
def catalog(empty_catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """Tables with and without a policy: two with small files, and one that Iceberg compacts."""
    for name in (SMALL, "demo.large", "demo.held", "demo.unlisted"):
        empty_catalog.create_table(name, columns=[("v", "int")], partition_keys=[("k", "string")])
        size = 10**10 if name == "demo.large" else 90
        new = [NewPartition((key,), file_count=9, size_bytes=size) for key in ("a", "{{ b }}")]
        empty_catalog.add_partitions(name, new)
    with empty_catalog.storage.write() as connection:
        connection.execute(text("UPDATE calve_partition SET created_at_ms = created_at_ms - 36000000"))
    make_orders(empty_catalog)
    migrate(empty_catalog)
    empty_catalog.operations.begin("a load", OperationKind.APPEND_ROWS, "demo.held", is_exclusive=True)
    policy = {"compaction": {"at_most_per_day": "1 partition"}}
    tables: dict[str, Any] = dict.fromkeys((SMALL, "demo.large", "demo.held", "demo.missing"), policy)
    tables["demo.orders"] = {"compaction": {"target_file_size": "256MB"}, "spark": {"spark.executor.memory": "3g"}}
    path = tmp_path / "tables.yaml"
    path.write_text(yaml.safe_dump({"tables": tables}))
    monkeypatch.setenv("CALVE_TABLES", str(path))
    return empty_catalog


def plan(task: Task, tables: list[str] | None = None, *, dry_run: bool = False) -> list[str]:
    """Return the tables to compact."""
    batches = PlanCompactionOperator(task_id="plan").execute(task.context(tables, dry_run=dry_run))
    return [item["table"] for item in all_items(batches)]


def compact(monkeypatch: pytest.MonkeyPatch, table: str, result: dict[str, Any]) -> CompactPartitionsOperator:
    """Compact a table, whose job ends with a result."""

    def run(operator: SparkJobOperator, catalog: Catalog) -> dict[str, Any]:
        attempt = catalog.operations.start_job(operator.operation_id, operator.step)
        catalog.operations.finish_job(operator.operation_id, operator.step, attempt, result)
        return result

    monkeypatch.setattr(SparkJobOperator, "run_job", run)
    operator = CompactPartitionsOperator(task_id="compact", table=table)
    operator.execute(Task().context())
    return operator


def summarise(planned: Any, *, dry_run: bool = False) -> tuple[dict[str, str], str | None]:
    task, failure = Task(), None
    try:
        operator = SummariseCompactionOperator(task_id="summarise", operation_id=RUN, planned=planned)
        operator.execute(task.context(dry_run=dry_run))
    except AirflowFailException as error:
        failure = str(error)
    return {row["table"]: row["outcome"] for row in task["return_value"]}, failure


def test_all_tables_with_a_policy_are_planned_by_it(catalog: Catalog) -> None:
    task = Task()
    assert sorted(plan(task)) == ["demo.orders", SMALL]
    told = {each["table"]: each["text"] for each in task["planned"]}
    assert told[SMALL].startswith("1 partition(s) with 9 files, 90 bytes, to compact into files of about 134,217,728 b")
    assert (
        "; 1 more partition(s) are left to later runs: at most 1 partition(s) in 24 hours, and 0 partition(s) "
        in told[SMALL]
    )
    assert told["demo.large"] == "no partition has many small files"
    assert told["demo.held"].startswith("skipped: table demo.held: operation a load (append_rows, PLANNED)")
    assert told["demo.missing"] == "the table does not exist yet"
    assert not any(each["failure"] for each in task["planned"])
    small, orders = (catalog.operations.get(f"{RUN}/{name}") for name in (SMALL, "demo.orders"))
    assert ([size for _, size in small.request["partitions"]], small.requested_by) == ([90], "somebody")
    assert orders.request["statements"] == [
        "CALL calve.system.rewrite_data_files(table => '`demo`.`orders`', options => "
        f"map('target-file-size-bytes', '{2**28}'))"
    ]


def test_a_dry_run_journals_only_its_plan_and_tables_without_a_policy_can_be_named(catalog: Catalog) -> None:
    task = Task()
    assert plan(task, ["demo.unlisted"], dry_run=True) == []
    assert task["planned"][0]["text"].startswith("2 partition(s) with 18 files")
    kept = plan_of(catalog.operations.get(f"{RUN}/demo.unlisted"))
    assert kept is not None
    assert [(part["files"], part["files_after"]) for part in kept["partitions"]] == [(9, 1), (9, 1)]
    assert (kept["files_read"], kept["files_written"], kept["partition_count"]) == (18, 2, 2)
    assert summarise(task["planned"], dry_run=True) == ({"demo.unlisted": "planned only"}, None)
    assert plan(Task(), ["DEMO.Unlisted"]) == ["demo.unlisted"]
    assert plan_of(catalog.operations.get(f"{RUN}/demo.unlisted")) is None


def test_named_tables_that_cannot_be_compacted_fail_the_run(catalog: Catalog) -> None:
    catalog.create_table("demo.flat", columns=[("v", "int")])
    task = Task()
    assert plan(task, ["demo.flat", "demo.nothing"]) == []
    outcomes, failure = summarise(task["planned"])
    assert set(outcomes.values()) == {"failed"}
    assert failure is not None
    assert "demo.flat: cannot be compacted: table demo.flat has no partition keys" in failure
    assert "demo.nothing: the table does not exist" in failure


def test_each_table_is_compacted_by_its_job(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task()
    plan(task)
    report = {"partitions": 1, "files_before": 9, "files": 1, "bytes": 90, "skipped": None}
    small = compact(monkeypatch, SMALL, report)
    assert (small.job, small.request, small.conf) == (JOB, {"table": SMALL}, {})
    rows = [{"rewritten_data_files_count": 7, "added_data_files_count": 2, "rewritten_bytes_count": 5}]
    orders = compact(monkeypatch, "demo.orders", {"answers": [{"statement": "…", "rows": rows, "row_count": 1}]})
    assert (orders.job, orders.step) == ("maintain_iceberg", "maintain_iceberg")
    assert orders.conf is not None
    assert orders.conf["spark.executor.memory"] == "3g"
    outcomes, failure = summarise(task["planned"])
    assert failure is None
    assert outcomes[SMALL] == "9 file(s) of 1 partition(s) became 1"
    assert outcomes["demo.orders"] == "7 file(s) became 2"
    assert outcomes["demo.large"] == "nothing to do"


def test_a_table_that_is_taken_after_the_plan_is_skipped(catalog: Catalog) -> None:
    task = Task()
    assert SMALL in plan(task)
    catalog.operations.begin("a load of it", OperationKind.APPEND_ROWS, SMALL, is_exclusive=True)
    with pytest.raises(AirflowSkipException, match="operation a load of it"):
        CompactPartitionsOperator(task_id="compact", table=SMALL).execute(task.context())
    assert summarise(task["planned"])[0][SMALL] == "skipped, because another operation held the table"


def test_a_failed_job_is_reported_and_gives_up_its_operation(catalog: Catalog) -> None:
    task = Task()
    plan(task)
    attempt = catalog.operations.start_job(f"{RUN}/{SMALL}", JOB)
    catalog.operations.fail_job(f"{RUN}/{SMALL}", JOB, attempt, "SomeError", "the disk is full")
    outcomes, failure = summarise(task["planned"])
    assert (outcomes[SMALL], failure is not None and "SomeError: the disk is full" in failure) == ("failed", True)
    assert catalog.operations.get(f"{RUN}/{SMALL}").failure_code == "RUN_FAILED"


def test_a_table_that_fails_before_its_job_fails_the_run_after_the_others(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task()
    plan(task)
    report = {"partitions": 1, "files_before": 9, "files": 1, "bytes": 90, "skipped": None}
    monkeypatch.setattr(SparkJobOperator, "run_job", lambda operator, catalog: report)
    catalog.drop_table(SMALL)
    with DAG("compact_partitions", schedule=None):
        batch = [{"table": SMALL}, {"table": "demo.orders"}]
        compacting = CompactTablesOperator(task_id="compact", batch=batch)
        summary = SummariseCompactionOperator(task_id="summarise", operation_id=RUN, planned=task["planned"])
        compacting >> summary
    with pytest.raises(AirflowFailException, match="TableNotFoundError"):
        compacting.execute(task.context())
    assert len(task["return_value"]) == 1
    with pytest.raises(AirflowFailException, match=r"^1 of \d+ failed: demo\.small: .*demo\.small does not exist"):
        summary.execute(task.context())


def test_only_planned_tables_are_compacted(catalog: Catalog) -> None:
    with pytest.raises(AirflowFailException, match="OperationNotFoundError"):
        CompactPartitionsOperator(task_id="compact", table="demo.unlisted").execute(Task().context())
