"""What runs the statements that the catalog alone cannot: those that read or write rows, or build a large index.

The catalog does not know Spark: an engine is an installed entry point of the group `calve.engine`, a class that takes
the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

from catalog.advice.profile import PartitionSpread, TableProfile
from catalog.errors import EngineUnavailableError
from catalog.migration.requests import MigrationRequest
from catalog.model import PartitionIndex, Table
from catalog.rebalancing.changes import PartitionChange
from catalog.schemes.model import Scheme
from catalog.statements.results import StatementResult

if TYPE_CHECKING:
    from catalog.catalog import Catalog

ENGINES = "calve.engine"


@dataclass(frozen=True)
class NewOperation:
    """The operation that a statement makes: its id, and who asks."""

    id: str
    requested_by: str | None = None


class Engine(Protocol):
    """Runs what needs a cluster. Errors are `CatalogError`s, those of the engine itself `EngineError`s."""

    def select(self, query: str, database: str) -> StatementResult:
        """Return the answer of a SELECT.

        Args:
            database: Where tables without a database are.
        """
        ...

    def insert_values(
        self, operation: NewOperation, table: Table, rows: Sequence[Sequence[str | None]]
    ) -> Mapping[str, Any]:
        """Add rows to a table, all or none.

        Args:
            rows: One text for each column, the partition keys last, as a cast reads it: bytes in hexadecimal digits.

        Returns:
            A report, with the number of rows under `rows`.
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
    ) -> Mapping[str, Any]:
        """Add the rows of a SELECT to a table, all or none.

        Args:
            columns: The columns that the SELECT's stand for, in order; the others are null. Empty for all.
            values: Values of partition keys that hold for all rows; the SELECT does not give them.
        """
        ...

    def load_data(
        self, operation: NewOperation, table: Table, path: str, options: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Add the rows of files to a table, all or none.

        Args:
            options: Names in capital letters.
        """
        ...

    def rebalance(self, operation: NewOperation, table: Table, change: PartitionChange) -> Mapping[str, Any]:
        """Change a table's partitions where rows have to be moved."""
        ...

    def migrate(
        self,
        operation: NewOperation,
        table: Table,
        request: MigrationRequest,
        *,
        verified_partitions: int | None = None,
    ) -> Mapping[str, Any]:
        """Make the files of a Hive table an Iceberg table's; done again, it returns the same report.

        Args:
            verified_partitions: How many partitions are compared before the flip; None for all.

        Returns:
            The report of `catalog.migration.migrations.Migrations.flip`, with what was verified and passed over.
        """
        ...

    def build_index(self, operation: NewOperation, table: Table, index: str) -> PartitionIndex:
        """Build a CREATING partition index; return how it ended."""
        ...

    def profile(self, table: Table, queries: Sequence[str], database: str) -> TableProfile:
        """Measure the columns of a table, and what queries ask of it.

        Args:
            queries: SELECTs; one that cannot be understood is no error.
            database: Where tables without a database are.
        """
        ...

    def spread(self, table: Table, scheme: Scheme) -> list[PartitionSpread]:
        """Say what each partition would hold, if a table had a scheme."""
        ...

    def close(self) -> None:
        """Give everything back that was started."""
        ...


def start_engine(catalog: Catalog) -> Engine:
    """Return the installed engine over a catalog; what it takes to run is started when it is needed.

    Raises:
        EngineUnavailableError: There is none, or what it is made of is not installed.
    """
    found = sorted(entry_points(group=ENGINES), key=lambda each: each.name)
    if not found:
        raise EngineUnavailableError(
            "this statement needs Spark, and no engine is installed beside the catalog; install calve with pyspark"
        )
    try:
        make = found[0].load()
    except ImportError as error:
        raise EngineUnavailableError(
            f"this statement needs Spark, which is not installed here ({error}); install pyspark"
        ) from error
    return cast(Engine, make(catalog))
