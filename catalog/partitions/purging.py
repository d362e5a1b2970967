"""Deletion of the files of partitions that were dropped with PURGE.

As for dropped tables (`catalog.tables.purging`), the transaction that drops the partitions journals the folders. They
are deleted after the commit; vacuum finishes interrupted deletions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from uuid import uuid4

from sqlalchemy import Connection, select, update

from catalog.errors import CatalogError, ConflictError, FilesNeededError, FilesNotDeletedError, UnreadableMetadataError
from catalog.files.filesystem import Folder, in_parallel
from catalog.files.locations import comparable, folder_keys, is_within, location_key, location_keys, locations_with_keys
from catalog.model import Table, TableKind
from catalog.operations.confirmation import Confirmation, PurgedPartition
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.partitions.changing import drop_partitions, hold_locations
from catalog.partitions.folders import compare_folders, default_folders_inside, owners_of_default_folders
from catalog.partitions.versions import delete_empty_above, find_versions, forget_versions, is_version
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.locks import hold
from catalog.storage.schema import OperationRow, PartitionRow
from catalog.tables.definitions import Definitions
from catalog.tables.neighbours import neighbours
from catalog.tables.own_files import ALL_FILES, PurgedFiles, delete_own_files, find_own_files
from catalog.tables.ownership import LOCATIONS
from catalog.tables.purged_folders import claim_folders, is_unfinished, release_folders
from catalog.tables.purging import refuse_needed_files, refuse_reached_folders

log = logging.getLogger(__name__)

BATCH = 100
"""The number of folders that one operation claims and deletes."""


@dataclass(frozen=True)
class PartitionPurge:
    """Result of DROP PARTITION with PURGE.

    Attributes:
        dropped: The number of dropped partitions.
        purged: The number of dropped partitions whose folders were cleared; several may share a folder.
        kept: The reason why the files of the others stay; empty if all were deleted.
        others: Files in the folders that stay, because Calve did not write them, and what was deleted.
    """

    dropped: int
    purged: int
    kept: str = ""
    others: PurgedFiles = field(default_factory=PurgedFiles)

    def __str__(self) -> str:
        """Return a one-line summary."""
        stay = f"; the files of {self.dropped - self.purged:,} stay, because {self.kept}" if self.kept else ""
        left = f". Left {self.others}" if self.others.count else ""
        deleted = self.others.deletion
        return (
            f"Dropped {self.dropped:,} partition(s) and deleted the files of {self.purged:,} ({deleted}){stay}{left}."
        )


def purge_partitions(
    storage: Storage,
    definitions: Definitions,
    operations: Operations,
    table: Table,
    partitions: Sequence[PurgedPartition],
    confirmation: Confirmation | None,
    *,
    all_files: bool = False,
) -> PartitionPurge:
    """Drop partitions and delete their files; see `Catalog.purge_partitions`.

    Args:
        all_files: Delete the files that Calve did not write, too, as a metastore does.
    """
    if confirmation is not None:
        confirmation.purge_partitions(table, partitions)
    folders, kept = own_folders(table, (partition.location for partition in partitions))
    refuse_reached_folders(storage, table.full_name, folders)
    dropped, purged, others = 0, 0, PurgedFiles()
    for confirmed in batched(sorted(partitions)):
        batch = [partition.id for partition in confirmed]
        with storage.write() as connection:
            held = definitions.lock_table(connection, table.full_name, exclusive=False)
            # Use current locations: the partitions may have moved since the caller found them.
            locations = hold_locations(connection, held, batch).values()
            versions = find_versions(connection, filter(is_version, locations))
            if confirmation is not None:
                refuse_changed(connection, held, confirmed)
            purges = journal_partition_purge(
                connection, operations, held, own_folders(held, locations)[0], all_files=all_files
            )
            former = [version.home for version in versions.values() if version.owns_home]
            former_purges = journal_partition_purge(
                connection, operations, held, own_folders(held, former)[0], all_files=all_files
            )
            if purges:
                forget_versions(connection, versions)
            dropped += drop_partitions(connection, held, batch)
        for purge in purges:
            count, remaining = finish_partition_purge(storage, definitions, operations, operations.get(purge))
            purged, others = purged + count, others + remaining
        for purge in former_purges:
            others += finish_partition_purge(storage, definitions, operations, operations.get(purge))[1]
        if purges:
            for location in versions:
                delete_empty_above(Folder(table.location), location)
    return PartitionPurge(dropped, purged, kept, others)


def own_folders(table: Table, locations: Iterable[str]) -> tuple[list[str], str]:
    """Return the partitions' folders inside the folder of a managed table, and the reason why others stay."""
    if table.kind is not TableKind.MANAGED:
        return [], f"{table.full_name} is an external table"
    root = comparable(table.location)
    folders = [comparable(location) for location in locations]
    own = [folder for folder in folders if is_within(folder, root) and folder != root]
    return own, "" if len(own) == len(folders) else f"they lie outside {table.location}"


def refuse_changed(connection: Connection, table: Table, confirmed: Sequence[PurgedPartition]) -> None:
    """Check that partitions that the caller has locked are still as they were confirmed; missing ones are ignored.

    Raises:
        ConflictError: A partition has another location or other counts now.
    """
    row, expected = PartitionRow, {partition.id: partition for partition in confirmed}
    for batch in batched(sorted(expected)):
        query = select(row.id, row.packed_values, row.location, row.row_count, row.size_bytes)
        current = connection.execute(query.where(row.table_id == table.id, among(connection, row.id, batch)))
        for partition in current:
            location = table.partition_location(partition.packed_values, partition.location)
            if (partition.id, location, partition.row_count, partition.size_bytes) != expected[partition.id]:
                raise ConflictError(
                    f"partition {table.partition_name(partition.packed_values)} of {table.full_name} was changed after "
                    "its deletion was confirmed; it stays, and so do those that were to be dropped with it. Ask again"
                )


def digest_purged(storage: Storage, table: Table, partitions: Iterable[PurgedPartition]) -> str | None:
    """Return a digest of the files that `Catalog.purge_partitions` deletes; None if it deletes no file.

    Lists the files of partitions whose row count or size is unknown.
    """
    if table.kind is not TableKind.MANAGED:
        return None
    digest = sha256(f"{table.id}".encode())
    ordered = sorted(partitions)
    unknown = [partition.location for partition in ordered if None in (partition.row_count, partition.size_bytes)]
    summaries = in_parallel(lambda location: find_own_files(location, storage.identity), unknown)
    listed = dict(zip(unknown, summaries, strict=True))
    for partition in ordered:
        digest.update(repr((tuple(partition), listed.get(partition.location))).encode())
    return digest.hexdigest() if ordered else None


def journal_partition_purge(
    connection: Connection, operations: Operations, table: Table, folders: Sequence[str], *, all_files: bool = False
) -> list[str]:
    """Journal the deletion of folders in the transaction that drops their partitions; return the operations' ids.

    Args:
        all_files: As for `purge_partitions`.

    Raises:
        FilesNeededError: An Iceberg table reads files of the table.
    """
    refuse_needed_files(connection, table)
    ids = []
    for batch in batched(folders, BATCH):
        ids.append(f"drop-partitions-{table.full_name}-{uuid4().hex}")
        request = {"folders": batch, **({ALL_FILES: True} if all_files else {})}
        operations.record(connection, ids[-1], OperationKind.DROP_PARTITIONS, table, request)
    return ids


def finish_partition_purge(
    storage: Storage, definitions: Definitions, operations: Operations, operation: Operation
) -> tuple[int, PurgedFiles]:
    """Delete the files of dropped partitions, except those of other tables and partitions, and those of others.

    Claims the folders first, so that no table or partition gets a location there during the deletion
    (`catalog.tables.purged_folders`). Safe to repeat, and to run in several processes at once.

    Returns:
        The number of partitions whose folder was cleared, and the files that stay in these folders, because Calve did
        not write them.

    Raises:
        FilesNotDeletedError: The file system refused, or an Iceberg table needs the files.
    """
    # Earlier versions journaled the values of the partitions, too.
    folders = [folder if isinstance(folder, str) else folder[0] for folder in operation.request["folders"]]
    try:
        refuse_reached_folders(storage, operation.table, folders)
    except (FilesNeededError, UnreadableMetadataError) as error:
        raise FilesNotDeletedError(
            f"table {operation.table}: its partitions are dropped, but their files stay: {error}"
        ) from error
    with storage.write() as connection:
        # Lock out transactions that add partitions, and loads that reserve them. By id: the table may be renamed.
        if operation.table_id is not None:
            storage.lock_table(connection, operation.table_id, exclusive=False, is_bulk=True)
        claimed = _claim(connection, definitions, operation, folders)
    kept: dict[str, list[str]] = {folder: [] for folder in claimed}
    with storage.read() as connection:
        for neighbour in neighbours(connection, claimed):
            if neighbour.path:
                kept[neighbour.folder].append(neighbour.path)
    problems, others = [], PurgedFiles()
    writer = None if operation.request.get(ALL_FILES) else storage.identity
    delete = partial(_delete, writer, partial(is_unfinished, operations, operation))
    for problem, remaining in in_parallel(delete, kept.items()):
        problems += [problem] if problem else []
        others += remaining
    if problems:
        raise FilesNotDeletedError(
            f"table {operation.table}: its partitions are dropped, but the files of {len(problems):,} could not be "
            f"deleted: {problems[0]}; fix the cause and run vacuum"
        )
    with storage.write() as connection:
        release_folders(connection, operation.number)
        operations.advance(connection, operation.id, OperationState.CLEANED)
    if others.count:
        log.warning("table %s: its partitions are dropped; kept %s", operation.table, others)
    cleared = location_keys(claimed)
    return sum(keys[-1] in cleared for _, keys in locations_with_keys(folders)), others


def _claim(
    connection: Connection, definitions: Definitions, operation: Operation, folders: Sequence[str]
) -> Sequence[str]:
    """Claim the folders that no table or partition uses, and return them; the caller has locked the table.

    The first call decides: later calls return the folders that it claimed, because the others contain files of others.
    """
    # Lock out changes of other tables' locations and partitions.
    hold(connection, LOCATIONS)
    keys = folder_keys(folders)
    around = definitions.tables_around(connection, keys)
    for table in around:
        if table.id == operation.table_id:
            refuse_needed_files(connection, table)
    this = OperationRow.number == operation.number
    request = connection.scalar(select(OperationRow.request).where(this).with_for_update())
    if request is None or "claimed" in request:
        return [] if request is None else list(request["claimed"])
    in_use = _in_use(connection, around, operation, keys)
    for folder in in_use:
        log.warning("kept %s, because another table or partition uses it", folder)
    claimed = [folder for folder in location_keys(folders).values() if folder not in in_use]
    connection.execute(update(OperationRow).where(this).values(request={**request, "claimed": claimed}))
    claim_folders(connection, operation.number, claimed)
    return claimed


def _in_use(
    connection: Connection, around: Iterable[Table], operation: Operation, folders: Mapping[bytes, str]
) -> set[str]:
    """Return the folders, given by their keys, that are in use.

    Such a folder equals or lies inside a partition's folder or another table's location, or contains default folders of
    partitions.
    """
    in_use = set[str]()
    for table in around:
        root = location_key(table.location)
        inside = {key: folder for key, folder in folders.items() if key.startswith(root)}
        if table.id != operation.table_id:
            in_use.update(inside.values())
            continue
        compared = compare_folders(table, inside)
        taken = {path for path, _ in owners_of_default_folders(connection, table, compared.inside.values())}
        in_use.update(inside[key] for key, folder in compared.inside.items() if folder.path in taken)
        holding = default_folders_inside(connection, table, compared.around.values())
        in_use.update(inside[key] for key, start in compared.around.items() if start in holding)
    in_use.update(
        near.folder for near in neighbours(connection, folders.values()) if near.is_partition and not near.path
    )
    return in_use


def _delete(
    catalog: str | None, may_go_on: Callable[[], bool], purge: tuple[str, list[str]]
) -> tuple[str | None, PurgedFiles]:
    """Delete Calve's files in a folder, except some paths; return an error message or None, and what stays."""
    folder, kept = purge
    try:
        return None, delete_own_files(folder, catalog, kept, may_go_on=may_go_on)
    except (CatalogError, OSError, ValueError) as error:
        return f"{folder}: {error}", PurgedFiles()
