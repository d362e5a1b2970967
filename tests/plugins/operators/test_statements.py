"""Statements: run in the task or by Spark, exactly once, with deletions limited to the approval."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

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
from catalog.operations.records import OperationKind, OperationState
from catalog.schemes.ranges import RangeScheme
from tests.support.iceberg_tables import make_orders, migrate
from tests.support.published import add_files
from tests.support.type_changes import LOSSLESS, LOSSY

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
    "statement",
    [
        *("SHOW TABLES IN demo", "SELECT * FROM demo.delays", f"DROP TABLE {TABLE}", f"DROP TABLE {TABLE};"),
        *("CREATE TABLE demo.new (id INT)", "DROP TABLE IF EXISTS demo.nothing", "DROP VIEW IF EXISTS demo.nothing"),
        f"CREATE VIEW demo.new AS SELECT * FROM {TABLE}",
    ],
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
        ("DELETE FROM demo.dealys", "TableNotFoundError: .* Did you mean demo.delays", "demo"),
        (f"INSERT INTO {TABLE} SELECT delay FROM demo.dealys", "TableNotFoundError: .* Did you mean demo", "demo.dea"),
        ("SHOW PARTITIONS delays", "DatabaseNotFoundError: .* Did you mean demo.delays", "delays"),
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


@pytest.mark.long
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
