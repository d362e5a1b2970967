"""Versions of partitions: folders with the files that have replaced those of a partition of a Hive-style table.

A change that replaces the files of a partition puts the new files into a folder of their own below `_calve_versions`,
and sets it as the partition's location in its transaction: who reads through the catalog sees the files before or
after. The partition's folder, its home, keeps the former files, which running readers and readers of the table's folder
see. After the grace period, vacuum settles the version: the home gets exactly the version's files, and becomes the
partition's location again. After another grace period, vacuum deletes the version's folder.

    CURRENT              the version waits to be settled, even if its partition was dropped or renamed meanwhile
    SETTLED, REPLACED    no partition needs the folder, but running readers may
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, select, update

from catalog.errors import ConflictError
from catalog.files.filesystem import Folder
from catalog.model import Table
from catalog.model.partition_names import partition_path, unpack_values
from catalog.operations.staging import VERSIONS
from catalog.storage.bulk import among, batched, insert_rows
from catalog.storage.clock import CurrentMs, read_clock_ms
from catalog.storage.schema import PartitionRow, PartitionVersionRow, VersionState


class Version(NamedTuple):
    """A version of a partition.

    Attributes:
        location: The folder of the version's files.
        home: The folder that gets these files.
        owns_home: The files in `home` were those of the partition, and not of somebody else.
        replaced: The files in `home` that it replaces (`catalog.partitions.folder_files`); None if they are unknown. If
            `owns_home` is false, those that were there before the partition, such as files of a dropped one: they stay.
    """

    identity: bytes
    packed_values: str
    location: str
    home: str
    owns_home: bool
    replaced: bytes | None = None


def version_location(table: Table, attempt: str, path: str) -> str:
    """Return the folder of a version.

    Args:
        attempt: The name of the attempt that has written the files (`catalog.operations.attempts`).
        path: The partition's Hive-style path.
    """
    return f"{table.location}/{VERSIONS}/{attempt}/{path}"


def is_version(location: str | None) -> bool:
    """Return whether a partition's own location is the folder of a version."""
    return location is not None and f"/{VERSIONS}/" in location


def is_version_of(table: Table, attempt: str, location: str) -> bool:
    """Return whether a folder is that of a version of an attempt, given by its name."""
    return location.startswith(f"{table.location}/{VERSIONS}/{attempt}/")


def find_versions(connection: Connection, locations: Iterable[str]) -> Mapping[str, Version]:
    """Return the versions with some folders, by folder."""
    row, found = PartitionVersionRow, dict[str, Version]()
    query = select(*(getattr(row, name) for name in Version._fields))
    for batch in batched(locations):
        rows = connection.execute(query.where(among(connection, row.location, batch)))
        found.update((version.location, version) for version in map(Version._make, rows))
    return found


def has_versions(connection: Connection, table: Table) -> bool:
    """Return whether partitions of a table have, or had lately, versions."""
    return bool(connection.scalar(select(exists().where(PartitionVersionRow.table_id == table.id))))


def find_homes(connection: Connection, table: Table, folders: Iterable[str]) -> list[Version]:
    """Return the versions that wait to be settled to some folders."""
    row, found = PartitionVersionRow, list[Version]()
    # The sum `+ 0` keeps SQLite from reading all versions of the table instead of those at the folders.
    is_unsettled = row.table_id + 0 == table.id, row.state == VersionState.CURRENT
    query = select(*(getattr(row, name) for name in Version._fields)).where(*is_unsettled)
    for batch in batched(folders):
        found += map(Version._make, connection.execute(query.where(among(connection, row.home, batch))))
    return found


def find_unsettled(connection: Connection, table: Table, identities: Iterable[bytes]) -> Mapping[bytes, Version]:
    """Return the versions that wait to be settled for partitions with some identities, by identity."""
    row, found = PartitionVersionRow, dict[bytes, Version]()
    query = select(*(getattr(row, name) for name in Version._fields)).where(
        row.table_id == table.id, row.state == VersionState.CURRENT
    )
    if not has_versions(connection, table):
        return found
    for batch in batched(identities):
        rows = connection.execute(query.where(among(connection, row.identity, batch)))
        found.update((bytes(version.identity), version) for version in map(Version._make, rows))
    return found


def folders_of_versions(connection: Connection, table: Table) -> dict[str, tuple[str | None, ...]]:
    """Return the folders of a table's versions, and the homes of those that wait to be settled, with their values."""
    row = PartitionVersionRow
    query = select(row.location, row.home, row.state, row.packed_values).where(row.table_id == table.id)
    folders = dict[str, tuple[str | None, ...]]()
    for location, home, state, packed in connection.execute(query):
        folders[location] = unpack_values(packed)
        if state == VersionState.CURRENT:
            folders[home] = unpack_values(packed)
    return folders


def add_versions(connection: Connection, table: Table, versions: Iterable[Version]) -> None:
    """Record the new locations of partitions as versions, in the transaction that sets these locations."""
    now = read_clock_ms(connection)
    rows = ((*version, table.id, VersionState.CURRENT, now) for version in versions)
    insert_rows(connection, PartitionVersionRow, (*Version._fields, "table_id", "state", "changed_at_ms"), rows)


def set_state(connection: Connection, locations: Iterable[str], state: VersionState) -> None:
    """Set the state of the versions with some folders."""
    row = PartitionVersionRow
    for batch in batched(locations):
        connection.execute(
            update(row).where(among(connection, row.location, batch)).values(state=state, changed_at_ms=CurrentMs())
        )


def forget_versions(connection: Connection, locations: Iterable[str]) -> None:
    """Delete the rows of the versions with some folders."""
    for batch in batched(locations):
        connection.execute(delete(PartitionVersionRow).where(among(connection, PartitionVersionRow.location, batch)))


def delete_empty_above(folder: Folder, location: str) -> None:
    """Delete the empty folders around a version that was deleted, up to and including `_calve_versions`.

    Args:
        folder: The table's folder.
        location: The folder of the version.
    """
    parent = location.rpartition("/")[0]
    while is_version(f"{parent}/") and folder.at(parent).delete_if_empty():
        parent = parent.rpartition("/")[0]


def refuse_unsettled(connection: Connection, table: Table, identities: Sequence[bytes]) -> None:
    """Check that the folders of added partitions do not wait to be settled for a dropped or renamed partition.

    The caller has locked the table and added the partitions.

    Raises:
        ConflictError: One of them does.
    """
    for version in find_unsettled(connection, table, identities).values():
        path = partition_path(table.key_names, unpack_values(version.packed_values))
        raise ConflictError(
            f"the folder of partition {path} of {table.full_name} still has files that were replaced or deleted; load "
            f"the partition's rows, or add it after `calve vacuum {table.full_name}`, which exchanges the files of "
            "changes that are older than the grace period"
        )


def file_counts(connection: Connection, table: Table, locations: Sequence[str]) -> dict[str, int | None]:
    """Return the number of files that partitions have in some folders, by folder."""
    row = PartitionRow
    query = select(row.location, row.file_count).where(
        row.table_id == table.id, among(connection, row.location, locations)
    )
    return {location: count for location, count in connection.execute(query) if location is not None}


def move_home(connection: Connection, table: Table, homes: Mapping[str, str]) -> None:
    """Set the location of the partitions in some folders; None if it is the default one of their values."""
    row = PartitionRow
    query = select(row.id, row.location, row.packed_values).where(
        row.table_id == table.id, among(connection, row.location, list(homes))
    )
    changes = []
    for partition in connection.execute(query.order_by(row.id).with_for_update()):
        home = homes[partition.location]
        default = table.default_partition_location(table.partition_name(partition.packed_values))
        changes.append({"partition_id": partition.id, "home": None if home == default else home})
    if changes:
        connection.execute(
            update(row).where(row.id == bindparam("partition_id")).values(location=bindparam("home")), changes
        )
