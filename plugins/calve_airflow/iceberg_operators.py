"""Iceberg's own procedures on many tables: which statements, run by Spark, and what they answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from calve_airflow.approval import QUESTION, asked_by, key_of, question, require_approval
from calve_airflow.errors import catalog_errors
from calve_airflow.form_operator import FormOperator
from calve_airflow.spark_job import SparkJobOperator
from calve_airflow.summary import Outcome, SummaryOperator
from calve_airflow.templates import for_mapped_tasks

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog, Table
    from catalog.iceberg.upkeep import Upkeep

JOB = "maintain_iceberg"
_SHOWN = 50
STATEMENTS = "statements"
"""The XCom in which `plan` says what is run on each table."""


class PlanIcebergUpkeepOperator(FormOperator):
    """Finds the tables, and says in its log which statements are run on them; changes nothing.

    Args:
        operation_id: The run (templated); what is done to each table is an operation of its own below it.
        form: The fields of `catalog.iceberg.upkeep.Upkeep` (templated).

    Returns:
        The arguments of a `MaintainIcebergOperator` for each Iceberg table; none in a dry run. Another XCom,
        `statements`, has all tables: `table`, `statements`, `reason`, why there are none, and `left_out`, why some are
        not run: files of theirs are needed by other tables, which Iceberg does not know. A third one, `question`, is
        what has to be approved, if files are deleted.

    Raises:
        AirflowFailException: A field is not right; the message begins with its name.
    """

    template_fields: Sequence[str] = ("operation_id", "form")
    template_fields_renderers = {"form": "json"}  # noqa: RUF012 - read by Airflow

    def __init__(self, *, operation_id: str, form: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.form = form

    @for_mapped_tasks
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Plan."""
        from catalog import Catalog
        from catalog.iceberg.upkeep import Upkeep
        from catalog.table_patterns import matching_tables

        # Ages are counted from the start of the run, so that a task that is run again asks for the same.
        now = (context["dag_run"].start_date or datetime.now(UTC)).astimezone(UTC)
        with catalog_errors(), Catalog.open() as catalog:
            upkeep = Upkeep.read(self.form)
            tables = {table.full_name: table for table in catalog.list_tables()}
            found: list[dict[str, Any]] = []
            for name, is_named in matching_tables(tables.values(), upkeep.tables, "tables").items():
                table = tables.get(name)
                if table is not None and table.is_iceberg:
                    found.append(_planned(catalog, upkeep, table, tables.values(), now))
                elif is_named:
                    reason = "there is no such table" if table is None else "it is no Iceberg table"
                    found.append({"table": name, "statements": [], "reason": reason, "left_out": None})
        for each in found:
            self.log.info("%s: %s", each["table"], each["reason"] or each["left_out"] or "")
            for statement in each["statements"]:
                self.log.info("  %s", statement)
        context["ti"].xcom_push(key=STATEMENTS, value=found)
        if upkeep.dry_run:
            self.log.info("This is a dry run: nothing is run. With dry_run off, it is")
            return []
        if asked := _question(found, asked_by(context)):
            context["ti"].xcom_push(key=QUESTION, value=asked)
        return [
            {
                "operation_id": f"{self.operation_id}/{each['table']}",
                "request": {"table": each["table"], "statements": each["statements"]},
            }
            for each in found
            if each["statements"]
        ]


class MaintainIcebergOperator(SparkJobOperator):
    """Runs the statements of one table as a Spark job, which finds it through Iceberg's JDBC catalog `calve`.

    Args:
        asked: The XCom `question` of `PlanIcebergUpkeepOperator` (templated).
        approval: What `ApproveDeletionOperator` returned (templated).

    Returns:
        `answers`: of each statement, its text, the first rows that it returned, and their number.

    Raises:
        AirflowFailException: A statement deletes files, and nobody has approved that.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "asked", "approval")

    def __init__(
        self, *, asked: Mapping[str, str] | None = None, approval: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(job=JOB, **kwargs)
        self.asked = asked
        self.approval = approval

    def execute(self, context: Context) -> dict[str, Any]:
        """Journal, and run."""
        from catalog import Catalog
        from catalog.environment import package_settings
        from catalog.iceberg.jdbc import EXTENSIONS
        from catalog.iceberg.upkeep import deletes_files
        from catalog.operations import OperationKind

        if any(map(deletes_files, self.request["statements"])):
            require_approval(self.approval, self.asked["key"] if self.asked else "")
        with catalog_errors(), Catalog.open() as catalog:
            database = catalog.storage.url.get_backend_name()
            catalog.operations.begin(
                self.operation_id,
                OperationKind.MAINTAIN_ICEBERG,
                self.request["table"],
                {"statements": list(self.request["statements"])},
                requested_by=context["dag_run"].triggering_user_name,
            )
        self.conf = {**EXTENSIONS, **package_settings(database=database), **(self.conf or {})}
        found = super().execute(context)
        for answer in found["answers"]:
            self.log.info("%s: %s", answer["statement"], _rows(answer))
        return found


class SummariseIcebergUpkeepOperator(SummaryOperator):
    """Says what the procedures answered, table by table; fails if one failed, or a table is no Iceberg table.

    Args:
        operation_id: The run (templated).
        planned: The XCom `statements` of `PlanIcebergUpkeepOperator` (templated).
        is_dry_run: Nothing was run (templated).
    """

    template_fields: Sequence[str] = (*SummaryOperator.template_fields, "is_dry_run")

    def __init__(self, *, is_dry_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_dry_run = is_dry_run

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Look at the operations, where the jobs have recorded what was answered."""
        return [outcome for each in self.planned for outcome in self._outcomes(catalog, each)]

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
            return [_outcome(table, each, "would be run") for each in statements]
        operation = catalog.operations.find(f"{self.operation_id}/{table}")
        job = operation and catalog.operations.get_job(operation.id, JOB)
        if job and job.state == "SUCCEEDED":
            return [_outcome(table, answer["statement"], _rows(answer)) for answer in job.result["answers"]]
        reason = f"{job.error_class}: {job.error_message}" if job else "the log of its task says why"
        if operation:
            catalog.operations.fail(operation.id, "RUN_FAILED", reason)
        return [_outcome(table, None, f"failed: {reason}", f"{table}: {reason}")]


def _rows(answer: Mapping[str, Any]) -> str:
    """Return the rows of a statement's answer as text, and how many more there are."""
    rows = answer["rows"]
    more = answer.get("row_count", len(rows)) - len(rows)
    return f"{rows} and {more:,} more" if more else str(rows)


def _question(found: Sequence[Mapping[str, Any]], asker: str) -> dict[str, str] | None:
    """Return what has to be approved before planned statements are run; None when they delete nothing."""
    from catalog.iceberg.upkeep import deletes_files

    deleting = [statement for each in found for statement in each["statements"] if deletes_files(statement)]
    if not deleting:
        return None
    listed = "\n".join(f"- `{statement}`" for statement in deleting[:_SHOWN])
    more = f"\n- and {len(deleting) - _SHOWN} more" if len(deleting) > _SHOWN else ""
    body = (
        f"{asker} asks for statements that delete files for good:\n\n{listed}{more}\n\nReject ends the run, and "
        "nothing is changed."
    )
    return question(f"Delete files of {len(found)} Iceberg table(s)?", body, key_of(deleting))


def _planned(catalog: Catalog, upkeep: Upkeep, table: Table, tables: Iterable[Table], now: datetime) -> dict[str, Any]:
    from catalog.iceberg.places import hidden_location
    from catalog.iceberg.upkeep import sharing_tables

    left_out = None
    if upkeep.deletes_files:
        with catalog.storage.read() as connection:
            sharing = sharing_tables(connection, table, tables)
        if sharing:
            left_out = f"no file is deleted, because {', '.join(sharing)} may need it; drop what is not needed first"
    hidden = hidden_location(table) if upkeep.remove_orphan_files else None
    statements = list(upkeep.statements(table.full_name, now, may_delete=left_out is None, hidden=hidden))
    return {"table": table.full_name, "statements": statements, "reason": None, "left_out": left_out}


def _outcome(table: str, statement: str | None, said: str, failure: str | None = None) -> Outcome:
    return Outcome({"table": table, "statement": statement, "outcome": said}, failure)
