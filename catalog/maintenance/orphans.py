"""Deletion of orphan files: files below a table's location that no table knows.

A job writes into the folder of its attempt, named by `catalog.operations.attempts`; the commit makes the files known.
The folder is judged by its operation:

| the operation | a folder without known files | a folder with known files |
| --- | --- | --- |
| COMMITTED, CLEANED | deleted: another attempt committed, or its files left the table | unknown files are deleted |
| FAILED | deleted: a retry writes into another folder | |
| running | deleted if its attempt has failed | |
| unknown, or older than the table | kept: it belongs to others | kept |

An unknown file among known ones comes from a task that Spark has run twice, is the job's manifest, or is of an engine:
DuckDB writes delete files beside the data files that they concern. What metadata of an Iceberg table reach is kept. So
are folders and files younger than the grace period, and beside known files what was written after the operation's end
for the usual one, because its engine may not have committed yet. An operation becomes CLEANED when none of its files is
left to delete; its folder is examined again only after all its files are retired.

Operations and known files are read in one transaction, so that they are consistent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select

from catalog.datafiles.manifest import delete_manifest, is_manifest
from catalog.files.filesystem import FileInfo, Folder, is_hidden
from catalog.files.locations import comparable
from catalog.maintenance.judging import Verdict, Writer, committed_operations, judge, read_writers, usual_cutoff_ms
from catalog.maintenance.reports import TableVacuum, Tally
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.operations.attempts import AttemptName, attempts_among
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import DatabaseRow, DataFileRow, FormerFileRow, PartitionRow, TableRow
from catalog.tables.neighbours import neighbours

if TYPE_CHECKING:
    from catalog.iceberg.reachability import Reachability

_KINDS = (
    OperationKind.LOAD_ROWS,
    OperationKind.CHANGE_ROWS,
    OperationKind.REBALANCE,
    # Of tables stored as Iceberg.
    OperationKind.APPEND_ROWS,
    OperationKind.ADD_PARTITIONS,
)
_FILES_AT_ONCE = 50_000
"""The maximum number of known files in memory, unless a single folder has more."""

_FOLDERS_AT_ONCE = 5_000


@dataclass(frozen=True)
class Place:
    """The location of a table, which in rare cases several tables share.

    Attributes:
        table_ids, names: The ids and names of the tables.
        created_at_ms: The creation time of the newest of the tables.
    """

    table: Table
    table_ids: tuple[int, ...]
    names: tuple[str, ...]
    created_at_ms: int


@dataclass(frozen=True)
class AttemptFolder:
    """The folder of an attempt.

    Attributes:
        known_count: The number of its files that a table has or had.
        is_held: Quarantined partitions need its files.
        writer: Its operation; None if the journal does not have it.
    """

    name: str
    number: int
    attempt: int
    known_count: int
    writer: Writer | None
    is_held: bool = False


@dataclass
class _Cleared:
    """Totals of deleted files, and the operations that still have files to delete."""

    file_count: int = 0
    size_bytes: int = 0
    unclear: set[int] = field(default_factory=set)


def operation_numbers(storage: Storage, location: Folder) -> set[int]:
    """Return the operations that have a folder below a table's location."""
    return {number for _, number, _ in attempts_among(storage, location.folders(""))}


def delete_orphans(
    storage: Storage,
    operations: Operations,
    reachability: Reachability,
    table: Table,
    cutoff_ms: int,
    tally: Tally,
    *,
    is_dry_run: bool,
) -> int:
    """Delete the orphan files of a table with a partition scheme; return the number of CLEANED operations.

    A dry run returns the number of operations that would become CLEANED.

    Raises:
        OSError, ValueError: The file system refused; files deleted before are counted.
        UnreadableMetadataError: Metadata of an Iceberg table that may refer to these files cannot be read.
    """
    location = Folder(table.location)
    names = list(attempts_among(storage, location.folders("")))
    with storage.read() as connection:
        place = _place(connection, table)
        folders = _folders(connection, place, names)
        cleanable = committed_operations(connection, table, _KINDS, place.created_at_ms, cutoff_ms)
    deletion = _OrphanDeletion(storage, reachability, place, location, cutoff_ms, is_dry_run)
    cleared = _Cleared()
    try:
        deletion.run(folders, cleared)
    finally:
        tally.add(TableVacuum(table.full_name, orphan_files=cleared.file_count, orphan_bytes=cleared.size_bytes))
    is_committed = {
        folder.number
        for folder in folders
        if folder.writer is not None and folder.writer.state is OperationState.COMMITTED
    }
    done = sorted((cleanable | is_committed) - cleared.unclear)
    return len(done) if is_dry_run else operations.clean(done)


def _place(connection: Connection, table: Table) -> Place:
    location = comparable(table.location)
    query = select(
        TableRow.id, DatabaseRow.name.label("database"), TableRow.name, TableRow.location, TableRow.created_at_ms
    )
    query = query.join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
    rows = [row for row in connection.execute(query) if comparable(row.location) == location]
    created_at_ms = max((row.created_at_ms for row in rows), default=0)
    names = tuple(str(TableName(row.database, row.name)) for row in rows)
    return Place(table, tuple(row.id for row in rows), names, created_at_ms)


def _folders(connection: Connection, place: Place, names: Sequence[AttemptName]) -> list[AttemptFolder]:
    if not names:
        return []
    known: dict[str, int] = {}
    for row in (DataFileRow, FormerFileRow):
        name = func.split_part(row.path, "/", 1)
        query = select(name, func.count()).where(row.table_id.in_(place.table_ids)).group_by(name)
        for folder, count in connection.execute(query):
            known[folder] = known.get(folder, 0) + count
    writers = read_writers(connection, {number for _, number, _ in names})
    held = select(PartitionRow.operation_number).where(
        PartitionRow.table_id.in_(place.table_ids), PartitionRow.is_quarantined
    )
    held_numbers = set(connection.scalars(held.distinct()))
    return [
        AttemptFolder(name, number, attempt, known.get(name, 0), writers.get(number), number in held_numbers)
        for name, number, attempt in names
    ]


class _OrphanDeletion:
    """Deletes the orphan files below one table's location, folder by folder."""

    def __init__(
        self,
        storage: Storage,
        reachability: Reachability,
        place: Place,
        location: Folder,
        cutoff_ms: int,
        is_dry_run: bool,
    ) -> None:
        self._storage = storage
        self._reachability = reachability
        self._place = place
        self._location = location
        self._cutoff_ms = cutoff_ms
        self._usual_cutoff_ms = usual_cutoff_ms(storage, cutoff_ms)
        self._is_dry_run = is_dry_run

    def run(self, folders: Iterable[AttemptFolder], cleared: _Cleared) -> None:
        verdicts = {folder: self._judge(folder, folder.writer) for folder in folders}
        candidates = {folder.name for folder, verdict in verdicts.items() if verdict is not Verdict.KEEP}
        needed = self._used_by_others(candidates) | self._reached(candidates)
        chosen = []
        for folder, verdict in verdicts.items():
            if verdict is Verdict.KEEP or folder.name in needed:
                cleared.unclear.add(folder.number)
            else:
                chosen.append(folder)
        for portion in _portions(chosen):
            known = self._known_paths(portion)
            unknown = {folder: self._unknown_files(folder, known) for folder in portion}
            own = self._reached_files(file.path for files in unknown.values() for file in files)
            for folder, files in unknown.items():
                if verdicts[folder] is Verdict.SWEEP:
                    self._sweep(folder, files, own, cleared)
                elif own.isdisjoint(file.path for file in files):
                    self._delete(folder, files, cleared)
                else:
                    cleared.unclear.add(folder.number)

    def _judge(self, folder: AttemptFolder, writer: Writer | None) -> Verdict:
        if folder.is_held:
            return Verdict.KEEP
        return judge(
            folder.attempt,
            writer,
            has_known_files=folder.known_count > 0,
            table_created_at_ms=self._place.created_at_ms,
            cutoff_ms=self._cutoff_ms,
        )

    def _used_by_others(self, names: set[str]) -> set[str]:
        """Return the folders, among some, in which another table or a partition has its files."""
        if not names:
            return set()
        with self._storage.read() as connection:
            inside = neighbours(connection, [self._place.table.location])
            return names & {neighbour.path.partition("/")[0] for neighbour in inside if neighbour.path}

    def _reached(self, names: set[str]) -> set[str]:
        """Return the folders, among some, that contain files of an Iceberg table."""
        root = self._place.table.location
        paths = {f"{root}/{name}": name for name in names}
        if not paths:
            return set()
        reached = self._reachability.reached(paths, besides=self._place.names)
        return {paths[path] for path in reached}

    def _unknown_files(self, folder: AttemptFolder, known: set[str]) -> list[FileInfo]:
        return [file for file in self._location.all_files(folder.name) if file.path not in known]

    def _reached_files(self, paths: Iterable[str]) -> set[str]:
        """Return the files, among some without rows of their operation, that an Iceberg table has."""
        root = self._place.table.location
        complete = {f"{root}/{path}": path for path in paths if not is_manifest(path)}
        return {complete[path] for path in self._reachability.reached(complete)} if complete else set()

    def _delete(self, folder: AttemptFolder, files: Sequence[FileInfo], cleared: _Cleared) -> None:
        if any(file.modified_at_ms > self._cutoff_ms for file in files):
            cleared.unclear.add(folder.number)
            return
        if not self._is_dry_run:
            if not self._take(folder):
                cleared.unclear.add(folder.number)
                return
            self._location.delete(folder.name)
        cleared.file_count += len(files)
        cleared.size_bytes += sum(file.size_bytes for file in files)

    def _take(self, folder: AttemptFolder) -> bool:
        """Delete the manifest of a folder, so that the operation cannot commit it even if it was begun again.

        Returns:
            Whether the folder may still be deleted.
        """
        with self._storage.write() as connection:
            writer = read_writers(connection, {folder.number}, hold=True).get(folder.number)
            if self._judge(folder, writer) is not Verdict.DELETE:
                return False
            delete_manifest(self._place.table, folder.name)
        return True

    def _sweep(self, folder: AttemptFolder, files: Iterable[FileInfo], own: set[str], cleared: _Cleared) -> None:
        for file in files:
            if file.path in own or self._is_young(folder, file):
                cleared.unclear.add(folder.number)
                continue
            if not self._is_dry_run:
                self._location.delete_file(file.path)
            cleared.file_count += 1
            cleared.size_bytes += file.size_bytes

    def _is_young(self, folder: AttemptFolder, file: FileInfo) -> bool:
        # Hidden files are the job's: its manifest, and what Spark has left.
        is_of_job = is_hidden(file.path.rpartition("/")[2]) or (
            folder.writer is not None and file.modified_at_ms <= folder.writer.touched_at_ms
        )
        return file.modified_at_ms > (self._cutoff_ms if is_of_job else self._usual_cutoff_ms)

    def _known_paths(self, folders: Sequence[AttemptFolder]) -> set[str]:
        """Return the current known files of some folders; only vacuum itself removes files from the known ones."""
        numbers, names = [folder.number for folder in folders], [folder.name for folder in folders]
        of_attempt = func.split_part(FormerFileRow.path, "/", 1).in_(names)
        data = select(DataFileRow.path).where(DataFileRow.table_id.in_(self._place.table_ids))
        former = select(FormerFileRow.path).where(FormerFileRow.table_id.in_(self._place.table_ids), of_attempt)
        with self._storage.read() as connection:
            paths = set(connection.scalars(data.where(among(connection, DataFileRow.operation_number, numbers))))
            return paths.union(connection.scalars(former))


def _portions(folders: Iterable[AttemptFolder]) -> Iterator[list[AttemptFolder]]:
    """Yield portions of folders whose known files fit into memory and whose names fit into one statement."""
    for batch in batched(folders, _FOLDERS_AT_ONCE):
        portion: list[AttemptFolder] = []
        count = 0
        for folder in batch:
            if portion and count + folder.known_count > _FILES_AT_ONCE:
                yield portion
                portion, count = [], 0
            portion.append(folder)
            count += folder.known_count
        yield portion
