"""Deleting the files of partitions that were dropped with PURGE.

As for dropped tables (`catalog.purging`), what has to go is journaled in the transaction that drops the partitions, and
goes after the commit; vacuum finishes what was interrupted.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from sqlalchemy import Connection

from catalog.definitions import Definitions
from catalog.errors import CatalogError, FilesNeededError, FilesNotDeletedError, NotFoundError, UnreadableMetadataError
from catalog.files import in_parallel
from catalog.locations import comparable, is_within
from catalog.model import Partition, Table, TableKind
from catalog.operations import Operation, OperationKind, Operations, OperationState
from catalog.own_files import OthersFiles, delete_own_files
from catalog.partitions.adding import registered
from catalog.partitions.staged import reserved
from catalog.purging import locations_around, refuse_needed_files, refuse_reached_folders
from catalog.storage import Storage
from catalog.values import ValueEncoder

log = logging.getLogger(__name__)

BATCH = 100
"""Folders that are deleted under one lock of their table."""


class PurgedFolder(NamedTuple):
    """The folder of a dropped partition, and its values, which another partition may have by now."""

    location: str
    values: Sequence[str | None]


@dataclass(frozen=True)
class PartitionPurge:
    """Result of DROP PARTITION with PURGE.

    Attributes:
        dropped: Partitions that were dropped.
        purged: Folders of dropped partitions that were deleted.
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


def own_folders(table: Table, partitions: Iterable[Partition]) -> tuple[list[PurgedFolder], str]:
    """Return the folders of partitions that lie in the folder of a managed table, and why others stay."""
    if table.kind is not TableKind.MANAGED:
        return [], f"{table.full_name} is an external table"
    root = comparable(table.location)
    folders = [PurgedFolder(comparable(partition.location), partition.values) for partition in partitions]
    own = [each for each in folders if is_within(each.location, root) and each.location != root]
    return own, "" if len(own) == len(folders) else f"they lie outside {table.location}"


def journal_partition_purge(
    connection: Connection, operations: Operations, table: Table, folders: Sequence[PurgedFolder]
) -> list[str]:
    """Journal, in the transaction that drops partitions, that their folders have to go; return the operations' ids.

    Raises:
        FilesNeededError: An Iceberg table reads files of the table.
    """
    refuse_needed_files(connection, table)
    ids = []
    for start in range(0, len(folders), BATCH):
        ids.append(f"drop-partitions-{table.full_name}-{uuid4().hex}")
        request = {"folders": list(folders[start : start + BATCH])}
        operations.record(connection, ids[-1], OperationKind.DROP_PARTITIONS, table, request)
    return ids


def finish_partition_purge(
    storage: Storage, definitions: Definitions, operations: Operations, operation: Operation
) -> tuple[int, OthersFiles]:
    """Delete the files of dropped partitions, except what tables and partitions have there, and what others wrote.

    Returns:
        How many folders were cleared, and the files in them that stay, because Calve did not write them.

    The table is held, so that no partition is added to a folder while it goes. Does no harm when done again.

    Raises:
        FilesNotDeletedError: The file system refuses, or an Iceberg table needs the files.
    """
    folders = [PurgedFolder(*folder) for folder in operation.request["folders"]]
    try:
        refuse_reached_folders(storage, operation.table, [folder.location for folder in folders])
    except (FilesNeededError, UnreadableMetadataError) as error:
        raise FilesNotDeletedError(
            f"table {operation.table}: its partitions are dropped, and their files stay: {error}"
        ) from error
    with storage.write() as connection:
        purges = _to_delete(connection, definitions, operation.table, folders)
        problems, others = [], OthersFiles()
        for problem, left in in_parallel(partial(_delete, storage.identity), purges):
            problems += [problem] if problem else []
            others += left
        if problems:
            raise FilesNotDeletedError(
                f"table {operation.table}: its partitions are dropped, but the files of {len(problems):,} could not be "
                f"deleted: {problems[0]}; correct that and run vacuum"
            )
        operations.advance(connection, operation.id, OperationState.CLEANED)
    if others.count:
        log.warning("table %s: its partitions are dropped; left %s", operation.table, others)
    return len(purges), others


def _to_delete(
    connection: Connection, definitions: Definitions, name: str, folders: Sequence[PurgedFolder]
) -> list[tuple[str, list[str]]]:
    """Hold the table; return the folders that no table and no partition has, and the locations inside each to keep."""
    table: Table | None = None
    with suppress(NotFoundError):
        table = definitions.lock_table(connection, name, exclusive=True, or_iceberg=True)
    if table is not None:
        refuse_needed_files(connection, table)
        identities = ValueEncoder(table).encode_all([folder.values for folder in folders]).identities
        # What a load is about to add has its files there, perhaps, before its commit.
        there = registered(connection, table, identities) | reserved(connection, table, identities)
        folders = [folder for folder, identity in zip(folders, identities, strict=True) if identity not in there]
    purges = []
    for folder in folders:
        locations = set(locations_around(connection, folder.location))
        if table is None and any(is_within(folder.location, location) for location in locations):
            log.warning("%s stays, because a table that was %s, or is in its place, has it", folder.location, name)
        elif folder.location not in locations:
            purges.append((folder.location, [each for each in locations if is_within(each, folder.location)]))
    return purges


def _delete(catalog: str, purge: tuple[str, list[str]]) -> tuple[str | None, OthersFiles]:
    """Delete our files in a folder, except some locations inside; return why it could not be, and what stays."""
    folder, kept = purge
    try:
        return None, delete_own_files(folder, catalog, (posixpath.relpath(location, folder) for location in kept))
    except (CatalogError, OSError, ValueError) as error:
        return f"{folder}: {error}", OthersFiles()
