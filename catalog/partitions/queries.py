"""SQL of searches for partitions, for each database.

On PostgreSQL partitions are fetched by an array of ids, which the B-tree scans in order. Measured, this is as fast as a
table designed for the query, whereas a join descends the B-tree once per partition. On SQLite the join is as fast.

Plans of PostgreSQL must not depend on its statistics, which are missing after a bulk add: it would read all items once
for each range. Each range is therefore a subquery of its own (`LATERAL`), which is ordered and has a limit, and so is
read from the B-tree. Arrays are sent in the binary format, which takes a tenth of the time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from catalog.indexes.skipping import Span
from catalog.storage.arrays import ByteStrings, Numbers
from catalog.storage.partition_rows import PARTITION_COLUMNS
from catalog.types.key_types import KeyType
from catalog.types.ranges import Ranges

_SPAN = (Numbers, ByteStrings, ByteStrings)
_NO_LIMIT = "(SELECT 9223372036854775807)"
"""The planner does not see the number, and assumes a part of the rows, for which sorting them would not pay."""


class Query(NamedTuple):
    """A statement with the driver's placeholders, and its parameters."""

    sql: str
    parameters: tuple[Any, ...]

    def limited(self, count: int) -> Query:
        """Return the query limited to the first `count` rows."""
        return Query(f"{self.sql} LIMIT {count:d}", self.parameters)


@dataclass(frozen=True)
class Queries:
    """Builds the queries for one kind of database.

    Attributes:
        columns: The columns of partitions that the queries return.
    """

    is_postgresql: bool
    columns: tuple[str, ...] = PARTITION_COLUMNS

    @property
    def _partition(self) -> str:
        return ", ".join(f"p.{column}" for column in self.columns)

    @property
    def _mark(self) -> str:
        return "%s" if self.is_postgresql else "?"

    def all_partitions(self, table_id: int) -> Query:
        """Return the query of all partitions of a table."""
        return Query(f"SELECT {self._partition} FROM calve_partition AS p WHERE p.table_id = {self._mark}", (table_id,))

    def partitions_by_order(self, table_id: int) -> Query:
        """Return the query of all partitions of a table, ordered by id."""
        rows = f"SELECT {self._partition} FROM calve_partition AS p WHERE {self._following()}"
        return Query(rows, (table_id, 0, table_id))

    def _following(self, after: str | None = None, operator: str = ">") -> str:
        """Return the condition and the order of `catalog.storage.partition_rows.partitions_after`.

        Its parameters are the table's id, an id if there is no expression for it, and again the table's id.
        """
        place = f"({self._mark}, {after or self._mark})"
        is_of_table = f"p.table_id <= {self._mark}"
        return f"(p.table_id, p.id) {operator} {place} AND {is_of_table} ORDER BY p.table_id, p.id"

    def values_from(self, table_id: int, ids: Sequence[int]) -> Query:
        """Return the query of the values of the first partition of a table at or after each id; null after the last."""
        listed, start = (
            ("unnest(%s::bigint[]) AS s (id)", "s.id") if self.is_postgresql else ("json_each(?) AS s", "s.value")
        )
        first = f"SELECT p.packed_values FROM calve_partition AS p WHERE {self._following(start, '>=')} LIMIT 1"
        parameter = list(ids) if self.is_postgresql else json.dumps(list(ids))
        return Query(f"SELECT ({first}) FROM {listed}", (table_id, table_id, parameter))

    def values_after(self, table_id: int, after: int, count: int, *, is_quarantined: bool | None) -> Query:
        """Return the query of the values of the next partitions of a table after an id, as one row.

        It has the first and the last id, the number of partitions, and their values in lines of one string, in the
        order of the ids, which is read faster than many rows. Without a partition, all but the number are null.

        Args:
            is_quarantined: Of those that are hidden from readers, or are not; None for both.
        """
        state = "" if is_quarantined is None else f"{'' if is_quarantined else 'NOT '}p.is_quarantined AND "
        chosen = (
            f"SELECT p.id, p.packed_values FROM calve_partition AS p WHERE {state}{self._following()} LIMIT {count:d}"
        )
        lines = (
            "string_agg(c.packed_values, E'\\n')" if self.is_postgresql else "group_concat(c.packed_values, char(10))"
        )
        return Query(
            f"SELECT min(c.id), max(c.id), count(*), {lines} FROM ({chosen}) AS c", (table_id, after, table_id)
        )

    def ids_between(self, table_id: int, first: int, last: int) -> Query:
        """Return the query of the ids of a table's partitions in a range that includes both ends, ordered."""
        condition = f"p.table_id = {self._mark} AND p.id BETWEEN {self._mark} AND {self._mark}"
        return Query(f"SELECT p.id FROM calve_partition AS p WHERE {condition} ORDER BY p.id", (table_id, first, last))

    def partitions_between(self, table_id: int, first: int, last: int) -> Query:
        """Return the query of the partitions of a table with the ids in a range, which includes both ends."""
        query = self.all_partitions(table_id)
        return Query(f"{query.sql} AND p.id BETWEEN {self._mark} AND {self._mark}", (table_id, first, last))

    def partitions_of_operation(self, table_id: int, operation_number: int) -> Query:
        """Return the query of the partitions that an operation added."""
        query = self.all_partitions(table_id)
        return Query(f"{query.sql} AND p.operation_number = {self._mark}", (table_id, operation_number))

    def partitions_by_id(self, ids: Sequence[int]) -> Query:
        """Return the query of the partitions with these ids."""
        if self.is_postgresql:
            chosen = "p.id = ANY(ARRAY(SELECT unnest(%b::bigint[])))"
            return Query(f"SELECT {self._partition} FROM calve_partition AS p WHERE {chosen}", (Numbers(ids),))
        marks = ", ".join("?" * len(ids))
        return Query(f"SELECT {self._partition} FROM calve_partition AS p WHERE p.id IN ({marks})", tuple(ids))

    def items(self, index_id: int, ranges: Ranges) -> Query:
        """Return the query of the index keys and partition ids in some ranges."""
        source, condition, parameters = self._items(index_id, ranges)
        return Query(f"SELECT i.key, i.partition_id FROM {source} WHERE {condition}", parameters)

    def partitions_in_ranges(self, index_id: int, ranges: Ranges) -> Query:
        """Return the query of the partitions whose items are in some ranges."""
        return self._partitions_in_ranges(index_id, ranges, "")

    def first_partitions_in_ranges(
        self, index_id: int, ranges: Ranges, count: int, table_id: int, version: int
    ) -> Query:
        """Return the query of the first `count` such partitions; it returns none if the table's version has changed."""
        partitions = self._partitions_in_ranges(index_id, ranges, f" LIMIT {count:d}")
        check = f" AND (SELECT t.version FROM calve_table AS t WHERE t.id = {self._mark}) = {self._mark}"
        query = Query(partitions.sql + check, (*partitions.parameters, table_id, version))
        return query if self.is_postgresql else query.limited(count)

    def _partitions_in_ranges(self, index_id: int, ranges: Ranges, limit: str) -> Query:
        source, condition, parameters = self._items(index_id, ranges)
        if self.is_postgresql:
            ids = f"SELECT i.partition_id FROM {source} WHERE {condition}{limit}"
            return Query(
                f"SELECT {self._partition} FROM calve_partition AS p WHERE p.id = ANY(ARRAY({ids}))", parameters
            )
        joined = f"{source} CROSS JOIN calve_partition AS p WHERE p.id = i.partition_id AND {condition}"
        return Query(f"SELECT {self._partition} FROM {joined}", parameters)

    def _items(self, index_id: int, ranges: Ranges) -> tuple[str, str, tuple[Any, ...]]:
        """Return the FROM clause, the WHERE condition and the parameters for the items in some ranges."""
        lows, highs = [key_range.low for key_range in ranges], [key_range.high for key_range in ranges]
        mark, item = self._mark, "calve_index_item AS i"
        if len(ranges) == 1:
            return item, f"i.index_id = {mark} AND i.key >= {mark} AND i.key < {mark}", (index_id, lows[0], highs[0])
        if self.is_postgresql:
            inside = (
                "SELECT k.key, k.partition_id FROM calve_index_item AS k WHERE k.index_id = %s AND k.key >= r.low "
                f"AND k.key < r.high ORDER BY k.key LIMIT {_NO_LIMIT}"
            )
            listed = "unnest(%b::bytea[], %b::bytea[]) AS r (low, high)"
            return (
                f"{listed} CROSS JOIN LATERAL ({inside}) AS i",
                "true",
                (ByteStrings(lows), ByteStrings(highs), index_id),
            )
        listed = f"(VALUES {', '.join(['(?, ?)'] * len(ranges))}) AS r"
        condition = "i.index_id = ? AND i.key >= r.column1 AND i.key < r.column2"
        bounds = [bound for key_range in ranges for bound in (key_range.low, key_range.high)]
        return f"{listed} CROSS JOIN {item}", condition, (*bounds, index_id)

    def distinct_values(self, index_id: int, spans: Sequence[Span], key_type: KeyType) -> Query:
        """Return the query of the index keys in some spans up to the next value, each once.

        A loose index scan: one look-up per value finds the next value.
        """
        mark, end = self._mark, self._bytes("ff")
        parameters: list[Any]
        if self.is_postgresql:
            seed, parameters = (
                "SELECT * FROM unnest(%b::int[], %b::bytea[], %b::bytea[])",
                [kind(column) for kind, column in zip(_SPAN, zip(*spans, strict=True), strict=True)],
            )
        else:
            seed, parameters = (
                f"VALUES {', '.join(['(?, ?, ?)'] * len(spans))}",
                [part for span in spans for part in span],
            )

        def first_value(span: str, low: str) -> str:
            value = f"substr(i.key, 1, {self._end_of_value(f'{span}.start', key_type)})"
            return (
                f"(SELECT {value} FROM calve_index_item AS i WHERE i.index_id = {mark} AND i.key >= {low} "
                f"AND i.key < {span}.high ORDER BY i.key LIMIT 1)"
            )

        sql = (
            f"WITH RECURSIVE seed (start, low, high) AS ({seed}), found (start, high, value) AS ("
            f"SELECT s.start, s.high, {first_value('s', 's.low')} FROM seed AS s UNION ALL "
            f"SELECT f.start, f.high, {first_value('f', self._joined('f.value', end))} FROM found AS f "
            "WHERE f.value IS NOT NULL) SELECT value FROM found WHERE value IS NOT NULL"
        )
        return Query(sql, (*parameters, index_id, index_id))

    def ends(self, index_id: int, prefixes: Sequence[bytes]) -> Query:
        """Return the query of each prefix with the first and the last key that extends it by a value; null for none."""
        mark, end, null = self._mark, self._bytes("ff"), self._bytes("01")
        listed, prefix, parameter = (
            ("unnest(%b::bytea[]) AS s (prefix)", "s.prefix", [ByteStrings(prefixes)])
            if self.is_postgresql
            else (f"(VALUES {', '.join(['(?)'] * len(prefixes))}) AS s", "s.column1", list(prefixes))
        )
        first, last = (
            f"(SELECT i.key FROM calve_index_item AS i WHERE i.index_id = {mark} AND i.key >= "
            f"{self._joined(prefix, null)} AND i.key < {self._joined(prefix, end)} ORDER BY i.key{order} LIMIT 1)"
            for order in ("", " DESC")
        )
        return Query(f"SELECT {prefix}, {first}, {last} FROM {listed}", (index_id, index_id, *parameter))

    def _end_of_value(self, start: str, key_type: KeyType) -> str:
        """Return the position of the last byte of the value that starts after `start` bytes of an index key."""
        begins_null = f"substr(i.key, {start} + 1, 1) = {self._bytes('00')}"
        if key_type.width is not None:
            return f"{start} + CASE WHEN {begins_null} THEN 1 ELSE {key_type.width:d} END"
        rest, terminator = f"substr(i.key, {start} + 1)", self._bytes("01")
        offset = f"position({terminator} IN {rest})" if self.is_postgresql else f"instr({rest}, {terminator})"
        return (
            f"CASE WHEN {begins_null} THEN {start} + 1 WHEN {offset} = 0 THEN length(i.key) ELSE {start} + {offset} END"
        )

    def _bytes(self, digits: str) -> str:
        return f"'\\x{digits}'::bytea" if self.is_postgresql else f"x'{digits}'"

    def _joined(self, left: str, right: str) -> str:
        """Return the expression that concatenates byte strings; SQLite's `||` returns text, so it needs a cast."""
        return f"({left} || {right})" if self.is_postgresql else f"CAST({left} || {right} AS BLOB)"
