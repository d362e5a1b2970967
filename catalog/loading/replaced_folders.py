"""The files that a change of partitions of a Hive-style table replaces, compared with those that it has read.

Others may write into the folders meanwhile, and drop, rename or add partitions. A change that has read the rows of
partitions records them, with the files of their folders before it reads them, and commits only if they are the same
partitions then, with the same files. What the commit replaces is recorded with the version
(`catalog.partitions.versions`), so that vacuum deletes nothing that arrived later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from sqlalchemy import select

from catalog.errors import PlanConflictError
from catalog.files.filesystem import FileInfo, Folder, in_parallel
from catalog.model import Partition, Table
from catalog.operations.records import Operation
from catalog.partitions.folder_files import digest_files, others_than, visible_files
from catalog.partitions.versions import is_version
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import PartitionRow


class PartitionRead(NamedTuple):
    """A partition whose rows were read.

    Attributes:
        values: Its values when it was looked up.
        files: Its files (`catalog.partitions.folder_files.digest_files`) before its rows were read.
    """

    values: tuple[str | None, ...]
    files: bytes


PartitionsRead = Mapping[int, PartitionRead]
"""Partition id → what was read."""

_NAME = "read"
_SCHEMA = pa.schema([("partition_id", pa.int64()), ("values", pa.list_(pa.string())), ("files", pa.binary())])


def list_files(table: Table, partitions: Sequence[Partition]) -> PartitionsRead:
    """Return partitions whose rows are to be read and replaced, with their files; none if file rows name these."""
    if table.has_file_rows:
        return {}
    folder = Folder(table.location)
    found = in_parallel(lambda partition: visible_files(folder.at(partition.location)), partitions)
    listed = zip(partitions, found, strict=True)
    return {partition.id: PartitionRead(partition.values, digest_files(files)) for partition, files in listed}


def keep_files_read(table: Table, staging: str, read: PartitionsRead | None) -> None:
    """Keep what an attempt has read, in its staging folder, before the folder is complete; not if file rows name it.

    Args:
        read: None if the attempt replaces partitions without having read them.
    """
    if read is not None and not table.has_file_rows:
        values, files = ([partition[field] for partition in read.values()] for field in range(2))
        rows = pa.table([list(read), values, files], schema=_SCHEMA)
        Folder(f"{table.location}/{staging}").write_rows(f"{_NAME}/part.parquet", rows)


def files_read(table: Table, staging: str) -> PartitionsRead | None:
    """Return what the attempt with a staging folder has read; None if it replaces partitions without reading them."""
    folder = Folder(f"{table.location}/{staging}")
    if not folder.exists(_NAME):
        return None
    return {row["partition_id"]: PartitionRead(tuple(row["values"]), row["files"]) for row in folder.rows(_NAME)}


def overtaken(table: Table, name: str) -> PlanConflictError:
    """Return the error for a partition that is no longer the one that was looked up."""
    return PlanConflictError(
        f"table {table.full_name}: partition {name} was added, dropped, renamed or moved while a statement or a load "
        "replaced its rows; nothing was changed. Run the statement or the load again from its start"
    )


class ReplacedFolders:
    """The files in the folders of the partitions that one attempt replaces or removes.

    Attributes:
        found: Folder → its files.
    """

    def __init__(
        self, storage: Storage, table: Table, operation: Operation, read: PartitionsRead | None = None
    ) -> None:
        """Set the operation of the attempt, and what it has read."""
        self._storage, self._table = storage, table
        self._began_at_ms = operation.created_at_ms
        self._read = read or {}
        self._rest = set(self._read)
        self.found = dict[str, bytes]()

    def find(self, ids: Collection[int]) -> None:
        """List the folders of some partitions, outside of transactions.

        Raises:
            PlanConflictError: A folder has other files than were read.
        """
        folder = Folder(self._table.location)
        self._rest.difference_update(ids)
        for batch in batched(ids):
            locations = {
                number: location
                for number, location in self._locations(batch).items()
                if number in self._read or not is_version(location)
            }
            listed = in_parallel(lambda location: visible_files(folder.at(location)), locations.values())
            for (number, location), files in zip(locations.items(), listed, strict=True):
                self.found[location] = self._replaced(number, location, files)

    def find_rest(self, removed: Collection[int]) -> None:
        """List the folders of partitions that are removed, and of those that were read and stay, as `find`."""
        self.find(removed)
        self.find(list(self._rest))

    def find_others(self, location: str, own: Collection[str]) -> None:
        """List the folder of a new partition, which has files of others, such as those of a dropped one.

        Args:
            own: The names of the partition's files.
        """
        files = visible_files(Folder(self._table.location).at(location))
        self.found[location] = digest_files({name: file for name, file in files.items() if name not in own})

    def _locations(self, ids: Sequence[int]) -> dict[int, str]:
        row = PartitionRow
        with self._storage.read() as connection:
            query = select(row.id, row.packed_values, row.location).where(among(connection, row.id, ids))
            return {
                number: self._table.partition_location(packed, location)
                for number, packed, location in connection.execute(query)
            }

    def _replaced(self, number: int, location: str, files: Mapping[str, FileInfo]) -> bytes:
        """Return the recorded files of a partition: those that were read, or that are older than the operation."""
        read = self._read.get(number)
        if read is None:
            since_ms = self._began_at_ms
            return digest_files({name: file for name, file in files.items() if file.modified_at_ms <= since_ms})
        if digest_files(files) != read.files:
            others = others_than(read.files, files)
            change = f"has {others[0]}, which was not read" if others else "lacks files that were read"
            raise PlanConflictError(
                f"table {self._table.full_name}: another program changed the folder {location} while its rows were "
                f"read and written: it {change}; nothing was changed. Run the statement or the load again from its "
                "start"
            )
        return read.files
