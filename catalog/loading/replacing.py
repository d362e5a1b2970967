"""Replacement and removal of partitions of Hive-style tables, as versions (`catalog.partitions.versions`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, func, select, update

from catalog.errors import ConflictError
from catalog.loading.appending import Extension
from catalog.loading.replaced_folders import PartitionsRead, overtaken
from catalog.model import Table
from catalog.model.partition_names import partition_path, unpack_values
from catalog.operations.changes import record_changed
from catalog.operations.staging import StagedPartition
from catalog.partitions.changing import drop_partitions
from catalog.partitions.staged import Destination
from catalog.partitions.versions import (
    Version,
    add_versions,
    find_unsettled,
    find_versions,
    is_version,
    set_state,
    version_location,
)
from catalog.storage.bulk import among, batched
from catalog.storage.properties import properties_text, read_properties
from catalog.storage.schema import PartitionRow, VersionState

Removed = Mapping[int, tuple[str | None, ...]]
"""The partitions that a change removes: id → values when they were looked up."""


def replaced_destinations(
    connection: Connection,
    table: Table,
    staged: Mapping[bytes, StagedPartition],
    attempt: str,
    read: Mapping[bytes, int] | None,
    *,
    replaces_others: bool = False,
) -> Iterator[Destination]:
    """Yield the destinations of files that replace those of the staged partitions that exist.

    Args:
        attempt: The name of the attempt that has staged the files.
        read: The partitions that the attempt has read, identity → id: none of them is added. None to replace those that
            exist, whichever they are.
        replaces_others: Whether others than those that were read are replaced, too.

    Raises:
        PlanConflictError: A partition that was read does not exist, or one exists that was not read.
    """
    row = PartitionRow
    query = select(row.identity, row.id).where(row.table_id == table.id, among(connection, row.identity, list(staged)))
    existing = {bytes(identity): number for identity, number in connection.execute(query.order_by(row.id))}
    if read is not None:
        for identity, partition in staged.items():
            is_other = replaces_others and identity not in read
            if not is_other and existing.get(identity) != read.get(identity):
                raise overtaken(table, partition_path(table.key_names, partition.values))
    for identity, partition_id in existing.items():
        partition = staged[identity]
        location = version_location(table, attempt, partition_path(table.key_names, partition.values))
        packed = partition.packed_values(table.key_names)
        yield Destination(identity, packed, location, is_new=False, partition_id=partition_id)


def require_read(connection: Connection, table: Table, read: PartitionsRead, files: Mapping[str, bytes]) -> None:
    """Check that partitions are those that were read, in the caller's transaction, which has locked the table.

    Args:
        files: As for `switch`.

    Raises:
        PlanConflictError: One was dropped or renamed, or its location is not one whose files were compared.
    """
    for batch in _held_same(connection, table, {number: partition.values for number, partition in read.items()}):
        for partition in batch:
            if table.partition_location(partition.packed_values, partition.location) not in files:
                raise overtaken(table, table.partition_name(partition.packed_values))


def require_same(connection: Connection, table: Table, removed: Removed) -> None:
    """Check that partitions to remove are those that were looked up, in the caller's transaction.

    Raises:
        PlanConflictError: One was dropped or renamed.
    """
    for _ in _held_same(connection, table, removed):
        pass


def switch(
    connection: Connection,
    table: Table,
    switched: Sequence[Extension],
    operation_number: int,
    files: Mapping[str, bytes],
) -> None:
    """Make versions the locations of their partitions, in the caller's transaction, which has locked the table.

    The partitions get the counts of the new files and the table's format; one that is quarantined stays so.

    Args:
        switched: The versions; `partition_id` is None for partitions that the transaction has added.
        operation_number: The operation that has written the files.
        files: Folder → the files that are replaced (`catalog.loading.replaced_folders`).

    Raises:
        ConflictError: A partition was dropped, or dropped and added again, since the files were assigned to it.
    """
    row = PartitionRow
    held = _held(connection, table, among(connection, row.identity, [partition.identity for partition in switched]))
    existing = {bytes(partition.identity): partition for partition in held}
    changes, versions = [], dict[int, str]()
    for new in switched:
        partition = existing.get(new.identity)
        if partition is None or new.partition_id not in (None, partition.id):
            raise ConflictError(
                f"partition {new.location} of {table.full_name} was dropped or renamed while its files were replaced; "
                "nothing was changed. Run the operation again"
            )
        text = properties_text(table, read_properties(partition.properties)[0], None)
        counts = {"files": new.file_count, "rows": new.row_count, "bytes": new.size_bytes}
        changes.append({"partition_id": partition.id, "version": new.location, "text": text, **counts})
        versions[partition.id] = new.location
    added = {new.identity for new in switched if new.partition_id is None}
    _record(connection, table, held, versions, added, files)
    connection.execute(
        update(row)
        .where(row.id == bindparam("partition_id"))
        .values(
            location=bindparam("version"),
            file_count=bindparam("files"),
            row_count=bindparam("rows"),
            size_bytes=bindparam("bytes"),
            properties=bindparam("text"),
            operation_number=operation_number,
        ),
        changes,
    )
    record_changed(connection, table, list(versions), operation_number)


def remove(connection: Connection, table: Table, removed: Removed, attempt: str, files: Mapping[str, bytes]) -> None:
    """Drop partitions with their rows, in the caller's transaction, which has locked the table.

    Their folders become empty when vacuum settles the versions without files that this records; until then, running
    readers and readers of the table's folder see the files.

    Args:
        attempt: The name of the attempt that removes the partitions.
        files: As for `switch`.

    Raises:
        PlanConflictError: A partition was dropped or renamed since it was looked up.
    """
    for held in _held_same(connection, table, removed):
        paths = {partition.id: table.partition_name(partition.packed_values) for partition in held}
        versions = {number: version_location(table, attempt, path) for number, path in paths.items()}
        _record(connection, table, held, versions, frozenset(), files)
        drop_partitions(connection, table, versions)


def _held_same(connection: Connection, table: Table, known: Removed) -> Iterator[Sequence[Row[*tuple[Any, ...]]]]:
    """Yield batches of rows of partitions as `_held` returns them.

    Args:
        known: Id → values when they were looked up.

    Raises:
        PlanConflictError: A partition was dropped or renamed since then.
    """
    for batch in batched(sorted(known)):
        held = _held(connection, table, among(connection, PartitionRow.id, batch))
        values = {partition.id: unpack_values(partition.packed_values) for partition in held}
        for number in batch:
            if values.get(number) != known[number]:
                raise overtaken(table, partition_path(table.key_names, known[number]))
        yield held


def _held(connection: Connection, table: Table, condition: ColumnElement[bool]) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return rows of partitions, locked until the commit, in the same order as in drops, which prevents deadlocks."""
    row = PartitionRow
    query = select(row.id, row.identity, row.packed_values, row.location, row.properties)
    return connection.execute(query.where(row.table_id == table.id, condition).order_by(row.id).with_for_update()).all()


def _record(
    connection: Connection,
    table: Table,
    partitions: Sequence[Row[*tuple[Any, ...]]],
    versions: Mapping[int, str],
    added: Collection[bytes],
    files: Mapping[str, bytes],
) -> None:
    """Record versions of partitions, each with the home of the version that it replaces.

    Args:
        partitions: Their rows before the change.
        versions: Partition id → folder of the version.
        added: Identities of partitions that the transaction has added: files in their folders are not theirs.
        files: Folder → the files that are replaced.
    """
    own = [partition.location for partition in partitions if partition.location is not None]
    former = dict(find_versions(connection, filter(is_version, own)))
    unsettled = find_unsettled(connection, table, added) if added else {}
    shared = _shared(connection, table, own)
    new = []
    for partition in partitions:
        identity, location = bytes(partition.identity), partition.location
        before = former.get(location or "")
        if identity in added and (before := unsettled.get(identity)) is not None:
            former[before.location] = before
        home = table.partition_location(partition.packed_values, None if location in shared else location)
        owns_home = identity not in added and location not in shared
        replaced = files.get(home, None if owns_home else b"")
        if before is not None:
            home, owns_home, replaced = before.home, before.owns_home, before.replaced
        new.append(Version(identity, partition.packed_values, versions[partition.id], home, owns_home, replaced))
    set_state(connection, former, VersionState.REPLACED)
    add_versions(connection, table, new)


def _shared(connection: Connection, table: Table, locations: Sequence[str]) -> set[str]:
    """Return the locations that several partitions of a table have: files there are not of one partition alone."""
    row = PartitionRow
    query = select(row.location).where(row.table_id == table.id, among(connection, row.location, locations))
    found = connection.scalars(query.group_by(row.location).having(func.count() > 1))
    return {location for location in found if location is not None}
