"""The items of many partition indexes: compared with the partitions, repaired, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.operators.approval import operation_of
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.summary import Outcome, SummaryOperator
from calve_airflow.submitting.job_process import JobProcess

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog

JOB = "verify_partition_index"


class PlanVerificationOperator(FormOperator):
    """Finds the ACTIVE partition indexes of the tables that the run's form means: `tables`, none for all.

    Returns:
        `table` and `index` of each.

    Raises:
        AirflowFailException: There is no such table.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[dict[str, str]]:
        """List the indexes."""
        from catalog import IndexState

        with open_catalog() as catalog:
            names = _tables(context)
            tables = [catalog.get_table(name) for name in names] if names else catalog.list_tables()
            found = [
                (table.full_name, index.name)
                for table in tables
                if not table.is_iceberg
                for index in catalog.get_partition_indexes(table.full_name)
                if index.state is IndexState.ACTIVE
            ]
        self.log.info("%d ACTIVE partition index(es) of %d table(s)", len(found), len(tables))
        return [{"table": table, "index": index} for table, index in found]


class VerifyIndexOperator(SparkJobOperator):
    """Runs the Spark job that compares one partition index with its table, and fails when they differ now.

    Whether it repairs what differs, says the run's form: users may write XComs.

    Args:
        table: `database.table`; no template.
        index: One of its indexes; no template.

    Raises:
        AirflowSkipException: The index is not ACTIVE any more, so there is nothing to compare.
        AirflowFailException: The form does not mean the table; or they differ, and were not repaired.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, table: str, index: str, **kwargs: Any) -> None:
        super().__init__(job=JOB, operation_id="", request={}, **kwargs)
        self.table = table
        self.index = index

    def execute(self, context: Context) -> dict[str, Any]:
        """Journal the verification, run it, and judge."""
        from catalog.operations.records import OperationKind
        from catalog.settings.fields import text
        from catalog.tables.patterns import require_meant

        with open_catalog() as catalog:
            table, index = text("table", self.table), text("index", self.index)
            if names := _tables(context):
                require_meant(table, names, "tables")
            if not _is_active(catalog, table, index):
                raise AirflowSkipException(f"partition index {index} of {table} is not ACTIVE any more")
            asked = {"index": index, "repair": bool(context["params"]["repair"])}
            self.request = {"table": table, **asked}
            self.operation_id = f"{operation_of(context)}/{table}/{index}"
            catalog.operations.begin(
                self.operation_id,
                OperationKind.VERIFY_INDEX,
                table,
                asked,
                requested_by=context["dag_run"].triggering_user_name,
            )
        result = super().execute(context)
        if not result["is_exact"]:
            raise AirflowFailException(result["message"])
        self.log.info("%s", result["message"])
        return result

    def _existing_job(self, catalog: Catalog) -> tuple[int, JobProcess] | None:
        job = catalog.operations.get_job(self.operation_id, self.job)
        # What a job found before this task was cleared may not be so any more.
        return None if job is not None and job.state == "SUCCEEDED" else super()._existing_job(catalog)


class SummariseVerificationOperator(SummaryOperator):
    """Says what the verification of each index found; fails if one differs, or was not verified.

    Args:
        operation_id: The run (templated).
        planned: What `PlanVerificationOperator` returned (templated).
    """

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Look at the operations, where the jobs have recorded what they found."""
        return [self._outcome(catalog, each["table"], each["index"]) for each in self.planned]

    def _outcome(self, catalog: Catalog, table: str, index: str) -> Outcome:
        operation_id = f"{self.operation_id}/{table}/{index}"
        operation = catalog.operations.find(operation_id)
        job = operation and catalog.operations.get_job(operation_id, JOB)
        if job and job.state == "SUCCEEDED":
            found = job.result
            verdict = ("repaired" if any(found["counts"].values()) else "exact") if found["is_exact"] else "DIFFERS"
            read = {"partitions": found["partition_count"], "items": found["item_count"], **found["counts"]}
            row = {"table": table, "index": index, "outcome": verdict, **read, "repaired": found["repaired"]}
            return Outcome(row, None if found["is_exact"] else found["message"])
        if not _is_active(catalog, table, index):
            return Outcome({"table": table, "index": index, "outcome": "not ACTIVE any more"})
        reason = f"{job.error_class}: {job.error_message}" if job else "the log of its task says why"
        if operation:
            catalog.operations.fail(operation_id, "RUN_FAILED", reason)
        return Outcome(
            {"table": table, "index": index, "outcome": "not verified"},
            f"partition index {index} of {table} was not verified: {reason}",
        )


def _tables(context: Context) -> Sequence[str]:
    """Return the names of the tables that a run's form means; none for all."""
    from catalog.settings.fields import texts

    return texts("tables", context["params"]["tables"])


def _is_active(catalog: Catalog, table: str, index: str) -> bool:
    from catalog.errors import NotFoundError
    from catalog.model import IndexState

    try:
        return catalog.get_partition_index(table, index).state is IndexState.ACTIVE
    except NotFoundError:
        return False
