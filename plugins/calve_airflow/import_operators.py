"""Tables of a Hive Metastore or of Glue, brought into the catalog one by one; needs the catalog, but no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from calve_airflow.approval import QUESTION, asked_by, key_of, question, require_approval
from calve_airflow.errors import catalog_errors
from calve_airflow.form_operator import FormOperator
from calve_airflow.summary import Outcome, SummaryOperator
from calve_airflow.templates import for_mapped_tasks

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.importing.imports import ImportPlan
    from catalog.importing.partitions import ImportOptions
    from catalog.importing.reports import TableReport

_SHOWN = 50


class PlanImportOperator(FormOperator):
    """Finds the tables that are meant, and creates the databases that they are in, unless the run is a dry one.

    The form is read from the run's own parameters, because Airflow stores templated fields, and somebody may write a
    password into a source: `source`, `tables`, `update`, `drop_vanished`, `dry_run`.

    Args:
        operation_id: The run (templated); the import of each table is an operation of its own below it.

    Returns:
        The arguments of an `ImportTableOperator` for each table. Another XCom, `question`, is what has to be approved,
        if vanished partitions are dropped.

    Raises:
        AirflowFailException: The source or a pattern cannot be read, or what is named is not there.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    @for_mapped_tasks
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Ask the source for its tables."""
        from catalog import Catalog
        from catalog.fields import text, texts

        form = context["params"]
        options = _options(form)
        with catalog_errors(), Catalog.open() as catalog:
            plan = catalog.imports.plan(text("source", form["source"]), texts("tables", form["tables"]))
            if not options.is_dry_run:
                for difference in catalog.imports.import_databases(plan, updates=options.updates):
                    self.log.warning("%s", difference)
        self.log.info("%d table(s) of %s", len(plan.tables), plan.address)
        if options.drops_vanished and not options.is_dry_run:
            context["ti"].xcom_push(key=QUESTION, value=_question(plan, asked_by(context)))
        flags = {name: bool(form[name]) for name in ("update", "drop_vanished", "dry_run")}
        return [
            {
                "operation_id": f"{self.operation_id}/{table}",
                "request": {
                    "source": str(plan.address),
                    "table": str(table),
                    "is_named": table in plan.named,
                    **flags,
                },
            }
            for table in plan.tables
        ]


class ImportTableOperator(BaseOperator):
    """Imports one table with its partitions, or a view (`Imports.import_table`).

    Args:
        operation_id: The import (templated); a retry continues it.
        request: `source`, `table`, `update`, `drop_vanished`, `dry_run`, and `is_named`: whether the table was named,
            so that it may not be refused (templated).
        asked: The XCom `question` of `PlanImportOperator` (templated).
        approval: What `ApproveDeletionOperator` returned (templated).

    Returns:
        The report, as `catalog.importing.reports.TableReport.as_json`; of a table that is refused, too.

    Raises:
        AirflowFailException: The table could not be imported, and another try would not mend that; or nobody has
            approved that partitions are dropped.
    """

    template_fields: Sequence[str] = ("operation_id", "request", "asked", "approval")

    def __init__(
        self,
        *,
        operation_id: str,
        request: Mapping[str, Any],
        asked: Mapping[str, str] | None = None,
        approval: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.request = request
        self.asked = asked
        self.approval = approval

    def execute(self, context: Context) -> dict[str, Any]:
        """Import."""
        from catalog import Catalog

        if self.request["drop_vanished"] and not self.request["dry_run"]:
            require_approval(self.approval, self.asked["key"] if self.asked else "")

        with catalog_errors(), Catalog.open() as catalog:
            report = self._import(catalog, context["dag_run"].triggering_user_name)
        self.log.info("%s: %s, %d partition(s), %d added", *report.row()[:4])
        if report.summary:
            self.log.warning("%s", report.summary)
        return report.as_json()

    def _import(self, catalog: Catalog, user: str | None) -> TableReport:
        from catalog.errors import InvalidRequestError
        from catalog.identifiers import TableName
        from catalog.importing.imports import failure_report

        options, table = _options(self.request), self.request["table"]
        try:
            return catalog.imports.import_table(
                self.request["source"], table, options, operation_id=self.operation_id, requested_by=user
            )
        except InvalidRequestError as error:
            if self.request["is_named"]:
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
        return [_outcome(catalog, each["operation_id"], each["request"], known) for each in self.planned]


def _outcome(
    catalog: Catalog, operation_id: str, request: Mapping[str, Any], known: Mapping[str, TableReport]
) -> Outcome:
    from catalog.importing.reports import HEADERS

    table = request["table"]
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


def _question(plan: ImportPlan, asker: str) -> dict[str, str]:
    names = [str(table) for table in plan.tables]
    listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    body = (
        f"{asker} asks to drop, from the catalog, the partitions that {plan.address} does not have any longer, of "
        f"these tables: {listed}. Their files stay.\n\nReject ends the run; nothing of these tables is changed."
    )
    return question(f"Drop vanished partitions of {len(names)} table(s)?", body, key_of(str(plan.address), names))


def _options(form: Mapping[str, Any]) -> ImportOptions:
    from catalog.importing.partitions import ImportOptions

    return ImportOptions(
        updates=bool(form["update"]), drops_vanished=bool(form["drop_vanished"]), is_dry_run=bool(form["dry_run"])
    )
