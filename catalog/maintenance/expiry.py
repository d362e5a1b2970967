"""Expiry of the journal: ends abandoned operations, and removes those that ended long ago.

An operation stays as long as a folder of its files exists, because vacuum judges the folder by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import ColumnElement, and_, delete, not_, select

from catalog.errors import CatalogError
from catalog.files.filesystem import Folder
from catalog.maintenance.iceberg_attempts import operation_numbers as migrations_at
from catalog.maintenance.orphans import operation_numbers
from catalog.maintenance.reports import ExpiryReport
from catalog.maintenance.staging import staged_operations
from catalog.operations.approvals import expire_approvals
from catalog.operations.journal import Operations
from catalog.operations.records import UNFINISHED, OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.bulk import among
from catalog.storage.schema import OperationRow, PartitionChangeRow, StagedPartitionRow
from catalog.tables.definitions import Definitions

_BATCH = 1_000


def expire_operations(
    storage: Storage, definitions: Definitions, operations: Operations, before_ms: int, *, is_dry_run: bool
) -> ExpiryReport:
    """End abandoned operations, and remove those that ended before a time; see `Maintenance.expire_operations`."""
    abandoned = [
        operation for operation in operations.abandoned() if is_dry_run or operations.fail_if_abandoned(operation)
    ]
    in_use: set[int] | None = None
    problems: list[str] = []
    removed = kept = 0
    for batch in _batches(storage, _is_expired(before_ms)):
        if in_use is None:
            in_use = _numbers_in_use(storage, definitions, problems)
        removable = [] if problems else [number for number in batch if number not in in_use]
        kept += len(batch) - len(removable)
        removed += len(removable) if is_dry_run else _remove(storage, removable, before_ms)
    if not is_dry_run:
        with storage.write() as connection:
            expire_approvals(connection, before_ms)
            # Of catalogs whose changes are announced by nobody.
            connection.execute(delete(PartitionChangeRow).where(PartitionChangeRow.changed_at_ms <= before_ms))
    return ExpiryReport(is_dry_run, tuple(operation.id for operation in abandoned), removed, kept, tuple(problems))


def _is_expired(before_ms: int) -> ColumnElement[bool]:
    # Until vacuum has deleted the folder of a dropped table, only the operation records that it must be deleted.
    is_unfinished_purge = and_(
        OperationRow.kind.in_((OperationKind.DROP_TABLE, OperationKind.DROP_PARTITIONS)),
        OperationRow.state == OperationState.COMMITTED,
    )
    return and_(
        OperationRow.state.not_in(UNFINISHED),
        OperationRow.heartbeat_at_ms <= before_ms,
        not_(is_unfinished_purge),
    )


def _batches(storage: Storage, condition: ColumnElement[bool]) -> Iterator[list[int]]:
    query = select(OperationRow.number).where(condition).order_by(OperationRow.number).limit(_BATCH)
    after = 0
    while True:
        with storage.read() as connection:
            batch = list(connection.scalars(query.where(OperationRow.number > after)))
        if not batch:
            return
        yield batch
        after = batch[-1]


def _numbers_in_use(storage: Storage, definitions: Definitions, problems: list[str]) -> set[int]:
    """Return the operations that have a folder below the current location of any table."""
    numbers: set[int] = set()
    for table in definitions.list_tables():
        if table.is_view:
            continue
        try:
            location = Folder(table.location)
            find_numbers = operation_numbers if table.has_file_rows else staged_operations
            numbers |= find_numbers(storage, location) | migrations_at(storage, location)
        except (CatalogError, OSError, ValueError) as error:
            problems.append(f"{table.full_name}: {table.location} cannot be listed: {error}")
    return numbers


def _remove(storage: Storage, numbers: list[int], before_ms: int) -> int:
    """Remove operations and their jobs, except operations that were begun again meanwhile."""
    with storage.write() as connection:
        chosen = among(connection, OperationRow.number, numbers)
        expired = delete(OperationRow).where(chosen, _is_expired(before_ms)).returning(OperationRow.number)
        removed = connection.scalars(expired).all()
        # Reservations of loads whose staging folder was deleted by others.
        connection.execute(
            delete(StagedPartitionRow).where(among(connection, StagedPartitionRow.operation_number, removed))
        )
    return len(removed)
