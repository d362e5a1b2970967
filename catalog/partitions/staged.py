"""Where a load puts the files of each partition, decided and reserved before the first file moves.

Until the load commits, or is withdrawn, nobody else adds a partition with the values of one that a load adds: it would
show the files of the load before their commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, exists, select

from catalog.errors import OperationConflictError
from catalog.model import Table
from catalog.model.partition_names import partition_path, unpack_values
from catalog.operations.attempts import AttemptName
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
    """Where the files of one staged partition go.

    Attributes:
        is_new: The partition comes with the load.
        refused: Why it is left out; None if it is not.
        partition_id: The partition that exists and gets the files; None for others, and for a table without keys.
    """

    identity: bytes
    packed_values: str
    location: str
    is_new: bool
    refused: str | None = None
    partition_id: int | None = None


def reserve(connection: Connection, table: Table, staged: AttemptName, destinations: Iterable[Destination]) -> None:
    """Write destinations; the caller holds the table against others who add partitions."""
    rows = (
        (staged.number, staged.attempt, destination.identity, table.id, *destination[1:])
        for destination in destinations
    )
    insert_rows(connection, StagedPartitionRow, _COLUMNS, rows)


def read_destinations(
    connection: Connection, staged: AttemptName, identities: Sequence[bytes]
) -> dict[bytes, Destination]:
    """Return the destinations of some partitions, by identity; those without one are left out."""
    row = StagedPartitionRow
    query = select(*(getattr(row, name) for name in Destination._fields))
    rows = connection.execute(query.where(is_of(staged), among(connection, row.identity, identities)))
    destinations = map(Destination._make, rows)
    return {destination.identity: destination for destination in destinations}


def has_destinations(connection: Connection, staged: AttemptName) -> bool:
    """Return whether any is written."""
    return bool(connection.scalar(select(exists().where(is_of(staged)))))


def is_of(staged: AttemptName) -> ColumnElement[bool]:
    """Return the condition that a destination belongs to a staging folder."""
    return (StagedPartitionRow.operation_number == staged.number) & (StagedPartitionRow.attempt == staged.attempt)


def reserving_attempts(connection: Connection, table: Table) -> list[tuple[int, int]]:
    """Return the operations, and their attempts, whose staged partitions have destinations."""
    row = StagedPartitionRow
    query = select(row.operation_number, row.attempt).where(row.table_id == table.id).distinct()
    return [(number, attempt) for number, attempt in connection.execute(query)]


def free_batch(connection: Connection, staged: AttemptName) -> bool:
    """Delete some destinations of a staging folder; return whether there may be more."""
    row = StagedPartitionRow
    first = select(row.identity).where(is_of(staged)).order_by(row.identity).limit(_BATCH)
    identities = connection.scalars(first).all()
    connection.execute(delete(row).where(is_of(staged), among(connection, row.identity, identities)))
    return len(identities) == _BATCH


def refuse_reserved(
    connection: Connection, table: Table, identities: Sequence[bytes], operation_number: int | None = None
) -> None:
    """Make sure that no load is about to add some partitions; the caller holds the table and has added them.

    Args:
        operation_number: The load that adds them itself.

    Raises:
        OperationConflictError: One is.
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
            "until it has ended. If it was given up, the next load or repair of the table, or vacuum, frees the "
            "partition"
        )
