"""Deleting the files below a table's location that no table knows.

A job writes into the folder of its attempt, named by `catalog.operations.attempts`; only the commit makes the files
known. So a folder is judged by its operation:

| the operation | a folder without known files | a folder with known files |
| --- | --- | --- |
| COMMITTED, CLEANED | goes: another attempt committed, or all files were retired | loses the files that are not known |
| FAILED | goes: a retry writes into another one | |
| at work | goes if its attempt has failed | |
| not known, or older than the table | stays: somebody else left it there | stays |

A file that is not known beside known ones comes from a task that Spark tried twice, or is the job's own list of what it
wrote. Nothing goes that is younger than the grace period, neither an operation's folder nor a file. An operation of
which nothing is left to clear up is CLEANED, and its folder is only looked into again when all its files are retired.

What the catalog says is read in one state of it, so that an operation and the files that its commit made known fit
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select

from catalog.datafiles.manifest import delete_manifest
from catalog.files.filesystem import Folder
from catalog.files.locations import comparable
from catalog.maintenance.judging import Verdict, Writer, committed_operations, judge, read_writers
from catalog.maintenance.reports import TableVacuum, Tally
from catalog.model import Table
from catalog.operations.attempts import AttemptName, attempts_among
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind, OperationState
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import DataFileRow, RetiredFileRow, TableRow
from catalog.tables.neighbours import neighbours

if TYPE_CHECKING:
    from catalog.iceberg.reachability import Reachability

_KINDS = (OperationKind.LOAD_ROWS, OperationKind.REBALANCE)
_FILES_AT_ONCE = 50_000
"""Known files that are in memory at once, unless a single folder has more."""

_FOLDERS_AT_ONCE = 5_000


@dataclass(frozen=True)
class Place:
    """A folder that is the location of a table, nearly always of a single one.

    Attributes:
        table_ids: The tables.
        spellings: The folder as locations may be written.
        created_at_ms: When the last of the tables was created.
    """

    table: Table
    table_ids: tuple[int, ...]
    spellings: tuple[str, ...]
    created_at_ms: int


@dataclass(frozen=True)
class AttemptFolder:
    """The folder of an attempt.

    Attributes:
        known_count: How many of its files a table has, or had.
        writer: Its operation; None when the journal has none of this number.
    """

    name: str
    number: int
    attempt: int
    known_count: int
    writer: Writer | None


@dataclass
class _Cleared:
    """What was deleted, and the operations of which something is left."""

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
    """Delete the orphans of a table with a partition scheme; return how many operations are CLEANED now, or would be.

    Raises:
        OSError, ValueError: The file system refuses; what was deleted until then is counted.
        UnreadableMetadataError: It is not known what an Iceberg table names that may be here.
    """
    location = Folder(table.location)
    names = list(attempts_among(storage, location.folders("")))
    with storage.read() as connection:
        place = _place(connection, table)
        folders = _folders(connection, place, names)
        cleanable = committed_operations(connection, table, _KINDS, place.created_at_ms, cutoff_ms)
    orphanage = _Orphanage(storage, reachability, place, location, cutoff_ms, is_dry_run)
    cleared = _Cleared()
    try:
        orphanage.clear(folders, cleared)
    finally:
        tally.add(TableVacuum(table.full_name, orphan_files=cleared.file_count, orphan_bytes=cleared.size_bytes))
    is_committed = {
        each.number for each in folders if each.writer is not None and each.writer.state is OperationState.COMMITTED
    }
    done = sorted((cleanable | is_committed) - cleared.unclear)
    return len(done) if is_dry_run else operations.clean(done)


def _place(connection: Connection, table: Table) -> Place:
    wanted = comparable(table.location)
    query = select(TableRow.id, TableRow.location, TableRow.created_at_ms)
    rows = [row for row in connection.execute(query) if comparable(row.location) == wanted]
    spellings = {table.location, wanted, *(row.location for row in rows)}
    if wanted.startswith("/"):
        spellings |= {f"file:{wanted}", f"file://{wanted}"}
    created_at_ms = max((row.created_at_ms for row in rows), default=0)
    return Place(table, tuple(row.id for row in rows), tuple(sorted(spellings)), created_at_ms)


def _folders(connection: Connection, place: Place, names: Sequence[AttemptName]) -> list[AttemptFolder]:
    if not names:
        return []
    known: dict[str, int] = {}
    for row, condition in (
        (DataFileRow, DataFileRow.table_id.in_(place.table_ids)),
        (RetiredFileRow, RetiredFileRow.folder.in_(place.spellings)),
    ):
        name = func.split_part(row.path, "/", 1)
        for folder, count in connection.execute(select(name, func.count()).where(condition).group_by(name)):
            known[folder] = known.get(folder, 0) + count
    writers = read_writers(connection, {number for _, number, _ in names})
    return [
        AttemptFolder(name, number, attempt, known.get(name, 0), writers.get(number)) for name, number, attempt in names
    ]


class _Orphanage:
    """The folders below one table's location, which are cleared one by one."""

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
        self._is_dry_run = is_dry_run

    def clear(self, folders: Iterable[AttemptFolder], cleared: _Cleared) -> None:
        verdicts = {each: self._judge(each, each.writer) for each in folders}
        at_stake = {each.name for each, verdict in verdicts.items() if verdict is not Verdict.KEEP}
        others = self._used_by_others(at_stake) | self._reached(at_stake)
        to_sweep = []
        for each, verdict in verdicts.items():
            if verdict is Verdict.KEEP or each.name in others:
                cleared.unclear.add(each.number)
            elif verdict is Verdict.DELETE:
                self._delete(each, cleared)
            else:
                to_sweep.append(each)
        for some in _portions(to_sweep):
            known = self._known_paths(some)
            for each in some:
                self._sweep(each, known, cleared)

    def _judge(self, folder: AttemptFolder, writer: Writer | None) -> Verdict:
        return judge(
            folder.attempt,
            writer,
            has_known_files=folder.known_count > 0,
            table_created_at_ms=self._place.created_at_ms,
            cutoff_ms=self._cutoff_ms,
        )

    def _used_by_others(self, names: set[str]) -> set[str]:
        """Return those of some folders in which another table or a partition has its files."""
        if not names:
            return set()
        with self._storage.read() as connection:
            inside = neighbours(connection, [self._place.table.location])
            return names & {neighbour.path.partition("/")[0] for neighbour in inside if neighbour.path}

    def _reached(self, names: set[str]) -> set[str]:
        """Return those of some folders in which an Iceberg table has its files."""
        root = self._place.table.location
        paths = {f"{root}/{name}": name for name in names}
        return {paths[path] for path in self._reachability.reached(paths)} if paths else set()

    def _delete(self, folder: AttemptFolder, cleared: _Cleared) -> None:
        files = self._location.all_files(folder.name)
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
        """Take a folder from whoever might commit it after all, because the operation was begun again just now.

        Without the list of its files nobody can.
        """
        with self._storage.write() as connection:
            writer = read_writers(connection, {folder.number}, hold=True).get(folder.number)
            if self._judge(folder, writer) is not Verdict.DELETE:
                return False
            delete_manifest(self._place.table, folder.name)
        return True

    def _sweep(self, folder: AttemptFolder, known: set[str], cleared: _Cleared) -> None:
        for file in self._location.all_files(folder.name):
            if file.path in known:
                continue
            if file.modified_at_ms > self._cutoff_ms:
                cleared.unclear.add(folder.number)
                continue
            if not self._is_dry_run:
                self._location.delete_file(file.path)
            cleared.file_count += 1
            cleared.size_bytes += file.size_bytes

    def _known_paths(self, folders: Sequence[AttemptFolder]) -> set[str]:
        """Return the known files of some folders, as they are now: only vacuum itself forgets one."""
        numbers, names = [each.number for each in folders], [each.name for each in folders]
        of_attempt = func.split_part(RetiredFileRow.path, "/", 1).in_(names)
        data = select(DataFileRow.path).where(DataFileRow.table_id.in_(self._place.table_ids))
        retired = select(RetiredFileRow.path).where(RetiredFileRow.folder.in_(self._place.spellings), of_attempt)
        with self._storage.read() as connection:
            paths = set(connection.scalars(data.where(among(connection, DataFileRow.operation_number, numbers))))
            return paths.union(connection.scalars(retired))


def _portions(folders: Iterable[AttemptFolder]) -> Iterator[list[AttemptFolder]]:
    """Yield folders, so many at a time that their known files fit into memory, and their names into one statement."""
    for batch in batched(folders, _FOLDERS_AT_ONCE):
        portion: list[AttemptFolder] = []
        count = 0
        for each in batch:
            if portion and count + each.known_count > _FILES_AT_ONCE:
                yield portion
                portion, count = [], 0
            portion.append(each)
            count += each.known_count
        yield portion
