"""Tables of a Hive Metastore or of Glue, brought into the catalog one by one; needs the catalog, but no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.operators.approval import Question, asked_by, code, key_of, operation_of, require_approval
from calve_airflow.operators.summary import Outcome, SummaryOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.importing.partitions import ImportOptions
    from catalog.importing.reports import TableReport

_SHOWN = 50


class PlanImportOperator(FormOperator):
    """Finds the tables that are meant, and creates the databases that they are in, unless the run is a dry one.

    The form is read from the run's own parameters, because Airflow stores templated fields, and somebody may write a
    password into a source: `source`, `tables`, `update`, `drop_vanished`, `dry_run`.

    Returns:
        The tables, as `database.table`.

    Raises:
        AirflowFailException: The source or a pattern cannot be read, or what is named is not there.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[str]:
        """Ask the source for its tables."""
        options = _options(context["params"])
        with open_catalog() as catalog:
            plan = catalog.imports.plan(*_selection(context["params"]))
            if not options.is_dry_run:
                for difference in catalog.imports.import_databases(plan, updates=options.updates):
                    self.log.warning("%s", difference)
        self.log.info("%d table(s) of %s", len(plan.tables), plan.address)
        return [str(table) for table in plan.tables]


class ImportTableOperator(BaseOperator):
    """Imports one table with its partitions, or a view (`Imports.import_table`); a retry continues it.

    Everything but the table comes from the run's form: users may write XComs.

    Args:
        table: `database.table`; no template.

    Returns:
        The report, as `catalog.importing.reports.TableReport.as_json`; of a table that is refused, too.

    Raises:
        AirflowFailException: The table could not be imported, and another try would not mend that; or nobody has
            approved that just these partitions are dropped.
    """

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table

    def execute(self, context: Context) -> dict[str, Any]:
        """Import."""
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
            raise AirflowFailException(f"table {table} is none that the form of this run names; start the DAG for it")
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


class SummariseImportOperator(SummaryOperator):
    """Says what became of each table; fails if one was not imported.

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
        """Look at the reports, and at the journal for imports that have none."""
        from catalog.importing.reports import TableReport

        known = {each["table"]: TableReport.from_json(each) for each in self.reports or () if each is not None}
        return [_outcome(catalog, f"{self.operation_id}/{table}", table, known) for table in self.planned]


def _outcome(catalog: Catalog, operation_id: str, table: str, known: Mapping[str, TableReport]) -> Outcome:
    from catalog.importing.reports import HEADERS

    report = known.get(table)
    if report is not None:
        return Outcome(dict(zip(map(str.lower, HEADERS), report.row(), strict=True)))
    operation = catalog.operations.find(operation_id)
    reason = operation.failure_detail if operation is not None else None
    reason = reason or "the log of its task says why"
    # A task that was killed could not say that it failed.
    if operation is not None:
        catalog.operations.fail(operation_id, "RUN_FAILED", reason)
    row = {**dict.fromkeys(map(str.lower, HEADERS)), "table": table, "outcome": "failed", "remarks": reason}
    return Outcome(row, f"table {table} was not imported: {reason}")


def import_question(catalog: Catalog, context: Context) -> Question | None:
    """Return what has to be approved before a run imports; None when no partition has vanished, or none is dropped."""
    options = _options(context["params"])
    if options.is_dry_run or not options.drops_vanished:
        return None
    plan, reports = catalog.imports.import_tables(*_selection(context["params"]), replace(options, is_dry_run=True))
    losing = [report for report in reports if report.partitions.vanished.count]
    if not losing:
        return None
    listed = "\n".join(f"- {_vanished(report)}" for report in losing[:_SHOWN])
    more = f"\n- and partitions of {len(losing) - _SHOWN} more tables" if len(losing) > _SHOWN else ""
    count = sum(report.partitions.vanished.count for report in losing)
    body = (
        f"{asked_by(context)} asks to drop, from the catalog, **{count:,} partitions** that {code(str(plan.address))} "
        f"no longer has:\n\n{listed}{more}\n\nTheir files stay. Reject ends the run; nothing of these tables is "
        "changed."
    )
    keys = [key_of(report.table, report.partitions.vanished_digest) for report in losing]
    return Question(f"Drop {count:,} vanished partitions of {len(losing)} table(s)?", body, keys)


def _vanished(report: TableReport) -> str:
    """Return how many partitions of a table have vanished, and the first of them, as Markdown."""
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
