"""Search for partitions, through an index if possible, else through a full scan.

A search with a cached plan and a small result is one statement: it carries the table's version at planning time, and
returns nothing if the version has changed. All other searches, and those that returned nothing, run in one transaction
that also reads the table's definition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Any

from sqlalchemy import Connection

from catalog.errors import InvalidPartitionSpecError, PartitionNotFoundError
from catalog.expressions import Expression, Filter, parse_expression
from catalog.expressions.tree import ALL, NONE
from catalog.indexes.definitions import list_indexes
from catalog.indexes.keys import MAXIMUM_KEY_BYTES, decode_value, is_cut, split_key
from catalog.indexes.planner import (
    MAXIMUM_SKIPPED,
    ScanPlan,
    Skip,
    candidate_plans,
    full_scan,
    ranges_behind,
    stored_ranges,
)
from catalog.model import Partition, PartitionState, Table
from catalog.model.partition_names import partition_path
from catalog.partitions.queries import Queries, Query
from catalog.partitions.specs import PartitionSpec, spec_filter, spec_values
from catalog.partitions.spooling import read_apart
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.storage.partition_rows import PartitionFactory, PartitionRecord, partition_query
from catalog.storage.schema import PartitionRow
from catalog.storage.values import ValueEncoder, read_packed
from catalog.tables.checks import refuse_iceberg
from catalog.tables.definitions import Definitions
from catalog.types.ranges import KeyRange, Ranges

_PAGE = 5_000
_QUICK = 1_000
"""Searches that return fewer partitions run as one statement."""

_COUNTED = (1_000, 50_000)
"""Limits, tried in turn, for counting the items that the plans of several indexes would read."""

_CURSOR = "calve_partitions"
_MAXIMUM_PREPARED = 512
_PREPARED_SECONDS = 60.0


@dataclass
class ScanCounts:
    """Counts of what a search has read so far.

    Attributes:
        partitions_in_other_states: Partitions that match the filter, and are quarantined, or are not, unlike those that
            the search looks for.
        is_cut: Whether the search has stopped at its limit, so that the counts are lower bounds.
    """

    items_read: int = 0
    partitions_fetched: int = 0
    partitions_in_other_states: int = 0
    partitions_found: int = 0
    is_cut: bool = False


@dataclass
class ScanState:
    """The progress of a search; `Scan` describes the attributes."""

    table: Table
    plan: ScanPlan
    counts: ScanCounts = field(default_factory=ScanCounts)
    ranges: Ranges = ()
    limit: int | None = None


@dataclass(frozen=True)
class Scan:
    """A search, which runs as the caller iterates over `partitions`.

    The whole search sees one committed state of the catalog.
    """

    partitions: Iterator[Partition]
    # In an object of its own: the iterator updates it, and must not refer to the `Scan`. In a reference cycle, only the
    # garbage collector would close the connection when the caller stops early.
    _state: ScanState

    @property
    def table(self) -> Table:
        """The table as of the search."""
        return self._state.table

    @property
    def plan(self) -> ScanPlan:
        """The plan of the search; it may change when the search starts, if the table has changed meanwhile."""
        return self._state.plan

    @property
    def counts(self) -> ScanCounts:
        """Counts of rows and index items read so far."""
        return self._state.counts

    @property
    def ranges(self) -> Ranges:
        """The ranges of index keys that the search reads, once it has started."""
        return self._state.ranges


class Scanner:
    """Searches the partitions of all tables of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Set the storage and the definitions in it."""
        self._storage = storage
        self._definitions = definitions
        self._queries = Queries(storage.is_postgresql)
        self._prepared: dict[tuple[str, str | None, bool], _Prepared] = {}

    def scan(
        self,
        name: str,
        expression: str | None,
        *,
        use_indexes: bool,
        state: PartitionState | None,
        limit: int | None = None,
    ) -> Scan:
        """Plan a search; it reads no partition before the caller asks for the first one.

        Args:
            limit: The number of items, or of partitions without an index, at which the search stops (`is_cut`); it
                reads whole pages. None for no limit.
        """
        request = (name, expression, use_indexes)
        prepared = self._prepared.get(request)
        if prepared is None or prepared.expires_at < time.monotonic():
            with self._storage.read() as connection:
                prepared = self._prepare(connection, *request)
        scan = ScanState(prepared.table, prepared.plan, limit=limit)
        return Scan(self._run(scan, prepared, request, state), scan)

    def scan_within(
        self, connection: Connection, name: str, expression: str | None, state: PartitionState | None
    ) -> tuple[Table, list[Partition]]:
        """Return a table and its partitions that match an expression, in the caller's transaction."""
        request = (name, expression, True)
        prepared = self._prepare(connection, *request)
        scan = ScanState(prepared.table, prepared.plan)
        pages = self._pages(scan, prepared, request, state, connection)
        return scan.table, [partition for page in pages for partition in PartitionFactory(scan.table).make_all(page)]

    def find_few(self, connection: Connection, table: Table, expression: str | None, limit: int) -> list[int] | None:
        """Return the ids of the partitions that match an expression, visible or not, in the caller's transaction.

        Returns:
            None if no index finds them by reading at most `limit` items.
        """
        request = (table.full_name, expression, True)
        prepared = self._prepare(connection, *request)
        plan, ranges = self._resolved(connection, prepared.plan)
        if plan.index is None or ranges is None or self._count(connection, plan, ranges, limit + 1) > limit:
            return None
        scan = ScanState(prepared.table, prepared.plan)
        return [row[0] for page in self._pages(scan, prepared, request, None, connection) for row in page]

    def _prepare(self, connection: Connection, name: str, expression: str | None, use_indexes: bool) -> _Prepared:
        table = self._definitions.get_hive_table(name, connection)
        tree = parse_expression(expression, table)
        indexes = list_indexes(connection, table.id) if use_indexes else []
        plans, not_used = candidate_plans(table, indexes, tree)
        plan = self._cheapest(connection, plans, not_used) if plans else full_scan(tree, not_used)
        prepared = _Prepared(table, plan, self._queries)
        if len(self._prepared) >= _MAXIMUM_PREPARED:
            self._prepared.clear()
        self._prepared[name, expression, use_indexes] = prepared
        return prepared

    def _cheapest(self, connection: Connection, plans: Sequence[ScanPlan], not_used: dict[str, str]) -> ScanPlan:
        """Return the plan that reads the fewest items, or the first of several such plans."""
        best, counts = plans[0], [0] * len(plans)
        if len(plans) > 1:
            ranges = [self._resolved(connection, plan)[1] for plan in plans]
            for limit in _COUNTED:
                counts = [
                    limit if plan_ranges is None else self._count(connection, plan, plan_ranges, limit)
                    for plan, plan_ranges in zip(plans, ranges, strict=True)
                ]
                if min(counts) < limit:
                    break
            best = plans[counts.index(min(counts))]
        for plan, count in zip(plans, counts, strict=True):
            if plan is not best and plan.index and best.index:
                fewest = min(counts)
                comparison = f"{fewest:,} item(s) against {count:,}" if count > fewest else f"as many items, {count:,}"
                not_used[plan.index.name] = f"{best.index.name} reads {comparison}{' or more' * (count in _COUNTED)}"
        best.not_used.update(not_used)
        return best

    def _count(self, connection: Connection, plan: ScanPlan, ranges: Ranges, limit: int) -> int:
        if not ranges:
            return 0
        assert plan.index is not None
        items = self._queries.items(plan.index.id, ranges).limited(limit)
        sql = f"SELECT count(*) FROM ({items.sql}) AS counted"
        return int(connection.exec_driver_sql(sql, items.parameters).scalar_one())

    def _resolved(self, connection: Connection, plan: ScanPlan) -> tuple[ScanPlan, Ranges | None]:
        """Return the executable plan, and the ranges that it reads; None if it reads all partitions."""
        if plan.index is None:
            return plan, None
        if plan.skip is None:
            return plan, plan.ranges
        prefixes = self._skipped(connection, plan.index.id, plan.ranges, plan.skip)
        if prefixes is not None:
            return plan, ranges_behind(prefixes, plan.skip)
        if plan.skip.otherwise is not None:
            return self._resolved(connection, plan.skip.otherwise)
        reason = f"its first key {plan.skip.name} is not bound and has more than {MAXIMUM_SKIPPED} values"
        return full_scan(plan.expression, {**plan.not_used, plan.index.name: reason}), None

    def _skipped(self, connection: Connection, index_id: int, heads: Ranges, skip: Skip) -> list[KeyRange] | None:
        """Return each head extended by each value of the skipped key; None if there are too many values."""
        whole = [head for head in heads if not is_cut(head.low)]
        prefixes = [*stored_ranges(head for head in heads if is_cut(head.low))]
        if whole:
            query = self._queries.distinct_values(index_id, [head.low for head in whole], skip.key_type)
            query = query.limited(MAXIMUM_SKIPPED + 1)
            values = [bytes(value) for (value,) in connection.exec_driver_sql(*query)]
            if len(values) > MAXIMUM_SKIPPED:
                return None
            prefixes += [skip.prefix(value, whole) for value in values]
        return sorted(prefixes, key=lambda prefix: prefix.low)

    def _run(
        self, scan: ScanState, prepared: _Prepared, request: tuple[str, str | None, bool], state: PartitionState | None
    ) -> Iterator[Partition]:
        rows = self._storage.fetch(*prepared.quick) if prepared.quick else []
        if 0 < len(rows) < _QUICK:
            scan.ranges = prepared.plan.ranges
            scan.counts.items_read = len(rows)
            yield from prepared.factory.make_all(self._matching(scan, prepared, rows, state))
            return
        factory: PartitionFactory | None = None
        for page in read_apart(self._storage, partial(self._pages, scan, prepared, request, state)):
            factory = factory or PartitionFactory(scan.table)
            yield from factory.make_all(page)

    def _pages(
        self,
        scan: ScanState,
        prepared: _Prepared,
        request: tuple[str, str | None, bool],
        state: PartitionState | None,
        connection: Connection,
    ) -> Iterator[Sequence[PartitionRecord]]:
        if self._definitions.get_hive_table(request[0], connection).version != prepared.table.version:
            prepared = self._prepare(connection, *request)
        plan, ranges = self._resolved(connection, prepared.plan)
        if plan is not prepared.plan:
            prepared = _Prepared(prepared.table, plan, self._queries)
        scan.table, scan.plan, scan.ranges = prepared.table, plan, ranges or ()
        search = _Search(connection, self._queries, prepared, ranges, scan.counts, scan.limit)
        for page in search.pages():
            yield self._matching(scan, prepared, page, state)

    @staticmethod
    def _matching(
        scan: ScanState, prepared: _Prepared, rows: Sequence[PartitionRecord], state: PartitionState | None
    ) -> Sequence[PartitionRecord]:
        scan.counts.partitions_fetched += len(rows)
        matches = prepared.matching(rows)
        if state is not None:
            is_quarantined = state is PartitionState.QUARANTINED
            scan.counts.partitions_in_other_states += sum(row[7] != is_quarantined for row in matches)
            matches = [row for row in matches if row[7] == is_quarantined]
        scan.counts.partitions_found += len(matches)
        return matches

    def get(self, table: Table, values: Sequence[str | None]) -> Partition:
        """Return one partition; see `Catalog.get_partition`."""
        refuse_iceberg(table)
        identity = ValueEncoder(table).identity(values)
        with self._storage.read() as connection:
            query = partition_query(table).where(PartitionRow.identity == identity)
            row = connection.execute(query).one_or_none()
        if row is None:
            path = partition_path(table.key_names, values)
            raise PartitionNotFoundError(f"table {table.full_name} has no partition {path}")
        return PartitionFactory(table).make(row)

    def find_by_spec(self, table: Table, spec: PartitionSpec, *, or_none: bool = False) -> list[int]:
        """Return the ids of the partitions that a spec names, including quarantined ones.

        Args:
            or_none: Return an empty list if no partition matches.

        Raises:
            InvalidPartitionSpecError: As for `spec_values`; or the spec names no key.
            PartitionNotFoundError: No partition matches, and `or_none` is false.
        """
        values = spec_values(table, spec)
        if not values:
            raise InvalidPartitionSpecError(f"the partition spec for {table.full_name} is empty; name at least one key")
        ids = [partition.id for partition in self.with_values(table, values)]
        if not ids and not or_none:
            named = ", ".join(f"{table.key_names[position]}={value}" for position, value in values.items())
            raise PartitionNotFoundError(f"table {table.full_name} has no partition with {named}")
        return ids

    def with_values(self, table: Table, values: Mapping[int, str | None]) -> list[Partition]:
        """Return the partitions with these values, given by position of the key, including hidden ones."""
        if len(values) == len(table.partition_keys):
            try:
                return [self.get(table, tuple(values.values()))]
            except PartitionNotFoundError:
                return []
        scan = self.scan(table.full_name, spec_filter(table, values), use_indexes=True, state=None)
        encoder = ValueEncoder(table)
        expected = {position: encoder.encoded(position, value) for position, value in values.items()}
        return [
            partition
            for partition in scan.partitions
            if all(encoder.encoded(position, partition.values[position]) == expected[position] for position in expected)
        ]

    def of_operation(self, name: str, operation_number: int) -> Iterator[Partition]:
        """Yield the partitions that an operation added, in no particular order, including hidden ones."""
        table = self._definitions.get_hive_table(name)
        query = self._queries.partitions_of_operation(table.id, operation_number)
        for page in read_apart(self._storage, partial(read_pages, query=query)):
            yield from PartitionFactory(table).make_all(page)


class _Prepared:
    """A plan with everything that can be prepared before its execution."""

    def __init__(self, table: Table, plan: ScanPlan, queries: Queries) -> None:
        self.table = table
        self.plan = plan
        self.factory = PartitionFactory(table)
        self._readers = {number: partial(read_packed, key_type) for number, key_type in enumerate(table.key_types)}
        self._residual = self._filter(plan.residual)
        self._whole = None if plan.index is None else self._filter(plan.expression)
        # An encoded character has at most 4 bytes, a terminator 1, and values of other types their type's width.
        self._shortest_cut = (MAXIMUM_KEY_BYTES - sum(key_type.width or 1 for key_type in table.key_types)) // 4
        # The choice of the cheapest plan depends on counts, which become outdated.
        self.expires_at = time.monotonic() + _PREPARED_SECONDS
        self.quick: Query | None = None
        if plan.index and plan.ranges and plan.skip is None and plan.checked_in_index == ALL:
            self.quick = queries.first_partitions_in_ranges(plan.index.id, plan.ranges, _QUICK, table.id, table.version)

    def _filter(self, expression: Expression) -> Filter[str] | None:
        return None if expression == ALL else Filter(expression, self._readers)

    def matching(self, rows: Sequence[PartitionRecord]) -> Sequence[PartitionRecord]:
        """Return the rows that match the conditions that the index has not answered."""
        rows = _filtered(rows, self._residual)
        if self._whole is None:
            return rows
        cut = [row for row in rows if len(row[1]) >= self._shortest_cut]
        if not cut:
            return rows
        return [row for row in rows if len(row[1]) < self._shortest_cut] + list(_filtered(cut, self._whole))


def _filtered(rows: Sequence[PartitionRecord], condition: Filter[str] | None) -> Sequence[PartitionRecord]:
    if condition is None or not rows:
        return rows
    width = rows[0][1].count("/") + 1
    # Split one joined string: a list per row would take longer than all the rest of the search.
    pieces = "/".join([row[1] for row in rows]).split("/")
    return list(compress(rows, condition.mask({key: pieces[key::width] for key in range(width)})))


class _Search:
    """One search in one transaction."""

    def __init__(
        self,
        connection: Connection,
        queries: Queries,
        prepared: _Prepared,
        ranges: Ranges | None,
        counts: ScanCounts,
        limit: int | None,
    ) -> None:
        self._connection = connection
        self._limit = limit
        self._queries = queries
        self._table = prepared.table
        self._plan = prepared.plan
        self._ranges = ranges
        self._counts = counts

    def pages(self) -> Iterator[Sequence[PartitionRecord]]:
        """Yield the rows of the partitions that the index returns, or of all partitions."""
        if self._plan.expression == NONE:
            return
        if self._plan.index is None:
            yield from self._limited(read_pages(self._connection, self._queries.all_partitions(self._table.id)))
        elif self._ranges and self._plan.checked_in_index == ALL:
            query = self._queries.partitions_in_ranges(self._plan.index.id, self._ranges)
            for page in self._limited(read_pages(self._connection, query)):
                self._counts.items_read += len(page)
                yield page
        elif self._ranges:
            for ids in batched(self._checked_ids(self._ranges), _PAGE):
                yield self._connection.exec_driver_sql(*self._queries.partitions_by_id(ids)).all()

    def _limited(self, pages: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Yield pages up to the limit."""
        count = 0
        for page in pages:
            if self._limit is not None and count >= self._limit:
                self._counts.is_cut = True
                return
            count += len(page)
            yield page

    def _checked_ids(self, ranges: Ranges) -> Iterator[int]:
        """Yield the ids of the items whose key matches, and of those whose key is cut, which decides nothing."""
        assert self._plan.index is not None
        positions = [self._table.key_names.index(key) for key in self._plan.index.keys]
        types = [self._table.key_types[position] for position in positions]
        readers = {position: partial(decode_value, self._table.key_types[position]) for position in positions}
        condition = Filter(self._plan.checked_in_index, readers)
        for page in self._limited(read_pages(self._connection, self._queries.items(self._plan.index.id, ranges))):
            self._counts.items_read += len(page)
            whole = [(bytes(key), partition_id) for key, partition_id in page if not is_cut(key)]
            yield from (partition_id for key, partition_id in page if is_cut(key))
            if whole:
                columns = zip(*[split_key(types, key) for key, _ in whole], strict=True)
                mask = condition.mask(dict(zip(positions, columns, strict=True)))
                yield from compress((partition_id for _, partition_id in whole), mask)


def read_pages(connection: Connection, query: Query) -> Iterator[Sequence[Any]]:
    """Yield the rows of a query in pages, without loading all of them.

    Uses the driver's cursor, because creating SQLAlchemy's rows takes longer than creating partitions.
    """
    driver = connection.connection.driver_connection
    assert driver is not None
    with closing(driver.cursor(_CURSOR) if connection.dialect.name == "postgresql" else driver.cursor()) as cursor:
        cursor.execute(*query)
        while page := cursor.fetchmany(_PAGE):
            yield page
