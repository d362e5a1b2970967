"""How many partitions and files a table has."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from catalog.model import Table
from catalog.storage import Storage
from catalog.storage.schema import PartitionRow


@dataclass(frozen=True)
class PartitionCounts:
    """The size of a table.

    Attributes:
        partitions: How many partitions readers see.
        files: How many files they have; None when it is not known of all of them.
    """

    partitions: int
    files: int | None


def count_visible(storage: Storage, table: Table) -> PartitionCounts:
    """Return how many partitions of a table readers see; reads all of the table's rows in the catalog."""
    query = select(func.count(), func.count(PartitionRow.file_count), func.sum(PartitionRow.file_count)).where(
        PartitionRow.table_id == table.id, PartitionRow.is_quarantined.is_(False)
    )
    with storage.read() as connection:
        partitions, known, files = connection.execute(query).one()
    return PartitionCounts(partitions, int(files or 0) if known == partitions else None)
