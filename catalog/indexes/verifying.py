"""Comparison of an ACTIVE partition index with the partitions of its table, and repair of differences.

Each partition must have one item, at the key of its values, and the index must have no other items. So there are two
scans: one of the partitions, in ranges of ids, finds partitions without their item; one of the items, in ranges of
keys, finds items without an owner. No difference is counted by both.

Ranges may be checked in any order and any process. Each is read in one snapshot, which contains a concurrently added or
dropped partition either with its item or not at all, so concurrent changes never appear as differences.
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
from catalog.storage.partition_rows import PartitionFactory, newest_partition, partition_query
from catalog.storage.schema import IndexItemRow, PartitionRow
from catalog.storage.values import ValueEncoder

RANGE_SIZE = 20_000
"""Number of partitions or items in one range, which is held in memory and repaired in one transaction."""

MAXIMUM_DIFFERENCES = 100
"""Maximum number of differences that a verification lists; it counts all of them."""

_ITEM = (IndexItemRow.key, IndexItemRow.partition_id)


class DifferenceKind(StrEnum):
    """The kinds of differences between expected and stored items."""

    MISSING = "MISSING"
    """A partition has no item."""
    WRONG = "WRONG"
    """A partition has an item, but at a wrong key."""
    SUPERFLUOUS = "SUPERFLUOUS"
    """An item's partition does not exist, or also has its correct item."""
    UNFIT = "UNFIT"
    """A partition cannot have an item because of an invalid value, which a repair cannot correct."""


@dataclass(frozen=True)
class Difference:
    """A partition with missing or wrong items, or an item without an owner.

    Attributes:
        values, location: Those of the partition; None when it does not exist.
        key: The missing key; None where no item is missing.
        stored: The keys of items that should not exist.
    """

    kind: DifferenceKind
    partition_id: int
    values: tuple[str | None, ...] | None
    location: str | None
    key: bytes | None
    stored: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        """Return the difference as one line."""
        partition = self.location or f"partition id {self.partition_id}, which is gone"
        missing = "" if self.key is None else f", no item at {self.key.hex()}"
        unexpected = "".join(f", an item at {key.hex()}" for key in self.stored)
        return f"{self.kind}: {partition}{missing}{unexpected}"

    def as_dict(self) -> dict[str, Any]:
        """Return the difference for JSON, with keys in hexadecimal."""
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
    """Items from `first`, inclusive, to `end`, exclusive; None for no bound."""

    first: Item | None
    end: Item | None


CheckedRange = IdRange | ItemRange


@dataclass(frozen=True)
class Findings:
    """Counts and differences of one range, several, or all.

    Attributes:
        differences: The first ones, at most `MAXIMUM_DIFFERENCES`.
    """

    partition_count: int = 0
    item_count: int = 0
    counts: Counter[DifferenceKind] = field(default_factory=Counter)
    differences: tuple[Difference, ...] = ()

    def __add__(self, other: Findings) -> Findings:
        """Return the sum of both."""
        return Findings(
            self.partition_count + other.partition_count,
            self.item_count + other.item_count,
            self.counts + other.counts,
            (self.differences + other.differences)[:MAXIMUM_DIFFERENCES],
        )


@dataclass(frozen=True)
class Verification:
    """The result of the verification of one index.

    Attributes:
        repaired: Number of repaired differences; None when no repair was requested.
    """

    table: str
    index: str
    findings: Findings
    repaired: int | None = None

    @property
    def is_exact(self) -> bool:
        """Return whether the index is correct now."""
        remaining = self.findings.counts[DifferenceKind.UNFIT] if self.is_repair else self.findings.counts.total()
        return remaining == 0

    @property
    def is_repair(self) -> bool:
        """Return whether a repair was requested."""
        return self.repaired is not None

    def __str__(self) -> str:
        """Return the result and the advice as text."""
        findings = self.findings
        name = f"partition index {self.index} of {self.table}"
        read = f"{findings.partition_count:,} partitions and {findings.item_count:,} items"
        if not findings.counts:
            return f"{name} is exact: {read}"
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(findings.counts.items()))
        summary = (
            f"{name} has {findings.counts.total():,} difference(s) in {read}: {counts}; "
            f"the first: {findings.differences[0]}"
        )
        if not self.is_repair:
            return (
                f"{summary}. Repair it: `calve verify {self.table} {self.index} --repair`, or the DAG "
                "verify_partition_indexes with `repair` switched on"
            )
        summary += f". {self.repaired:,} repaired"
        if self.is_exact:
            return summary
        return (
            f"{summary}; drop the UNFIT partitions and add them with values of their keys' types, or delete the index"
        )

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
            "differences": [difference.as_dict() for difference in self.findings.differences],
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
    """Compare an index with its table, in ranges of about `size` partitions or items.

    Args:
        repair: Repair differences, each range in a short transaction that locks the table.
        check: Runs `check_range` for each range, in their order; by default in this process.
        transaction: Opens the transaction of one repair; by default one of the storage.

    Raises:
        ConflictError: The index is not ACTIVE, or was deleted meanwhile.
    """
    _require_active(storage, table, index)
    ranges = plan_ranges(storage, table, index, size)
    results = check(ranges) if check else (check_range(storage, table, index, checked) for checked in ranges)
    findings, repaired = Findings(), 0
    for checked, result in zip(ranges, results, strict=True):
        findings += result
        if repair and result.counts:
            with (transaction or storage.write)() as connection:
                repaired += repair_range(storage, connection, table, index, checked)
    # An index that is still ACTIVE was ACTIVE all the time: no index becomes ACTIVE twice.
    _require_active(storage, table, index)
    return Verification(table.full_name, index.name, findings, repaired if repair else None)


def _require_active(storage: Storage, table: Table, index: PartitionIndex) -> None:
    with storage.read() as connection:
        if is_active(connection, table, index.id):
            return
        state = find_index(connection, table, index.name).state
    raise ConflictError(
        f"partition index {index.name} of {table.full_name} is {state}, but only an ACTIVE index has all its items; "
        "build it first"
    )


def plan_ranges(storage: Storage, table: Table, index: PartitionIndex, size: int) -> list[CheckedRange]:
    """Return ranges of about `size` that cover all partitions of a table and all items of an index."""
    with storage.read() as connection:
        ids = [row.id for row in _every(connection, size, (PartitionRow.id,), PartitionRow.table_id == table.id)]
        last = connection.scalar(newest_partition(table.id)) or 0
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
    """Compare one range in one snapshot; there are no findings when the index is not ACTIVE in it."""
    with storage.read() as connection:
        return Findings() + _compare(connection, table, index, checked)


def repair_range(
    storage: Storage, connection: Connection, table: Table, index: PartitionIndex, checked: CheckedRange
) -> int:
    """Compare one range again under a lock, and repair its differences; return their number.

    Runs in the caller's transaction and locks the table exclusively. UNFIT partitions are skipped.
    """
    storage.lock_table(connection, table.id, exclusive=True)
    differences = [
        difference
        for difference in _compare(connection, table, index, checked).differences
        if difference.kind is not DifferenceKind.UNFIT
    ]
    wrong = [(key, difference.partition_id) for difference in differences for key in difference.stored]
    delete_items(connection, index.id, wrong)
    if missing := [(item.key, item.partition_id) for item in differences if item.key is not None]:
        insert_missing_items(connection, index.id, missing)
    return len(differences)


def _compare(connection: Connection, table: Table, index: PartitionIndex, checked: CheckedRange) -> Findings:
    """Return all differences of a range; none when the index is not ACTIVE."""
    if not is_active(connection, table, index.id):
        return Findings()
    comparison = _Comparison(connection, table, index)
    return comparison.of_partitions(checked) if isinstance(checked, IdRange) else comparison.of_items(checked)


class _Comparison:
    """Comparison of ranges of one index on one connection."""

    def __init__(self, connection: Connection, table: Table, index: PartitionIndex) -> None:
        self._connection = connection
        self._table = table
        self._index = index
        self._encoder = ValueEncoder(table, [index])
        self._factory = PartitionFactory(table)

    def of_partitions(self, ids: IdRange) -> Findings:
        """Return the partitions of a range whose item is missing."""
        query = partition_query(self._table).where(PartitionRow.id.between(ids.first, ids.last))
        rows = {row.id: row for row in self._connection.execute(query)}
        keys = self._keys(rows)
        existing = self._existing([(key, number) for number, key in keys.items() if key is not None])
        missing = [number for number in rows if number not in existing]
        stored = self._stored_keys(missing)
        differences = []
        for number in missing:
            if keys[number] is None:
                kind = DifferenceKind.UNFIT
            else:
                kind = DifferenceKind.WRONG if number in stored else DifferenceKind.MISSING
            differences.append(self._difference(kind, number, rows[number], keys[number], stored.get(number, ())))
        return Findings(len(rows), 0, _counts(differences), tuple(differences))

    def of_items(self, keys: ItemRange) -> Findings:
        """Return the items of a range without an owner; a partition without its own item owns its wrong ones."""
        query = select(*_ITEM).where(IndexItemRow.index_id == self._index.id)
        if keys.first is not None:
            query = query.where(tuple_(*_ITEM) >= keys.first)
        if keys.end is not None:
            query = query.where(tuple_(*_ITEM) < keys.end)
        items: list[Item] = [(row.key, row.partition_id) for row in self._connection.execute(query)]
        rows = self._partitions([partition_id for _, partition_id in items])
        expected = self._keys(rows)
        wrong = [(key, number) for key, number in items if number not in rows or expected[number] != key]
        owners = {number for _, number in wrong if number in rows}
        existing = self._existing([(key, number) for number in owners if (key := expected[number])])
        differences = [
            self._difference(DifferenceKind.SUPERFLUOUS, number, rows.get(number), None, (key,))
            for key, number in wrong
            if number not in rows or number in existing
        ]
        return Findings(0, len(items), _counts(differences), tuple(differences))

    def _keys(self, rows: Mapping[int, Row[Any]]) -> dict[int, bytes | None]:
        """Return the expected key of each partition's item; None for an invalid value."""
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
        """Return the partition ids of the given items that are in the index."""
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
        """Return the keys of all items of some partitions: scans the whole index, so only for differences."""
        stored: dict[int, list[bytes]] = {}
        for batch in batched(partition_ids):
            query = select(*_ITEM).where(
                IndexItemRow.index_id == self._index.id, among(self._connection, IndexItemRow.partition_id, batch)
            )
            for row in self._connection.execute(query):
                stored.setdefault(row.partition_id, []).append(row.key)
        return stored


def _counts(differences: Iterable[Difference]) -> Counter[DifferenceKind]:
    return Counter(difference.kind for difference in differences)
