"""The context of statement execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import uuid4

from catalog.catalog import Catalog
from catalog.errors import CatalogError, TableNotFoundError
from catalog.model.identifiers import DEFAULT_DATABASE
from catalog.operations.confirmation import Confirmation
from catalog.statements.engine import Engine, NewOperation
from catalog.statements.model import Statement
from catalog.statements.terms import TableReference


@contextmanager
def pointing_at(statement: Statement, field: str) -> Iterator[None]:
    """Set the position of errors in a block to the place of a field, unless they have a position."""
    try:
        yield
    except CatalogError as error:
        if error.position is None:
            error.position = statement.places.get(field)
        raise


class Context:
    """The state of a session.

    Attributes:
        catalog: The catalog that statements run on.
        database: The database of table names without one.
        text: The current statement.
        operation_id: The id for an operation that the statement creates; None for a new id.
        requested_by: The requester, for the journal of operations.
        confirmation: Asked before a statement deletes files, or loses data written to an Iceberg table.
    """

    def __init__(
        self,
        catalog: Catalog,
        database: str,
        start: Callable[[Catalog], Engine],
        requested_by: str | None,
        confirmation: Confirmation | None,
    ) -> None:
        """Create a context; `start` starts the engine."""
        self.catalog = catalog
        self.database = database
        self.text = ""
        self.operation_id: str | None = None
        self.requested_by = requested_by
        self.confirmation = confirmation
        self._start = start
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The engine, started by the first statement that needs it.

        Raises:
            EngineUnavailableError: No engine is installed.
        """
        if self._engine is None:
            self._engine = self._start(self.catalog)
        return self._engine

    def engine_for(self, statement: Statement, text: str, field: str = "query", before: str = "") -> Engine:
        """Return the engine for a statement, after checking that its tables exist if the engine has to be started.

        Args:
            text: A query of the statement, or a part of one.
            field: The field of the statement that has the text.
            before: What completes the text to a SELECT, at its beginning.

        Raises:
            TableNotFoundError: One does not exist.
        """
        if self._engine is None:
            # Imported late, because most statements do not need it.
            from catalog.statements.query_tables import require_tables

            try:
                require_tables(self.catalog, f"{before}{text}", self.database)
            except TableNotFoundError as error:
                # As those of the engine, it is relative to the query if the statement has one.
                begin = statement.places.get(field, 0) - statement.places.get("query", 0)
                error.position = begin + (error.position or 0) - len(before)
                raise
        return self.engine

    def name(self, table: TableReference) -> str:
        """Return a table's full name."""
        return f"{table.database or self.database}.{table.name}"

    def make_default_database(self, database: str | None) -> None:
        """Create the database `default` if a statement uses it: in Hive and Spark it always exists."""
        if (database or self.database) == DEFAULT_DATABASE:
            self.catalog.create_database(DEFAULT_DATABASE, if_not_exists=True)

    @contextmanager
    def operation(self) -> Iterator[NewOperation]:
        """Yield the statement's operation for a block; an error ends the operation, which releases its table."""
        operation_id = self.operation_id or f"sql__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}__{uuid4().hex[:12]}"
        with self.catalog.operations.failing(operation_id):
            yield NewOperation(operation_id, self.requested_by)

    def cancel(self) -> None:
        """Cancel what the engine runs in another thread, if it was started."""
        if self._engine is not None:
            self._engine.cancel()

    def close(self) -> None:
        """Stop the engine, if it was started."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
