"""Partition indexes as the catalog knows them: which there are, which can be made, where each stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from catalog.clock import now_ms
from catalog.errors import (
    IndexAlreadyExistsError,
    IndexNotFoundError,
    InvalidIndexError,
    LimitExceededError,
)
from catalog.identifiers import normalise_identifier
from catalog.model import (
    MAINTAINED_INDEX_STATES,
    IndexDefinition,
    IndexState,
    OffendingPartition,
    PartitionIndex,
    Table,
)
from catalog.storage.schema import PartitionIndexRow, PartitionRow

MAXIMUM_INDEXES = 3
"""Indexes on one table; FAILED ones do not count. Source: AWS Glue, partition indexes."""


def list_indexes(connection: Connection, table_id: int) -> list[PartitionIndex]:
    """Return a table's indexes, oldest first, FAILED ones included."""
    query = select(PartitionIndexRow.__table__).where(PartitionIndexRow.table_id == table_id)
    return [_index(row) for row in connection.execute(query.order_by(PartitionIndexRow.id))]


def maintained_indexes(connection: Connection, table_id: int) -> list[PartitionIndex]:
    """Return the indexes in which each partition needs an item."""
    return [index for index in list_indexes(connection, table_id) if index.state in MAINTAINED_INDEX_STATES]


def find_index(connection: Connection, table: Table, name: str) -> PartitionIndex:
    """Return an index by its name; of several FAILED ones the latest, and one that is not FAILED before these.

    Raises:
        IndexNotFoundError: The table has no index of this name.
    """
    wanted = normalise_identifier(name, "partition index")
    found = [index for index in list_indexes(connection, table.id) if index.name == wanted]
    if not found:
        raise IndexNotFoundError(
            f"table {table.full_name} has no partition index {wanted}; `calve indexes {table.full_name}` lists them"
        )
    return max(found, key=lambda index: (index.state is not IndexState.FAILED, index.id))


def is_active(connection: Connection, index_id: int) -> bool:
    """Say whether an index may be read in this transaction."""
    state = connection.scalar(select(PartitionIndexRow.state).where(PartitionIndexRow.id == index_id))
    return state == IndexState.ACTIVE


def create_index(connection: Connection, table: Table, definition: IndexDefinition) -> PartitionIndex:
    """Insert an index in the caller's transaction, which holds the table exclusively.

    From its commit on, each added partition writes its own item. An index of a table without partitions is ACTIVE at
    once; any other is CREATING until its build ends.

    Raises:
        InvalidIndexError: It names no key, a key twice, or a column that is no partition key.
        LimitExceededError: The table has as many indexes as it may have.
        IndexAlreadyExistsError: An index has the same name, or the same keys in the same order.
    """
    name = normalise_identifier(definition.name, "partition index")
    keys = tuple(normalise_identifier(key, "column") for key in definition.keys)
    _check_keys(table, name, keys)
    current = [index for index in list_indexes(connection, table.id) if index.state is not IndexState.FAILED]
    if len(current) >= MAXIMUM_INDEXES:
        names = ", ".join(index.name for index in current)
        raise LimitExceededError(
            f"table {table.full_name} has {len(current)} partition indexes ({names}), and {MAXIMUM_INDEXES} is the "
            "most; delete one first"
        )
    for index in current:
        if index.name == name or index.keys == keys:
            what = f"the name {name}" if index.name == name else f"the keys ({', '.join(keys)})"
            raise IndexAlreadyExistsError(
                f"table {table.full_name} already has a partition index with {what}: {index.name}, {index.state}"
            )
    high_water_mark = connection.scalar(select(func.max(PartitionRow.id)).where(PartitionRow.table_id == table.id))
    row = connection.execute(
        insert(PartitionIndexRow)
        .values(
            table_id=table.id,
            name=name,
            keys=list(keys),
            state=IndexState.ACTIVE if high_water_mark is None else IndexState.CREATING,
            high_water_mark=high_water_mark or 0,
            offending=[],
            created_at_ms=now_ms(),
        )
        .returning(PartitionIndexRow.__table__)
    ).one()
    return _index(row)


def _check_keys(table: Table, name: str, keys: Sequence[str]) -> None:
    available = ", ".join(table.key_names) or "none"
    if not keys:
        raise InvalidIndexError(f"partition index {name} names no key; name at least one of {available}")
    if len(set(keys)) < len(keys):
        raise InvalidIndexError(f"partition index {name} names a key twice: {', '.join(keys)}")
    if unknown := [key for key in keys if key not in table.key_names]:
        raise InvalidIndexError(
            f"partition index {name}: {', '.join(unknown)} is not a partition key of {table.full_name} "
            f"(its keys: {available})"
        )


def change_state(
    connection: Connection,
    index_id: int,
    expected: Sequence[IndexState],
    state: IndexState,
    *,
    failure_code: str | None = None,
    failure_detail: str | None = None,
    offending: Sequence[OffendingPartition] = (),
) -> bool:
    """Move an index to another state if it is in one of the expected ones; return whether it was."""
    changed = connection.execute(
        update(PartitionIndexRow)
        .where(PartitionIndexRow.id == index_id, PartitionIndexRow.state.in_(expected))
        .values(
            state=state,
            failure_code=failure_code,
            failure_detail=failure_detail,
            offending=[
                {"values": list(each.values), "location": each.location, "problem": each.problem} for each in offending
            ],
        )
    )
    return changed.rowcount == 1


def hold_builds(connection: Connection, table_id: int) -> None:
    """Wait until no batch of a build of this table's indexes is under way, and let none begin before the commit.

    A batch that read a partition before it was dropped would write its item afterwards.
    """
    connection.execute(
        select(PartitionIndexRow.id)
        .where(PartitionIndexRow.table_id == table_id, PartitionIndexRow.state == IndexState.CREATING)
        .order_by(PartitionIndexRow.id)
        .with_for_update()
    ).all()


def join_build(connection: Connection, index_id: int) -> bool:
    """Begin a batch of a build: hold drops back until the commit; return whether the index is still CREATING."""
    state = connection.scalar(
        select(PartitionIndexRow.state).where(PartitionIndexRow.id == index_id).with_for_update(read=True)
    )
    return state == IndexState.CREATING


def high_water_mark(connection: Connection, index_id: int) -> int:
    """Return the greatest id of the partitions that existed when the index was created."""
    query = select(PartitionIndexRow.high_water_mark).where(PartitionIndexRow.id == index_id)
    return connection.scalar(query) or 0


def remove_index(connection: Connection, index_id: int) -> None:
    """Remove an index whose items are gone."""
    connection.execute(delete(PartitionIndexRow).where(PartitionIndexRow.id == index_id))


def _index(row: Row[Any]) -> PartitionIndex:
    return PartitionIndex(
        name=row.name,
        keys=tuple(row.keys),
        state=IndexState(row.state),
        failure_code=row.failure_code,
        failure_detail=row.failure_detail,
        offending=tuple(
            OffendingPartition(tuple(each["values"]), each["location"], each["problem"]) for each in row.offending
        ),
        id=row.id,
    )
