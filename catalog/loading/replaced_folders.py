"""The files that a change of partitions of a Hive-style table replaces, compared with those that it has read.

Others may write into the folders meanwhile. A change that has read the rows of a partition records the files of its
folder before it reads them, and commits only if the folder has the same ones then. What the commit replaces is recorded
with the version (`catalog.partitions.versions`), so that vacuum deletes nothing that arrived later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

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

FilesRead = Mapping[int, bytes]
"""Partition id → its files (`catalog.partitions.folder_files.digest_files`) before its rows were read."""

_NAME = "read"
_SCHEMA = pa.schema([("partition_id", pa.int64()), ("files", pa.binary())])


def list_files(table: Table, partitions: Sequence[Partition]) -> FilesRead:
    """Return the files of partitions whose rows are to be read and replaced; nothing if file rows name them."""
    if table.has_file_rows:
        return {}
    folder = Folder(table.location)
    found = in_parallel(lambda partition: visible_files(folder.at(partition.location)), partitions)
    return {partition.id: digest_files(files) for partition, files in zip(partitions, found, strict=True)}


def keep_files_read(table: Table, staging: str, read: FilesRead) -> None:
    """Keep the files that an attempt has read, in its staging folder; before the folder is complete."""
    if read:
        rows = pa.table([list(read), list(read.values())], schema=_SCHEMA)
        Folder(f"{table.location}/{staging}").write_rows(f"{_NAME}/part.parquet", rows)


def files_read(table: Table, staging: str) -> FilesRead:
    """Return the files that the attempt with a staging folder has read."""
    folder = Folder(f"{table.location}/{staging}")
    rows = folder.rows(_NAME) if folder.exists(_NAME) else ()
    return {row["partition_id"]: row["files"] for row in rows}


class ReplacedFolders:
    """The files in the folders of the partitions that one attempt replaces or removes.

    Attributes:
        found: Folder → its files.
    """

    def __init__(self, storage: Storage, table: Table, operation: Operation, read: FilesRead | None = None) -> None:
        """Set the operation of the attempt, and the files that it has read."""
        self._storage, self._table = storage, table
        self._began_at_ms = operation.created_at_ms
        self._read = read or {}
        self.found = dict[str, bytes]()

    def find(self, ids: Collection[int]) -> None:
        """List the folders of some partitions, outside of transactions.

        Raises:
            PlanConflictError: A folder has other files than were read.
        """
        folder = Folder(self._table.location)
        for batch in batched(ids):
            locations = {
                number: location
                for number, location in self._locations(batch).items()
                if number in self._read or not is_version(location)
            }
            listed = in_parallel(lambda location: visible_files(folder.at(location)), locations.values())
            for (number, location), files in zip(locations.items(), listed, strict=True):
                self.found[location] = self._replaced(number, location, files)

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
        if digest_files(files) != read:
            others = others_than(read, files)
            change = f"has {others[0]}, which was not read" if others else "lacks files that were read"
            raise PlanConflictError(
                f"table {self._table.full_name}: another program changed the folder {location} while its rows were "
                f"read and written: it {change}; nothing was changed. Run the statement or the load again from its "
                "start"
            )
        return read
