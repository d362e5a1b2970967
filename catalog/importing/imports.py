"""Importing: which tables are meant, and one after the other into the catalog, each an operation of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import Connection

from catalog.errors import (
    CatalogError,
    DatabaseNotFoundError,
    FencedError,
    InvalidRequestError,
    LocationInUseError,
    SourceError,
    TableNotFoundError,
)
from catalog.importing.definition import Definition, Partitions, definition_of
from catalog.importing.partitions import ImportOptions, PartitionImport
from catalog.importing.reports import ImportOutcome, PartitionCounts, TableReport
from catalog.importing.spark_schema import spark_provider
from catalog.importing.tables import create_table, differences, find_table, refuse_other, unborn_table, update_table
from catalog.metastores.address import Selection, SourceAddress
from catalog.metastores.source import Source, open_source
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind, OperationState
from catalog.storage import Storage
from catalog.tables.definitions import Definitions
from catalog.tables.ownership import claim_location

log = logging.getLogger(__name__)

STEP = "import"


@dataclass(frozen=True)
class ImportPlan:
    """What an import is about.

    Attributes:
        address: The source, without patterns.
        databases: Those that are imported themselves, even if they have no tables.
        tables: The tables and views, by name.
        named: Those of them that were named one by one, so that it is an error if they are refused.
    """

    address: SourceAddress
    databases: tuple[str, ...]
    tables: tuple[TableName, ...]
    named: frozenset[TableName]

    def failures(self, reports: Sequence[TableReport]) -> list[TableReport]:
        """Return the reports of tables that should have been imported and were not."""
        return [
            report
            for report in reports
            if report.outcome is ImportOutcome.FAILED
            or (report.outcome is ImportOutcome.REFUSED and TableName.parse(report.table) in self.named)
        ]


class Imports:
    """Imports into one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Take the database, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    def plan(self, source: str, patterns: Sequence[str] = ()) -> ImportPlan:
        """Find the databases and tables of a source that patterns mean; nothing is changed.

        Args:
            source: `hms://host:port[/patterns]` or `glue://region[/patterns]`, with patterns as in `Selection`,
                separated by commas.
            patterns: More of them; none here and there means everything.

        Raises:
            InvalidSourceError: The source or a pattern cannot be read.
            SourceUnavailableError: The source does not answer.
            DatabaseNotFoundError, TableNotFoundError: It does not have what is named without a pattern.
        """
        address, more = SourceAddress.parse(source)
        selection = Selection.parse([*more, *patterns])
        with open_source(address) as opened:
            databases = [name for name in opened.databases() if selection.has_database(name)]
            if missing := sorted(selection.named_databases - {name.lower() for name in databases}):
                raise DatabaseNotFoundError(f"{address} has no database {', '.join(missing)}")
            tables = [TableName(database, name) for database in databases for name in opened.tables(database)]
        wanted = tuple(sorted(table for table in tables if selection.has_table(table)))
        if absent := sorted(map(str, selection.named - {TableName(*map(str.lower, table)) for table in wanted})):
            raise TableNotFoundError(f"{address} has no table {', '.join(absent)}")
        whole = {name for name in databases if selection.has_whole_database(name)}
        return ImportPlan(address, tuple(sorted(whole | {table.database for table in wanted})), wanted, selection.named)

    def import_databases(self, plan: ImportPlan, *, updates: bool = False) -> list[str]:
        """Create the plan's databases that are not there yet.

        Args:
            updates: Give those that are there the source's description and properties; a location stays.

        Returns:
            What is defined otherwise in the catalog than in the source, or was until now, in words.

        Raises:
            InvalidConfigurationError: The source gives a database no location, and no warehouse is set.
        """
        with open_source(plan.address) as source:
            return [found for name in plan.databases for found in self._import_database(source, name, updates)]

    def _import_database(self, source: Source, name: str, updates: bool) -> Iterator[str]:
        there = source.database(name)
        here = self._definitions.create_database(
            name,
            location=there.location or None,
            description=there.description,
            properties=there.properties,
            if_not_exists=True,
        )
        for what in ("location", "description", "properties"):
            mine, theirs = getattr(here, what), getattr(there, what)
            if theirs and mine != theirs and not (what == "location" and mine == theirs.rstrip("/")):
                yield f"database {here.name}: {what}: {mine} here, {theirs} there"
        if updates:
            gone = dict.fromkeys(here.properties.keys() - there.properties.keys())
            self._definitions.alter_database(
                name, description=there.description, properties={**gone, **there.properties}
            )

    def import_tables(
        self,
        source: str,
        patterns: Sequence[str] = (),
        options: ImportOptions | None = None,
        *,
        requested_by: str | None = None,
    ) -> tuple[ImportPlan, list[TableReport]]:
        """Import all tables that patterns mean; one that cannot be imported stops no other.

        Returns:
            The plan, and a report of each table; `ImportPlan.failures` says which of them went wrong.

        Raises:
            CatalogError: As `plan`, and as `import_databases`.
        """
        options = options or ImportOptions()
        plan = self.plan(source, patterns)
        if not options.is_dry_run:
            self.import_databases(plan, updates=options.updates)
        return plan, list(self._import_each(plan, options, requested_by))

    def _import_each(self, plan: ImportPlan, options: ImportOptions, requested_by: str | None) -> Iterator[TableReport]:
        source: Source | None = None
        try:
            for table in plan.tables:
                try:
                    source = source or open_source(plan.address)
                    yield self._import(source, table, options, requested_by=requested_by)
                except Exception as error:
                    if not isinstance(error, CatalogError):
                        log.exception("Importing %s from %s failed", table, plan.address)
                    yield failure_report(table, error, options)
                    if isinstance(error, SourceError):
                        _close(source)
                        source = None
        finally:
            _close(source)

    def import_table(
        self,
        source: str,
        table: TableName | str,
        options: ImportOptions | None = None,
        *,
        operation_id: str | None = None,
        requested_by: str | None = None,
    ) -> TableReport:
        """Import one table with its partitions, or a view; its database has to be there.

        Done again, it adds what is new, and ends in the same state after it was killed. No file is touched. Partitions
        come in transactions of their own, so readers see them while others are still to come.

        Args:
            source: The source, as for `plan`; patterns in it do not count.
            operation_id: A committed operation of this id is not done again: its report is returned. By default, a new
                one.

        Raises:
            SourceUnavailableError, TableNotFoundError: The source does not answer, or has no such table.
            UnsupportedSourceTableError: The catalog cannot keep the table.
            InvalidRequestError: A name or a type cannot be used, or partitions do not admit another key.
            LocationInUseError: Another table has its location, or a folder around or inside it.
            OperationConflictError: Another operation is at work on the table.
        """
        options = options or ImportOptions()
        with open_source(SourceAddress.parse(source)[0]) as opened:
            name = TableName.parse(str(table))
            return self._import(opened, name, options, operation_id=operation_id, requested_by=requested_by)

    def _import(
        self,
        source: Source,
        name: TableName,
        options: ImportOptions,
        *,
        operation_id: str | None = None,
        requested_by: str | None = None,
    ) -> TableReport:
        if options.is_dry_run:
            return self._attempt(source, name, options, None)
        operation_id = operation_id or f"import-{name}-{uuid4().hex}"
        operation = self._operations.begin(
            operation_id,
            OperationKind.IMPORT_TABLE,
            str(name),
            {"source": str(source.address), "updates": options.updates, "drops_vanished": options.drops_vanished},
            is_exclusive=True,
            is_fixed=True,
            requested_by=requested_by,
        )
        if operation.is_committed:
            return TableReport.from_json(operation.report[STEP])
        with self._journaled(operation_id), self._operations.attempt(operation_id, STEP) as attempt:
            report = self._attempt(source, name, options, (operation_id, STEP, attempt))
            with self._storage.write() as connection:
                self._operations.finish_job(operation_id, STEP, attempt, report.as_json(), connection=connection)
                self._operations.advance(connection, operation_id, OperationState.COMMITTED)
                self._operations.advance(connection, operation_id, OperationState.CLEANED)
        reached(Point.COMMITTED)
        return report

    @contextmanager
    def _journaled(self, operation_id: str) -> Iterator[None]:
        try:
            yield
        except FencedError:
            raise
        except (Exception, KeyboardInterrupt) as error:
            self._operations.fail(operation_id, type(error).__name__, _text(error) or type(error).__name__)
            raise

    # --- one table ----------------------------------------------------------------------------------------------

    def _attempt(
        self, source: Source, name: TableName, options: ImportOptions, attempt: tuple[str, str, int] | None
    ) -> TableReport:
        found = source.table(name)
        definition = definition_of(found, source.address.of_table(name))

        def guard(connection: Connection) -> None:
            if attempt is not None:
                self._operations.guard(connection, *attempt, hold=False)

        def beat(done: int) -> None:
            if attempt is not None:
                self._operations.heartbeat(*attempt, done=done, note="partitions")

        beat(0)
        table, outcome, differing = self._define(definition, options, guard)
        counts = PartitionCounts()
        if table.partition_keys:
            work = PartitionImport(self._storage, self._definitions, table, options, guard=guard, beat=beat)
            try:
                counts = work(source.partitions(name), Partitions(definition, spark_provider(found.parameters)))
            except CatalogError as error:
                if applied := work.counts.applied:
                    error.add_note(f"before that, {applied}, which stays; import again to continue")
                raise
        return TableReport(str(name), outcome, differing, counts, is_dry_run=options.is_dry_run)

    def _define(
        self, definition: Definition, options: ImportOptions, guard: Callable[[Connection], None]
    ) -> tuple[Table, ImportOutcome, tuple[str, ...]]:
        """Create the table, or compare it, and perhaps change it, in one transaction; say what was different."""
        with self._storage.read() as connection:
            table = find_table(self._definitions, connection, definition)
            if options.is_dry_run and table is None:
                claim_location(connection, definition.location, str(definition.name))
        if table is None:
            if options.is_dry_run:
                return unborn_table(definition), ImportOutcome.CREATED, ()
            with self._storage.write() as connection:
                guard(connection)
                return create_table(self._definitions, connection, definition), ImportOutcome.CREATED, ()
        refuse_other(table, definition, is_adopted=options.updates)
        differing = tuple(differences(table, definition))
        if not differing:
            return table, ImportOutcome.UNCHANGED, ()
        if not options.updates:
            return table, ImportOutcome.DIFFERS, differing
        if options.is_dry_run:
            return table, ImportOutcome.UPDATED, differing
        with self._storage.write() as connection:
            guard(connection)
            held = self._definitions.lock_table(connection, definition.name, exclusive=True)
            refuse_other(held, definition, is_adopted=True)
            return update_table(self._definitions, connection, held, definition), ImportOutcome.UPDATED, differing


def _close(source: Source | None) -> None:
    if source is not None:
        source.__exit__(None, None, None)


def failure_report(table: TableName, error: Exception, options: ImportOptions) -> TableReport:
    """Return the report of a table that an error has stopped."""
    is_refused = isinstance(error, InvalidRequestError | LocationInUseError)
    outcome = ImportOutcome.REFUSED if is_refused else ImportOutcome.FAILED
    return TableReport(
        str(table), outcome, reason=f"{type(error).__name__}: {_text(error)}", is_dry_run=options.is_dry_run
    )


def _text(error: BaseException) -> str:
    return "; ".join([str(error), *getattr(error, "__notes__", ())])
