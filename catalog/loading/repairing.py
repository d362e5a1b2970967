"""Repair of a table's partitions from its folders, as Hive's MSCK REPAIR TABLE does.

Folders are listed level by level, many in parallel. Partitions are looked up and added in batches, one transaction per
batch: a table with a million folders needs neither one transaction for all nor one for each, nor memory for all of
them. An interrupted repair is continued by repeating it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from sqlalchemy import Connection, Row, select

from catalog.errors import InvalidPartitionError, VerificationFailedError
from catalog.files.filesystem import Folder, in_parallel
from catalog.files.locations import comparable, folder_keys
from catalog.loading.loading import Loading
from catalog.model import NewPartition, RepairMode, Table
from catalog.model.partition_names import NULL_TEXTS, folder_start, unescape
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind, OperationState
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.changing import drop_partitions, hold_locations
from catalog.partitions.seen import Digests, Seen
from catalog.partitions.versions import find_homes, find_unsettled, is_version
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.checks import refuse_stored_as_iceberg, refuse_view
from catalog.tables.definitions import Definitions
from catalog.tables.purged_folders import find_purged

MAXIMUM_UNFIT = 100
"""The number of unfit folders that a report names; it counts all of them."""

_STEP = "repair"
_BATCH = 10_000


@dataclass(frozen=True)
class RepairReport:
    """The result of a repair.

    Attributes:
        added: Partitions that were added because their folders exist.
        dropped: Partitions that were dropped because their folders do not exist.
        folder_count: Folders whose paths have the form of a partition's, including registered ones.
        unfit_count: Folders that cannot become partitions of the table.
        unfit: The first of them, with reasons.
    """

    added: int
    dropped: int
    folder_count: int
    unfit_count: int
    unfit: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "unfit": list(self.unfit)}


@dataclass(frozen=True)
class FolderComparison:
    """The differences between a table's partitions and its folders, which a repair would correct.

    Attributes:
        folder_count: Folders whose paths have the form of a partition's, including registered ones.
        without_partition, without_folder: Numbers of folders that no partition has, and of partitions whose folders do
            not exist.
        folders, partitions: The first of them, by path.
        unfit_count: Folders that cannot become partitions of the table.
        unfit: The first of them, with reasons.
    """

    folder_count: int
    without_partition: int
    folders: tuple[str, ...]
    without_folder: int
    partitions: tuple[str, ...]
    unfit_count: int
    unfit: tuple[str, ...]


@dataclass
class _Findings:
    """The intermediate results of a repair."""

    added: int = 0
    dropped: int = 0
    folder_count: int = 0
    unfit_count: int = 0
    unfit: list[str] = field(default_factory=list)

    def refuse(self, reason: str) -> None:
        """Count a folder that cannot become a partition, and name the first ones."""
        self.unfit_count += 1
        if len(self.unfit) < MAXIMUM_UNFIT:
            self.unfit.append(reason)

    def report(self) -> RepairReport:
        return RepairReport(self.added, self.dropped, self.folder_count, self.unfit_count, tuple(self.unfit))


@dataclass(frozen=True, slots=True)
class _PartitionFolder:
    """A folder below the table's location, and the partition values in its path."""

    path: str
    values: tuple[str | None, ...]


class Repairs:
    """The repairs of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations, loading: Loading) -> None:
        """Set the storage, the definitions in it, the journal, and the loads."""
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
        refuse_stored_as_iceberg(table, "MSCK REPAIR", "Nothing needs repair: no folder is listed to find partitions")
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
            report = operation.report[_STEP]
            return RepairReport(**{**report, "unfit": tuple(report["unfit"])})
        with self._operations.failing(operation_id), self._operations.attempt(operation_id, _STEP) as attempt:
            # Files that an interrupted load has moved must not become partitions.
            self._loading.discard_staging(table, (operation_id, _STEP, attempt))
            report = _Repair(self._storage, self._definitions, self._operations, table, operation_id, attempt).run(mode)
            with self._storage.write() as connection:
                self._operations.finish_job(operation_id, _STEP, attempt, report.as_dict(), connection=connection)
                self._operations.advance(connection, operation_id, OperationState.COMMITTED)
                self._operations.advance(connection, operation_id, OperationState.CLEANED)
        return report

    def compare(self, name: str) -> FolderComparison:
        """Return what `repair` would add and drop in both directions, and change nothing.

        A folder that a running operation has written, and not registered yet, is a folder without partition.

        Raises:
            TableNotFoundError: The table does not exist.
            StorageError: A folder cannot be listed.
        """
        table = self._definitions.get_hive_table(name)
        return _Comparison(self._storage, self._definitions, self._operations, table).compare()


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
        # A template for packed values, which are already escaped as in paths.
        self._default_path = "/".join(folder_start(key).replace("%", "%%") + "%s" for key in table.key_names)
        self._seen = Seen(storage, table)
        self._findings = _Findings()
        self._own_locations: Digests | None = None

    def run(self, mode: RepairMode) -> RepairReport:
        """Compare all folders with the partitions, and add and drop partitions as the mode says."""
        self._require_folder(mode)
        for batch in batched(self._partition_folders(), _BATCH):
            self._findings.folder_count += len(batch)
            self._beat()
            self._match(batch, adds=mode is not RepairMode.DROP)
        if mode is not RepairMode.ADD:
            self._drop_missing()
        return self._findings.report()

    def _require_folder(self, mode: RepairMode) -> None:
        if mode is not RepairMode.ADD and not self._folder.exists():
            raise VerificationFailedError(
                f"table {self._table.full_name}: {self._table.location} does not exist, so the repair would drop every "
                "partition; nothing was dropped. Restore the folder, or drop the partitions"
            )

    def _beat(self) -> None:
        self._operations.heartbeat(*self._attempt, done=self._findings.folder_count, note="folders")

    # --- listing ------------------------------------------------------------------------------------------------

    def _partition_folders(self) -> Iterator[_PartitionFolder]:
        """Yield the folders with a value for each key, and count the others."""
        level: Iterable[_PartitionFolder] = [_PartitionFolder("", ())]
        for key in self._table.key_names:
            level = self._below(level, key)
        yield from level

    def _below(self, folders: Iterable[_PartitionFolder], key: str) -> Iterator[_PartitionFolder]:
        def listed(folder: _PartitionFolder) -> tuple[_PartitionFolder, list[str | None]]:
            return folder, self._folder.partition_folders(folder.path)

        for folder, names in in_parallel(listed, folders):
            for name in names:
                if name is None:
                    parent = f"{self._folder.location}/{folder.path}"
                    self._findings.refuse(f"a folder below {parent}: its name is not UTF-8")
                    continue
                path = f"{folder.path}/{name}" if folder.path else name
                key_name, separator, value = name.partition("=")
                if not separator or unescape(key_name).lower() != key:
                    self._findings.refuse(f"folder {path}: its last part does not have the form {key}=value")
                else:
                    yield _PartitionFolder(path, (*folder.values, None if value in NULL_TEXTS else unescape(value)))

    # --- adding -------------------------------------------------------------------------------------------------

    def _match(self, batch: Sequence[_PartitionFolder], *, adds: bool) -> None:
        """Find the folders that are locations of partitions, and add partitions for the others if `adds` is set."""
        identities = self._encoder.encode_all([folder.values for folder in batch]).identities
        paths = {f"{self._table.location}/{folder.path}": folder.path for folder in batch}
        with self._storage.read() as connection:
            known = self._registered(connection, identities)
            purged = {paths[location]: purge for location, purge in find_purged(connection, paths)}
            unsettled = find_unsettled(connection, self._table, identities)
            waiting = find_homes(connection, self._table, paths)
        # The folder of a renamed partition has the values of another one.
        homes = {paths[version.home]: version.identity for version in waiting}
        taken = self._taken(paths)
        at_home, new = [], dict[bytes, _PartitionFolder]()
        for folder, identity in zip(batch, identities, strict=True):
            row = known.get(identity)
            if row is not None and self._is_at(row, folder):
                at_home.append(identity)
            elif folder.path in taken or homes.get(folder.path, identity) != identity:
                continue
            elif folder.path in purged:
                claim = purged[folder.path]
                work = "moving the folder" if claim.kind == OperationKind.MOVE_FOLDERS else "deleting the files in it"
                self._findings.refuse(f"folder {folder.path}: operation {claim.operation} is {work}")
            elif row is None and identity in unsettled:
                self._findings.refuse(
                    f"folder {folder.path}: it has files that were replaced or deleted; `calve vacuum "
                    f"{self._table.full_name}` deletes them when no reader needs them"
                )
            elif row is None and identity not in new:
                new[identity] = folder
            else:
                twin = self._effective_location(row) if row is not None else self._location(new[identity])
                self._findings.refuse(f"folder {folder.path}: the partition with these values is in {twin}")
        self._seen.add(at_home)
        if adds and new:
            self._add(self._with_files(list(new.values())))

    def _registered(self, connection: Connection, identities: Sequence[bytes]) -> dict[bytes, Row[*tuple[Any, ...]]]:
        row = PartitionRow
        query = select(row.identity, row.packed_values, row.location).where(
            row.table_id == self._table.id, among(connection, row.identity, identities)
        )
        return {bytes(partition.identity): partition for partition in connection.execute(query)}

    def _is_at(self, row: Row[*tuple[Any, ...]], folder: _PartitionFolder) -> bool:
        """Return whether a folder is a partition's location; the first test covers the default location of most."""
        is_at_home = row.location is None or is_version(row.location)
        if is_at_home and self._default_path % tuple(row.packed_values.split("/")) == folder.path:
            return True
        return self._effective_location(row) == self._location(folder)

    def _location(self, folder: _PartitionFolder) -> str:
        return comparable(f"{self._table.location}/{folder.path}")

    def _effective_location(self, row: Row[*tuple[Any, ...]]) -> str:
        return comparable(self._table.partition_location(row.packed_values, row.location))

    def _taken(self, paths: Mapping[str, str]) -> set[str]:
        """Return the paths of folders that are custom locations of partitions, for instance of renamed ones."""
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
        return {paths[location] for location, taken in zip(keys.values(), is_taken, strict=True) if taken}

    def _with_files(self, folders: Sequence[_PartitionFolder]) -> Sequence[_PartitionFolder]:
        """Return the folders without empty ones, on file systems where purges cannot delete empty folders."""
        if not self._folder.keeps_empty_folders:
            return folders
        are_empty = in_parallel(lambda folder: self._folder.is_empty(folder.path), folders)
        with_files = []
        for folder, is_empty in zip(folders, are_empty, strict=True):
            if is_empty:
                self._findings.refuse(f"folder {folder.path}: it is empty")
            else:
                with_files.append(folder)
        return with_files

    def _add(self, folders: Sequence[_PartitionFolder]) -> None:
        if not folders:
            return
        with self._storage.write() as connection:
            self._operations.guard(connection, *self._attempt, hold=False)
            adder = PartitionAdder(connection, self._definitions, self._table)
            new = [NewPartition(folder.values, f"{self._table.location}/{folder.path}") for folder in folders]
            result, _, skipped = adder.add_where_free(new)
        self._findings.added += result.added
        for refused in (*result.refused, *(reason for _, reason in skipped)):
            self._findings.refuse(str(refused))

    # --- dropping -----------------------------------------------------------------------------------------------

    def _drop_missing(self) -> None:
        """Drop the partitions whose folders do not exist."""
        for unseen in self._seen.lacking(_BATCH):
            locations = {partition.id: self._effective_location(partition) for partition in unseen}
            exist = in_parallel(lambda location: self._folder.at(location).exists(), locations.values())
            missing = {
                row_id: location
                for (row_id, location), exists in zip(locations.items(), exist, strict=True)
                if not exists
            }
            self._beat()
            if missing:
                self._drop(missing)

    def _drop(self, missing: Mapping[int, str]) -> None:
        """Drop partitions that are still at their locations."""
        with self._storage.write() as connection:
            self._operations.guard(connection, *self._attempt, hold=False)
            held = self._definitions.lock_table(connection, self._table, exclusive=False)
            current = hold_locations(connection, held, missing)
            unmoved = [row_id for row_id, location in current.items() if comparable(location) == missing[row_id]]
            self._findings.dropped += drop_partitions(connection, held, unmoved)


class _Comparison(_Repair):
    """A repair of one table that only counts and names what it would change."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations, table: Table) -> None:
        super().__init__(storage, definitions, operations, table, "", 0)
        self._folders: list[str] = []
        self._partitions: list[str] = []

    def compare(self) -> FolderComparison:
        """Return the differences in both directions."""
        report = self.run(RepairMode.SYNC)
        return FolderComparison(
            folder_count=report.folder_count,
            without_partition=report.added,
            folders=tuple(self._folders),
            without_folder=report.dropped,
            partitions=tuple(self._partitions),
            unfit_count=report.unfit_count,
            unfit=report.unfit,
        )

    def _require_folder(self, mode: RepairMode) -> None:
        """Do nothing: without the table's folder, its partitions have none."""

    def _beat(self) -> None:
        """Do nothing: there is no operation."""

    def _add(self, folders: Sequence[_PartitionFolder]) -> None:
        self._findings.added += len(folders)
        self._folders += [folder.path for folder in folders[: MAXIMUM_UNFIT - len(self._folders)]]

    def _drop(self, missing: Mapping[int, str]) -> None:
        self._findings.dropped += len(missing)
        self._partitions += list(missing.values())[: MAXIMUM_UNFIT - len(self._partitions)]


def _hashes(keys: Collection[bytes]) -> Digests:
    return np.fromiter((hash(key) % 2**64 for key in keys), np.uint64, len(keys))
