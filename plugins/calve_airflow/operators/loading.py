"""Operators for the steps of a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.fields import AS_LISTED
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks, naming_templates, render_source
from calve_airflow.lineage import LineageOperator, source_datasets, table_dataset
from calve_airflow.metrics import Metric, count
from calve_airflow.notifying import notify
from calve_airflow.operators.approval import operation_of
from calve_airflow.operators.indexes import begin_build, current_index
from calve_airflow.operators.spark_job import SparkJobOperator
from catalog.settings.notify_rules import NotifyEvent
from catalog.settings.quality_rules import OnFailure

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog, PartitionIndex
    from catalog.operations.records import Operation

OPERATION_ID = "{{ dag.dag_id }}/{{ run_id }}"
"""The id of a run's operation; a retry or a cleared run continues the operation."""

CREATE_INDEXES = "create_indexes"
"""The task that creates the indexes of a loaded table."""

QUARANTINED = "quarantined"
"""The task that shows by its state that partitions of a load are quarantined."""

_SHOWN = 20


class DiscoverSourcesOperator(FormOperator):
    """Task that finds the source files that a table does not have yet, and journals the operation that loads them.

    Reads `table` and optionally `source`, `source_format`, `keys`, `contract_columns`, `contract_types`, `bad_files`,
    `invalid_partitions`, `null_keys`, `mode`, `spark_conf`, `reload` and `dry_run` from the run's parameters and not
    from templated fields: Airflow stores rendered fields, and a source may contain a password. Fields that are None or
    `AS_LISTED` come from the table's entry in the YAML list; a table that is in neither the list nor the catalog needs
    keys and a source.

    Args:
        operation_id: The operation to journal (templated).

    Returns:
        The number of new files. Other XComs: `table` and `index_names`. The settings for the load's later tasks are
        journaled with the operation, because users may write XComs.

    Raises:
        AirflowSkipException: There are no new files.
        AirflowFailException: The source does not exist or contains a password, a file changed after it was loaded, or
            the form contradicts itself.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> int:
        """Find the new files and journal the operation."""
        from catalog import LoadMode
        from catalog.operations.changes import ANNOUNCES
        from catalog.settings.table_config import configured_load

        form = context["params"]
        with open_catalog() as catalog:
            given_fields = {name: value for name, value in form.items() if value not in (None, AS_LISTED)}
            config = configured_load(given_fields)
            # Only the entry is a template, because a string from a form would run with the rights of the worker.
            source = config.source if "source" in given_fields else render_source(config.source, context)
            dry_run = bool(form.get("dry_run"))
            with naming_templates(source):
                files = catalog.loading.discover(
                    self.operation_id,
                    config.table,
                    source,
                    reload=bool(form.get("reload")),
                    mode=LoadMode(config.mode) if config.mode else None,
                    is_dry_run=dry_run,
                    settings={**config.load_settings(dry_run=dry_run), ANNOUNCES: True},
                    requested_by=context["dag_run"].triggering_user_name,
                )
        if not files:
            raise AirflowSkipException(
                f"{config.table} already has all files of {source}, or has set them aside; nothing to load"
            )
        self.log.info("Found %d new file(s) for %s; the first is %s", len(files), config.table, files[0].path)
        for key, value in {"table": config.table, "index_names": list(config.indexes)}.items():
            context["ti"].xcom_push(key=key, value=value)
        return len(files)


class LoadJobOperator(SparkJobOperator):
    """Task that runs a Spark job of a load with the request that the load's operation journaled.

    Args:
        operation_id: The load (templated).
        setting: The journaled setting that is the job's request.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, setting: str = "request", **kwargs: Any) -> None:
        super().__init__(request={}, **kwargs)
        self.setting = setting

    def prepare(self, context: Context, catalog: Catalog) -> None:
        """Request what the operation journaled."""
        settings = _settings(catalog, self.operation_id)
        self.request = settings[self.setting]
        _configure_spark(self, settings)
        if catalog.loading.needs_packages(self.request):
            from catalog.settings.environment import package_settings

            self.conf = {**package_settings(avro=True), **(self.conf or {})}

    def finish(self, context: Context, catalog: Catalog, result: Mapping[str, Any]) -> dict[str, Any]:
        """Log what the job leaves out; return the report without the change of files, which may be long."""
        from catalog.loading.schemes import CHANGE

        _log_left_out(self.log, result)
        return {name: value for name, value in result.items() if name != CHANGE}


class WritePartitionsOperator(LoadJobOperator):
    """Task that runs the Spark job that writes a load's data files; skipped in a dry run."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="write_partitions", **kwargs)

    def prepare(self, context: Context, catalog: Catalog) -> None:
        """Request what the operation journaled, or skip the task."""
        super().prepare(context, catalog)
        if self.request["dry_run"]:
            raise AirflowSkipException(
                "this is a dry run: nothing is written; the result of `validate` shows what a load would write"
            )


class RegisterPartitionsOperator(LineageOperator):
    """Task that makes a staged load visible: partitions, index items and its source files in one transaction.

    Its downstream task `CREATE_INDEXES`, if there is one, is skipped unless an index is missing or not built.

    Args:
        operation_id: The load (templated).

    Returns:
        The report of the added and the refused partitions, see `Loading.publish`, and of `validate` the files that are
        `set_aside`, the rows and values that are `discarded`, and the `evolution` of the table's columns.

    Raises:
        AirflowFailException: No files are written yet; or a partition exists, does not fit an index, or has foreign
            files in its folder.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the load, or return the report of an earlier try."""
        from catalog.loading.registering import WRITE, register

        with open_catalog() as catalog:
            operation = catalog.operations.get(self.operation_id)
            if WRITE not in operation.report:
                raise AirflowFailException(
                    f"load {operation.id} has written no files yet; clear its task that writes them"
                )
            if not operation.is_committed:
                _settings(catalog, self.operation_id)
            report = register(catalog.loading, catalog.operations, self.operation_id, self.task_id)
            has_work = CREATE_INDEXES not in self.downstream_task_ids or _lacks_index(catalog, operation)
            written = {"rows": report.get("row_count"), "size_bytes": report.get("size_bytes")}
            self.lineage.inputs.extend(source_datasets(operation.request.get("source", ())))
            self.lineage.outputs.append(table_dataset(catalog.get_table(operation.table), **written))
        if not operation.is_committed:
            self._log_report(report)
        if not has_work:
            _skip_downstream(context, report, CREATE_INDEXES)
        return report

    def _log_report(self, report: Mapping[str, Any]) -> None:
        self.log.info(
            "Added %(partitions)d partitions, extended %(partitions_extended)d, replaced %(partitions_replaced)d "
            "and removed %(partitions_removed)d, with %(row_count)d rows in %(file_count)d files",
            report,
        )
        if report["refused"]:
            self.log.warning(
                "%d partitions with %d rows do not fit an index; their rows are in %s: %s",
                report["refused"],
                report["refused_rows"],
                report["refused_folder"],
                "; ".join(report["refused_reasons"]),
            )
        _log_left_out(self.log, report)


class CreateIndexesOperator(BaseOperator):
    """Task that creates the missing partition indexes of a loaded table.

    Args:
        operation_id: The load (templated).

    Returns:
        The names of the indexes to build.

    Raises:
        AirflowFailException: An index cannot be created as requested.
    """

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    @for_mapped_tasks
    def execute(self, context: Context) -> list[str]:
        """Create the missing indexes."""
        from catalog import IndexState

        with open_catalog() as catalog:
            table = catalog.operations.get(self.operation_id).table
            required = _settings(catalog, self.operation_id)["indexes"]
            indexes = {name: _created(catalog, table, name, keys) for name, keys in required.items()}
        names = [name for name, index in indexes.items() if index.state is IndexState.CREATING]
        self.log.info("Indexes to build: %s", ", ".join(names) or "none")
        return names


class BuildLoadedIndexOperator(SparkJobOperator):
    """Task that builds one partition index of a loaded table, in an operation of its own below the load's.

    Only the name comes from `CreateIndexesOperator`; the rest comes from the journal of the run's load, because users
    may write XComs.

    Args:
        index: Name of the index; no template.

    Raises:
        AirflowFailException: The index is not one of the load's, or it no longer exists.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, index: str, **kwargs: Any) -> None:
        super().__init__(job="build_partition_index", operation_id="", request={}, **kwargs)
        self.index = index

    def prepare(self, context: Context, catalog: Catalog) -> None:
        """Journal the build."""
        from catalog.errors import WrongFieldError
        from catalog.settings.fields import text

        load = operation_of(context)
        settings = _settings(catalog, load)
        name, required = text("index", self.index), settings["indexes"]
        if name not in required:
            known = ", ".join(required) or "none"
            raise WrongFieldError("index", f"load {load} builds no index {name!r}; its indexes are: {known}")
        table = catalog.operations.get(load).table
        index = catalog.get_partition_index(table, name)
        self.request = {"table": table, "index": index.name}
        self.operation_id = begin_build(catalog, context, table, index)
        _configure_spark(self, settings)


class CheckQualityOperator(LoadJobOperator):
    """Task that runs the Spark job that checks new partitions, and acts on the result as the table's entry says.

    Its downstream task `QUARANTINED`, if there is one, is skipped unless partitions are quarantined.

    Raises:
        AirflowFailException: A partition failed a check, and the entry says `on_failure: fail`.
    """

    def finish(self, context: Context, catalog: Catalog, result: Mapping[str, Any]) -> dict[str, Any]:
        """Report failed partitions; with `on_failure: fail`, they fail the task without a retry."""
        on_failure = self.request["rules"].get("on_failure", OnFailure.WARN)
        if result["failed"]:
            message = (
                f"{result['failed']} of {result['checked']} new partitions of {self.request['table']} failed their "
                f"quality checks: {'; '.join(map(str, result['failures']))}"
            )
            if result["docs_path"]:
                message += f". The report is {result['docs_path']}"
            counts = {name: result[name] for name in ("failed", "checked", "docs_path")}
            count(Metric.QUALITY_FAILURES, result["failed"], table=self.request["table"])
            notify(context, NotifyEvent.QUALITY, self.request["table"], message, **counts)
            if on_failure == OnFailure.FAIL:
                raise AirflowFailException(message)
            self.log.warning("%s", message)
        if QUARANTINED in self.downstream_task_ids and not (result["failed"] and on_failure == OnFailure.QUARANTINE):
            _skip_downstream(context, result, QUARANTINED)
        return dict(result)


class ReportQuarantineOperator(BaseOperator):
    """Task that fails if partitions of a load are quarantined, and says which and what to do; otherwise skipped.

    As a teardown task, it shows the quarantine by its state, and does not fail the run.

    Args:
        operation_id: The load (templated).

    Raises:
        AirflowFailException: Partitions are quarantined.
        AirflowSkipException: None is.
    """

    notifies_failure = False
    """`CheckQualityOperator` has called the notifiers for the quality check."""

    template_fields: Sequence[str] = ("operation_id",)

    def __init__(self, *, operation_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation_id = operation_id

    def execute(self, context: Context) -> None:
        """Count the partitions, which may have been released since."""
        from catalog import PartitionState
        from catalog.errors.base import first_of

        with open_catalog() as catalog:
            operation = catalog.operations.find(self.operation_id)
            if operation is None or not catalog.count_quarantined([operation]):
                raise AirflowSkipException("no partition of this load is quarantined")
            table = catalog.get_table(operation.table)
            names = [
                partition.name(table)
                for partition in catalog.operation_partitions(self.operation_id)
                if partition.state is PartitionState.QUARANTINED
            ]
        raise AirflowFailException(
            f"QUARANTINED: {len(names):,} partition(s) of {table.full_name} failed their quality checks, and no reader "
            f"sees them: {first_of(names, _SHOWN)}. The others are loaded. See why: calve quarantine "
            f"{table.full_name}; then release them with --release --reason, or drop them"
        )


def _skip_downstream(context: Context, result: Mapping[str, Any], task_id: str) -> NoReturn:
    """End a task with a result, and skip a task after it, which then need not be started to find nothing to do."""
    # Pushed here, because the task that raises this has no return value.
    context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=dict(result))
    raise DownstreamTasksSkipped(tasks=[task_id])  # type: ignore[no-untyped-call]  # Airflow is not typed here


def _lacks_index(catalog: Catalog, load: Operation) -> bool:
    """Return whether an index of a load is still to be created or built."""
    from catalog import IndexState

    required = catalog.loading.settings_of(load.id).get("indexes", {})
    found = (current_index(catalog, load.table, name) for name in required)
    return any(index is None or index.state in (IndexState.FAILED, IndexState.CREATING) for index in found)


def _log_left_out(log: Any, result: Mapping[str, Any]) -> None:
    aside, discarded = result.get("set_aside", {"files": 0}), result.get("discarded", {"files": 0})
    if aside["files"]:
        log.warning(
            "%d file(s) are set aside until they change, with %d bad row(s): %s",
            aside["files"],
            aside["rows"],
            _places(aside["problems"]),
        )
    if discarded["files"]:
        log.warning(
            "%d row(s) and %d value(s) of %d file(s) are left out, as the table's contract says, for instance %s",
            discarded["rows"],
            discarded["values"],
            discarded["files"],
            _places(discarded["examples"]),
        )


def _places(rows: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{row['file']}, line {row['line'] or '?'}: {row['problem']}" for row in rows)


def _settings(catalog: Catalog, operation_id: str) -> dict[str, Any]:
    """Return the settings that `DiscoverSourcesOperator` journaled for the tasks of a load.

    Raises:
        AirflowFailException: A version that did not journal settings began the load.
    """
    settings = catalog.loading.settings_of(operation_id)
    if not settings:
        raise AirflowFailException(
            f"load {operation_id} was begun by an earlier version, which did not journal its settings; start the DAG "
            "again"
        )
    return settings


def _configure_spark(job: SparkJobOperator, settings: Mapping[str, Any]) -> None:
    """Set a job's cluster and resources from the load's settings: the table's entry, and the run's form."""
    spark = settings.get("spark", {"conf": {}, "connection": ""})
    job.conf = {**(job.conf or {}), **spark["conf"]}
    job.conn_id = spark["connection"] or job.conn_id


def _created(catalog: Catalog, table: str, name: str, keys: Sequence[str]) -> PartitionIndex:
    """Return an index, after creating it if it is missing or FAILED."""
    from catalog import IndexState

    current = current_index(catalog, table, name)
    if current is None or current.state is IndexState.FAILED:
        return catalog.create_partition_index(table, name, keys)
    return current


def fail_operation(context: Context) -> None:
    """Fail the operation of a failed run, so that it no longer locks its table; for `on_failure_callback`."""
    from catalog import Catalog

    run = context["dag_run"]
    with Catalog.open() as catalog:
        operation = catalog.operations.find(f"{run.dag_id}/{run.run_id}")
        if operation is not None:
            reason = context.get("exception") or f"run {run.run_id} of {run.dag_id} failed"
            catalog.operations.fail(operation.id, "RUN_FAILED", str(reason))
