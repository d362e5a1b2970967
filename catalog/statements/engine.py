"""The interface of engines, which run the statements that read or write rows or build large indexes.

The catalog does not depend on Spark: an engine is a class that takes the catalog, installed as an entry point of the
group `calve.engine`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

from catalog.advice.profile import PartitionSpread, TableProfile
from catalog.errors import EngineUnavailableError
from catalog.migration.requests import MigrationRequest
from catalog.model import Column, Partition, PartitionIndex, Table
from catalog.operations.records import Operation
from catalog.rebalancing.changes import PartitionChange
from catalog.schemes.model import Scheme
from catalog.statements.model import MergeRows
from catalog.statements.results import RowStream, StatementResult

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader

    from catalog.catalog import Catalog

ENGINES = "calve.engine"


@dataclass(frozen=True)
class NewOperation:
    """The operation that a statement creates: its id and the requester."""

    id: str
    requested_by: str | None = None


class Engine(Protocol):
    """Runs work that needs a cluster. Errors are `CatalogError`s; those of the engine itself are `EngineError`s."""

    def select(self, query: str, database: str) -> StatementResult:
        """Return the result of a SELECT.

        Args:
            database: The database of table names without one.
        """
        ...

    def stream(self, query: str, database: str) -> RowStream:
        """Return the rows of a SELECT, of which the engine holds only a part at a time."""
        ...

    def stream_batches(self, query: str, database: str) -> RecordBatchReader:
        """Return the rows of a SELECT as batches with their types, of which the engine holds only some at a time."""
        ...

    def cancel(self) -> None:
        """Cancel what the engine runs for a statement in another thread, which then fails; the engine stays usable."""
        ...

    def explain(self, query: str, database: str) -> StatementResult:
        """Return which partitions and files a SELECT would read, and how its joins would be done, without reading."""
        ...

    def columns_of(self, query: str, database: str) -> tuple[Column, ...]:
        """Return the columns of a SELECT, with names in lower case and types as tables have them.

        Raises:
            InvalidQueryError: The SELECT is invalid, or no column of a table can have the name or type of one of its.
        """
        ...

    def insert_values(
        self,
        operation: NewOperation,
        table: Table,
        rows: Sequence[Sequence[str | None]],
        *,
        overwritten: Mapping[str, str | None] | None = None,
    ) -> Mapping[str, Any]:
        """Add rows to a table, all or nothing.

        Args:
            rows: One string per column for a cast, the partition keys last; bytes in hexadecimal digits.
            overwritten: Values of some keys: the rows replace all partitions that have them. Empty to replace the
                partitions of the rows; None to replace nothing.

        Returns:
            A report with the number of `rows`.
        """
        ...

    def insert_query(
        self,
        operation: NewOperation,
        table: Table,
        query: str,
        database: str,
        *,
        columns: Sequence[str] = (),
        values: Mapping[str, str | None] | None = None,
        overwritten: Mapping[str, str | None] | None = None,
    ) -> Mapping[str, Any]:
        """Add the rows of a SELECT to a table, all or nothing.

        Args:
            columns: The target columns of the SELECT's columns, in order; the others are null. Empty for all.
            values: Constant values of partition keys, which the SELECT does not return.
            overwritten: As for `insert_values`.
        """
        ...

    def delete_rows(
        self, operation: NewOperation, table: Table, where: str, database: str | None = None
    ) -> Mapping[str, Any]:
        """Delete the rows of a table that meet a condition.

        Args:
            database: The database of table names without one in subqueries; None for that of the table.

        Returns:
            A report with the numbers of `partitions_replaced` and `partitions_removed`; of a table with a partition
            scheme also with those of `rows`, `files_removed` and `files_written`.
        """
        ...

    def update_rows(
        self,
        operation: NewOperation,
        table: Table,
        assignments: Mapping[str, str],
        where: str,
        database: str | None = None,
    ) -> Mapping[str, Any]:
        """Update the rows of a table that meet a condition.

        Args:
            assignments: Column → expression of its new value.
            database: As for `delete_rows`.

        Returns:
            A report as that of `delete_rows`.
        """
        ...

    def forget(self, operation: NewOperation, table: Table, where: str, *, at_once: bool) -> Mapping[str, Any]:
        """Delete the rows that meet a condition for good: from the table, and all copies in its folders.

        Args:
            at_once: Delete now what running readers may need, instead of after the grace period.

        Returns:
            The report of `spark_jobs.changing.forgetting.forget_rows`.
        """
        ...

    def merge_rows(
        self, operation: NewOperation, table: Table, statement: MergeRows, database: str
    ) -> Mapping[str, Any]:
        """Run a MERGE.

        Args:
            database: The database of table names without one.

        Returns:
            A report as that of `delete_rows`; of a table with a partition scheme, with the numbers of `rows_inserted`,
            `rows_updated` and `rows_deleted`.
        """
        ...

    def compact(self, operation: NewOperation, table: Table, partitions: Sequence[Partition]) -> Mapping[str, Any]:
        """Write the rows of partitions to fewer and larger files.

        Returns:
            A report with the numbers of `partitions_replaced`, `files_before` and `files`.
        """
        ...

    def compact_scheme(
        self, operation: NewOperation, table: Table, partition_ids: Collection[int] | None
    ) -> Mapping[str, Any]:
        """Write the rows of small files of a table with a partition scheme to fewer and larger ones.

        Args:
            partition_ids: The partitions; None for all.

        Returns:
            A report as that of `compact`.
        """
        ...

    def truncate(self, operation: NewOperation, table: Table, values: Mapping[str, str | None]) -> Mapping[str, Any]:
        """Delete all rows of an Iceberg table whose partitions the catalog does not record.

        Args:
            values: Values of some partition keys, to delete only the rows with them.

        Returns:
            A report as that of `delete_rows` for a table with a partition scheme.
        """
        ...

    def compact_iceberg(
        self, operation: NewOperation, table: Table, values: Mapping[str, str | None]
    ) -> Mapping[str, Any]:
        """Compact such a table by Iceberg's own procedure.

        Args:
            values: Values of some partition keys, to compact only the partitions with them.

        Returns:
            A report as that of `compact`.
        """
        ...

    def load_data(
        self,
        operation: NewOperation,
        table: Table,
        path: str,
        options: Mapping[str, str],
        *,
        overwritten: Mapping[str, str | None] | None = None,
    ) -> Mapping[str, Any]:
        """Add the rows of files to a table, all or nothing.

        Args:
            options: Options, with names in upper case.
            overwritten: As for `insert_values`.
        """
        ...

    def run_step(
        self, operation: Operation, step: str, request: Mapping[str, Any], conf: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Run a step of a load as its DAG does, but in this process; an error ends the operation.

        Args:
            operation: The journaled load.
            step: The script of the job, which is also the name of the step.
            request: The fields of the job's request that do not depend on the attempt.
            conf: Spark's configuration for the table; an engine that runs already keeps its own.

        Returns:
            The report of the step.
        """
        ...

    def rebalance(self, operation: NewOperation, table: Table, change: PartitionChange) -> Mapping[str, Any]:
        """Run a change of partitions that moves rows."""
        ...

    def migrate(
        self,
        operation: NewOperation,
        table: Table,
        request: MigrationRequest,
        *,
        verified_partitions: int | None = None,
    ) -> Mapping[str, Any]:
        """Run a migration; repeated, return the same report.

        Args:
            verified_partitions: The number of partitions to compare before the flip; None for all.

        Returns:
            The report of `catalog.migration.migrations.Migrations.flip`, with verified partitions and skipped files.
        """
        ...

    def build_index(self, operation: NewOperation, table: Table, index: str) -> PartitionIndex:
        """Build a CREATING partition index, and return it in its final state."""
        ...

    def profile(self, table: Table, queries: Sequence[str], database: str) -> TableProfile:
        """Measure the columns of a table, and the conditions of queries on it.

        Args:
            queries: SELECTs; those that cannot be analysed are reported, not raised.
            database: The database of table names without one.
        """
        ...

    def spread(self, table: Table, scheme: Scheme) -> list[PartitionSpread]:
        """Return what each partition would contain under a scheme."""
        ...

    def close(self) -> None:
        """Release all resources of the engine."""
        ...


def start_engine(catalog: Catalog) -> Engine:
    """Return the installed engine for a catalog; the engine starts its resources on demand.

    Raises:
        EngineUnavailableError: No engine is installed, or its dependencies are missing.
    """
    engines = sorted(entry_points(group=ENGINES), key=lambda entry_point: entry_point.name)
    if not engines:
        raise EngineUnavailableError(
            "this statement needs Spark, but no engine is installed; install calve with pyspark"
        )
    try:
        make = engines[0].load()
    except ImportError as error:
        raise EngineUnavailableError(
            f"this statement needs Spark, which is not installed here ({error}); install pyspark"
        ) from error
    return cast(Engine, make(catalog))
