"""The steps of a load that need the catalog but no Spark, and those that decide after a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.assets import announce, announcement_batches
from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.forms import AS_LISTED
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.operators.approval import operation_of
from calve_airflow.operators.indexes import begin_build, current_index
from calve_airflow.operators.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog, PartitionIndex

OPERATION_ID = "{{ dag.dag_id }}/{{ run_id }}"
"""The id of a run's operation: a retry, and a cleared run, continue it."""

_WRITE = "write_partitions"


class DiscoverSourcesOperator(FormOperator):
    """Finds the source files that a table does not have yet, and journals the operation that loads them.

    What the form leaves open comes from the table's entry in the YAML list; a table that is in neither the list nor the
    catalog needs keys and a source. The form is read from the run's own parameters, because Airflow stores templated
    fields, and somebody may write a password into a source: `table`, and perhaps `source`, `source_format`, `keys`,
    `invalid_partitions`, `reload`, `dry_run`; None and `AS_LISTED` leave open.

    Args:
        operation_id: The operation to journal (templated).

    Returns:
        The number of new files. Other XComs: `table`, and `index_names`. What the load's later tasks are told is
        journaled with the operation: users may write XComs.

    Raises:
        AirflowSkipException: There is nothing new.
        AirflowFailException: The source is not there or has a password in it, a file changed after it was loaded, or
            the form contradicts itself.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> int:
        """Look for new files."""
        from catalog.settings.table_config import configured_load

        form = context["params"]
        with open_catalog() as catalog:
            said = {name: value for name, value in form.items() if value not in (None, AS_LISTED)}
            config = configured_load(said)
            dry_run = bool(form.get("dry_run"))
            files = catalog.loading.discover(
                self.operation_id,
                config.table,
                config.source,
                reload=bool(form.get("reload")),
                is_dry_run=dry_run,
                settings={
                    "request": {**config.job_request(), "dry_run": dry_run},
                    "quality": config.quality_request(),
                    "indexes": dict(config.indexes),
                },
                requested_by=context["dag_run"].triggering_user_name,
            )
        if not files:
            raise AirflowSkipException(f"{config.table} has every file of {config.source}; nothing to load")
        self.log.info("%d new file(s) for %s, the first is %s", len(files), config.table, files[0].path)
        for key, value in {"table": config.table, "index_names": list(config.indexes)}.items():
            context["ti"].xcom_push(key=key, value=value)
        return len(files)


class LoadJobOperator(SparkJobOperator):
    """Runs a Spark job of a load, as the load's operation has journaled it.

    Args:
        operation_id: The load (templated).
        setting: The part of the journaled settings that is the job's request.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, setting: str = "request", **kwargs: Any) -> None:
        super().__init__(request={}, **kwargs)
        self.setting = setting

    def execute(self, context: Context) -> dict[str, Any]:
        """Submit or join the job."""
        with open_catalog() as catalog:
            self.request = _settings(catalog, self.operation_id)[self.setting]
        return self._run(context)

    def _run(self, context: Context) -> dict[str, Any]:
        return super().execute(context)


class WritePartitionsOperator(LoadJobOperator):
    """Runs the Spark job that writes a load's data files, unless the run is a dry one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job=_WRITE, **kwargs)

    def _run(self, context: Context) -> dict[str, Any]:
        if self.request["dry_run"]:
            raise AirflowSkipException("dry run: nothing is written; the result of `validate` says what would be")
        return super()._run(context)


class RegisterPartitionsOperator(BaseOperator):
    """Makes a staged load visible: partitions, index items, and the note of its source files in one transaction.

    Args:
        operation_id: The load (templated).

    Returns:
        What was added and what was refused, as `Loading.publish`.

    Raises:
        AirflowFailException: Nothing is written yet; a partition exists, does not fit an index, or its folder holds
            foreign files.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the load, or return what an earlier try published."""
        from catalog import OnInvalid

        step = self.task_id
        with open_catalog() as catalog:
            operation = catalog.operations.get(self.operation_id)
            staged = operation.report.get(_WRITE)
            if staged is None:
                raise AirflowFailException(f"load {operation.id} has written no files yet; clear its task that writes")
            if operation.is_committed:
                # The try that committed may have died before it cleared up behind itself.
                return catalog.loading.publish(operation.id, step, 0, staged["staging"])
            settings = _settings(catalog, self.operation_id)
            is_skipping = settings["request"]["invalid_partitions"] == "skip"
            on_failure = settings["quality"]["rules"].get("on_failure")
            with catalog.operations.attempt(self.operation_id, step) as attempt:
                report = catalog.loading.publish(
                    self.operation_id,
                    step,
                    attempt,
                    staged["staging"],
                    on_invalid=OnInvalid.SKIP if is_skipping else OnInvalid.REFUSE,
                    is_quarantined=on_failure == "quarantine",
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
    """Creates the partition indexes that a loaded table shall have and does not.

    Args:
        operation_id: The load (templated).

    Returns:
        The names of those that have to be built.

    Raises:
        AirflowFailException: An index cannot be created like this.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    @for_mapped_tasks
    def execute(self, context: Context) -> list[str]:
        """Create what is missing."""
        from catalog import IndexState

        with open_catalog() as catalog:
            table = catalog.operations.get(self.operation_id).table
            wanted = _settings(catalog, self.operation_id)["indexes"]
            indexes = {name: _created(catalog, table, name, keys) for name, keys in wanted.items()}
        names = [name for name, index in indexes.items() if index.state is IndexState.CREATING]
        self.log.info("To build: %s", ", ".join(names) or "nothing")
        return names


class BuildLoadedIndexOperator(SparkJobOperator):
    """Builds one of the partition indexes that a loaded table shall have, in an operation of its own below the load's.

    Only the name comes from `CreateIndexesOperator`; the rest is what the run's load has journaled: users may write
    XComs.

    Args:
        index: One of its names; no template.

    Raises:
        AirflowFailException: The load is to have no such index, or it is not there any more.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, index: str, **kwargs: Any) -> None:
        super().__init__(job="build_partition_index", operation_id="", request={}, **kwargs)
        self.index = index

    def execute(self, context: Context) -> dict[str, Any]:
        """Journal the build, and submit or join the job."""
        from catalog.errors import WrongFieldError
        from catalog.settings.fields import text

        load = operation_of(context)
        with open_catalog() as catalog:
            name, wanted = text("index", self.index), _settings(catalog, load)["indexes"]
            if name not in wanted:
                known = ", ".join(wanted) or "none"
                raise WrongFieldError("index", f"load {load} is to have no index {name!r}, but {known}")
            table = catalog.operations.get(load).table
            index = catalog.get_partition_index(table, name)
            self.request = {"table": table, "index": index.name}
            self.operation_id = begin_build(catalog, context, table, index)
        return super().execute(context)


class CheckQualityOperator(LoadJobOperator):
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
        from catalog import PartitionState

        with open_catalog() as catalog:
            table = catalog.get_table(catalog.operations.get(self.operation_id).table)
            return announcement_batches(
                partition.name(table)
                for partition in catalog.operation_partitions(self.operation_id)
                if partition.state is PartitionState.VISIBLE
            )


class AnnouncePartitionsOperator(BaseOperator):
    """Emits an event of the table's asset for each new partition, so that other DAGs run once for each.

    Args:
        operation_id: The load (templated).
        partitions: One of the lists of `NewPartitionsOperator` (templated).
    """

    template_fields: Sequence[str] = ("operation_id", "partitions")

    def __init__(self, *, operation_id: str, partitions: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id
        self.partitions = partitions

    def execute(self, context: Context) -> int:
        """Return the number of partitions announced."""
        with open_catalog() as catalog:
            table = catalog.operations.get(self.operation_id).table
        announce(context, table, self.partitions)
        return len(self.partitions)


def _settings(catalog: Catalog, operation_id: str) -> dict[str, Any]:
    """Return what the tasks of a load are told (`DiscoverSourcesOperator`).

    Raises:
        AirflowFailException: The load was begun by a version that did not journal it.
    """
    settings = catalog.loading.settings_of(operation_id)
    if not settings:
        raise AirflowFailException(
            f"load {operation_id} was begun by an earlier version, which kept its settings elsewhere; start the DAG "
            "again"
        )
    return settings


def _created(catalog: Catalog, table: str, name: str, keys: Sequence[str]) -> PartitionIndex:
    """Return an index; create it unless it is there."""
    from catalog import IndexState

    current = current_index(catalog, table, name)
    if current is None or current.state is IndexState.FAILED:
        return catalog.create_partition_index(table, name, keys)
    return current


def give_up_operation(context: Context) -> None:
    """Mark the operation of a failed run as FAILED, so that it no longer holds its table. For `on_failure_callback`."""
    from catalog import Catalog

    run = context["dag_run"]
    with Catalog.open() as catalog:
        operation = catalog.operations.find(f"{run.dag_id}/{run.run_id}")
        if operation is not None:
            reason = context.get("exception") or f"the run {run.run_id} of {run.dag_id} failed"
            catalog.operations.fail(operation.id, "RUN_FAILED", str(reason))
