"""Imports of databases and tables: their plan, and one operation per table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import Connection

from catalog.errors import (
    CatalogError,
    DatabaseNotFoundError,
    InvalidRequestError,
    LocationInUseError,
    SourceError,
    TableNotFoundError,
)
from catalog.importing.definition import Definition, Partitions, definition_of
from catalog.importing.partitions import ImportOptions, PartitionImport
from catalog.importing.projection import is_projected, projected_partitions
from catalog.importing.reports import ImportOutcome, PartitionCounts, TableReport
from catalog.importing.tables import create_table, differences, find_table, refuse_other, unborn_table, update_table
from catalog.metastores.address import Selection, SourceAddress
from catalog.metastores.source import Source, open_source
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations, failure_detail
from catalog.operations.records import OperationKind, OperationState
from catalog.storage import Storage
from catalog.tables.definitions import Definitions
from catalog.tables.ownership import claim_location
from catalog.tables.spark_schema import spark_provider

log = logging.getLogger(__name__)

STEP = "import"


@dataclass(frozen=True)
class ImportPlan:
    """The plan of an import.

    Attributes:
        address: The source, without patterns.
        databases: The databases to create, even if they have no tables.
        tables: The tables and views to import, sorted by name.
        named: The tables named without a pattern, whose refusal is an error.
    """

    address: SourceAddress
    databases: tuple[str, ...]
    tables: tuple[TableName, ...]
    named: frozenset[TableName]

    def failures(self, reports: Sequence[TableReport]) -> list[TableReport]:
        """Return the reports of tables whose import failed."""
        return [
            report
            for report in reports
            if report.outcome is ImportOutcome.FAILED
            or (report.outcome is ImportOutcome.REFUSED and TableName.parse(report.table) in self.named)
        ]


class Imports:
    """The imports of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    def plan(self, source: str, patterns: Sequence[str] = ()) -> ImportPlan:
        """Return the databases and tables of a source that match patterns, without changing anything.

        Args:
            source: `hms://host:port[/patterns]` or `glue://region[/patterns]`, with patterns as in `Selection`,
                separated by commas.
            patterns: Further patterns; without any pattern, everything matches.

        Raises:
            InvalidSourceError: The source or a pattern is malformed.
            SourceUnavailableError: The source does not answer.
            DatabaseNotFoundError, TableNotFoundError: A database or table named without a pattern does not exist.
        """
        address, more = SourceAddress.parse(source)
        selection = Selection.parse([*more, *patterns])
        with open_source(address) as opened:
            databases = [name for name in opened.databases() if selection.has_database(name)]
            if missing := sorted(selection.named_databases - {name.lower() for name in databases}):
                raise DatabaseNotFoundError(f"{address} has no database {', '.join(missing)}")
            tables = [TableName(database, name) for database in databases for name in opened.tables(database)]
        selected = tuple(sorted(table for table in tables if selection.has_table(table)))
        if absent := sorted(map(str, selection.named - {TableName(*map(str.lower, table)) for table in selected})):
            raise TableNotFoundError(f"{address} has no table {', '.join(absent)}")
        whole = {name for name in databases if selection.has_whole_database(name)}
        return ImportPlan(
            address, tuple(sorted(whole | {table.database for table in selected})), selected, selection.named
        )

    def import_databases(self, plan: ImportPlan, *, updates: bool = False) -> list[str]:
        """Create the plan's databases that do not exist yet.

        Args:
            updates: Update the description and properties of existing databases; their locations stay.

        Returns:
            Descriptions of the differences between catalog and source, as they were before updates.

        Raises:
            InvalidConfigurationError: A database has no location in the source, and no warehouse is set.
        """
        with open_source(plan.address) as source:
            return [
                difference for name in plan.databases for difference in self._import_database(source, name, updates)
            ]

    def _import_database(self, source: Source, name: str, updates: bool) -> Iterator[str]:
        in_source = source.database(name)
        in_catalog = self._definitions.create_database(
            name,
            location=in_source.location or None,
            description=in_source.description,
            properties=in_source.properties,
            if_not_exists=True,
        )
        for what in ("location", "description", "properties"):
            mine, theirs = getattr(in_catalog, what), getattr(in_source, what)
            if theirs and mine != theirs and not (what == "location" and mine == theirs.rstrip("/")):
                yield f"database {in_catalog.name}: {what}: {mine} here, {theirs} there"
        if updates:
            removed = dict.fromkeys(in_catalog.properties.keys() - in_source.properties.keys())
            self._definitions.alter_database(
                name, description=in_source.description, properties={**removed, **in_source.properties}
            )

    def import_tables(
        self,
        source: str,
        patterns: Sequence[str] = (),
        options: ImportOptions | None = None,
        *,
        requested_by: str | None = None,
    ) -> tuple[ImportPlan, list[TableReport]]:
        """Import all tables that match patterns; a failure of one table does not affect others.

        Returns:
            The plan, and a report of each table; `ImportPlan.failures` returns those that failed.

        Raises:
            CatalogError: As for `plan` and `import_databases`.
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
        """Import one table with its partitions, or a view, into an existing database.

        Repeated, it adds what is new; after a kill, it ends in the same state as an undisturbed run. No file is
        changed. Each batch of partitions has its own transaction, so readers see some partitions before the others.

        Args:
            source: The source, as for `plan`; patterns in it are ignored.
            operation_id: The id of the operation; if it has committed already, return its report. By default, a new id.

        Raises:
            SourceUnavailableError, TableNotFoundError: The source does not answer, or does not have the table.
            UnsupportedSourceTableError: The catalog cannot store the table.
            InvalidRequestError: A name or type is invalid, or existing partitions prevent the change of a key.
            LocationInUseError: Its location overlaps another table's location.
            OperationConflictError: Another operation is running on the table.
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
        with self._operations.failing(operation_id), self._operations.attempt(operation_id, STEP) as attempt:
            report = self._attempt(source, name, options, (operation_id, STEP, attempt))
            with self._storage.write() as connection:
                self._operations.finish_job(operation_id, STEP, attempt, report.as_json(), connection=connection)
                self._operations.advance(connection, operation_id, OperationState.COMMITTED)
                self._operations.advance(connection, operation_id, OperationState.CLEANED)
        reached(Point.COMMITTED)
        return report

    # --- one table ----------------------------------------------------------------------------------------------

    def _attempt(
        self, source: Source, name: TableName, options: ImportOptions, attempt: tuple[str, str, int] | None
    ) -> TableReport:
        source_table = source.table(name)
        definition = definition_of(source_table, source.address.of_table(name))

        def guard(connection: Connection) -> None:
            if attempt is not None:
                self._operations.guard(connection, *attempt, hold=False)

        def beat(done: int) -> None:
            if attempt is not None:
                self._operations.heartbeat(*attempt, done=done, note="partitions")

        pages = source.partitions(name)
        if is_projected(source_table):
            pages = projected_partitions(source_table, definition.location, datetime.now(UTC))
        beat(0)
        table, outcome, differing = self._define(definition, options, guard)
        counts = PartitionCounts()
        if table.partition_keys:
            work = PartitionImport(self._storage, self._definitions, table, options, guard=guard, beat=beat)
            try:
                counts = work(pages, Partitions(definition, spark_provider(source_table.parameters)))
            except CatalogError as error:
                if applied := work.counts.applied:
                    error.add_note(f"before that, {applied}; these changes stay. Import again to continue")
                raise
        return TableReport(str(name), outcome, differing, counts, is_dry_run=options.is_dry_run)

    def _define(
        self, definition: Definition, options: ImportOptions, guard: Callable[[Connection], None]
    ) -> tuple[Table, ImportOutcome, tuple[str, ...]]:
        """Create the table, or compare and update it, in one transaction; return it with the differences."""
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
    """Return the report of a table whose import raised an error."""
    is_refused = isinstance(error, InvalidRequestError | LocationInUseError)
    outcome = ImportOutcome.REFUSED if is_refused else ImportOutcome.FAILED
    return TableReport(
        str(table), outcome, reason=f"{type(error).__name__}: {failure_detail(error)}", is_dry_run=options.is_dry_run
    )
