"""The steps of migrations from Hive to Iceberg: plan, stage, verify, flip, and what came of each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.catalog_access import catalog_errors, open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.operators.approval import operation_of
from calve_airflow.operators.rebalancing import size
from calve_airflow.operators.staged import StagingJobOperator, VerifyStagedOperator
from calve_airflow.operators.summary import Outcome, SummaryOperator, markdown_table

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.migration.forms import MigrationForm
    from catalog.migration.requests import MigrationRequest
    from catalog.operations.records import JobRun, Operation

PLANS = "plans"
"""The XCom in which `plan` says of each table what would become of it, or why nothing can."""

PLANNED, REFUSED, PASSED_OVER = "planned", "refused", "passed over"
"""What a plan says of a table; one that a pattern found and that has nothing to migrate is passed over."""

DRY_RUN = "DRY_RUN"
"""The failure code of an operation that only looked at files."""

_REPORTED = ("partitions", "manifests", "warnings", "problem_count", "problems")
_VERIFIED = {"partitions": "partitions_verified", "partitions_total": "partitions_total"}
_SKIPPABLE = ("EMPTY", "FOREIGN")


class PlanMigrationsOperator(FormOperator):
    """Plans the migration of tables, and shows the plans in its log; changes nothing.

    Args:
        operation_id: The run (templated); each migration is an operation of its own below it.
        form: The fields of `calve_airflow.forms.forms.migration_params` (templated).

    Returns:
        `table` of each table that can be migrated, of a dry run only if files are to be read.
        Another XCom, `plans`, has all tables: `table`, `verdict`, `reason`, and `plan` as `MigrationPlan.as_json`.

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
    def execute(self, context: Context) -> list[dict[str, str]]:
        """Plan."""
        from catalog.migration.forms import MigrationForm
        from catalog.tables.patterns import matching_tables

        with open_catalog() as catalog:
            form = MigrationForm.read(self.form)
            chosen = matching_tables(catalog.list_tables(), form.tables, "tables")
            plans = [self._plan(catalog, table, form.request, is_named=named) for table, named in chosen.items()]
        for line in markdown_table([_plan_row(each) for each in plans]):
            self.log.info("%s", line)
        context["ti"].xcom_push(key=PLANS, value=plans)
        if form.dry_run:
            self.log.info("This is a dry run: nothing is changed. With dry_run off, the tables are migrated")
            if not form.read_files:
                return []
        return [{"table": each["table"]} for each in plans if each["verdict"] == PLANNED]

    def _plan(self, catalog: Catalog, table: str, request: MigrationRequest, *, is_named: bool) -> dict[str, Any]:
        from catalog.errors import (
            AlreadyIcebergError,
            CatalogError,
            CatalogUnavailableError,
            NotATableError,
            TableNotFoundError,
        )

        found: dict[str, Any] = {"table": table, "verdict": PLANNED, "reason": None, "plan": None}
        operation_id = f"{self.operation_id}/{table}"
        operation = catalog.operations.find(operation_id)
        if operation is not None and operation.is_committed:
            return {**found, "reason": "this run has migrated it already"}
        try:
            plan = catalog.migrations.plan(table, request, operation_id=operation_id)
        except CatalogUnavailableError:
            raise
        except CatalogError as error:
            reason = f"{type(error).__name__}: {error}"
            # A pattern finds also what somebody has dropped since.
            is_no_matter = isinstance(error, AlreadyIcebergError | NotATableError | TableNotFoundError)
            verdict = PASSED_OVER if is_no_matter and not is_named else REFUSED
            self.log.warning("%s is %s: %s", table, verdict, reason)
            return {**found, "verdict": verdict, "reason": reason}
        for line in str(plan).splitlines():
            self.log.info("%s", line)
        return {**found, "plan": plan.as_json()}


class StageMigrationOperator(StagingJobOperator):
    """Begins the operation, which holds the table from now on, and runs the Spark job that reads the footers.

    The plan is made anew, for what the table is now. A dry run reads the footers, too, and leaves nothing.

    Everything but the table comes from the run's form: users may write XComs.

    Args:
        table: `database.table` (templated).

    Returns:
        The job's result: files, rows and bytes, and the files that cannot be the table's.

    Raises:
        AirflowFailException: The form does not mean the table; or the table, or a file of it, cannot become an Iceberg
            table's. Nothing was changed.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job="stage_migration", step="stage", operation_id="", request={}, **kwargs)
        self.table = table

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin and stage."""
        from catalog import Catalog

        user = context["dag_run"].triggering_user_name
        with open_catalog() as catalog:
            form = asked_form(context, self.table)
            self.operation_id = migration_of(context, self.table)
            operation = catalog.migrations.begin(self.operation_id, self.table, form.request, requested_by=user)
        if operation.is_committed:
            self.log.info("This run has migrated %s already", operation.table)
            return dict(operation.report[self.step])
        self.request = {"table": operation.table, "dry_run": form.dry_run}
        found = super().execute(context)
        if form.dry_run:
            with Catalog.open() as catalog:
                catalog.operations.fail(self.operation_id, DRY_RUN, "this was a dry run; nothing was changed")
        self.log.info("%s: %s files, %s rows", operation.table, f"{found['files']:,}", f"{found['rows']:,}")
        for each in found["problems"]:
            self.log.warning("%s: %s (%s)", each["path"], each["message"], each["problem"])
        return found

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether its files are still staged; a dry run, cleared, always looks again."""
        return not self.request["dry_run"] and catalog.migrations.is_staged(self.operation_id)


class VerifyMigrationOperator(VerifyStagedOperator):
    """Runs the Spark job that compares what Hive reads with what Iceberg would; what differs never becomes visible.

    Everything but the table comes from the run's form, and from its operation.

    Args:
        table: `database.table` (templated).

    Returns:
        How many partitions and rows were compared.

    Raises:
        AirflowSkipException: It is a dry run, or nothing shall be compared.
        AirflowFailException: The form does not mean the table; or they differ. Nothing was changed; a cleared `stage`
            reads the files anew.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job="verify_migration", step="verify", operation_id="", request={}, **kwargs)
        self.table = table

    def execute(self, context: Context) -> dict[str, Any]:
        """Compare."""
        from catalog.model import FileFormat
        from catalog.settings.environment import package_settings

        form = changing_form(context, self.table)
        self.operation_id = migration_of(context, self.table)
        with open_catalog() as catalog:
            operation = catalog.operations.get(self.operation_id)
        if operation.is_committed and self.step in operation.report:
            return dict(operation.report[self.step])
        if not form.request.verify:
            raise AirflowSkipException("the form asks for no comparison")
        with open_catalog() as catalog:
            plan = catalog.migrations.plan(operation.table, form.request, operation_id=operation.id)
        self.request = {"table": operation.table, "partitions": form.verified_partitions}
        self.conf = {**package_settings(avro=FileFormat.AVRO in plan.formats), **(self.conf or {})}
        return super().execute(context)

    def discard(self, catalog: Catalog, reason: str) -> None:
        """Discard the manifests and metadata, because files may have changed since."""
        catalog.migrations.discard_staged(self.operation_id, reason)

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether the metadata that it verified are the ones that are staged now."""
        stage = catalog.operations.get_job(self.operation_id, "stage")
        return stage is not None and stage.result.get("metadata_location") == job.result["metadata_location"]


class FlipMigrationOperator(BaseOperator):
    """Lets the table be an Iceberg table, in one transaction, with exactly the files that were staged and verified.

    Everything but the table comes from the run's form, and from its operation.

    Args:
        table: `database.table` (templated).

    Returns:
        The operation's report; done again, the same one.

    Raises:
        AirflowSkipException: It is a dry run.
        AirflowFailException: The form does not mean the table; or the table or its files changed since. Nothing was
            changed.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table

    def execute(self, context: Context) -> dict[str, Any]:
        """Flip."""
        from catalog.errors import MigrationConflictError

        changing_form(context, self.table)
        operation_id = migration_of(context, self.table)
        with open_catalog() as catalog:
            try:
                found = catalog.migrations.flip(operation_id, report=_facts(catalog, operation_id))
            except MigrationConflictError as error:
                # This task again would find the same.
                raise AirflowFailException(f"MigrationConflictError: {error}: clear `stage` of {self.table}") from error
        self.log.info("%s is an Iceberg table: %s", found["target"], found["metadata_location"])
        return found


class SummariseMigrationsOperator(SummaryOperator):
    """Says what became of each table; fails if one could not be migrated, and says why.

    Args:
        operation_id: The run (templated).
        planned: The XCom `plans` of `PlanMigrationsOperator` (templated).
        form: As `PlanMigrationsOperator` takes it (templated).
    """

    template_fields: Sequence[str] = (*SummaryOperator.template_fields, "form")

    def __init__(self, *, form: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.form = form

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Look at the operations, where the jobs have recorded what they found."""
        from catalog.migration.forms import MigrationForm

        form = MigrationForm.read(self.form)
        return [self._outcome(catalog, each, form) for each in self.planned]

    def _outcome(self, catalog: Catalog, planned: Mapping[str, Any], form: MigrationForm) -> Outcome:
        table = planned["table"]
        if planned["verdict"] != PLANNED:
            failure = f"{table}: {planned['reason']}" if planned["verdict"] == REFUSED else None
            return _row(planned, f"{planned['verdict']}: {planned['reason']}", failure=failure)
        operation = catalog.operations.find(f"{self.operation_id}/{table}")
        if form.dry_run:
            return self._outcome_of_dry_run(catalog, planned, operation, form)
        if operation is not None and operation.is_committed:
            found = operation.report["flip"]
            said = f"Iceberg table now; metadata: {found['metadata_location']}"
            return _row(planned, said, found)
        reason = _why(catalog, operation)
        if operation is not None:
            catalog.operations.fail(operation.id, "RUN_FAILED", reason)
        return _row(planned, f"not migrated: {reason}", failure=f"{table}: not migrated: {reason}")

    def _outcome_of_dry_run(
        self, catalog: Catalog, planned: Mapping[str, Any], operation: Operation | None, form: MigrationForm
    ) -> Outcome:
        table = planned["table"]
        if not form.read_files:
            return _row(planned, "can be migrated, as far as the catalog knows; its files were not read")
        job = None if operation is None else catalog.operations.get_job(operation.id, "stage")
        if job is None or job.state != "SUCCEEDED":
            reason = _why(catalog, operation)
            if operation is not None:
                catalog.operations.fail(operation.id, DRY_RUN, reason)
            return _row(planned, f"cannot be migrated: {reason}", failure=f"{table}: {reason}")
        bad = _unfit(job.result, form)
        if bad:
            said = f"{job.result['problem_count']:,} file(s) cannot be the table's, the first: {bad[0]}"
            return _row(planned, f"cannot be migrated: {said}", job.result, failure=f"{table}: {said}")
        return _row(planned, "can be migrated", job.result)


def migration_of(context: Context, table: str) -> str:
    """Return the operation that migrates one of the tables of a run."""
    return f"{operation_of(context)}/{table}"


def asked_form(context: Context, table: str) -> MigrationForm:
    """Return what a run's form asks for, if it means a table.

    Raises:
        AirflowFailException: It does not.
    """
    from catalog.migration.forms import MigrationForm
    from catalog.settings.fields import text
    from catalog.tables.patterns import require_meant

    with catalog_errors():
        form = MigrationForm.read(context["params"])
        require_meant(text("table", table), form.tables, "tables")
    return form


def changing_form(context: Context, table: str) -> MigrationForm:
    """Return what a run's form asks for, for a task that changes something.

    Raises:
        AirflowSkipException: It is a dry run.
        AirflowFailException: The form does not mean the table.
    """
    form = asked_form(context, table)
    if form.dry_run:
        raise AirflowSkipException("this is a dry run; nothing is changed")
    return form


def give_up_migration(context: Context) -> None:
    """Give up the operation of a task that failed, so that it holds no table. For `on_failure_callback` of a task."""
    from catalog import Catalog

    table = getattr(context.get("task"), "table", None)
    if not isinstance(table, str):
        return
    operation_id = migration_of(context, table)
    with Catalog.open() as catalog:
        if catalog.operations.find(operation_id) is not None:
            catalog.operations.fail(operation_id, "RUN_FAILED", str(context.get("exception") or "its task failed"))


def _facts(catalog: Catalog, operation_id: str) -> dict[str, Any]:
    """Return what the steps before the flip have found, for its report."""
    report = catalog.operations.get(operation_id).report
    staged, verified = report.get("stage", {}), report.get("verify", {})
    facts = {name: staged[name] for name in _REPORTED if name in staged}
    return facts | {name: verified[found] for found, name in _VERIFIED.items() if found in verified}


def _unfit(found: Mapping[str, Any], form: MigrationForm) -> list[str]:
    """Return the files that would refuse a migration, as texts."""
    skippable = _SKIPPABLE if form.request.unusable_files == "skip" else ()
    return [
        f"{each['path']}: {each['message']} ({each['problem']})"
        for each in found["problems"]
        if each["problem"] not in skippable
    ]


def _why(catalog: Catalog, operation: Operation | None) -> str:
    """Return why a migration did not come to its end."""
    if operation is None:
        return "it was not begun; the log of `stage` says why"
    jobs = (catalog.operations.get_job(operation.id, step) for step in ("flip", "verify", "stage"))
    for job in jobs:
        if job is not None and job.state == "FAILED":
            return f"{job.error_class}: {job.error_message}"
    return operation.failure_detail or "the logs of its tasks say why"


def _row(
    planned: Mapping[str, Any], said: str, found: Mapping[str, Any] | None = None, *, failure: str | None = None
) -> Outcome:
    plan = planned["plan"] or {}
    facts = {**{name: plan.get(name) for name in ("files", "rows", "bytes")}, **(found or {})}
    row = {
        "table": planned["table"],
        "files": facts["files"],
        "rows": facts["rows"],
        "bytes": None if facts["bytes"] is None else size(facts["bytes"]),
        "files passed over": facts.get("problem_count"),
        "partitions verified": facts.get("partitions_verified"),
        "warnings": len(plan.get("warnings", ())) + len(facts.get("warnings", ())),
        "outcome": said,
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
