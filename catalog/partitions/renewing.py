"""Rows of partitions that differ from their values and from the file rows, and their correction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Select, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute

from catalog.errors import ConflictError
from catalog.model import Table
from catalog.model.partition_names import given_values
from catalog.partitions.changing import drop_partitions
from catalog.storage.bulk import among, batched
from catalog.storage.schema import DataFileRow, PartitionRow
from catalog.storage.values import ValueEncoder

_PAGE = 10_000


def totals_of_files(table: Table) -> Any:
    """Return the subquery of the totals of file rows: `partition_id`, `files`, `rows`, `size`."""
    row = DataFileRow
    return (
        select(
            row.partition_id,
            func.count().label("files"),
            func.sum(row.row_count).label("rows"),
            func.sum(row.size_bytes).label("size"),
        )
        .where(row.table_id == table.id)
        .group_by(row.partition_id)
        .subquery()
    )


def stale_partitions(table: Table, column: InstrumentedAttribute[Any]) -> Select[Any]:
    """Return the query of a column of the visible partitions whose counts differ from the file rows.

    Partitions stay, with counts of 0, when all their files are removed.
    """
    total, row = totals_of_files(table), PartitionRow
    counts = (row.file_count, total.c.files), (row.row_count, total.c.rows), (row.size_bytes, total.c.size)
    differs = or_(*(func.coalesce(own, -1) != func.coalesce(of_files, 0) for own, of_files in counts))
    query = select(column).outerjoin(total, total.c.partition_id == row.id)
    return query.where(row.table_id == table.id, row.is_quarantined.is_(False), differs)


def miskeyed_partitions(connection: Connection, table: Table) -> Iterator[tuple[int, bytes, str]]:
    """Yield the partitions that are stored under the identity of other values: id, right identity, and values."""
    encoder, row, after = ValueEncoder(table), PartitionRow, 0
    query = select(row.id, row.packed_values, row.identity).where(row.table_id == table.id).order_by(row.id)
    while page := connection.execute(query.where(row.id > after).limit(_PAGE)).all():
        after = page[-1].id
        identities = encoder.encode_all([given_values(partition.packed_values) for partition in page]).identities
        for partition, identity in zip(page, identities, strict=True):
            if bytes(partition.identity) != identity:
                yield partition.id, identity, partition.packed_values


def renew_identities(connection: Connection, table: Table) -> int:
    """Store partitions under the identities of their values; return the number of those that were not."""
    row, count = PartitionRow, 0
    for number, identity, packed in miskeyed_partitions(connection, table):
        owner = select(row.id).where(row.table_id == table.id, row.identity == identity)
        if connection.scalar(owner) is None:
            connection.execute(update(row).where(row.id == number).values(identity=identity))
        elif table.is_stored_as_iceberg:
            drop_partitions(connection, table, [number])
        else:
            raise ConflictError(
                f"table {table.full_name} has the partition {table.partition_name(packed)} twice, and nothing was "
                f"changed; the one with id {number} is stored under another key: drop the other one first"
            )
        count += 1
    return count


def renew_counts(connection: Connection, table: Table) -> int:
    """Set the counts of partitions to those of their files; return the number of those that differed."""
    row, file = PartitionRow, DataFileRow
    stale = connection.scalars(stale_partitions(table, row.id)).all()
    of_files = [
        select(func.coalesce(total, 0)).where(file.table_id == table.id, file.partition_id == row.id).scalar_subquery()
        for total in (func.count(file.id), func.sum(file.row_count), func.sum(file.size_bytes))
    ]
    values = dict(zip(("file_count", "row_count", "size_bytes"), of_files, strict=True))
    return sum(
        connection.execute(update(row).where(among(connection, row.id, chunk)).values(values)).rowcount
        for chunk in batched(sorted(stale))
    )
