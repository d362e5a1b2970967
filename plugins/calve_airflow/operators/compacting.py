"""Operators that compact the small files of partitions, by the policies of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from calve_airflow.batches import Batch, in_batches
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
    from catalog.settings.compaction_rules import CompactionRules

JOB = "compact_partitions"
"""The job, and the step of its operation."""
PLANNED = "planned"
"""The XCom in which the task `plan` tells what is planned for each table."""

_MAINTAIN = "maintain_iceberg"
_SHOWN = 20


class PlanCompactionOperator(FormOperator):
    """Task that finds the partitions with small files, by the counts in the catalog; changes nothing.

    Reads `tables` and `dry_run` from the run's form. Without tables, these are all that have a policy. The partitions
    to compact are journaled, one operation for each table, and are no XCom, because users may write XComs. The journal
    also keeps the plans of a dry run, for Calve's pages.

    Returns:
        The tables to compact, each as `table`, in batches; none in a dry run. Another XCom, `planned`, has all tables:
        `table`, `text`, and `failure` (why a table that the form names cannot be compacted).

    Raises:
        AirflowFailException: The list of tables cannot be read.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[Batch]:
        """Make the plans."""
        from catalog.maintenance.compaction import policies
        from catalog.settings.compaction_rules import CompactionRules
        from catalog.settings.fields import flag, texts

        rules = policies()
        requested = texts("tables", context["params"]["tables"])
        is_dry_run = flag("dry_run", context["params"]["dry_run"])
        planned: list[dict[str, Any]] = []
        chosen: list[dict[str, str]] = []
        with open_catalog() as catalog:
            known = {table.full_name: table for table in catalog.list_tables()}
            for name in dict.fromkeys(map(_full_name, requested)) if requested else rules:
                if name not in known:
                    failure = "the table does not exist" if requested else None
                    planned.append({"table": name, "text": "the table does not exist yet", "failure": failure})
                    continue
                text, is_work = self._plan(catalog, context, name, rules.get(name, CompactionRules()), is_dry_run)
                failure = text if requested and text.startswith(_REFUSED) else None
                planned.append({"table": name, "text": text, "failure": failure})
                if is_work and not is_dry_run:
                    chosen.append({"table": name})
        for plan in planned:
            self.log.info("%s: %s", plan["table"], plan["text"])
        context["ti"].xcom_push(key=PLANNED, value=planned)
        return in_batches(chosen)

    def _plan(
        self, catalog: Catalog, context: Context, name: str, rules: CompactionRules, is_dry_run: bool
    ) -> tuple[str, bool]:
        """Return what is planned for a table, and whether there is anything to do; journal it."""
        from catalog.errors import UnsupportedChangeError
        from catalog.operations.dry_runs import keep_plan
        from catalog.operations.records import OperationKind

        user, kind = context["dag_run"].triggering_user_name, OperationKind.COMPACT_PARTITIONS
        shown: dict[str, Any] = {}
        table = catalog.get_table(name)
        if table.is_iceberg:
            request: dict[str, Any] = {"statements": _statements(name, rules), "target_bytes": rules.target_file_size}
            text = "an Iceberg table, which Iceberg's rewrite_data_files compacts"
            shown = {"statement": ";\n".join(request["statements"])}
        else:
            try:
                plan = catalog.maintenance.plan_compaction(name, rules)
            except UnsupportedChangeError as error:
                return f"{_REFUSED}: {error}", False
            text = "; ".join(plan.lines())
            request = {
                "partitions": [[partition.id, partition.size_bytes] for partition in plan.partitions],
                "target_bytes": plan.target_bytes,
            }
            for partition in plan.partitions[:_SHOWN]:
                self.log.info("  %s: %d files, %d bytes", partition.name, partition.file_count, partition.size_bytes)
            if not plan.partitions:
                return text, False
            shown = plan.as_json()
        if is_dry_run:
            keep_plan(catalog.operations, _operation_id(context, name), kind, name, shown, requested_by=user)
        else:
            catalog.operations.begin(_operation_id(context, name), kind, name, request, requested_by=user)
        return text, True


class CompactPartitionsOperator(SparkJobOperator):
    """Task that compacts the planned partitions of one table as a Spark job; Iceberg tables by Iceberg's procedure.

    Only the table comes from `PlanCompactionOperator`; the rest comes from the journal. The table's entry in the YAML
    list gives the Spark configuration.

    Args:
        table: `database.table`; no template.

    Returns:
        `partitions`, `files_before`, `files` and `bytes`, and `skipped`: the operation that holds the table, if any.

    Raises:
        AirflowSkipException: Another operation holds the table.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job=JOB, operation_id="", request={}, **kwargs)
        self.table = table

    def prepare(self, context: Context, catalog: Catalog) -> None:
        """Request the job of the operation that `PlanCompactionOperator` journaled."""
        from catalog.errors import OperationConflictError
        from catalog.iceberg.jdbc import EXTENSIONS
        from catalog.settings.environment import package_settings
        from catalog.settings.fields import text
        from catalog.settings.table_config import read_table_list

        operation = catalog.operations.get(_operation_id(context, _full_name(text("table", self.table))))
        table = catalog.get_table(operation.table)
        self.operation_id, self.request = operation.id, {"table": table.full_name}
        entry = read_table_list(is_needed=lambda name: name == table.full_name).configs.get(table.full_name)
        conf = dict(entry.spark) if entry else {}
        if table.is_iceberg:
            self.job = self.step = _MAINTAIN
            self.request = {**self.request, "statements": operation.request.get("statements", [])}
            packages = package_settings(database=catalog.storage.url.get_backend_name())
            conf = {**EXTENSIONS, **packages, **conf}
        elif table.needs_packages:
            conf = {**package_settings(avro=True), **conf}
        self.conf = {**(self.conf or {}), **conf}
        self.conn_id = (entry.connection if entry else "") or self.conn_id
        if catalog.operations.get_job(operation.id, self.step) is None:
            try:
                with catalog.storage.read() as connection:
                    catalog.operations.refuse_if_held(connection, table.full_name)
            except OperationConflictError as conflict:
                raise AirflowSkipException(str(conflict)) from None

    def finish(self, context: Context, catalog: Catalog, result: Mapping[str, Any]) -> dict[str, Any]:
        """Log and return what was compacted."""
        report = _of_procedure(result) if "answers" in result else dict(result)
        self.log.info("%s: %s", self.request["table"], _text(report))
        if report["skipped"]:
            self.log.warning("%s: the other partitions are left to the next run: %s", self.table, report["skipped"])
        return report

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return True: a cleared task does not compact again what its run has compacted."""
        return True


class CompactTablesOperator(BatchOperator, CompactPartitionsOperator):
    """Task that compacts the partitions of a batch of tables, one after the other."""


class SummariseCompactionOperator(SummaryOperator):
    """Task that reports what was compacted in each table; fails if a table could not be compacted.

    Args:
        operation_id: The run (templated).
        planned: The XCom `planned` of `PlanCompactionOperator` (templated).
    """

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcome of each table, from the journal."""
        return [self._outcome(catalog, context, plan) for plan in self.planned]

    def _outcome(self, catalog: Catalog, context: Context, plan: Mapping[str, Any]) -> Outcome:
        from catalog.operations.dry_runs import plan_of

        table, text = plan["table"], plan["text"]
        row = {"table": table, "planned": text}
        if plan["failure"]:
            return Outcome({**row, "outcome": "failed"}, f"{table}: {plan['failure']}")
        operation = catalog.operations.find(_operation_id(context, table))
        if operation is None or plan_of(operation) is not None:
            return Outcome({**row, "outcome": "planned only" if context["params"]["dry_run"] else "nothing to do"})
        step = _MAINTAIN if "statements" in operation.request else JOB
        job = catalog.operations.get_job(operation.id, step)
        if job is None:
            reason = "skipped, because another operation held the table"
            catalog.operations.fail(operation.id, "SKIPPED", reason)
            return Outcome({**row, "outcome": reason})
        if job.state != "SUCCEEDED":
            reason = f"{job.error_class}: {job.error_message}"
            catalog.operations.fail(operation.id, "RUN_FAILED", reason)
            return Outcome({**row, "outcome": "failed"}, f"{table}: {reason}")
        report = _of_procedure(job.result) if "answers" in job.result else job.result
        left = "; the others are left, because another operation held the table" if report["skipped"] else ""
        return Outcome({**row, "outcome": f"{_text(report)}{left}"})


_REFUSED = "cannot be compacted"


def _statements(table: str, rules: CompactionRules) -> list[str]:
    from datetime import UTC, datetime

    from catalog.maintenance.iceberg_upkeep import TableMaintenance

    target = None if rules.target_file_size is None else max(1, rules.target_file_size // 2**20)
    upkeep = TableMaintenance((table,), target_file_mib=target, expire_snapshots=False, dry_run=False)
    return list(upkeep.statements(table, datetime.now(UTC)))


def _of_procedure(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report for the answers of rewrite_data_files."""
    rows = [row for answer in result["answers"] for row in answer["rows"]]
    before, after, size = (
        sum(row.get(name) or 0 for row in rows)
        for name in ("rewritten_data_files_count", "added_data_files_count", "rewritten_bytes_count")
    )
    return {"partitions": None, "files_before": before, "files": after, "bytes": size, "skipped": None}


def _text(report: Mapping[str, Any]) -> str:
    of_partitions = "" if report["partitions"] is None else f" of {report['partitions']:,} partition(s)"
    return f"{report['files_before']:,} file(s){of_partitions} became {report['files']:,}"


def _full_name(name: str) -> str:
    from catalog.model.identifiers import TableName

    return str(TableName.parse(name))


def _operation_id(context: Context, table: str) -> str:
    return f"{operation_of(context)}/{table}"
