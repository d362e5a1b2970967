"""Building a partition index on a table that stays readable and writable.

1. The index is committed as CREATING; from then on each added partition writes its own item (`adding`). The ids of the
   partitions that existed are kept as ranges still to be done.
2. The backfill does range after range, each in a transaction that writes the items and removes the range; ranges may
   be done in any order, in any process. A build that died goes on with the ranges that are left.
3. Items are counted against partitions, in one state of the catalog in which no range is left, so that from there on
   whoever adds or drops a partition keeps them equal. Then the index turns ACTIVE.
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
from catalog.storage.partition_rows import PartitionFactory, partition_query
from catalog.storage.schema import IndexItemRow, PartitionRow
from catalog.storage.values import ValueEncoder

RANGE_SIZE = 20_000
"""Partitions in one range of a backfill."""

MAXIMUM_OFFENDING = 100
"""Partitions named by a FAILED index."""

MAXIMUM_FAILED = 10
"""FAILED indexes that a table keeps, with their details. Source: AWS Glue, partition indexes."""

INTERNAL_ERROR = "INTERNAL_ERROR"
CANCELLED = "CANCELLED"
"""Our own code, beside Glue's: there, a build cannot be cancelled."""


@dataclass(frozen=True)
class Misfit:
    """A partition that does not fit the index, and why."""

    partition_id: int
    code: PartitionProblem
    partition: OffendingPartition


@dataclass(frozen=True)
class BackfillReport:
    """What the backfill of ranges found.

    Attributes:
        item_count: Items that it wrote.
        misfit_count: Partitions that do not fit the index.
        misfits: The first of them by id, at most `MAXIMUM_OFFENDING`.
    """

    item_count: int = 0
    misfit_count: int = 0
    misfits: tuple[Misfit, ...] = ()

    def __add__(self, other: BackfillReport) -> BackfillReport:
        """Return the report on the ranges of both; their order makes no difference."""
        return BackfillReport(
            self.item_count + other.item_count,
            self.misfit_count + other.misfit_count,
            _first((*self.misfits, *other.misfits)),
        )

    @property
    def failure(self) -> IndexFailure | None:
        """Why the index cannot be: the code is that of the first misfit, however the ranges were scheduled."""
        if not self.misfits:
            return None
        first = self.misfits[0]
        return IndexFailure(
            first.code,
            f"{self.misfit_count:,} of its partitions do not fit, for instance: {first.partition.problem}",
            tuple(misfit.partition for misfit in self.misfits),
        )


def _first(misfits: Iterable[Misfit]) -> tuple[Misfit, ...]:
    return tuple(nsmallest(MAXIMUM_OFFENDING, misfits, key=lambda misfit: misfit.partition_id))


def range_cuts(storage: Storage, table: Table, size: int | None = None) -> list[int]:
    """Return the partition ids at which ranges of `size` partitions end (by default `RANGE_SIZE`), ascending."""
    query = select(PartitionRow.id).where(PartitionRow.table_id == table.id).order_by(PartitionRow.id)
    cuts: list[int] = []
    with storage.read() as connection:
        after = 0
        while cut := connection.scalar(query.where(PartitionRow.id >= after).offset(size or RANGE_SIZE).limit(1)):
            cuts.append(cut)
            after = cut
    return cuts


def ranges_to_do(storage: Storage, index: PartitionIndex) -> list[IdRange]:
    """Return the ranges that the build of an index has still to do, ascending; those done before are not among them."""
    with storage.read() as connection:
        return remaining_ranges(connection, index.id)


def backfill(
    storage: Storage,
    table: Table,
    index: PartitionIndex,
    ranges: Iterable[IdRange],
    guard: Callable[[Connection], object] = lambda connection: None,
) -> BackfillReport:
    """Write the items of the partitions of some ranges, each range in a transaction of its own.

    Args:
        guard: Called at the beginning of each transaction; an error of its own ends the backfill.

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

    A range that another build has done is left alone. Of a range with a partition that does not fit, nothing is
    written, and it is still to be done.

    Raises:
        IndexBuildEndedError: The index was deleted, cancelled, or has FAILED.
    """
    is_claimed = claim_range(connection, index.id, ids)
    check_build_goes_on(connection, table, index)
    if not is_claimed:
        return BackfillReport()
    # One long text takes far less to fetch than many rows; no packed value has a line break in it.
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
    found = []
    for row in connection.execute(query):
        values, partition = given_values(row.packed_values), factory.make(row)
        encoded = encoder.encode(values)
        if is_encrypted(partition.properties):
            name = partition_path(table.key_names, values)
            encoded = RefusedPartition(name, None, None, None, PartitionProblem.ENCRYPTED, index.name)
        if isinstance(encoded, RefusedPartition):
            found.append(Misfit(row.id, encoded.code, _offending(partition, str(encoded))))
    return found


def _offending(partition: Partition, problem: str) -> OffendingPartition:
    return OffendingPartition(partition.values, partition.location, problem)


# --- the end of a build ---------------------------------------------------------------------------------------------


def check_build(storage: Storage, table: Table, index: PartitionIndex, report: BackfillReport) -> IndexFailure | None:
    """Say why an index whose ranges have all been walked cannot become ACTIVE; None when it can.

    Counts items and partitions in one state of the catalog, and holds nobody back meanwhile.
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
        lacking = connection.scalars(except_(partitions, items).limit(MAXIMUM_OFFENDING)).all()
        query = partition_query(table).where(among(connection, PartitionRow.id, lacking)).order_by(PartitionRow.id)
        make = PartitionFactory(table).make
        offending = tuple(_offending(make(row), "has no item") for row in connection.execute(query))
    detail = f"{item_count:,} items for {partition_count:,} partitions after the build; create the index again"
    return IndexFailure(INTERNAL_ERROR, detail, offending)


def end_build(
    storage: Storage, connection: Connection, table: Table, index: PartitionIndex, failure: IndexFailure | None
) -> PartitionIndex:
    """Make a CREATING index ACTIVE, or FAILED for a reason that `check_build` gave, in the caller's transaction.

    An index that another build has made ACTIVE stays so. Afterwards, `clear_ended` removes what a FAILED one leaves.

    Returns:
        The index as it is now.

    Raises:
        IndexBuildEndedError: The index was deleted, cancelled, or has FAILED.
        ConflictError: Ranges are left; nothing has changed.
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
    """Remove DELETING indexes, items of FAILED ones, and old FAILED ones, at which a process may have been killed.

    Holds the table for no longer than it takes to remove an index without items.
    """
    littered, superfluous = _ended(storage, table)
    for index in littered:
        with storage.write() as connection:
            remove_ranges(connection, index.id)
        delete_all_items(storage, index.id)
    for index in superfluous:
        with storage.write() as connection:
            storage.lock_table(connection, table.id, exclusive=True)
            remove_index(connection, index.id)


def ended_leftovers(storage: Storage, table: Table) -> list[str]:
    """Return the names of the indexes of which `clear_ended` removes something."""
    littered, superfluous = _ended(storage, table)
    return sorted({index.name for index in (*littered, *superfluous)})


def _ended(storage: Storage, table: Table) -> tuple[list[PartitionIndex], list[PartitionIndex]]:
    """Return the ended indexes that have items or ranges, and those that shall not be there any more."""
    with storage.read() as connection:
        ended = [each for each in list_indexes(connection, table.id) if each.state in _ENDED_STATES]
        littered = [each for each in ended if remaining_ranges(connection, each.id) or has_items(connection, each.id)]
    failed = [each for each in ended if each.state is IndexState.FAILED]
    kept = sorted(failed, key=_failed_at, reverse=True)[:MAXIMUM_FAILED]
    return littered, [each for each in ended if each not in kept]


_ENDED_STATES = (IndexState.DELETING, IndexState.FAILED)


def _failed_at(index: PartitionIndex) -> tuple[int, int]:
    return index.failed_at_ms or 0, index.id
