"""Operators for the steps of a change of a table's partitions: plan, rewrite, verify, commit and summarise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from calve_airflow.assets import Change
from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.lineage import LineageOperator, table_dataset
from calve_airflow.operators.approval import Question, asked_by, code, find_approval, operation_of, require_approval
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.staged import VerifyStagedOperator
from calve_airflow.operators.summary import markdown_table
from calve_airflow.outcomes import report_outcome

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations.records import JobRun, Operation
    from catalog.rebalancing.planning import RebalancePlan
    from catalog.rebalancing.requests import RebalanceRequest

_SHOWN = 20


class PlanRebalanceOperator(FormOperator):
    """Task that plans a change of a table's partitions and logs the plan; changes nothing.

    The journal keeps the plan of a dry run, for Calve's pages.

    Args:
        operation_id: The operation that will make the change (templated).
        form: The fields of `catalog.rebalancing.requests.RebalanceRequest` (templated).

    Returns:
        The plan. A dry run skips all later tasks. A run that has already made its change returns the operation's
        report.

    Raises:
        AirflowFailException: A field is invalid; the message begins with its name.
    """

    template_fields: Sequence[str] = ("operation_id", "form")
    template_fields_renderers = {"form": "json"}  # noqa: RUF012 - read by Airflow

    def __init__(self, *, operation_id: str, form: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.form = form

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan the change."""
        from catalog.operations.dry_runs import keep_plan
        from catalog.operations.records import OperationKind
        from catalog.rebalancing.rebalancing import COMMIT
        from catalog.rebalancing.requests import RebalanceRequest

        with open_catalog() as catalog:
            request = RebalanceRequest.from_form(self.form)
            operation = catalog.operations.find(self.operation_id)
            if operation is not None and operation.is_committed:
                _require_same(operation, request)
                self.log.info("This run has already made its change")
                return dict(operation.report[COMMIT])
            plan = self._plan(catalog, request)
            planned = plan.as_json()
            if request.dry_run:
                keep_plan(
                    catalog.operations,
                    self.operation_id,
                    OperationKind.REBALANCE,
                    plan.table.full_name,
                    planned,
                    request={**plan.change.as_json(), "fingerprint": plan.fingerprint},
                    requested_by=context["dag_run"].triggering_user_name,
                )
        _show(self, plan)
        if request.dry_run:
            self.log.info("This is a dry run: nothing was changed. Turn dry_run off to make the change")
            context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=planned)
            skipped = list(self.get_flat_relative_ids(upstream=False))
            raise DownstreamTasksSkipped(tasks=skipped)  # type: ignore[no-untyped-call]  # Airflow's own
        return planned

    def _plan(self, catalog: Catalog, request: RebalanceRequest) -> RebalancePlan:
        from catalog.errors import WrongFieldError

        try:
            return catalog.rebalancing.plan_request(request)
        except WrongFieldError as error:
            raise AirflowFailException(str(error)) from error


class RewritePartitionsOperator(SparkJobOperator):
    """Task that begins the operation, which locks the table, and runs the Spark job that writes the new files.

    The change is planned again from the run's form, because users may write XComs and run a task of a dry run.

    Args:
        operation_id: The operation to begin (templated).

    Returns:
        The job's result: what it wrote, and the folder.

    Raises:
        AirflowSkipException: No row has to be moved, the change was made before, or the run is a dry run.
        AirflowFailException: The change needs an approval (`needs_approval`), and has none.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="rewrite_partitions", request={}, **kwargs)

    def prepare(self, context: Context, catalog: Catalog) -> None:
        """Begin the operation."""
        request = _request(context)
        operation = catalog.operations.find(self.operation_id)
        if operation is not None and operation.is_committed:
            raise AirflowSkipException("this run has already made its change")
        plan = self._begin(catalog, context, request)
        if not plan.needs_spark:
            raise AirflowSkipException("no row has to move, so no file is written; `commit` changes the catalog")
        self.request = {"table": plan.table.full_name}

    def _begin(self, catalog: Catalog, context: Context, request: RebalanceRequest) -> RebalancePlan:
        table, change = request.table, request.change
        # The table may have changed since `plan`.
        plan = catalog.rebalancing.plan(table, change)
        _show(self, plan)
        if needs_approval(plan) and find_approval(catalog, context, plan.fingerprint) is None:
            affected, verb = (plan.lost, "delete") if plan.is_destructive else (plan.moved, "move")
            raise AirflowFailException(
                f"PlanConflictError: {change} would {verb} {affected.row_count:,} rows of {table}, which is not "
                "approved, because the table has changed since. Nothing was changed. Start the DAG again with the "
                "same form and approve the new plan"
            )
        user = context["dag_run"].triggering_user_name
        catalog.rebalancing.begin(self.operation_id, table, change, fingerprint=plan.fingerprint, requested_by=user)
        return plan

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether the job's files still exist; vacuum deletes those of a failed operation."""
        return catalog.rebalancing.is_written(self.operation_id)


class VerifyRewriteOperator(VerifyStagedOperator):
    """Task that runs the Spark job that compares the new files with the old ones; a difference is never committed.

    The folder of the new files comes from the journal, because users may write XComs.

    Args:
        operation_id: The operation (templated).

    Returns:
        Row count and checksum of each new partition, and the folder of the files.

    Raises:
        AirflowSkipException: The run is a dry run.
        AirflowFailException: The files differ or are not written. Nothing was changed; clearing `rewrite` writes the
            files again.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="verify_rewrite", request={}, **kwargs)

    def prepare(self, context: Context, catalog: Catalog) -> None:
        """Request the comparison of the files."""
        request = _request(context)
        operation = catalog.operations.get(self.operation_id)
        _require_same(operation, request)
        folder = catalog.rebalancing.written_folder(operation.id)
        if folder is None:
            raise AirflowFailException(f"operation {operation.id} has written no new files yet; clear `rewrite`")
        self.request = {"table": operation.table, "folder": folder}

    def discard(self, catalog: Catalog, reason: str) -> None:
        """Discard the new files."""
        catalog.rebalancing.discard_written(self.operation_id, reason)

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether the folder that the job verified is the one written last."""
        return bool(job.result["folder"] == self.request["folder"])


class CommitRebalanceOperator(LineageOperator):
    """Task that makes the change visible, in one transaction, with exactly the verified files.

    Args:
        operation_id: The operation (templated).

    Returns:
        The operation's report; a repeated call returns the same one.

    Raises:
        AirflowSkipException: The operation was not begun, or the run is a dry run.
        AirflowFailException: The table changed after the plan was made, its new files are not verified, or the
            approval of the change has expired.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit the change."""
        from catalog.errors import PlanConflictError

        with open_catalog() as catalog:
            request = _request(context)
            operation = catalog.operations.find(self.operation_id)
            if operation is None:
                raise AirflowSkipException("the operation was not begun, so there is nothing to commit")
            if not operation.is_committed:
                _require_same(operation, request)
                if approves_all_changes(operation.table):
                    require_approval(catalog, context, operation.request["fingerprint"], what="change")
            approval = find_approval(catalog, context, operation.request["fingerprint"])
            approved_by = None if approval is None else approval.approved_by
            try:
                report = catalog.rebalancing.commit_verified(
                    operation.id,
                    {"approved_by": approved_by},
                    confirm_deletion=partial(require_approval, catalog, context),
                )
            except PlanConflictError as error:
                # A retry of this task fails in the same way.
                raise AirflowFailException(
                    f"PlanConflictError: {error}: start the DAG again, or clear `plan`"
                ) from error
            table = catalog.get_table(operation.table)
        self.lineage.inputs.append(table_dataset(table))
        self.lineage.outputs.append(table_dataset(table, rows=report["rows_moved"], size_bytes=report["bytes_moved"]))
        self.log.info("Done: %s", report["statement"])
        report_outcome(context, Change.REBALANCED, operation, report)
        return report


class SummariseRebalanceOperator(BaseOperator):
    """Task that logs the contents of each partition before and after the change, as a Markdown table.

    Args:
        operation_id: The operation (templated).

    Returns:
        `table`, `statement`, `approved_by`, the totals of moved and deleted data, and `partitions` as
        `catalog.rebalancing.totals.partition_totals`.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Report the change."""
        from catalog.rebalancing.rebalancing import COMMIT
        from catalog.rebalancing.totals import TOTALS

        with open_catalog() as catalog:
            report = catalog.operations.get(self.operation_id).report[COMMIT]
        self.log.info("%s", report["statement"])
        self.log.info("Contents of each partition, before → after:")
        for line in markdown_table([_row(partition) for partition in report[TOTALS]]):
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
    for total, show in (("rows", _count), ("bytes", size), ("files", _count)):
        before, after = (
            "-" if partition[when] is None else show(partition[when][total]) for when in ("before", "after")
        )
        row[total] = f"{before} → {after}"
    return row


def _request(context: Context) -> RebalanceRequest:
    """Return the request in a run's form.

    Raises:
        AirflowSkipException: The run is a dry run.
        WrongFieldError: A field is invalid.
    """
    from catalog.rebalancing.requests import RebalanceRequest

    request = RebalanceRequest.from_form(context["params"])
    if request.dry_run:
        raise AirflowSkipException("this is a dry run: nothing is changed. Turn dry_run off to make the change")
    return request


def _require_same(operation: Operation, request: RebalanceRequest) -> None:
    """Check that an operation makes the change of a request.

    Raises:
        OperationReusedError: It makes another change, because an earlier run had the same id.
    """
    from catalog.errors import OperationReusedError
    from catalog.model.identifiers import TableName
    from catalog.rebalancing.changes import change_from_json

    change = {name: value for name, value in operation.request.items() if name != "fingerprint"}
    is_its_table = str(TableName.parse(request.table)) == operation.table
    if not is_its_table or operation.kind != "rebalance" or change_from_json(change) != request.change:
        raise OperationReusedError(operation.id, f"{operation.kind} of table {operation.table}")


def _show(task: BaseOperator, plan: RebalancePlan) -> None:
    for line in str(plan).splitlines():
        task.log.info("%s", line)


def approves_all_changes(table: str) -> bool:
    """Return whether the entry of a table in the YAML list has a person approve every change of its partitions.

    Raises:
        InvalidConfigurationError: The list cannot be read, or the entry is invalid.
    """
    from catalog.settings.table_config import rebalance_rules

    return rebalance_rules(table).approval


def needs_approval(plan: RebalancePlan) -> bool:
    """Return whether a person must approve a change: it deletes rows, or its table's entry asks for it.

    Raises:
        InvalidConfigurationError: As `approves_all_changes`.
    """
    return plan.is_destructive or approves_all_changes(plan.table.full_name)


def rebalance_question(catalog: Catalog, context: Context) -> Question | None:
    """Return the question to approve before a run changes partitions; None if no approval is needed."""
    from catalog.rebalancing.requests import RebalanceRequest

    operation = catalog.operations.find(operation_of(context))
    if operation is not None and operation.is_committed:
        return None
    request = RebalanceRequest.from_form(context["params"])
    if request.dry_run:
        return None
    plan = catalog.rebalancing.plan(request.table, request.change)
    if plan.is_destructive:
        return deletion_question(plan, asked_by(context))
    return change_question(plan, asked_by(context)) if needs_approval(plan) else None


def change_question(plan: RebalancePlan, asker: str) -> Question:
    """Return the question whether a plan that deletes no row may be carried out; its key is the plan's fingerprint."""
    table, moved = plan.table.full_name, plan.moved
    lines = [
        f"- partition {reading.partition_id}, {code(reading.text)}: {reading.rewritten.row_count:,} of "
        f"{reading.before.row_count:,} rows, {size(reading.rewritten.size_bytes)}, afterwards in "
        f"{_partitions(reading.targets)}"
        for reading in plan.readings[:_SHOWN]
    ]
    if len(plan.readings) > _SHOWN:
        lines.append(f"- and {len(plan.readings) - _SHOWN:,} more partitions")
    body = (
        f"{asker} requests\n\n{code(plan.change.statement(table))}\n\n"
        f"**{moved.row_count:,} rows** of **{table}** ({size(moved.size_bytes)}, data files: {moved.file_count:,}) "
        f"would be moved, and none deleted:\n\n{chr(10).join(lines)}\n\n"
        "Reject ends the run, and nothing is changed."
    )
    return Question(f"Change the partitions of {table}?", body, [plan.fingerprint], table)


def deletion_question(plan: RebalancePlan, asker: str) -> Question:
    """Return the question whether a plan may delete rows; its key is the plan's fingerprint."""
    table, lost = plan.table.full_name, plan.lost
    deleted = [reading for reading in plan.readings if not reading.targets]
    lines = [
        f"- partition {reading.partition_id}, {code(reading.text)}: {reading.before.row_count:,} rows, "
        f"{size(reading.before.size_bytes)}"
        for reading in deleted[:_SHOWN]
    ]
    if len(deleted) > _SHOWN:
        lines.append(f"- and {len(deleted) - _SHOWN:,} more partitions")
    body = (
        f"{asker} requests\n\n{code(plan.change.statement(table))}\n\n"
        f"**{lost.row_count:,} rows** of **{table}** ({size(lost.size_bytes)}, data files: {lost.file_count:,}) would "
        f"be deleted permanently:\n\n{chr(10).join(lines)}\n\n"
        "Reject ends the run, and nothing is changed."
    )
    return Question(f"Delete {lost.row_count:,} rows of {table}?", body, [plan.fingerprint], table)


def _partitions(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:_SHOWN])) + (" …" if len(ids) > _SHOWN else "")
    return f"partition{'' if len(ids) == 1 else 's'} {shown}"


def size(size_bytes: int) -> str:
    """Return a number of bytes with a readable unit."""
    value, unit = float(size_bytes), "B"
    for greater in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, greater
    return f"{value:,.1f} {unit}" if unit != "B" else f"{size_bytes} B"


def _count(number: int) -> str:
    return f"{number:,}"
