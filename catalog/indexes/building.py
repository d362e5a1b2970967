"""Online build of a partition index, while its table stays readable and writable.

1. The index is committed as CREATING; from then on each added partition writes its own item (`adding`). The ids of
   existing partitions are stored as ranges to backfill.
2. The backfill processes range after range, each in a transaction that writes the items and removes the range, in any
   order and any process. A build that was killed continues with the remaining ranges.
3. Items are compared with partitions by count, in one snapshot of the catalog without remaining ranges; after that,
   transactions that add or drop partitions keep the counts equal. Then the index becomes ACTIVE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nsmallest

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Text, case, cast, except_, func, select

from catalog.errors import ConflictError, PartitionProblem, RefusedPartition
from catalog.indexes.definitions import (
    IdRange,
    IndexFailure,
    change_state,
    check_build_goes_on,
    claim_range,
    fail_index,
    find_index,
    finish_range,
    list_indexes,
    remaining_ranges,
    remove_index,
    remove_ranges,
)
from catalog.indexes.encoding import encode_index_keys, split_lines
from catalog.indexes.items import count_items, delete_all_items, has_items, insert_items
from catalog.model import (
    ENCRYPTED_PROPERTY,
    IndexState,
    OffendingPartition,
    Partition,
    PartitionIndex,
    Table,
    is_encrypted,
)
from catalog.model.partition_names import given_values, partition_path
from catalog.storage import Storage
from catalog.storage.bulk import among
from catalog.storage.partition_rows import IN_ORDER, PartitionFactory, partition_query, partitions_after
from catalog.storage.schema import IndexItemRow, PartitionRow
from catalog.storage.values import ValueEncoder

RANGE_SIZE = 20_000
"""Number of partitions in one range of a backfill."""

MAXIMUM_OFFENDING = 100
"""Maximum number of partitions listed by a FAILED index."""

MAXIMUM_FAILED = 10
"""Maximum number of FAILED indexes that a table keeps. Source: AWS Glue, partition indexes."""

INTERNAL_ERROR = "INTERNAL_ERROR"
CANCELLED = "CANCELLED"
"""Calve's own code, because builds cannot be cancelled in Glue."""


@dataclass(frozen=True)
class Misfit:
    """A partition that the index refuses, with the reason."""

    partition_id: int
    code: PartitionProblem
    partition: OffendingPartition


@dataclass(frozen=True)
class BackfillReport:
    """The result of a backfill of ranges.

    Attributes:
        item_count: Number of written items.
        misfit_count: Number of partitions that the index refuses.
        misfits: The first of them by id, at most `MAXIMUM_OFFENDING`.
    """

    item_count: int = 0
    misfit_count: int = 0
    misfits: tuple[Misfit, ...] = ()

    def __add__(self, other: BackfillReport) -> BackfillReport:
        """Return the report of both sets of ranges; their order does not matter."""
        return BackfillReport(
            self.item_count + other.item_count,
            self.misfit_count + other.misfit_count,
            _first((*self.misfits, *other.misfits)),
        )

    @property
    def failure(self) -> IndexFailure | None:
        """The reason why the build fails, if any: that of the first misfit, however the ranges were scheduled."""
        if not self.misfits:
            return None
        first = self.misfits[0]
        return IndexFailure(
            first.code,
            f"{self.misfit_count:,} partitions do not fit the index, for instance: {first.partition.problem}",
            tuple(misfit.partition for misfit in self.misfits),
        )


def _first(misfits: Iterable[Misfit]) -> tuple[Misfit, ...]:
    return tuple(nsmallest(MAXIMUM_OFFENDING, misfits, key=lambda misfit: misfit.partition_id))


def range_cuts(storage: Storage, table: Table, size: int | None = None) -> list[int]:
    """Return the partition ids that end ranges of `size` partitions (by default `RANGE_SIZE`), ascending."""
    query = select(PartitionRow.id).order_by(*IN_ORDER).offset(size or RANGE_SIZE).limit(1)
    cuts: list[int] = []
    with storage.read() as connection:
        after = 0
        while cut := connection.scalar(query.where(partitions_after(table.id, after))):
            cuts.append(cut)
            after = cut - 1
    return cuts


def ranges_to_do(storage: Storage, index: PartitionIndex) -> list[IdRange]:
    """Return the remaining ranges of an index build, ascending."""
    with storage.read() as connection:
        return remaining_ranges(connection, index.id)


def backfill(
    storage: Storage,
    table: Table,
    index: PartitionIndex,
    ranges: Iterable[IdRange],
    guard: Callable[[Connection], object] = lambda connection: None,
) -> BackfillReport:
    """Write the items of the partitions of some ranges, each range in its own transaction.

    Args:
        guard: Called at the start of each transaction; its errors end the backfill.

    Raises:
        IndexBuildEndedError: The index was deleted, cancelled, or has FAILED.
    """
    report = BackfillReport()
    for ids in ranges:
        with storage.write() as connection:
            guard(connection)
            report += backfill_range(connection, table, index, ids)
    return report


def backfill_range(connection: Connection, table: Table, index: PartitionIndex, ids: IdRange) -> BackfillReport:
    """Write the items of a range's partitions, in the caller's transaction.

    A range that another build has completed is skipped. If a partition of the range does not fit the index, nothing is
    written, and the range remains.

    Raises:
        IndexBuildEndedError: The index was deleted, cancelled, or has FAILED.
    """
    is_claimed = claim_range(connection, index.id, ids)
    check_build_goes_on(connection, table, index)
    if not is_claimed:
        return BackfillReport()
    # One long string is much faster to fetch than many rows; packed values contain no line breaks.
    ids_and_values = select(
        func.aggregate_strings(cast(PartitionRow.id, Text), "\n"),
        func.aggregate_strings(PartitionRow.packed_values, "\n"),
        func.max(case((func.lower(PartitionRow.properties).contains(ENCRYPTED_PROPERTY), 1), else_=0)),
    )
    all_ids, all_values, may_be_encrypted = connection.execute(ids_and_values.where(*_inside(table, ids))).one()
    item_count = 0
    if all_ids is not None:
        keys = encode_index_keys(table, index, split_lines(all_values))
        if keys is None or may_be_encrypted:
            misfits = _misfits(connection, table, index, ids)
            if keys is None or misfits:
                return BackfillReport(0, len(misfits), _first(misfits))
        insert_items(connection, index.id, keys, split_lines(all_ids).cast(pa.int64()))
        item_count = len(keys)
    finish_range(connection, index.id, ids)
    return BackfillReport(item_count)


def _inside(table: Table, ids: IdRange) -> tuple[ColumnElement[bool], ...]:
    return PartitionRow.table_id == table.id, PartitionRow.id.between(ids.first, ids.last)


def _misfits(connection: Connection, table: Table, index: PartitionIndex, ids: IdRange) -> list[Misfit]:
    query = partition_query(table).where(*_inside(table, ids)).order_by(PartitionRow.id)
    encoder, factory = ValueEncoder(table, [index]), PartitionFactory(table)
    misfits = []
    for row in connection.execute(query):
        values, partition = given_values(row.packed_values), factory.make(row)
        encoded = encoder.encode(values)
        if is_encrypted(partition.properties):
            name = partition_path(table.key_names, values)
            encoded = RefusedPartition(name, None, None, None, PartitionProblem.ENCRYPTED, index.name)
        if isinstance(encoded, RefusedPartition):
            misfits.append(Misfit(row.id, encoded.code, _offending(partition, str(encoded))))
    return misfits


def _offending(partition: Partition, problem: str) -> OffendingPartition:
    return OffendingPartition(partition.values, partition.location, problem)


# --- the end of a build ---------------------------------------------------------------------------------------------


def check_build(storage: Storage, table: Table, index: PartitionIndex, report: BackfillReport) -> IndexFailure | None:
    """Return why an index without remaining ranges cannot become ACTIVE; None when it can.

    Counts items and partitions in one snapshot of the catalog, without locks.
    """
    if report.failure is not None:
        return report.failure
    partitions = select(PartitionRow.id).where(PartitionRow.table_id == table.id)
    with storage.read() as connection:
        partition_count = connection.scalar(select(func.count()).select_from(partitions.subquery()))
        item_count = count_items(connection, index.id)
        if item_count == partition_count:
            return None
        items = select(IndexItemRow.partition_id).where(IndexItemRow.index_id == index.id)
        missing = connection.scalars(except_(partitions, items).limit(MAXIMUM_OFFENDING)).all()
        query = partition_query(table).where(among(connection, PartitionRow.id, missing)).order_by(PartitionRow.id)
        make = PartitionFactory(table).make
        offending = tuple(_offending(make(row), "has no item") for row in connection.execute(query))
    detail = f"{item_count:,} items for {partition_count:,} partitions after the build; create the index again"
    return IndexFailure(INTERNAL_ERROR, detail, offending)


def end_build(
    storage: Storage, connection: Connection, table: Table, index: PartitionIndex, failure: IndexFailure | None
) -> PartitionIndex:
    """Make a CREATING index ACTIVE, or FAILED with the result of `check_build`, in the caller's transaction.

    An index that another build has made ACTIVE is kept. Afterwards, `clear_ended` removes the remains of a FAILED one.

    Returns:
        The index with its current state.

    Raises:
        IndexBuildEndedError: The index was deleted, cancelled, or has FAILED.
        ConflictError: There are remaining ranges; nothing was changed.
    """
    storage.lock_table(connection, table.id, exclusive=True)
    if check_build_goes_on(connection, table, index).state is IndexState.CREATING:
        if failure is not None:
            fail_index(connection, index.id, failure)
        elif ranges := remaining_ranges(connection, index.id):
            raise ConflictError(
                f"{len(ranges)} ranges of partition index {index.name} of {table.full_name} are not built yet; build "
                "it again"
            )
        else:
            change_state(connection, index.id, [IndexState.CREATING], IndexState.ACTIVE)
    return find_index(connection, table, index.name)


def clear_ended(storage: Storage, table: Table) -> None:
    """Remove DELETING indexes, the items of FAILED ones, and old FAILED ones, which a killed process may have left.

    Locks the table only while it removes an index without items.
    """
    with_items, to_remove = _ended(storage, table)
    for index in with_items:
        with storage.write() as connection:
            remove_ranges(connection, index.id)
        delete_all_items(storage, index.id)
    for index in to_remove:
        with storage.write() as connection:
            storage.lock_table(connection, table.id, exclusive=True)
            remove_index(connection, index.id)


def ended_leftovers(storage: Storage, table: Table) -> list[str]:
    """Return the names of the indexes of which `clear_ended` removes something."""
    with_items, to_remove = _ended(storage, table)
    return sorted({index.name for index in (*with_items, *to_remove)})


def _ended(storage: Storage, table: Table) -> tuple[list[PartitionIndex], list[PartitionIndex]]:
    """Return the ended indexes that have items or ranges, and those to remove."""
    with storage.read() as connection:
        ended = [index for index in list_indexes(connection, table.id) if index.state in _ENDED_STATES]
        with_items = [
            index for index in ended if remaining_ranges(connection, index.id) or has_items(connection, index.id)
        ]
    failed = [index for index in ended if index.state is IndexState.FAILED]
    kept = sorted(failed, key=_failed_at, reverse=True)[:MAXIMUM_FAILED]
    return with_items, [index for index in ended if index not in kept]


_ENDED_STATES = (IndexState.DELETING, IndexState.FAILED)


def _failed_at(index: PartitionIndex) -> tuple[int, int]:
    return index.failed_at_ms or 0, index.id
