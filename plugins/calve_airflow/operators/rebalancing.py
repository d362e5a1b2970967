"""The steps of a change of a table's partitions: plan, begin, write, verify, commit, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.operators.approval import Question, asked_by, code, find_approval, operation_of, require_approval
from calve_airflow.operators.staged import StagingJobOperator, VerifyStagedOperator
from calve_airflow.operators.summary import markdown_table

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations.records import JobRun, Operation
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
        from catalog.rebalancing.rebalancing import COMMIT
        from catalog.rebalancing.requests import RebalanceRequest

        with open_catalog() as catalog:
            request = RebalanceRequest.from_form(self.form)
            operation = catalog.operations.find(self.operation_id)
            if operation is not None and operation.is_committed:
                _require_same(operation, request)
                self.log.info("This run has made its change already")
                return dict(operation.report[COMMIT])
            plan = self._plan(catalog, request)
        _show(self, plan)
        planned = plan.as_json()
        if request.dry_run:
            self.log.info("This is a dry run: nothing was changed. With dry_run off, the change is made")
            context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=planned)
            skipped = list(self.get_flat_relative_ids(upstream=False))
            raise DownstreamTasksSkipped(tasks=skipped)  # type: ignore[no-untyped-call]  # Airflow's own
        return planned

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


class RewritePartitionsOperator(StagingJobOperator):
    """Begins the operation, which holds the table from now on, and runs the Spark job that writes the new files.

    What is changed follows from the run's form again: users may write XComs, and run a task of a dry run.

    Args:
        operation_id: The operation to begin (templated).

    Returns:
        What the job wrote, and in which folder.

    Raises:
        AirflowSkipException: No row has to be moved, the change was made before, or the run is a dry one.
        AirflowFailException: Rows would be deleted that nobody has approved.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="rewrite_partitions", request={}, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin and write."""
        with open_catalog() as catalog:
            request = _request(context)
            operation = catalog.operations.find(self.operation_id)
            if operation is not None and operation.is_committed:
                raise AirflowSkipException("this run has made its change already")
            plan = self._begin(catalog, context, request)
        if not plan.needs_spark:
            raise AirflowSkipException("no row has to be moved, so no file is written; `commit` changes the catalog")
        self.request = {"table": plan.table.full_name}
        return super().execute(context)

    def _begin(self, catalog: Catalog, context: Context, request: RebalanceRequest) -> RebalancePlan:
        table, change = request.table, request.change
        # The table may have changed since `plan`.
        plan = catalog.rebalancing.plan(table, change)
        _show(self, plan)
        if plan.is_destructive and find_approval(catalog, context, plan.fingerprint) is None:
            raise AirflowFailException(
                f"PlanConflictError: {change} would delete {plan.lost.row_count:,} rows of {table}, and nobody has "
                "approved just that: the table has changed since. Nothing was changed. Start the DAG again with the "
                "same form, and approve the new plan"
            )
        user = context["dag_run"].triggering_user_name
        catalog.rebalancing.begin(self.operation_id, table, change, fingerprint=plan.fingerprint, requested_by=user)
        return plan

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether its files are still there; vacuum deletes those of an abandoned operation."""
        return catalog.rebalancing.is_written(self.operation_id)


class VerifyRewriteOperator(VerifyStagedOperator):
    """Runs the Spark job that compares the new files with the old ones; files that differ are never committed.

    Which files are new, the journal says: users may write XComs.

    Args:
        operation_id: The operation (templated).

    Returns:
        Rows and checksum of each new partition, and the folder of the files.

    Raises:
        AirflowSkipException: The run is a dry one.
        AirflowFailException: They differ, or are not written. Nothing was changed; a cleared `rewrite` writes them
            again.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="verify_rewrite", request={}, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Compare."""
        with open_catalog() as catalog:
            request = _request(context)
            operation = catalog.operations.get(self.operation_id)
            _require_same(operation, request)
            folder = catalog.rebalancing.written_folder(operation.id)
        if folder is None:
            raise AirflowFailException(f"operation {operation.id} has written no new files yet; clear `rewrite`")
        self.request = {"table": operation.table, "folder": folder}
        return super().execute(context)

    def discard(self, catalog: Catalog, reason: str) -> None:
        """Discard the new files."""
        catalog.rebalancing.discard_written(self.operation_id, reason)

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether the folder that it verified is the one that is written now."""
        return bool(job.result["folder"] == self.request["folder"])


class CommitRebalanceOperator(BaseOperator):
    """Makes the change visible, in one transaction, with exactly the files that were verified.

    Args:
        operation_id: The operation (templated).

    Returns:
        The operation's report; done again, the same one.

    Raises:
        AirflowSkipException: The operation was never begun, or the run is a dry one.
        AirflowFailException: The table is not any more as the plan expects it, no files of it were verified, or rows
            would be deleted and the approval has expired.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit."""
        from catalog.errors import PlanConflictError

        with open_catalog() as catalog:
            request = _request(context)
            operation = catalog.operations.find(self.operation_id)
            if operation is None:
                raise AirflowSkipException("nothing was begun, so there is nothing to commit")
            if not operation.is_committed:
                _require_same(operation, request)
            approval = find_approval(catalog, context, operation.request["fingerprint"])
            approved_by = None if approval is None else approval.approved_by
            try:
                report = catalog.rebalancing.commit_verified(
                    operation.id,
                    {"approved_by": approved_by},
                    confirm_deletion=partial(require_approval, catalog, context),
                )
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
        operation_id: The operation (templated).

    Returns:
        `table`, `statement`, `approved_by`, what was moved and deleted, and `partitions` as
        `catalog.rebalancing.totals.partition_totals`.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Say what was done."""
        from catalog.rebalancing.rebalancing import COMMIT
        from catalog.rebalancing.totals import TOTALS

        with open_catalog() as catalog:
            report = catalog.operations.get(self.operation_id).report[COMMIT]
        self.log.info("%s", report["statement"])
        self.log.info("What each partition held → holds:")
        for line in markdown_table([_row(each) for each in report[TOTALS]]):
            self.log.info("%s", line)
        self.log.info(
            "%s rows moved into %s new files, %s files reassigned, %s rows deleted",
            *(f"{report[name]:,}" for name in ("rows_moved", "files_written", "files_reassigned", "rows_deleted")),
        )
        return {**{name: report[name] for name in _SUMMARISED}, "partitions": report[TOTALS]}


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


def _request(context: Context) -> RebalanceRequest:
    """Return what a run's form asks for.

    Raises:
        AirflowSkipException: Only a plan.
        WrongFieldError: A field is not right.
    """
    from catalog.rebalancing.requests import RebalanceRequest

    request = RebalanceRequest.from_form(context["params"])
    if request.dry_run:
        raise AirflowSkipException("this is a dry run: nothing is changed. With dry_run off, the change is made")
    return request


def _require_same(operation: Operation, request: RebalanceRequest) -> None:
    """Make sure that an operation makes the change of a request.

    Raises:
        OperationReusedError: It does not: a run of the same id was there before.
    """
    from catalog.errors import OperationReusedError
    from catalog.model.identifiers import TableName
    from catalog.rebalancing.changes import change_from_json

    made = {name: value for name, value in operation.request.items() if name != "fingerprint"}
    is_its_table = str(TableName.parse(request.table)) == operation.table
    if not is_its_table or operation.kind != "rebalance" or change_from_json(made) != request.change:
        raise OperationReusedError(operation.id, f"{operation.kind} of table {operation.table}")


def _show(task: BaseOperator, plan: RebalancePlan) -> None:
    for line in str(plan).splitlines():
        task.log.info("%s", line)


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
