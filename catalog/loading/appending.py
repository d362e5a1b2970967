"""Appends to existing partitions, or to a table without partition keys.

The folders of existing partitions stay in place, so files are moved one by one, under unique names. Their destinations
are stored before the first file is moved (`catalog.loading.publishing`); the commit checks that the partitions still
exist. Until the commit, and while an append is undone, a reader that lists the folder of an existing partition may see
some of the new files; new partitions become visible with the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, select, update

from catalog.errors import (
    ConflictError,
    LocationNotAllowedError,
    LocationTakenError,
    PartitionAlreadyExistsError,
    UnsupportedFormatError,
)
from catalog.files.locations import comparable, is_within
from catalog.model import NewPartition, OnInvalid, Table
from catalog.model.partition_names import partition_path
from catalog.operations.changes import record_changed
from catalog.operations.staging import StagedPartition
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.folders import taken_default_folders
from catalog.partitions.staged import Destination
from catalog.partitions.versions import version_location
from catalog.settings.places import LOCATIONS
from catalog.storage.bulk import among
from catalog.storage.properties import read_properties
from catalog.storage.schema import PartitionRow
from catalog.tables.own_files import is_linked_outside


class Extension(NamedTuple):
    """Files that an append adds to an existing partition; `partition_id` is its id when they were assigned to it."""

    identity: bytes
    partition_id: int | None
    location: str
    file_count: int
    row_count: int
    size_bytes: int


def added_destinations(
    connection: Connection,
    adder: PartitionAdder,
    added: Mapping[bytes, StagedPartition],
    occupied: Mapping[bytes, bool],
    attempt: str,
) -> Iterable[Destination]:
    """Return the destinations of a statement's files for new partitions.

    If the default folder of a partition has files that the catalog does not know, such as those of a dropped partition,
    the files become a version of the partition (`catalog.partitions.versions`). If it overlaps the location of another
    partition, the partition stays in a hidden folder beside it. The caller has locked the table against added
    partitions.

    Args:
        added: The staged partitions that do not exist, by identity.
        occupied: Identities of partitions that did not exist before → whether their default folders contain files.
        attempt: The name of the attempt that has staged the files.

    Raises:
        InvalidPartitionError: An index does not admit a partition.
        ConflictError: A partition was added or dropped by another process meanwhile.
        LocationTakenError: The default folder of a partition lies inside the location of another partition.
    """
    table = adder.table
    packed_values = {identity: partition.packed_values(table.key_names) for identity, partition in added.items()}
    taken = taken_default_folders(connection, table, list(packed_values.values()))
    new, destinations = [], []
    for identity, partition in added.items():
        path = partition_path(table.key_names, partition.values)
        if identity not in occupied:
            raise _changed(table, path)
        location = table.default_partition_location(path)
        owner, owner_location = taken.get(packed_values[identity], ("", ""))
        if owner and not is_within(comparable(owner_location), comparable(location)):
            # A folder next to the default one would lie inside the other partition's location, too.
            raise LocationTakenError(table.full_name, location, f"partition {owner}", owner_location)
        if owner:
            parent, _, name = location.rpartition("/")
            location = f"{parent}/.{name}-{attempt}"
        new.append(NewPartition(partition.values, location))
        if occupied[identity] and not owner:
            location = version_location(table, attempt, path)
        destinations.append(Destination(identity, packed_values[identity], location, is_new=True))
    try:
        adder.check(new, on_invalid=OnInvalid.REFUSE)
    except PartitionAlreadyExistsError as error:
        raise ConflictError(f"another process has added a partition meanwhile; append again: {error}") from error
    return destinations


def extended_destinations(
    connection: Connection, table: Table, staged: Mapping[bytes, StagedPartition]
) -> Iterator[Destination]:
    """Yield the destinations of files for those of the staged partitions that exist.

    Raises:
        UnsupportedFormatError: A partition's format differs from the table's.
        ConflictError: A partition is quarantined.
    """
    for identity, row in _rows(connection, table, list(staged)).items():
        packed, location = staged[identity].packed_values(table.key_names), _location(table, row)
        yield Destination(identity, packed, location, is_new=False, partition_id=row.id)


def extend(connection: Connection, table: Table, extensions: Sequence[Extension], operation_number: int) -> None:
    """Add the counts of appended files to partitions, after checking that they have not been replaced or moved.

    Compares ids, not values: if a partition was purged and added again, the purge has deleted the appended files.

    Args:
        operation_number: The operation that adds the files.

    Raises:
        UnsupportedFormatError: A partition's format differs from the table's now.
        ConflictError: A partition is quarantined now, was dropped, or has another location.
    """
    existing = _rows(connection, table, [extension.identity for extension in extensions], hold=True)
    additions = []
    for extension in extensions:
        current = existing.get(extension.identity)
        if current is None or current.id != extension.partition_id or _location(table, current) != extension.location:
            raise _changed(table, extension.location)
        counts = {"files": extension.file_count, "rows": extension.row_count, "bytes": extension.size_bytes}
        additions.append({"partition_id": current.id, **counts})
    row = PartitionRow
    # An unknown count stays unknown, because null plus a number is null.
    counted = update(row).where(row.id == bindparam("partition_id"))
    connection.execute(
        counted.values(
            file_count=row.file_count + bindparam("files"),
            row_count=row.row_count + bindparam("rows"),
            size_bytes=row.size_bytes + bindparam("bytes"),
            operation_number=operation_number,
        ),
        additions,
    )
    record_changed(connection, table, [addition["partition_id"] for addition in additions], operation_number)


def refuse_links(table: Table, destinations: Iterable[Destination]) -> None:
    """Refuse to write files behind a link that leads out of the allowed folders.

    Raises:
        LocationNotAllowedError: A destination is behind one.
    """
    for destination in destinations:
        if is_linked_outside(destination.location):
            raise LocationNotAllowedError(
                f"table {table.full_name}: {destination.location} is behind a symbolic link that leads out of the "
                "allowed folders; nothing was added. Replace the link by a folder, or ask an administrator to add its "
                f"target to {LOCATIONS}"
            )


def _changed(table: Table, what: str) -> ConflictError:
    return ConflictError(
        f"partition {what} of {table.full_name} was dropped, renamed or moved while rows were appended to it; nothing "
        "was added. Append the rows again"
    )


def _rows(
    connection: Connection, table: Table, identities: Sequence[bytes], *, hold: bool = False
) -> Mapping[bytes, Row[*tuple[Any, ...]]]:
    row = PartitionRow
    query = (
        select(row.id, row.identity, row.packed_values, row.location, row.properties, row.is_quarantined)
        .where(row.table_id == table.id, among(connection, row.identity, identities))
        # The same order as in drops, to prevent deadlocks.
        .order_by(row.id)
    )
    return {
        bytes(partition.identity): partition
        for partition in connection.execute(query.with_for_update() if hold else query)
    }


def _location(table: Table, row: Row[*tuple[Any, ...]]) -> str:
    """Return the location of a partition, after checking that files can be added there."""
    path = table.partition_name(row.packed_values)
    if row.is_quarantined:
        raise ConflictError(
            f"partition {path} of {table.full_name} is quarantined until its quality is checked; nothing was added. "
            "Release or drop it first"
        )
    own_format = read_properties(row.properties)[1]
    if own_format is not None:
        raise UnsupportedFormatError(
            f"partition {path} of {table.full_name} is stored as {own_format.upper()} and the table as "
            f"{table.format.upper()}, and one folder cannot hold both; nothing was added"
        )
    return table.partition_location(row.packed_values, row.location)
