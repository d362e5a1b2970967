"""Operators that find, build and report the missing partition indexes of many tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.batches import Batch, in_batches
from calve_airflow.catalog_access import SparkJobFailedError, SparkJobLostError, open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.operators.batches import BatchOperator
from calve_airflow.operators.indexes import begin_build, build_operation_id, current_index
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.summary import Outcome, SummaryOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog, PartitionIndex, Table
    from catalog.settings.wanted_indexes import WantedIndexes

Indexes = Mapping[str, Sequence[str]]
"""Index → keys."""


class PlanBackfillOperator(FormOperator):
    """Task that finds the partition indexes that tables lack.

    Reads the run's form: `tables` as `database.table`, none for all; and the `indexes` that each of them needs, such as
    `by_day: year, day`, none for those in the YAML list.

    Returns:
        `table` for each table that lacks an index, in batches. The XCom `wanted` has all tables: `table`, `indexes`
        (name → keys), and `missing`, the names of those that are not ACTIVE. The XCom `config_problems` is table → why
        its indexes cannot be determined.

    Raises:
        AirflowFailException: An index in the form, or the YAML list, cannot be read.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[Batch]:
        """Compare the required indexes with the existing ones."""
        with open_catalog() as catalog:
            existing = {table.full_name: table for table in catalog.list_tables()}
            required = _wanted(existing.values(), context)
            missing = {
                # A missing table fails in its own build task, so that the other tables are still indexed.
                table: _missing(catalog, table, indexes) if table in existing else list(indexes)
                for table, indexes in required.indexes.items()
            }
        for table, problem in required.problems.items():
            self.log.error("%s: %s", table, problem)
        for table, indexes in missing.items():
            self.log.info("%s: %s", table, f"to build: {', '.join(indexes)}" if indexes else "all indexes are ACTIVE")
        # A list, because Airflow's database does not keep the order of a mapping.
        listed = [
            {"table": table, "indexes": dict(indexes), "missing": missing[table]}
            for table, indexes in required.indexes.items()
        ]
        context["ti"].xcom_push(key="wanted", value=listed)
        context["ti"].xcom_push(key="config_problems", value=dict(required.problems))
        return in_batches([{"table": table} for table, indexes in missing.items() if indexes])


class BackfillIndexesOperator(SparkJobOperator):
    """Task that creates the missing partition indexes of one table and builds them, one Spark job after the other.

    Reads the required indexes again from the run's form or the YAML list, because users may write XComs.

    The build of an index continues where an earlier one stopped. An index that cannot be created, or whose job fails,
    does not prevent the others; it fails the task at the end. The task is not deferrable, because it runs several jobs.

    Args:
        table: `database.table` (templated).

    Returns:
        The names of the indexes; each is now ACTIVE or FAILED. The XCom `problems.<table>` is index → reason for
        those that are neither.

    Raises:
        AirflowFailException: The run does not build indexes of this table, the table does not exist, or an index
            cannot be created as requested.
        SparkJobFailedError, SparkJobLostError: A job ended without building its index.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job="build_partition_index", operation_id="", request={}, **{**kwargs, "deferrable": False})
        self.table = table

    def execute(self, context: Context) -> list[str]:
        """Build the indexes one after the other."""
        from catalog.errors import CatalogError

        problems: dict[str, Exception] = {}
        indexes = self._indexes(context)
        for name, keys in indexes.items():
            try:
                self._build(context, name, keys)
            except (AirflowFailException, SparkJobFailedError, SparkJobLostError, CatalogError) as error:
                self.log.error("Partition index %s of %s: %s", name, self.table, error)
                problems[name] = error
        reasons = {name: str(error) for name, error in problems.items()}
        context["ti"].xcom_push(key=_problems_key(self.table), value=reasons)
        # Raised first: Airflow retries the task only after a retryable error.
        retryable = [error for error in problems.values() if not isinstance(error, AirflowFailException)]
        if problems:
            raise (retryable or list(problems.values()))[0]
        return list(indexes)

    def _indexes(self, context: Context) -> Indexes:
        from catalog.errors import WrongFieldError
        from catalog.settings.fields import text

        with open_catalog() as catalog:
            required = _wanted(catalog.list_tables(), context).indexes
            table = text("table", self.table)
            if table not in required:
                raise WrongFieldError("tables", f"this run builds no index of {table}; clear the task before this one")
        return required[table]

    def _build(self, context: Context, name: str, keys: Sequence[str]) -> None:
        from catalog import IndexState

        with open_catalog() as catalog:
            index = current_index(catalog, self.table, name)
            if index is None or index.state is IndexState.FAILED or index.keys != tuple(keys):
                index = catalog.create_partition_index(self.table, name, keys)
            self.log.info("Partition index %s of %s is %s", name, self.table, index.state)
            if index.state is not IndexState.CREATING:
                return
            self.request = {"table": self.table, "index": index.name}
            self.operation_id = begin_build(catalog, context, self.table, index)
            self.run_job(catalog)


class BackfillTablesOperator(BatchOperator, BackfillIndexesOperator):
    """Task that builds the missing partition indexes of a batch of tables, one after the other."""

    # Of a mapped task group, Airflow resolves the arguments of templated fields only.
    template_fields: Sequence[str] = ("batch",)


class SummariseBackfillOperator(SummaryOperator):
    """Task that reports on each index of a backfill; fails if one is not ACTIVE.

    Args:
        operation_id: The run (templated).
        planned: What `PlanBackfillOperator` returned (templated).
        wanted: Its XCom `wanted` (templated).
        config_problems: Its XCom `config_problems` (templated).
        built_by: Id of the mapped task that builds the indexes; its XComs have the problems.
    """

    template_fields: Sequence[str] = (*SummaryOperator.template_fields, "wanted", "config_problems")

    def __init__(
        self,
        *,
        wanted: Sequence[Mapping[str, Any]],
        config_problems: Mapping[str, str] | None = None,
        built_by: str = "build",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.wanted = wanted
        self.config_problems = config_problems
        self.built_by = built_by

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcome of each index: its state from the catalog, and the reasons from the build tasks."""
        problems = {table: self._problems(context, instance, table) for instance, table in self._instances()}
        unknown = [
            Outcome({"table": table, "index": None, "keys": None, "outcome": f"not known: {problem}"}, problem)
            for table, problem in (self.config_problems or {}).items()
        ]
        return unknown + [
            self._outcome(
                catalog, plan["table"], name, keys, name in plan["missing"], problems.get(plan["table"], {}).get(name)
            )
            for plan in self.wanted
            for name, keys in plan["indexes"].items()
        ]

    def _instances(self) -> list[tuple[int, str]]:
        return [(instance, item["table"]) for instance, batch in enumerate(self.planned) for item in batch]

    def _problems(self, context: Context, instance: int, table: str) -> Mapping[str, str]:
        return context["ti"].xcom_pull(self.built_by, key=_problems_key(table), map_indexes=instance) or {}

    def _outcome(
        self, catalog: Catalog, table: str, name: str, keys: Sequence[str], was_missing: bool, problem: str | None
    ) -> Outcome:
        from catalog.errors import NotFoundError
        from catalog.model import IndexState

        try:
            index = current_index(catalog, table, name)
        except NotFoundError:
            index = None
        state = index.state if index is not None and index.keys == tuple(keys) else None
        if state is IndexState.ACTIVE:
            outcome = "ACTIVE, built by this run" if was_missing else "ACTIVE before"
        elif index is not None and state is IndexState.FAILED:
            outcome = f"FAILED: {index.failure_code}: {index.failure_detail}"
        elif index is not None and state is IndexState.CREATING:
            outcome = f"CREATING: {problem or 'its build has not ended'}; the next run continues where it stopped"
            self._fail_build(catalog, table, index, outcome)
        else:
            outcome = f"not created: {problem or 'see the log of its task'}"
        row = {"table": table, "index": name, "keys": ", ".join(keys), "outcome": outcome}
        return Outcome(row, None if state is IndexState.ACTIVE else f"partition index {name} of {table}: {outcome}")

    def _fail_build(self, catalog: Catalog, table: str, index: PartitionIndex, reason: str) -> None:
        """Fail the operation of a build of this run, because no task continues it."""
        operation_id = build_operation_id(self.operation_id, table, index)
        if catalog.operations.find(operation_id) is not None:
            catalog.operations.fail(operation_id, "RUN_FAILED", reason)


def _problems_key(table: str) -> str:
    return f"problems.{table}"


def _wanted(existing: Iterable[Table], context: Context) -> WantedIndexes:
    """Return the indexes that tables need according to a run's form or the YAML list."""
    from catalog.settings.fields import texts
    from catalog.settings.wanted_indexes import wanted_indexes

    tables, indexes = (texts(name, context["params"][name]) for name in ("tables", "indexes"))
    return wanted_indexes(existing, tables, indexes)


def _missing(catalog: Catalog, table: str, indexes: Indexes) -> list[str]:
    from catalog.model import IndexState

    active = {
        (index.name, index.keys) for index in catalog.get_partition_indexes(table) if index.state is IndexState.ACTIVE
    }
    return [name for name, keys in indexes.items() if (name.lower(), tuple(keys)) not in active]
