"""How many partitions and files a table has."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import func, select

from catalog.model import Table
from catalog.storage import Storage
from catalog.storage.schema import DataFileRow, PartitionRow


@dataclass(frozen=True)
class PartitionCounts:
    """The size of a table.

    Attributes:
        partitions: How many partitions readers see.
        files, rows, size_bytes: What they hold; None when it is not known of all of them.
    """

    partitions: int
    files: int | None
    rows: int | None = None
    size_bytes: int | None = None


def count_visible(storage: Storage, table: Table) -> PartitionCounts:
    """Return how many partitions of a table readers see; reads all of the table's rows in the catalog."""
    counted = (PartitionRow.file_count, PartitionRow.row_count, PartitionRow.size_bytes)
    sums = [each for column in counted for each in (func.count(column), func.sum(column))]
    query = select(func.count(), *sums).where(PartitionRow.table_id == table.id, PartitionRow.is_quarantined.is_(False))
    with storage.read() as connection:
        partitions, *found = connection.execute(query).one()
    known, totals = found[::2], found[1::2]
    return PartitionCounts(
        partitions,
        *(int(total or 0) if count == partitions else None for count, total in zip(known, totals, strict=True)),
    )


def digest_contents(storage: Storage, table: Table) -> str:
    """Return a digest of the ids of a table's partitions and data files; reads all of them. No id is used again."""
    digest = sha256()
    with storage.read() as connection:
        for row in (PartitionRow, DataFileRow):
            query = select(row.id).where(row.table_id == table.id).order_by(row.id)
            for ids in connection.execution_options(yield_per=10_000).scalars(query).partitions():
                digest.update("".join(f"{row_id}," for row_id in ids).encode())
            digest.update(b";")
    return digest.hexdigest()
