"""Deleting the files of partitions that were dropped with PURGE.

As for dropped tables (`catalog.tables.purging`), what has to go is journaled in the transaction that drops the
partitions, and goes after the commit; vacuum finishes what was interrupted.
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
from catalog.files.filesystem import in_parallel
from catalog.files.locations import comparable, folder_keys, is_within, location_key, location_keys, locations_with_keys
from catalog.model import Table, TableKind
from catalog.operations.confirmation import Confirmation, PurgedPartition
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.partitions.changing import drop_partitions, hold_locations
from catalog.partitions.folders import compare_folders, default_folders_inside, owners_of_default_folders
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.locks import hold
from catalog.storage.schema import OperationRow, PartitionRow
from catalog.tables.definitions import Definitions
from catalog.tables.neighbours import neighbours
from catalog.tables.own_files import OthersFiles, delete_own_files, find_own_files
from catalog.tables.ownership import LOCATIONS
from catalog.tables.purged_folders import claim_folders, is_unfinished, release_folders
from catalog.tables.purging import refuse_needed_files, refuse_reached_folders

log = logging.getLogger(__name__)

BATCH = 100
"""Folders of one operation, which are claimed together."""


@dataclass(frozen=True)
class PartitionPurge:
    """Result of DROP PARTITION with PURGE.

    Attributes:
        dropped: Partitions that were dropped.
        purged: Dropped partitions whose folders were cleared; several may share one.
        kept: Why the files of the others stay; empty if all were deleted.
        others: Files in the folders that stay, because Calve did not write them.
    """

    dropped: int
    purged: int
    kept: str = ""
    others: OthersFiles = field(default_factory=OthersFiles)

    def __str__(self) -> str:
        """Return one line for people."""
        stay = f"; the files of {self.dropped - self.purged:,} stay, because {self.kept}" if self.kept else ""
        left = f". Left {self.others}" if self.others.count else ""
        return f"Dropped {self.dropped:,} partition(s) and deleted the files of {self.purged:,}{stay}{left}."


def purge_partitions(
    storage: Storage,
    definitions: Definitions,
    operations: Operations,
    table: Table,
    partitions: Sequence[PurgedPartition],
    confirmation: Confirmation | None,
) -> PartitionPurge:
    """Drop partitions and delete their files, as `Catalog.purge_partitions` says."""
    if confirmation is not None:
        confirmation.purge_partitions(table, partitions)
    folders, kept = own_folders(table, (partition.location for partition in partitions))
    refuse_reached_folders(storage, table.full_name, folders)
    dropped, purged, others = 0, 0, OthersFiles()
    for chosen in batched(sorted(partitions)):
        batch = [partition.id for partition in chosen]
        with storage.write() as connection:
            held = definitions.lock_table(connection, table.full_name, exclusive=False)
            # They may have moved since they were found.
            there = hold_locations(connection, held, batch).values()
            if confirmation is not None:
                refuse_changed(connection, held, chosen)
            purges = journal_partition_purge(connection, operations, held, own_folders(held, there)[0])
            dropped += drop_partitions(connection, held, batch)
        for purge in purges:
            count, left = finish_partition_purge(storage, definitions, operations, operations.get(purge))
            purged, others = purged + count, others + left
    return PartitionPurge(dropped, purged, kept, others)


def own_folders(table: Table, locations: Iterable[str]) -> tuple[list[str], str]:
    """Return the folders of partitions that lie in the folder of a managed table, and why others stay."""
    if table.kind is not TableKind.MANAGED:
        return [], f"{table.full_name} is an external table"
    root = comparable(table.location)
    folders = [comparable(location) for location in locations]
    own = [folder for folder in folders if is_within(folder, root) and folder != root]
    return own, "" if len(own) == len(folders) else f"they lie outside {table.location}"


def refuse_changed(connection: Connection, table: Table, confirmed: Sequence[PurgedPartition]) -> None:
    """Make sure that partitions, which the caller holds, are as they were confirmed; one may be gone.

    Raises:
        ConflictError: One is elsewhere now, or has other counts.
    """
    row, expected = PartitionRow, {partition.id: partition for partition in confirmed}
    for batch in batched(sorted(expected)):
        query = select(row.id, row.packed_values, row.location, row.row_count, row.size_bytes)
        for known in connection.execute(query.where(row.table_id == table.id, among(connection, row.id, batch))):
            location = table.partition_location(known.packed_values, known.location)
            if (known.id, location, known.row_count, known.size_bytes) != expected[known.id]:
                raise ConflictError(
                    f"partition {table.partition_name(known.packed_values)} of {table.full_name} was changed after its "
                    "deletion was confirmed; it stays, and so do those that were to be dropped with it. Ask again"
                )


def digest_purged(storage: Storage, table: Table, partitions: Iterable[PurgedPartition]) -> str | None:
    """Return a digest of what `Catalog.purge_partitions` deletes of partitions; None when that is no file.

    Where it is not known how many rows a partition has, its files are listed.
    """
    if table.kind is not TableKind.MANAGED:
        return None
    digest = sha256(f"{table.id}".encode())
    ordered = sorted(partitions)
    unknown = [partition.location for partition in ordered if None in (partition.row_count, partition.size_bytes)]
    found = in_parallel(lambda location: find_own_files(location, storage.identity), unknown)
    listed = dict(zip(unknown, found, strict=True))
    for partition in ordered:
        digest.update(repr((tuple(partition), listed.get(partition.location))).encode())
    return digest.hexdigest() if ordered else None


def journal_partition_purge(
    connection: Connection, operations: Operations, table: Table, folders: Sequence[str]
) -> list[str]:
    """Journal, in the transaction that drops partitions, that their folders have to go; return the operations' ids.

    Raises:
        FilesNeededError: An Iceberg table reads files of the table.
    """
    refuse_needed_files(connection, table)
    ids = []
    for batch in batched(folders, BATCH):
        ids.append(f"drop-partitions-{table.full_name}-{uuid4().hex}")
        operations.record(connection, ids[-1], OperationKind.DROP_PARTITIONS, table, {"folders": batch})
    return ids


def finish_partition_purge(
    storage: Storage, definitions: Definitions, operations: Operations, operation: Operation
) -> tuple[int, OthersFiles]:
    """Delete the files of dropped partitions, except what tables and partitions have there, and what others wrote.

    The folders are claimed first, so that nothing new lies there while they go (`catalog.tables.purged_folders`). Does
    no harm when done again, or by several at once.

    Returns:
        How many of the partitions had a folder that was cleared, and the files that stay in these folders, because
        Calve did not write them.

    Raises:
        FilesNotDeletedError: The file system refuses, or an Iceberg table needs the files.
    """
    # Earlier versions journaled the values of the partitions, too.
    folders = [folder if isinstance(folder, str) else folder[0] for folder in operation.request["folders"]]
    try:
        refuse_reached_folders(storage, operation.table, folders)
    except (FilesNeededError, UnreadableMetadataError) as error:
        raise FilesNotDeletedError(
            f"table {operation.table}: its partitions are dropped, and their files stay: {error}"
        ) from error
    with storage.write() as connection:
        # Against those who add partitions, and loads, which reserve them; whatever the table is called now.
        if operation.table_id is not None:
            storage.lock_table(connection, operation.table_id, exclusive=False, is_bulk=True)
        claimed = _claim(connection, definitions, operation, folders)
    kept: dict[str, list[str]] = {folder: [] for folder in claimed}
    with storage.read() as connection:
        for neighbour in neighbours(connection, claimed):
            if neighbour.path:
                kept[neighbour.folder].append(neighbour.path)
    problems, others = [], OthersFiles()
    delete = partial(_delete, storage.identity, partial(is_unfinished, operations, operation))
    for problem, left in in_parallel(delete, kept.items()):
        problems += [problem] if problem else []
        others += left
    if problems:
        raise FilesNotDeletedError(
            f"table {operation.table}: its partitions are dropped, but the files of {len(problems):,} could not be "
            f"deleted: {problems[0]}; correct that and run vacuum"
        )
    with storage.write() as connection:
        release_folders(connection, operation.number)
        operations.advance(connection, operation.id, OperationState.CLEANED)
    if others.count:
        log.warning("table %s: its partitions are dropped; left %s", operation.table, others)
    cleared = location_keys(claimed)
    return sum(keys[-1] in cleared for _, keys in locations_with_keys(folders)), others


def _claim(
    connection: Connection, definitions: Definitions, operation: Operation, folders: Sequence[str]
) -> Sequence[str]:
    """Claim the folders that no table and no partition has; return them. The caller holds the operation's table.

    What was claimed once stays claimed, and what was not has files of others, and is not looked at again.
    """
    # Against tables, and partitions of others.
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
        log.warning("%s stays, because another table or partition has it", folder)
    claimed = [folder for folder in location_keys(folders).values() if folder not in in_use]
    connection.execute(update(OperationRow).where(this).values(request={**request, "claimed": claimed}))
    claim_folders(connection, operation, claimed)
    return claimed


def _in_use(
    connection: Connection, around: Iterable[Table], operation: Operation, folders: Mapping[bytes, str]
) -> set[str]:
    """Return those of some folders, given by their keys, that are the folder of a partition or inside one.

    So are all in the location of another table, and those that hold default folders of partitions.
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
    catalog: str, may_go_on: Callable[[], bool], purge: tuple[str, list[str]]
) -> tuple[str | None, OthersFiles]:
    """Delete our files in a folder, except some paths inside; return why it could not be, and what stays."""
    folder, kept = purge
    try:
        return None, delete_own_files(folder, catalog, kept, may_go_on=may_go_on)
    except (CatalogError, OSError, ValueError) as error:
        return f"{folder}: {error}", OthersFiles()
