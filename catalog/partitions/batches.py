"""Look-ups and changes of many partitions, as in Glue: in few statements, and each member fails by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, select, update

from catalog.errors import CatalogError, InvalidPartitionSpecError, PartitionNotFoundError
from catalog.indexes.definitions import IdRange, hold_ranges, maintained_indexes
from catalog.model import Table
from catalog.model.batches import BatchChange, PartitionBatch, PartitionFailure, PartitionKey, PartitionUpdate
from catalog.model.partition_names import partition_path
from catalog.operations.changes import record_changed
from catalog.partitions.altering import PartitionChange, changed_fields
from catalog.partitions.folders import refuse_shared_folders
from catalog.partitions.specs import whole_values
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.partition_rows import PartitionFactory, partition_query
from catalog.storage.schema import PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions
from catalog.tables.normalising import parse_format
from catalog.tables.ownership import refuse_locations_in_use

BATCH = 1_000
"""The number of partitions that one transaction changes."""


class _Member(NamedTuple):
    """A member of a request, by the identity of its partition."""

    partition: PartitionKey
    request: Any


@dataclass(frozen=True)
class _Pending:
    """A member whose row is locked, with the new values of the row's columns."""

    member: _Member
    row: Row[Any]
    fields: dict[str, Any]

    @property
    def is_moved(self) -> bool:
        """Return whether the partition gets another location."""
        return bool(self.fields["location"] != self.row.location)


def get_batch(connection: Connection, table: Table, partitions: Sequence[PartitionKey]) -> PartitionBatch:
    """Return partitions, visible or quarantined; see `Catalog.batch_get_partitions`."""
    members, failures = _resolved(table, ((partition, None) for partition in partitions))
    factory, found = PartitionFactory(table), {}
    for batch in batched(members, BATCH):
        query = partition_query(table).add_columns(PartitionRow.identity)
        for *record, identity in connection.execute(query.where(among(connection, PartitionRow.identity, batch))):
            found[bytes(identity)] = factory.make(record)
    failures += [_missing(table, member) for identity, member in members.items() if identity not in found]
    return PartitionBatch([found[identity] for identity in members if identity in found], failures)


def find_batch(
    connection: Connection, table: Table, partitions: Sequence[PartitionKey]
) -> tuple[list[int], list[PartitionFailure]]:
    """Return the ids of partitions, and the failures of those that do not exist."""
    members, failures = _resolved(table, ((partition, None) for partition in partitions))
    ids = dict[bytes, int]()
    for batch in batched(members, BATCH):
        ids |= _ids(connection, table, batch)
    failures += [_missing(table, member) for identity, member in members.items() if identity not in ids]
    return list(ids.values()), failures


def update_batch(
    storage: Storage, definitions: Definitions, name: str, updates: Iterable[PartitionUpdate]
) -> BatchChange:
    """Change partitions, in one transaction for each `BATCH` of them; see `Catalog.batch_update_partitions`."""
    changed, failures = 0, list[PartitionFailure]()
    for batch in batched(updates, BATCH):
        has_locations = any(change.location is not None for change in batch)
        with storage.write() as connection:
            table = definitions.lock_table(connection, name, exclusive=False, is_bulk=has_locations)
            pending, failed = _pending(connection, table, batch)
            refused = _apply(connection, table, pending)
        changed += len(pending) - len(refused)
        failures += [*failed, *refused]
    return BatchChange(changed, failures)


def _resolved(
    table: Table, requests: Iterable[tuple[PartitionKey, Any]]
) -> tuple[dict[bytes, _Member], list[PartitionFailure]]:
    """Return the members of a request by identity, and the failures of those that name no partition."""
    encoder, members, failures = ValueEncoder(table), dict[bytes, _Member](), list[PartitionFailure]()
    for partition, request in requests:
        try:
            identity = encoder.identity(whole_values(table, partition))
            if identity in members:
                raise InvalidPartitionSpecError("the partition is named twice; only the first counts")
            members[identity] = _Member(partition, request)
        except CatalogError as error:
            failures.append(_failure(partition, error))
    return members, failures


def _ids(connection: Connection, table: Table, identities: Sequence[bytes]) -> dict[bytes, int]:
    row = PartitionRow
    query = select(row.identity, row.id).where(row.table_id == table.id, among(connection, row.identity, identities))
    return {bytes(identity): number for identity, number in connection.execute(query)}


def _pending(
    connection: Connection, table: Table, updates: Sequence[PartitionUpdate]
) -> tuple[list[_Pending], list[PartitionFailure]]:
    """Lock the rows of partitions, and return their new values."""
    members, failures = _resolved(table, ((change.partition, change) for change in updates))
    ids = _ids(connection, table, list(members))
    pending: list[_Pending] = []
    if ids:
        # As `alter_partition`: first against index builds, then against other changes.
        hold_ranges(connection, table.id, IdRange(min(ids.values()), max(ids.values())))
    indexes, row = maintained_indexes(connection, table.id), PartitionRow
    query = select(row.__table__).where(row.table_id == table.id, among(connection, row.id, list(ids.values())))
    for record in connection.execute(query.order_by(row.id).with_for_update()):
        member = members.pop(bytes(record.identity))
        try:
            fields = changed_fields(table, indexes, record, _change(member.request))
            pending.append(_Pending(member, record, fields))
        except CatalogError as error:
            failures.append(_failure(member.partition, error))
    return pending, failures + [_missing(table, member) for member in members.values()]


def _change(change: PartitionUpdate) -> PartitionChange:
    return PartitionChange(
        change.location,
        None if change.format is None else parse_format(change.format),
        change.properties,
        counts={"row_count": change.row_count, "file_count": change.file_count, "size_bytes": change.size_bytes},
    )


_COLUMNS = ("location", "properties", "row_count", "file_count", "size_bytes")
_UPDATE = (
    update(PartitionRow)
    .where(PartitionRow.id == bindparam("changed_id"))
    .values({name: bindparam(f"new_{name}") for name in _COLUMNS})
)


def _apply(connection: Connection, table: Table, pending: Sequence[_Pending]) -> list[PartitionFailure]:
    """Write the new values, and return the failures; of a group with a bad location, each half is tried again."""
    if not pending:
        return []
    moved = [change for change in pending if change.is_moved]
    try:
        with connection.begin_nested():
            connection.execute(_UPDATE, [_parameters(change) for change in pending])
            if moved:
                locations = [table.partition_location(c.row.packed_values, c.fields["location"]) for c in moved]
                refuse_locations_in_use(connection, table, locations)
                stored = [change.fields["location"] for change in moved]
                refuse_shared_folders(connection, table, [change.row.packed_values for change in moved], stored)
                record_changed(connection, table, [change.row.id for change in moved])
    except CatalogError as error:
        if len(pending) == 1:
            return [_failure(pending[0].member.partition, error)]
        half = len(pending) // 2
        return _apply(connection, table, pending[:half]) + _apply(connection, table, pending[half:])
    return []


def _parameters(change: _Pending) -> dict[str, Any]:
    current = change.row._mapping
    values = {f"new_{name}": change.fields.get(name, current[name]) for name in _COLUMNS}
    return {"changed_id": change.row.id, **values}


def _missing(table: Table, member: _Member) -> PartitionFailure:
    path = partition_path(table.key_names, whole_values(table, member.partition))
    return _failure(member.partition, PartitionNotFoundError(f"table {table.full_name} has no partition {path}"))


def _failure(partition: PartitionKey, error: CatalogError) -> PartitionFailure:
    return PartitionFailure(partition, type(error).__name__, str(error))
