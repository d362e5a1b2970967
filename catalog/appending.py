"""Adding files to partitions that exist, or to a table without partition keys: the publishing of an append.

Rows that are appended are staged as those of a load are (`catalog.loading`), with a list of the files beside them:

    data/k=v/…    the files, in a folder for each partition
    files         what is staged: one row for each partition (`StagedFiles`)
    moves         where the files of each partition go; written before the first of them moves

The folders of partitions that exist cannot move, so each file does, under its own name, which no other file has. All
are there before the transaction commits: what commits is complete. Until then, and when the append is undone, a reader
that lists the folder of a partition that was there before sees some of its new files; new partitions become visible
with the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Row, bindparam, select, update

from catalog.definitions import Definitions
from catalog.errors import ConflictError, PartitionAlreadyExistsError, UnsupportedFormatError, VerificationFailedError
from catalog.files import Folder, in_parallel
from catalog.model import NewPartition, OnInvalid, Table
from catalog.operations import Operation
from catalog.partition_names import given_values, partition_path
from catalog.partitions.adding import PartitionAdder, registered, renamed_from
from catalog.partitions.properties import read_properties
from catalog.storage.bulk import among, batched
from catalog.storage.schema import PartitionRow
from catalog.values import ValueEncoder

DATA = "data"
FILES = "files"
MOVES = "moves"
_BATCH = 5_000
_MOVES_SCHEMA = pa.schema(
    [
        ("values", pa.list_(pa.string())),
        ("location", pa.string()),
        ("files", pa.list_(pa.string())),
        ("is_new", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class StagedFiles:
    """What is staged for one partition; for a table without partition keys the values are empty."""

    values: tuple[str | None, ...]
    files: tuple[str, ...]
    row_count: int
    size_bytes: int

    @property
    def file_count(self) -> int:
        """The number of files."""
        return len(self.files)


FILES_SCHEMA = pa.schema(
    [
        ("values", pa.list_(pa.string())),
        ("files", pa.list_(pa.string())),
        ("row_count", pa.int64()),
        ("size_bytes", pa.int64()),
    ]
)
"""The columns of the list of what is staged."""


@dataclass(frozen=True)
class _Move:
    """Where the files of one staged partition go.

    Attributes:
        is_new: The partition comes with this append.
    """

    values: tuple[str | None, ...]
    location: str
    files: tuple[str, ...]
    is_new: bool


def staged_files(folder: Folder, staging: str) -> Iterator[StagedFiles]:
    """Yield what is staged; nothing when the list is not complete."""
    if folder.exists(f"{staging}/{FILES}/_SUCCESS"):
        for row in folder.rows(f"{staging}/{FILES}"):
            yield StagedFiles(tuple(row["values"]), tuple(row["files"]), row["row_count"], row["size_bytes"])


def publish_append(
    connection: Connection, definitions: Definitions, operation: Operation, folder: Folder, staging: str
) -> dict[str, Any]:
    """Put staged files into their places, in the caller's transaction; see `Loading.publish`."""
    if not folder.exists(f"{staging}/{FILES}/_SUCCESS"):
        raise VerificationFailedError(
            f"table {operation.table}: {folder.location}/{staging} has no complete list of what was written; nothing "
            "was added. Append the rows again"
        )
    table = definitions.lock_table(connection, operation.table, exclusive=False, is_bulk=True)
    folder.delete(f"{staging}/{MOVES}")
    report = {"rows": 0, "files": 0, "bytes": 0, "partitions_added": 0, "partitions_extended": 0}
    register = _Registration(connection, definitions, operation, folder) if table.partition_keys else None
    for number, batch in enumerate(batched(staged_files(folder, staging), _BATCH)):
        moves = [_Move((), table.location, each.files, False) for each in batch]
        if register is not None:
            moves = register(batch)
            report["partitions_added"] += sum(move.is_new for move in moves)
            report["partitions_extended"] += sum(not move.is_new for move in moves)
        for each in batch:
            report["rows"] += each.row_count
            report["files"] += each.file_count
            report["bytes"] += each.size_bytes
        rows = [{"values": m.values, "location": m.location, "files": m.files, "is_new": m.is_new} for m in moves]
        folder.write_rows(f"{staging}/{MOVES}/{number:06}.parquet", pa.Table.from_pylist(rows, _MOVES_SCHEMA))

    def move(each: _Move) -> None:
        path = "/".join(part for part in (staging, DATA, partition_path(table.key_names, each.values)) if part)
        folder.move_files(path, folder.at(each.location), each.files)

    for _ in in_parallel(move, _moves(folder, staging)):
        pass
    return report


def undo_append(connection: Connection, table: Table, folder: Folder, staging: str) -> None:
    """Delete the files that an interrupted append has moved."""
    encoder = ValueEncoder(table)
    for batch in batched(_moves(folder, staging), _BATCH):
        identities = {encoder.identity(each.values): each for each in batch if each.is_new}
        known = registered(connection, table, list(identities)) if identities else set()
        unregistered = {id(move) for identity, move in identities.items() if identity not in known}

        def undo(each: _Move, unregistered: set[int] = unregistered) -> None:
            target = folder.at(each.location)
            target.delete_files(each.files)
            if id(each) in unregistered and target.is_empty(""):
                target.delete("")

        for _ in in_parallel(undo, batch):
            pass


def _moves(folder: Folder, staging: str) -> Iterator[_Move]:
    if folder.exists(f"{staging}/{MOVES}"):
        for row in folder.rows(f"{staging}/{MOVES}"):
            yield _Move(tuple(row["values"]), row["location"], tuple(row["files"]), row["is_new"])


class _Registration:
    """Adds the staged partitions that are new, counts what is added to the others, and says where the files go."""

    def __init__(self, connection: Connection, definitions: Definitions, operation: Operation, folder: Folder) -> None:
        self._connection = connection
        self._operation = operation
        self._folder = folder
        self._adder = PartitionAdder(
            connection, definitions, operation.table, operation_number=operation.number, is_bulk=True
        )
        self._table = self._adder.table
        self._encoder = ValueEncoder(self._table)

    def __call__(self, staged: Sequence[StagedFiles]) -> list[_Move]:
        """Register a batch.

        Raises:
            InvalidPartitionError: An index does not admit a new partition.
            UnsupportedFormatError: A partition has a format of its own.
            ConflictError: A partition is quarantined, or was added by somebody else just now.
        """
        identities = [self._encoder.identity(each.values) for each in staged]
        there = self._held_rows(identities)
        moves, additions = [], []
        fresh: list[StagedFiles] = []
        for each, identity in zip(staged, identities, strict=True):
            row = there.get(identity)
            if row is None:
                fresh.append(each)
            else:
                moves.append(_Move(each.values, self._location(row), each.files, False))
                counts = {"files": each.file_count, "rows": each.row_count, "bytes": each.size_bytes}
                additions.append({"partition_id": row.id, **counts})
        if additions:
            self._count(additions)
        return moves + self._add(fresh)

    def _held_rows(self, identities: Sequence[bytes]) -> Mapping[bytes, Row[*tuple[Any, ...]]]:
        row = PartitionRow
        query = (
            select(row.id, row.identity, row.packed_values, row.location, row.properties, row.is_quarantined)
            .where(row.table_id == self._table.id, among(self._connection, row.identity, identities))
            # In the order in which drops take them.
            .order_by(row.id)
            .with_for_update()
        )
        return {bytes(found.identity): found for found in self._connection.execute(query)}

    def _location(self, row: Row[*tuple[Any, ...]]) -> str:
        """Return where a partition is, if files can be added there."""
        path = partition_path(self._table.key_names, given_values(row.packed_values))
        if row.is_quarantined:
            raise ConflictError(
                f"partition {path} of {self._table.full_name} is quarantined until its quality is checked; nothing was "
                "added. Release or drop it first"
            )
        own_format = read_properties(row.properties)[1]
        if own_format is not None:
            raise UnsupportedFormatError(
                f"partition {path} of {self._table.full_name} is stored as {own_format.upper()} and the table as "
                f"{self._table.format.upper()}, and one folder cannot hold both; nothing was added"
            )
        return str(row.location or self._table.default_partition_location(path))

    def _count(self, additions: Sequence[Mapping[str, int]]) -> None:
        row = PartitionRow
        # What was not known stays so: nothing added to a null is null.
        counted = update(row).where(row.id == bindparam("partition_id"))
        self._connection.execute(
            counted.values(
                file_count=row.file_count + bindparam("files"),
                row_count=row.row_count + bindparam("rows"),
                size_bytes=row.size_bytes + bindparam("bytes"),
            ),
            additions,
        )

    def _add(self, staged: Sequence[StagedFiles]) -> list[_Move]:
        identities = [self._encoder.identity(each.values) for each in staged]
        taken = renamed_from(self._connection, self._table, identities)
        are_taken = [identity in taken for identity in identities]
        locations = list(in_parallel(self._new_location, zip(staged, are_taken, strict=True)))
        new = [
            NewPartition(each.values, location, each.file_count, each.row_count, each.size_bytes)
            for each, location in zip(staged, locations, strict=True)
        ]
        try:
            self._adder.add(new, if_not_exists=False, on_invalid=OnInvalid.REFUSE)
        except PartitionAlreadyExistsError as error:
            raise ConflictError(f"somebody else has added a partition meanwhile; append again: {error}") from error
        return [
            _Move(each.values, location, each.files, True) for each, location in zip(staged, locations, strict=True)
        ]

    def _new_location(self, staged_and_taken: tuple[StagedFiles, bool]) -> str:
        """Return where a new partition goes: its default folder, or one beside it if files of others are there."""
        staged, is_taken = staged_and_taken
        path = partition_path(self._table.key_names, staged.values)
        if is_taken or self._folder.visible_names(path) - set(staged.files):
            path = f"{path}-{self._operation.folder}"
        return self._table.default_partition_location(path)
