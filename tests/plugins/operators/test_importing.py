"""The tasks of an import, and its summary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.batches import all_items, in_batches
from calve_airflow.operators.approval import Question
from calve_airflow.operators.importing import (
    ImportTableOperator,
    PlanImportOperator,
    SummariseImportOperator,
    import_question,
)
from catalog import Catalog
from catalog.errors import SourceUnavailableError
from catalog.operations.records import OperationState
from tests.support.glue_endpoint import GlueEndpoint, columns, storage

if TYPE_CHECKING:
    from airflow.sdk import DAG

RUN = "import_tables/manual"


@pytest.fixture
def sales(glue: GlueEndpoint) -> GlueEndpoint:
    """A database with a partitioned table, and an Iceberg table."""
    glue.client.create_database(DatabaseInput={"Name": "sales", "LocationUri": "/lake/sales"})
    keys = columns(("day", "date"))
    glue.create_table("sales", "orders", StorageDescriptor=storage("/lake/orders"), PartitionKeys=keys)
    glue.add_partitions(
        "sales", "orders", iter([{"Values": ["2024-01-01"], "StorageDescriptor": storage("/lake/orders/1")}])
    )
    glue.create_table("sales", "lake", Parameters={"table_type": "ICEBERG"}, StorageDescriptor=storage("/i"))
    return glue


def form(source: str, *tables: str, **fields: bool) -> dict[str, Any]:
    return {
        "source": source,
        "tables": list(tables) or None,
        "update": False,
        "drop_vanished": False,
        "dry_run": False,
        **fields,
    }


def context(pushed: dict[str, Any] | None = None, said: dict[str, Any] | None = None) -> Context:
    def push(key: str, value: Any) -> None:
        if pushed is not None:
            pushed[key] = value

    run = SimpleNamespace(triggering_user_name="me", dag_id="import_tables", run_id="manual")
    return cast(Context, {"dag_run": run, "ti": SimpleNamespace(xcom_push=push), "params": said})


def plan(said: dict[str, Any]) -> list[str]:
    batches = PlanImportOperator(task_id="plan").execute(context(said=said))
    return [item["table"] for item in all_items(batches)]


def import_one(table: str, said: dict[str, Any]) -> dict[str, Any]:
    return ImportTableOperator(task_id="import", table=table).execute(context(said=said))


def summarise(planned: Any, reports: Any) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows of the summary, and its error."""
    pushed: dict[str, Any] = {}
    batches = in_batches([{"table": table} for table in planned])
    operator = SummariseImportOperator(
        task_id="summarise", operation_id=RUN, planned=batches, reports=reports and [reports]
    )
    failure = None
    try:
        operator.execute(context(pushed))
    except AirflowFailException as error:
        failure = str(error)
    (rows,) = pushed.values()
    return rows, failure


def test_a_run_imports_table_by_table(empty_catalog: Catalog, sales: GlueEndpoint) -> None:
    said = form(sales.source(), "sales")
    planned = plan(said)
    assert planned == ["sales.lake", "sales.orders"]
    assert empty_catalog.get_database("sales").location == "/lake/sales"
    rows, failure = summarise(planned, [import_one(table, said) for table in planned])
    assert failure is None
    assert [(row["table"], row["outcome"], row["added"]) for row in rows] == [
        ("sales.lake", "refused", 0),
        ("sales.orders", "created", 1),
    ]
    assert "is an Iceberg table" in rows[0]["remarks"]
    operation = empty_catalog.operations.get(f"{RUN}/sales.orders")
    assert (operation.state, operation.requested_by) == (OperationState.CLEANED, "me")


def test_a_dry_run_creates_nothing(empty_catalog: Catalog, sales: GlueEndpoint) -> None:
    said = form(sales.source(), "sales.orders", dry_run=True)
    planned = plan(said)
    rows, _ = summarise(planned, [import_one(table, said) for table in planned])
    assert (rows[0]["outcome"], rows[0]["added"]) == ("created", 1)
    assert [each.name for each in empty_catalog.list_databases()] == ["demo"]


def test_a_named_table_that_is_refused_fails_the_run(empty_catalog: Catalog, sales: GlueEndpoint) -> None:
    said = form(sales.source(), "sales.lake", "sales.orders")
    planned = plan(said)
    with pytest.raises(AirflowFailException, match="UnsupportedSourceTableError"):
        import_one(planned[0], said)
    rows, failure = summarise(planned, [import_one(planned[1], said)])
    assert failure is not None
    assert failure.startswith("1 of 2 failed: table sales.lake was not imported: table sales.lake is an Iceberg table")
    assert [row["outcome"] for row in rows] == ["failed", "created"]


def test_a_task_that_was_killed_fails_the_run_and_gives_its_table_free(
    empty_catalog: Catalog, sales: GlueEndpoint
) -> None:
    from catalog.operations.records import OperationKind

    planned = plan(form(sales.source(), "sales.orders"))
    operation_id = f"{RUN}/{planned[0]}"
    empty_catalog.operations.begin(operation_id, OperationKind.IMPORT_TABLE, "sales.orders", is_exclusive=True)
    _, failure = summarise(planned, None)
    assert failure == "1 of 1 failed: table sales.orders was not imported: see the log of its task"
    assert empty_catalog.operations.get(operation_id).state is OperationState.FAILED


@pytest.mark.usefixtures("empty_catalog")
def test_what_another_try_may_mend_is_tried_again(sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match="InvalidSourceError"):
        plan(form("thrift://x"))
    with pytest.raises(AirflowFailException, match="DatabaseNotFoundError"):
        plan(form(sales.source(), "crm"))
    with pytest.raises(SourceUnavailableError):
        plan(form("hms://127.0.0.1:1"))


@pytest.mark.long
@pytest.mark.airflow
@pytest.mark.filterwarnings("ignore")  # Airflow's own
def test_the_dag_hands_the_reports_to_the_summary(
    empty_catalog: Catalog, sales: GlueEndpoint, load_dag: Callable[[str, str], DAG]
) -> None:
    code = (Path(__file__).parents[3] / "dags" / "import_tables_dag.py").read_text()
    dag = load_dag(code, "import_tables")
    run = dag.test(run_conf=form(sales.source(), "sales"))
    assert run.state == "success"
    assert [table.full_name for table in empty_catalog.list_tables("sales")] == ["sales.orders"]
    (operation,) = [each for each in empty_catalog.operations.list() if each.is_committed]
    assert operation.table == "sales.orders"


def approve(catalog: Catalog, said: dict[str, Any]) -> Question | None:
    """Return the approval question of a run with this form, and approve it."""
    asked = import_question(catalog, context(said=said))
    catalog.approvals.record(RUN, asked.keys if asked else [], "boss")
    return asked


def vanish(sales: GlueEndpoint, *days: str) -> None:
    gone = [{"Values": [day]} for day in days]
    sales.client.batch_delete_partition(DatabaseName="sales", TableName="orders", PartitionsToDelete=gone)


def test_dropping_vanished_partitions_waits_for_a_person(sales: GlueEndpoint, empty_catalog: Catalog) -> None:
    days = [f"2024-01-0{day}" for day in range(2, 6)]
    place = "/lake/orders/{}"
    sales.add_partitions(
        "sales", "orders", iter([{"Values": [day], "StorageDescriptor": storage(place.format(day))} for day in days])
    )
    empty_catalog.imports.import_tables(sales.source(), ["sales.orders"])
    said = form(sales.source(), "sales.orders", drop_vanished=True)
    assert approve(empty_catalog, said) is None
    vanish(sales, *days[:2])
    assert approve(empty_catalog, {**said, "dry_run": True}) is None
    with pytest.raises(AirflowFailException, match="is not approved"):
        import_one("sales.orders", said)
    asked = approve(empty_catalog, said)
    assert asked is not None
    assert asked.subject == "Drop 2 vanished partitions of 1 table(s)?"
    assert "- `sales.orders`: 2 (`day=2024-01-02`, `day=2024-01-03`)" in asked.body
    # Another partition vanishes after the approval.
    vanish(sales, days[2])
    with pytest.raises(AirflowFailException, match="is not approved"):
        import_one("sales.orders", said)
    assert len(list(empty_catalog.get_partitions("sales.orders"))) == 5
    approve(empty_catalog, said)
    assert import_one("sales.orders", said)["partitions"]["dropped"] == 3
    assert [partition.values for partition in empty_catalog.get_partitions("sales.orders", "day < '2024-01-05'")] == [
        ("2024-01-01",)
    ]


def test_a_table_that_the_form_does_not_name_is_not_imported(sales: GlueEndpoint, empty_catalog: Catalog) -> None:
    said = form(sales.source(), "sales.o*")
    assert plan(said) == ["sales.orders"]
    with pytest.raises(AirflowFailException, match=r"the form of this run does not select table sales\.lake"):
        import_one("sales.lake", said)
    import_one("sales.orders", said)
    assert [table.full_name for table in empty_catalog.list_tables()] == ["sales.orders"]


def test_only_the_table_comes_from_an_xcom(sales: GlueEndpoint, empty_catalog: Catalog) -> None:
    assert not set(ImportTableOperator.template_fields) & {"table"}
    forged: Any = {"table": "sales.orders", "drop_vanished": True}
    with pytest.raises(AirflowFailException, match="WrongFieldError: table: "):
        import_one(forged, form(sales.source(), "sales.orders"))
