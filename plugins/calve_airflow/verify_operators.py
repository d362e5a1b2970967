"""The items of many partition indexes: compared with the partitions, repaired, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.errors import catalog_errors
from calve_airflow.form_operator import FormOperator
from calve_airflow.job_process import JobProcess
from calve_airflow.spark_job import SparkJobOperator
from calve_airflow.summary import Outcome, SummaryOperator
from calve_airflow.templates import for_mapped_tasks

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog

JOB = "verify_partition_index"


class PlanVerificationOperator(FormOperator):
    """Finds the ACTIVE partition indexes of tables.

    Args:
        operation_id: The run (templated); each verification is an operation of its own below it.
        tables: `database.table` of those that are meant (templated); None or none for all.
        repair: Whether to repair what differs (templated).

    Returns:
        The arguments of a `VerifyIndexOperator` for each index.

    Raises:
        AirflowFailException: There is no such table.
    """

    template_fields: Sequence[str] = ("operation_id", "tables", "repair")

    def __init__(self, *, operation_id: str, tables: Sequence[str] | None, repair: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.tables = tables
        self.repair = repair

    @for_mapped_tasks
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """List the indexes."""
        from catalog import Catalog, IndexState

        with catalog_errors(), Catalog.open() as catalog:
            tables = [catalog.get_table(name) for name in self.tables] if self.tables else catalog.list_tables()
            found = [
                (table.full_name, index.name)
                for table in tables
                if not table.is_iceberg
                for index in catalog.get_partition_indexes(table.full_name)
                if index.state is IndexState.ACTIVE
            ]
        self.log.info("%d ACTIVE partition index(es) of %d table(s)", len(found), len(tables))
        return [
            {
                "operation_id": f"{self.operation_id}/{table}/{index}",
                "request": {"table": table, "index": index, "repair": self.repair},
            }
            for table, index in found
        ]


class VerifyIndexOperator(SparkJobOperator):
    """Runs the Spark job that compares one partition index with its table, and fails when they differ now.

    Raises:
        AirflowSkipException: The index is not ACTIVE any more, so there is nothing to compare.
        AirflowFailException: They differ, and were not repaired.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job=JOB, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Journal the verification, run it, and judge."""
        from catalog import Catalog
        from catalog.operations import OperationKind

        table, index = self.request["table"], self.request["index"]
        with catalog_errors(), Catalog.open() as catalog:
            if not _is_active(catalog, table, index):
                raise AirflowSkipException(f"partition index {index} of {table} is not ACTIVE any more")
            catalog.operations.begin(
                self.operation_id,
                OperationKind.VERIFY_INDEX,
                table,
                {"index": index, "repair": self.request["repair"]},
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
        return [self._outcome(catalog, each["operation_id"], each["request"]) for each in self.planned]

    def _outcome(self, catalog: Catalog, operation_id: str, request: dict[str, Any]) -> Outcome:
        table, index = request["table"], request["index"]
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


def _is_active(catalog: Catalog, table: str, index: str) -> bool:
    from catalog.errors import NotFoundError
    from catalog.model import IndexState

    try:
        return catalog.get_partition_index(table, index).state is IndexState.ACTIVE
    except NotFoundError:
        return False
