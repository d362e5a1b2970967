"""Finding partitions: through an index where one serves, else through all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, Select, select, tuple_

from catalog.definitions import Definitions
from catalog.errors import PartitionNotFoundError
from catalog.expressions import compile_predicate, parse_expression
from catalog.indexes.definitions import is_active, list_indexes
from catalog.indexes.keys import decode_key, is_cut
from catalog.indexes.planner import ScanPlan, plan_scan
from catalog.model import Partition, PartitionState, Table
from catalog.partition_names import partition_path, unpack_values
from catalog.storage import Storage
from catalog.storage.bulk import among
from catalog.storage.schema import IndexItemRow, PartitionRow
from catalog.values import ValueEncoder, ValueReader

_PAGE = 5_000

Query: TypeAlias = Select[*tuple[Any, ...]]


@dataclass
class ScanCounts:
    """What a scan has read so far."""

    items_read: int = 0
    partitions_fetched: int = 0
    partitions_found: int = 0


@dataclass(frozen=True)
class Scan:
    """A planned search: iterate `partitions` to run it; `counts` grows meanwhile.

    The whole search sees one state of the catalog, whatever others commit while it runs.
    """

    table: Table
    plan: ScanPlan
    partitions: Iterator[Partition]
    counts: ScanCounts = field(default_factory=ScanCounts)


class Scanner:
    """Finds the partitions of the tables of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Take the database and the definitions in it."""
        self._storage = storage
        self._definitions = definitions

    def scan(self, name: str, expression: str | None, *, use_indexes: bool, state: PartitionState | None) -> Scan:
        """Plan a search; no partition is read before the caller asks for the first one."""
        with self._storage.read() as connection:
            table = self._definitions.get_table(name, connection)
            indexes = list_indexes(connection, table.id) if use_indexes else []
        plan = plan_scan(table, indexes, parse_expression(expression, table))
        counts = ScanCounts()
        return Scan(table, plan, self._run(table, plan, state, counts), counts)

    def _run(
        self, table: Table, plan: ScanPlan, state: PartitionState | None, counts: ScanCounts
    ) -> Iterator[Partition]:
        with self._storage.read() as connection:
            if plan.index is not None and not is_active(connection, plan.index.id):
                # It was dropped after the plan was made; its items may be going.
                plan = ScanPlan(None, plan.expression, plan.expression, plan.not_used)
            run = _ScanRun(connection, table, plan, counts)
            for partition in run.matching():
                if state is None or partition.state is state:
                    counts.partitions_found += 1
                    yield partition

    def get(self, name: str, values: Sequence[str | None]) -> Partition:
        """Return one partition; see `Catalog.get_partition`."""
        with self._storage.read() as connection:
            table = self._definitions.get_table(name, connection)
            identity = ValueEncoder(table).identity(values)
            query = partition_query(table).where(PartitionRow.identity == identity)
            row = connection.execute(query).one_or_none()
        if row is None:
            path = partition_path(table.key_names, values)
            raise PartitionNotFoundError(f"table {table.full_name} has no partition {path}")
        return PartitionFactory(table).make(row)

    def of_operation(self, name: str, operation_number: int) -> Iterator[Partition]:
        """Yield the partitions that an operation added, in no order, visible or not."""
        with self._storage.read() as connection:
            table = self._definitions.get_table(name, connection)
            factory = PartitionFactory(table)
            query = partition_query(table).where(PartitionRow.operation_number == operation_number)
            for row in _pages_by_id(connection, query):
                yield factory.make(row)


class PartitionFactory:
    """Makes the partitions of one table from rows."""

    def __init__(self, table: Table) -> None:
        """Take the table."""
        self._root = table.location
        self._key_prefixes = [partition_path([key], [""]) for key in table.key_names]

    def make(self, row: Row[Any]) -> Partition:
        """Return the partition of a row of `partition_query`."""
        packed: str = row.packed_values
        location = row.location
        if location is None:
            pieces = map(str.__add__, self._key_prefixes, packed.split("/"))
            location = f"{self._root}/{'/'.join(pieces)}"
        return Partition(
            row.id,
            unpack_values(packed),
            location,
            row.file_count,
            row.row_count,
            row.size_bytes,
            json.loads(row.properties) if row.properties else {},
            PartitionState.QUARANTINED if row.is_quarantined else PartitionState.VISIBLE,
            row.created_at_ms,
        )


class _ScanRun:
    """One search in one transaction."""

    def __init__(self, connection: Connection, table: Table, plan: ScanPlan, counts: ScanCounts) -> None:
        self._connection = connection
        self._table = table
        self._plan = plan
        self._counts = counts
        self._whole = compile_predicate(plan.expression)
        self._residual = None if plan.residual is None else compile_predicate(plan.residual)
        self._reader = ValueReader(table)
        self._factory = PartitionFactory(table)

    def matching(self) -> Iterator[Partition]:
        """Yield the partitions that match, quarantined ones too."""
        if self._plan.index is None:
            for row in _pages_by_id(self._connection, partition_query(self._table)):
                self._counts.partitions_fetched += 1
                yield from self._checked(row, is_exact=True)
        elif self._plan.checked_in_index is None:
            yield from self._through_join()
        else:
            yield from self._through_items()

    def _checked(self, row: Row[Any], *, is_exact: bool) -> Iterator[Partition]:
        partition = self._factory.make(row)
        check = self._residual if is_exact else self._whole
        if check is None or check(self._reader.typed(partition.values)) is True:
            yield partition

    def _through_join(self) -> Iterator[Partition]:
        """Read items and their partitions in one statement a page; the range answers for every key of the index."""
        columns = [IndexItemRow.key.label("item_key"), IndexItemRow.partition_id, *_PARTITION_COLUMNS]
        query = select(*columns).join(PartitionRow, PartitionRow.id == IndexItemRow.partition_id)
        for row in self._item_pages(query):
            self._counts.partitions_fetched += 1
            yield from self._checked(row, is_exact=not is_cut(row.item_key))

    def _through_items(self) -> Iterator[Partition]:
        """Read items, check the decoded keys, and fetch the partitions of those that pass."""
        assert self._plan.index is not None
        assert self._plan.checked_in_index is not None
        positions = [self._table.key_names.index(key) for key in self._plan.index.keys]
        types = [self._table.key_types[position] for position in positions]
        matches = compile_predicate(self._plan.checked_in_index)
        values: list[Any] = [None] * len(self._table.key_types)
        wanted: dict[int, bool] = {}
        query = select(IndexItemRow.key.label("item_key"), IndexItemRow.partition_id)
        for row in self._item_pages(query):
            is_exact = not is_cut(row.item_key)
            if is_exact:
                for position, value in zip(positions, decode_key(types, row.item_key), strict=True):
                    values[position] = value
                if matches(values) is not True:
                    continue
            wanted[row.partition_id] = is_exact
            if len(wanted) == _PAGE:
                yield from self._fetched(wanted)
                wanted.clear()
        yield from self._fetched(wanted)

    def _fetched(self, wanted: dict[int, bool]) -> Iterator[Partition]:
        if not wanted:
            return
        query = partition_query(self._table).where(among(self._connection, PartitionRow.id, list(wanted)))
        for row in self._connection.execute(query):
            self._counts.partitions_fetched += 1
            yield from self._checked(row, is_exact=wanted[row.id])

    def _item_pages(self, query: Query) -> Iterator[Row[Any]]:
        """Yield the rows of a query on items inside the plan's range, a keyset page at a time."""
        assert self._plan.index is not None
        key_range = self._plan.key_range
        assert key_range is not None
        if key_range.is_empty:
            return
        order = (IndexItemRow.key, IndexItemRow.partition_id)
        query = query.where(
            IndexItemRow.index_id == self._plan.index.id,
            IndexItemRow.key >= key_range.low,
            IndexItemRow.key < key_range.high,
        )
        page = query.order_by(*order).limit(_PAGE)
        while rows := self._connection.execute(page).all():
            self._counts.items_read += len(rows)
            yield from rows
            if len(rows) < _PAGE:
                return
            last = (rows[-1].item_key, rows[-1].partition_id)
            page = query.where(tuple_(*order) > last).order_by(*order).limit(_PAGE)


_PARTITION_COLUMNS = (
    PartitionRow.id,
    PartitionRow.packed_values,
    PartitionRow.location,
    PartitionRow.file_count,
    PartitionRow.row_count,
    PartitionRow.size_bytes,
    PartitionRow.properties,
    PartitionRow.is_quarantined,
    PartitionRow.created_at_ms,
)


def partition_query(table: Table) -> Query:
    """Return the query of a table's partitions, as `PartitionFactory` takes them."""
    return select(*_PARTITION_COLUMNS).where(PartitionRow.table_id == table.id)


def _pages_by_id(connection: Connection, query: Query) -> Iterator[Row[Any]]:
    """Yield the rows of a query on partitions, a keyset page at a time."""
    last_id: ColumnElement[bool] | None = None
    while True:
        page = query if last_id is None else query.where(last_id)
        rows = connection.execute(page.order_by(PartitionRow.id).limit(_PAGE)).all()
        yield from rows
        if len(rows) < _PAGE:
            return
        last_id = PartitionRow.id > rows[-1].id
