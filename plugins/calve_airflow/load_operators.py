"""The steps of a load that need the catalog but no Spark, and those that decide after a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.assets import announce, announcement_batches
from calve_airflow.errors import catalog_errors
from calve_airflow.form_operator import FormOperator
from calve_airflow.forms import AS_LISTED
from calve_airflow.index_operators import build_operation_id, current_index
from calve_airflow.spark_job import SparkJobOperator
from calve_airflow.templates import for_mapped_tasks

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog, PartitionIndex

OPERATION_ID = "{{ dag.dag_id }}/{{ run_id }}"
"""The id of a run's operation: a retry, and a cleared run, continue it."""


class DiscoverSourcesOperator(FormOperator):
    """Finds the source files that a table does not have yet, and journals the operation that loads them.

    What the form leaves open comes from the table's entry in the YAML list; a table that is in neither the list nor the
    catalog needs keys and a source. The form is read from the run's own parameters, because Airflow stores templated
    fields, and somebody may write a password into a source: `table`, and perhaps `source`, `source_format`, `keys`,
    `invalid_partitions`, `reload`, `dry_run`; None and `AS_LISTED` leave open.

    Args:
        operation_id: The operation to journal (templated).

    Returns:
        The request of the load's Spark jobs. Other XComs: `table`, `indexes` (name → keys), `index_names`, and
        `quality` (the request of the quality job).

    Raises:
        AirflowSkipException: There is nothing new.
        AirflowFailException: The source is not there or has a password in it, a file changed after it was loaded, or
            the form contradicts itself.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Look for new files."""
        from catalog import Catalog
        from catalog.table_config import configured_load

        form = context["params"]
        with catalog_errors(), Catalog.open() as catalog:
            said = {name: value for name, value in form.items() if value not in (None, AS_LISTED)}
            config = configured_load(said)
            dry_run = bool(form.get("dry_run"))
            files = catalog.loading.discover(
                self.operation_id,
                config.table,
                config.source,
                reload=bool(form.get("reload")),
                is_dry_run=dry_run,
                requested_by=context["dag_run"].triggering_user_name,
            )
        if not files:
            raise AirflowSkipException(f"{config.table} has every file of {config.source}; nothing to load")
        self.log.info("%d new file(s) for %s, the first is %s", len(files), config.table, files[0].path)
        xcoms = {
            "table": config.table,
            "indexes": config.indexes,
            "index_names": list(config.indexes),
            "quality": config.quality_request(),
        }
        for key, value in xcoms.items():
            context["ti"].xcom_push(key=key, value=value)
        return {**config.job_request(), "dry_run": dry_run}


class WritePartitionsOperator(SparkJobOperator):
    """Runs the Spark job that writes a load's data files, unless the run is a dry one."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Skip the rest of a dry run, or write."""
        if self.request.get("dry_run"):
            raise AirflowSkipException("dry run: nothing is written; the result of `validate` says what would be")
        return super().execute(context)


class RegisterPartitionsOperator(BaseOperator):
    """Makes a staged load visible: partitions, index items, and the note of its source files in one transaction.

    Args:
        operation_id: The load (templated).
        staged: What the Spark job that wrote the files returned (templated).
        request: The load's request (templated); `invalid_partitions` counts.
        quality: The load's quality rules (templated): with `quarantine`, the partitions stay invisible for now.

    Returns:
        What was added and what was refused, as `Loading.publish`.

    Raises:
        AirflowFailException: A partition exists, does not fit an index, or its folder holds foreign files.
    """

    template_fields: Sequence[str] = ("operation_id", "staged", "request", "quality")

    def __init__(
        self,
        *,
        operation_id: str,
        staged: Mapping[str, Any],
        request: Mapping[str, Any],
        quality: Mapping[str, Any],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.staged = staged
        self.request = request
        self.quality = quality

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the load, or return what an earlier try published."""
        from catalog import Catalog, OnInvalid

        step = self.task_id
        with catalog_errors(), Catalog.open() as catalog:
            if catalog.operations.get(self.operation_id).is_committed:
                # The try that committed may have died before it cleared up behind itself.
                return catalog.loading.publish(self.operation_id, step, 0, self.staged["staging"])
            with catalog.operations.attempt(self.operation_id, step) as attempt:
                report = catalog.loading.publish(
                    self.operation_id,
                    step,
                    attempt,
                    self.staged["staging"],
                    on_invalid=OnInvalid.SKIP if self.request["invalid_partitions"] == "skip" else OnInvalid.REFUSE,
                    is_quarantined=self.quality["rules"].get("on_failure") == "quarantine",
                )
        self.log.info("Added %(partitions)d partitions with %(row_count)d rows in %(file_count)d files", report)
        if report["refused"]:
            self.log.warning(
                "%d partitions with %d rows do not fit an index and are kept in %s: %s",
                report["refused"],
                report["refused_rows"],
                report["refused_folder"],
                "; ".join(report["refused_reasons"]),
            )
        return report


class CreateIndexesOperator(BaseOperator):
    """Creates the partition indexes that a table shall have and does not.

    Args:
        operation_id: The operation that needs them (templated); each build is an operation of its own below it.
        table: `database.table` (templated).
        indexes: Name → keys (templated).

    Returns:
        The arguments of a `SparkJobOperator` for each one that has to be built.

    Raises:
        AirflowFailException: An index cannot be created like this.
    """

    template_fields: Sequence[str] = ("operation_id", "table", "indexes")

    def __init__(self, *, operation_id: str, table: str, indexes: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.table = table
        self.indexes = indexes

    @for_mapped_tasks
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Create what is missing."""
        from catalog import Catalog, IndexState

        with catalog_errors(), Catalog.open() as catalog:
            indexes = [self._created(catalog, name, keys) for name, keys in self.indexes.items()]
            builds = [self._build(catalog, index) for index in indexes if index.state is IndexState.CREATING]
        self.log.info("To build: %s", ", ".join(each["request"]["index"] for each in builds) or "nothing")
        return builds

    def _created(self, catalog: Catalog, name: str, keys: Sequence[str]) -> PartitionIndex:
        """Return an index; create it unless it is there."""
        from catalog import IndexState

        current = current_index(catalog, self.table, name)
        if current is None or current.state is IndexState.FAILED:
            return catalog.create_partition_index(self.table, name, keys)
        return current

    def _build(self, catalog: Catalog, index: PartitionIndex) -> dict[str, Any]:
        from catalog.operations import OperationKind

        operation_id = build_operation_id(self.operation_id, self.table, index)
        request = {"table": self.table, "index": index.name}
        catalog.operations.begin(operation_id, OperationKind.BUILD_INDEX, self.table, request)
        return {"operation_id": operation_id, "request": request}


class CheckQualityOperator(SparkJobOperator):
    """Runs the Spark job that checks new partitions, and acts on its verdict as the table's entry says."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Check; with `on_failure: fail`, a partition that did not pass fails the task for good."""
        report = super().execute(context)
        on_failure = self.request["rules"].get("on_failure", "warn")
        if report["failed"]:
            message = (
                f"{report['failed']} of {report['checked']} new partitions of {self.request['table']} failed their "
                f"quality checks: {'; '.join(map(str, report['failures']))}. The report is {report['docs_path']}"
            )
            if on_failure == "fail":
                raise AirflowFailException(message)
            self.log.warning("%s", message)
        return report


class NewPartitionsOperator(BaseOperator):
    """Lists the visible partitions that an operation added, in batches that `AnnouncePartitionsOperator` takes."""

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    @for_mapped_tasks
    def execute(self, context: Context) -> list[list[str]]:
        """Return lists of partition names."""
        from catalog import Catalog, PartitionState

        with catalog_errors(), Catalog.open() as catalog:
            table = catalog.get_table(catalog.operations.get(self.operation_id).table)
            return announcement_batches(
                partition.name(table)
                for partition in catalog.operation_partitions(self.operation_id)
                if partition.state is PartitionState.VISIBLE
            )


class AnnouncePartitionsOperator(BaseOperator):
    """Emits an event of the table's asset for each new partition, so that other DAGs run once for each.

    Args:
        table: `database.table` (templated).
        partitions: One of the lists of `NewPartitionsOperator` (templated).
    """

    template_fields: Sequence[str] = ("table", "partitions")

    def __init__(self, *, table: str, partitions: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.partitions = partitions

    def execute(self, context: Context) -> int:
        """Return the number of partitions announced."""
        announce(context, self.table, self.partitions)
        return len(self.partitions)


def give_up_operation(context: Context) -> None:
    """Mark the operation of a failed run as FAILED, so that it no longer holds its table. For `on_failure_callback`."""
    from catalog import Catalog

    run = context["dag_run"]
    with Catalog.open() as catalog:
        operation = catalog.operations.find(f"{run.dag_id}/{run.run_id}")
        if operation is not None:
            reason = context.get("exception") or f"the run {run.run_id} of {run.dag_id} failed"
            catalog.operations.fail(operation.id, "RUN_FAILED", str(reason))
