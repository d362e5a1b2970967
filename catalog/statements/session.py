"""`Session`: runs statements one after the other on one catalog and, if needed, one engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self

from catalog import errors as e
from catalog.catalog import Catalog
from catalog.datafiles.refusals import warnings_once
from catalog.files.failures import storage_errors
from catalog.model.identifiers import DEFAULT_DATABASE, normalise_identifier
from catalog.operations.confirmation import Confirmation
from catalog.statements.context import Context
from catalog.statements.engine import Engine, start_engine
from catalog.statements.execution import HANDLERS
from catalog.statements.model import Select, Statement
from catalog.statements.parser import parse_statement
from catalog.statements.results import Outcome, RowStream, StatementResult
from catalog.statements.splitting import split
from catalog.statements.waiting import Report, TableWait

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader

log = logging.getLogger(__name__)

_TABLE = ("new_table", "source", "table", "name", "database")
_TARGET = ("new_table", "target", "table", "name")

_PLACES: tuple[tuple[tuple[type[e.CatalogError], ...], tuple[str, ...]], ...] = (
    ((e.PartitionNotFoundError,), ("partition_ids", "partition_id", "values", "partitions")),
    ((e.PartitionAlreadyExistsError,), ("new_values", "values", "partitions")),
    ((e.InvalidPartitionError, e.InvalidPartitionSpecError), ("values", "partitions", "new_values")),
    ((e.DefaultPartitionError, e.PartitionsNotNeighboursError), ("partition_ids", "partition_id")),
    ((e.BoundsNotAscendingError, e.DuplicateListValueError, e.SchemeValueError), ("items", "RANGE_INFO", "LIST_INFO")),
    ((e.InvalidSchemeError,), ("items", "count", "properties", "partition_ids", "partition_id", "partition_keys")),
    ((e.UnknownSnapshotError,), ("snapshot_id", "at")),
    ((e.IndexNotFoundError, e.IndexAlreadyExistsError), ("index", "indexes")),
    ((e.InvalidIndexError,), ("keys", "indexes")),
    ((e.InvalidKeyTypeError,), ("partition_keys", "type")),
    ((e.PropertyNotFoundError, e.ReservedPropertyError), ("names", "properties")),
    ((e.InvalidTableError,), ("columns", "name", "new_name", "location", "table")),
    ((e.SourceFileError,), ("path",)),
    ((e.NestedFolderError,), ("recursive_directory", *_TABLE)),
    ((e.DuplicateFilesError,), ("duplicate_files", *_TABLE)),
    ((e.NotIcebergTableError, e.ColumnsDifferError), ("table",)),
    ((e.TableAlreadyExistsError,), _TARGET),
    ((e.MigrationRefusedError, e.UnsupportedIcebergTypeError, e.ReservedColumnError, e.PartitionValueError), _TABLE),
    ((e.DatabaseNotFoundError, e.TableNotFoundError), ("target", "table", "name", "database")),
    ((e.NotFoundError, e.AlreadyExistsError, e.ConflictError, e.NotATableError, e.UnsupportedFormatError), _TABLE),
)
"""Error classes → fields and properties of a statement; the first one present is the place of the error."""


class Session:
    """Runs statements; not thread-safe."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        database: str = DEFAULT_DATABASE,
        start: Callable[[Catalog], Engine] = start_engine,
        requested_by: str | None = None,
        confirmation: Confirmation | None = None,
        wait: timedelta = timedelta(),
        on_wait: Report = log.info,
    ) -> None:
        """Create a session on a catalog.

        Args:
            database: The database of table names without one, until USE changes it.
            start: Starts the engine when a statement needs it.
            requested_by: The requester, for the journal of operations.
            confirmation: Asked before a statement deletes files, or loses data written to an Iceberg table.
            wait: The time that a statement waits for operations that hold its table.
            on_wait: Shows the operation that a statement waits for.
        """
        self._wait, self._on_wait = wait, on_wait
        self._cancelled = Event()
        first = normalise_identifier(database, "database")
        self._context = Context(catalog, first, start, requested_by, confirmation)

    def close(self) -> None:
        """Stop the engine, if it was started; the catalog stays open."""
        self._context.close()

    def __enter__(self) -> Self:
        """Return the session, to be closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the engine."""
        self.close()

    def execute(self, text: str, *, operation_id: str | None = None) -> StatementResult:
        """Run one statement.

        Args:
            operation_id: The id for an operation that it creates: repeating the statement with the same id does not
                add rows twice. None for a new id.

        Raises:
            CatalogError: The statement is invalid or failed; `position` is the place in the text, if known.
        """
        return self.run_statement(self._parsed(text, operation_id))

    def _parsed(self, text: str, operation_id: str | None = None) -> Statement:
        self._cancelled.clear()
        self._context.text, self._context.operation_id = text, operation_id
        return parse_statement(text)

    def cancel(self) -> None:
        """Cancel the statement that runs in another thread, as far as it waits, or the engine works for it.

        The statement fails, unless it is about to end. Safe to call again.
        """
        self._cancelled.set()
        self._context.cancel()

    @property
    def catalog(self) -> Catalog:
        """The catalog that statements run on."""
        return self._context.catalog

    @property
    def database(self) -> str:
        """The database of table names without one."""
        return self._context.database

    def stream(self, text: str) -> StatementResult | RowStream:
        """Run one statement as `execute`, and return the rows of a SELECT as a stream.

        Raises:
            CatalogError: As for `execute`.
        """
        statement = self._parsed(text)
        if not isinstance(statement, Select):
            return self.run_statement(statement)
        with self._placed(statement):
            return self._context.engine_for(statement, statement.query).stream(statement.query, self.database)

    def stream_batches(self, text: str) -> RecordBatchReader:
        """Run a SELECT, and return its rows as a stream of batches with types.

        Raises:
            CatalogError: As for `execute`.
            UnsupportedStatementError: It is another statement.
        """
        statement = self._parsed(text)
        if not isinstance(statement, Select):
            raise e.UnsupportedStatementError("only a SELECT has rows to write to a file", text, 0)
        with self._placed(statement):
            return self._context.engine_for(statement, statement.query).stream_batches(statement.query, self.database)

    @contextmanager
    def _placed(self, statement: Statement) -> Iterator[None]:
        """Give the errors of a block their position in the statement, and repeat no warning."""
        try:
            with warnings_once(), storage_errors("a file that the statement needs"):
                yield
        except e.CatalogError as error:
            error.position = position_of(error, statement.places)
            raise

    def run_statement(self, statement: Statement) -> StatementResult:
        """Run a statement that needs no text.

        Raises:
            CatalogError: It failed; `position` is the place of the statement's field in its text, if it has one.
        """
        waiting = TableWait(self._context.catalog.operations, self._wait, self._on_wait, self._cancelled)
        while True:
            try:
                with self._placed(statement):
                    return HANDLERS[type(statement)](self._context, statement)
            except e.OperationConflictError as error:
                waiting.after(error)

    def run(self, script: str, *, keep_going: bool = False, streams: bool = False) -> Iterator[Outcome]:
        """Run the statements of a script lazily, and yield their outcomes.

        Args:
            keep_going: Continue after an error; otherwise its outcome is the last.
            streams: Return the rows of SELECTs as streams.
        """
        for statement in split(script):
            try:
                answer = self.stream(statement.text) if streams else self.execute(statement.text)
            except e.CatalogError as error:
                yield Outcome(statement, error=error)
                if not keep_going:
                    return
            else:
                if isinstance(answer, RowStream):
                    yield Outcome(statement, stream=answer)
                else:
                    yield Outcome(statement, answer=answer)


def position_of(error: e.CatalogError, places: Mapping[str, int]) -> int | None:
    """Return the position of an error in the statement."""
    if error.position is None:
        for classes, names in _PLACES:
            if isinstance(error, classes):
                return next((places[name] for name in names if name in places), None)
        return None
    # Filters and queries are parsed separately, so their positions are relative to their start.
    if isinstance(error, e.ExpressionError):
        return error.position + places.get("where", places.get("query", 0))
    if isinstance(error, e.InvalidQueryError | e.TableNotFoundError):
        return error.position + places.get("query", 0)
    return error.position
