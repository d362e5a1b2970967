"""What the functions that run statements share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

from catalog.catalog import Catalog
from catalog.identifiers import DEFAULT_DATABASE
from catalog.statements.engine import Engine
from catalog.statements.model import TableReference


class Context:
    """The state of a session.

    Attributes:
        catalog: The catalog that statements run on.
        database: Where tables without a database are.
        text: The statement that is run.
        requested_by: Who asks, for the journal of operations.
    """

    requested_by = "calve sql"

    def __init__(self, catalog: Catalog, database: str, start: Callable[[Catalog], Engine]) -> None:
        """Take the catalog, the first database, and what starts the engine."""
        self.catalog = catalog
        self.database = database
        self.text = ""
        self._start = start
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The engine, started by the first statement that needs it.

        Raises:
            EngineUnavailableError: There is none.
        """
        if self._engine is None:
            self._engine = self._start(self.catalog)
        return self._engine

    def name(self, table: TableReference) -> str:
        """Return a table's full name."""
        return f"{table.database or self.database}.{table.name}"

    def make_default_database(self, database: str | None) -> None:
        """Create the database `default` if it is meant and nobody has yet: users of Hive and Spark take it for given."""
        if (database or self.database) == DEFAULT_DATABASE:
            self.catalog.create_database(DEFAULT_DATABASE, if_not_exists=True)

    @staticmethod
    def new_operation() -> str:
        """Return the id of a new operation."""
        return f"sql__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}__{uuid4().hex[:12]}"

    def close(self) -> None:
        """Stop the engine, if it was started."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
