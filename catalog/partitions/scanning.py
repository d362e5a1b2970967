"""Search for partitions, through an index if possible, else through a full scan.

A search with a cached plan and a small result is one statement: it carries the table's version at planning time, and
returns nothing if the version has changed. All other searches, and those that returned nothing, run in one transaction
that also reads the table's definition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, repeat
from typing import Any, NamedTuple

from sqlalchemy import Connection

from catalog.errors import InvalidPartitionSpecError, PartitionNotFoundError
from catalog.expressions import Expression, Filter, parse_expression
from catalog.expressions.evaluation import comparing_nulls
from catalog.expressions.tree import ALL, NONE
from catalog.indexes.definitions import list_indexes
from catalog.indexes.keys import MAXIMUM_KEY_BYTES, decode_value, is_cut, split_key
from catalog.indexes.planner import ScanPlan, candidate_plans, full_scan
from catalog.indexes.skipping import Reading, resolve
from catalog.model import Partition, PartitionState, Table
from catalog.model.partition_names import partition_path
from catalog.partitions.lookups import LookUps, count_items, in_batches
from catalog.partitions.queries import Queries, Query
from catalog.partitions.reading import PAGE, read_all, read_pages, read_values
from catalog.partitions.scans import RowScan, Scan, ScanCounts, ScanState
from catalog.partitions.specs import PartitionSpec, spec_filter, spec_values
from catalog.partitions.spooling import read_apart
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.storage.partition_rows import (
    PARTITION_COLUMNS,
    PartitionFactory,
    PartitionRecord,
    partition_query,
)
from catalog.storage.schema import PartitionRow
from catalog.storage.values import ValueEncoder, read_packed
from catalog.tables.checks import refuse_iceberg
from catalog.tables.definitions import Definitions
from catalog.types.ranges import Ranges

NAME_COLUMNS = ("packed_values", "is_quarantined")
"""The columns of a partition that its name and its state need."""

_QUICK = 1_000
"""Searches that return fewer partitions run as one statement."""

_COUNTED = (1_000, 50_000)
"""Limits, tried in turn, for counting the items that the plans of several indexes would read."""

_FEW = 4
"""If one partition of so many matches, or fewer, those that match are fetched by their ids."""

_MAXIMUM_PREPARED = 512
_PREPARED_SECONDS = 60.0


class _Request(NamedTuple):
    """The arguments that a plan depends on."""

    name: str
    expression: str | None
    use_indexes: bool
    columns: tuple[str, ...] = PARTITION_COLUMNS
    nulls_are_texts: bool = False


class Scanner:
    """Searches the partitions of all tables of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions) -> None:
        """Set the storage and the definitions in it."""
        self._storage = storage
        self._definitions = definitions
        self._queries = Queries(storage.is_postgresql)
        self._prepared: dict[_Request, _Prepared] = {}

    def scan(
        self,
        name: str,
        expression: str | None,
        *,
        use_indexes: bool,
        state: PartitionState | None,
        limit: int | None = None,
        nulls_are_texts: bool = False,
    ) -> Scan:
        """Plan a search; it reads no partition before the caller asks for the first one.

        Args:
            nulls_are_texts: As for `Catalog.partition_page`.
            limit: The number of items, or of partitions without an index, at which the search stops (`is_cut`); it
                reads whole pages. None for no limit.
        """
        request = _Request(name, expression, use_indexes, nulls_are_texts=nulls_are_texts)
        scan, prepared, pages = self._planned(request, state, limit)
        return Scan(_partitions(scan, pages, prepared), scan)

    def scan_rows(
        self,
        name: str,
        expression: str | None,
        columns: Sequence[str],
        *,
        use_indexes: bool,
        state: PartitionState | None,
    ) -> RowScan:
        """Plan a search for some columns of partitions.

        Args:
            columns: Columns of `PartitionRow`; `NAME_COLUMNS` come before them.
        """
        request = _Request(name, expression, use_indexes, (*NAME_COLUMNS, *columns))
        scan, _, pages = self._planned(request, state)
        return RowScan(pages, scan)

    def _planned(
        self, request: _Request, state: PartitionState | None, limit: int | None = None
    ) -> tuple[ScanState, _Prepared, Iterator[Sequence[PartitionRecord]]]:
        prepared = self._prepared.get(request)
        if prepared is None or prepared.expires_at < time.monotonic():
            with self._storage.read() as connection:
                prepared = self._prepare(connection, request)
        scan = ScanState(prepared.table, prepared.plan, limit=limit)
        return scan, prepared, self._run(scan, prepared, request, state)

    def scan_within(
        self, connection: Connection, name: str, expression: str | None, state: PartitionState | None
    ) -> tuple[Table, list[Partition]]:
        """Return a table and its partitions that match an expression, in the caller's transaction."""
        request = _Request(name, expression, True)
        prepared = self._prepare(connection, request)
        scan = ScanState(prepared.table, prepared.plan)
        pages = self._pages(scan, prepared, request, state, connection)
        return scan.table, [partition for page in pages for partition in PartitionFactory(scan.table).make_all(page)]

    def find_few(
        self, connection: Connection, table: Table, expression: str | None, limit: int, *, by_index: bool = True
    ) -> list[int] | None:
        """Return the ids of the partitions that match an expression, visible or not, in the caller's transaction.

        Args:
            by_index: Give up if no index finds them by reading at most `limit` items.

        Returns:
            None if they are more than the limit, or cannot be found so.
        """
        request = _Request(table.full_name, expression, True)
        prepared = self._prepare(connection, request)
        reading = self._resolved(connection, prepared)[1]
        if by_index and (reading is None or self._count(connection, reading, limit + 1) > limit):
            return None
        scan, ids = ScanState(prepared.table, prepared.plan), list[int]()
        for page in self._pages(scan, prepared, request, None, connection):
            ids += (row[0] for row in page)
            if len(ids) > limit:
                return None
        return ids

    def _prepare(self, connection: Connection, request: _Request) -> _Prepared:
        table = self._definitions.get_hive_table(request.name, connection)
        tree = parse_expression(request.expression, table)
        if request.nulls_are_texts:
            tree = comparing_nulls(tree, table.key_types)
        indexes = list_indexes(connection, table.id) if request.use_indexes else []
        plans, not_used = candidate_plans(table, indexes, tree)
        queries = Queries(self._storage.is_postgresql, request.columns)
        if len(plans) > 1:
            candidates = [_Prepared(table, plan, queries) for plan in plans]
            prepared = self._cheapest(connection, candidates, not_used)
        else:
            prepared = _Prepared(table, plans[0] if plans else full_scan(tree, {}), queries)
        prepared.plan.not_used.update(not_used)
        self._keep(request, prepared)
        return prepared

    def _keep(self, request: _Request, prepared: _Prepared) -> None:
        if len(self._prepared) >= _MAXIMUM_PREPARED:
            self._prepared.clear()
        self._prepared[request] = prepared

    def _cheapest(self, connection: Connection, candidates: Sequence[_Prepared], not_used: dict[str, str]) -> _Prepared:
        """Return the plan that reads the fewest items and looks up the fewest values, or the first of several ones.

        Args:
            not_used: Gets the reasons why the other plans are not used.
        """
        resolved = [self._resolved(connection, candidate) for candidate in candidates]
        counts: list[int] = []
        for limit in _COUNTED:
            counts = [
                limit if reading is None else self._count(connection, reading, limit) for _, reading, _ in resolved
            ]
            if min(counts) < limit:
                break
        costs = [count + looked_up for count, (_, _, looked_up) in zip(counts, resolved, strict=True)]
        chosen = costs.index(min(costs))
        best, _, looked_up = resolved[chosen]
        for candidate, count, (_, _, others) in zip(candidates, counts, resolved, strict=True):
            index = candidate.plan.index
            if candidate is candidates[chosen] or index is None or best.plan.index is None:
                continue
            fewest = f"{counts[chosen]:,} item(s) against" if count != counts[chosen] else "as many items,"
            reason = f"{best.plan.index.name} reads {fewest} {count:,}{' or more' * (count in _COUNTED)}"
            if others != looked_up:
                reason += f", and looks up {looked_up:,} value(s) against {others:,}"
            not_used[index.name] = reason
        return best

    def _count(self, connection: Connection, reading: Reading, limit: int) -> int:
        assert reading.plan.index is not None
        return count_items(connection, self._queries, reading.plan.index.id, reading.ranges, limit)

    def _resolved(self, connection: Connection, prepared: _Prepared) -> tuple[_Prepared, Reading | None, int]:
        """Return the executable plan, the ranges that it reads (None for all partitions), and the values looked up."""
        plan = prepared.plan
        if plan.index is None:
            return prepared, None, 0
        look_ups = LookUps(connection, self._queries, plan.index.id, is_measured=prepared.is_measured)
        reading = resolve(plan, look_ups)
        if reading is None:
            reason = f"{look_ups.refusal}; reading all partitions takes less time"
            chosen = full_scan(plan.expression, {**plan.not_used, plan.index.name: reason})
            return prepared.changed(chosen), None, look_ups.count
        reading.plan.not_used.update(plan.not_used)
        if reading.plan is plan and (prepared.is_measured or not plan.skips):
            return prepared, reading, look_ups.count
        not_skipped = None if reading.plan is plan else look_ups.refusal
        return prepared.changed(reading.plan, not_skipped), reading, look_ups.count

    def _run(
        self, scan: ScanState, prepared: _Prepared, request: _Request, state: PartitionState | None
    ) -> Iterator[Sequence[PartitionRecord]]:
        rows = self._storage.fetch(*prepared.quick) if prepared.quick else []
        if 0 < len(rows) < _QUICK:
            scan.reading = Reading(prepared.plan, prepared.plan.ranges)
            scan.not_skipped = prepared.not_skipped
            scan.counts.items_read = len(rows)
            yield self._matching(scan, prepared, rows, state)
            return
        yield from read_apart(self._storage, partial(self._pages, scan, prepared, request, state))

    def _pages(
        self,
        scan: ScanState,
        prepared: _Prepared,
        request: _Request,
        state: PartitionState | None,
        connection: Connection,
    ) -> Iterator[Sequence[PartitionRecord]]:
        if self._definitions.get_hive_table(request.name, connection).version != prepared.table.version:
            prepared = self._prepare(connection, request)
        chosen, reading, scan.counts.values_looked_up = self._resolved(connection, prepared)
        if chosen is not prepared:
            # The next search does not find out again which look-ups pay.
            self._keep(request, chosen)
        scan.table, scan.plan, scan.reading, scan.not_skipped = chosen.table, chosen.plan, reading, chosen.not_skipped
        search = _Search(connection, chosen, reading, scan.counts, scan.limit)
        for page in search.pages():
            yield self._matching(scan, chosen, page, state)

    @staticmethod
    def _matching(
        scan: ScanState, prepared: _Prepared, rows: Sequence[PartitionRecord], state: PartitionState | None
    ) -> Sequence[PartitionRecord]:
        scan.counts.partitions_fetched += len(rows)
        matches = prepared.matching(rows)
        if state is not None:
            is_quarantined = state is PartitionState.QUARANTINED
            at = prepared.quarantined_at
            scan.counts.partitions_in_other_states += sum(row[at] != is_quarantined for row in matches)
            matches = [row for row in matches if row[at] == is_quarantined]
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


def _partitions(
    scan: ScanState, pages: Iterator[Sequence[PartitionRecord]], prepared: _Prepared
) -> Iterator[Partition]:
    for page in pages:
        # The table may have changed before the search started.
        factory = prepared.factory if scan.table is prepared.table else PartitionFactory(scan.table)
        yield from factory.make_all(page)


class _Prepared:
    """A plan with everything that can be prepared before its execution."""

    def __init__(self, table: Table, plan: ScanPlan, queries: Queries) -> None:
        self.table = table
        self.plan = plan
        self.queries = queries
        self.factory = PartitionFactory(table)
        self.is_measured = False
        self.not_skipped: str | None = None
        self.quarantined_at = queries.columns.index("is_quarantined")
        self._packed_at = queries.columns.index("packed_values")
        self._readers = {number: partial(read_packed, key_type) for number, key_type in enumerate(table.key_types)}
        self._residual = self._filter(plan.residual)
        self._whole = None if plan.index is None else self._filter(plan.expression)
        # An encoded character has at most 4 bytes, a terminator 1, and values of other types their type's width.
        self._shortest_cut = (MAXIMUM_KEY_BYTES - sum(key_type.width or 1 for key_type in table.key_types)) // 4
        # The choice of the cheapest plan depends on counts, which become outdated.
        self.expires_at = time.monotonic() + _PREPARED_SECONDS
        self.quick: Query | None = None
        if plan.index and plan.ranges and not plan.skips and plan.checked_in_index == ALL:
            self.quick = queries.first_partitions_in_ranges(plan.index.id, plan.ranges, _QUICK, table.id, table.version)

    def changed(self, plan: ScanPlan, not_skipped: str | None = None) -> _Prepared:
        """Return the same with the plan of which a search has found that its look-ups pay."""
        prepared = _Prepared(self.table, plan, self.queries)
        prepared.factory = self.factory
        prepared.expires_at, prepared.is_measured, prepared.not_skipped = self.expires_at, True, not_skipped
        return prepared

    def _filter(self, expression: Expression) -> Filter[str] | None:
        return None if expression == ALL else Filter(expression, self._readers)

    def matching(self, rows: Sequence[PartitionRecord]) -> Sequence[PartitionRecord]:
        """Return the rows that match the conditions that the index has not answered."""
        rows, at = self._filtered(rows, self._residual), self._packed_at
        if self._whole is None:
            return rows
        cut = [row for row in rows if len(row[at]) >= self._shortest_cut]
        if not cut:
            return rows
        return [row for row in rows if len(row[at]) < self._shortest_cut] + list(self._filtered(cut, self._whole))

    def _filtered(self, rows: Sequence[PartitionRecord], condition: Filter[str] | None) -> Sequence[PartitionRecord]:
        if condition is None or not rows:
            return rows
        at = self._packed_at
        # Split one joined string: a list per row would take longer than all the rest of the search.
        return list(compress(rows, self._mask("/".join([row[at] for row in rows]), condition)))

    def mask(self, lines: str) -> Iterable[bool]:
        """Return whether partitions match the conditions that the index has not answered.

        Args:
            lines: Their values, separated by line breaks.
        """
        return repeat(True) if self._residual is None else self._mask(lines.replace("\n", "/"), self._residual)

    def _mask(self, packed: str, condition: Filter[str]) -> Iterable[bool]:
        pieces, width = packed.split("/"), len(self.table.key_types)
        return condition.mask({key: pieces[key::width] for key in range(width)})


class _Search:
    """One search in one transaction."""

    def __init__(
        self,
        connection: Connection,
        prepared: _Prepared,
        reading: Reading | None,
        counts: ScanCounts,
        limit: int | None,
    ) -> None:
        self._connection = connection
        self._limit = limit
        self._prepared = prepared
        self._queries = prepared.queries
        self._table = prepared.table
        self._plan = prepared.plan
        self._ranges = reading.ranges if reading else ()
        self._counts = counts

    def pages(self) -> Iterator[Sequence[PartitionRecord]]:
        """Yield the rows of the partitions that the index returns, or of all partitions."""
        if self._plan.expression == NONE:
            return
        if self._plan.index is None:
            yield from self._all() if self._plan.residual == ALL else self._matching()
        elif self._plan.checked_in_index == ALL:
            for page in self._limited(self._in_ranges(self._queries.partitions_in_ranges)):
                self._counts.items_read += len(page)
                yield page
        else:
            for ids in batched(self._checked_ids(), PAGE):
                yield read_all(self._connection, self._queries.partitions_by_id(ids))

    def _all(self) -> Iterator[Sequence[Any]]:
        yield from self._limited(read_pages(self._connection, self._queries.all_partitions(self._table.id)))

    def _matching(self) -> Iterator[Sequence[Any]]:
        """Yield the rows of the partitions that may match, having read only the values of all others."""
        table_id, total = self._table.id, 0
        for first, last, count, lines in read_values(self._connection, table_id):
            if self._limit is not None and total >= self._limit:
                self._counts.is_cut = True
                return
            total += count
            ids: Iterable[int] = range(first, last + 1)
            if last + 1 - first != count:
                ids = (row[0] for row in read_all(self._connection, self._queries.ids_between(table_id, first, last)))
            chosen = list(compress(ids, self._prepared.mask(lines)))
            query = self._queries.partitions_between(table_id, first, last)
            if len(chosen) <= count // _FEW:
                query = self._queries.partitions_by_id(chosen)
            rows = read_all(self._connection, query) if chosen else []
            self._counts.partitions_fetched += count - len(rows)
            if rows:
                yield rows

    def _in_ranges(self, query: Callable[[int, Ranges], Query]) -> Iterator[Sequence[Any]]:
        """Yield the pages of a query for all ranges."""
        assert self._plan.index is not None
        for ranges in in_batches(self._ranges):
            yield from read_pages(self._connection, query(self._plan.index.id, ranges))

    def _limited(self, pages: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Yield pages up to the limit."""
        count = 0
        for page in pages:
            if self._limit is not None and count >= self._limit:
                self._counts.is_cut = True
                return
            count += len(page)
            yield page

    def _checked_ids(self) -> Iterator[int]:
        """Yield the ids of the items whose key matches, and of those whose key is cut, which decides nothing."""
        assert self._plan.index is not None
        positions = [self._table.key_names.index(key) for key in self._plan.index.keys]
        types = [self._table.key_types[position] for position in positions]
        readers = {position: partial(decode_value, self._table.key_types[position]) for position in positions}
        condition = Filter(self._plan.checked_in_index, readers)
        for page in self._limited(self._in_ranges(self._queries.items)):
            self._counts.items_read += len(page)
            whole = [(bytes(key), partition_id) for key, partition_id in page if not is_cut(key)]
            yield from (partition_id for key, partition_id in page if is_cut(key))
            if whole:
                columns = zip(*[split_key(types, key) for key, _ in whole], strict=True)
                mask = condition.mask(dict(zip(positions, columns, strict=True)))
                yield from compress((partition_id for _, partition_id in whole), mask)
