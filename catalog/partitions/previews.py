"""Searches as people write them: what they would read, values for their conditions, and an index that suits them.

All of it is bounded, so that it takes a fraction of a second on a table with a million partitions.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from sqlalchemy import Connection, func, select

from catalog.expressions import parse_expression
from catalog.indexes.definitions import list_indexes
from catalog.indexes.keys import after_prefix, decode_value, is_cut
from catalog.indexes.proposing import IndexProposal, Sample, propose_index
from catalog.indexes.skipping import Span, prefix_span
from catalog.model import IndexState, Partition, PartitionIndex, PartitionState, Table
from catalog.model.partition_names import unpack_values
from catalog.partitions.explaining import Explanation, explanation_of
from catalog.partitions.queries import Queries
from catalog.partitions.scanning import Scanner
from catalog.storage import Storage
from catalog.storage.partition_rows import IN_ORDER, outermost_partitions, partitions_after
from catalog.storage.schema import PartitionRow
from catalog.storage.values import ValueEncoder
from catalog.tables.checks import refuse_iceberg
from catalog.tables.definitions import Definitions
from catalog.types.key_types import DateType, IntegerType, KeyType, StringType
from catalog.types.ranges import END, KeyRange, Ranges

READING_LIMIT = 10_000
"""The number of items or partitions at which a preview stops to read."""

_SAMPLED = 5_000
_FEW_SAMPLED = 2_000
"""Sizes of samples for proposals and for values; smaller tables are read completely."""

_SAMPLE_SECONDS = 60.0
_MAXIMUM_SAMPLES = 32
"""How long, and how many, samples of large tables are kept: a reader asks at each key that is typed."""

_LOOKED_UP = 2_000
"""Values that are looked up one after the other in an index, for keys whose values do not sort as their texts do."""

_SLOTS = 64
"""A picture gives each value of the first key the same width if there are at most this many."""

_MAXIMUM_BARS = 300
_MAXIMUM_TICKS = 6


@dataclass(frozen=True)
class Bar:
    """One or more ranges in a picture of an index.

    Attributes:
        start, end: Its place, from 0 at the first index item to 1 at the last.
        text: The range as the filter language writes it, or the number of ranges.
    """

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class KeySpace:
    """A picture of the ranges that a search reads, in the order of the index.

    Attributes:
        bars: The ranges; those that are too close to be told apart are one.
        ticks: (place, value of the first key) pairs.
        is_by_value: Each value of the first key has the same width, instead of a width by its distance from the next.
    """

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    is_by_value: bool


@dataclass(frozen=True)
class Preview:
    """A search that was run up to a limit.

    Attributes:
        explanation: Its plan and counts; lower bounds if `is_cut`.
        partitions: The first partitions that it finds.
        key_space: The ranges in the index; None if no index is read, or it is empty.
    """

    explanation: Explanation
    partitions: tuple[Partition, ...]
    key_space: KeySpace | None


class Previews:
    """Previews of searches in the tables of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, scanner: Scanner) -> None:
        """Set the storage, the definitions in it, and its searches."""
        self._storage = storage
        self._definitions = definitions
        self._scanner = scanner
        self._queries = Queries(storage.is_postgresql)
        self._samples: dict[tuple[int, int], tuple[float, Sample]] = {}

    def search(self, table: str, expression: str | None, *, shown: int = 100, limit: int = READING_LIMIT) -> Preview:
        """Run a search up to a limit, and return what it has read and found.

        Args:
            table: A table with partition keys.
            expression: The filter.
            shown: The number of partitions to return.
            limit: The number of items, or of partitions without an index, at which the search stops.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
        """
        scan = self._scanner.scan(table, expression, use_indexes=True, state=PartitionState.VISIBLE, limit=limit)
        first = tuple(islice(scan.partitions, shown))
        for _ in scan.partitions:
            pass
        key_space = None
        if scan.plan.index is not None:
            with self._storage.read() as connection:
                key_space = self._key_space(connection, scan.table, scan.plan.index, scan.ranges)
        return Preview(explanation_of(scan), first, key_space)

    def values(self, table: str, key: str, prefix: str = "", *, limit: int = 20) -> list[str]:
        """Return values of a partition key as literals of the filter language, in their order.

        They come from an index whose first key it is; without one, from a sample of the partitions.

        Args:
            table: A table with partition keys.
            key: One of them; there are no values of other columns.
            prefix: What the values begin with, without quotes.
            limit: The maximum number of values.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        definition = self._definitions.get_hive_table(table)
        if key not in definition.key_names:
            return []
        position = definition.key_names.index(key)
        with self._storage.read() as connection:
            indexes = list_indexes(connection, definition.id)
            serving = [index for index in indexes if index.state is IndexState.ACTIVE and index.keys[0] == key]
            if serving:
                pieces = self._distinct(connection, serving[0], definition, position, prefix, limit)
            else:
                pieces = sorted(set(self._sample(connection, definition, _FEW_SAMPLED).columns[position]))
        return self._literals(definition, position, pieces, prefix, limit)

    def better_index(
        self, table: str, expression: str | None, *, partition_count: int | None = None
    ) -> IndexProposal | None:
        """Return an index that would serve an expression with clearly fewer items than today; None if there is none.

        The items are counted in all partitions, or estimated from 5,000 of them.

        Args:
            table: A table with partition keys.
            expression: The filter.
            partition_count: The number of its partitions, as far as the caller knows it; None to count them.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
        """
        with self._storage.read() as connection:
            definition = self._definitions.get_hive_table(table, connection)
            refuse_iceberg(definition)
            tree = parse_expression(expression, definition)
            sample = self._sample(connection, definition, _SAMPLED, partition_count)
            return propose_index(definition, list_indexes(connection, definition.id), tree, sample)

    # --- samples and values -----------------------------------------------------------------------------------------

    def _sample(self, connection: Connection, table: Table, count: int, partition_count: int | None = None) -> Sample:
        """Return all partitions of a table with at most `count`, or as many that are chosen at random."""
        kept_at, sample = self._samples.get((table.id, count), (0.0, None))
        if sample is not None and time.monotonic() - kept_at < _SAMPLE_SECONDS:
            return sample
        row = PartitionRow
        query = select(row.packed_values).where(partitions_after(table.id)).order_by(*IN_ORDER).limit(count + 1)
        packed = list(connection.scalars(query))
        if len(packed) <= count:
            return _encoded(table, packed, len(packed))
        if partition_count is None or partition_count <= count:
            partition_count = connection.scalar(select(func.count()).where(row.table_id == table.id)) or 0
        first, last = outermost_partitions(connection, table.id)
        # The same places each time, so that a proposal does not change while its reader types.
        random = Random(table.id)
        starts = sorted(random.randint(first, last) for _ in range(count))
        chosen = connection.exec_driver_sql(*self._queries.values_from(table.id, starts))
        sample = _encoded(table, [values for (values,) in chosen if values is not None], partition_count)
        if len(self._samples) >= _MAXIMUM_SAMPLES:
            self._samples.clear()
        self._samples[table.id, count] = time.monotonic(), sample
        return sample

    def _distinct(
        self, connection: Connection, index: PartitionIndex, table: Table, position: int, prefix: str, limit: int
    ) -> list[bytes]:
        key_type = table.key_types[position]
        spans = _spans(key_type, prefix)
        query = self._queries.distinct_values(index.id, spans or [prefix_span(b"")], key_type)
        # One may be null.
        found = connection.exec_driver_sql(*query.limited(limit + 1 if spans else _LOOKED_UP))
        return sorted(bytes(value) for (value,) in found)

    @staticmethod
    def _literals(table: Table, position: int, pieces: Sequence[bytes], prefix: str, limit: int) -> list[str]:
        key_type = table.key_types[position]
        literals: list[str] = []
        for piece in pieces:
            if is_cut(piece) or len(literals) >= limit:
                continue
            value = decode_value(key_type, piece)
            if value is None:
                continue
            literal = key_type.format(value)
            if (value if isinstance(value, str) else literal.strip("'")).startswith(prefix):
                literals.append(literal)
        return literals

    # --- picture ----------------------------------------------------------------------------------------------------

    def _key_space(
        self, connection: Connection, table: Table, index: PartitionIndex, ranges: Ranges
    ) -> KeySpace | None:
        first_key = table.key_types[table.key_names.index(index.keys[0])]
        query = self._queries.distinct_values(index.id, [prefix_span(b"")], first_key).limited(_SLOTS + 1)
        values = sorted(bytes(value) for (value,) in connection.exec_driver_sql(*query))
        if not values:
            return None
        is_by_value = len(values) <= _SLOTS and not any(map(is_cut, values))
        spans = [(value, after_prefix(value)) for value in values] if is_by_value else [(b"", END)]
        slots = self._slots(connection, index.id, spans)
        axis = _Axis(slots)
        bars = _bars([(axis.place(part.low), axis.place(part.high), part.text) for part in ranges])
        return KeySpace(bars, _ticks(table, index, slots, is_by_value=is_by_value), is_by_value)

    def _slots(
        self, connection: Connection, index_id: int, spans: Sequence[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """Return the first and last stored key in each part of an index."""
        pieces: list[str] = []
        parameters: list[Any] = []
        for low, high in spans:
            items = self._queries.items(index_id, [KeyRange(low, high)])
            for direction in ("", " DESC"):
                pieces.append(f"(SELECT key FROM ({items.sql} ORDER BY i.key{direction} LIMIT 1) AS s{len(pieces)})")
                parameters += items.parameters
        row = connection.exec_driver_sql(f"SELECT {', '.join(pieces)}", tuple(parameters)).one()
        keys = [bytes(key) for key in row]
        return list(zip(keys[::2], keys[1::2], strict=True))


def _spans(key_type: KeyType, prefix: str) -> list[Span]:
    """Return spans with the index keys of all values that begin with a string; none if they are not known."""
    match key_type:
        case StringType():
            return [prefix_span(prefix.encode("utf-8", "surrogatepass"))]
        case DateType() if (start := key_type.parse_start(prefix)) is not None:
            return [Span(0, key_type.encode(start), END)]
        case IntegerType() if re.fullmatch("[1-9][0-9]{0,18}", prefix):
            scales = (10**digits for digits in range(20 - len(prefix)))
            numbers = ((int(prefix) * scale, (int(prefix) + 1) * scale - 1) for scale in scales)
            return [
                Span(0, key_type.encode(low), after_prefix(key_type.encode(min(high, key_type.maximum))))
                for low, high in numbers
                if low <= key_type.maximum
            ]
        case _:
            return []


def _encoded(table: Table, packed: Sequence[str], partition_count: int) -> Sample:
    encoder, unfit, columns = ValueEncoder(table), set(), []
    pieces = [values.split("/") for values in packed]
    for position, key_type in enumerate(table.key_types):
        texts = {piece: unpack_values(piece)[0] for piece in {values[position] for values in pieces}}
        if any(text is not None and key_type.comparable(text) is None for text in texts.values()):
            unfit.add(position)
        encoded = {piece: encoder.encoded(position, text) for piece, text in texts.items()}
        columns.append([encoded[values[position]] for values in pieces])
    return Sample(columns, unfit, partition_count)


class _Axis:
    """Places of index keys between 0 and 1."""

    def __init__(self, slots: Sequence[tuple[bytes, bytes]]) -> None:
        self._slots = slots
        self._lows = [low for low, _ in slots]

    def place(self, key: bytes) -> float:
        """Return the place of a key, which grows with the key."""
        slot = bisect_right(self._lows, key) - 1
        if slot < 0:
            return 0.0
        low, high = self._slots[slot]
        inside = 1.0 if key > high else _fraction(key, low, high)
        return (slot + inside) / len(self._slots)


def _fraction(key: bytes, low: bytes, high: bytes) -> float:
    """Return the place of a key between two others, as if their bytes were digits."""
    pairs = enumerate(zip(low, high, strict=False))
    common = next((number for number, (left, right) in pairs if left != right), min(len(low), len(high)))
    start, at, end = (int.from_bytes(part[common : common + 8].ljust(8, b"\0")) for part in (low, key, high))
    return min(1.0, max(0.0, (at - start) / (end - start))) if end > start else 0.0


def _bars(places: Sequence[tuple[float, float, str]]) -> tuple[Bar, ...]:
    """Return one bar for each range, or for all ranges between two points of the picture if there are too many."""
    if len(places) <= _MAXIMUM_BARS:
        return tuple(Bar(*place) for place in places)
    grouped: dict[int, list[tuple[float, float, str]]] = {}
    for place in places:
        grouped.setdefault(int(place[0] * _MAXIMUM_BARS), []).append(place)
    return tuple(
        Bar(group[0][0], group[-1][1], group[0][2] if len(group) == 1 else f"{len(group):,} ranges")
        for group in grouped.values()
    )


def _ticks(
    table: Table, index: PartitionIndex, slots: Sequence[tuple[bytes, bytes]], *, is_by_value: bool
) -> tuple[tuple[float, str], ...]:
    key_type = table.key_types[table.key_names.index(index.keys[0])]

    def text(key: bytes) -> str:
        value = None if is_cut(key) else decode_value(key_type, key)
        return "null" if value is None else key_type.format(value).strip("'")

    if not is_by_value:
        return (0.0, text(slots[0][0])), (1.0, text(slots[0][1]))
    step = -(-len(slots) // _MAXIMUM_TICKS)
    return tuple(((number + 0.5) / len(slots), text(slots[number][0])) for number in range(0, len(slots), step))
