"""Building a partition index on a table that stays readable and writable.

1. The index is committed as CREATING; from then on each added partition writes its own item (`adding`).
2. The backfill walks the partitions that existed then, in ranges of partition ids; each range is one transaction, and
   ranges may run in any order, in any process, and again.
3. The index turns ACTIVE after its items were counted against the partitions, while neither can change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from catalog.errors import ConflictError, PartitionProblem, RefusedPartition
from catalog.indexes.definitions import change_state, find_index, high_water_mark, join_build
from catalog.indexes.items import Item, count_items, delete_all_items, insert_missing_items
from catalog.indexes.keys import cut_key
from catalog.model import IndexState, OffendingPartition, PartitionIndex, Table
from catalog.partition_names import given_values
from catalog.partitions.scanning import PartitionFactory, partition_query
from catalog.storage import Storage
from catalog.storage.schema import PartitionRow
from catalog.values import ValueEncoder

RANGE_SIZE = 20_000
"""Partitions in one range of a backfill."""

MAXIMUM_OFFENDING = 100
"""Partitions named by a FAILED index."""

INTERNAL_ERROR = "INTERNAL_ERROR"


@dataclass(frozen=True)
class IdRange:
    """Partition ids from `first` to `last`, both inclusive."""

    first: int
    last: int


@dataclass(frozen=True)
class RangeReport:
    """What the backfill of one range found.

    Attributes:
        item_count: Items that the partitions of the range have now.
        offending: Partitions that do not fit the index, at most `MAXIMUM_OFFENDING`.
        code: The code of the first of them.
    """

    item_count: int
    offending: tuple[OffendingPartition, ...] = ()
    code: PartitionProblem | None = None


def plan_ranges(storage: Storage, table: Table, index: PartitionIndex, size: int = RANGE_SIZE) -> list[IdRange]:
    """Return the ranges that together hold every partition that existed when the index was created."""
    with storage.read() as connection:
        last = high_water_mark(connection, index.id)
        numbered = (
            select(PartitionRow.id, func.row_number().over(order_by=PartitionRow.id).label("number"))
            .where(PartitionRow.table_id == table.id, PartitionRow.id <= last)
            .subquery()
        )
        firsts = connection.scalars(
            select(numbered.c.id).where((numbered.c.number - 1) % size == 0).order_by(numbered.c.id)
        ).all()
    ends = [first - 1 for first in firsts[1:]] + [last]
    return [IdRange(first, end) for first, end in zip(firsts, ends, strict=True)] if firsts else []


def backfill_range(connection: Connection, table: Table, index: PartitionIndex, ids: IdRange) -> RangeReport:
    """Write the items of a range's partitions, in the caller's transaction; done again it changes nothing.

    Raises:
        ConflictError: The index is not CREATING any more: it was deleted, or its build has ended.
    """
    if not join_build(connection, index.id):
        raise ConflictError(
            f"partition index {index.name} of {table.full_name} is not being built any more; it was deleted, or "
            "another build of it has ended"
        )
    query = partition_query(table).where(PartitionRow.id.between(ids.first, ids.last))
    encoder, factory = ValueEncoder(table, [index]), PartitionFactory(table)
    items: list[Item] = []
    offending: list[OffendingPartition] = []
    code: PartitionProblem | None = None
    for row in connection.execute(query):
        encoded = encoder.encode(given_values(row.packed_values))
        if not isinstance(encoded, RefusedPartition):
            items.append((cut_key(encoded.index_keys[0]), row.id))
        elif len(offending) < MAXIMUM_OFFENDING:
            partition = factory.make(row)
            offending.append(OffendingPartition(partition.values, partition.location, str(encoded)))
            code = code or encoded.code
    insert_missing_items(connection, index.id, items)
    return RangeReport(len(items), tuple(offending), code)


def finish_build(storage: Storage, connection: Connection, table: Table, index: PartitionIndex) -> PartitionIndex:
    """Count items against partitions and make a CREATING index ACTIVE, or FAILED when they differ.

    In the caller's transaction; an index that is not CREATING stays as it is.

    Returns:
        The index as it is now.
    """
    storage.lock_table(connection, table.id, exclusive=True)
    partitions = connection.scalar(
        select(func.count()).select_from(PartitionRow).where(PartitionRow.table_id == table.id)
    )
    items = count_items(connection, index.id)
    if items == partitions:
        change_state(connection, index.id, [IndexState.CREATING], IndexState.ACTIVE)
    else:
        change_state(
            connection,
            index.id,
            [IndexState.CREATING],
            IndexState.FAILED,
            failure_code=INTERNAL_ERROR,
            failure_detail=f"{items:,} items for {partitions:,} partitions after the build; build it again",
        )
    return find_index(connection, table, index.name)


def fail_build(storage: Storage, table: Table, index: PartitionIndex, reports: Sequence[RangeReport]) -> None:
    """Make a CREATING index FAILED for the partitions that do not fit it, and delete its items."""
    offending = [each for report in reports for each in report.offending][:MAXIMUM_OFFENDING]
    code = next(report.code for report in reports if report.code is not None)
    with storage.write() as connection:
        storage.lock_table(connection, table.id, exclusive=True)
        has_failed = change_state(
            connection,
            index.id,
            [IndexState.CREATING],
            IndexState.FAILED,
            failure_code=code,
            failure_detail=f"{len(offending)} or more partitions do not fit, for instance: {offending[0].problem}",
            offending=offending,
        )
    # Another build may have ended well after the offending partitions were dropped: its items stay.
    if has_failed:
        delete_all_items(storage, index.id)
