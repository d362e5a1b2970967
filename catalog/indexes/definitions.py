"""Definitions and states of partition indexes in the catalog.

The states are CREATING → ACTIVE → DELETING → removed, or CREATING → FAILED; a FAILED index may also be deleted. A
transaction that changes a state locks the table exclusively (`Storage.lock_table`), because caches of a table's indexes
are valid as long as the table's version does not change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from catalog.errors import (
    IndexAlreadyExistsError,
    IndexBuildEndedError,
    IndexNotFoundError,
    InvalidIndexError,
    LimitExceededError,
)
from catalog.model import (
    MAINTAINED_INDEX_STATES,
    MAXIMUM_INDEXES,
    IndexDefinition,
    IndexState,
    OffendingPartition,
    PartitionIndex,
    Table,
)
from catalog.model.identifiers import TableName, normalise_identifier
from catalog.storage.bulk import among
from catalog.storage.clock import CurrentMs
from catalog.storage.partition_rows import newest_partition
from catalog.storage.schema import (
    BackfillRangeRow,
    DatabaseRow,
    IndexItemRow,
    PartitionIndexRow,
    PartitionRow,
    TableRow,
)


@dataclass(frozen=True)
class IdRange:
    """Partition ids from `first` to `last`, both inclusive."""

    first: int
    last: int


@dataclass(frozen=True)
class IndexFailure:
    """The reason why an index is FAILED: a code, a text, and the offending partitions."""

    code: str
    detail: str
    offending: tuple[OffendingPartition, ...] = ()


@dataclass(frozen=True)
class IndexProgress:
    """How far an index is built.

    Attributes:
        items: The number of its items.
        remaining: The number of existing partitions that its build has still to read.
    """

    items: int = 0
    remaining: int = 0


def list_indexes(connection: Connection, table_id: int) -> list[PartitionIndex]:
    """Return a table's indexes, oldest first, including FAILED ones."""
    query = select(PartitionIndexRow.__table__).where(PartitionIndexRow.table_id == table_id)
    return [_index(row) for row in connection.execute(query.order_by(PartitionIndexRow.id))]


def maintained_indexes(connection: Connection, table_id: int) -> list[PartitionIndex]:
    """Return the indexes in which each partition must have an item."""
    return [index for index in list_indexes(connection, table_id) if index.state in MAINTAINED_INDEX_STATES]


def find_index(connection: Connection, table: Table, name: str) -> PartitionIndex:
    """Return an index by name: the one that is not FAILED, otherwise the latest FAILED one.

    Raises:
        IndexNotFoundError: The table has no index of this name.
    """
    normal = normalise_identifier(name, "partition index")
    matches = [index for index in list_indexes(connection, table.id) if index.name == normal]
    if not matches:
        raise IndexNotFoundError(
            f"table {table.full_name} has no partition index {normal}; `calve indexes {table.full_name}` lists them"
        )
    return max(matches, key=lambda index: (index.state is not IndexState.FAILED, index.id))


def index_states(connection: Connection, tables: Collection[TableName]) -> dict[TableName, dict[str, IndexState]]:
    """Return the states of the indexes of those tables that exist, by table and name, with one statement.

    Of several indexes of one name, it is the state of the one that `find_index` returns.
    """
    index = PartitionIndexRow
    states: dict[TableName, dict[str, IndexState]] = {}
    query = (
        select(DatabaseRow.name, TableRow.name, index.name, index.state)
        .join(TableRow, TableRow.database_id == DatabaseRow.id)
        .outerjoin(index, index.table_id == TableRow.id)
        .where(
            among(connection, DatabaseRow.name, list({table.database for table in tables})),
            among(connection, TableRow.name, list({table.name for table in tables})),
        )
        .order_by(index.state != IndexState.FAILED, index.id)
    )
    for database, name, index_name, state in connection.execute(query):
        if (table := TableName(database, name)) in tables:
            of_table = states.setdefault(table, {})
            if index_name is not None:
                of_table[index_name] = IndexState(state)
    return states


def index_progress(connection: Connection, table: Table) -> dict[int, IndexProgress]:
    """Return how far a table's indexes are built, by their ids; counts all their items."""
    ids = select(PartitionIndexRow.id).where(PartitionIndexRow.table_id == table.id)
    item, part, partition = IndexItemRow, BackfillRangeRow, PartitionRow
    of_items = select(item.index_id, func.count()).where(item.index_id.in_(ids)).group_by(item.index_id)
    is_inside = (partition.table_id == table.id) & partition.id.between(part.first_id, part.last_id)
    of_ranges = select(part.index_id, func.count()).join_from(part, partition, is_inside)
    items = {number: int(count) for number, count in connection.execute(of_items)}
    ranges = connection.execute(of_ranges.where(part.index_id.in_(ids)).group_by(part.index_id))
    remaining = {number: int(count) for number, count in ranges}
    return {number: IndexProgress(items.get(number, 0), remaining.get(number, 0)) for number in connection.scalars(ids)}


def is_active(connection: Connection, table: Table, index_id: int) -> bool:
    """Return whether an index belongs to the table and may be read in this transaction."""
    row = PartitionIndexRow
    return connection.scalar(select(row.state).where(row.id == index_id, row.table_id == table.id)) == IndexState.ACTIVE


def create_index(
    connection: Connection, table: Table, definition: IndexDefinition, cuts: Sequence[int] = ()
) -> PartitionIndex:
    """Insert an index in the caller's transaction, which has locked the table exclusively.

    After its commit, each added partition writes its own item. An index of a table without partitions is ACTIVE at
    once; any other is CREATING until its build ends.

    Args:
        cuts: Partition ids, ascending, that separate the ranges of the backfill.

    Raises:
        InvalidIndexError: It has no key, a duplicate key, or a column that is not a partition key.
        LimitExceededError: The table has the maximum number of indexes.
        IndexAlreadyExistsError: An index has the same name, or the same keys in the same order.
    """
    name = normalise_identifier(definition.name, "partition index")
    keys = tuple(normalise_identifier(key, "column") for key in definition.keys)
    _check_keys(table, name, keys)
    current = [index for index in list_indexes(connection, table.id) if index.state is not IndexState.FAILED]
    if len(current) >= MAXIMUM_INDEXES:
        names = ", ".join(index.name for index in current)
        raise LimitExceededError(
            f"table {table.full_name} has {len(current)} partition indexes ({names}); at most {MAXIMUM_INDEXES} are "
            "allowed. Delete one first"
        )
    for index in current:
        if index.name == name or index.keys == keys:
            what = f"the name {name}" if index.name == name else f"the keys ({', '.join(keys)})"
            raise IndexAlreadyExistsError(
                f"table {table.full_name} already has a partition index with {what}: {index.name}, {index.state}"
            )
    last_id = connection.scalar(newest_partition(table.id))
    row = connection.execute(
        insert(PartitionIndexRow)
        .values(
            table_id=table.id,
            name=name,
            keys=list(keys),
            state=IndexState.ACTIVE if last_id is None else IndexState.CREATING,
            offending=[],
            created_at_ms=CurrentMs(),
        )
        .returning(PartitionIndexRow.__table__)
    ).one()
    if last_id is not None:
        bounds = [0, *(cut for cut in cuts if cut <= last_id), last_id + 1]
        ranges = [{"index_id": row.id, "first_id": a, "last_id": b - 1} for a, b in pairwise(bounds)]
        connection.execute(insert(BackfillRangeRow), ranges)
    return _index(row)


def _check_keys(table: Table, name: str, keys: Sequence[str]) -> None:
    available = ", ".join(table.key_names) or "none"
    if not keys:
        raise InvalidIndexError(f"partition index {name} has no key; use at least one of {available}")
    if len(set(keys)) < len(keys):
        raise InvalidIndexError(f"partition index {name} has a duplicate key: {', '.join(keys)}")
    if unknown := [key for key in keys if key not in table.key_names]:
        raise InvalidIndexError(
            f"partition index {name}: {', '.join(unknown)} is not a partition key of {table.full_name} "
            f"(its keys: {available})"
        )


def change_state(connection: Connection, index_id: int, expected: Sequence[IndexState], state: IndexState) -> bool:
    """Move an index to another state if it is in one of the expected states; return whether it was."""
    changed = connection.execute(
        update(PartitionIndexRow)
        .where(PartitionIndexRow.id == index_id, PartitionIndexRow.state.in_(expected))
        .values(state=state)
    )
    return changed.rowcount == 1


def fail_index(connection: Connection, index_id: int, failure: IndexFailure) -> bool:
    """Make a CREATING index FAILED; return whether it was CREATING."""
    if not change_state(connection, index_id, [IndexState.CREATING], IndexState.FAILED):
        return False
    offending = [
        {"values": list(misfit.values), "location": misfit.location, "problem": misfit.problem}
        for misfit in failure.offending
    ]
    connection.execute(
        update(PartitionIndexRow)
        .where(PartitionIndexRow.id == index_id)
        .values(failure_code=failure.code, failure_detail=failure.detail, offending=offending, failed_at_ms=CurrentMs())
    )
    return True


def remove_index(connection: Connection, index_id: int) -> None:
    """Remove an index that has no items left."""
    connection.execute(delete(PartitionIndexRow).where(PartitionIndexRow.id == index_id))


# --- ranges of a backfill -------------------------------------------------------------------------------------------


def remaining_ranges(connection: Connection, index_id: int) -> list[IdRange]:
    """Return the remaining ranges of an index build, ascending."""
    query = select(BackfillRangeRow.first_id, BackfillRangeRow.last_id).where(BackfillRangeRow.index_id == index_id)
    return [IdRange(*row) for row in connection.execute(query.order_by(BackfillRangeRow.first_id))]


def claim_range(connection: Connection, index_id: int, ids: IdRange) -> bool:
    """Lock a range until the commit, against drops of its partitions and other builds; return False when it is done."""
    claim = select(BackfillRangeRow.first_id).where(*_is(index_id, ids)).with_for_update()
    return connection.scalar(claim) is not None


def check_build_goes_on(connection: Connection, table: Table, index: PartitionIndex) -> PartitionIndex:
    """Return the current state of an index that is being built, or was just completed by another build.

    Raises:
        IndexBuildEndedError: It was deleted, cancelled, or has FAILED.
    """
    current = next((known for known in list_indexes(connection, table.id) if known.id == index.id), None)
    if current is None or current.state is IndexState.DELETING:
        fate = "was deleted"
    elif current.state is IndexState.FAILED:
        fate = f"has FAILED ({current.failure_code}: {current.failure_detail})"
    else:
        return current
    raise IndexBuildEndedError(f"partition index {index.name} of {table.full_name} {fate} during its build")


def finish_range(connection: Connection, index_id: int, ids: IdRange) -> None:
    """Record that the partitions of a claimed range have their items."""
    connection.execute(delete(BackfillRangeRow).where(*_is(index_id, ids)))


def hold_ranges(connection: Connection, table_id: int, ids: IdRange) -> None:
    """Wait until no build processes these partitions, and prevent that one starts before the commit.

    Otherwise a build that read a partition before it was dropped would write its item afterwards. To avoid deadlocks,
    callers lock several ranges in ascending order.
    """
    connection.execute(
        select(BackfillRangeRow.first_id)
        .join(PartitionIndexRow, PartitionIndexRow.id == BackfillRangeRow.index_id)
        .where(
            PartitionIndexRow.table_id == table_id,
            BackfillRangeRow.first_id <= ids.last,
            BackfillRangeRow.last_id >= ids.first,
        )
        .order_by(BackfillRangeRow.first_id, BackfillRangeRow.index_id)
        # Not a shared lock: a sequence of shared locks could block a build forever.
        .with_for_update(of=BackfillRangeRow)
    ).all()


def remove_ranges(connection: Connection, index_id: int) -> None:
    """Remove the remaining ranges of a build; wait until no range is being processed, and prevent new ones."""
    connection.execute(delete(BackfillRangeRow).where(BackfillRangeRow.index_id == index_id))


def _is(index_id: int, ids: IdRange) -> tuple[ColumnElement[bool], ...]:
    return BackfillRangeRow.index_id == index_id, BackfillRangeRow.first_id == ids.first


def _index(row: Row[Any]) -> PartitionIndex:
    return PartitionIndex(
        name=row.name,
        keys=tuple(row.keys),
        state=IndexState(row.state),
        failure_code=row.failure_code,
        failure_detail=row.failure_detail,
        offending=tuple(
            OffendingPartition(tuple(misfit["values"]), misfit["location"], misfit["problem"])
            for misfit in row.offending
        ),
        id=row.id,
        failed_at_ms=row.failed_at_ms,
    )
