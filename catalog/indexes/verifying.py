"""Comparing the items of an ACTIVE partition index with the partitions, and repairing what differs.

Each partition has to have one item, at the key of its values, and nothing else may be in the index. So there are two
walks: through the partitions in ranges of ids, which finds those without their item; and through the items in ranges of
keys, which finds those that nobody owns. What the one walk counts, the other does not.

Ranges may be checked in any order and in any process. Each is read in one snapshot, in which a partition that comes or
goes meanwhile is there together with its item or not at all: whatever others do, it never looks like a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Row, func, select, text, tuple_

from catalog.errors import ConflictError
from catalog.indexes.definitions import IdRange, find_index, is_active
from catalog.indexes.items import Item, delete_items, insert_missing_items, item_keys
from catalog.model import PartitionIndex, Table
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.partition_rows import PartitionFactory, partition_query
from catalog.storage.schema import IndexItemRow, PartitionRow
from catalog.storage.values import ValueEncoder

RANGE_SIZE = 20_000
"""Partitions, or items, in one range: as many as are in memory at once, and as are repaired in one transaction."""

MAXIMUM_DIFFERENCES = 100
"""Differences that a verification names; it counts them all."""

_ITEM = (IndexItemRow.key, IndexItemRow.partition_id)


class DifferenceKind(StrEnum):
    """How the items of an index differ from what they have to be."""

    MISSING = "MISSING"
    """A partition has no item."""
    WRONG = "WRONG"
    """A partition has an item, but not at the key of its values."""
    SUPERFLUOUS = "SUPERFLUOUS"
    """An item's partition is gone, or has its right item besides."""
    UNFIT = "UNFIT"
    """A partition cannot have an item, because a value does not fit; no repair helps."""


@dataclass(frozen=True)
class Difference:
    """One partition whose items are not as they have to be, or one item that nobody owns.

    Attributes:
        values, location: Those of the partition; None when it is gone.
        key: The key that the item has to have; None where no item may be.
        stored: The keys of the items that may not be there.
    """

    kind: DifferenceKind
    partition_id: int
    values: tuple[str | None, ...] | None
    location: str | None
    key: bytes | None
    stored: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        """Say what differs in one line."""
        who = self.location or f"partition id {self.partition_id}, which is gone"
        lacking = "" if self.key is None else f", no item at {self.key.hex()}"
        found = "".join(f", an item at {key.hex()}" for key in self.stored)
        return f"{self.kind}: {who}{lacking}{found}"

    def as_dict(self) -> dict[str, Any]:
        """Return the difference for JSON, keys in hexadecimal digits."""
        return {
            "kind": self.kind,
            "partition_id": self.partition_id,
            "values": None if self.values is None else list(self.values),
            "location": self.location,
            "key": None if self.key is None else self.key.hex(),
            "stored": [key.hex() for key in self.stored],
        }


@dataclass(frozen=True)
class ItemRange:
    """Items from `first` up to, and without, `end`; None for no bound."""

    first: Item | None
    end: Item | None


CheckedRange = IdRange | ItemRange


@dataclass(frozen=True)
class Findings:
    """What was read, and what differed; of a range, of several, or of all.

    Attributes:
        differences: The first ones, at most `MAXIMUM_DIFFERENCES`.
    """

    partition_count: int = 0
    item_count: int = 0
    counts: Counter[DifferenceKind] = field(default_factory=Counter)
    differences: tuple[Difference, ...] = ()

    def __add__(self, other: Findings) -> Findings:
        """Return both together."""
        return Findings(
            self.partition_count + other.partition_count,
            self.item_count + other.item_count,
            self.counts + other.counts,
            (self.differences + other.differences)[:MAXIMUM_DIFFERENCES],
        )


@dataclass(frozen=True)
class Verification:
    """What the verification of one index found, and whether it repaired it.

    Attributes:
        repaired: How many differences were repaired; None when no repair was asked for.
    """

    table: str
    index: str
    findings: Findings
    repaired: int | None = None

    @property
    def is_exact(self) -> bool:
        """Say whether the index is as it has to be now."""
        remaining = self.findings.counts[DifferenceKind.UNFIT] if self.is_repair else self.findings.counts.total()
        return remaining == 0

    @property
    def is_repair(self) -> bool:
        """Say whether what differed was to be repaired."""
        return self.repaired is not None

    def __str__(self) -> str:
        """Say in words what was found, and what to do."""
        found = self.findings
        name = f"partition index {self.index} of {self.table}"
        read = f"{found.partition_count:,} partitions and {found.item_count:,} items"
        if not found.counts:
            return f"{name} is exact: {read}"
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.counts.items()))
        said = (
            f"{name} has {found.counts.total():,} difference(s) in {read}: {counts}; the first: {found.differences[0]}"
        )
        if not self.is_repair:
            return (
                f"{said}. Repair it: `calve verify {self.table} {self.index} --repair`, or the DAG "
                "verify_partition_indexes with `repair` switched on"
            )
        said += f". {self.repaired:,} repaired"
        if self.is_exact:
            return said
        return f"{said}; drop the UNFIT partitions and add them with values of their keys' types, or delete the index"

    def as_dict(self) -> dict[str, Any]:
        """Return the verification for JSON."""
        return {
            "table": self.table,
            "index": self.index,
            "is_exact": self.is_exact,
            "partition_count": self.findings.partition_count,
            "item_count": self.findings.item_count,
            "counts": {kind.lower(): self.findings.counts[kind] for kind in DifferenceKind},
            "repaired": self.repaired,
            "differences": [each.as_dict() for each in self.findings.differences],
            "message": str(self),
        }


def verify(
    storage: Storage,
    table: Table,
    index: PartitionIndex,
    *,
    repair: bool = False,
    check: Callable[[Sequence[CheckedRange]], Iterable[Findings]] | None = None,
    transaction: Callable[[], AbstractContextManager[Connection]] | None = None,
    size: int = RANGE_SIZE,
) -> Verification:
    """Compare an index with its table, a range of about `size` partitions or items at a time.

    Args:
        repair: Repair what differs, each range in a short transaction that holds the table.
        check: Does what `check_range` does for each range, in their order; by default in this process.
        transaction: Opens the transaction of one repair; by default one of the storage.

    Raises:
        ConflictError: The index is not ACTIVE, or was deleted meanwhile.
    """
    _require_active(storage, table, index)
    ranges = plan_ranges(storage, table, index, size)
    found_in_ranges = check(ranges) if check else (check_range(storage, table, index, each) for each in ranges)
    findings, repaired = Findings(), 0
    for checked, found in zip(ranges, found_in_ranges, strict=True):
        findings += found
        if repair and found.counts:
            with (transaction or storage.write)() as connection:
                repaired += repair_range(storage, connection, table, index, checked)
    # An index that is ACTIVE now was so all the time: none becomes so a second time.
    _require_active(storage, table, index)
    return Verification(table.full_name, index.name, findings, repaired if repair else None)


def _require_active(storage: Storage, table: Table, index: PartitionIndex) -> None:
    with storage.read() as connection:
        if is_active(connection, table, index.id):
            return
        state = find_index(connection, table, index.name).state
    raise ConflictError(
        f"partition index {index.name} of {table.full_name} is {state}, and only an ACTIVE one has all its items; "
        "build it first"
    )


def plan_ranges(storage: Storage, table: Table, index: PartitionIndex, size: int) -> list[CheckedRange]:
    """Return ranges of about `size` that hold all the partitions of a table, and all the items of an index."""
    with storage.read() as connection:
        ids = [row.id for row in _every(connection, size, (PartitionRow.id,), PartitionRow.table_id == table.id)]
        last = connection.scalar(select(func.max(PartitionRow.id)).where(PartitionRow.table_id == table.id)) or 0
        rows = _every(connection, size, _ITEM, IndexItemRow.index_id == index.id)
    bounds = [None, *((row.key, row.partition_id) for row in rows[1:]), None]
    return [
        *(IdRange(first, end - 1) for first, end in pairwise([*ids, last + 1])),
        *(ItemRange(first, end) for first, end in pairwise(bounds)),
    ]


def _every(connection: Connection, size: int, order: Sequence[Any], condition: Any) -> Sequence[Row[Any]]:
    """Return the first row, and every `size`-th after it."""
    numbered = select(*order, func.row_number().over(order_by=order).label("number")).where(condition).subquery()
    names = [numbered.c[column.name] for column in order]
    return connection.execute(select(*names).where((numbered.c.number - 1) % size == 0).order_by(*names)).all()


def check_range(storage: Storage, table: Table, index: PartitionIndex, checked: CheckedRange) -> Findings:
    """Compare one range in one snapshot; nothing is found when the index is not ACTIVE in it."""
    with storage.read() as connection:
        return Findings() + _compare(connection, table, index, checked)


def repair_range(
    storage: Storage, connection: Connection, table: Table, index: PartitionIndex, checked: CheckedRange
) -> int:
    """Compare one range again while nobody adds or drops partitions, and repair what differs; return how much did.

    In the caller's transaction, which holds the table exclusively from here on. What is UNFIT is left as it is.
    """
    storage.lock_table(connection, table.id, exclusive=True)
    found = _compare(connection, table, index, checked).differences
    differences = [each for each in found if each.kind is not DifferenceKind.UNFIT]
    delete_items(connection, index.id, [(key, each.partition_id) for each in differences for key in each.stored])
    if lacking := [(each.key, each.partition_id) for each in differences if each.key is not None]:
        insert_missing_items(connection, index.id, lacking)
    return len(differences)


def _compare(connection: Connection, table: Table, index: PartitionIndex, checked: CheckedRange) -> Findings:
    """Return all that differs in a range, however much; nothing when the index is not ACTIVE."""
    if not is_active(connection, table, index.id):
        return Findings()
    comparison = _Comparison(connection, table, index)
    return comparison.of_partitions(checked) if isinstance(checked, IdRange) else comparison.of_items(checked)


class _Comparison:
    """Compares ranges of one index on one connection."""

    def __init__(self, connection: Connection, table: Table, index: PartitionIndex) -> None:
        self._connection = connection
        self._table = table
        self._index = index
        self._encoder = ValueEncoder(table, [index])
        self._factory = PartitionFactory(table)

    def of_partitions(self, ids: IdRange) -> Findings:
        """Find the partitions of a range that lack their item."""
        query = partition_query(self._table).where(PartitionRow.id.between(ids.first, ids.last))
        rows = {row.id: row for row in self._connection.execute(query)}
        keys = self._keys(rows)
        there = self._existing([(key, each) for each, key in keys.items() if key is not None])
        lacking = [each for each in rows if each not in there]
        stored = self._stored_keys(lacking)
        differences = []
        for each in lacking:
            if keys[each] is None:
                kind = DifferenceKind.UNFIT
            else:
                kind = DifferenceKind.WRONG if each in stored else DifferenceKind.MISSING
            differences.append(self._difference(kind, each, rows[each], keys[each], stored.get(each, ())))
        return Findings(len(rows), 0, _counts(differences), tuple(differences))

    def of_items(self, keys: ItemRange) -> Findings:
        """Find the items of a range that nobody owns; those of a partition without its own item are that one's."""
        query = select(*_ITEM).where(IndexItemRow.index_id == self._index.id)
        if keys.first is not None:
            query = query.where(tuple_(*_ITEM) >= keys.first)
        if keys.end is not None:
            query = query.where(tuple_(*_ITEM) < keys.end)
        items: list[Item] = [(row.key, row.partition_id) for row in self._connection.execute(query)]
        rows = self._partitions([partition_id for _, partition_id in items])
        expected = self._keys(rows)
        foreign = [(key, each) for key, each in items if each not in rows or expected[each] != key]
        owners = [(key, each) for each in {each for _, each in foreign if each in rows} if (key := expected[each])]
        there = self._existing(owners)
        differences = [
            self._difference(DifferenceKind.SUPERFLUOUS, each, rows.get(each), None, (key,))
            for key, each in foreign
            if each not in rows or each in there
        ]
        return Findings(0, len(items), _counts(differences), tuple(differences))

    def _keys(self, rows: Mapping[int, Row[Any]]) -> dict[int, bytes | None]:
        """Return the key that the item of each partition has to have; None when its values do not fit."""
        keys = item_keys(self._encoder, [row.packed_values for row in rows.values()])
        return dict(zip(rows, keys, strict=True))

    def _difference(
        self,
        kind: DifferenceKind,
        partition_id: int,
        row: Row[Any] | None,
        key: bytes | None,
        stored: Sequence[bytes],
    ) -> Difference:
        partition = None if row is None else self._factory.make(row)
        values, location = (partition.values, partition.location) if partition else (None, None)
        return Difference(kind, partition_id, values, location, key, tuple(stored))

    def _partitions(self, ids: Sequence[int]) -> dict[int, Row[Any]]:
        return {
            row.id: row
            for batch in batched(ids)
            for row in self._connection.execute(
                partition_query(self._table).where(among(self._connection, PartitionRow.id, batch))
            )
        }

    def _existing(self, items: Sequence[Item]) -> set[int]:
        """Return the partition ids of those items that are in the index."""
        if self._connection.dialect.name == "postgresql":
            query = text(
                "SELECT item.partition_id FROM unnest(CAST(:keys AS bytea[]), CAST(:ids AS bigint[])) "
                "AS wanted (key, partition_id) JOIN calve_index_item AS item ON item.index_id = :index_id "
                "AND item.key = wanted.key AND item.partition_id = wanted.partition_id"
            )
            arrays = {"keys": [key for key, _ in items], "ids": [partition_id for _, partition_id in items]}
            return set(self._connection.scalars(query, {"index_id": self._index.id, **arrays}))
        driver = self._connection.connection.driver_connection
        assert driver is not None
        find = "SELECT 1 FROM calve_index_item WHERE index_id = ? AND key = ? AND partition_id = ?"
        return {item[1] for item in items if driver.execute(find, (self._index.id, *item)).fetchone()}

    def _stored_keys(self, partition_ids: Sequence[int]) -> dict[int, list[bytes]]:
        """Return the keys of all items of some partitions: a walk through the whole index, for a damaged one only."""
        stored: dict[int, list[bytes]] = {}
        for batch in batched(partition_ids):
            query = select(*_ITEM).where(
                IndexItemRow.index_id == self._index.id, among(self._connection, IndexItemRow.partition_id, batch)
            )
            for row in self._connection.execute(query):
                stored.setdefault(row.partition_id, []).append(row.key)
        return stored


def _counts(differences: Iterable[Difference]) -> Counter[DifferenceKind]:
    return Counter(each.kind for each in differences)
