"""The steps of a change of a table's partitions: plan, begin, write, verify, commit, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from calve_airflow.approval import Question, asked_by, code, find_approval, operation_of
from calve_airflow.errors import catalog_errors
from calve_airflow.form_operator import FormOperator
from calve_airflow.job_process import JobProcess
from calve_airflow.spark_job import SparkJobOperator
from calve_airflow.summary import markdown_table

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations import Operation
    from catalog.rebalancing.planning import RebalancePlan
    from catalog.rebalancing.requests import RebalanceRequest

_SHOWN = 20


class PlanRebalanceOperator(FormOperator):
    """Plans a change of a table's partitions, and shows the plan in its log; changes nothing.

    Args:
        operation_id: The operation that will make the change (templated).
        form: The fields of `catalog.rebalancing.requests.RebalanceRequest` (templated).

    Returns:
        The plan. A dry run skips all tasks behind it; of a run that has made its change already, the plan is the
        operation's report.

    Raises:
        AirflowFailException: A field is not right; the message begins with its name.
    """

    template_fields: Sequence[str] = ("operation_id", "form")
    template_fields_renderers = {"form": "json"}  # noqa: RUF012 - read by Airflow

    def __init__(self, *, operation_id: str, form: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.form = form

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan."""
        from catalog import Catalog
        from catalog.rebalancing.rebalancing import COMMIT
        from catalog.rebalancing.requests import RebalanceRequest

        with catalog_errors(), Catalog.open() as catalog:
            request = RebalanceRequest.from_form(self.form)
            operation = catalog.operations.find(self.operation_id)
            if operation is not None and operation.is_committed:
                self._require_same(operation, request)
                self.log.info("This run has made its change already")
                return dict(operation.report[COMMIT])
            plan = self._plan(catalog, request)
        for line in str(plan).splitlines():
            self.log.info("%s", line)
        planned = plan.as_json()
        if request.dry_run:
            self.log.info("This is a dry run: nothing was changed. With dry_run off, the change is made")
            context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=planned)
            skipped = list(self.get_flat_relative_ids(upstream=False))
            raise DownstreamTasksSkipped(tasks=skipped)  # type: ignore[no-untyped-call]  # Airflow's own
        return planned

    @staticmethod
    def _require_same(operation: Operation, request: RebalanceRequest) -> None:
        from catalog.errors import OperationReusedError
        from catalog.identifiers import TableName
        from catalog.rebalancing.changes import change_from_json

        made = {name: value for name, value in operation.request.items() if name != "fingerprint"}
        is_its_table = str(TableName.parse(request.table)) == operation.table
        if not is_its_table or operation.kind != "rebalance" or change_from_json(made) != request.change:
            raise OperationReusedError(operation.id, f"{operation.kind} of table {operation.table}")

    def _plan(self, catalog: Catalog, request: RebalanceRequest) -> RebalancePlan:
        from catalog.errors import CatalogError, InvalidSchemeError

        try:
            return catalog.rebalancing.plan(request.table, request.change)
        except CatalogError as error:
            if error.retryable:
                raise
            has_scheme = not isinstance(error, InvalidSchemeError) or catalog.get_table(request.table).scheme
            field = request.field_of(error, has_scheme=bool(has_scheme))
            raise AirflowFailException(f"{field}: {type(error).__name__}: {error}") from error


class RewritePartitionsOperator(SparkJobOperator):
    """Begins the operation, which holds the table from now on, and runs the Spark job that writes the new files.

    A plan that does not fit the table any more is made anew, unless somebody has approved a deletion by it.

    Args:
        operation_id: The operation to begin (templated).
        planned: What `PlanRebalanceOperator` returned (templated).

    Returns:
        What the job wrote, and in which folder.

    Raises:
        AirflowSkipException: No row has to be moved, or the change was made before.
        AirflowFailException: Rows would be deleted that nobody has approved.
    """

    template_fields: Sequence[str] = ("operation_id", "planned")
    template_fields_renderers = {"planned": "json"}  # noqa: RUF012 - read by Airflow

    def __init__(self, *, planned: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(job="rewrite_partitions", request={}, **kwargs)
        self.planned = planned

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin and write."""
        from catalog import Catalog

        with catalog_errors(), Catalog.open() as catalog:
            operation = catalog.operations.find(self.operation_id)
            if operation is not None and operation.is_committed:
                raise AirflowSkipException("this run has made its change already")
            plan = self._begin(catalog, context)
        if not plan.needs_spark:
            raise AirflowSkipException("no row has to be moved, so no file is written; `commit` changes the catalog")
        self.request = {"table": plan.table.full_name}
        return super().execute(context)

    def _begin(self, catalog: Catalog, context: Context) -> RebalancePlan:
        from catalog.rebalancing.changes import change_from_json

        table, change = self.planned["table"], change_from_json(self.planned["change"])
        plan = catalog.rebalancing.plan(table, change)
        if plan.fingerprint != self.planned["fingerprint"] and not plan.is_destructive:
            self.log.warning("%s has changed since `plan`; the plan is now:", table)
            for line in str(plan).splitlines():
                self.log.info("%s", line)
        if plan.is_destructive and find_approval(catalog, context, plan.fingerprint) is None:
            raise AirflowFailException(
                f"PlanConflictError: {change} would delete {plan.lost.row_count:,} rows of {table}, and nobody has "
                "approved just that: the table has changed since. Nothing was changed. Start the DAG again with the "
                "same form, and approve the new plan"
            )
        user = context["dag_run"].triggering_user_name
        catalog.rebalancing.begin(self.operation_id, table, change, fingerprint=plan.fingerprint, requested_by=user)
        return plan

    def _existing_job(self, catalog: Catalog) -> tuple[int, JobProcess] | None:
        job = catalog.operations.get_job(self.operation_id, self.job)
        if job is not None and job.state == "SUCCEEDED":
            # Vacuum takes the files of an operation that was given up.
            return super()._existing_job(catalog) if catalog.rebalancing.is_written(self.operation_id) else None
        return super()._existing_job(catalog)


class VerifyRewriteOperator(SparkJobOperator):
    """Runs the Spark job that compares the new files with the old ones; files that differ are never committed.

    Args:
        operation_id: The operation (templated).
        written: What `RewritePartitionsOperator` returned (templated).

    Returns:
        Rows and checksum of each new partition, and the folder of the files.

    Raises:
        AirflowFailException: They differ. Nothing was changed; a cleared `rewrite` writes them again.
    """

    template_fields: Sequence[str] = ("operation_id", "written")
    template_fields_renderers = {"written": "json"}  # noqa: RUF012 - read by Airflow

    def __init__(self, *, written: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(job="verify_rewrite", request={}, **kwargs)
        self.written = written

    def execute(self, context: Context) -> dict[str, Any]:
        """Compare."""
        from catalog import Catalog

        with catalog_errors(), Catalog.open() as catalog:
            table = catalog.operations.get(self.operation_id).table
        self.request = {"table": table, "folder": self.written["folder"]}
        try:
            return super().execute(context)
        except AirflowFailException as error:
            self._let_be_written_again(str(error))
            raise

    def _let_be_written_again(self, reason: str) -> None:
        from catalog import Catalog
        from catalog.errors import VerificationFailedError

        with Catalog.open() as catalog:
            operation = catalog.operations.find(self.operation_id)
            job = operation and catalog.operations.get_job(self.operation_id, self.job)
            if job and job.error_class == VerificationFailedError.__name__:
                catalog.rebalancing.discard_written(self.operation_id, reason)

    def _existing_job(self, catalog: Catalog) -> tuple[int, JobProcess] | None:
        job = catalog.operations.get_job(self.operation_id, self.job)
        if job is not None and job.state == "SUCCEEDED" and job.result["folder"] != self.written["folder"]:
            return None
        return super()._existing_job(catalog)


class CommitRebalanceOperator(BaseOperator):
    """Makes the change visible, in one transaction, with exactly the files that were verified.

    Args:
        operation_id: The operation (templated).

    Returns:
        The operation's report; done again, the same one.

    Raises:
        AirflowSkipException: The operation was never begun.
        AirflowFailException: The table is not any more as the plan expects it, or no files of it were verified.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit."""
        from catalog import Catalog
        from catalog.errors import PlanConflictError

        with catalog_errors(), Catalog.open() as catalog:
            operation = catalog.operations.find(self.operation_id)
            if operation is None:
                raise AirflowSkipException("nothing was begun, so there is nothing to commit")
            approval = catalog.approvals.find(operation_of(context), operation.request["fingerprint"])
            approved_by = None if approval is None else approval.approved_by
            try:
                report = catalog.rebalancing.commit_verified(self.operation_id, {"approved_by": approved_by})
            except PlanConflictError as error:
                # This task again would find the same.
                raise AirflowFailException(
                    f"PlanConflictError: {error}: start the DAG again, or clear `plan`"
                ) from error
        self.log.info("Done: %s", report["statement"])
        return report


class SummariseRebalanceOperator(BaseOperator):
    """Shows what each partition held and holds as a Markdown table in the task's log.

    Args:
        report: What `CommitRebalanceOperator` returned (templated).

    Returns:
        `table`, `statement`, `approved_by`, what was moved and deleted, and `partitions` as
        `catalog.rebalancing.totals.partition_totals`.
    """

    template_fields: Sequence[str] = ("report",)
    template_fields_renderers = {"report": "json"}  # noqa: RUF012 - read by Airflow

    def __init__(self, *, report: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.report = report

    def execute(self, context: Context) -> dict[str, Any]:
        """Say what was done."""
        from catalog.rebalancing.totals import TOTALS

        self.log.info("%s", self.report["statement"])
        self.log.info("What each partition held → holds:")
        for line in markdown_table([_row(each) for each in self.report[TOTALS]]):
            self.log.info("%s", line)
        self.log.info(
            "%s rows moved into %s new files, %s files reassigned, %s rows deleted",
            *(f"{self.report[name]:,}" for name in ("rows_moved", "files_written", "files_reassigned", "rows_deleted")),
        )
        return {**{name: self.report[name] for name in _SUMMARISED}, "partitions": self.report[TOTALS]}


_SUMMARISED = (
    *("table", "statement", "approved_by", "rows_moved", "bytes_moved", "files_read", "files_written"),
    *("files_reassigned", "rows_deleted", "bytes_deleted", "files_deleted"),
)


def _row(partition: Mapping[str, Any]) -> dict[str, Any]:
    row = {"id": partition["partition_id"], "partition": partition["partition"]}
    for what, show in (("rows", _count), ("bytes", size), ("files", _count)):
        before, after = (
            "-" if partition[when] is None else show(partition[when][what]) for when in ("before", "after")
        )
        row[what] = f"{before} → {after}"
    return row


def rebalance_question(catalog: Catalog, context: Context) -> Question | None:
    """Return what has to be approved before a run changes partitions; None when no row is deleted."""
    from catalog.rebalancing.requests import RebalanceRequest

    operation = catalog.operations.find(operation_of(context))
    if operation is not None and operation.is_committed:
        return None
    request = RebalanceRequest.from_form(context["params"])
    if request.dry_run:
        return None
    plan = catalog.rebalancing.plan(request.table, request.change)
    return deletion_question(plan, asked_by(context)) if plan.is_destructive else None


def deletion_question(plan: RebalancePlan, asker: str) -> Question:
    """Return the question whether a plan's rows may be deleted; its key is the plan's fingerprint."""
    table, lost = plan.table.full_name, plan.lost
    deleted = [each for each in plan.readings if not each.targets]
    lines = [
        f"- partition {each.partition_id}, {code(each.text)}: {each.before.row_count:,} rows, "
        f"{size(each.before.size_bytes)}"
        for each in deleted[:_SHOWN]
    ]
    if len(deleted) > _SHOWN:
        lines.append(f"- and {len(deleted) - _SHOWN:,} more partitions")
    body = (
        f"{asker} asks for\n\n{code(f'ALTER TABLE {table} {plan.change}')}\n\n"
        f"**{lost.row_count:,} rows** of **{table}** ({size(lost.size_bytes)}, data files: {lost.file_count:,}) would "
        f"be gone for good:\n\n{chr(10).join(lines)}\n\n"
        "Reject ends the run, and nothing is changed."
    )
    return Question(f"Delete {lost.row_count:,} rows of {table}?", body, [plan.fingerprint])


def size(size_bytes: int) -> str:
    """Return a number of bytes for people."""
    value, unit = float(size_bytes), "B"
    for greater in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, greater
    return f"{value:,.1f} {unit}" if unit != "B" else f"{size_bytes} B"


def _count(number: int) -> str:
    return f"{number:,}"
