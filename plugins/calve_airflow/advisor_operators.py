"""The regular look at the partitions of tables: which are badly cut, what to do about it, and what was done."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.errors import catalog_errors
from calve_airflow.form_operator import FormOperator
from calve_airflow.job_process import JobProcess
from calve_airflow.spark_job import SparkJobOperator
from calve_airflow.summary import Outcome, SummaryOperator
from calve_airflow.templates import for_mapped_tasks

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.rebalancing.advising import Advice

JOB = "count_values"
REBALANCE_DAG = "rebalance_partitions"
_COUNTED = 16
"""Partitions of one table whose values are counted in a run, the first ones; the next run sees to the others."""


class LookAtPartitionsOperator(FormOperator):
    """Looks at the partitions of tables by what the catalog knows of their files; no file is read.

    Args:
        operation_id: The run (templated); each count of values is an operation of its own below it.
        tables: `database.table` of those that are meant (templated); None or none for all with a partition scheme.

    Returns:
        The arguments of a `CountValuesOperator` for each table of which the files do not tell enough. Another XCom,
        `tables`, has the names of all tables that were looked at.

    Raises:
        AirflowFailException: There is no such table, it has no partition scheme, or its rules cannot be read.
    """

    template_fields: Sequence[str] = ("operation_id", "tables")

    def __init__(self, *, operation_id: str, tables: Sequence[str] | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.tables = tables

    @for_mapped_tasks
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Look."""
        from catalog import Catalog

        to_count = []
        with catalog_errors(), Catalog.open() as catalog:
            names = [catalog.get_table(name).full_name for name in self.tables or ()]
            if not self.tables:
                names = [table.full_name for table in catalog.list_tables() if table.scheme is not None]
            for name in names:
                advice = _advice(catalog, name)
                self.log.info("%s: %s", name, _figures(advice))
                if advice.to_count:
                    request = {"table": name, "partition_ids": list(advice.to_count[:_COUNTED])}
                    to_count.append({"operation_id": f"{self.operation_id}/{name}", "request": request})
        context["ti"].xcom_push(key="tables", value=names)
        return to_count


class CountValuesOperator(SparkJobOperator):
    """Runs the Spark job that counts the values of some partitions of one table."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job=JOB, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Journal the count, and run it."""
        from catalog import Catalog
        from catalog.operations import OperationKind

        with catalog_errors(), Catalog.open() as catalog:
            catalog.operations.begin(
                self.operation_id,
                OperationKind.COUNT_VALUES,
                self.request["table"],
                {"partition_ids": list(self.request["partition_ids"])},
                requested_by=context["dag_run"].triggering_user_name,
            )
        super().execute(context)
        # What was counted is kept with the operation, and too much for an XCom.
        return {"operation_id": self.operation_id}

    def _existing_job(self, catalog: Catalog) -> tuple[int, JobProcess] | None:
        job = catalog.operations.get_job(self.operation_id, self.job)
        # What was counted before this task was cleared may not be so any more.
        return None if job is not None and job.state == "SUCCEEDED" else super()._existing_job(catalog)


class ProposeOperator(FormOperator):
    """Says what to do about the partitions of tables, in its log and as requests for the DAG `rebalance_partitions`.

    Args:
        operation_id: The run (templated).
        tables: The tables (templated); None when nobody has looked at them.
        dry_run_asked: Whether nothing shall be done, whatever the list allows (templated).

    Returns:
        The arguments of an `ApplyProposalOperator` for each proposal that the table's entry in the YAML list lets be
        done. Another XCom, `proposals`, has all: table, statement, reason, request, and the run that does it, if any.

    Raises:
        AirflowFailException: Nobody has looked at the tables.
    """

    template_fields: Sequence[str] = ("operation_id", "tables", "dry_run_asked")

    def __init__(self, *, operation_id: str, tables: Sequence[str] | None, dry_run_asked: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.tables = tables
        self.dry_run_asked = dry_run_asked

    @for_mapped_tasks
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Propose."""
        from catalog import Catalog
        from catalog.errors import NotFoundError
        from catalog.table_config import rebalance_rules

        if self.tables is None:
            raise AirflowFailException("no table was looked at; the log of `look` says why")
        proposals: list[dict[str, Any]] = []
        with catalog_errors(), Catalog.open() as catalog:
            for table in self.tables:
                try:
                    advice = _advice(catalog, table, f"{self.operation_id}/{table}")
                except NotFoundError:
                    self.log.info("%s was dropped meanwhile", table)
                    continue
                is_allowed = rebalance_rules(table).apply and not self.dry_run_asked
                for each in advice.as_json()["proposals"]:
                    self.log.info("%s: %s", each["statement"], each["reason"])
                    run_id = self._run_id(each["statement"]) if is_allowed else None
                    proposals.append({"table": table, **each, "run_id": run_id})
                if advice.to_count:
                    self.log.info("%s: partition(s) %s are not counted yet", table, advice.to_count)
        context["ti"].xcom_push(key="proposals", value=proposals)
        return [
            {
                "trigger_run_id": each["run_id"],
                "conf": {**each["request"], "dry_run": False},
                "note": f"{each['statement']}: {each['reason']}",
            }
            for each in proposals
            if each["run_id"] is not None
        ]

    def _run_id(self, statement: str) -> str:
        """Return the same id for the same proposal of a run, so that a retry starts nothing twice."""
        digest = hashlib.blake2b(f"{self.operation_id} {statement}".encode(), digest_size=12).hexdigest()
        return f"advised__{digest}"


class ApplyProposalOperator(TriggerDagRunOperator):
    """Runs `rebalance_partitions` with one proposal, and waits for its end; a retry takes up the same run.

    Nothing of it is a template: a bound that looks like a number would become one, and values of the data are nobody's
    code.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            trigger_dag_id=REBALANCE_DAG,
            logical_date=None,
            wait_for_completion=True,
            reset_dag_run=True,
            poke_interval=2,
            **kwargs,
        )

    def execute(self, context: Context) -> None:
        """Run it; never one that deletes rows, which nobody has proposed: users may write XComs."""
        if not isinstance(self.conf, dict) or self.conf.get("with_data"):
            raise AirflowFailException("a proposal deletes no rows; clear `propose`")
        super().execute(context)


class SummariseAdviceOperator(SummaryOperator):
    """Says what is proposed for each table, and what became of the proposals that were done; fails if one failed.

    Args:
        operation_id: The run (templated).
        planned: The XCom `proposals` of `ProposeOperator` (templated).
        counts: What `LookAtPartitionsOperator` returned (templated).
    """

    template_fields: Sequence[str] = (*SummaryOperator.template_fields, "counts")

    def __init__(self, *, counts: Sequence[Mapping[str, Any]] | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.counts = counts

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Look at the operations of the runs that were started, and of the counts."""
        found = [self._outcome(catalog, each) for each in self.planned]
        return found + [failed for each in self.counts or () if (failed := self._not_counted(catalog, each))]

    def _not_counted(self, catalog: Catalog, count: Mapping[str, Any]) -> Outcome | None:
        operation_id, table = count["operation_id"], count["request"]["table"]
        operation = catalog.operations.find(operation_id)
        job = operation and catalog.operations.get_job(operation_id, JOB)
        if job and job.state == "SUCCEEDED":
            return None
        reason = f"{job.error_class}: {job.error_message}" if job else "the log of its task says why"
        if operation:
            catalog.operations.fail(operation_id, "RUN_FAILED", reason)
        row = {"table": table, "proposal": None, "reason": reason, "outcome": "values not counted"}
        return Outcome(row, f"the values of {table} were not counted: {reason}")

    def _outcome(self, catalog: Catalog, proposal: Mapping[str, Any]) -> Outcome:
        row = {"table": proposal["table"], "proposal": proposal["statement"], "reason": proposal["reason"]}
        run_id = proposal["run_id"]
        if run_id is None:
            return Outcome({**row, "outcome": "proposed"})
        operation = catalog.operations.find(f"{REBALANCE_DAG}/{run_id}")
        if operation is not None and operation.is_committed:
            return Outcome({**row, "outcome": "done"})
        detail = operation.failure_detail if operation is not None else None
        reason = detail or f"the log of the run {run_id} of {REBALANCE_DAG} says why"
        return Outcome({**row, "outcome": "failed"}, f"{proposal['statement']} was not done: {reason}")


def _advice(catalog: Catalog, table: str, operation_id: str | None = None) -> Advice:
    """Return the advice for a table, with the values that an operation has counted, if it has."""
    from catalog.rebalancing.contents import ValueCount
    from catalog.table_config import rebalance_rules

    counts = {}
    if operation_id is not None and catalog.operations.find(operation_id) is not None:
        job = catalog.operations.get_job(operation_id, JOB)
        if job is not None and job.state == "SUCCEEDED":
            counts = {
                int(number): [ValueCount(*each) for each in found] for number, found in job.result["counts"].items()
            }
    return catalog.rebalancing.advise(table, rebalance_rules(table), counts)


def _figures(advice: Advice) -> str:
    figures = f"{advice.partition_count:,} partitions with {advice.file_count:,} files, {advice.total_bytes:,} bytes"
    if advice.skew is None:
        return figures
    return f"{figures}; the largest has {advice.skew:,} times the median of {advice.median_bytes:,} bytes"
