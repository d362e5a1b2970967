"""Counts and digests of a table's partitions and files."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import func, literal, select

from catalog.model import Table
from catalog.storage import Storage
from catalog.storage.schema import DataFileRow, PartitionRow
from catalog.tables.own_files import find_own_files


@dataclass(frozen=True)
class PartitionCounts:
    """The size of a table.

    Attributes:
        partitions: The number of partitions visible to readers.
        files, rows, size_bytes: Their totals; None if the count of any partition is unknown.
    """

    partitions: int
    files: int | None
    rows: int | None = None
    size_bytes: int | None = None


def count_visible(storage: Storage, table: Table) -> PartitionCounts:
    """Return the counts of a table's visible partitions; reads all of the table's rows in the catalog."""
    counted = (PartitionRow.file_count, PartitionRow.row_count, PartitionRow.size_bytes)
    sums = [aggregate for column in counted for aggregate in (func.count(column), func.sum(column))]
    query = select(func.count(), *sums).where(PartitionRow.table_id == table.id, PartitionRow.is_quarantined.is_(False))
    with storage.read() as connection:
        partitions, *aggregates = connection.execute(query).one()
    known, totals = aggregates[::2], aggregates[1::2]
    return PartitionCounts(
        partitions,
        *(int(total or 0) if count == partitions else None for count, total in zip(known, totals, strict=True)),
    )


def digest_contents(storage: Storage, table: Table) -> str:
    """Return a digest of a table's partitions, with their row counts and sizes, and of its data files.

    Reads all their rows in the catalog; ids identify them, because no id is used again. If counts are unknown, lists
    the files in the table's folder.
    """
    digest = sha256(table.location.encode())
    is_counted = bool(table.partition_keys) or table.has_file_rows
    partition, file = PartitionRow, DataFileRow
    of_partitions = select(partition.id, partition.location, partition.row_count, partition.size_bytes)
    of_files = select(file.id, literal(""), literal(0), literal(0))
    with storage.read() as connection:
        for of_table in (
            of_partitions.where(partition.table_id == table.id).order_by(partition.id),
            of_files.where(file.table_id == table.id).order_by(file.id),
        ):
            for rows in connection.execution_options(yield_per=10_000).execute(of_table).partitions():
                digest.update(repr([tuple(row) for row in rows]).encode())
                is_counted = is_counted and all(None not in (row[2], row[3]) for row in rows)
            digest.update(b";")
    if not is_counted:
        digest.update(find_own_files(table.location, storage.identity).digest.encode())
    return digest.hexdigest()
