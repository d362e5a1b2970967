"""The maintenance of Iceberg tables: the statements for each table, and the summary."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.batches import all_items
from calve_airflow.forms.iceberg import iceberg_params
from calve_airflow.operators.approval import Question
from calve_airflow.operators.iceberg_maintenance import (
    JOB,
    MaintainIcebergOperator,
    PlanIcebergUpkeepOperator,
    SummariseIcebergUpkeepOperator,
    upkeep_question,
)
from calve_airflow.operators.spark_job import SparkJobOperator
from catalog import Catalog
from catalog.iceberg.jdbc import jdbc_settings
from catalog.maintenance.iceberg_upkeep import TableMaintenance
from catalog.migration.requests import MigrationRequest
from catalog.operations.records import OperationKind, OperationState
from tests.support.iceberg_tables import NAME, append, make_orders, migrate, sql_catalog

RUN = "maintain_iceberg/run"
STARTED = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
FORM: dict[str, Any] = {"tables": ["demo.*"], "dry_run": False}
REWRITE = "CALL calve.system.rewrite_data_files(table => '`demo`.`orders`')"
EXPIRE = (
    "CALL calve.system.expire_snapshots(table => '`demo`.`orders`', older_than => TIMESTAMP '2026-11-17 12:00:00', "
    "retain_last => 1)"
)

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """An Iceberg table and a Hive table."""
    monkeypatch.setenv("CALVE_CATALOG_URL", catalog_url)
    with Catalog.open(catalog_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("demo")
        make_orders(catalog)
        migrate(catalog)
        make_orders(catalog, "demo.hive")
        yield catalog


class Task(dict[str, Any]):
    """The XComs of a run, as its tasks see them."""

    def context(self, form: dict[str, Any] | None = None) -> Context:
        names = {"dag_id": "maintain_iceberg", "run_id": "run"}
        run = SimpleNamespace(triggering_user_name="somebody", start_date=STARTED, **names)
        return Context(ti=self, dag_run=run, params=form or FORM)  # type: ignore[typeddict-item]  # other keys are not used

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


def plan(form: dict[str, Any], task: Task | None = None) -> dict[str, list[str]]:
    """Return the tables with statements to run, and the statements."""
    task = Task() if task is None else task
    batches = PlanIcebergUpkeepOperator(task_id="plan").execute(task.context(form))
    tables = [item["table"] for item in all_items(batches)]
    return {each["table"]: each["statements"] for each in task["statements"] if each["table"] in tables}


def maintain(context: Context, table: str = NAME) -> dict[str, Any]:
    return MaintainIcebergOperator(task_id="maintain", table=table).execute(context)


def approve(context: Context) -> Question:
    """Return the approval question of a run's statements, and approve it."""
    with Catalog.open() as catalog:
        asked = upkeep_question(catalog, context)
        assert asked is not None
        catalog.approvals.record(RUN, asked.keys, "boss")
        return asked


def summarise(task: Task, *, is_dry_run: Any = False) -> list[dict[str, Any]]:
    operator = SummariseIcebergUpkeepOperator(
        task_id="summarise", operation_id=RUN, planned=task["statements"], is_dry_run=is_dry_run
    )
    operator.execute(task.context())
    rows: list[dict[str, Any]] = task["return_value"]
    return rows


def test_the_iceberg_tables_of_a_pattern_are_kept_and_others_left_alone(catalog: Catalog) -> None:
    assert plan(FORM) == {NAME: [REWRITE, EXPIRE]}


@on_sqlite
def test_every_procedure_has_its_field(catalog: Catalog) -> None:
    form = {
        **FORM,
        "partition_fields": ["ADD PARTITION FIELD bucket(4, id)", " drop partition field country "],
        "target_file_mib": 128,
        "older_than_days": 0.5,
        "retain_last": 3,
        "remove_orphan_files": True,
        "orphan_days": 10,
    }
    (found,) = plan(form).values()
    assert found == [
        "ALTER TABLE calve.`demo`.`orders` ADD PARTITION FIELD bucket(4, id)",
        "ALTER TABLE calve.`demo`.`orders` drop partition field country",
        f"{REWRITE[:-1]}, options => map('target-file-size-bytes', '134217728'))",
        EXPIRE.replace("17 12:", "22 00:").replace("=> 1", "=> 3"),
        "CALL calve.system.remove_orphan_files(table => '`demo`.`orders`', older_than => "
        "TIMESTAMP '2026-11-12 12:00:00')",
    ]
    assert plan({**FORM, "rewrite_data_files": False, "expire_snapshots": False}) == {}


@on_sqlite
def test_no_file_is_deleted_where_another_table_has_its_folder(catalog: Catalog, catalog_url: str) -> None:
    folder = f"file://{catalog.get_table(NAME).location}/data/inner"
    with sql_catalog(catalog_url) as iceberg:
        iceberg.create_table("demo.inner", pa.schema([("id", pa.int64())]), location=folder)
    task = Task()
    assert plan({**FORM, "tables": [NAME], "remove_orphan_files": True}, task) == {NAME: [REWRITE]}
    left_out = summarise(task, is_dry_run=True)[-1]["outcome"]
    assert left_out.startswith("no file is deleted, because table demo.inner has files in ")


@on_sqlite
def test_a_dry_run_only_says_what_would_be_run(catalog: Catalog) -> None:
    task = Task()
    assert plan({"tables": [NAME]}, task) == {}
    said = [(row["statement"], row["outcome"]) for row in summarise(task, is_dry_run=True)]
    assert said == [(REWRITE, "would be run"), (EXPIRE, "would be run")]
    with pytest.raises(AirflowFailException, match=r"is_dry_run.*'False' is neither true nor false"):
        summarise(task, is_dry_run="False")


@on_sqlite
def test_a_table_that_is_named_and_is_none_of_iceberg_fails_the_run_and_no_other(catalog: Catalog) -> None:
    task = Task()
    assert list(plan({**FORM, "tables": ["demo.hive", NAME, "demo.gone"]}, task)) == [NAME]
    with pytest.raises(
        AirflowFailException, match=r"2 of 4 failed: demo\.hive: it is not an Iceberg table; demo\.gone"
    ):
        summarise(task, is_dry_run=True)


@pytest.mark.parametrize("kind", [OperationKind.SNAPSHOT, OperationKind.ADD_FILES])
def test_no_file_that_another_table_needs_is_deleted(catalog: Catalog, kind: OperationKind) -> None:
    target = "demo.trial" if kind is OperationKind.SNAPSHOT else NAME
    migrate(catalog, "demo.hive", "m2", MigrationRequest(kind=kind, target=target, verify=False))
    task = Task()
    found = plan(FORM, task)
    assert found[target] == [REWRITE.replace("orders", target.removeprefix("demo."))]
    said = {row["table"]: row["outcome"] for row in summarise(task, is_dry_run=True)}
    assert said[target] == "no file is deleted, because demo.hive may need it; drop obsolete tables first"
    catalog.drop_table("demo.hive")
    assert len(plan(FORM)[target]) == 2


def test_the_job_gets_the_driver_of_the_database_and_its_answers_are_told(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        {"statement": REWRITE, "rows": [{"added_data_files_count": 1}], "row_count": 1},
        {"statement": EXPIRE, "rows": [{"path": "x"}], "row_count": 1_001},
    ]
    seen: dict[str, Any] = {}

    def execute(operator: SparkJobOperator, context: Context) -> dict[str, Any]:
        seen.update(operator.conf or {})
        with catalog.operations.attempt(operator.operation_id, JOB) as attempt:
            catalog.operations.finish_job(operator.operation_id, JOB, attempt, {"answers": answers})
        return {"answers": answers}

    monkeypatch.setattr(SparkJobOperator, "run_job", execute)
    task = Task()
    plan(FORM, task)
    approve(task.context())
    maintain(task.context())
    driver = "sqlite-jdbc" if catalog_url.startswith("sqlite") else "org.postgresql:postgresql"
    assert driver in seen["spark.jars.packages"]
    assert seen["spark.sql.extensions"] == "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    assert summarise(task) == [
        {"table": NAME, "statement": REWRITE, "outcome": "[{'added_data_files_count': 1}]"},
        {"table": NAME, "statement": EXPIRE, "outcome": "[{'path': 'x'}] and 1,000 more"},
    ]


@on_sqlite
def test_statements_that_delete_files_wait_for_a_person(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(SparkJobOperator, "run_job", lambda self, _: ran.append(self.request) or {"answers": []})
    context = Task().context()
    with pytest.raises(AirflowFailException, match="is not approved"):
        maintain(context)
    approve(Task().context({**FORM, "older_than_days": 6}))
    with pytest.raises(AirflowFailException, match="is not approved"):
        maintain(context)
    assert f"- `` {EXPIRE} ``" in approve(context).body
    assert ran == []
    maintain(context)
    assert ran == [{"table": NAME, "statements": [REWRITE, EXPIRE]}]
    assert upkeep_question(catalog, Task().context({**FORM, "expire_snapshots": False})) is None


@on_sqlite
def test_statements_come_from_the_form_and_from_no_xcom(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(SparkJobOperator, "run_job", lambda self, _: ran.append(self.request) or {"answers": []})
    context = Task().context({**FORM, "expire_snapshots": False})
    assert MaintainIcebergOperator.template_fields == ()
    forged: Any = {"table": NAME, "statements": ["SELECT 1"]}
    with pytest.raises(AirflowFailException, match="WrongFieldError: table: "):
        maintain(context, forged)
    with pytest.raises(AirflowSkipException, match="the table does not exist"):
        maintain(context, "demo.gone")
    for table in ("{{ conn.bank.password }}", "demo.ORDERS"):
        with pytest.raises(AirflowFailException, match=r"WrongFieldError: tables: demo\.\* does not select"):
            maintain(context, table)
    with pytest.raises(AirflowFailException, match=r"demo\.hive does not select demo\.orders"):
        maintain(Task().context({**FORM, "expire_snapshots": False, "tables": ["demo.hive"]}))
    with pytest.raises(AirflowSkipException, match="this is a dry run"):
        maintain(Task().context({**FORM, "expire_snapshots": False, "dry_run": True}))
    maintain(context)
    assert ran == [{"table": NAME, "statements": [REWRITE]}]


def test_an_approval_is_no_good_once_the_table_was_a_hive_table_meanwhile(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(SparkJobOperator, "run_job", lambda self, _: ran.append(self.request) or {"answers": []})
    form = {**FORM, "tables": [NAME], "rewrite_data_files": False, "expire_snapshots": False}
    context = Task().context({**form, "remove_orphan_files": True})
    approve(context)
    # The approval stays valid after commits of engines, and in a retry after a committed statement.
    append(catalog_url, [8])
    for _ in range(2):
        maintain(context)
    assert len(ran) == 2
    catalog.migrations.revert("back", NAME, lose_data=True)
    catalog.drop_partitions(NAME, "country = 'nl'")
    migrate(catalog, NAME, "m2")
    with pytest.raises(AirflowFailException, match="is not approved"):
        maintain(context)
    assert len(ran) == 2


@on_sqlite
def test_a_job_that_failed_fails_the_run_and_says_why(catalog: Catalog) -> None:
    task = Task()
    plan(FORM, task)
    operation_id = f"{RUN}/{NAME}"
    catalog.operations.begin(operation_id, OperationKind.MAINTAIN_ICEBERG, NAME)
    attempt = catalog.operations.start_job(operation_id, JOB)
    catalog.operations.fail_job(operation_id, JOB, attempt, "EngineError", "Spark said no")
    with pytest.raises(AirflowFailException, match=r"1 of 1 failed: demo\.orders: EngineError: Spark said no"):
        summarise(task)
    assert catalog.operations.get(operation_id).state is OperationState.FAILED


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tables": []}, "tables: there is none"),
        ({"partition_fields": ["days(at)"]}, "partition_fields: 'days\\(at\\)' is no change"),
        ({"partition_fields": ["ADD PARTITION FIELD a; DROP TABLE b"]}, "partition_fields: "),
        # Airflow would render it with the worker's permissions when it maps the task.
        (
            {"partition_fields": ["ADD PARTITION FIELD {{ conn.x.password }}"]},
            "form: .*Airflow would render as a template",
        ),
        ({"remove_orphan_files": True, "orphan_days": 0}, "orphan_days: files of commits under way"),
    ],
)
@on_sqlite
def test_a_field_that_is_not_right_is_named(catalog: Catalog, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=f"WrongFieldError: {said}"):
        plan({**FORM, **fields})


def test_the_form_offers_what_there_is() -> None:
    offered = {name: param.value for name, param in iceberg_params().items() if name != "tables"}
    assert TableMaintenance.read({**offered, "tables": [NAME]}) == TableMaintenance(tables=(NAME,))


def test_the_database_is_reached_through_jdbc_with_its_password() -> None:
    from sqlalchemy import make_url

    url = make_url("postgresql+psycopg://ann:p%40ss@db.example:15432/calve?sslmode=require&application_name=x")
    found = jdbc_settings(url)
    assert found["uri"] == "jdbc:postgresql://db.example:15432/calve?sslmode=require"
    assert (found["jdbc.user"], found["jdbc.password"], found["jdbc.schema-version"]) == ("ann", "p@ss", "V1")
    assert jdbc_settings(make_url("sqlite:////tmp/c.db"))["uri"] == "jdbc:sqlite:/tmp/c.db"
