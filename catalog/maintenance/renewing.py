"""Renewal of the rows of a table that a check has found damaged.

In one transaction, partitions are stored under their values, file rows become those of the current snapshot, partitions
exist for all files, and count them; the items of indexes follow. Rows that are right stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import Connection, select

from catalog.datafiles.engine_files import FilesError, usable_files
from catalog.datafiles.files import NewFile, delete_files, insert_files
from catalog.datafiles.history import record_revision, with_paths
from catalog.datafiles.intake import lock_current, placed_files
from catalog.datafiles.pruning import partitions_of_file
from catalog.errors import UnreadableMetadataError, VerificationFailedError
from catalog.files.locations import complete_path, reach_key
from catalog.iceberg.differences import Difference, LiveFile, Versions
from catalog.iceberg.trees import DATA, MetadataTree
from catalog.indexes.definitions import list_indexes
from catalog.indexes.verifying import verify
from catalog.maintenance.checks.iceberg_files import Entries, find_wrong_keys, recorded_files
from catalog.maintenance.checks.ledgers import Ledger
from catalog.model import IndexState, NewPartition, OnInvalid, Table
from catalog.operations.attempts import attempts_among
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.records import values_of
from catalog.partitions.renewing import renew_counts, renew_identities
from catalog.partitions.snapshots import UNPARTITIONED, partition_ids
from catalog.schemes.model import Scheme
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.storage.schema import DataFileRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions

_BATCH = 5_000


@dataclass(frozen=True)
class Renewed:
    """The numbers of rows that were renewed."""

    partitions: int
    files: int
    index_items: int

    def __str__(self) -> str:
        """Return the numbers as text."""
        return f"{self.partitions:,} partition(s), {self.files:,} file row(s), {self.index_items:,} index item(s)"


class _OldRow(NamedTuple):
    """The fields of a file row that the row in its place keeps."""

    partition_id: int
    operation_number: int | None


def renew_rows(storage: Storage, definitions: Definitions, name: str) -> Renewed:
    """Renew the damaged rows of a table, and return their numbers.

    Raises:
        TableNotFoundError, IcebergTableError: The catalog has no rows of such a table.
        UnreadableMetadataError: The metadata of the current snapshot are damaged.
        VerificationFailedError: Calve cannot read a file of the snapshot.
        ConflictError: A file belongs to a quarantined partition.
    """
    with storage.write() as connection:
        table = lock_current(connection, definitions, name)
        partitions = renew_identities(connection, table) if table.partition_keys else 0
        files = _FileRenewal(storage, connection, definitions, table).run() if table.is_published else 0
        if table.is_stored_as_iceberg and table.partition_keys:
            partitions += renew_counts(connection, table)
    with storage.read() as connection:
        indexes = [index for index in list_indexes(connection, table.id) if index.state is IndexState.ACTIVE]
    items = sum(verify(storage, table, index, repair=True).repaired or 0 for index in indexes)
    return Renewed(partitions, files, items)


class _FileRenewal:
    """The renewal of the file rows of one table, in the caller's transaction."""

    def __init__(self, storage: Storage, connection: Connection, definitions: Definitions, table: Table) -> None:
        self._storage = storage
        self._connection = connection
        self._definitions = definitions
        self._table = table
        self._renewed = 0

    def run(self) -> int:
        """Renew the rows; return the number of those that were written or deleted."""
        table = self._table
        location = table.published_location
        assert location is not None
        tree = MetadataTree(location, reads_partitions=True)
        with Ledger() as ledger:
            ledger.add("recorded", recorded_files(self._connection, table))
            ledger.add("listed", map(Entries(table, keeps_bounds=False), tree.files()))
            ledger.index()
            if not tree.is_complete:
                damage = next(damage for damage in tree.damaged if damage.is_current)
                raise UnreadableMetadataError(table.full_name, damage.path, damage.reason)
            ledger.note_wrong(find_wrong_keys(ledger))
            self._add(ledger, tree)
            self._delete(ledger)
        if self._renewed:
            snapshot_id = (tree.document or {})["current-snapshot-id"]
            record_revision(self._connection, table, snapshot_id, table.scheme)
        return self._renewed

    def _add(self, ledger: Ledger, tree: MetadataTree) -> None:
        """Write the rows of the snapshot's files that have none, or a wrong one."""
        versions = Versions(tree.location, tree.location)
        unchanged = versions.since(versions.after.current_snapshot_id)
        wrong = (
            listed.file
            for listed in tree.files()
            if listed.is_live and listed.content == DATA and ledger.is_wrong(reach_key(listed.file.path))
        )
        for batch in batched(wrong, _BATCH):
            files = list({file.path: file for file in batch}.values())
            old = self._old_rows(files)
            delete_files(self._connection, self._table, [self._path(file.path) for file in files])
            for number, group in groupby(sorted(self._new_files(unchanged, files, old), key=_writer), key=_writer):
                self._renewed += insert_files(
                    self._connection, self._table, (file for _, file in group), number or None
                ).file_count

    def _new_files(
        self, unchanged: Difference, files: Sequence[LiveFile], old: Mapping[str, _OldRow]
    ) -> Iterator[tuple[int, NewFile]]:
        """Yield new file rows, each with the operation that wrote the file; 0 for that of an engine."""
        try:
            usable = usable_files(self._table, replace(unchanged, added=files))
        except FilesError as error:
            raise VerificationFailedError(f"table {self._table.full_name}: {error}; nothing was changed") from error
        new = self._of_partitions(usable) if self._table.scheme is None else placed_files(self._table, usable)
        for file in new:
            row = old.get(file.path)
            # A file that Calve wrote is in the partition that it was written for, unless its values say otherwise.
            if row is not None and _may_stay(self._table.scheme, file, row.partition_id):
                file = replace(file, partition_id=row.partition_id)
            attempt = next(attempts_among(self._storage, [file.path.partition("/")[0]]), None)
            number = (row.operation_number if row is not None else None) or (attempt.number if attempt else 0)
            yield (0 if file.is_read_by_id else number), file

    def _of_partitions(self, files: Sequence[LiveFile]) -> Iterator[NewFile]:
        """Yield the files of a table stored as Iceberg, after adding the partitions that are missing."""
        table, ids = self._table, dict[bytes, int]()
        values = [values_of(table, file.partition) for file in files]
        identities: Sequence[bytes] = [b""] * len(files)
        if table.partition_keys:
            identities = ValueEncoder(table).encode_all(values).identities
            adder = PartitionAdder(self._connection, self._definitions, table)
            missing = (NewPartition(own, None, 0, 0, 0) for own in dict.fromkeys(values))
            adder.add(missing, if_not_exists=True, on_invalid=OnInvalid.REFUSE)
            ids = partition_ids(self._connection, table, dict.fromkeys(identities))
        for file, own, identity in zip(files, values, identities, strict=True):
            yield NewFile(
                ids.get(identity, UNPARTITIONED),
                self._path(file.path),
                file.row_count,
                file.size_bytes,
                {},
                values=own,
                is_read_by_id=file.is_read_by_id,
            )

    def _old_rows(self, files: Iterable[LiveFile]) -> dict[str, _OldRow]:
        row, old = DataFileRow, dict[str, _OldRow]()
        query = select(row.path, row.partition_id, row.operation_number)
        for chunk in batched(self._path(file.path) for file in files):
            known = query.where(with_paths(self._connection, row, self._table, chunk))
            for path, partition_id, number in self._connection.execute(known):
                old[path] = _OldRow(partition_id, number)
        return old

    def _delete(self, ledger: Ledger) -> None:
        """Delete the rows of files that the snapshot does not have."""
        for batch in batched((self._path(path) for path in ledger.extra_paths()), _BATCH):
            self._renewed += delete_files(self._connection, self._table, batch)

    def _path(self, path: str) -> str:
        return complete_path(self._table.location, path).removeprefix(f"{self._table.location}/")


def _may_stay(scheme: Scheme | None, file: NewFile, partition_id: int) -> bool:
    """Return whether a scheme has a partition, and rows of a file may be in it."""
    if scheme is None or partition_id not in scheme.ids:
        return False
    return bool(partitions_of_file(scheme, file.statistics, [partition_id]))


def _writer(file: tuple[int, NewFile]) -> int:
    return file[0]
