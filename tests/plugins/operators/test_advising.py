"""The advisor's proposals, their application, and its summary."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DagRunTriggerException

from calve_airflow.batches import all_items, in_batches
from calve_airflow.operators.advising import (
    JOB,
    REBALANCE_DAG,
    ApplyProposalOperator,
    CountValuesOperator,
    LookAtPartitionsOperator,
    ProposeOperator,
    SummariseAdviceOperator,
)
from calve_airflow.operators.spark_job import SparkJobOperator
from catalog import Catalog, NewPartition
from catalog.datafiles.committing import FileChange
from catalog.datafiles.files import ColumnStatistics, NewFile
from catalog.datafiles.manifest import write_manifest
from catalog.maintenance.compaction import COMPACTION_DAG
from catalog.model import Column
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind, OperationState
from catalog.rebalancing.requests import RebalanceRequest
from catalog.tables.schemes import scheme_from_properties
from catalog.types.key_types import IntegerType

RUN = "rebalance_advisor/run"
TABLE, COUNTED, FOLDERS = "demo.files_tell", "demo.files_do_not", "demo.folders"


class Task:
    """The XComs of a task, and the form of its run."""

    def __init__(self, tables: list[str] | None = None, *, dry_run: bool = False) -> None:
        self.pushed: dict[str, Any] = {}
        self.form = {"tables": tables, "dry_run": dry_run}

    @property
    def context(self) -> Context:
        dag_id, run_id = RUN.split("/")
        run = SimpleNamespace(triggering_user_name="somebody", dag_id=dag_id, run_id=run_id)
        return cast(Context, {"ti": self, "dag_run": run, "params": self.form})

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def load(catalog: Catalog, name: str, files: list[tuple[int, int, int]]) -> None:
    """Create a table of ranges with these files: minimum and maximum value, and the size in bytes."""
    scheme = scheme_from_properties(Column("k", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30, 40"})
    properties = {"calve.target_file_bytes": "1000"}
    table = catalog.create_table(name, columns=[("k", "int")], scheme=scheme, properties=properties)
    begun = catalog.operations.begin(name, OperationKind.LOAD_ROWS, name, is_exclusive=True)
    folder = attempt_folder(begun, catalog.operations.start_job(name, "load"))
    kind = IntegerType("int")
    new = [
        NewFile(
            scheme.partition_of(low),
            f"{folder}/{position}.parquet",
            size,
            size,
            {"k": ColumnStatistics.of_values(kind, low, high, 0)},
        )
        for position, (low, high, size) in enumerate(files)
    ]
    write_manifest(table, folder, new)
    catalog.committer.commit(name, "load", 1, FileChange(scheme, scheme, folder), {})


EVEN = [(1, 9, 1000), (11, 19, 1000), (31, 39, 1000)]


@pytest.fixture
def tables(empty_catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """Two tables with an oversized partition; for one, the statistics of the files determine where to split it."""
    load(empty_catalog, TABLE, [*EVEN, *((value, value, 2000) for value in range(20, 30))])
    load(empty_catalog, COUNTED, [*EVEN, (20, 29, 20_000)])
    empty_catalog.create_table("demo.flat", columns=[("v", "int")])
    empty_catalog.create_table(FOLDERS, columns=[("v", "int")], partition_keys=[("k", "string")])
    new = [NewPartition(("{{ a }}",), file_count=9, size_bytes=90), NewPartition(("b",), file_count=2, size_bytes=2)]
    empty_catalog.add_partitions(FOLDERS, new)
    path = tmp_path / "tables.yaml"
    rules = "rebalance: {apply: true}"
    path.write_text(f"tables: {{{TABLE}: {{{rules}}}, {FOLDERS}: {{{rules}, compaction: {{min_age: 0m}}}}}}")
    monkeypatch.setenv("CALVE_TABLES", str(path))
    return empty_catalog


def look(tables: list[str] | None = None) -> tuple[list[str], list[str]]:
    task = Task(tables)
    batches = LookAtPartitionsOperator(task_id="look").execute(task.context)
    return [item["table"] for item in all_items(batches)], task.pushed["tables"]


def propose(tables: list[str], *, dry_run: bool = False) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    task = Task(dry_run=dry_run)
    return ProposeOperator(task_id="propose", tables=tables).execute(task.context), task.pushed["proposals"]


def apply(task: Task, **names: str) -> dict[str, Any]:
    """Return the mapped arguments."""
    with pytest.raises(DagRunTriggerException) as asked:
        ApplyProposalOperator(task_id="apply", **names).execute(task.context)
    return vars(asked.value)


def summarise(planned: Any, counts: Any = ()) -> tuple[list[dict[str, Any]], str | None]:
    task, failure = Task(), None
    try:
        SummariseAdviceOperator(
            task_id="summarise",
            operation_id=RUN,
            planned=planned,
            counts=in_batches([{"table": table} for table in counts]),
        ).execute(task.context)
    except AirflowFailException as error:
        failure = str(error)
    (rows,) = task.pushed.values()
    return rows, failure


def count(catalog: Catalog) -> None:
    """Count values as the Spark job does."""
    operation_id = f"{RUN}/{COUNTED}"
    catalog.operations.begin(operation_id, OperationKind.COUNT_VALUES, COUNTED, {"partition_ids": [3]})
    attempt = catalog.operations.start_job(operation_id, JOB)
    counts = {"3": [[str(value), str(value), 2000] for value in range(20, 30)]}
    catalog.operations.finish_job(operation_id, JOB, attempt, {"counts": counts})


def test_only_what_the_files_do_not_tell_is_counted(tables: Catalog) -> None:
    to_count, looked_at = look()
    assert sorted(looked_at) == [COUNTED, TABLE, FOLDERS]
    assert to_count == [COUNTED]
    assert tables.operations.get(f"{RUN}/{COUNTED}").request == {"partition_ids": [3]}
    assert look([TABLE]) == ([], [TABLE])


@pytest.mark.parametrize(("name", "said"), [("demo.none", "TableNotFoundError"), ("demo.flat", "InvalidSchemeError")])
def test_a_table_that_cannot_be_looked_at_fails_at_once(tables: Catalog, name: str, said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        look([name])


def test_what_the_list_allows_is_done_and_the_rest_proposed(tables: Catalog) -> None:
    assert [each["table"] for each in propose([TABLE, COUNTED])[1]] == [TABLE]
    count(tables)
    to_do, proposals = propose([TABLE, COUNTED])
    assert [(each["table"], each["run_id"] is None) for each in proposals] == [(TABLE, False), (COUNTED, True)]
    run = apply(Task(), **to_do[0])
    request = RebalanceRequest.from_form(run["conf"])
    assert (request.table, request.operation, request.partition_ids, request.dry_run) == (TABLE, "split", (3,), False)
    assert (len(to_do), run["trigger_dag_id"], run["dag_run_id"]) == (1, REBALANCE_DAG, proposals[0]["run_id"])
    assert propose([TABLE, COUNTED]) == (to_do, proposals), "a retry starts nothing twice"
    assert run["note"].startswith(f"ALTER TABLE {TABLE} SPLIT PARTITION (3) INTO (")
    for each in proposals:
        form = RebalanceRequest.from_form(each["request"])
        assert form.dry_run
        assert not tables.rebalancing.plan(form.table, form.change).is_destructive


def test_nothing_of_a_proposal_is_a_template(tables: Catalog) -> None:
    [names] = propose([TABLE])[0]
    run = apply(Task(), **names)
    assert [type(item) for item in run["conf"]["items"]] == [str] * len(run["conf"]["items"])
    assert ApplyProposalOperator(task_id="apply", **names).template_fields == ()
    assert run["reset_dag_run"]


def test_nothing_is_done_that_was_not_proposed(tables: Catalog) -> None:
    [names] = propose([TABLE])[0]
    for task, other, said in (
        (Task(), {"statement": f"ALTER TABLE {TABLE} MERGE PARTITIONS (1, 2)"}, "was not proposed"),
        (Task([COUNTED]), {}, f"{TABLE} is not one of the tables that the form selects: {COUNTED}"),
    ):
        with pytest.raises(AirflowFailException, match=said):
            ApplyProposalOperator(task_id="apply", **{**names, **other}).execute(task.context)
    for task, other in ((Task(dry_run=True), {}), (Task(), {"table": COUNTED})):
        with pytest.raises(AirflowSkipException, match="are not applied"):
            ApplyProposalOperator(task_id="apply", **{**names, **other}).execute(task.context)


def test_tables_that_the_form_does_not_choose_have_no_part(tables: Catalog) -> None:
    look()
    before = tables.operations.list()
    context = Task([TABLE.upper()]).context
    for task in (
        CountValuesOperator(task_id="count", table=COUNTED),
        ProposeOperator(task_id="propose", tables=[TABLE, COUNTED]),
        SummariseAdviceOperator(task_id="summarise", operation_id=RUN, planned=[], counts=[[{"table": COUNTED}]]),
    ):
        with pytest.raises(
            AirflowFailException, match=f"{COUNTED} is not one of the tables that the form selects: {TABLE}"
        ):
            task.execute(context)
    assert tables.operations.list() == before


@pytest.mark.parametrize("other", ["add_partitions/run", {"operation_id": "add_partitions/run"}, None])
def test_summary_fails_no_operation_of_another_run(tables: Catalog, other: Any) -> None:
    tables.operations.begin("add_partitions/run", OperationKind.LOAD_ROWS, TABLE, is_exclusive=True)
    tables.operations.start_job("add_partitions/run", "load")
    with pytest.raises(AirflowFailException):
        SummariseAdviceOperator(task_id="summarise", operation_id=RUN, planned=[], counts=[[{"table": other}]]).execute(
            Task().context
        )
    summarise([], [TABLE])
    assert tables.operations.get("add_partitions/run").state == "RUNNING"


def test_the_count_is_that_of_the_journal(tables: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr(SparkJobOperator, "run_job", lambda task, _: asked.append((task.operation_id, task.request)))
    look()
    for _ in range(2):
        CountValuesOperator(task_id="count", table=COUNTED).execute(Task().context)
    assert asked == [(f"{RUN}/{COUNTED}", {"table": COUNTED, "partition_ids": [3]})] * 2
    with pytest.raises(AirflowFailException, match="there is no operation"):
        CountValuesOperator(task_id="count", table=TABLE).execute(Task().context)


def test_a_dry_run_only_proposes(tables: Catalog) -> None:
    to_do, proposals = propose([TABLE], dry_run=True)
    assert (to_do, len(proposals)) == ([], 1)
    rows, failure = summarise(proposals)
    assert [row["outcome"] for row in rows] == ["proposed"]
    assert failure is None


def test_pages_show_the_latest_proposals(tables: Catalog) -> None:
    for is_dry_run in (True, False):
        _, (proposal,) = propose([TABLE], dry_run=is_dry_run)
        (stored,) = tables.proposals.list()
        expected = (TABLE, proposal["statement"], proposal["reason"], REBALANCE_DAG, proposal["request"])
        assert (stored.table, stored.statement, stored.reason, stored.dag, stored.request) == expected


def test_a_table_dropped_meanwhile_has_no_part(tables: Catalog) -> None:
    tables.drop_table(TABLE)
    assert propose([TABLE]) == ([], [])


def test_small_files_are_compacted_by_their_own_dag(tables: Catalog) -> None:
    to_do, (proposal,) = propose([FOLDERS])
    assert proposal["statement"] == f"ALTER TABLE {FOLDERS} COMPACT"
    assert proposal["reason"] == (
        "1 partition(s) have 9 files of 10 bytes on average, and files should have about 134,217,728"
    )
    run = apply(Task(), **to_do[0])
    assert (run["trigger_dag_id"], run["conf"]) == (COMPACTION_DAG, {"tables": [FOLDERS], "dry_run": False})
    assert summarise([proposal])[0][0]["outcome"] == "failed"
    operation_id = f"{COMPACTION_DAG}/{proposal['run_id']}/{FOLDERS}"
    tables.operations.begin(operation_id, OperationKind.COMPACT_PARTITIONS, FOLDERS)
    with tables.storage.write() as connection:
        tables.operations.advance(connection, operation_id, OperationState.CLEANED)
    assert summarise([proposal])[0][0]["outcome"] == "done"
    assert propose([FOLDERS], dry_run=True)[0] == []


def test_the_summary_says_what_was_done(tables: Catalog) -> None:
    _, proposals = propose([TABLE])
    request = RebalanceRequest.from_form(proposals[0]["request"])
    report = tables.rebalancing.change_catalog(f"{REBALANCE_DAG}/{proposals[0]['run_id']}", TABLE, request.change)
    assert report is not None
    rows, failure = summarise(proposals)
    assert ([row["outcome"] for row in rows], failure) == (["done"], None)
    assert propose([TABLE])[1] == []


def test_what_was_allowed_and_not_done_fails_the_run(tables: Catalog) -> None:
    _, proposals = propose([TABLE])
    rows, failure = summarise(proposals)
    assert rows[0]["outcome"] == "failed"
    assert failure is not None
    assert f"see the log of run {proposals[0]['run_id']} of rebalance_partitions" in failure


def test_values_that_were_not_counted_fail_the_run(tables: Catalog) -> None:
    to_count, _ = look()
    rows, failure = summarise([], to_count)
    assert rows[0]["outcome"] == "values not counted"
    assert failure is not None
    assert f"the values of {COUNTED} were not counted" in failure
    count(tables)
    assert summarise([], to_count) == ([], None)
