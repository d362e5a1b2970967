"""Operators that run the maintenance of many Iceberg tables and report the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from calve_airflow.batches import Batch, in_batches
from calve_airflow.catalog_access import catalog_errors, open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks, refuse_templates
from calve_airflow.operators.approval import Question, asked_by, code, key_of, operation_of, require_approval
from calve_airflow.operators.batches import BatchOperator
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.summary import Outcome, SummaryOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog, Table
    from catalog.maintenance.iceberg_upkeep import TableMaintenance

JOB = "maintain_iceberg"
_SHOWN = 50
_MOST_SNAPSHOTS = 100_000
_EXPIRES = ".expire_snapshots("
STATEMENTS = "statements"
"""The XCom in which the task `plan` returns the statements of each table."""


class PlanIcebergUpkeepOperator(FormOperator):
    """Task that finds the tables and logs the statements to run on them; changes nothing.

    Reads the fields of `catalog.maintenance.iceberg_upkeep.TableMaintenance` from the run's form.

    Returns:
        The Iceberg tables that have statements to run, each as `table`, in batches; none in a dry run. Another XCom,
        `statements`, has all tables: `table`, `statements`, `reason` (why there are none) and `left_out` (why some are
        skipped: other tables may need files of the table).

    Raises:
        AirflowFailException: A field is invalid; the message begins with its name.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[Batch]:
        """Plan the statements."""
        with open_catalog() as catalog:
            upkeep, planned = _plan(catalog, context)
        for plan in planned:
            self.log.info("%s: %s", plan["table"], plan["reason"] or plan["left_out"] or "")
            for statement in plan["statements"]:
                self.log.info("  %s", statement)
        context["ti"].xcom_push(key=STATEMENTS, value=planned)
        if upkeep.dry_run:
            self.log.info("This is a dry run: nothing is run. Turn dry_run off to run the statements")
            return []
        with catalog_errors():
            refuse_templates(planned)
        return in_batches([{"table": plan["table"]} for plan in planned if plan["statements"]])


class MaintainIcebergOperator(SparkJobOperator):
    """Task that runs the statements of one table as a Spark job, through Iceberg's JDBC catalog `calve`.

    Only the table comes from `PlanIcebergUpkeepOperator`. The statements are planned again from the run's form, because
    users may write XComs.

    Args:
        table: `database.table`; no template.

    Returns:
        `answers`: for each statement its text, the first rows of its result, and the number of rows.

    Raises:
        AirflowSkipException: The run is a dry run, or there is nothing to run.
        AirflowFailException: The form does not select the table; or a statement deletes files without an approval.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job=JOB, operation_id="", request={}, **kwargs)
        self.table = table

    def prepare(self, context: Context, catalog: Catalog) -> None:
        """Journal the operation."""
        from catalog.iceberg.jdbc import EXTENSIONS
        from catalog.operations.records import OperationKind
        from catalog.settings.environment import package_settings
        from catalog.settings.fields import text

        upkeep, (planned,) = _plan(catalog, context, text("table", self.table))
        if upkeep.dry_run:
            raise AirflowSkipException("this is a dry run; nothing is run")
        if not planned["statements"]:
            raise AirflowSkipException(planned["reason"] or planned["left_out"] or "there is nothing to run")
        if key := _key(catalog, planned):
            require_approval(catalog, context, key)
        self.operation_id = f"{operation_of(context)}/{planned['table']}"
        self.request = {"table": planned["table"], "statements": planned["statements"]}
        catalog.operations.begin(
            self.operation_id,
            OperationKind.MAINTAIN_ICEBERG,
            planned["table"],
            {"statements": planned["statements"]},
            requested_by=context["dag_run"].triggering_user_name,
        )
        database = catalog.storage.url.get_backend_name()
        self.conf = {**EXTENSIONS, **package_settings(database=database), **(self.conf or {})}

    def finish(self, context: Context, catalog: Catalog, result: Mapping[str, Any]) -> dict[str, Any]:
        """Log the results of the statements."""
        for answer in result["answers"]:
            self.log.info("%s: %s", answer["statement"], _rows(answer))
        return dict(result)


class MaintainIcebergTablesOperator(BatchOperator, MaintainIcebergOperator):
    """Task that runs the statements of a batch of tables, one after the other."""


class SummariseIcebergUpkeepOperator(SummaryOperator):
    """Task that reports the results of the procedures by table; fails if one failed or a table is no Iceberg table.

    Args:
        operation_id: The run (templated).
        planned: The XCom `statements` of `PlanIcebergUpkeepOperator` (templated).
        is_dry_run: Whether nothing was run (templated).
    """

    template_fields: Sequence[str] = (*SummaryOperator.template_fields, "is_dry_run")

    def __init__(self, *, is_dry_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_dry_run = is_dry_run

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcomes from the operations, where the jobs recorded their results."""
        from catalog.settings.fields import flag

        # The string "False", which a template gives without native objects, would count as true.
        self.is_dry_run = flag("is_dry_run", self.is_dry_run)
        return [outcome for plan in self.planned for outcome in self._outcomes(catalog, plan)]

    def _outcomes(self, catalog: Catalog, planned: Mapping[str, Any]) -> list[Outcome]:
        table = planned["table"]
        if planned["reason"] is not None:
            return [_outcome(table, None, planned["reason"], f"{table}: {planned['reason']}")]
        kept = [] if planned["left_out"] is None else [_outcome(table, None, planned["left_out"])]
        return [*self._of_statements(catalog, table, planned["statements"]), *kept]

    def _of_statements(self, catalog: Catalog, table: str, statements: Sequence[str]) -> list[Outcome]:
        if not statements:
            return []
        if self.is_dry_run:
            return [_outcome(table, statement, "would be run") for statement in statements]
        operation = catalog.operations.find(f"{self.operation_id}/{table}")
        job = operation and catalog.operations.get_job(operation.id, JOB)
        if job and job.state == "SUCCEEDED":
            return [_outcome(table, answer["statement"], _rows(answer)) for answer in job.result["answers"]]
        reason = f"{job.error_class}: {job.error_message}" if job else "see the log of its task"
        if operation:
            catalog.operations.fail(operation.id, "RUN_FAILED", reason)
        return [_outcome(table, None, f"failed: {reason}", f"{table}: {reason}")]


def _rows(answer: Mapping[str, Any]) -> str:
    """Return the rows of a statement's result as a string, and the number of rows not shown."""
    rows = answer["rows"]
    more = answer.get("row_count", len(rows)) - len(rows)
    return f"{rows} and {more:,} more" if more else str(rows)


def upkeep_question(catalog: Catalog, context: Context) -> Question | None:
    """Return the question to approve before a run's statements are run; None if they delete nothing."""
    from catalog.maintenance.iceberg_upkeep import deletion_of

    upkeep, planned = _plan(catalog, context)
    keys = {plan["table"]: key for plan in planned if (key := _key(catalog, plan))}
    if upkeep.dry_run or not keys:
        return None
    deleting = [
        (plan["table"], statement) for plan in planned for statement in plan["statements"] if deletion_of(statement)
    ]
    listed = "\n".join(
        f"- {code(statement)}{_expired(catalog, context, upkeep, table) if _EXPIRES in statement else ''}"
        for table, statement in deleting[:_SHOWN]
    )
    more = f"\n- and {len(deleting) - _SHOWN} more" if len(deleting) > _SHOWN else ""
    body = (
        f"{asked_by(context)} requests statements that delete files permanently:\n\n{listed}{more}\n\nReject ends the "
        "run, and nothing is changed."
    )
    return Question(f"Delete files of {len(keys)} Iceberg table(s)?", body, list(keys.values()))


def _expired(catalog: Catalog, context: Context, upkeep: TableMaintenance, table: str) -> str:
    """Return how many snapshots of a table expire; which files only they need is known when they have."""
    history = catalog.migration_states.history(catalog.get_table(table), limit=_MOST_SNAPSHOTS)
    if history is None:
        return ""
    then_ms = (_now(context) - timedelta(days=upkeep.older_than_days)).timestamp() * 1000
    old = [snapshot for snapshot in history.latest[upkeep.retain_last :] if snapshot.at_ms < then_ms]
    return f": {len(old):,} of {history.count:,} snapshots, and the files that only they need"


def _key(catalog: Catalog, planned: Mapping[str, Any]) -> str | None:
    """Return the approval key of the statements of a table that delete files; None if no statement does.

    The key contains the table's version. Iceberg commits, also those of the statements themselves, do not change it. It
    changes if the table was, for instance, a Hive table in the meantime: the approver did not see the orphan files that
    result from that.
    """
    from catalog.maintenance.iceberg_upkeep import deletion_of

    deleting = [statement for statement in planned["statements"] if deletion_of(statement)]
    if not deleting:
        return None
    table = catalog.get_table(planned["table"])
    return key_of(table.id, table.version, deleting)


def _plan(
    catalog: Catalog, context: Context, table: str | None = None
) -> tuple[TableMaintenance, list[dict[str, Any]]]:
    """Return the settings of a run's form, and the statements of all its tables or of one.

    Raises:
        WrongFieldError: A field is invalid, or the form does not select the table.
    """
    from catalog.maintenance.iceberg_upkeep import TableMaintenance
    from catalog.tables.patterns import matching_tables, require_meant

    now = _now(context)
    upkeep = TableMaintenance.read(context["params"])
    if table is not None:
        require_meant(table, upkeep.tables, "tables")
    tables = {known.full_name: known for known in catalog.list_tables()}
    names = {table: True} if table else matching_tables(tables.values(), upkeep.tables, "tables")
    planned: list[dict[str, Any]] = []
    for name, is_named in names.items():
        known = tables.get(name)
        if known is not None and known.is_iceberg:
            planned.append(_planned(catalog, upkeep, known, tables.values(), now))
        elif is_named:
            reason = "the table does not exist" if known is None else "it is not an Iceberg table"
            planned.append({"table": name, "statements": [], "reason": reason, "left_out": None})
    return upkeep, planned


def _now(context: Context) -> datetime:
    """Return the time from which ages count: the start of the run, so that a repeated task plans the same."""
    return (context["dag_run"].start_date or datetime.now(UTC)).astimezone(UTC)


def _planned(
    catalog: Catalog, upkeep: TableMaintenance, table: Table, tables: Iterable[Table], now: datetime
) -> dict[str, Any]:
    from catalog.maintenance.iceberg_files import obstacle
    from catalog.maintenance.iceberg_upkeep import sharing_tables

    left_out = None
    if upkeep.deletes_files:
        with catalog.storage.read() as connection:
            sharing = sharing_tables(connection, table, tables)
            reason = obstacle(connection, table)
        if sharing:
            left_out = f"no file is deleted, because {', '.join(sharing)} may need it; drop obsolete tables first"
        elif reason is not None:
            left_out = f"no file is deleted, because {reason}"
    statements = list(upkeep.statements(table.full_name, now, may_delete=left_out is None))
    return {"table": table.full_name, "statements": statements, "reason": None, "left_out": left_out}


def _outcome(table: str, statement: str | None, outcome: str, failure: str | None = None) -> Outcome:
    return Outcome({"table": table, "statement": statement, "outcome": outcome}, failure)
