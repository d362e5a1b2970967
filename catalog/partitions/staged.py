"""Destinations of a load's partitions, reserved before the first file is moved.

Until the load commits or is withdrawn, no other transaction can add a partition with the values of one that the load
adds: that partition would show the load's files before their commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, exists, select

from catalog.errors import OperationConflictError
from catalog.model import Table
from catalog.model.partition_names import partition_path, unpack_values
from catalog.operations.attempts import AttemptName
from catalog.operations.records import UNFINISHED
from catalog.storage.bulk import among, insert_rows
from catalog.storage.schema import OperationRow, StagedPartitionRow

_BATCH = 10_000
_COLUMNS = (
    "operation_number",
    "attempt",
    "identity",
    "table_id",
    "packed_values",
    "location",
    "is_new",
    "refused",
    "partition_id",
)


class Destination(NamedTuple):
    """The destination of one staged partition's files.

    Attributes:
        is_new: The load adds the partition.
        refused: The reason for skipping the partition; None if it is not skipped.
        partition_id: The existing partition that gets the files; None if there is none, or the table has no keys.
    """

    identity: bytes
    packed_values: str
    location: str
    is_new: bool
    refused: str | None = None
    partition_id: int | None = None


def reserve(connection: Connection, table: Table, staged: AttemptName, destinations: Iterable[Destination]) -> None:
    """Store destinations; the caller has locked the table against transactions that add partitions."""
    rows = (
        (staged.number, staged.attempt, destination.identity, table.id, *destination[1:])
        for destination in destinations
    )
    insert_rows(connection, StagedPartitionRow, _COLUMNS, rows)


def read_destinations(
    connection: Connection, staged: AttemptName, identities: Sequence[bytes]
) -> dict[bytes, Destination]:
    """Return the existing destinations of some partitions, by identity."""
    row = StagedPartitionRow
    query = select(*(getattr(row, name) for name in Destination._fields))
    rows = connection.execute(query.where(is_of(staged), among(connection, row.identity, identities)))
    destinations = map(Destination._make, rows)
    return {destination.identity: destination for destination in destinations}


def has_destinations(connection: Connection, staged: AttemptName) -> bool:
    """Return whether a staging folder has stored destinations."""
    return bool(connection.scalar(select(exists().where(is_of(staged)))))


def is_of(staged: AttemptName) -> ColumnElement[bool]:
    """Return the SQL condition that a destination belongs to a staging folder."""
    return (StagedPartitionRow.operation_number == staged.number) & (StagedPartitionRow.attempt == staged.attempt)


def reserving_attempts(connection: Connection, table: Table) -> list[tuple[int, int]]:
    """Return the (operation number, attempt) pairs that have stored destinations in a table."""
    row = StagedPartitionRow
    query = select(row.operation_number, row.attempt).where(row.table_id == table.id).distinct()
    return [(number, attempt) for number, attempt in connection.execute(query)]


def free_batch(connection: Connection, staged: AttemptName) -> bool:
    """Delete a batch of a staging folder's destinations; return whether there may be more."""
    row = StagedPartitionRow
    first = select(row.identity).where(is_of(staged)).order_by(row.identity).limit(_BATCH)
    identities = connection.scalars(first).all()
    connection.execute(delete(row).where(is_of(staged), among(connection, row.identity, identities)))
    return len(identities) == _BATCH


def refuse_reserved(
    connection: Connection, table: Table, identities: Sequence[bytes], operation_number: int | None = None
) -> None:
    """Check that no load has reserved partitions; the caller has locked the table and added them.

    Args:
        operation_number: The load that is adding them, whose reservations are ignored.

    Raises:
        OperationConflictError: A load is about to add one of the partitions.
    """
    row = StagedPartitionRow
    query = (
        select(row.packed_values, OperationRow.id, OperationRow.state)
        .join(OperationRow, OperationRow.number == row.operation_number)
        .where(row.table_id == table.id, row.is_new, among(connection, row.identity, identities))
        .where(row.operation_number != (operation_number or 0))
        .limit(1)
    )
    load = connection.execute(query).one_or_none()
    if load is not None:
        path = partition_path(table.key_names, unpack_values(load.packed_values))
        raise OperationConflictError(
            f"table {table.full_name}: operation {load.id} ({load.state}) is about to add partition {path}; wait "
            "until it has ended. If it failed or is abandoned, the next load or repair of the table, or vacuum, "
            "releases the partition",
            load.id if load.state in UNFINISHED else None,
        )
