"""Making a table's partitions those whose folders are there, as Hive's MSCK REPAIR TABLE does.

Folders are listed a level of keys at a time, many at once, and their partitions looked up and added in batches, each in
a transaction of its own: a table with a million folders needs neither one transaction for all nor one for each, nor
memory for all of them. Who is interrupted goes on by doing it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any
from uuid import uuid4

import numpy as np
from sqlalchemy import Connection, Row, select

from catalog.errors import FencedError, InvalidPartitionError, VerificationFailedError
from catalog.files.filesystem import Folder, in_parallel
from catalog.files.locations import comparable, folder_keys
from catalog.loading.loading import Loading
from catalog.model import NewPartition, Table
from catalog.model.partition_names import NULL_TEXTS, folder_start, unescape
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind, OperationState
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.changing import drop_partitions, hold_locations
from catalog.partitions.seen import Digests, Seen
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.checks import refuse_view
from catalog.tables.definitions import Definitions
from catalog.tables.purged_folders import find_purged

MAXIMUM_UNFIT = 100
"""Folders that a report names; it counts them all."""

_STEP = "repair"
_BATCH = 10_000


class RepairMode(StrEnum):
    """What a repair changes; the words of Hive's MSCK."""

    ADD = "add"
    DROP = "drop"
    SYNC = "sync"


@dataclass(frozen=True)
class RepairReport:
    """What a repair found and did.

    Attributes:
        added: Partitions whose folders are there and that were not registered.
        dropped: Partitions whose folders are gone.
        folder_count: Folders that have the form of partitions, registered ones included.
        unfit_count: Folders that are no partitions of the table.
        unfit: The first of them, each with the reason.
    """

    added: int
    dropped: int
    folder_count: int
    unfit_count: int
    unfit: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {**asdict(self), "unfit": list(self.unfit)}


@dataclass
class _Findings:
    """What has been found so far."""

    added: int = 0
    dropped: int = 0
    folder_count: int = 0
    unfit_count: int = 0
    unfit: list[str] = field(default_factory=list)

    def refuse(self, reason: str) -> None:
        """Count, and perhaps name, a folder that is no partition."""
        self.unfit_count += 1
        if len(self.unfit) < MAXIMUM_UNFIT:
            self.unfit.append(reason)

    def report(self) -> RepairReport:
        return RepairReport(self.added, self.dropped, self.folder_count, self.unfit_count, tuple(self.unfit))


@dataclass(frozen=True, slots=True)
class _Found:
    """A folder below the table's location, and the values that its path says."""

    path: str
    values: tuple[str | None, ...]


class Repairs:
    """Repairs of the tables of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations, loading: Loading) -> None:
        """Take the database, the definitions in it, the journal, and the loads."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._loading = loading

    def repair(
        self, name: str, mode: RepairMode, *, operation_id: str | None = None, requested_by: str | None = None
    ) -> RepairReport:
        """Repair a table; see `Catalog.repair_table`."""
        table = self._definitions.get_hive_table(name)
        refuse_view(table, "has no partitions")
        if not table.partition_keys:
            reason = "it has no partition keys, so no folder is a partition"
            raise InvalidPartitionError(table.full_name, reason=reason)
        operation_id = operation_id or f"repair-{table.full_name}-{uuid4().hex}"
        operation = self._operations.begin(
            operation_id,
            OperationKind.REPAIR_TABLE,
            table.full_name,
            {"mode": mode},
            is_exclusive=True,
            requested_by=requested_by,
        )
        if operation.is_committed:
            done = operation.report[_STEP]
            return RepairReport(**{**done, "unfit": tuple(done["unfit"])})
        try:
            with self._operations.attempt(operation_id, _STEP) as attempt:
                # What an interrupted load has moved is nobody's partition.
                self._loading.discard_staging(table, (operation_id, _STEP, attempt))
                report = _Repair(self._storage, self._definitions, self._operations, table, operation_id, attempt)(mode)
                with self._storage.write() as connection:
                    self._operations.finish_job(operation_id, _STEP, attempt, report.as_dict(), connection=connection)
                    self._operations.advance(connection, operation_id, OperationState.COMMITTED)
                    self._operations.advance(connection, operation_id, OperationState.CLEANED)
        except FencedError:
            raise
        except (Exception, KeyboardInterrupt) as error:
            self._operations.fail(operation_id, type(error).__name__, str(error) or type(error).__name__)
            raise
        return report


class _Repair:
    """One attempt at the repair of one table."""

    def __init__(
        self,
        storage: Storage,
        definitions: Definitions,
        operations: Operations,
        table: Table,
        operation_id: str,
        attempt: int,
    ) -> None:
        self._storage = storage
        self._definitions = definitions
        self._operations = operations
        self._table = table
        self._attempt = operation_id, _STEP, attempt
        self._folder = Folder(table.location)
        self._encoder = ValueEncoder(table)
        # Of packed values, which are escaped as in paths.
        self._default_path = "/".join(folder_start(key).replace("%", "%%") + "%s" for key in table.key_names)
        self._seen = Seen(storage, table)
        self._found = _Findings()
        self._own_locations: Digests | None = None

    def __call__(self, mode: RepairMode) -> RepairReport:
        if mode is not RepairMode.ADD and not self._folder.exists():
            raise VerificationFailedError(
                f"table {self._table.full_name}: {self._table.location} is not there, so every partition would be "
                "dropped; nothing was. Bring the folder back, or drop the partitions"
            )
        for batch in batched(self._partition_folders(), _BATCH):
            self._found.folder_count += len(batch)
            self._beat()
            self._match(batch, adds=mode is not RepairMode.DROP)
        if mode is not RepairMode.ADD:
            self._drop_gone()
        return self._found.report()

    def _beat(self) -> None:
        self._operations.heartbeat(*self._attempt, done=self._found.folder_count, note="folders")

    # --- listing ------------------------------------------------------------------------------------------------

    def _partition_folders(self) -> Iterator[_Found]:
        """Yield the folders with a value for each key, and count those that do not fit."""
        level: Iterable[_Found] = [_Found("", ())]
        for key in self._table.key_names:
            level = self._below(level, key)
        yield from level

    def _below(self, folders: Iterable[_Found], key: str) -> Iterator[_Found]:
        def listed(folder: _Found) -> tuple[_Found, list[str | None]]:
            return folder, self._folder.partition_folders(folder.path)

        for folder, names in in_parallel(listed, folders):
            for name in names:
                if name is None:
                    self._found.refuse(f"a folder below {self._folder.location}/{folder.path}: its name is no UTF-8")
                    continue
                path = f"{folder.path}/{name}" if folder.path else name
                said, mark, value = name.partition("=")
                if not mark or unescape(said).lower() != key:
                    self._found.refuse(f"folder {path}: its last part does not have the form {key}=value")
                else:
                    yield _Found(path, (*folder.values, None if value in NULL_TEXTS else unescape(value)))

    # --- adding -------------------------------------------------------------------------------------------------

    def _match(self, batch: Sequence[_Found], *, adds: bool) -> None:
        """Find out which folders are the locations of partitions, and add partitions for the others."""
        identities = self._encoder.encode_all([each.values for each in batch]).identities
        paths = {f"{self._table.location}/{folder.path}": folder.path for folder in batch}
        with self._storage.read() as connection:
            known = self._registered(connection, identities)
            purged = {paths[location]: purge for location, purge in find_purged(connection, paths)}
        taken = self._taken(paths)
        at_home, new = [], dict[bytes, _Found]()
        for each, identity in zip(batch, identities, strict=True):
            row = known.get(identity)
            if row is not None and self._is_at(row, each):
                at_home.append(identity)
            elif each.path in taken:
                continue
            elif each.path in purged:
                self._found.refuse(f"folder {each.path}: operation {purged[each.path][0]} is deleting the files in it")
            elif row is None and identity not in new:
                new[identity] = each
            else:
                twin = self._effective_location(row) if row is not None else self._location(new[identity])
                self._found.refuse(f"folder {each.path}: the partition with these values is in {twin}")
        self._seen.add(at_home)
        if adds and new:
            self._add(self._with_files(list(new.values())))

    def _registered(self, connection: Connection, identities: Sequence[bytes]) -> dict[bytes, Row[*tuple[Any, ...]]]:
        row = PartitionRow
        query = select(row.identity, row.packed_values, row.location).where(
            row.table_id == self._table.id, among(connection, row.identity, identities)
        )
        return {bytes(found.identity): found for found in connection.execute(query)}

    def _is_at(self, row: Row[*tuple[Any, ...]], found: _Found) -> bool:
        """Say whether a folder is a partition's location; nearly all are, and by default."""
        if row.location is None and self._default_path % tuple(row.packed_values.split("/")) == found.path:
            return True
        return self._effective_location(row) == self._location(found)

    def _location(self, found: _Found) -> str:
        return comparable(f"{self._table.location}/{found.path}")

    def _effective_location(self, row: Row[*tuple[Any, ...]]) -> str:
        return comparable(self._table.partition_location(row.packed_values, row.location))

    def _taken(self, paths: Mapping[str, str]) -> set[str]:
        """Return the paths of folders that are own locations of partitions, for instance of renamed ones."""
        if self._own_locations is None:
            with self._storage.read() as connection:
                query = select(PartitionRow.location).where(
                    PartitionRow.table_id == self._table.id, PartitionRow.location.is_not(None)
                )
                stream = connection.execution_options(yield_per=_BATCH).scalars(query)
                own = (text for text in stream if text is not None)
                self._own_locations = np.unique(
                    np.concatenate(
                        [np.empty(0, np.uint64), *(_hashes(folder_keys(batch)) for batch in batched(own, _BATCH))]
                    )
                )
        if not len(self._own_locations):
            return set()
        keys = folder_keys(paths)
        is_taken = np.isin(_hashes(keys), self._own_locations)
        return {paths[location] for location, among in zip(keys.values(), is_taken, strict=True) if among}

    def _with_files(self, found: Sequence[_Found]) -> Sequence[_Found]:
        """Leave out empty folders where purges cannot delete them."""
        if not self._folder.keeps_empty_folders:
            return found
        are_empty = in_parallel(lambda folder: self._folder.is_empty(folder.path), found)
        with_files = []
        for folder, is_empty in zip(found, are_empty, strict=True):
            if is_empty:
                self._found.refuse(f"folder {folder.path}: it is empty")
            else:
                with_files.append(folder)
        return with_files

    def _add(self, found: Sequence[_Found]) -> None:
        if not found:
            return
        with self._storage.write() as connection:
            self._operations.guard(connection, *self._attempt, hold=False)
            adder = PartitionAdder(connection, self._definitions, self._table)
            new = [NewPartition(each.values, f"{self._table.location}/{each.path}") for each in found]
            result, _, left_out = adder.add_where_free(new)
        self._found.added += result.added
        for refused in (*result.refused, *(reason for _, reason in left_out)):
            self._found.refuse(str(refused))

    # --- dropping -----------------------------------------------------------------------------------------------

    def _drop_gone(self) -> None:
        """Drop the partitions whose folders are not there."""
        for unseen in self._seen.lacking(_BATCH):
            locations = {partition.id: self._effective_location(partition) for partition in unseen}
            there = in_parallel(lambda location: self._folder.at(location).exists(), locations.values())
            gone = {row_id for row_id, is_there in zip(locations, there, strict=True) if not is_there}
            self._beat()
            if gone:
                with self._storage.write() as connection:
                    self._operations.guard(connection, *self._attempt, hold=False)
                    held = self._definitions.lock_table(connection, self._table, exclusive=False)
                    now = hold_locations(connection, held, gone)
                    unmoved = [row_id for row_id, location in now.items() if comparable(location) == locations[row_id]]
                    self._found.dropped += drop_partitions(connection, held, unmoved)


def _hashes(keys: Collection[bytes]) -> Digests:
    return np.fromiter((hash(key) % 2**64 for key in keys), np.uint64, len(keys))
