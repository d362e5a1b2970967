"""Look-ups of the values of index keys that a search skips, and the decision whether they pay.

Whether they do depends on the number of items that each value has. It is counted in the index itself, at the time of
the search and in a sample, because the statistics of the database are missing or wrong after a bulk add.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from catalog.indexes.keys import MAXIMUM_KEY_BYTES
from catalog.indexes.planner import Skip
from catalog.indexes.skipping import FEW_LOOK_UPS, ITEMS_OF_A_LOOK_UP, Span
from catalog.partitions.queries import Queries, Query
from catalog.partitions.reading import read_all
from catalog.storage.bulk import batched
from catalog.types.ranges import END, KeyRange, Ranges

MAXIMUM_LOOK_UPS = 50_000
"""The maximum number of values that a search looks up for one key; they are in memory."""

_SAMPLE = 8
_MOST_GUESSED = 1.5
"""The number of values that is tried for each value that a part of an index probably has."""

_FIRST_LIMIT = 256
_GROWTH = 8
_BATCH = 1_000
_RANGES = 5_000
"""The number of spans, and of ranges, in one statement: SQLite has 32,766 parameters."""


class LookUps:
    """Finds the values of the skipped keys of one search in one index; a `catalog.indexes.skipping.LookUp`.

    Attributes:
        count: The number of values that were looked up.
        refusal: The reason why the last look-up does not pay, if it does not.
    """

    def __init__(self, connection: Connection, queries: Queries, index_id: int, *, is_measured: bool = False) -> None:
        """Prepare look-ups in the caller's transaction.

        Args:
            is_measured: An earlier search with the same plan has found that they pay.
        """
        self.count = 0
        self.refusal = "its keys are followed by too many ranges"
        self._connection = connection
        self._queries = queries
        self._index_id = index_id
        self._is_measured = is_measured
        self._is_prepared = False

    def __call__(self, skip: Skip, spans: Sequence[Span]) -> Sequence[bytes] | None:
        """Return the keys in some spans up to the skipped key, without duplicates; None if it takes too long."""
        if self._queries.is_postgresql and not self._is_prepared:
            # PostgreSQL estimates ten times the steps, and would compile a query that takes milliseconds.
            self._connection.exec_driver_sql("SET LOCAL jit = off")
            self._is_prepared = True
        most = MAXIMUM_LOOK_UPS // len(skip.tails)
        step = max(1, len(spans) // _SAMPLE)
        sample = spans[::step]
        others = [span for number, span in enumerate(spans) if number % step]
        keys = self._values(skip, sample, most + 1) if self._is_measured else self._measured(skip, sample, others)
        if keys is None:
            return None
        likely, others = likely_keys(sample, keys, others, skip.key_type.width)
        keys += likely
        keys += self._values(skip, others, most + 1 - len(keys))
        if len(keys) > most:
            self._refuse(skip, f"has more than {most:,}, which are too many to look up")
            return None
        self.count += len(keys)
        return keys

    def _measured(self, skip: Skip, sample: Sequence[Span], others: Sequence[Span]) -> list[bytes] | None:
        """Return the keys in a sample of the spans; None if the look-ups do not pay."""
        limit = _FIRST_LIMIT
        while True:
            keys = self._values(skip, sample, limit + 1)
            ranges = len(keys) * len(skip.tails)
            least = ITEMS_OF_A_LOOK_UP * ranges
            if (ranges > FEW_LOOK_UPS or others) and (items := self._items(sample, least)) < least:
                followed = f", each followed by {len(skip.tails):,} ranges," if len(skip.tails) > 1 else ""
                where = " in a sample" if others else ""
                self._refuse(skip, f"has too many to look up, {len(keys):,}{followed} for {items:,} item(s){where}")
                return None
            if len(keys) <= limit:
                return keys
            if limit > MAXIMUM_LOOK_UPS:
                self._refuse(skip, f"has more than {MAXIMUM_LOOK_UPS:,}, which are too many to look up")
                return None
            limit *= _GROWTH

    def _refuse(self, skip: Skip, reason: str) -> None:
        self.refusal = f"{skip.name} is not bound to values, and {reason}"

    def _values(self, skip: Skip, spans: Sequence[Span], limit: int) -> list[bytes]:
        """Return the keys in some spans up to the skipped key, at most `limit`."""
        keys: list[bytes] = []
        if limit <= 0:
            return keys
        for batch in batched(spans, _BATCH):
            query = self._queries.distinct_values(self._index_id, batch, skip.key_type).limited(limit - len(keys))
            keys += [key for (key,) in read_all(self._connection, query)]
            if len(keys) >= limit:
                break
        return keys

    def _items(self, spans: Sequence[Span], limit: int) -> int:
        """Return the number of items in some spans, at most `limit`."""
        ranges = [KeyRange(span.low, span.high) for span in spans]
        return count_items(self._connection, self._queries, self._index_id, ranges, limit)


def likely_keys(
    sample: Sequence[Span], keys: Sequence[bytes], others: list[Span], width: int | None
) -> tuple[list[bytes], list[Span]]:
    """Return keys that spans are likely to have, and the spans in which all their other keys are to be looked up.

    Where some countries have the months from 1 to 12, the others probably have the same ones, and perhaps some before 1
    or after 12: two look-ups instead of twelve.

    Args:
        sample: Some of the spans, of which the keys were looked up.
        keys: Their keys, up to the skipped key.
        others: The other spans.
        width: The number of bytes of each value of the skipped key, except null; None if it varies.
    """
    if width is None or not others or max(span.start for span in others) + width >= MAXIMUM_KEY_BYTES:
        return [], others
    prefixes = {span.low[: span.start] for span in sample}
    values = sorted({key[-width:] for key in keys if key[:-width] in prefixes})
    # Between two values that follow one another, there is no other one.
    lows = [b"", *((int.from_bytes(value) + 1).to_bytes(width) for value in values)]
    gaps = [(low, high) for low, high in zip(lows, [*values, END], strict=True) if low != high]
    if len(values) * len(sample) > _MOST_GUESSED * len(keys) or len(gaps) > len(values) // 2:
        return [], others
    likely: list[bytes] = []
    unknown: list[Span] = []
    for start, low, high in others:
        prefix = low[:start]
        likely += [key for value in values if low <= (key := prefix + value) < high]
        between = [Span(start, max(low, prefix + first), min(high, prefix + last)) for first, last in gaps]
        unknown += [span for span in between if span.low < span.high]
    return likely, unknown


def count_items(connection: Connection, queries: Queries, index_id: int, ranges: Ranges, limit: int) -> int:
    """Return the number of items of an index in some ranges, at most `limit`."""
    count = 0
    for batch in in_batches(ranges):
        items = queries.items(index_id, batch).limited(limit - count)
        [(counted,)] = read_all(connection, Query(f"SELECT count(*) FROM ({items.sql}) AS counted", items.parameters))
        count += counted
        if count >= limit:
            break
    return count


def in_batches(ranges: Ranges) -> Iterator[Ranges]:
    """Yield the ranges of one statement each."""
    yield from batched(ranges, _RANGES)
