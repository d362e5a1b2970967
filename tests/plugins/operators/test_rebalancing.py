"""The steps of a change of partitions: decisions, repetition, and late runs."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped
from airflow.sdk.execution_time.context import OutletEventAccessors
from sqlalchemy import update

from calve_airflow.assets import Change, change_asset
from calve_airflow.operators.approval import Question
from calve_airflow.operators.rebalancing import (
    CommitRebalanceOperator,
    PlanRebalanceOperator,
    RewritePartitionsOperator,
    SummariseRebalanceOperator,
    VerifyRewriteOperator,
    rebalance_question,
    size,
)
from calve_airflow.operators.spark_job import SparkJobOperator
from catalog import Catalog, Table
from catalog.datafiles.files import ColumnStatistics, NewFile
from catalog.datafiles.manifest import write_manifest
from catalog.errors import OperationConflictError, VerificationFailedError
from catalog.operations.approvals import VALID_MS
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.rebalancing.changes import MergePartitions
from catalog.rebalancing.rebalancing import COMMIT, REWRITE, VERIFY
from catalog.schemes.ranges import RangeScheme
from catalog.storage.schema import ApprovalRow
from tests.support.published import add_files

TABLE, RUN = "demo.delays", "rebalance_partitions/run"
SPLIT = {"operation": "split", "partition_ids": [1], "items": ["5", "10"]}
FREE_SPLIT = {"operation": "split", "partition_ids": [2], "items": ["15", "20"]}
DROP = {"operation": "drop", "partition_ids": [2], "with_data": True}


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Any) -> Iterator[Catalog]:
    """A table of three ranges; the first has one file, which a split must read, and the second has two."""
    with Catalog.open(catalog_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        bounds = ((1, "10"), (2, "20"), (3, "30"))
        catalog.create_table(TABLE, columns=[("delay", "int")], scheme=RangeScheme("delay", "int", (), 4, bounds))
        catalog.create_table("demo.plain", columns=[("delay", "int")], partition_keys=[("day", "date")])
        for least, greatest in ((0, 9), (10, 14), (15, 19), (20, 29)):
            add_file(catalog, least, greatest)
        yield catalog


def file_of(table: Table, least: int, greatest: int, folder: str = "0-0") -> NewFile:
    """An entry of a file with one row for each delay; the file is not read."""
    scheme = table.scheme
    assert scheme is not None
    statistics = {"delay": ColumnStatistics.of_values(scheme.value_type, least, greatest, 0)}
    partition = scheme.partition_of(least)
    path = f"{folder}/calve_partition_id={partition}/{least}.parquet"
    return NewFile(partition, path, greatest - least + 1, 1000, statistics)


def add_file(catalog: Catalog, least: int, greatest: int) -> None:
    add_files(catalog, TABLE, [file_of(catalog.get_table(TABLE), least, greatest)])


class Task(dict[str, Any]):
    """The XComs of a task, and the user who started the run."""

    user: str | None = "somebody"

    def __init__(self) -> None:
        super().__init__()
        self.task = SimpleNamespace(outlets=[])
        self.events = OutletEventAccessors()

    def context(self, form: dict[str, Any] | None = None) -> Context:
        dag_id, run_id = RUN.split("/")
        run = SimpleNamespace(triggering_user_name=self.user, dag_id=dag_id, run_id=run_id)
        return Context(
            ti=self, dag_run=run, outlet_events=self.events, params={"table": TABLE, "dry_run": False, **(form or {})}
        )  # type: ignore[typeddict-item]  # other keys are not used

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
"""For tests that do not depend on the database."""


def plan(form: dict[str, Any], task: Task | None = None, **changes: Any) -> dict[str, Any]:
    form = {"table": TABLE, "dry_run": False, **form, **changes}
    operator = PlanRebalanceOperator(task_id="plan", operation_id=RUN, form=form)
    return operator.execute((Task() if task is None else task).context())


def approve(catalog: Catalog, form: dict[str, Any], task: Task | None = None) -> Question | None:
    """Return the approval question of a run with this form, and approve it."""
    asked = rebalance_question(catalog, (Task() if task is None else task).context(form))
    catalog.approvals.record(RUN, asked.keys if asked else [], "boss")
    return asked


def rewrite(form: dict[str, Any]) -> dict[str, Any]:
    return RewritePartitionsOperator(task_id="rewrite", operation_id=RUN).execute(Task().context(form))


def verify(form: dict[str, Any]) -> dict[str, Any]:
    return VerifyRewriteOperator(task_id="verify", operation_id=RUN).execute(Task().context(form))


def commit(form: dict[str, Any], task: Task | None = None) -> dict[str, Any]:
    operator = CommitRebalanceOperator(task_id="commit", operation_id=RUN)
    return operator.execute((Task() if task is None else task).context(form))


def ids(catalog: Catalog) -> tuple[int, ...]:
    scheme = catalog.get_table(TABLE).scheme
    assert scheme is not None
    return scheme.ids


@pytest.fixture
def jobs(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A replacement of the Spark jobs: their errors, by step, and the attempts that ran."""
    state: dict[str, Any] = {"errors": {}, "ran": []}

    def execute(operator: SparkJobOperator, context: Context) -> dict[str, Any]:
        step = operator.job
        if operator._existing_job(catalog) is None:
            attempt = catalog.operations.start_job(RUN, step)
            state["ran"].append((step, attempt))
            if error := state["errors"].pop(step, None):
                catalog.operations.fail_job(RUN, step, attempt, type(error).__name__, str(error))
                raise AirflowFailException(f"{type(error).__name__}: {error}")
            operation = catalog.operations.get(RUN)
            plan = catalog.rebalancing.plan_of(operation)
            result = {
                "folder": attempt_folder(operation, attempt),
                "rows": plan.moved.row_count,
                "fingerprint": plan.fingerprint,
            }
            if step == REWRITE:
                after = Table(**{**vars(plan.table), "scheme": plan.scheme})
                files = [file_of(after, *each, result["folder"]) for each in ((0, 4), (5, 9))]
                write_manifest(plan.table, result["folder"], files)
            else:
                result["folder"] = operator.request["folder"]
            catalog.operations.finish_job(RUN, step, attempt, result)
        job = catalog.operations.get_job(RUN, step)
        assert job is not None
        return dict(job.result)

    monkeypatch.setattr(SparkJobOperator, "run_job", execute)
    return state


# --- plan -----------------------------------------------------------------------------------------------------------


def test_plan_says_what_would_be_done_and_changes_nothing(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    task = Task()
    planned = plan(SPLIT, task)
    assert (planned["needs_spark"], planned["is_destructive"], planned["rows_moved"]) == (True, False, 10)
    assert planned["statement"] == f"ALTER TABLE {TABLE} SPLIT PARTITION (1) INTO ('5', '10')"
    assert approve(catalog, SPLIT) is None
    assert "partition 1 (delay < 10): 10 rows in 1 files → 4, 5" in capsys.readouterr().out
    assert catalog.operations.find(RUN) is None


@on_sqlite
def test_dry_run_ends_with_the_plan(catalog: Catalog) -> None:
    task = Task()
    with DAG("dry", schedule=None):
        form = {"table": TABLE, **DROP}
        first = PlanRebalanceOperator(task_id="plan", operation_id=RUN, form=form)
        first >> EmptyOperator(task_id="next") >> EmptyOperator(task_id="last")
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        first.execute(task.context())
    assert set(skipped.value.tasks) == {"next", "last"}
    assert task["return_value"]["rows_deleted"] == 10
    assert approve(catalog, {**DROP, "dry_run": True}) is None


@on_sqlite
def test_deletion_is_asked_about_in_words(catalog: Catalog) -> None:
    planned = plan(DROP)
    asked = approve(catalog, DROP)
    assert asked is not None
    assert asked.subject == "Delete 10 rows of demo.delays?"
    assert "**somebody** requests" in asked.body
    assert f"`ALTER TABLE {TABLE} DROP PARTITION (2) WITH DATA`" in asked.body
    assert "- partition 2, `10 <= delay < 20`: 10 rows, 2.0 KiB" in asked.body
    assert asked.keys == [planned["fingerprint"]]


@on_sqlite
def test_deletion_that_another_dag_asks_for_names_the_run(catalog: Catalog) -> None:
    task = Task()
    task.user = None
    asked = approve(catalog, DROP, task)
    assert asked is not None
    assert asked.body.startswith("the run `run`, which was not started manually, requests")


@on_sqlite
def test_drop_without_data_deletes_nothing(catalog: Catalog) -> None:
    form = {"operation": "drop", "partition_ids": [3]}
    assert not plan(form)["is_destructive"]
    assert approve(catalog, form) is None


@on_sqlite
@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"operation": "add", "items": ["15"]}, "items: BoundsNotAscendingError: "),
        ({"operation": "add", "items": ["soon"]}, "items: SchemeValueError: "),
        ({"operation": "add"}, "WrongFieldError: items: is empty"),
        ({"operation": "split", "partition_ids": [0], "items": ["1", "2"]}, "partition_ids: DefaultPartitionError: "),
        ({"operation": "split", "partition_ids": [2], "items": ["11", "19"]}, "items: BoundOutsideRangeError: "),
        ({"operation": "merge", "partition_ids": [1, 3]}, "partition_ids: PartitionsNotNeighboursError: "),
        ({"operation": "drop", "partition_ids": [9]}, "partition_ids: PartitionNotFoundError: "),
        ({"operation": "drop", "partition_ids": [1, 1]}, "partition_ids: InvalidSchemeError: .*twice"),
        ({"operation": "set_partition_num", "count": 4}, "operation: UnsupportedChangeError: "),
        ({**DROP, "table": "demo.nothing"}, "table: TableNotFoundError: "),
        ({**DROP, "table": "demo.plain"}, "table: InvalidSchemeError: .*no partition scheme"),
    ],
)
def test_wrong_field_fails_the_plan_for_good_and_is_named(catalog: Catalog, form: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=f"^{said}"):
        plan(form)


# --- rewrite, verify, commit ----------------------------------------------------------------------------------------


def test_rows_are_moved_step_by_step(catalog: Catalog, jobs: dict[str, Any]) -> None:
    written = rewrite(SPLIT)
    assert (catalog.operations.get(RUN).kind, catalog.operations.get(RUN).requested_by) == ("rebalance", "somebody")
    verified = verify(SPLIT)
    assert verified["folder"] == written["folder"]
    assert ids(catalog) == (0, 1, 2, 3)
    task = Task()
    report = commit(SPLIT, task)
    asset = change_asset(TABLE, Change.REBALANCED)
    counts = {"rows_moved": 10, "bytes_moved": 1000, "files_written": 2, "files_reassigned": 0, "rows_deleted": 0}
    assert task.task.outlets == [asset]
    assert task.events[asset].extra == {"operation": RUN, **counts}
    assert ids(catalog) == (0, 4, 5, 2, 3)
    assert {file.path.partition("/")[0] for file in catalog.scan_files(TABLE, "delay < 10").files} == {
        verified["folder"]
    }
    assert report["rows_written"] == 10
    assert jobs["ran"] == [(REWRITE, 1), (VERIFY, 1)]


def test_table_is_held_from_the_beginning_to_the_commit(catalog: Catalog, jobs: dict[str, Any]) -> None:
    def load() -> None:
        catalog.operations.begin("load", OperationKind.LOAD_ROWS, TABLE, is_exclusive=True)

    rewrite(SPLIT)
    with pytest.raises(OperationConflictError, match=RUN):
        load()
    verify(SPLIT)
    commit(SPLIT)
    load()
    with pytest.raises(OperationConflictError, match="load"):
        catalog.rebalancing.begin("another", TABLE, MergePartitions((2, 3)))


def test_change_of_the_catalog_alone_writes_nothing_and_is_committed(catalog: Catalog, jobs: dict[str, Any]) -> None:
    with pytest.raises(AirflowSkipException, match="no row has to move"):
        rewrite(FREE_SPLIT)
    assert commit(FREE_SPLIT)["files_reassigned"] == 2
    assert ids(catalog) == (0, 1, 4, 5, 3)
    assert jobs["ran"] == []


def test_every_step_done_again_gives_the_same(catalog: Catalog, jobs: dict[str, Any]) -> None:
    for _ in range(2):
        written = rewrite(SPLIT)
    for _ in range(2):
        verified = verify(SPLIT)
    first = commit(SPLIT)
    assert commit(SPLIT) == first
    assert plan(SPLIT) == first
    with pytest.raises(AirflowSkipException, match="already made its change"):
        rewrite(SPLIT)
    assert verify(SPLIT) == verified
    assert (jobs["ran"], verified["folder"]) == ([(REWRITE, 1), (VERIFY, 1)], written["folder"])


def test_run_id_that_is_used_again_does_not_answer_for_another_change(catalog: Catalog, jobs: dict[str, Any]) -> None:
    catalog.create_table("demo.other", columns=[("delay", "int")], scheme=catalog.get_table(TABLE).scheme)
    rewrite(SPLIT)
    verify(SPLIT)
    commit(SPLIT)
    for other in ({**SPLIT, "items": ["6", "10"]}, {**SPLIT, "table": "demo.other"}, FREE_SPLIT):
        with pytest.raises(AirflowFailException, match="OperationReusedError: operation rebalance_partitions/run was"):
            plan(other)


def test_plan_that_does_not_fit_any_more_is_made_anew(catalog: Catalog, jobs: dict[str, Any]) -> None:
    planned = plan(FREE_SPLIT)
    add_file(catalog, 16, 18)
    with pytest.raises(AirflowSkipException):
        rewrite(FREE_SPLIT)
    assert catalog.operations.get(RUN).request["fingerprint"] != planned["fingerprint"]
    assert commit(FREE_SPLIT)["files_reassigned"] == 3


def test_what_was_written_by_an_outdated_plan_is_written_anew(catalog: Catalog, jobs: dict[str, Any]) -> None:
    rewrite(SPLIT)
    verify(SPLIT)
    catalog.operations.fail(RUN, "TEST", "cancelled")
    add_file(catalog, 2, 3)
    with pytest.raises(AirflowFailException, match=r"^PlanConflictError: .*start the DAG again"):
        commit(SPLIT)
    assert ids(catalog) == (0, 1, 2, 3)
    rewrite(SPLIT)
    assert jobs["ran"] == [(REWRITE, 1), (VERIFY, 1), (REWRITE, 2)]
    verify(SPLIT)
    report = commit(SPLIT)
    assert (report["rows_written"], report["files_reassigned"]) == (10, 1)


def test_files_that_differ_are_not_committed_and_are_written_again(catalog: Catalog, jobs: dict[str, Any]) -> None:
    rewrite(SPLIT)
    jobs["errors"][VERIFY] = VerificationFailedError("partition 4 has 9 rows")
    with pytest.raises(AirflowFailException, match="partition 4 has 9 rows"):
        verify(SPLIT)
    with pytest.raises(AirflowFailException, match="were not verified"):
        commit(SPLIT)
    with pytest.raises(AirflowFailException, match="has written no new files yet; clear `rewrite`"):
        verify(SPLIT)
    again = rewrite(SPLIT)
    assert jobs["ran"][-1] == (REWRITE, 3)
    assert verify(SPLIT)["folder"] == again["folder"]
    commit(SPLIT)


def test_files_that_vacuum_took_are_written_again(catalog: Catalog, jobs: dict[str, Any]) -> None:
    from catalog.datafiles.manifest import delete_manifest

    first = rewrite(SPLIT)
    verify(SPLIT)
    delete_manifest(catalog.get_table(TABLE), first["folder"])
    second = rewrite(SPLIT)
    assert second["folder"] != first["folder"]
    assert verify(SPLIT)["folder"] == second["folder"]
    commit(SPLIT)


@on_sqlite
def test_nothing_is_committed_that_was_never_begun(catalog: Catalog) -> None:
    with pytest.raises(AirflowSkipException, match="the operation was not begun"):
        commit(SPLIT)


# --- tasks that are run alone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [SPLIT, FREE_SPLIT, DROP])
def test_no_task_of_a_dry_run_changes_anything(catalog: Catalog, jobs: dict[str, Any], form: dict[str, Any]) -> None:
    approve(catalog, form)
    for task in (rewrite, verify, commit):
        with pytest.raises(AirflowSkipException, match="dry run"):
            task({**form, "dry_run": True})
    assert catalog.operations.find(RUN) is None
    rewrite(SPLIT)
    for task in (verify, commit):
        with pytest.raises(AirflowSkipException, match="dry run"):
            task({**SPLIT, "dry_run": True})
    assert ids(catalog) == (0, 1, 2, 3)


def test_change_of_another_form_is_neither_verified_nor_committed(catalog: Catalog, jobs: dict[str, Any]) -> None:
    rewrite(SPLIT)
    catalog.create_table("demo.other", columns=[("delay", "int")], scheme=catalog.get_table(TABLE).scheme)
    for task in (verify, commit):
        for form in (FREE_SPLIT, {**SPLIT, "table": "demo.other"}):
            with pytest.raises(AirflowFailException, match="OperationReusedError"):
                task(form)
    assert ids(catalog) == (0, 1, 2, 3)


# --- deletions ------------------------------------------------------------------------------------------------------


def test_nothing_is_deleted_without_an_approval(catalog: Catalog) -> None:
    with pytest.raises(AirflowFailException, match=r"would delete 10 rows of demo.delays, which is not approved"):
        rewrite(DROP)
    assert catalog.operations.find(RUN) is None


def test_approved_deletion_is_carried_out_and_its_approver_kept(catalog: Catalog) -> None:
    approve(catalog, DROP)
    with pytest.raises(AirflowSkipException):
        rewrite(DROP)
    report = commit(DROP)
    assert (report["rows_deleted"], report["approved_by"]) == (10, "boss")
    assert catalog.operations.get(RUN).report[COMMIT]["approved_by"] == "boss"
    assert ids(catalog) == (0, 1, 3)


def test_approval_that_has_expired_does_not_count_at_the_commit(catalog: Catalog) -> None:
    approve(catalog, DROP)
    with pytest.raises(AirflowSkipException):
        rewrite(DROP)
    age_approvals(catalog)
    with pytest.raises(AirflowFailException, match="exactly this deletion is not approved"):
        commit(DROP)
    assert ids(catalog) == (0, 1, 2, 3)
    approve(catalog, DROP)
    report = commit(DROP)
    age_approvals(catalog)
    assert commit(DROP) == report, "what is committed stays as it is"


def age_approvals(catalog: Catalog) -> None:
    with catalog.storage.write() as connection:
        given = ApprovalRow.approved_at_ms
        connection.execute(update(ApprovalRow).values(approved_at_ms=given - VALID_MS - 1))


def test_approval_of_what_has_changed_since_does_not_count(catalog: Catalog) -> None:
    approve(catalog, DROP)
    add_file(catalog, 16, 18)
    with pytest.raises(AirflowFailException, match=r"^PlanConflictError: .*13 rows .*approve the new plan"):
        rewrite(DROP)
    assert catalog.operations.find(RUN) is None


@pytest.fixture
def approved_table(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of the table by which a person must approve all changes of its partitions."""
    path = tmp_path / "tables.yaml"
    path.write_text(f"tables: {{{TABLE}: {{rebalance: {{approval: true}}}}}}")
    monkeypatch.setenv("CALVE_TABLES", str(path))


@pytest.mark.usefixtures("approved_table")
def test_change_that_deletes_nothing_is_asked_about_where_the_entry_says_so(catalog: Catalog) -> None:
    asked = rebalance_question(catalog, Task().context(SPLIT))
    assert asked is not None
    assert (asked.subject, asked.table) == (f"Change the partitions of {TABLE}?", TABLE)
    assert f"**10 rows** of **{TABLE}** (1000 B, data files: 1) would be moved, and none deleted" in asked.body
    assert "- partition 1, `delay < 10`: 10 of 10 rows, 1000 B, afterwards in partitions 4, 5" in asked.body
    assert rebalance_question(catalog, Task().context({**SPLIT, "dry_run": True})) is None
    deletion = rebalance_question(catalog, Task().context(DROP))
    assert deletion is not None
    assert deletion.subject == f"Delete 10 rows of {TABLE}?"


@pytest.mark.usefixtures("approved_table")
@pytest.mark.parametrize("form", [SPLIT, FREE_SPLIT], ids=["rows move", "no row moves"])
def test_change_is_made_only_with_an_approval_where_the_entry_says_so(
    catalog: Catalog, jobs: dict[str, Any], form: dict[str, Any]
) -> None:
    with pytest.raises(AirflowFailException, match=r"would move \d+ rows of demo.delays, which is not approved"):
        rewrite(form)
    assert catalog.operations.find(RUN) is None
    approve(catalog, form)
    if form is SPLIT:
        rewrite(form)
        verify(form)
    else:
        with pytest.raises(AirflowSkipException):
            rewrite(form)
    age_approvals(catalog)
    with pytest.raises(AirflowFailException, match="exactly this change is not approved"):
        commit(form)
    assert ids(catalog) == (0, 1, 2, 3)
    approve(catalog, form)
    assert commit(form)["approved_by"] == "boss"
    assert len(ids(catalog)) == 5


@pytest.mark.usefixtures("approved_table")
def test_approval_of_a_change_does_not_count_for_files_that_came_later(catalog: Catalog) -> None:
    approve(catalog, SPLIT)
    add_file(catalog, 1, 3)
    with pytest.raises(AirflowFailException, match=r"^PlanConflictError: .*has changed since.*approve the new plan"):
        rewrite(SPLIT)
    assert catalog.operations.find(RUN) is None


def test_partition_that_has_rows_by_now_is_not_dropped_without_an_approval(catalog: Catalog) -> None:
    add = {"operation": "add", "items": ["40"]}
    with pytest.raises(AirflowSkipException):
        rewrite(add)
    commit(add)
    catalog.operations.fail(RUN, "TEST", "another run follows")
    drop = {"operation": "drop", "partition_ids": [4], "with_data": True}
    assert not plan_of_another_run(catalog, drop)["is_destructive"]
    add_file(catalog, 30, 39)
    operator = RewritePartitionsOperator(task_id="rewrite", operation_id="other/run")
    with pytest.raises(AirflowFailException, match="would delete 10 rows"):
        operator.execute(Task().context(drop))


def plan_of_another_run(catalog: Catalog, form: dict[str, Any]) -> dict[str, Any]:
    form = {"table": TABLE, "dry_run": False, **form}
    return PlanRebalanceOperator(task_id="plan", operation_id="other/run", form=form).execute(Task().context())


# --- summary --------------------------------------------------------------------------------------------------------


@on_sqlite
def test_summary_shows_each_partition_before_and_after(
    catalog: Catalog, jobs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(SPLIT)
    verify(SPLIT)
    commit(SPLIT)
    said = SummariseRebalanceOperator(task_id="summarise", operation_id=RUN).execute(Task().context())
    shown = " ".join(capsys.readouterr().out.split())
    assert "| id | partition | rows | bytes | files |" in shown
    assert "| 1 | delay < 10 | 10 → - | 1000 B → - | 1 → - |" in shown
    assert "| 5 | 5 <= delay < 10 | - → 5 | - → 1000 B | - → 1 |" in shown
    assert "10 rows moved into 2 new files, 0 files reassigned, 0 rows deleted" in shown
    assert [each["partition_id"] for each in said["partitions"]] == [1, 4, 5]
    assert (said["table"], said["approved_by"], said["rows_moved"]) == (TABLE, None, 10)


@on_sqlite
def test_summary_of_a_drop_says_where_the_rows_went(catalog: Catalog) -> None:
    drop = {"operation": "drop", "partition_ids": [2]}
    with pytest.raises(AirflowSkipException):
        rewrite(drop)
    commit(drop)
    said = SummariseRebalanceOperator(task_id="summarise", operation_id=RUN).execute(Task().context())
    rows = {
        each["partition_id"]: [each[when] and each[when]["rows"] for when in ("before", "after")]
        for each in said["partitions"]
    }
    assert rows == {2: [10, None], 3: [10, 20]}


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**2, "5.0 MiB"), (3 * 1024**5, "3,072.0 TiB")],
)
def test_size_is_said_in_a_fitting_unit(size_bytes: int, said: str) -> None:
    assert size(size_bytes) == said
