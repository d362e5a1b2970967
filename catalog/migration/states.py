"""The state of each table on its way from Hive to Iceberg, from the catalog, its journal, and checks made on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

from sqlalchemy import Connection, func, select

from catalog.datafiles.publishing import translated_errors
from catalog.errors import CatalogError, CatalogUnavailableError, ConflictError
from catalog.migration.migrations import FLIP, STAGE, VERIFY, Migrations
from catalog.migration.requests import MigrationRequest, OnUnusable
from catalog.migration.reverting import Written, written_since_migration
from catalog.model import Table
from catalog.operations.dry_runs import PLAN
from catalog.operations.records import DRY_RUN, UNFINISHED, JobState, OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.bulk import among
from catalog.storage.clock import read_clock_ms
from catalog.storage.schema import JobRow, OperationRow
from catalog.tables.own_properties import SNAPSHOT_OF

_KINDS = (OperationKind.MIGRATE, OperationKind.REVERT)
_STEPS = (PLAN, STAGE, VERIFY, FLIP)
_USUAL_REQUEST = MigrationRequest()


class MigrationState(StrEnum):
    """The states of a table on its way to Iceberg, in this order."""

    UNKNOWN = "not looked at"
    READY = "ready"
    REFUSED = "refused"
    STAGED = "staged"
    VERIFIED = "verified"
    ICEBERG = "Iceberg"
    REVERTED = "reverted"


@dataclass(frozen=True)
class Step:
    """The latest attempt at a step of a migration.

    Attributes:
        error: The class and the message of its failure; None unless it failed.
        metadata_location: The metadata that it wrote or verified; None if it has no result.
        problem_count: The number of files that cannot be part of the table; None if it has no result.
        first_problem: Path and message of the first of them.
        files, rows, size_bytes: What it counted in the table's files; None if it has no result.
    """

    state: JobState
    error: str | None = None
    metadata_location: str | None = None
    problem_count: int | None = None
    first_problem: str | None = None
    files: int | None = None
    rows: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class LatestMigration:
    """The latest migration or revert of a table, without its report.

    Attributes:
        unusable_files: How the request treats files that cannot be part of the table.
        at_ms: The time of its last heartbeat, in milliseconds since 1970 UTC.
        steps: Step → its latest attempt.
    """

    operation_id: str
    kind: OperationKind
    state: OperationState
    failure_code: str | None
    failure_detail: str | None
    unusable_files: str | None
    requested_by: str | None
    at_ms: int
    steps: Mapping[str, Step] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.state in UNFINISHED

    def succeeded(self, step: str) -> bool:
        """Return whether the latest attempt at a step succeeded."""
        return step in self.steps and self.steps[step].state is JobState.SUCCEEDED

    @property
    def is_verified(self) -> bool:
        """Whether the staged metadata were compared with the Hive table."""
        if not (self.succeeded(STAGE) and self.succeeded(VERIFY)):
            return False
        return self.steps[STAGE].metadata_location == self.steps[VERIFY].metadata_location


@dataclass(frozen=True)
class PreFlight:
    """The result of the catalog's own check of a table, without reading files.

    Attributes:
        version: The version of the table (`Table.version`) that was checked.
        at_ms: When, in milliseconds since 1970 UTC.
        plan: `MigrationPlan.as_json`; None if the table was refused.
        reason: Why it was refused: the class and the message of the error.
        is_refused: Whether the table itself is refused; a table that another operation holds is not.
    """

    version: int
    at_ms: int
    plan: Mapping[str, Any] | None = None
    reason: str | None = None
    is_refused: bool = False


@dataclass(frozen=True)
class TableState:
    """A table's state, and why it has it.

    Attributes:
        reason: Why it is refused, or what is to be known; None if nothing is.
        is_running: Whether a migration of it is running.
    """

    state: MigrationState
    reason: str | None = None
    is_running: bool = False


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of an Iceberg table.

    Attributes:
        operation: What Iceberg calls its change, such as `append`; None if it has no summary.
        at_ms: When it was committed, in milliseconds since 1970 UTC.
        is_current: Whether readers see it.
        summary: Its figures, as Iceberg writes them.
    """

    snapshot_id: int
    parent_id: int | None
    operation: str | None
    at_ms: int
    is_current: bool
    summary: Mapping[str, str]


@dataclass(frozen=True)
class History:
    """The snapshots of an Iceberg table.

    Attributes:
        latest: The latest of them, newest first.
        count: The number of all that have not expired.
        written: What a revert would lose.
    """

    latest: tuple[Snapshot, ...]
    count: int
    written: Written


class MigrationStates:
    """States of the migrations of one catalog; nothing here changes anything."""

    def __init__(self, storage: Storage, migrations: Migrations) -> None:
        """Set the storage, and the migrations in it."""
        self._storage = storage
        self._migrations = migrations

    def latest(self) -> dict[int, LatestMigration]:
        """Return the latest migration or revert of each table that had one, by `Table.id`."""
        row = OperationRow
        newest = select(func.max(row.number)).where(row.kind.in_(_KINDS), row.table_id.is_not(None))
        newest = newest.group_by(row.table_id)
        with self._storage.read() as connection:
            steps: dict[int, dict[str, Step]] = {}
            # Read first: the journal has no index by kind.
            numbers = connection.scalars(newest).all()
            for number, name, step in _steps(connection, numbers):
                steps.setdefault(number, {})[name] = step
            found = connection.execute(
                select(
                    row.table_id,
                    row.number,
                    row.id,
                    row.kind,
                    row.state,
                    row.failure_code,
                    row.failure_detail,
                    row.request["unusable_files"].as_string().label("unusable_files"),
                    row.requested_by,
                    row.heartbeat_at_ms,
                ).where(among(connection, row.number, numbers))
            )
            return {
                operation.table_id: LatestMigration(
                    operation.id,
                    OperationKind(operation.kind),
                    OperationState(operation.state),
                    operation.failure_code,
                    operation.failure_detail,
                    operation.unusable_files,
                    operation.requested_by,
                    operation.heartbeat_at_ms,
                    steps.get(operation.number, {}),
                )
                for operation in found
            }

    def check(self, table: Table, request: MigrationRequest = _USUAL_REQUEST) -> PreFlight:
        """Return whether a table can become an Iceberg table, as far as the catalog knows.

        Raises:
            CatalogUnavailableError: The catalog cannot be reached.
        """
        with self._storage.read() as connection:
            at_ms = read_clock_ms(connection)
        try:
            plan = self._migrations.plan(table.full_name, request)
        except CatalogUnavailableError:
            raise
        except CatalogError as error:
            is_refused = not (error.retryable or isinstance(error, ConflictError))
            return PreFlight(table.version, at_ms, None, f"{type(error).__name__}: {error}", is_refused)
        return PreFlight(plan.table.version, at_ms, plan.as_json())

    def history(self, table: Table, limit: int = 50) -> History | None:
        """Return the snapshots of an Iceberg table, from its current metadata file; None for another table.

        Raises:
            UnreadableMetadataError: The metadata are damaged.
            StorageError: They cannot be read.
        """
        location = table.metadata_location
        if location is None or not table.is_iceberg:
            return None
        from catalog.iceberg.metadata import read_metadata
        from catalog.iceberg.named_files import reading

        with translated_errors(table), reading(location):
            metadata = read_metadata(location)
            written = written_since_migration(location)
        newest = sorted(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms, reverse=True)
        latest = tuple(
            Snapshot(
                snapshot.snapshot_id,
                snapshot.parent_snapshot_id,
                None if snapshot.summary is None else str(snapshot.summary.operation.value),
                snapshot.timestamp_ms,
                snapshot.snapshot_id == metadata.current_snapshot_id,
                {} if snapshot.summary is None else dict(snapshot.summary.additional_properties),
            )
            for snapshot in islice(newest, limit)
        )
        return History(latest, len(newest), written)


def is_candidate(table: Table) -> bool:
    """Return whether a table can have a migration state: it is a Hive table, or was one before its migration."""
    others = table.is_view or table.scheme is not None or table.is_stored_as_iceberg or table.is_only_iceberg
    return not others and SNAPSHOT_OF not in table.properties


def state_of(table: Table, latest: LatestMigration | None, check: PreFlight | None) -> TableState:
    """Return the state of a table.

    Args:
        latest: Its latest migration or revert.
        check: The latest check of it; one of another version of the table is ignored.
    """
    if table.is_iceberg:
        return TableState(MigrationState.ICEBERG)
    if latest is not None and latest.is_running:
        return _running(latest)
    if check is not None and check.version == table.version and (latest is None or check.at_ms >= latest.at_ms):
        return _checked(check)
    if latest is None:
        return TableState(MigrationState.UNKNOWN)
    if latest.kind is OperationKind.REVERT:
        state = MigrationState.UNKNOWN if latest.state is OperationState.FAILED else MigrationState.REVERTED
        return TableState(state, latest.failure_detail)
    if latest.state is OperationState.FAILED:
        return _of_dry_run(latest) if latest.failure_code == DRY_RUN else _failed(latest)
    # It was migrated, and has become a Hive table again in a way that the journal no longer tells.
    return TableState(MigrationState.UNKNOWN)


def _running(latest: LatestMigration) -> TableState:
    if latest.kind is OperationKind.REVERT:
        return TableState(MigrationState.ICEBERG, "a revert is running", is_running=True)
    if latest.is_verified:
        return TableState(MigrationState.VERIFIED, "is to be switched", is_running=True)
    if latest.succeeded(STAGE):
        return TableState(MigrationState.STAGED, "is being verified", is_running=True)
    return TableState(MigrationState.READY, "its files are being read", is_running=True)


def _checked(check: PreFlight) -> TableState:
    if check.reason is None:
        return TableState(MigrationState.READY)
    return TableState(MigrationState.REFUSED if check.is_refused else MigrationState.UNKNOWN, check.reason)


def _of_dry_run(latest: LatestMigration) -> TableState:
    stage = latest.steps.get(STAGE)
    if stage is None and latest.succeeded(PLAN):
        return TableState(MigrationState.READY, "a dry run has planned it, without reading its files")
    if stage is None or stage.state is not JobState.SUCCEEDED:
        return _failed(latest)
    if not stage.problem_count:
        return TableState(MigrationState.READY, "a dry run has read its files")
    files = f"{stage.problem_count:,} file(s) cannot be part of the table, the first: {stage.first_problem}"
    if latest.unusable_files == OnUnusable.SKIP:
        return TableState(MigrationState.READY, files)
    return TableState(MigrationState.REFUSED, files)


def _failed(latest: LatestMigration) -> TableState:
    errors = (latest.steps[name].error for name in reversed(_STEPS) if name in latest.steps)
    reason = next((error for error in errors if error is not None), None)
    detail = f"{latest.failure_code or 'FAILED'}: {latest.failure_detail or 'see its log'}"
    return TableState(MigrationState.REFUSED, reason or detail)


def _steps(connection: Connection, numbers: Sequence[int]) -> Iterator[tuple[int, str, Step]]:
    """Yield operation, name and result of the steps of operations; of reports, only what a `Step` has."""
    job, first = JobRow, ("problems", 0)
    query = select(
        job.operation_number,
        job.step,
        job.state,
        job.error_class,
        job.error_message,
        job.result["metadata_location"].as_string().label("metadata_location"),
        job.result["problem_count"].as_integer().label("problem_count"),
        job.result[(*first, "path")].as_string().label("path"),
        job.result[(*first, "message")].as_string().label("message"),
        job.result["files"].as_integer().label("files"),
        job.result["rows"].as_integer().label("row_count"),
        job.result["bytes"].as_integer().label("size_bytes"),
    ).where(among(connection, job.operation_number, numbers), job.step.in_(_STEPS))
    for row in connection.execute(query):
        state = JobState(row.state)
        error = f"{row.error_class}: {row.error_message}" if state is JobState.FAILED else None
        problem = None if row.path is None else f"{row.path}: {row.message}"
        yield (
            row.operation_number,
            row.step,
            Step(
                state,
                error,
                row.metadata_location,
                row.problem_count,
                problem,
                row.files,
                row.row_count,
                row.size_bytes,
            ),
        )
