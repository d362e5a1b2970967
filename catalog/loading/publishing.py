"""Publication of staged loads; no transaction holds a lock while folders are listed or files are moved.

    reserve   short transactions store the destination of each partition's files, and thereby reserve the new
              partitions (`catalog.partitions.staged`)
    move      without a transaction, the files are moved to their destinations, which readers do not know yet
    commit    one transaction adds the partitions with their index items, and sets the operation to COMMITTED

Each transaction checks that the attempt may still publish. After a kill, the next attempt continues: reservations and
moved files stay. A load that is not continued is withdrawn: staged files are deleted first, so that a suspended attempt
that resumes late has no files to move; then moved files are deleted by their names, which are unique to the attempt.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, delete

from catalog.errors import (
    ConflictError,
    FencedError,
    InvalidPartitionError,
    LocationNotEmptyError,
    MissingFileError,
    PartitionAlreadyExistsError,
)
from catalog.files.filesystem import Folder, in_parallel
from catalog.loading.appending import Extension, added_destinations, extend, extended_destinations, refuse_links
from catalog.loading.attempts import MOST_REASONS, PublishAttempt
from catalog.loading.replaced_folders import ReplacedFolders, files_read
from catalog.loading.replacing import remove, replaced_destinations, require_read, switch
from catalog.model import LoadMode, NewPartition, OnInvalid, Table
from catalog.model.partition_names import partition_path
from catalog.operations.attempts import AttemptName, attempt_name, attempts_among
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import Operation
from catalog.operations.staging import (
    STAGING,
    StagedPartition,
    data_folder,
    delete_staging,
    incomplete,
    is_complete,
    is_written_in_place,
    read_staged,
    require_layout,
    written_layout,
)
from catalog.partitions.adding import PartitionAdder, registered
from catalog.partitions.spooling import RowSpool
from catalog.partitions.staged import (
    Destination,
    free_batch,
    has_destinations,
    is_of,
    read_destinations,
    reserve,
    reserving_attempts,
)
from catalog.partitions.versions import delete_empty_above, find_unsettled, is_version_of, version_location
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.storage.schema import StagedPartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.checks import require_loadable
from catalog.tables.own_files import job_of

WRITTEN_BY = "written_by"
"""The field of a load's report with the id of the Spark job whose files it added."""

_BATCH = 5_000
_BEAT_SECONDS = 5.0


@dataclass
class Totals:
    """Counts of a publication: new partitions, extended or replaced ones, their files and rows, and refused ones.

    Attributes:
        written_by: The id of the Spark job that wrote the files (`catalog.tables.own_files.job_of`).
    """

    new: int = 0
    extended: int = 0
    row_count: int = 0
    file_count: int = 0
    size_bytes: int = 0
    refused: int = 0
    refused_rows: int = 0
    refused_reasons: list[str] = field(default_factory=list)
    written_by: str | None = None

    def add(self, staged: StagedPartition, destination: Destination) -> None:
        """Count one partition."""
        if destination.refused is not None:
            self.refused += 1
            self.refused_rows += staged.row_count
            if len(self.refused_reasons) < MOST_REASONS:
                self.refused_reasons.append(destination.refused)
            return
        self.written_by = job_of(staged.files[0])
        self.new += destination.is_new
        self.extended += not destination.is_new
        self.row_count += staged.row_count
        self.file_count += staged.file_count
        self.size_bytes += staged.size_bytes


class Publication:
    """One attempt at publishing a staging folder."""

    def __init__(self, attempt: PublishAttempt, staged: AttemptName) -> None:
        """Set the attempt at publishing the folder that another attempt, or the same one, has staged."""
        self._attempt, self._table = attempt, attempt.table
        self._staged = staged
        self._folder = Folder(attempt.table.location)
        self._encoder = ValueEncoder(attempt.table)
        self._beaten_at, self._totals = time.monotonic(), Totals()
        self._read = files_read(attempt.table, attempt.folder)
        self._layout = written_layout(self._folder, attempt.folder)
        self._replaced = ReplacedFolders(attempt.storage, attempt.table, attempt.operation, self._read)

    # --- reserve ------------------------------------------------------------------------------------------------

    def reserve(self) -> None:
        """Reserve destinations; on failure, release them again unless an earlier attempt may have moved files.

        Raises:
            FencedError: The attempt is fenced, or the files were withdrawn.
            VerificationFailedError: The staging folder is incomplete.
            PlanConflictError: A partition that was read was dropped or renamed, or another was added in its place.
        """
        if not is_complete(self._folder, self._attempt.folder):
            raise incomplete(self._folder, self._attempt.folder, self._table.full_name)
        with self._attempt.storage.read() as connection:
            self._attempt.guard(connection, hold=False)
            may_have_moved = has_destinations(connection, self._staged)
        try:
            for batch in self._batches():
                self._reserve(batch)
                reached(Point.PARTLY_RESERVED)
        except FencedError:
            raise
        except Exception:
            if not may_have_moved:
                self._free()
            raise

    def _batches(self) -> Iterator[dict[bytes, StagedPartition]]:
        """Yield batches of staged partitions by identity.

        Raises:
            InvalidPartitionError: A partition is staged in two spellings.
        """
        for batch in batched(read_staged(self._folder, self._attempt.folder), _BATCH):
            self._beat()
            by_identity: dict[bytes, StagedPartition] = {}
            for staged in batch:
                twin = by_identity.setdefault(self._encoder.identity(staged.values), staged)
                if twin is not staged:
                    raise self._twins(self._packed(twin), self._packed(staged))
            yield by_identity

    def _reserve(self, batch: dict[bytes, StagedPartition]) -> None:
        identities = list(batch)
        with self._attempt.storage.read() as connection:
            done = read_destinations(connection, self._staged, identities)
            existing = registered(connection, self._table, identities)
        for identity, destination in done.items():
            if destination.packed_values != self._packed(batch[identity]):
                raise self._twins(destination.packed_values, self._packed(batch[identity]))
        rest = {identity: staged for identity, staged in batch.items() if identity not in done}
        if not rest:
            return
        absent = [identity for identity in rest if identity not in existing and self._table.partition_keys]
        are_occupied = in_parallel(lambda identity: self._is_occupied(rest[identity]), absent)
        occupied = dict(zip(absent, are_occupied, strict=True))
        with self._attempt.storage.write() as connection:
            self._attempt.guard(connection)
            table = self._hold(connection)
            destinations = list(self._destinations(connection, table, rest, occupied))
            refuse_links(table, destinations)
            reserve(connection, table, self._staged, destinations)

    def _destinations(
        self,
        connection: Connection,
        table: Table,
        staged: dict[bytes, StagedPartition],
        occupied: dict[bytes, bool],
    ) -> Iterable[Destination]:
        if not table.partition_keys:
            return [Destination(identity, "", table.location, False) for identity in staged]
        adder, options = self._adder(connection, table), self._attempt.options
        existing: list[Destination] = []
        if options.mode is LoadMode.REPLACE:
            read, others = self._ids_read, options.replaces_others
            existing += replaced_destinations(
                connection, table, staged, self._staged.name, read, replaces_others=others
            )
        elif options.mode is LoadMode.APPEND:
            existing += extended_destinations(connection, table, staged)
        known = {destination.identity for destination in existing}
        new = {identity: partition for identity, partition in staged.items() if identity not in known}
        if not new:
            return existing
        unsettled = find_unsettled(connection, table, new)
        if not options.is_load:
            needs_version = is_written_in_place(table)
            occupied = {
                identity: has_files or needs_version or identity in unsettled
                for identity, has_files in occupied.items()
            }
            return [*existing, *added_destinations(connection, adder, new, occupied, self._staged.name)]
        return [*existing, *self._new_destinations(adder, new, occupied, unsettled)]

    def _new_destinations(
        self,
        adder: PartitionAdder,
        staged: dict[bytes, StagedPartition],
        occupied: dict[bytes, bool],
        unsettled: Container[bytes],
    ) -> Iterable[Destination]:
        new = [NewPartition(partition.values) for partition in staged.values()]
        refusals = adder.check(new, on_invalid=self._attempt.options.on_invalid)
        refused = {refusal.partition: str(refusal) for refusal in refusals}
        for identity, partition in staged.items():
            path = partition_path(self._table.key_names, partition.values)
            reason = refused.get(path)
            if reason is None and identity not in occupied:
                raise ConflictError(
                    f"partition {path} of {self._table.full_name} was dropped while a load was being published; "
                    "nothing was added. Run the load again"
                )
            is_unsettled = identity in unsettled
            if reason is None and occupied[identity] and not is_unsettled:
                raise LocationNotEmptyError(
                    f"folder {self._folder.location}/{path} has files that the catalog does not know; nothing was "
                    f"added. Move them elsewhere, or register them as a partition of {self._table.full_name}, and run "
                    "the load again"
                )
            above = "" if reason is None else f"{self._attempt.rejected_folder}/"
            location = f"{self._table.location}/{above}{path}"
            if reason is None and (is_unsettled or is_written_in_place(self._table)):
                location = version_location(self._table, self._staged.name, path)
            yield Destination(identity, self._packed(partition), location, reason is None, reason)

    def _is_occupied(self, staged: StagedPartition) -> bool:
        """Return whether a new partition's folder has files of others, and keep these for its version."""
        path = partition_path(self._table.key_names, staged.values)
        if not self._folder.visible_names(path) - set(staged.files):
            return False
        self._replaced.find_others(f"{self._table.location}/{path}", staged.files)
        return True

    @cached_property
    def _ids_read(self) -> dict[bytes, int] | None:
        if self._read is None:
            return None
        return {self._encoder.identity(partition.values): number for number, partition in self._read.items()}

    def _packed(self, staged: StagedPartition) -> str:
        return staged.packed_values(self._table.key_names)

    def _twins(self, *packed: str) -> InvalidPartitionError:
        reason = f"the source files write one partition in two ways, {packed[0]} and {packed[1]}; deliver its rows "
        return InvalidPartitionError(self._table.full_name, reason=f"{reason}under one spelling")

    def _free(self) -> None:
        """Release the reservations, provided that no file was moved."""
        has_more = True
        while has_more:
            with self._attempt.storage.write() as connection:
                self._attempt.guard(connection)
                has_more = free_batch(connection, self._staged)

    # --- move ---------------------------------------------------------------------------------------------------

    def move(self, extensions: RowSpool) -> Iterator[NewPartition]:
        """Move the files; yield the new partitions, and append `Extension` rows of existing ones to `extensions`.

        Raises:
            FencedError: The attempt is fenced, or the files were withdrawn.
            PlanConflictError: A folder whose rows the attempt has read and replaces has other files now.
        """
        for batch in self._batches():
            with self._attempt.storage.read() as connection:
                destinations = read_destinations(connection, self._staged, list(batch))
            if len(destinations) < len(batch):
                raise FencedError(
                    f"{self._attempt.folder} of {self._table.full_name} was withdrawn; run the load again"
                )
            moves = [(staged, destinations[identity]) for identity, staged in batch.items()]
            for _ in in_parallel(self._move, moves):
                self._beat()
            page, replaced = list[Extension](), list[int]()
            for staged, destination in moves:
                self._totals.add(staged, destination)
                counts = staged.file_count, staged.row_count, staged.size_bytes
                if destination.refused is not None or not self._table.partition_keys:
                    continue
                # A partition is added with its default folder, before its version becomes its location.
                has_version = is_version_of(self._table, self._staged.name, destination.location)
                if destination.is_new:
                    yield NewPartition(staged.values, None if has_version else destination.location, *counts)
                if has_version or not destination.is_new:
                    partition = destination.identity, destination.partition_id, destination.location
                    page.append(Extension(*partition, *counts))
                if has_version and destination.partition_id is not None:
                    replaced.append(destination.partition_id)
            self._replaced.find(replaced)
            if page:
                extensions.append(page)
        self._replaced.find_rest(self._attempt.options.removed)

    def _move(self, move: tuple[StagedPartition, Destination]) -> None:
        staged, destination = move
        source = staged.data_path(self._table, self._attempt.folder)
        target = self._folder.at(destination.location)
        is_deleted_later = not is_written_in_place(self._table)
        try:
            if target.location != f"{self._folder.location}/{source}":
                self._folder.move_files(source, target, staged.files, is_source_deleted_later=is_deleted_later)
                if not is_deleted_later:
                    self._folder.inside(source).delete_if_empty()
                    delete_empty_above(self._folder, f"{self._folder.location}/{source}")
        except MissingFileError:
            # Withdrawn meanwhile: remove the empty folder, which a repair would take for a partition.
            if destination.is_new:
                target.delete_if_empty()
            with self._attempt.storage.read() as connection:
                self._attempt.guard(connection, hold=False)
            raise
        reached(Point.PARTLY_MOVED)

    def _beat(self) -> None:
        """Send a heartbeat of the attempt if one is due.

        Raises:
            FencedError: The attempt is fenced.
        """
        if time.monotonic() - self._beaten_at >= _BEAT_SECONDS:
            self._attempt.heartbeat()
            self._beaten_at = time.monotonic()

    # --- commit -------------------------------------------------------------------------------------------------

    def commit(
        self, connection: Connection, new: Iterable[NewPartition], extensions: Iterable[Sequence[Any]]
    ) -> Operation:
        """Make the moved files visible in the caller's transaction; return the operation.

        Raises:
            FencedError: The attempt is fenced, or the files were withdrawn.
            ConflictError: The table or an extended partition was moved or dropped meanwhile.
            PlanConflictError: A partition that was read, or is removed, was dropped, renamed or moved meanwhile; or
                the files have another format than the table has now.
            UnsupportedChangeError: The table has got buckets meanwhile.
            InvalidPartitionError: An index that was created meanwhile does not admit a partition.
        """
        operation = self._attempt.guard(connection)
        self._attempt.evolve(connection)
        table = self._hold(connection)
        require_layout(table, self._layout)
        require_loadable(table)
        require_read(connection, table, self._read or {}, self._replaced.found)
        remove(connection, table, self._attempt.options.removed, self._staged.name, self._replaced.found)
        if self._totals.new:
            try:
                self._adder(connection, table).add(new, if_not_exists=False, on_invalid=OnInvalid.REFUSE)
            except PartitionAlreadyExistsError as error:
                if self._attempt.options.is_load:
                    raise
                raise ConflictError(
                    f"another process has added a partition meanwhile; append again: {error}"
                ) from error
        for page in extensions:
            rows = [Extension(*row) for row in page]
            versions, extended = list[Extension](), list[Extension]()
            for row in rows:
                (versions if is_version_of(table, self._staged.name, row.location) else extended).append(row)
            if versions:
                switch(connection, table, versions, operation.number, self._replaced.found)
            if extended:
                extend(connection, table, extended, operation.number)
        connection.execute(delete(StagedPartitionRow).where(is_of(self._staged)))
        return operation

    def report(self) -> dict[str, Any]:
        """Return the report; see `Loading.publish`."""
        totals, is_replacing = self._totals, self._attempt.options.mode is LoadMode.REPLACE
        if not self._attempt.options.is_load:
            known = totals.extended if self._table.partition_keys else 0
            return {
                "rows": totals.row_count,
                "files": totals.file_count,
                "bytes": totals.size_bytes,
                "partitions_added": totals.new,
                "partitions_extended": 0 if is_replacing else known,
                **({"partitions_replaced": known} if is_replacing else {}),
                **({"partitions_removed": len(self._attempt.options.removed)} if is_replacing else {}),
            }
        refused_folder = f"{self._table.location}/{self._attempt.rejected_folder}"
        return {
            "partitions": totals.new,
            "partitions_extended": 0 if is_replacing else totals.extended,
            "partitions_replaced": totals.extended if is_replacing else 0,
            "partitions_removed": len(self._attempt.options.removed),
            "row_count": totals.row_count,
            "file_count": totals.file_count,
            "size_bytes": totals.size_bytes,
            WRITTEN_BY: totals.written_by,
            "refused": totals.refused,
            "refused_rows": totals.refused_rows,
            "refused_reasons": totals.refused_reasons,
            "refused_folder": refused_folder if totals.refused else None,
        }

    def _hold(self, connection: Connection) -> Table:
        """Lock the table against transactions that add partitions."""
        table = self._attempt.definitions.lock_table(connection, self._table, exclusive=False, is_bulk=True)
        if table.location != self._table.location:
            raise ConflictError(
                f"table {table.full_name} was moved from {self._table.location} to {table.location} while a load was "
                "being published; nothing was added. Run the load again"
            )
        return table

    def _adder(self, connection: Connection, table: Table) -> PartitionAdder:
        return PartitionAdder(
            connection,
            self._attempt.definitions,
            table,
            is_quarantined=self._attempt.options.is_quarantined,
            operation_number=self._attempt.operation.number,
            is_bulk=True,
            adds_versions=True,
        )


def staged_attempts(storage: Storage, table: Table) -> list[AttemptName]:
    """Return the attempts that have a staging folder or reserved partitions in a table, sorted by name."""
    with storage.read() as connection:
        reserving = reserving_attempts(connection, table)
    names = {attempt_name(storage, *numbers) for numbers in reserving}
    return sorted(names.union(attempts_among(storage, Folder(table.location).folders(STAGING))))


def withdraw(storage: Storage, operations: Operations, table: Table, staged: AttemptName) -> None:
    """Delete the files that an attempt has staged and moved, and its staging folder; safe to repeat.

    Call it only after `attempts.withdraw_attempt`, or if a later attempt stages the load, so that the attempt cannot
    commit afterwards. Committed files stay.
    """
    folder, staging = Folder(table.location), f"{STAGING}/{staged.name}"
    operation = operations.find_by_number(staged.number)
    if operation is not None and not operation.is_committed:
        # Staged files first, so that a suspended attempt that resumes late has nothing to move.
        folder.delete(data_folder(table, staging))
        reached(Point.STAGED_DATA_DELETED)
        _undo_moves(storage, table, folder, staged)
        reached(Point.MOVES_UNDONE)
    has_more = True
    while has_more:
        with storage.write() as connection:
            has_more = free_batch(connection, staged)
    delete_staging(table, staging)


def _undo_moves(storage: Storage, table: Table, folder: Folder, staged: AttemptName) -> None:
    encoder = ValueEncoder(table)

    def undo(move: tuple[StagedPartition, Destination | None]) -> None:
        partition, destination = move
        default = table.default_partition_location(partition_path(table.key_names, partition.values))
        target = folder.at(destination.location if destination else default.rstrip("/"))
        target.delete_files(partition.files)
        is_extended = destination is not None and not destination.is_new and destination.refused is None
        if not is_extended or is_version_of(table, staged.name, target.location):
            target.delete_if_empty()

    for rows in batched(read_staged(folder, f"{STAGING}/{staged.name}"), _BATCH):
        # Skip partitions of a dropped table that had other keys; its reservations were deleted with it.
        batch = [partition for partition in rows if len(partition.values) == len(table.key_names)]
        identities = [encoder.identity(partition.values) for partition in batch]
        with storage.read() as connection:
            destinations = read_destinations(connection, staged, identities)
        moves = [(partition, destinations.get(identity)) for partition, identity in zip(batch, identities, strict=True)]
        for _ in in_parallel(undo, moves):
            pass
