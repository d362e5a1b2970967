"""The partition indexes of many tables: what is missing, built, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.catalog_access import SparkJobFailedError, SparkJobLostError, open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.forms.templates import for_mapped_tasks
from calve_airflow.operators.indexes import begin_build, build_operation_id, current_index
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.summary import Outcome, SummaryOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog, PartitionIndex, Table
    from catalog.settings.table_config import WantedIndexes

Indexes = Mapping[str, Sequence[str]]
"""Index → keys."""


class PlanBackfillOperator(FormOperator):
    """Finds the partition indexes that tables shall have, and which of them are not there.

    The form is the run's: `tables`, `database.table` of those that are meant, none for all; and `indexes` that each of
    them shall have, such as `by_day: year, day`, none for those that the YAML list names.

    Returns:
        `table` for each table that lacks one. Another XCom, `wanted`, has all tables: `table`, `indexes` (name → keys),
        and `missing`, the names of those that are not ACTIVE; a third, `config_problems`, is table → why it is not
        known which it needs.

    Raises:
        AirflowFailException: An index in the form cannot be read, or the YAML list cannot.
    """

    @for_mapped_tasks
    def execute(self, context: Context) -> list[dict[str, str]]:
        """Compare what is wanted with what is there."""
        with open_catalog() as catalog:
            existing = {table.full_name: table for table in catalog.list_tables()}
            wanted = _wanted(existing.values(), context)
            missing = {
                # A table that is not there fails where its index would be built, and stops no other.
                table: _missing(catalog, table, indexes) if table in existing else list(indexes)
                for table, indexes in wanted.indexes.items()
            }
        for table, problem in wanted.problems.items():
            self.log.error("%s: %s", table, problem)
        for table, indexes in missing.items():
            self.log.info("%s: %s", table, f"to build: {', '.join(indexes)}" if indexes else "all indexes are ACTIVE")
        # A list, because Airflow's database forgets the order of a mapping.
        listed = [
            {"table": table, "indexes": dict(indexes), "missing": missing[table]}
            for table, indexes in wanted.indexes.items()
        ]
        context["ti"].xcom_push(key="wanted", value=listed)
        context["ti"].xcom_push(key="config_problems", value=dict(wanted.problems))
        return [{"table": table} for table, indexes in missing.items() if indexes]


class BackfillIndexesOperator(SparkJobOperator):
    """Creates the missing partition indexes of one table and builds them, one Spark job after the other.

    Which these are, says the run's form again, or the YAML list: users may write XComs.

    An index whose build died is taken up where it stopped. One that cannot be created, or whose job fails, does not
    stop the others; it fails the task in the end.

    Args:
        table: `database.table` (templated).

    Returns:
        The names of the indexes: each is ACTIVE or FAILED now. Another XCom, `problems`, is index → reason of those
        that are neither.

    Raises:
        AirflowFailException: The run is to build none of such a table, there is no such table, or an index cannot be
            created like this.
        SparkJobFailedError, SparkJobLostError: A job ended without building its index.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(job="build_partition_index", operation_id="", request={}, **kwargs)
        self.table = table

    def execute(self, context: Context) -> list[str]:  # type: ignore[override]  # several jobs, not the result of one
        """Build one index after the other."""
        from catalog.errors import CatalogError

        problems: dict[str, Exception] = {}
        indexes = self._indexes(context)
        for name, keys in indexes.items():
            try:
                self._build(context, name, keys)
            except (AirflowFailException, SparkJobFailedError, SparkJobLostError, CatalogError) as error:
                self.log.error("Partition index %s of %s: %s", name, self.table, error)
                problems[name] = error
        context["ti"].xcom_push(key="problems", value={name: str(error) for name, error in problems.items()})
        passing = [error for error in problems.values() if not isinstance(error, AirflowFailException)]
        if problems:
            raise (passing or list(problems.values()))[0]
        return list(indexes)

    def _indexes(self, context: Context) -> Indexes:
        from catalog.errors import WrongFieldError
        from catalog.settings.fields import text

        with open_catalog() as catalog:
            wanted = _wanted(catalog.list_tables(), context).indexes
            table = text("table", self.table)
            if table not in wanted:
                raise WrongFieldError("tables", f"this run is to build no index of {table}; clear the task before")
        return wanted[table]

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
        super().execute(context)


class SummariseBackfillOperator(SummaryOperator):
    """Says what became of each index that a backfill was to see to; fails if one is not ACTIVE.

    Args:
        operation_id: The run (templated).
        planned: What `PlanBackfillOperator` returned (templated).
        wanted: Its XCom `wanted` (templated).
        config_problems: Its XCom `config_problems` (templated).
        built_by: Id of the mapped task that builds, to know its problems.
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
        """Look at the catalog; why something is not there, the tasks have said."""
        instances = range(len(self.planned))
        said = context["ti"].xcom_pull(self.built_by, key="problems", map_indexes=instances)
        problems = {each["table"]: found or {} for each, found in zip(self.planned, said, strict=True)}
        unknown = [
            Outcome({"table": table, "index": None, "keys": None, "outcome": f"not known: {problem}"}, problem)
            for table, problem in (self.config_problems or {}).items()
        ]
        return unknown + [
            self._outcome(
                catalog, each["table"], name, keys, name in each["missing"], problems.get(each["table"], {}).get(name)
            )
            for each in self.wanted
            for name, keys in each["indexes"].items()
        ]

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
            said = "ACTIVE, built by this run" if was_missing else "ACTIVE before"
        elif index is not None and state is IndexState.FAILED:
            said = f"FAILED: {index.failure_code}: {index.failure_detail}"
        elif index is not None and state is IndexState.CREATING:
            said = f"CREATING: {problem or 'its build has not ended'}; the next run takes it up where it stopped"
            self._give_up(catalog, table, index, said)
        else:
            said = f"not created: {problem or 'the log of its task says why'}"
        row = {"table": table, "index": name, "keys": ", ".join(keys), "outcome": said}
        return Outcome(row, None if state is IndexState.ACTIVE else f"partition index {name} of {table}: {said}")

    def _give_up(self, catalog: Catalog, table: str, index: PartitionIndex, reason: str) -> None:
        """End the operation of a build of this run, which nobody works on any more."""
        operation_id = build_operation_id(self.operation_id, table, index)
        if catalog.operations.find(operation_id) is not None:
            catalog.operations.fail(operation_id, "RUN_FAILED", reason)


def _wanted(existing: Iterable[Table], context: Context) -> WantedIndexes:
    """Return the indexes that a run's form, or the YAML list, says that tables shall have."""
    from catalog.settings.fields import texts
    from catalog.settings.table_config import wanted_indexes

    tables, indexes = (texts(name, context["params"][name]) for name in ("tables", "indexes"))
    return wanted_indexes(existing, tables, indexes)


def _missing(catalog: Catalog, table: str, indexes: Indexes) -> list[str]:
    from catalog.model import IndexState

    active = {
        (index.name, index.keys) for index in catalog.get_partition_indexes(table) if index.state is IndexState.ACTIVE
    }
    return [name for name, keys in indexes.items() if (name.lower(), tuple(keys)) not in active]
