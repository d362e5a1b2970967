"""Operators for the steps of migrations from Hive to Iceberg: plan, stage, verify, flip and summarise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.assets import Change
from calve_airflow.batches import Batch, in_batches
from calve_airflow.catalog_access import catalog_errors, open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.lineage import LineageOperator, table_dataset
from calve_airflow.operators.approval import operation_of
from calve_airflow.operators.batches import BatchOperator
from calve_airflow.operators.rebalancing import size
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.staged import VerifyStagedOperator
from calve_airflow.operators.summary import Outcome, SummaryOperator, markdown_table
from calve_airflow.outcomes import report_outcome

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.migration.forms import MigrationForm
    from catalog.migration.requests import MigrationRequest
    from catalog.operations.records import JobRun, Operation

PLANS = "plans"
"""The XCom in which the task `plan` returns the plan of each table, or why it cannot be migrated."""

PLANNED, REFUSED, SKIPPED = "planned", "refused", "skipped"
"""Verdicts on a table; a table that a pattern matches and that has nothing to migrate is skipped."""

_REPORTED = ("partitions", "manifests", "warnings", "problem_count", "problems")
_VERIFIED = {"partitions": "partitions_verified", "partitions_total": "partitions_total"}


class PlanMigrationsOperator(FormOperator):
    """Task that plans the migration of tables and logs the plans; changes nothing.

    Args:
        operation_id: The run (templated); each migration is a separate operation below it.
        form: The fields of `calve_airflow.forms.iceberg.migration_params` (templated).

    Returns:
        `table` of each table that can be migrated, in batches; in a dry run only if it reads files. Another XCom,
        `plans`, has all tables: `table`, `verdict`, `reason`, and `plan` as `MigrationPlan.as_json`.

    Raises:
        AirflowFailException: A field is invalid; the message begins with its name.
    """

    template_fields: Sequence[str] = ("operation_id", "form")
    template_fields_renderers = {"form": "json"}  # noqa: RUF012 - read by Airflow

    def __init__(self, *, operation_id: str, form: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.form = form

    @for_mapped_tasks
    def execute(self, context: Context) -> list[Batch]:
        """Plan the migrations."""
        from catalog.migration.forms import MigrationForm
        from catalog.tables.patterns import matching_tables

        with open_catalog() as catalog:
            form = MigrationForm.read(self.form)
            chosen = matching_tables(catalog.list_tables(), form.tables, "tables")
            plans = [self._plan(catalog, table, form.request, is_named=named) for table, named in chosen.items()]
            if form.dry_run and not form.read_files:
                self._keep(catalog, context, plans, form.request)
        for line in markdown_table([_plan_row(plan) for plan in plans]):
            self.log.info("%s", line)
        context["ti"].xcom_push(key=PLANS, value=plans)
        if form.dry_run:
            self.log.info("This is a dry run: nothing is changed. Turn dry_run off to migrate the tables")
            if not form.read_files:
                return []
        return in_batches([{"table": plan["table"]} for plan in plans if plan["verdict"] == PLANNED])

    def _keep(
        self, catalog: Catalog, context: Context, plans: Sequence[Mapping[str, Any]], request: MigrationRequest
    ) -> None:
        """Journal the plans, for Calve's pages; without this, a dry run that reads no file begins no operation."""
        from catalog.operations.dry_runs import keep_plan

        user = context["dag_run"].triggering_user_name
        for planned in plans:
            if planned["plan"] is not None:
                table = planned["table"]
                keep_plan(
                    catalog.operations,
                    f"{self.operation_id}/{table}",
                    request.kind,
                    table,
                    planned["plan"],
                    request=request.as_json(),
                    requested_by=user,
                )

    def _plan(self, catalog: Catalog, table: str, request: MigrationRequest, *, is_named: bool) -> dict[str, Any]:
        from catalog.errors import (
            AlreadyIcebergError,
            CatalogError,
            CatalogUnavailableError,
            NotATableError,
            TableNotFoundError,
        )

        planned: dict[str, Any] = {"table": table, "verdict": PLANNED, "reason": None, "plan": None}
        operation_id = f"{self.operation_id}/{table}"
        operation = catalog.operations.find(operation_id)
        if operation is not None and operation.is_committed:
            return {**planned, "reason": "this run has already migrated it"}
        try:
            plan = catalog.migrations.plan(table, request, operation_id=operation_id)
        except CatalogUnavailableError:
            raise
        except CatalogError as error:
            reason = f"{type(error).__name__}: {error}"
            # A table that a pattern matched may have been dropped since.
            has_nothing_to_migrate = isinstance(error, AlreadyIcebergError | NotATableError | TableNotFoundError)
            verdict = SKIPPED if has_nothing_to_migrate and not is_named else REFUSED
            self.log.warning("%s is %s: %s", table, verdict, reason)
            return {**planned, "verdict": verdict, "reason": reason}
        for line in str(plan).splitlines():
            self.log.info("%s", line)
        return {**planned, "plan": plan.as_json()}


class StageMigrationOperator(SparkJobOperator):
    """Task that begins the operation, which locks the table, and runs the Spark job that reads the footers.

    It makes a new plan from the current table. A dry run also reads the footers, but stages nothing.

    Everything but the table comes from the run's form, because users may write XComs.

    Args:
        table: `database.table` (templated).

    Returns:
        The job's result: files, rows and bytes, and the files that cannot be part of the table.

    Raises:
        AirflowFailException: The form does not select the table; or the table, or a file of it, cannot be migrated.
            Nothing was changed.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job="stage_migration", step="stage", operation_id="", request={}, **kwargs)
        self.table = table

    def prepare(self, context: Context, catalog: Catalog) -> Mapping[str, Any] | None:
        """Begin the operation."""
        user = context["dag_run"].triggering_user_name
        form = asked_form(context, self.table)
        self.operation_id = migration_of(context, self.table)
        operation = catalog.migrations.begin(self.operation_id, self.table, form.request, requested_by=user)
        self.request = {"table": operation.table, "dry_run": form.dry_run}
        if operation.is_committed:
            self.log.info("This run has already migrated %s", operation.table)
            return dict(operation.report[self.step])
        return None

    def finish(self, context: Context, catalog: Catalog, result: Mapping[str, Any]) -> dict[str, Any]:
        """Log what was staged; end the operation of a dry run."""
        from catalog.operations.records import DRY_RUN

        if self.request["dry_run"]:
            catalog.operations.fail(self.operation_id, DRY_RUN, "this was a dry run; nothing was changed")
        files, rows = f"{result['files']:,}", f"{result['rows']:,}"
        self.log.info("%s: %s files, %s rows", self.request["table"], files, rows)
        for problem in result["problems"]:
            self.log.warning("%s: %s (%s)", problem["path"], problem["message"], problem["problem"])
        return dict(result)

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether the job's files are still staged; a cleared dry run always reads the files again."""
        return not self.request["dry_run"] and catalog.migrations.is_staged(self.operation_id)


class VerifyMigrationOperator(VerifyStagedOperator):
    """Task that runs the Spark job that compares what Hive and Iceberg read; a difference never becomes visible.

    Everything but the table comes from the run's form and from its operation.

    Args:
        table: `database.table` (templated).

    Returns:
        The numbers of compared partitions and rows.

    Raises:
        AirflowSkipException: The run is a dry run, or its form turns the verification off.
        AirflowFailException: The form does not select the table; or Hive and Iceberg differ. Nothing was changed;
            clearing `stage` reads the files again.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job="verify_migration", step="verify", operation_id="", request={}, **kwargs)
        self.table = table

    def prepare(self, context: Context, catalog: Catalog) -> Mapping[str, Any] | None:
        """Request the comparison of the tables."""
        from catalog.model import FileFormat
        from catalog.settings.environment import package_settings

        form = changing_form(context, self.table)
        self.operation_id = migration_of(context, self.table)
        operation = catalog.operations.get(self.operation_id)
        if operation.is_committed and self.step in operation.report:
            return dict(operation.report[self.step])
        if not form.request.verify:
            raise AirflowSkipException("the form turns the verification off")
        plan = catalog.migrations.plan(operation.table, form.request, operation_id=operation.id)
        self.request = {"table": operation.table, "partitions": form.verified_partitions}
        self.conf = {**package_settings(avro=FileFormat.AVRO in plan.formats), **(self.conf or {})}
        return None

    def discard(self, catalog: Catalog, reason: str) -> None:
        """Discard the manifests and metadata, because files may have changed since."""
        catalog.migrations.discard_staged(self.operation_id, reason)

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether the metadata that the job verified is the staged one."""
        stage = catalog.operations.get_job(self.operation_id, "stage")
        return stage is not None and stage.result.get("metadata_location") == job.result["metadata_location"]


class FlipMigrationOperator(LineageOperator):
    """Task that commits the switch to Iceberg, in one transaction, with exactly the staged and verified files.

    Everything but the table comes from the run's form and from its operation.

    Args:
        table: `database.table` (templated).

    Returns:
        The operation's report; a repeated call returns the same one.

    Raises:
        AirflowSkipException: The run is a dry run.
        AirflowFailException: The form does not select the table; or the table or its files changed since. Nothing was
            changed.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit the switch."""
        from catalog.errors import MigrationConflictError

        changing_form(context, self.table)
        operation_id = migration_of(context, self.table)
        with open_catalog() as catalog:
            operation = catalog.operations.get(operation_id)
            try:
                report = catalog.migrations.flip(operation_id, report=_facts(catalog, operation_id))
            except MigrationConflictError as error:
                # A retry of this task fails in the same way.
                raise AirflowFailException(f"MigrationConflictError: {error}: clear `stage` of {self.table}") from error
            source, target = catalog.get_table(operation.table), catalog.get_table(report["target"])
        self.lineage.inputs.append(table_dataset(source))
        self.lineage.outputs.append(table_dataset(target, rows=report["rows"], size_bytes=report["bytes"]))
        self.log.info("%s is now an Iceberg table: %s", report["target"], report["metadata_location"])
        report_outcome(context, Change.MIGRATED, operation, report, report["target"])
        return report


class _MigrationBatch(BatchOperator):
    # Of a mapped task group, Airflow resolves the arguments of templated fields only.
    template_fields: Sequence[str] = ("batch",)
    is_failing_last = False

    def fail_item(self, context: Context, item: Mapping[str, str], error: Exception) -> None:
        """Fail the operation of a table, which its later tasks and other attempts then do not continue."""
        _fail_migration(context, item["table"], error)


class StageMigrationsOperator(_MigrationBatch, StageMigrationOperator):
    """Task that stages a batch of tables, one after the other."""


class VerifyMigrationsOperator(_MigrationBatch, VerifyMigrationOperator):
    """Task that verifies a batch of staged tables, one after the other."""


class FlipMigrationsOperator(BatchOperator, FlipMigrationOperator):
    """Task that commits the switch of a batch of tables, each in a transaction of its own."""

    template_fields: Sequence[str] = ("batch",)


class SummariseMigrationsOperator(SummaryOperator):
    """Task that reports the result of each table; fails if one could not be migrated.

    Args:
        operation_id: The run (templated).
        planned: The XCom `plans` of `PlanMigrationsOperator` (templated).
        form: The form that `PlanMigrationsOperator` takes (templated).
    """

    template_fields: Sequence[str] = (*SummaryOperator.template_fields, "form")

    def __init__(self, *, form: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.form = form

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcomes from the operations, where the jobs recorded their results."""
        from catalog.migration.forms import MigrationForm

        form = MigrationForm.read(self.form)
        return [self._outcome(catalog, planned, form) for planned in self.planned]

    def _outcome(self, catalog: Catalog, planned: Mapping[str, Any], form: MigrationForm) -> Outcome:
        table = planned["table"]
        if planned["verdict"] != PLANNED:
            failure = f"{table}: {planned['reason']}" if planned["verdict"] == REFUSED else None
            return _row(planned, f"{planned['verdict']}: {planned['reason']}", failure=failure)
        operation = catalog.operations.find(f"{self.operation_id}/{table}")
        if form.dry_run:
            return self._outcome_of_dry_run(catalog, planned, operation, form)
        if operation is not None and operation.is_committed:
            report = operation.report["flip"]
            return _row(planned, f"Iceberg table now; metadata: {report['metadata_location']}", report)
        reason = _why(catalog, operation)
        if operation is not None:
            catalog.operations.fail(operation.id, "RUN_FAILED", reason)
        return _row(planned, f"not migrated: {reason}", failure=f"{table}: not migrated: {reason}")

    def _outcome_of_dry_run(
        self, catalog: Catalog, planned: Mapping[str, Any], operation: Operation | None, form: MigrationForm
    ) -> Outcome:
        from catalog.operations.records import DRY_RUN

        table = planned["table"]
        if not form.read_files:
            return _row(planned, "can be migrated, as far as the catalog knows; its files were not read")
        job = None if operation is None else catalog.operations.get_job(operation.id, "stage")
        if job is None or job.state != "SUCCEEDED":
            reason = _why(catalog, operation)
            if operation is not None:
                catalog.operations.fail(operation.id, DRY_RUN, reason)
            return _row(planned, f"cannot be migrated: {reason}", failure=f"{table}: {reason}")
        unfit_files = _unfit(job.result, form)
        if unfit_files:
            reason = f"{job.result['problem_count']:,} file(s) cannot be part of the table, the first: {unfit_files[0]}"
            return _row(planned, f"cannot be migrated: {reason}", job.result, failure=f"{table}: {reason}")
        return _row(planned, "can be migrated", job.result)


def migration_of(context: Context, table: str) -> str:
    """Return the id of the operation that migrates one table of a run."""
    return f"{operation_of(context)}/{table}"


def asked_form(context: Context, table: str) -> MigrationForm:
    """Return a run's form after checking that it selects a table.

    Raises:
        AirflowFailException: The form does not select the table, or cannot be read.
    """
    from catalog.migration.forms import MigrationForm
    from catalog.settings.fields import text
    from catalog.tables.patterns import require_meant

    with catalog_errors():
        form = MigrationForm.read(context["params"])
        require_meant(text("table", table), form.tables, "tables")
    return form


def changing_form(context: Context, table: str) -> MigrationForm:
    """Return a run's form for a task that changes something.

    Raises:
        AirflowSkipException: The run is a dry run.
        AirflowFailException: The form does not select the table.
    """
    form = asked_form(context, table)
    if form.dry_run:
        raise AirflowSkipException("this is a dry run; nothing is changed")
    return form


def fail_migration(context: Context) -> None:
    """Fail the operations of a failed task, which then no longer lock its tables; for its `on_failure_callback`."""
    task = context.get("task")
    batch = getattr(task, "batch", None)
    tables = [item.get("table") for item in batch] if isinstance(batch, list) else [getattr(task, "table", None)]
    for table in tables:
        if isinstance(table, str):
            _fail_migration(context, table, context.get("exception") or "its task failed")


def _fail_migration(context: Context, table: str, reason: object) -> None:
    from catalog import Catalog

    operation_id = migration_of(context, table)
    with Catalog.open() as catalog:
        if catalog.operations.find(operation_id) is not None:
            catalog.operations.fail(operation_id, "RUN_FAILED", str(reason))


def _facts(catalog: Catalog, operation_id: str) -> dict[str, Any]:
    """Return the results of the steps before the flip, for its report."""
    report = catalog.operations.get(operation_id).report
    staged, verified = report.get("stage", {}), report.get("verify", {})
    facts = {name: staged[name] for name in _REPORTED if name in staged}
    return facts | {name: verified[field] for field, name in _VERIFIED.items() if field in verified}


def _unfit(result: Mapping[str, Any], form: MigrationForm) -> list[str]:
    """Return descriptions of the files that prevent a migration."""
    return [
        f"{problem['path']}: {problem['message']} ({problem['problem']})"
        for problem in result["problems"]
        if problem["problem"] not in form.request.skipped_problems
    ]


def _why(catalog: Catalog, operation: Operation | None) -> str:
    """Return why a migration did not finish."""
    if operation is None:
        return "it was not begun; see the log of `stage`"
    jobs = (catalog.operations.get_job(operation.id, step) for step in ("flip", "verify", "stage"))
    for job in jobs:
        if job is not None and job.state == "FAILED":
            return f"{job.error_class}: {job.error_message}"
    return operation.failure_detail or "see the logs of its tasks"


def _row(
    planned: Mapping[str, Any], outcome: str, result: Mapping[str, Any] | None = None, *, failure: str | None = None
) -> Outcome:
    plan = planned["plan"] or {}
    facts = {**{name: plan.get(name) for name in ("files", "rows", "bytes")}, **(result or {})}
    row = {
        "table": planned["table"],
        "files": facts["files"],
        "rows": facts["rows"],
        "bytes": None if facts["bytes"] is None else size(facts["bytes"]),
        "files skipped": facts.get("problem_count"),
        "partitions verified": facts.get("partitions_verified"),
        "warnings": len(plan.get("warnings", ())) + len(facts.get("warnings", ())),
        "outcome": outcome,
    }
    return Outcome(row, failure)


def _plan_row(planned: Mapping[str, Any]) -> dict[str, Any]:
    plan = planned["plan"] or {}
    return {
        "table": planned["table"],
        "partitions": plan.get("partitions"),
        "formats": ", ".join(f"{count:,} {name}" for name, count in plan.get("formats", {}).items()),
        "files": plan.get("files"),
        "rows": plan.get("rows"),
        "bytes": None if plan.get("bytes") is None else size(plan["bytes"]),
        "warnings": len(plan.get("warnings", ())),
        "verdict": planned["verdict"] + (f": {planned['reason']}" if planned["reason"] else ""),
    }
