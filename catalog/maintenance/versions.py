"""Settling of versions, and the deletion of their folders (`catalog.partitions.versions`).

A partition's home gets the files of its version, and becomes the partition's location again in one transaction. The
operation reserves the table, so that no load or statement adds files to a version while it is copied. Only files that
were in the home before are deleted, by their names: a process that was stopped and continues late harms nothing. A home
to which others have added files since the change is left as it is, and named.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from sqlalchemy import Row, select

from catalog.errors import CatalogError, OperationConflictError, UnreadableMetadataError
from catalog.files.filesystem import FileInfo, Folder, in_parallel
from catalog.maintenance.reports import TableVacuum, Tally
from catalog.model import Table
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind, OperationState
from catalog.partitions.folder_files import names_among, others_than, visible_files
from catalog.partitions.folders import used_by_others
from catalog.partitions.staged import reserving_attempts
from catalog.partitions.versions import delete_empty_above, file_counts, forget_versions, move_home, set_state
from catalog.storage import Storage
from catalog.storage.schema import PartitionVersionRow, VersionState
from catalog.tables.definitions import Definitions
from catalog.tables.own_files import is_own_file

if TYPE_CHECKING:
    from catalog.iceberg.reachability import Reachability

log = logging.getLogger(__name__)

_STEP = "settle"
_BATCH = 1_000
_SHOWN = 5
_BEAT_SECONDS = 5.0

_Row: TypeAlias = Row[int, str, str, bool, bytes | None, int]


@dataclass(frozen=True)
class _Copy:
    """The files that settle one version.

    Attributes:
        missing: Names of the version's files that the home lacks.
        obsolete: Files in the home that the version does not have.
        problem: The reason why the version cannot be settled.
        is_dropped: Whether its partition no longer exists, which leaves the home empty.
    """

    version: _Row
    missing: Sequence[str] = ()
    obsolete: Sequence[FileInfo] = ()
    problem: str | None = None
    is_dropped: bool = False


def _stays(folder: str, foreign: Sequence[str]) -> str:
    reason = f"{folder} has {len(foreign):,} file(s) that Calve did not write, such as {foreign[0]}"
    return f"{reason}; move them elsewhere"


def _used(version: _Row, owners: Mapping[str, str]) -> str:
    return (
        f"the files of {version.location} cannot be put into {version.home}, because {owners[version.home]} has it, "
        "too; give one of them another location"
    )


class Versions:
    """The versions of the partitions of one table, for vacuum."""

    def __init__(
        self,
        storage: Storage,
        definitions: Definitions,
        operations: Operations,
        reachability: Reachability,
        table: Table,
        tally: Tally,
    ) -> None:
        """Set the table, and the tally that counts what is done."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._reachability = reachability
        self._table = table
        self._tally = tally
        self._folder = Folder(table.location)
        self._problems: list[str] = []

    def vacuum(self, cutoff_ms: int, *, is_dry_run: bool) -> None:
        """Delete the folders that no reader needs, and settle the versions that are old enough.

        Args:
            cutoff_ms: Keep the files that a reader which started at this time may need.
        """
        for batch in self._batches((VersionState.SETTLED, VersionState.REPLACED), cutoff_ms):
            deleted = [version.location for version in batch] if is_dry_run else self._delete(batch)
            self._tally.add(TableVacuum(self._table.full_name, version_folders=len(deleted)))
        # A migrated table reads the files of its versions; it is settled if the migration is reverted.
        waiting = iter(()) if self._table.is_iceberg else self._batches((VersionState.CURRENT,), cutoff_ms)
        if is_dry_run:
            count = sum(map(len, waiting))
            self._tally.add(TableVacuum(self._table.full_name, settled_partitions=count))
        elif (first := next(waiting, None)) is not None:
            self._settle_all(chain([first], waiting))
        if self._problems:
            shown = "; ".join(self._problems[:_SHOWN])
            self._tally.problems.append(f"{self._table.full_name}: {len(self._problems):,} folder(s) stay: {shown}")

    def _batches(self, states: Collection[VersionState], cutoff_ms: int) -> Iterator[Sequence[_Row]]:
        row, after = PartitionVersionRow, 0
        query = (
            select(row.number, row.location, row.home, row.owns_home, row.replaced, row.changed_at_ms)
            .where(row.table_id == self._table.id, row.state.in_(states), row.changed_at_ms <= cutoff_ms)
            .order_by(row.number)
            .limit(_BATCH)
        )
        while True:
            with self._storage.read() as connection:
                batch = connection.execute(query.where(row.number > after)).all()
            if not batch:
                return
            yield batch
            after = batch[-1].number

    # --- settling -----------------------------------------------------------------------------------------------

    def _settle_all(self, batches: Iterable[Sequence[_Row]]) -> None:
        name = f"settle-{self._table.full_name}-{uuid4().hex}"
        try:
            self._operations.begin(name, OperationKind.SETTLE_VERSIONS, self._table.full_name, is_exclusive=True)
        except OperationConflictError as error:
            log.info("%s: replaced partitions wait for the next vacuum: %s", self._table.full_name, error)
            return
        count = 0
        with self._operations.failing(name), self._operations.attempt(name, _STEP) as attempt:
            if self._may_have_more_files():
                log.info("%s: replaced partitions wait for a load that may go on", self._table.full_name)
                batches = ()
            for batch in batches:
                self._operations.heartbeat(name, _STEP, attempt, done=count, note="partitions")
                count += self._settle(batch, (name, _STEP, attempt))
            with self._storage.write() as connection:
                self._operations.finish_job(name, _STEP, attempt, {"settled": count}, connection=connection)
                self._operations.advance(connection, name, OperationState.COMMITTED)
                self._operations.advance(connection, name, OperationState.CLEANED)

    def _may_have_more_files(self) -> bool:
        """Return whether an interrupted load may have moved files to versions, which are not the table's yet."""
        with self._storage.read() as connection:
            return bool(reserving_attempts(connection, self._table))

    def _settle(self, versions: Sequence[_Row], attempt: tuple[str, str, int]) -> int:
        with self._storage.read() as connection:
            counts = file_counts(connection, self._table, [version.location for version in versions])
            used = used_by_others(connection, self._table, [version.home for version in versions])
        taken = [version for version in versions if version.home in used]
        replaced = [version.location for version in taken if version.location not in counts]
        self._problems += [_used(version, used) for version in taken if version.location in counts]
        compared = in_parallel(partial(self._compare, counts), (one for one in versions if one.home not in used))
        copies = [copy for copy in compared if copy is not None]
        needed = self._needed([copy.version.home for copy in copies if copy.obsolete])
        done = [copy for copy in copies if copy.problem is None and copy.version.home not in needed]
        self._problems += [copy.problem for copy in copies if copy.problem is not None]
        beaten_at = time.monotonic()
        for _ in in_parallel(self._copy, done):
            if time.monotonic() - beaten_at >= _BEAT_SECONDS:
                self._operations.heartbeat(*attempt)
                beaten_at = time.monotonic()
        with self._storage.write() as connection:
            self._operations.guard(connection, *attempt)
            table = self._definitions.lock_table(connection, self._table, exclusive=False)
            move_home(connection, table, {copy.version.location: copy.version.home for copy in done})
            set_state(connection, [copy.version.location for copy in done], VersionState.SETTLED)
            set_state(connection, replaced, VersionState.REPLACED)
            reached(Point.CHANGED)
        obsolete = [file.size_bytes for copy in done for file in copy.obsolete]
        retired = TableVacuum(self._table.full_name, retired_files=len(obsolete), retired_bytes=sum(obsolete))
        self._tally.add(replace(retired, settled_partitions=len(done)))
        return len(done)

    def _compare(self, counts: Mapping[str, int | None], version: _Row) -> _Copy | None:
        """Return the files that settle a version; None if its files stay where they are."""
        try:
            new, there = self._files(version.location), self._files(version.home)
        except (CatalogError, OSError, ValueError) as error:
            return _Copy(version, problem=f"{version.home}: {error}")
        expected = counts.get(version.location)
        if expected is not None and expected != len(new):
            reason = f"{version.location} has {len(new):,} file(s), but its partition has {expected:,}"
            return _Copy(version, problem=f"{reason}; restore them, or replace the partition again")
        is_dropped = version.location not in counts
        # Files of a dropped partition, which were there before the partition was added again.
        before = set() if version.owns_home else names_among(version.replaced or b"", there)
        kept = {name for name in before if is_own_file(name, self._storage.identity)}
        if kept and not is_dropped:
            log.info("%s keeps its files, so those of its partition stay in %s", version.home, version.location)
            return None
        others = {name: file for name, file in there.items() if name not in {*new, *kept}}
        if foreign := self._foreign(version, others):
            return _Copy(version, problem=_stays(version.home, foreign))
        missing = [name for name in new if name not in there]
        return _Copy(version, missing, list(others.values()), is_dropped=is_dropped)

    def _foreign(self, version: _Row, others: Mapping[str, FileInfo]) -> list[str]:
        """Return the names of files in a version's home that were never those of its partition."""
        if version.replaced is not None:
            names = others_than(version.replaced if version.owns_home else b"", others)
        else:
            # Recorded by an earlier release of Calve.
            return self._others_after(version.changed_at_ms if version.owns_home else -1, others)
        return [name for name in names if not is_own_file(name, self._storage.identity)]

    def _others_after(self, since_ms: int, files: Mapping[str, FileInfo]) -> list[str]:
        """Return the names of files that others wrote after a time."""
        names = [name for name, file in sorted(files.items()) if file.modified_at_ms > since_ms]
        return [name for name in names if not is_own_file(name, self._storage.identity)]

    def _files(self, location: str) -> dict[str, FileInfo]:
        return visible_files(self._folder.at(location))

    def _copy(self, copy: _Copy) -> None:
        home = self._folder.at(copy.version.home)
        home.delete_files(file.path.rpartition("/")[2] for file in copy.obsolete)
        reached(Point.FILES_DELETED)
        self._folder.at(copy.version.location).copy_files(home, copy.missing)
        reached(Point.FILES_COPIED)
        # Otherwise a repair would find a folder without partition.
        if copy.is_dropped:
            home.delete_if_empty()

    # --- deletion -----------------------------------------------------------------------------------------------

    def _delete(self, versions: Sequence[_Row]) -> list[str]:
        locations = [version.location for version in versions]
        with self._storage.read() as connection:
            # None has one, unless the catalog is damaged.
            used = file_counts(connection, self._table, locations).keys()
        self._problems += [f"{location}: a partition has its files there" for location in sorted(used)]
        needed = {*self._needed(locations), *used}
        unneeded = [version for version in versions if version.location not in needed]
        outcomes = in_parallel(self._delete_folder, unneeded)
        deleted = [version.location for version, is_deleted in zip(unneeded, outcomes, strict=True) if is_deleted]
        reached(Point.FILES_DELETED)
        with self._storage.write() as connection:
            forget_versions(connection, deleted)
        return deleted

    def _delete_folder(self, version: _Row) -> bool:
        location = version.location
        try:
            # Those of engines that had the folder from the catalog before.
            if foreign := self._others_after(version.changed_at_ms, self._files(location)):
                self._problems.append(_stays(location, foreign))
                return False
            self._folder.at(location).delete("")
            delete_empty_above(self._folder, location)
        except (CatalogError, OSError, ValueError) as error:
            self._problems.append(f"{location}: {error}")
            return False
        return True

    def _needed(self, folders: Sequence[str]) -> Collection[str]:
        """Return the folders with files that an Iceberg table refers to; all of them if this is unknown."""
        try:
            needed = self._reachability.reached(folders)
        except UnreadableMetadataError as error:
            self._problems.append(str(error))
            return folders
        self._problems += [f"{folder}: table {name} has files in it" for folder, name in needed.items()]
        return needed
