"""Operators of the rebalance advisor: analyse the partitions of tables, propose changes, and apply them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.batches import Batch, all_items, in_batches, map_limit
from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.operators.approval import operation_of
from calve_airflow.operators.batches import BatchOperator
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.summary import Outcome, SummaryOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations.records import JobRun
    from catalog.rebalancing.advising import Advice
    from catalog.settings.compaction_rules import CompactionRules

JOB = "count_values"
REBALANCE_DAG = "rebalance_partitions"
_COUNTED = 16
"""Maximum number of partitions of one table whose values a run counts; the next run counts the others."""


class LookAtPartitionsOperator(FormOperator):
    """Task that analyses the partitions of tables by the file statistics in the catalog, without reading files.

    Reads `tables` from the run's form; none means all tables with partitions. The partitions whose values must
    be counted are journaled, one operation for each table, and not passed as XComs, because users may write XComs.

    Returns:
        The tables whose file statistics are not sufficient, each as `table`, in batches. Another XCom, `tables`, has
        the names of all tables that were analysed.

    Raises:
        AirflowFailException: A table does not exist or has no partitions, or its rules cannot be read.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[Batch]:
        """Analyse the tables."""
        from catalog.maintenance.compaction import is_compacted
        from catalog.operations.records import OperationKind
        from catalog.settings.fields import texts

        to_count = []
        with open_catalog() as catalog:
            requested = texts("tables", context["params"]["tables"])
            names = [catalog.get_table(name).full_name for name in requested]
            if not requested:
                tables = catalog.list_tables()
                names = [table.full_name for table in tables if is_compacted(table)]
            for name in names:
                if catalog.get_table(name).partition_keys:
                    continue
                advice = _advice(catalog, name)
                self.log.info("%s: %s", name, _figures(advice))
                if advice.to_count:
                    catalog.operations.begin(
                        _count_id(context, name),
                        OperationKind.COUNT_VALUES,
                        name,
                        {"partition_ids": list(advice.to_count[:_COUNTED])},
                        requested_by=context["dag_run"].triggering_user_name,
                    )
                    to_count.append(name)
        context["ti"].xcom_push(key="tables", value=names)
        return in_batches([{"table": name} for name in to_count])


class CountValuesOperator(SparkJobOperator):
    """Task that runs a Spark job to count the values of the partitions that `LookAtPartitionsOperator` selected.

    Args:
        table: `database.table`; no template.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job=JOB, operation_id="", request={}, **kwargs)
        self.table = table

    def prepare(self, context: Context, catalog: Catalog) -> None:
        """Request the counts that the operation journaled."""
        operation = catalog.operations.get(_count_id(context, _chosen(context, self.table)))
        self.operation_id = operation.id
        self.request = {"table": operation.table, "partition_ids": operation.request["partition_ids"]}

    def finish(self, context: Context, catalog: Catalog, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the operation, which keeps the counts: they are too large for an XCom."""
        return {"operation_id": self.operation_id}

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return False, because counts from before this task was cleared may be out of date."""
        return False


class CountValuesOfTablesOperator(BatchOperator, CountValuesOperator):
    """Task that counts the values of a batch of tables, one after the other."""


class ProposeOperator(FormOperator):
    """Task that proposes changes of partitions, in its log and as requests for the DAG that makes them.

    These are changes of a partition scheme, by `rebalance_partitions`, or compactions of small files, by
    `compact_partitions`.

    The proposals to apply are journaled, one operation for each table, because users may write XComs.

    Args:
        tables: The tables that `LookAtPartitionsOperator` analysed (templated); None if it failed.

    Returns:
        The arguments of an `ApplyProposalOperator` for each proposal that the form and the table's entry in the YAML
        list allow to be applied. Another XCom, `proposals`, has all proposals: table, statement, reason, dag, request,
        and the id of the run that applies it, if any.

    Raises:
        AirflowFailException: No table was analysed, or the form does not select a table.
    """

    template_fields: Sequence[str] = ("tables",)

    def __init__(self, *, tables: Sequence[str] | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables

    @for_mapped_tasks
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Make the proposals."""
        from catalog.errors import NotFoundError
        from catalog.maintenance.compaction import policies
        from catalog.settings.compaction_rules import CompactionRules

        if self.tables is None:
            raise AirflowFailException("no table was analysed; see the log of the task `look`")
        proposals: list[dict[str, Any]] = []
        with open_catalog() as catalog:
            rules = policies()
            for table in [_chosen(context, name) for name in self.tables]:
                try:
                    proposals += self._propose(catalog, context, table, rules.get(table, CompactionRules()))
                except NotFoundError:
                    self.log.info("Skipped %s, because it was dropped since `look`", table)
        self._keep_for_next_run(proposals)
        context["ti"].xcom_push(key="proposals", value=proposals)
        return [
            {"table": proposal["table"], "statement": proposal["statement"]}
            for proposal in proposals
            if proposal["run_id"] is not None
        ]

    def _keep_for_next_run(self, proposals: Sequence[dict[str, Any]]) -> None:
        """Apply no more proposals than Airflow maps tasks: each is a run of its own, so they cannot be in batches."""
        applied = [proposal for proposal in proposals if proposal["run_id"] is not None]
        kept = applied[map_limit() :]
        for proposal in kept:
            proposal["run_id"] = None
        if kept:
            self.log.warning("%d of %d proposals are left to the next run", len(kept), len(applied))

    def _propose(self, catalog: Catalog, context: Context, table: str, rules: CompactionRules) -> list[dict[str, Any]]:
        """Return the proposals for a table; keep them for the pages, and journal those to apply."""
        from catalog.operations.records import OperationKind

        proposals: list[dict[str, Any]] = []
        if not catalog.get_table(table).partition_keys:
            advice = _advice(catalog, table, _count_id(context, table))
            proposals = [{**proposal, "dag": REBALANCE_DAG} for proposal in advice.as_json()["proposals"]]
            if advice.to_count:
                self.log.info("%s: the values of partition(s) %s are not counted yet", table, advice.to_count)
        # A rebalance rewrites files, so small files are looked for only if none is proposed.
        proposals = proposals or catalog.maintenance.plan_compaction(table, rules).proposals()
        catalog.proposals.replace(table, proposals)
        for proposal in proposals:
            self.log.info("%s: %s", proposal["statement"], proposal["reason"])
        applies = bool(proposals) and _is_to_apply(context, table)
        if applies:
            user = context["dag_run"].triggering_user_name
            kind, request = OperationKind.PROPOSE_CHANGES, {"proposals": proposals}
            catalog.operations.begin(_proposals_id(context, table), kind, table, request, requested_by=user)
        return [
            {"table": table, **proposal, "run_id": _run_id(context, proposal["statement"]) if applies else None}
            for proposal in proposals
        ]


class ApplyProposalOperator(TriggerDagRunOperator):
    """Task that runs the DAG of one proposal and waits for its end; a retry continues the same run.

    Only the names come from `ProposeOperator`; the request comes from the journal. No field is templated: rendering
    would turn a bound that looks like a number into one, and would execute template markup in values of the data.

    Args:
        table: `database.table`.
        statement: The proposal's statement.

    Raises:
        AirflowSkipException: Proposals for the table are not applied.
        AirflowFailException: The statement was not proposed, or the form does not select the table.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, table: str, statement: str, **kwargs: Any) -> None:
        super().__init__(
            trigger_dag_id=REBALANCE_DAG,
            logical_date=None,
            wait_for_completion=True,
            reset_dag_run=True,
            poke_interval=2,
            **kwargs,
        )
        self.table = table
        self.statement = statement

    def execute(self, context: Context) -> None:
        """Apply the proposal."""
        with open_catalog() as catalog:
            table = _chosen(context, self.table)
            if not _is_to_apply(context, table):
                raise AirflowSkipException(
                    f"proposals for {table} are not applied: the form is a dry run, or the table's entry has no apply"
                )
            journaled = catalog.operations.get(_proposals_id(context, table)).request["proposals"]
        proposal = next((proposal for proposal in journaled if proposal["statement"] == self.statement), None)
        if proposal is None:
            raise AirflowFailException(f"{self.statement!r} was not proposed; clear the task `propose`")
        self.trigger_dag_id = proposal["dag"]
        self.trigger_run_id = _run_id(context, proposal["statement"])
        self.conf = {**proposal["request"], "dry_run": False}
        self.note = f"{proposal['statement']}: {proposal['reason']}"
        super().execute(context)


class SummariseAdviceOperator(SummaryOperator):
    """Task that reports the proposals for each table and the results of those that were applied; fails if one failed.

    Args:
        operation_id: The run (templated).
        planned: The XCom `proposals` of `ProposeOperator` (templated).
        counts: The tables that `LookAtPartitionsOperator` returned (templated).
    """

    template_fields: Sequence[str] = (*SummaryOperator.template_fields, "counts")

    def __init__(self, *, counts: Sequence[Batch] | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.counts = counts

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcomes of the proposals, from the operations of their runs, and of the failed counts."""
        outcomes = [self._outcome(catalog, context, proposal) for proposal in self.planned]
        failed_counts = (self._not_counted(catalog, context, item["table"]) for item in all_items(self.counts or ()))
        return outcomes + [outcome for outcome in failed_counts if outcome is not None]

    def _not_counted(self, catalog: Catalog, context: Context, table: str) -> Outcome | None:
        operation_id = _count_id(context, _chosen(context, table))
        operation = catalog.operations.find(operation_id)
        job = operation and catalog.operations.get_job(operation_id, JOB)
        if job and job.state == "SUCCEEDED":
            return None
        reason = f"{job.error_class}: {job.error_message}" if job else "see the log of its task"
        if operation:
            catalog.operations.fail(operation_id, "RUN_FAILED", reason)
        row = {"table": table, "proposal": None, "reason": reason, "outcome": "values not counted"}
        return Outcome(row, f"the values of {table} were not counted: {reason}")

    def _outcome(self, catalog: Catalog, context: Context, proposal: Mapping[str, Any]) -> Outcome:
        row = {"table": proposal["table"], "proposal": proposal["statement"], "reason": proposal["reason"]}
        if proposal["run_id"] is None:
            return Outcome({**row, "outcome": "proposed"})
        dag, run_id = proposal["dag"], _run_id(context, proposal["statement"])
        # A run of many tables has an operation for each.
        of_table = "" if dag == REBALANCE_DAG else f"/{proposal['table']}"
        operation = catalog.operations.find(f"{dag}/{run_id}{of_table}")
        if operation is not None and operation.is_committed:
            return Outcome({**row, "outcome": "done"})
        detail = operation.failure_detail if operation is not None else None
        reason = detail or f"see the log of run {run_id} of {dag}"
        return Outcome({**row, "outcome": "failed"}, f"{proposal['statement']} failed: {reason}")


def _chosen(context: Context, table: object) -> str:
    """Return the name of a table from an XCom after checking it, because users may write XComs.

    Raises:
        WrongFieldError: It is not a table name, or the form selects other tables.
    """
    from catalog.errors import WrongFieldError
    from catalog.model.identifiers import TableName
    from catalog.settings.fields import text, texts

    name = str(TableName.parse(text("table", table)))
    selected = [str(TableName.parse(selected_name)) for selected_name in texts("tables", context["params"]["tables"])]
    if selected and name not in selected:
        raise WrongFieldError("table", f"{name} is not one of the tables that the form selects: {', '.join(selected)}")
    return name


def _is_to_apply(context: Context, table: str) -> bool:
    """Return whether a run applies its proposals for a table: its form is no dry run, and the table's entry says so."""
    from catalog.settings.table_config import rebalance_rules

    return not context["params"]["dry_run"] and rebalance_rules(table).apply


def _count_id(context: Context, table: str) -> str:
    return f"{operation_of(context)}/{table}"


def _proposals_id(context: Context, table: str) -> str:
    return f"{operation_of(context)}/{table}/proposals"


def _run_id(context: Context, statement: str) -> str:
    """Return the run id of a proposal; it is the same in a retry, so that no run is started twice."""
    digest = hashlib.blake2b(f"{operation_of(context)} {statement}".encode(), digest_size=12).hexdigest()
    return f"advised__{digest}"


def _advice(catalog: Catalog, table: str, operation_id: str | None = None) -> Advice:
    """Return the advice for a table, with the value counts of an operation if it has any."""
    from catalog.rebalancing.contents import ValueCount
    from catalog.settings.table_config import rebalance_rules

    counts = {}
    if operation_id is not None and catalog.operations.find(operation_id) is not None:
        job = catalog.operations.get_job(operation_id, JOB)
        if job is not None and job.state == "SUCCEEDED":
            counts = {
                int(partition_id): [ValueCount(*value_count) for value_count in value_counts]
                for partition_id, value_counts in job.result["counts"].items()
            }
    return catalog.rebalancing.advise(table, rebalance_rules(table), counts)


def _figures(advice: Advice) -> str:
    figures = f"{advice.partition_count:,} partitions with {advice.file_count:,} files, {advice.total_bytes:,} bytes"
    if advice.skew is None:
        return figures
    return f"{figures}; the largest has {advice.skew:,} times the median of {advice.median_bytes:,} bytes"
