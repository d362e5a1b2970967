"""`RollBacks`: makes an earlier snapshot of a table the current one again.

One transaction restores the scheme and the rows of the files as they were in the snapshot, and publishes it. A table
stored as Iceberg without a scheme gets the files of the snapshot, and the partitions and index items that follow from
them, as after a roll-back by an engine. No file is read or written besides the metadata. The snapshots that this leaves
can be rolled back to in the same way, until they expire.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection

from catalog.datafiles.files import Total, count_files
from catalog.datafiles.history import (
    nearest_recorded,
    record_changed_partitions,
    recorded_revisions,
    restore,
)
from catalog.datafiles.intake import lock_to_roll_back, reading_current, take_in
from catalog.datafiles.publishing import (
    ensure_recorded,
    live_history,
    point_to_snapshot,
    publish,
    published_snapshots,
)
from catalog.errors import (
    CatalogError,
    InvalidSchemeError,
    UnknownSnapshotError,
    UnsupportedCommitError,
)
from catalog.model import Table
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind, OperationState
from catalog.storage import Storage
from catalog.tables.definitions import Definitions

STEP = "roll_back"


class RollBacks:
    """Roll-backs of one catalog's tables."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Use a database, the definitions in it, and its journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    def to_snapshot(
        self, table: str, snapshot_id: int, *, operation_id: str | None = None, requested_by: str | None = None
    ) -> dict[str, Any]:
        """Roll a table back to a snapshot, in one operation; a repeated call with its id returns the same report.

        Args:
            snapshot_id: Of a state of the table that has not expired; also of one that an earlier roll-back has left.
            operation_id: For callers that retry.

        Returns:
            The report: `table`, `snapshot_id`, `snapshot_id_before`, and the numbers of `files` and `rows` after and
            before (`files_before`, `rows_before`).

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidSchemeError: The table has neither a partition scheme nor is it stored as Iceberg.
            UnknownSnapshotError: The table has no such snapshot.
            OperationConflictError: Another operation works on the table.
            InvalidPartitionError: An index, which is newer than the snapshot, does not admit one of its partitions.
            ConflictError: One of its partitions is quarantined.
            UnsupportedCommitError: Calve cannot follow a commit of another engine, also after the roll-back.
        """
        operation_id = operation_id or f"roll-back-{table}-{uuid4().hex}"
        earlier = self._operations.find(operation_id)
        if earlier is None:
            with reading_current(self._storage, self._definitions, table) as (connection, definition):
                _require(connection, definition, snapshot_id)
        operation = self._operations.begin(
            operation_id,
            OperationKind.ROLL_BACK,
            table,
            {"snapshot_id": snapshot_id},
            is_exclusive=True,
            is_fixed=True,
            requested_by=requested_by,
        )
        if operation.is_committed:
            return dict(operation.report[STEP])
        with self._operations.failing(operation_id), self._operations.attempt(operation_id, STEP) as attempt:
            return self._run(operation_id, attempt, operation.table, snapshot_id)

    def to_time(
        self, table: str, at: datetime, *, operation_id: str | None = None, requested_by: str | None = None
    ) -> dict[str, Any]:
        """Roll a table back to the snapshot that was current at a time; see `to_snapshot`.

        Args:
            at: Of the catalog's clock, with a time zone.

        Raises:
            UnknownSnapshotError: The table had no snapshot at that time, or has it no more.
            CatalogError: As for `to_snapshot`.
        """
        earlier = None if operation_id is None else self._operations.find(operation_id)
        if earlier is not None:
            snapshot_id = int(earlier.request["snapshot_id"])
        else:
            with reading_current(self._storage, self._definitions, table) as (connection, definition):
                known = _known(connection, definition)
            before = [known_id for known_id, at_ms in known if at_ms <= at.timestamp() * 1000]
            if not before:
                raise UnknownSnapshotError(definition.full_name, at, _shown(known))
            snapshot_id = before[-1]
        return self.to_snapshot(table, snapshot_id, operation_id=operation_id, requested_by=requested_by)

    def _run(self, operation_id: str, attempt: int, name: str, snapshot_id: int) -> dict[str, Any]:
        with self._storage.write() as connection:
            self._operations.guard(connection, operation_id, STEP, attempt)
            table = lock_to_roll_back(connection, self._definitions, name)
            report = self._roll_back(connection, table, snapshot_id)
            self._operations.finish_job(operation_id, STEP, attempt, report, connection=connection)
            self._operations.advance(connection, operation_id, OperationState.COMMITTED)
            self._operations.advance(connection, operation_id, OperationState.CLEANED)
            reached(Point.CHANGED)
        reached(Point.COMMITTED)
        return report

    def _roll_back(self, connection: Connection, table: Table, snapshot_id: int) -> dict[str, Any]:
        ensure_recorded(connection, table)
        _require(connection, table, snapshot_id)
        earlier, live = _total(connection, table), replace(table, published_location=table.live_location)
        current_id = published_snapshots(live).current_id
        if table.is_stored_as_iceberg:
            _follow(connection, self._definitions, table, snapshot_id)
        else:
            _restore(connection, table, snapshot_id)
        total = _total(connection, table)
        return {
            "table": table.full_name,
            "snapshot_id": snapshot_id,
            "snapshot_id_before": current_id,
            "files": total.file_count,
            "rows": total.row_count,
            "files_before": earlier.file_count,
            "rows_before": earlier.row_count,
        }


def _restore(connection: Connection, table: Table, snapshot_id: int) -> None:
    """Restore the recorded rows and the scheme of a snapshot, and publish it."""
    recorded = nearest_recorded(connection, table, [snapshot_id])
    assert recorded is not None
    if not recorded.is_latest or published_snapshots(table).current_id != snapshot_id:
        scheme = restore(connection, table, recorded.revision)
        record_changed_partitions(connection, table, scheme)
        publish(connection, replace(table, scheme=scheme), rolled_back_to=snapshot_id)


def _follow(connection: Connection, definitions: Definitions, table: Table, snapshot_id: int) -> None:
    """Move the pointer of a table stored as Iceberg to a snapshot, and follow it.

    Raises:
        InvalidPartitionError: An index does not admit a partition.
        ConflictError: A partition is quarantined.
    """
    point_to_snapshot(connection, table, snapshot_id)
    try:
        take_in(connection, definitions, table)
    except UnsupportedCommitError as error:
        # Not the commit of another engine, but this roll-back is refused.
        if isinstance(error.__cause__, CatalogError):
            raise error.__cause__ from None
        raise


def _total(connection: Connection, table: Table) -> Total:
    return sum(count_files(connection, table).values(), Total())


def _require(connection: Connection, table: Table, snapshot_id: int) -> None:
    """Check that a table can be rolled back to a snapshot.

    Raises:
        InvalidSchemeError: The table has no history of its files.
        UnknownSnapshotError: There is none, the snapshot has expired, or engines committed again before the catalog
            took it in.
    """
    known = _known(connection, table)
    if all(known_id != snapshot_id for known_id, _ in known):
        exists = snapshot_id in published_snapshots(table).times
        raise UnknownSnapshotError(table.full_name, snapshot_id, _shown(known), exists=exists)


def _known(connection: Connection, table: Table) -> list[tuple[int, int]]:
    """Return the existing snapshots that were current: id and time since when, in the order of times.

    Raises:
        InvalidSchemeError: The table has no history of its files, or is not published.
    """
    if table.is_stored_as_iceberg:
        return live_history(table)
    if table.scheme is None:
        raise InvalidSchemeError(
            f"table {table.full_name} has no partition scheme, so its files have no history to roll back to"
        )
    if table.published_location is None:
        raise InvalidSchemeError(f"table {table.full_name} has no snapshots yet; run `calve init`, which publishes it")
    snapshot_ids = published_snapshots(table).times
    revisions = recorded_revisions(connection, table)
    return [(recorded.snapshot_id, recorded.at_ms) for recorded in revisions if recorded.snapshot_id in snapshot_ids]


def _shown(known: list[tuple[int, int]]) -> list[tuple[int, datetime]]:
    """Return the known snapshots with their times, the latest first."""
    shown = [(snapshot_id, datetime.fromtimestamp(at_ms / 1000, UTC)) for snapshot_id, at_ms in dict(known).items()]
    return sorted(shown, key=lambda item: item[1], reverse=True)
