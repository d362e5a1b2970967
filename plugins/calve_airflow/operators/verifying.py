"""Operators that compare partition indexes with their tables, repair them, and report the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.batches import Batch, all_items, in_batches
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

JOB = "verify_partition_index"


class PlanVerificationOperator(FormOperator):
    """Task that finds the ACTIVE partition indexes of the tables in the run's form: `tables`, none for all.

    Returns:
        `table` and `index` of each index, in batches.

    Raises:
        AirflowFailException: A table does not exist.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[Batch]:
        """List the indexes."""
        from catalog import IndexState

        with open_catalog() as catalog:
            names = _tables(context)
            tables = [catalog.get_table(name) for name in names] if names else catalog.list_tables()
            indexes = [
                (table.full_name, index.name)
                for table in tables
                if not table.is_iceberg
                for index in catalog.get_partition_indexes(table.full_name)
                if index.state is IndexState.ACTIVE
            ]
        self.log.info("Found %d ACTIVE partition index(es) of %d table(s)", len(indexes), len(tables))
        return in_batches([{"table": table, "index": index} for table, index in indexes])


class VerifyIndexOperator(SparkJobOperator):
    """Task that runs the Spark job that compares one partition index with its table; fails if they still differ.

    The run's form says whether it repairs differences, because users may write XComs.

    Args:
        table: `database.table`; no template.
        index: One of its indexes; no template.

    Raises:
        AirflowSkipException: The index is no longer ACTIVE, so there is nothing to compare.
        AirflowFailException: The form does not select the table; or the index differs and was not repaired.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, table: str, index: str, **kwargs: Any) -> None:
        super().__init__(job=JOB, operation_id="", request={}, **kwargs)
        self.table = table
        self.index = index

    def prepare(self, context: Context, catalog: Catalog) -> None:
        """Journal the verification."""
        from catalog.operations.records import OperationKind
        from catalog.settings.fields import text
        from catalog.tables.patterns import require_meant

        table, index = text("table", self.table), text("index", self.index)
        if names := _tables(context):
            require_meant(table, names, "tables")
        if not _is_active(catalog, table, index):
            raise AirflowSkipException(f"partition index {index} of {table} is no longer ACTIVE")
        request = {"index": index, "repair": bool(context["params"]["repair"])}
        self.request = {"table": table, **request}
        self.operation_id = f"{operation_of(context)}/{table}/{index}"
        catalog.operations.begin(
            self.operation_id,
            OperationKind.VERIFY_INDEX,
            table,
            request,
            requested_by=context["dag_run"].triggering_user_name,
        )

    def finish(self, context: Context, catalog: Catalog, result: Mapping[str, Any]) -> dict[str, Any]:
        """Log the result, and fail the task if the index differs."""
        if not result["is_exact"]:
            raise AirflowFailException(result["message"])
        self.log.info("%s", result["message"])
        return dict(result)

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return False, because a result from before this task was cleared may be out of date."""
        return False


class VerifyIndexesOperator(BatchOperator, VerifyIndexOperator):
    """Task that verifies a batch of indexes, one after the other."""

    item_fields = ("table", "index")


class SummariseVerificationOperator(SummaryOperator):
    """Task that reports the verification of each index; fails if one differs or was not verified.

    Args:
        operation_id: The run (templated).
        planned: What `PlanVerificationOperator` returned (templated).
    """

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcomes from the operations, where the jobs recorded their results."""
        return [self._outcome(catalog, planned["table"], planned["index"]) for planned in all_items(self.planned)]

    def _outcome(self, catalog: Catalog, table: str, index: str) -> Outcome:
        operation_id = f"{self.operation_id}/{table}/{index}"
        operation = catalog.operations.find(operation_id)
        job = operation and catalog.operations.get_job(operation_id, JOB)
        if job and job.state == "SUCCEEDED":
            result = job.result
            verdict = ("repaired" if any(result["counts"].values()) else "exact") if result["is_exact"] else "DIFFERS"
            counts = {"partitions": result["partition_count"], "items": result["item_count"], **result["counts"]}
            row = {"table": table, "index": index, "outcome": verdict, **counts, "repaired": result["repaired"]}
            return Outcome(row, None if result["is_exact"] else result["message"])
        if not _is_active(catalog, table, index):
            return Outcome({"table": table, "index": index, "outcome": "no longer ACTIVE"})
        reason = f"{job.error_class}: {job.error_message}" if job else "see the log of its task"
        if operation:
            catalog.operations.fail(operation_id, "RUN_FAILED", reason)
        return Outcome(
            {"table": table, "index": index, "outcome": "not verified"},
            f"partition index {index} of {table} was not verified: {reason}",
        )


def _tables(context: Context) -> Sequence[str]:
    """Return the names of the tables that a run's form selects; none for all."""
    from catalog.settings.fields import texts

    return texts("tables", context["params"]["tables"])


def _is_active(catalog: Catalog, table: str, index: str) -> bool:
    from catalog.errors import NotFoundError
    from catalog.model import IndexState

    try:
        return catalog.get_partition_index(table, index).state is IndexState.ACTIVE
    except NotFoundError:
        return False
