"""Operators that import tables of a Hive Metastore or of Glue, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.batches import Batch, all_items, in_batches
from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.operators.approval import Question, asked_by, code, key_of, operation_of, require_approval
from calve_airflow.operators.batches import BatchOperator
from calve_airflow.operators.summary import Outcome, SummaryOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.importing.partitions import ImportOptions
    from catalog.importing.reports import TableReport

_SHOWN = 50


class PlanImportOperator(FormOperator):
    """Task that finds the tables to import and, except in a dry run, creates their databases.

    Reads `source`, `tables`, `update`, `drop_vanished` and `dry_run` from the run's parameters and not from templated
    fields: Airflow stores rendered fields, and a source may contain a password.

    Returns:
        `table` of each table, as `database.table`, in batches.

    Raises:
        AirflowFailException: The source or a pattern cannot be read, or a named table does not exist.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[Batch]:
        """List the source's tables."""
        options = _options(context["params"])
        with open_catalog() as catalog:
            plan = catalog.imports.plan(*_selection(context["params"]))
            if not options.is_dry_run:
                for difference in catalog.imports.import_databases(plan, updates=options.updates):
                    self.log.warning("%s", difference)
        self.log.info("%d table(s) of %s", len(plan.tables), plan.address)
        return in_batches([{"table": str(table)} for table in plan.tables])


class ImportTableOperator(BaseOperator):
    """Task that imports one table with its partitions, or a view (`Imports.import_table`); a retry continues it.

    Everything but the table comes from the run's form, because users may write XComs.

    Args:
        table: `database.table`; no template.

    Returns:
        The report, as `catalog.importing.reports.TableReport.as_json`, also for a refused table.

    Raises:
        AirflowFailException: The import failed with an error that is not retryable, or dropping exactly these
            partitions is not approved.
    """

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table

    def execute(self, context: Context) -> dict[str, Any]:
        """Import the table."""
        from catalog.settings.fields import text

        with open_catalog() as catalog:
            report = self._import(catalog, context, text("table", self.table))
        self.log.info("%s: %s, %d partition(s), %d added", *report.row()[:4])
        if report.summary:
            self.log.warning("%s", report.summary)
        return report.as_json()

    def _import(self, catalog: Catalog, context: Context, table: str) -> TableReport:
        from catalog.errors import InvalidRequestError
        from catalog.importing.imports import failure_report
        from catalog.metastores.address import Selection, SourceAddress
        from catalog.model.identifiers import TableName

        source, patterns = _selection(context["params"])
        selection = Selection.parse([*SourceAddress.parse(source)[1], *patterns])
        if not selection.has_table(TableName.parse(table)):
            raise AirflowFailException(
                f"the form of this run does not select table {table}; start the DAG with a form that does"
            )
        options = replace(
            _options(context["params"]),
            confirm_drop=lambda digest: require_approval(catalog, context, key_of(table, digest)),
        )
        user, operation_id = context["dag_run"].triggering_user_name, f"{operation_of(context)}/{table}"
        try:
            return catalog.imports.import_table(source, table, options, operation_id=operation_id, requested_by=user)
        except InvalidRequestError as error:
            if TableName.parse(table.lower()) in selection.named:
                raise
            return failure_report(TableName.parse(table), error, options)


class ImportTablesOperator(BatchOperator, ImportTableOperator):
    """Task that imports a batch of tables, one after the other."""


class SummariseImportOperator(SummaryOperator):
    """Task that reports the result of each table; fails if one was not imported.

    Args:
        operation_id: The run (templated).
        planned: What `PlanImportOperator` returned (templated).
        reports: What the imports returned (templated); None for none.
    """

    template_fields: Sequence[str] = (*SummaryOperator.template_fields, "reports")

    def __init__(self, *, reports: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reports = reports

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcomes from the reports, and from the journal for imports without a report."""
        from catalog.importing.reports import TableReport

        reports = [report for batch in self.reports or () for report in batch or ()]
        known = {report["table"]: TableReport.from_json(report) for report in reports}
        tables = [item["table"] for item in all_items(self.planned)]
        return [_outcome(catalog, f"{self.operation_id}/{table}", table, known) for table in tables]


def _outcome(catalog: Catalog, operation_id: str, table: str, known: Mapping[str, TableReport]) -> Outcome:
    from catalog.importing.reports import HEADERS

    report = known.get(table)
    if report is not None:
        return Outcome(dict(zip(map(str.lower, HEADERS), report.row(), strict=True)))
    operation = catalog.operations.find(operation_id)
    reason = operation.failure_detail if operation is not None else None
    reason = reason or "see the log of its task"
    # A killed task could not mark its operation as failed.
    if operation is not None:
        catalog.operations.fail(operation_id, "RUN_FAILED", reason)
    row = {**dict.fromkeys(map(str.lower, HEADERS)), "table": table, "outcome": "failed", "remarks": reason}
    return Outcome(row, f"table {table} was not imported: {reason}")


def import_question(catalog: Catalog, context: Context) -> Question | None:
    """Return the question to approve before a run imports; None if it drops no vanished partitions."""
    options = _options(context["params"])
    if options.is_dry_run or not options.drops_vanished:
        return None
    plan, reports = catalog.imports.import_tables(*_selection(context["params"]), replace(options, is_dry_run=True))
    affected = [report for report in reports if report.partitions.vanished.count]
    if not affected:
        return None
    listed = "\n".join(f"- {_vanished(report)}" for report in affected[:_SHOWN])
    more = f"\n- and partitions of {len(affected) - _SHOWN} more tables" if len(affected) > _SHOWN else ""
    count = sum(report.partitions.vanished.count for report in affected)
    body = (
        f"{asked_by(context)} asks to drop, from the catalog, **{count:,} partitions** that {code(str(plan.address))} "
        f"no longer has:\n\n{listed}{more}\n\nTheir files stay. Reject ends the run, and these tables do not change."
    )
    keys = [key_of(report.table, report.partitions.vanished_digest) for report in affected]
    return Question(f"Drop {count:,} vanished partitions of {len(affected)} table(s)?", body, keys)


def _vanished(report: TableReport) -> str:
    """Return the number of vanished partitions of a table and the first of them, as Markdown."""
    vanished = report.partitions.vanished
    first = ", ".join(map(code, vanished.first[:3])) + (", …" if vanished.count > 3 else "")
    return f"{code(report.table)}: {vanished.count:,} ({first})"


def _selection(form: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    from catalog.settings.fields import text, texts

    return text("source", form["source"]), texts("tables", form["tables"])


def _options(form: Mapping[str, Any]) -> ImportOptions:
    from catalog.importing.partitions import ImportOptions

    return ImportOptions(
        updates=bool(form["update"]), drops_vanished=bool(form["drop_vanished"]), is_dry_run=bool(form["dry_run"])
    )
