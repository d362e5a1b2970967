"""The partitions of tables stored as Iceberg, in step with their data files.

A partition is a row of the catalog, with an item in each index, as in Hive-style tables; it exists as long as the
current snapshot has files of it. The transaction that changes file rows changes the partitions, too, and publishes the
snapshot, so that an index look-up always answers for the current snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from catalog.datafiles.files import (
    DataFile,
    NewFile,
    Total,
    count_files,
    insert_files,
    read_files,
    retire_files,
)
from catalog.datafiles.history import next_revision
from catalog.datafiles.intake import take_in
from catalog.datafiles.publishing import FileSwap, are_deletes_changed, publish
from catalog.errors import ConflictError, PlanConflictError
from catalog.expressions import parse_expression
from catalog.expressions.evaluation import Filter
from catalog.model import NewPartition, OnInvalid, Partition, PartitionState, Table
from catalog.model.partition_names import pack_values, unpack_values
from catalog.operations.changes import record_changed
from catalog.operations.failpoints import Point, reached
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.changing import BATCH, drop_partitions
from catalog.partitions.scanning import Scanner
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import DataFileRow, PartitionRow
from catalog.storage.values import ValueEncoder, read_packed
from catalog.tables.definitions import Definitions

UNPARTITIONED = 0
"""The partition id in the file rows of a table without partition keys."""

_BATCH = 5_000


@dataclass(frozen=True)
class ReplacedFiles:
    """The data files that a change has read, in whose place it puts others: "these instead of those".

    The commit is refused if the current snapshot lacks one of them, or deletes other rows of one. A change that depends
    on rows that it did not see is also refused if files with such rows were added meanwhile, or deleted rows of any
    file were brought back. These are Iceberg's isolation levels.
    Source: https://iceberg.apache.org/docs/latest/spark-configuration/#write-options

    Attributes:
        ids: Their ids.
        revision: The state of the table's files when they were read (`catalog.datafiles.history`).
        metadata_location: The published metadata of this state.
        is_serializable: Whether the change depends on rows that it did not see.
        where: A filter on partition keys that is true for all rows on which it depends; None for all partitions.
        had_deletes: Whether this state has delete files.
    """

    ids: Sequence[int]
    revision: int
    metadata_location: str | None
    is_serializable: bool = True
    where: str | None = None
    had_deletes: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the files as JSON values, for a load that writes its files in one step and commits them in another."""
        return asdict(self)


@dataclass(frozen=True)
class PartitionFiles:
    """The partitions of a table stored as Iceberg that match an expression, and their data files.

    Attributes:
        table: The table as of the scan.
        revision: The state of the table's files (`catalog.datafiles.history`).
    """

    table: Table
    partitions: Sequence[Partition]
    files: Sequence[DataFile]
    revision: int

    def replaced(self, ids: Collection[int], where: str | None = None, *, is_serializable: bool) -> ReplacedFiles:
        """Return the files of some partitions, given by id, for a change that replaces them.

        Args:
            where, is_serializable: As in `ReplacedFiles`.
        """
        files = [file.id for file in self.files if file.partition_id in ids]
        location, had_deletes = self.table.published_location, self.table.delete_file_count > 0
        return ReplacedFiles(files, self.revision, location, is_serializable, where, had_deletes)


@dataclass(frozen=True)
class AddedFiles:
    """The effect of added files: numbers of new and of extended partitions, and the total of the files."""

    added: int = 0
    extended: int = 0
    total: Total = field(default_factory=Total)

    def __add__(self, other: AddedFiles) -> AddedFiles:
        """Return the sum of both."""
        return AddedFiles(self.added + other.added, self.extended + other.extended, self.total + other.total)


def scan_partition_files(
    connection: Connection, scanner: Scanner, table: Table, expression: str | None
) -> PartitionFiles:
    """Return the visible partitions of a table that match an expression, with their files, of one committed state.

    Raises:
        ExpressionError: The expression is invalid.
    """
    revision = next_revision(connection, table) - 1
    if not table.partition_keys:
        parse_expression(expression, table)
        return PartitionFiles(table, (), list(read_files(connection, table)), revision)
    table, partitions = scanner.scan_within(connection, table.full_name, expression, PartitionState.VISIBLE)
    # Quarantined partitions have no files yet.
    ids = [partition.id for partition in partitions] if (expression or "").strip() else None
    return PartitionFiles(table, partitions, list(read_files(connection, table, ids)), revision)


def add_partition_files(
    connection: Connection,
    adder: PartitionAdder | None,
    table: Table,
    files: Iterable[NewFile],
    operation_number: int | None,
) -> AddedFiles:
    """Add file rows, new partitions with their index items, and the counts of extended partitions.

    The caller has locked the table exclusively, and publishes the files.

    Args:
        adder: Of the table; None for a table without partition keys.
        operation_number: None for files of other engines.

    Raises:
        InvalidPartitionError: An index does not admit a partition.
        ConflictError: A partition is quarantined.
    """
    if adder is None:
        return AddedFiles(total=insert_files(connection, table, files, operation_number))
    return sum(
        (_add_batch(connection, adder, batch, operation_number) for batch in batched(files, _BATCH)), AddedFiles()
    )


def _add_batch(
    connection: Connection, adder: PartitionAdder, files: Sequence[NewFile], operation_number: int | None
) -> AddedFiles:
    table = adder.table
    encoder = ValueEncoder(table)
    identity_of = {values: encoder.identity(values) for values in {file.values for file in files}}
    totals: dict[bytes, Total] = {}
    for file in files:
        identity = identity_of[file.values]
        totals[identity] = totals.get(identity, Total()) + Total(1, file.row_count, file.size_bytes)
    existing = partition_ids(connection, table, totals)
    extended = {existing[identity]: total for identity, total in totals.items() if identity in existing}
    count_in(connection, extended)
    record_changed(connection, table, list(extended), operation_number)
    new = {identity: values for values, identity in identity_of.items() if identity not in existing}
    adder.add(
        (NewPartition(values, None, *_counts(totals[identity])) for identity, values in new.items()),
        if_not_exists=False,
        on_invalid=OnInvalid.REFUSE,
    )
    ids = {**existing, **partition_ids(connection, table, new)}
    placed = (replace(file, partition_id=ids[identity_of[file.values]]) for file in files)
    return AddedFiles(len(new), len(extended), insert_files(connection, table, placed, operation_number))


def _counts(total: Total) -> tuple[int, int, int]:
    return total.file_count, total.row_count, total.size_bytes


def partition_ids(connection: Connection, table: Table, identities: Iterable[bytes]) -> dict[bytes, int]:
    """Return the ids of existing partitions by identity.

    Raises:
        ConflictError: One of them is quarantined, so nothing can be added to it.
    """
    row, found = PartitionRow, {}
    for batch in batched(identities):
        query = select(row.identity, row.id, row.is_quarantined, row.packed_values)
        known = query.where(row.table_id == table.id, among(connection, row.identity, batch))
        for identity, number, is_quarantined, packed in connection.execute(known):
            if is_quarantined:
                raise ConflictError(
                    f"partition {table.partition_name(packed)} of {table.full_name} is quarantined until its quality "
                    "is checked; nothing was added. Release or drop it first"
                )
            found[bytes(identity)] = number
    return found


def count_in(connection: Connection, totals: Mapping[int, Total]) -> None:
    """Add totals, which may be negative, to the counts of partitions, given by id."""
    row = PartitionRow
    changes = [
        {"number": number, "files": total.file_count, "rows": total.row_count, "bytes": total.size_bytes}
        for number, total in sorted(totals.items())
    ]
    if changes:
        counted = update(row).where(row.id == bindparam("number"))
        connection.execute(
            counted.values(
                file_count=row.file_count + bindparam("files"),
                row_count=row.row_count + bindparam("rows"),
                size_bytes=row.size_bytes + bindparam("bytes"),
            ),
            changes,
        )


def require_unchanged(connection: Connection, table: Table, replaced: ReplacedFiles) -> None:
    """Check that no other commit concerns the files that a change has read, and the rows on which it depends.

    The caller has locked the table exclusively, and taken in what other engines have committed.

    Raises:
        PlanConflictError: One does.
    """
    row = DataFileRow
    paths: list[str] = []
    for batch in batched(replaced.ids):
        query = select(row.path).where(row.table_id == table.id, among(connection, row.id, batch))
        paths += connection.scalars(query)
    if len(paths) < len(replaced.ids):
        raise _overtaken(table, "removed data files that this change has read")
    if are_deletes_changed(
        table,
        replaced.metadata_location,
        paths,
        had_deletes=replaced.had_deletes,
        is_serializable=replaced.is_serializable,
    ):
        raise _overtaken(table, "deleted rows that this change has read, or brought deleted rows back")
    if replaced.is_serializable and _has_later_rows(connection, table, replaced):
        raise _overtaken(table, "added rows that this change may concern")


def _has_later_rows(connection: Connection, table: Table, replaced: ReplacedFiles) -> bool:
    """Return whether files with rows on which a change depends were added since it has read its files."""
    row = DataFileRow
    if next_revision(connection, table) == replaced.revision + 1:
        return False
    query = select(row.partition_id).where(row.table_id == table.id, row.revision > replaced.revision).distinct()
    ids = connection.scalars(query).all()
    if not ids or replaced.where is None:
        return bool(ids)
    found = Filter(
        parse_expression(replaced.where, table),
        {position: partial(read_packed, key_type) for position, key_type in enumerate(table.key_types)},
    )
    for batch in batched(ids):
        packed = select(PartitionRow.packed_values).where(among(connection, PartitionRow.id, batch))
        values = [[pack_values([text], 1) for text in unpack_values(one)] for one in connection.scalars(packed)]
        if any(found.mask(dict(enumerate(zip(*values, strict=True))))):
            return True
    return False


def _overtaken(table: Table, finding: str) -> PlanConflictError:
    return PlanConflictError(
        f"table {table.full_name}: another engine has {finding}; nothing was changed. Run the statement or load again"
    )


def replace_files(connection: Connection, table: Table, ids: Iterable[int]) -> tuple[list[str], int]:
    """Remove files, given by id, and the partitions that have no others; return the paths, and how many these are.

    The caller has locked the table exclusively, has added the files that take their place, and publishes the change.
    """
    row = DataFileRow
    removed: list[str] = []
    totals: dict[int, Total] = {}
    for batch in batched(sorted(ids), _BATCH):
        query = select(row.partition_id, row.row_count, row.size_bytes)
        chosen = query.where(row.table_id == table.id, among(connection, row.id, batch))
        for partition_id, rows, size in connection.execute(chosen):
            totals[partition_id] = totals.get(partition_id, Total()) + Total(-1, -rows, -size)
        removed += retire_files(connection, table, batch)
    if not table.partition_keys or not totals:
        return removed, 0
    left = count_files(connection, table, list(totals))
    count_in(connection, {number: total for number, total in totals.items() if number in left})
    return removed, drop_partitions(connection, table, [number for number in totals if number not in left])


def remove_partition_files(connection: Connection, table: Table, ids: Iterable[int]) -> list[str]:
    """Remove all files of partitions, which stay with counts of 0; return the files' paths.

    The caller has locked the table exclusively, and publishes the change. The files stay for running readers and
    earlier snapshots, until vacuum expires these.
    """
    removed: list[str] = []
    for batch in batched(sorted(ids), _BATCH):
        files, totals = [], dict[int, Total]()
        for file in read_files(connection, table, batch):
            files.append(file.id)
            count = totals.get(file.partition_id, Total())
            totals[file.partition_id] = count + Total(-1, -file.row_count, -file.size_bytes)
        count_in(connection, totals)
        removed += retire_files(connection, table, files)
    return removed


def remove_partitions(connection: Connection, table: Table, ids: Iterable[int]) -> list[str]:
    """Drop partitions with their index items and their files; return the files' paths.

    The caller has locked the table exclusively, and publishes the change.
    """
    removed: list[str] = []
    for batch in batched(sorted(ids), _BATCH):
        drop_partitions(connection, table, batch)
        files = list(map(attrgetter("id"), read_files(connection, table, batch)))
        removed += retire_files(connection, table, files)
    return removed


def _quarantined(connection: Connection, table: Table, ids: Sequence[int]) -> list[int]:
    row = PartitionRow
    query = select(row.id).where(row.table_id == table.id, row.is_quarantined)
    return [
        number for chunk in batched(ids) for number in connection.scalars(query.where(among(connection, row.id, chunk)))
    ]


def drop_partition_files(storage: Storage, definitions: Definitions, name: str, ids: Iterable[int]) -> int:
    """Drop partitions with their index items and their files, in one snapshot for each batch.

    The files stay for running readers and earlier snapshots, until vacuum expires these.

    Returns:
        The number of partitions that still existed.

    Raises:
        TableNotFoundError: The table was dropped.
    """
    dropped = 0
    for batch in batched(sorted(ids), BATCH):
        with storage.write() as connection:
            table = definitions.lock_table(connection, name, exclusive=True)
            # Files that engines have added to a quarantined partition can be followed as soon as it is gone.
            dropped += drop_partitions(connection, table, _quarantined(connection, table, batch))
            table = take_in(connection, definitions, table)
            dropped += drop_partitions(connection, table, batch)
            if removed := remove_partitions(connection, table, batch):
                publish(connection, table, FileSwap(removed=removed))
            reached(Point.CHANGED)
        reached(Point.PARTLY_COMMITTED)
    return dropped
