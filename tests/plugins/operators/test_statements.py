"""Statements: run in the task or by Spark, exactly once, with deletions limited to the approval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException
from pyiceberg.catalog.glue import GlueCatalog
from sqlalchemy import update

from calve_airflow.catalog_access import SparkJobFailedError
from calve_airflow.operators.approval import Question
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.statements import (
    ReadStatementOperator,
    RunStatementOperator,
    fail_statement,
    statement_question,
)
from catalog import Catalog, NewPartition
from catalog.datafiles.files import NewFile
from catalog.migration.requests import MigrationRequest
from catalog.operations.records import OperationKind, OperationState
from catalog.schemes.ranges import RangeScheme
from catalog.storage.schema import PartitionRow
from tests.support.glue_endpoint import GlueEndpoint, storage
from tests.support.iceberg_tables import append, make_orders, migrate
from tests.support.published import add_files
from tests.support.type_changes import LOSSLESS, LOSSY
from tests.support.written_files import own_name

TABLE, RUN = "demo.delays", "run_statement/run"
DROP = f"ALTER TABLE {TABLE} DROP PARTITION (1) WITH DATA"
PURGE = f"DROP TABLE {TABLE} PURGE"


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path) -> Iterator[Catalog]:
    """A table of two ranges, with 10 rows in the first; rows in no range go to partition 0."""
    with Catalog.open(catalog_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        scheme = RangeScheme("delay", "int", (), 3, ((1, "10"), (2, "20")))
        catalog.create_table(TABLE, columns=[("delay", "int")], scheme=scheme)
        add_file(catalog, "first")
        yield catalog


def add_file(catalog: Catalog, name: str) -> None:
    add_files(catalog, TABLE, [NewFile(1, f"0-0/{name}", 10, 1000, {})])


def row_count(catalog: Catalog) -> int:
    return sum(each.row_count for each in catalog.scheme_partitions(TABLE))


class Task(dict[str, Any]):
    """The XComs of a task, the user who started the run, and its statement."""

    def context(self, statement: str = "") -> Context:
        run = SimpleNamespace(triggering_user_name="somebody", run_id="run", dag_id="run_statement")
        return Context(ti=self, dag_run=run, params={"statement": statement})  # type: ignore[typeddict-item]  # other keys are not used

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


def check(statement: str) -> Question | None:
    context = Task().context(statement)
    ReadStatementOperator(task_id="check").execute(context)
    with Catalog.open() as catalog:
        return statement_question(catalog, context)


def run(statement: str, approved: Question | None = None, *, run_id: str = RUN) -> dict[str, Any]:
    with Catalog.open() as catalog:
        catalog.approvals.record(RUN, approved.keys if approved else [], "boss")
    operator = RunStatementOperator(task_id="run", operation_id=run_id)
    return operator.execute(Task().context(statement))


@pytest.fixture
def job(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A replacement of the Spark job: its number of runs, and its outcome or error."""
    state: dict[str, Any] = {"ran": 0, "outcome": {"columns": ["n"], "rows": [[3]]}}

    def execute(operator: SparkJobOperator, context: Context) -> dict[str, Any]:
        state["ran"] += 1
        state["request"], state["conf"] = operator.request, operator.conf
        attempt = catalog.operations.start_job(operator.operation_id, operator.job)
        if error := state.get("error"):
            catalog.operations.fail_job(operator.operation_id, operator.job, attempt, "Error", str(error))
            raise error
        catalog.operations.finish_job(operator.operation_id, operator.job, attempt, {"outcomes": [state["outcome"]]})
        return {"outcomes": [state["outcome"]]}

    monkeypatch.setattr(SparkJobOperator, "run_job", execute)
    return state


# --- check ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement", ["SHOW TABLES IN demo", "SELECT * FROM demo.delays", f"DROP TABLE {TABLE}", f"DROP TABLE {TABLE};"]
)
def test_statement_that_deletes_nothing_asks_nobody(catalog: Catalog, statement: str) -> None:
    assert check(f"-- a comment\n{statement}") is None


def test_drop_with_data_asks_about_just_these_rows(catalog: Catalog) -> None:
    asked = check(DROP)
    assert asked is not None
    assert asked.subject == "Delete 10 rows of demo.delays?"
    assert "- partition 1, `delay < 10`: 10 rows, 1000 B" in asked.body
    assert "**somebody** requests" in asked.body


def test_drop_with_data_of_an_empty_partition_asks_nobody(catalog: Catalog) -> None:
    assert check(f"ALTER TABLE {TABLE} DROP PARTITION (2) WITH DATA") is None


def test_purge_asks_about_the_table_and_its_files(catalog: Catalog) -> None:
    asked = check(PURGE)
    assert asked is not None
    assert asked.subject == "Delete the table demo.delays and its files?"
    assert "3 partitions with 10 rows (1000 B)" in asked.body
    assert catalog.get_table(TABLE).location in asked.body


def test_purge_of_partitions_asks_about_them(catalog: Catalog) -> None:
    catalog.create_table("demo.days", columns=[("a", "int")], partition_keys=[("day", "int")])
    catalog.add_partitions("demo.days", [NewPartition([day], row_count=5, size_bytes=70) for day in "123"])
    asked = check("ALTER TABLE demo.days DROP PARTITION (day=1), PARTITION (day=2) PURGE")
    assert asked is not None
    assert "**2 partitions** with `` (`day` = '1') or (`day` = '2') `` would be deleted permanently" in asked.body
    assert "(rows: 10, bytes: 140)" in asked.body
    assert "- `day=1`: " in asked.body
    assert "- `day=2`: " in asked.body
    assert check("ALTER TABLE demo.days DROP PARTITION (day=1)") is None


def test_forgetting_at_once_asks_about_the_rows(catalog: Catalog) -> None:
    catalog.create_table("demo.days", columns=[("a", "int")], partition_keys=[("day", "int")])
    asked = check("CALL calve.system.forget('demo.days', 'a = 17', true)")
    assert asked is not None
    assert asked.subject == "Delete rows of demo.days for good, at once?"
    assert "the rows of **demo.days** with `a = 17` would be deleted" in asked.body
    assert "The table has 0 partitions" in asked.body
    other = check("CALL calve.system.forget('demo.days', 'a = 18', true)")
    assert other is not None
    assert other.keys != asked.keys
    assert check("CALL calve.system.forget('demo.days', 'a = 17')") is None


def test_purge_of_what_is_not_there_or_not_ours_asks_nobody(catalog: Catalog) -> None:
    catalog.create_table("demo.theirs", columns=[("a", "int")], is_external=True)
    assert check("DROP TABLE IF EXISTS demo.nothing PURGE") is None
    assert check("DROP TABLE demo.theirs PURGE") is None


@pytest.mark.parametrize(
    ("statement", "said", "pointed_at"),
    [
        ("SHOW CHAIRS", "StatementSyntaxError: ", "CHAIRS"),
        (f"ALTER TABLE {TABLE} DROP PARTITION (7) WITH DATA", "PartitionNotFoundError: ", "7"),
        ("DROP TABLE demo.nothing PURGE", "TableNotFoundError: ", "demo"),
    ],
)
def test_wrong_statement_fails_for_good_and_its_place_is_shown(
    catalog: Catalog, capsys: pytest.CaptureFixture[str], statement: str, said: str, pointed_at: str
) -> None:
    with pytest.raises(AirflowFailException, match=f"^{said}"):
        check(statement)
    lines = [line.partition(" [airflow")[0] for line in capsys.readouterr().out.splitlines()]
    marks = [line.rstrip() for line in lines if line.rstrip().endswith("^")]
    assert len(marks) == 1
    shown = next(line for line in lines if statement in line)
    assert shown[marks[0].index("^") :].startswith(pointed_at)


def test_literals_are_masked_where_the_place_is_shown(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AirflowFailException):
        check("ALTER TABLE t SET TBLPROPERTIES ('key' = 'planted''s \\' secret', \"own\" = \"value\") CHAIRS 'last")
    shown = capsys.readouterr().out
    assert "SET TBLPROPERTIES ('***' = '" in shown
    assert not any(word in shown for word in ("planted", "secret", "key", "own", "value", "last"))


@pytest.mark.parametrize("statement", ["", "-- nothing", "SHOW DATABASES; SHOW TABLES"])
def test_a_run_takes_one_statement(catalog: Catalog, statement: str) -> None:
    with pytest.raises(AirflowFailException, match=r"statement: there are [02] statements, but a run executes one"):
        check(statement)


# --- run ------------------------------------------------------------------------------------------------------------


def test_catalog_answers_without_spark(
    catalog: Catalog, job: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(f"SHOW PARTITIONS {TABLE}")
    assert said["rows"][1] == ["1, delay < 10", 10, 1000, 1]
    assert (said["columns"][0], said["limited"], job["ran"]) == ("partition", False, 0)
    assert "| 1, delay < 10" in capsys.readouterr().out
    operation = catalog.operations.get(RUN)
    assert (operation.kind, operation.state) == (OperationKind.RUN_STATEMENT, OperationState.CLEANED)
    assert (operation.table, operation.requested_by) == (TABLE, "somebody")


def test_statement_that_needs_spark_goes_on_as_a_job(catalog: Catalog, job: dict[str, Any]) -> None:
    statement = f"SELECT count(*) AS n FROM {TABLE}"
    assert run(statement) == {"columns": ["n"], "rows": [[3]], "limited": False}
    assert job["request"]["statements"] == statement
    assert job["ran"] == 1


def test_answer_that_was_cut_says_so(catalog: Catalog, job: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    job["outcome"]["rows_left_out"] = 4000
    assert run(f"SELECT delay FROM {TABLE}")["limited"]
    assert "and 4,000 more rows, which are not recorded" in capsys.readouterr().out


def test_statement_that_has_run_is_not_run_again(catalog: Catalog, job: dict[str, Any]) -> None:
    first = run("CREATE DATABASE shop")
    assert run("CREATE DATABASE shop") == first


def test_run_id_that_is_used_again_does_not_answer_for_another_statement(catalog: Catalog) -> None:
    run("SHOW DATABASES")
    with pytest.raises(AirflowFailException, match="OperationReusedError: operation run_statement/run was started for"):
        run("CREATE DATABASE shop")
    assert [database.name for database in catalog.list_databases()] == ["demo"]


def test_retry_goes_on_with_the_job_and_runs_nothing_here(catalog: Catalog, job: dict[str, Any]) -> None:
    job["error"] = SparkJobFailedError("Spark job run_statement: OSError: no space")
    statement = f"INSERT INTO {TABLE} VALUES (5)"
    with pytest.raises(SparkJobFailedError):
        run(statement)
    # As the job does, which is running the statement.
    attempt = catalog.operations.start_job(RUN, "statement-1")
    del job["error"]
    run(statement)
    step = catalog.operations.get_job(RUN, "statement-1")
    assert step is not None
    assert (step.attempt, job["ran"]) == (attempt, 2)


def test_error_here_shows_its_place(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AirflowFailException, match=r"^PartitionNotFoundError: there is no partition 9"):
        run(f"ALTER TABLE {TABLE} MERGE PARTITION (1, 9)")
    assert "^" in capsys.readouterr().out


def test_error_of_the_job_shows_its_place(
    catalog: Catalog, job: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    job["error"] = AirflowFailException("Spark job run_statement: InvalidQueryError: no column, at position 7")
    with pytest.raises(AirflowFailException, match="no column"):
        run(f"SELECT nothing FROM {TABLE}")
    assert "  SELECT nothing FROM" in (out := capsys.readouterr().out)
    assert "         ^" in out


# --- deletions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", [DROP, PURGE])
def test_nothing_is_deleted_without_an_approval(catalog: Catalog, statement: str) -> None:
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(statement)
    assert row_count(catalog) == 10
    catalog.operations.begin("another", OperationKind.LOAD_ROWS, TABLE, is_exclusive=True)


def test_approved_rows_are_deleted_once(catalog: Catalog, job: dict[str, Any]) -> None:
    asked = check(DROP)
    first = run(DROP, asked)
    assert row_count(catalog) == 0
    assert run(DROP, asked) == first
    assert job["ran"] == 0


def test_deletion_whose_task_died_right_after_its_commit_is_not_asked_about_again(catalog: Catalog) -> None:
    from catalog.rebalancing.changes import DropPartitions

    asked = check(DROP)
    catalog.rebalancing.change_catalog(f"{RUN}/statement-1", TABLE, DropPartitions((1,), with_data=True))
    run(DROP, asked)
    assert catalog.get_table(TABLE).scheme.ids == (0, 2)  # type: ignore[union-attr]


@pytest.mark.parametrize("statement", [DROP, PURGE])
def test_approval_does_not_count_for_rows_that_came_later(catalog: Catalog, statement: str) -> None:
    asked = check(statement)
    add_file(catalog, "second")
    with pytest.raises(AirflowFailException, match=r"^PlanConflictError: "):
        run(statement, asked)
    assert row_count(catalog) == 20


def test_approval_does_not_count_for_another_table_of_the_name(catalog: Catalog) -> None:
    asked = check(PURGE)
    before = catalog.get_table(TABLE)
    # In a folder with files the new table would be an external one, whose files stay.
    catalog.drop_table(TABLE, purge=True)
    catalog.create_table(TABLE, columns=before.columns, scheme=before.scheme)
    add_file(catalog, "first")
    with pytest.raises(AirflowFailException, match=r"^PlanConflictError: "):
        run(PURGE, asked)
    assert row_count(catalog) == 10


def test_approved_table_is_deleted_with_its_files(catalog: Catalog) -> None:
    folder = Path(catalog.get_table(TABLE).location)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / own_name(catalog)).write_text("rows")
    asked = check(PURGE)
    run(PURGE, asked)
    assert [table.full_name for table in catalog.list_tables()] == []
    assert not folder.exists()


@pytest.fixture
def days(catalog: Catalog) -> str:
    """A managed table with one partition."""
    catalog.create_table("demo.days", columns=[("n", "int")], partition_keys=[("day", "date"), ("c", "string")])
    catalog.add_partitions("demo.days", [NewPartition(["2024-01-01", "DE"])])
    return "demo.days"


def test_approval_of_a_purge_holds_for_the_partitions_of_then(catalog: Catalog, days: str) -> None:
    purge = f"ALTER TABLE {days} DROP PARTITION (day < '2025-01-01') PURGE"
    asked = check(purge)
    assert asked is not None
    assert asked.subject == f"Delete 1 partitions of {days} and their files?"
    catalog.add_partitions(days, [NewPartition(["2024-02-01", "FR"])])
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(purge, asked)
    assert len(list(catalog.get_partitions(days))) == 2
    assert run(purge, check(purge))["rows"][0][0] == 2
    assert check(purge) is None


def write_own_file(catalog: Catalog, folder: str, name: str = "") -> Path:
    path = Path(folder.removeprefix("file:"), own_name(catalog) + name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("rows")
    return path


def test_approval_of_a_purge_holds_for_the_files_of_partitions_that_nobody_has_counted(
    catalog: Catalog, days: str
) -> None:
    purge = f"ALTER TABLE {days} DROP PARTITION (day = '2024-01-01') PURGE"
    (partition,) = catalog.get_partitions(days)
    assert partition.row_count is None
    asked = check(purge)
    file = write_own_file(catalog, partition.location)
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(purge, asked)
    assert file.exists()
    asked = check(purge)
    other = write_own_file(catalog, f"{catalog.get_table(days).location}/other")
    catalog.alter_partition(days, ("2024-01-01", "DE"), location=str(other.parent))
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(purge, asked)
    assert other.exists()
    run(purge, check(purge))
    assert not other.exists()


def test_approval_of_a_dropped_table_holds_for_its_rows_and_files(catalog: Catalog, days: str) -> None:
    catalog.create_table("demo.flat", columns=[("n", "int")])
    for table in (days, "demo.flat"):
        drop = f"DROP TABLE {table} PURGE"
        asked = check(drop)
        location = catalog.get_table(table).location
        file = write_own_file(catalog, location if table == "demo.flat" else f"{location}/day=2024-01-01/c=DE")
        with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
            run(drop, asked, run_id=f"{RUN}/{table}")
        asked = check(drop)
        assert asked is not None
        assert "1 files (4 B)" in asked.body
        run(drop, asked, run_id=f"{RUN}/{table}")
        assert not file.exists()


def test_a_table_is_dropped_only_if_it_is_the_approved_one_when_it_is_held(
    catalog: Catalog, days: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("demo.other", columns=[("n", "int")], partition_keys=[("k", "int")])
    file = write_own_file(catalog, catalog.get_table("demo.other").location)

    def swap_names() -> None:
        catalog.alter_table(days, rename_to="third")
        catalog.alter_table("demo.other", rename_to=days.removeprefix("demo."))

    swap_after_check(monkeypatch, swap_names)
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(f"DROP TABLE {days} PURGE", check(f"DROP TABLE {days} PURGE"))
    assert file.exists()
    assert len(catalog.list_tables()) == 3


def test_a_revert_loses_nothing_that_was_committed_after_its_approval_was_looked_at(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(catalog)
    migrate(catalog)
    revert = "CALL iceberg.system.revert(schema_name => 'demo', table_name => 'orders', lose_data => true)"
    swap_after_check(monkeypatch, lambda: append(catalog_url, [8]))
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(revert, check(revert))
    assert catalog.get_table("demo.orders").is_iceberg


def swap_after_check(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Make a change between the check of the approval and the deletion."""
    check_first = RunStatementOperator._require_approval

    def change_then(*arguments: Any) -> None:
        check_first(*arguments)
        change()

    monkeypatch.setattr(RunStatementOperator, "_require_approval", change_then)


def test_a_place_that_looks_like_markdown_is_shown_as_it_is(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("demo.marked", columns=[("n", "int")], location=f"{tmp_path}/a`b **approved**")
    asked = check("DROP TABLE demo.marked PURGE")
    if asked is not None:
        assert f"`` {tmp_path}/a`b **approved** ``" in asked.body


@pytest.mark.parametrize("change", ["another partition", "more rows"])
def test_a_purge_deletes_nothing_that_came_after_its_approval_was_looked_at(
    catalog: Catalog, days: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    purge = f"ALTER TABLE {days} DROP PARTITION (day < '2025-01-01') PURGE"

    def add_or_count() -> None:
        if change == "another partition":
            catalog.add_partitions(days, [NewPartition(["2024-02-01", "FR"])])
        else:
            with catalog.storage.write() as connection:
                connection.execute(update(PartitionRow).values(row_count=7))

    swap_after_check(monkeypatch, add_or_count)
    before = len(list(catalog.get_partitions(days)))
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(purge, check(purge))
    assert len(list(catalog.get_partitions(days))) == before + (change == "another partition")


def test_approval_of_a_dropped_table_holds_for_the_partitions_of_then(catalog: Catalog, days: str) -> None:
    asked = check(f"DROP TABLE {days} PURGE")
    catalog.drop_partitions(days)
    catalog.add_partitions(days, [NewPartition(["2024-04-01", "US"])])
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(f"DROP TABLE {days} PURGE", asked)


def test_literals_of_a_purge_are_no_markdown_and_no_null(catalog: Catalog, days: str) -> None:
    catalog.add_partitions(days, [NewPartition(["2024-02-01", None]), NewPartition(["2024-02-01", "NULL"])])
    of_null, of_text = (check(f"ALTER TABLE {days} DROP PARTITION (c = {value}) PURGE") for value in ("NULL", "'NULL'"))
    assert of_null is not None
    assert of_text is not None
    assert of_null.keys != of_text.keys
    asked = check(f"ALTER TABLE {days} DROP PARTITION (c >= '**approved**') PURGE")
    assert asked is not None
    assert "`` (`c` >= '**approved**') ``" in asked.body


def test_a_revert_that_loses_rows_is_approved_for_just_these(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    migrate(catalog)
    revert = "CALL iceberg.system.revert('demo', 'orders', lose_data => true)"
    revert = revert.replace("'demo', 'orders'", "schema_name => 'demo', table_name => 'orders'")
    assert check(revert) is None
    append(catalog_url, [8])
    asked = check(revert)
    assert asked is not None
    assert "1 row(s) in 1 file(s) added" in asked.body
    append(catalog_url, [9])
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(revert, asked)
    assert catalog.get_table("demo.orders").is_iceberg
    assert run(revert, check(revert))["rows"][0][2:] == [2, 0]
    assert not catalog.get_table("demo.orders").is_iceberg


def test_a_revert_that_loses_what_came_through_the_metastore_is_approved_for_just_this(
    catalog: Catalog, glue: GlueEndpoint, tmp_path: Path
) -> None:
    folder = tmp_path / "landed"
    folder.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "name": ["one"]}), folder / "one.parquet")
    glue.client.create_database(DatabaseInput={"Name": "shop"})
    glue.create_table("shop", "orders", StorageDescriptor=storage(f"file:{folder}"))
    catalog.imports.import_tables(glue.source(), ["shop.orders"])
    migrate(catalog, "shop.orders", request=MigrationRequest(verify=False, flip_source=True))
    revert = "CALL iceberg.system.revert(schema_name => 'shop', table_name => 'orders', lose_data => true)"
    assert check(revert) is None

    through_glue = GlueCatalog("glue", client=glue.client).load_table("shop.orders")
    for number in (2, 3):
        through_glue.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["new"]}))
        asked = check(revert)
        assert asked is not None
        assert "Parameters.metadata_location" in asked.body
        if number == 2:
            first = asked
    with pytest.raises(AirflowFailException, match="what the statement would delete now is not approved"):
        run(revert, first)
    assert catalog.get_table("shop.orders").is_iceberg
    run(revert, asked)
    assert not catalog.get_table("shop.orders").is_iceberg
    entry = glue.client.get_table(DatabaseName="shop", Name="orders")["Table"]
    assert "metadata_location" not in entry["Parameters"]


def test_a_migration_that_needs_spark_gets_its_packages(catalog: Catalog, job: dict[str, Any]) -> None:
    make_orders(catalog)
    run("CALL iceberg.system.migrate(schema_name => 'demo', table_name => 'orders')")
    assert job["conf"]["spark.jars.packages"].startswith("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:")
    assert not catalog.get_table("demo.orders").is_iceberg


def test_a_select_gets_icebergs_packages_where_it_reads_an_iceberg_table(catalog: Catalog, job: dict[str, Any]) -> None:
    make_orders(catalog)
    run("SELECT count(*) FROM demo.orders")
    assert "spark.jars.packages" not in job["conf"]
    migrate(catalog)
    run("SELECT count(*) FROM demo.Orders.files", run_id="another")
    assert "iceberg-spark-runtime" in job["conf"]["spark.jars.packages"]


@pytest.mark.parametrize(
    "statement",
    [
        "EXPLAIN SELECT * FROM demo.orders",
        "CREATE TABLE demo.copied PARTITIONED BY (day) AS SELECT id, day FROM demo.orders",
        "CALL calve.system.forget('demo.old', 'id = (SELECT max(id) FROM demo.orders)')",
        "MERGE INTO demo.old t USING demo.orders s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
)
def test_each_statement_that_reads_an_iceberg_table_gets_its_packages(
    catalog: Catalog, job: dict[str, Any], statement: str
) -> None:
    make_orders(catalog)
    migrate(catalog)
    catalog.create_table("demo.old", columns=[("id", "int")], partition_keys=[("k", "int")])
    run(statement)
    assert "iceberg-spark-runtime" in job["conf"]["spark.jars.packages"]


def test_failed_run_gives_the_table_of_its_statement_free(catalog: Catalog) -> None:
    catalog.operations.begin(f"{RUN}/statement-1", OperationKind.LOAD_ROWS, TABLE, is_exclusive=True)
    fail_statement(Task().context())
    catalog.operations.begin("another", OperationKind.LOAD_ROWS, TABLE, is_exclusive=True)


# --- types of columns -------------------------------------------------------------------------------------------------


def test_a_form_changes_types_of_columns_only_without_loss(catalog: Catalog) -> None:
    changes = [*LOSSLESS, *LOSSY]
    catalog.create_table(
        "demo.t", columns=[(f"c{n}", old) for n, (old, _) in enumerate(changes)], partition_keys=[("k", "int")]
    )
    catalog.add_partitions("demo.t", [NewPartition(["1"])])
    for number, (old, new) in enumerate(changes):
        statement = f"ALTER TABLE demo.t CHANGE c{number} c{number} {new}"
        if (old, new) in LOSSLESS:
            run(statement, run_id=f"{RUN}/{number}")
        else:
            with pytest.raises(AirflowFailException, match=f"column c{number} cannot change from"):
                run(statement, run_id=f"{RUN}/{number}")
    expected = [new for _, new in LOSSLESS] + [old for old, _ in LOSSY]
    assert [column.type for column in catalog.get_table("demo.t").columns] == expected
