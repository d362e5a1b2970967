"""Replacement of partitions of Hive-style tables: the new files become versions (`catalog.partitions.versions`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection, bindparam, func, select, update

from catalog.errors import ConflictError
from catalog.loading.appending import Extension
from catalog.model import Table
from catalog.model.partition_names import pack_values, partition_path
from catalog.operations.staging import StagedPartition
from catalog.partitions.staged import Destination
from catalog.partitions.versions import (
    Version,
    add_versions,
    find_versions,
    is_version,
    set_state,
    version_location,
)
from catalog.storage.bulk import among
from catalog.storage.properties import properties_text, read_properties
from catalog.storage.schema import PartitionRow, VersionState


def replaced_destinations(
    connection: Connection, table: Table, staged: Mapping[bytes, StagedPartition], attempt: str
) -> Iterator[Destination]:
    """Yield the destinations of files that replace those of the staged partitions that exist.

    Args:
        attempt: The name of the attempt that has staged the files.
    """
    row = PartitionRow
    query = select(row.identity, row.id).where(row.table_id == table.id, among(connection, row.identity, list(staged)))
    for identity, partition_id in connection.execute(query.order_by(row.id)):
        values = staged[bytes(identity)].values
        location = version_location(table, attempt, partition_path(table.key_names, values))
        packed = pack_values(values, len(table.key_names))
        yield Destination(bytes(identity), packed, location, is_new=False, partition_id=partition_id)


def switch(connection: Connection, table: Table, switched: Sequence[Extension], operation_number: int) -> None:
    """Make versions the locations of their partitions, in the caller's transaction, which has locked the table.

    The partitions get the counts of the new files and the table's format; one that is quarantined stays so.

    Args:
        switched: The versions; `partition_id` is None for partitions that the transaction has added.
        operation_number: The operation that has written the files.

    Raises:
        ConflictError: A partition was dropped, or dropped and added again, since the files were assigned to it.
    """
    row = PartitionRow
    query = select(row.id, row.identity, row.packed_values, row.location, row.properties).where(
        row.table_id == table.id, among(connection, row.identity, [partition.identity for partition in switched])
    )
    # The same order as in drops, to prevent deadlocks.
    found = connection.execute(query.order_by(row.id).with_for_update())
    existing = {bytes(partition.identity): partition for partition in found}
    former = find_versions(connection, [held.location for held in existing.values() if is_version(held.location)])
    shared = _shared(connection, table, [held.location for held in existing.values() if held.location is not None])
    changes, versions = [], []
    for new in switched:
        held = existing.get(new.identity)
        if held is None or new.partition_id not in (None, held.id):
            raise ConflictError(
                f"partition {new.location} of {table.full_name} was dropped or renamed while its files were replaced; "
                "nothing was changed. Run the operation again"
            )
        properties, _ = read_properties(held.properties)
        counts = {"files": new.file_count, "rows": new.row_count, "bytes": new.size_bytes}
        text = properties_text(table, properties, None)
        changes.append({"partition_id": held.id, "version": new.location, "text": text, **counts})
        before = former.get(held.location or "")
        home = table.partition_location(held.packed_values, None if held.location in shared else held.location)
        owns_home = new.partition_id is not None and held.location not in shared
        if before is not None:
            home, owns_home = before.home, before.owns_home
        versions.append(Version(new.identity, held.packed_values, new.location, home, owns_home))
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
    set_state(connection, former, VersionState.REPLACED)
    add_versions(connection, table, versions)


def _shared(connection: Connection, table: Table, locations: Sequence[str]) -> set[str]:
    """Return the locations that several partitions of a table have: files there are not of one partition alone."""
    row = PartitionRow
    query = select(row.location).where(row.table_id == table.id, among(connection, row.location, locations))
    found = connection.scalars(query.group_by(row.location).having(func.count() > 1))
    return {location for location in found if location is not None}
