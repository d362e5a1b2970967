"""Choice of a partition scheme: a candidate scheme for each column, its benefit for queries, and the best candidate.

A column with few values gets a list scheme; dates and timestamps get calendar ranges; a column that queries compare
with ranges gets ranges with about equal row counts; a column that they compare only with single values gets a hash
scheme. The score is the average share of rows that queries would not read, reduced by skew and nulls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from catalog.advice.profile import (
    ColumnProfile,
    PartitionSpread,
    QueryProfile,
    TableProfile,
    only_not_null,
    overlapping,
    window,
)
from catalog.errors import CatalogError
from catalog.model import Column
from catalog.schemes.model import DEFAULT_PARTITION, Scheme, SchemeType
from catalog.schemes.ranges import IntervalScheme
from catalog.schemes.texts import format_group
from catalog.tables.schemes import scheme_from_properties
from catalog.types.key_types import DateType, FloatingType, TimestampType
from catalog.types.ranges import Ranges

FILES_A_PARTITION = 4
"""The approximate number of files of the target size in a partition."""

FEWEST, MOST = 4, 64
"""The minimum and maximum number of partitions in a proposal."""

_FEW_VALUES = 50
_SORT_COLUMNS = 3
_FOLLOWS = 1 / 3
"""A column follows the partition column if a typical range of it lies in at most this share of the rows."""

_ALL = 1 - 1e-6
_WINDOWS = 20
"""The number of typical ranges that the rows are divided into."""

_DAYS = {"1 year": 365.25, "1 quarter": 91.3, "1 month": 30.44, "1 week": 7.0, "1 day": 1.0, "1 hour": 1 / 24}
_MONTHS = {"1 year": 12, "1 quarter": 3, "1 month": 1}


@dataclass(frozen=True)
class Candidate:
    """A column as a candidate for the partition column.

    Attributes:
        scheme: The candidate scheme; None if the column is not suitable.
        queries_pruned: The number of queries that would not read all rows.
        read_share: The average share of rows that queries would read; None without queries.
        partition_skew: The row count of the largest partition divided by the average.
    """

    column: ColumnProfile
    scheme: Scheme | None
    queries_pruned: int
    read_share: float | None
    partition_skew: float | None

    @property
    def score(self) -> float:
        """The score, from 0 (useless)."""
        if self.scheme is None:
            return 0.0
        saved = _DEFAULT_SAVINGS[self.scheme.type] if self.read_share is None else 1 - self.read_share
        skew = max(1.0, self.partition_skew or 1.0)
        return saved * (1 - self.column.null_share) / math.sqrt(skew)


_DEFAULT_SAVINGS: Mapping[SchemeType, float] = {
    SchemeType.RANGE_INTERVAL: 0.9,
    SchemeType.LIST: 0.6,
    SchemeType.HASH: 0.4,
    SchemeType.RANGE: 0.3,
}
"""The assumed share of rows that queries skip, for tables without known queries."""


@dataclass(frozen=True)
class Following:
    """A column whose values correlate with the partition column.

    Attributes:
        read_share: The average share of rows in the partitions that contain a typical range of the column.
    """

    column: str
    read_share: float


def candidates(profile: TableProfile, target_bytes: int) -> list[Candidate]:
    """Return all columns of a table, the best partition column first."""
    queries = [query for query in profile.queries if query.reads_table and query.error is None]
    count = partition_count(profile.size_bytes, target_bytes)
    unsorted = [_candidate(column, queries, count) for column in profile.columns]
    return sorted(unsorted, key=lambda candidate: (-candidate.score, candidate.column.name))


def partition_count(size_bytes: int | None, target_bytes: int) -> int:
    """Return the recommended number of partitions of a table of this size."""
    return max(FEWEST, min(MOST, math.ceil((size_bytes or 0) / (FILES_A_PARTITION * target_bytes))))


def best(candidates: Sequence[Candidate]) -> Scheme | None:
    """Return the scheme of the best candidate, with sort columns; None if no candidate is useful."""
    if not candidates or candidates[0].score <= 0 or candidates[0].scheme is None:
        return None
    pruning = [candidate for candidate in candidates[1:] if candidate.queries_pruned]
    pruning.sort(key=lambda candidate: -candidate.queries_pruned)
    return replace(candidates[0].scheme, sort_columns=tuple(other.column.name for other in pruning[:_SORT_COLUMNS]))


def _candidate(column: ColumnProfile, queries: Sequence[QueryProfile], count: int) -> Candidate:
    bounds = [query.bounds.get(column.name) for query in queries]
    known = [ranges for ranges in bounds if ranges is not None and not only_not_null(ranges)]
    scheme = _scheme(column, known, count)
    if scheme is None:
        return Candidate(column, None, len(known), None, None)
    loaded = as_loaded(column, scheme)
    shares = _partition_shares(column, loaded)
    skew = max(shares.values(), default=0.0) * len(shares) if shares else None
    if not queries:
        return Candidate(column, scheme, 0, None, skew)
    read = [_read_share(loaded, shares, ranges) for ranges in bounds]
    return Candidate(column, scheme, sum(share < _ALL for share in read), sum(read) / len(read), skew)


def as_loaded(column: ColumnProfile, scheme: Scheme) -> Scheme:
    """Return a scheme with the partitions that loading the column's rows would create automatically."""
    if isinstance(scheme, IntervalScheme) and column.sample:
        return scheme.extended_to(column.value_type.decode(column.sample[-1][0], 0)[0])
    return scheme


def _read_share(scheme: Scheme, shares: Mapping[int, float], bounds: Ranges | None) -> float:
    if bounds is None:
        return 1.0
    return min(1.0, sum(shares.get(number, 0.0) for number in scheme.partitions_in(bounds)))


def _partition_shares(column: ColumnProfile, scheme: Scheme) -> dict[int, float]:
    """Return the estimated share of all rows in each partition, from the sample."""
    shares: dict[int, float] = dict.fromkeys(scheme.ids, 0.0)
    row_share = (1 - column.null_share) / max(1, len(column.sample))
    for encoded, _ in column.sample:
        shares[scheme.partition_of(column.value_type.decode(encoded, 0)[0])] += row_share
    shares[DEFAULT_PARTITION] = shares.get(DEFAULT_PARTITION, 0.0) + column.null_share
    if scheme.type is not SchemeType.HASH and shares[DEFAULT_PARTITION] < 1e-9:
        del shares[DEFAULT_PARTITION]
    return shares


# --- the scheme of a column -------------------------------------------------------------------------------------------


def _scheme(column: ColumnProfile, bounds: Sequence[Ranges], count: int) -> Scheme | None:
    """Return a column's candidate scheme; None if it has a single value, or no scheme fits."""
    if column.distinct_count < 2 or len({encoded for encoded, _ in column.sample}) < 2:
        return None
    for properties in _properties(column, bounds, count):
        try:
            return scheme_from_properties(Column(column.name, column.type), properties)
        except CatalogError:
            continue
    return None


def _properties(column: ColumnProfile, bounds: Sequence[Ranges], count: int) -> Iterator[dict[str, str]]:
    """Yield TBLPROPERTIES of possible schemes, the best first."""
    has_ranges = any(not key_range.is_point for ranges in bounds for key_range in ranges)
    is_time = isinstance(column.value_type, DateType | TimestampType)
    if is_time and (interval := _interval(column, count)) is not None:
        yield interval
    if column.distinct_count <= _FEW_VALUES and not has_ranges:
        yield {"PARTITION_TYPE": "LIST", "LIST_INFO": _groups(column, count)}
    if not has_ranges and not is_time and not isinstance(column.value_type, FloatingType):
        yield {"PARTITION_TYPE": "HASH", "PARTITION_NUM": str(count)}
    if cuts := column.quantiles(count):
        yield {"PARTITION_TYPE": "RANGE", "RANGE_INFO": _list(cuts)}


def _list(texts: Iterable[str]) -> str:
    return ", ".join(format_group([text]) for text in texts)


def _groups(column: ColumnProfile, count: int) -> str:
    """Return list groups: one for each very frequent value, and groups of other values with about equal shares."""
    groups: list[list[str]] = []
    share = 0.0
    for text, own in column.frequent:
        if not groups or share + own > 1 / count:
            groups.append([])
            share = 0.0
        groups[-1].append(text)
        share += own
    return ", ".join(format_group(group) for group in groups)


def _interval(column: ColumnProfile, count: int) -> dict[str, str] | None:
    """Return TBLPROPERTIES of about `count` calendar ranges; None if no step gives such a number."""
    least, greatest = (column.sample[position][1] for position in (0, -1))
    days = (_day(column, greatest) - _day(column, least)) or 1 / 24
    steps = [text for text in _DAYS if text != "1 hour" or isinstance(column.value_type, TimestampType)]
    step = min(steps, key=lambda text: abs(math.log(days / _DAYS[text] / count)))
    if not count / 4 <= days / _DAYS[step] <= count * 4:
        return None
    first = _first_bound(least, step)
    return {"PARTITION_TYPE": "RANGE_INTERVAL", "RANGE_INFO": first, "INTERVAL": step}


def _day(column: ColumnProfile, text: str) -> float:
    value = int(column.value_type.parse(text))
    if isinstance(column.value_type, DateType):
        return (value >> 9) * 365.25 + (value >> 5 & 15) * 30.44 + (value & 31)
    return value / 86_400_000_000


def _first_bound(text: str, step: str) -> str:
    """Return the first moment of the calendar step after the one that contains a value."""
    moment = datetime.fromisoformat(text.strip()[:19])
    if step in _MONTHS:
        months = (moment.year * 12 + moment.month - 1) // _MONTHS[step] * _MONTHS[step] + _MONTHS[step]
        return f"{months // 12:04}-{months % 12 + 1:02}-01"
    if step != "1 hour":
        days = 1 if step == "1 day" else 7 - moment.weekday()
        return f"{moment.date() + timedelta(days=days)}"
    return f"{moment.replace(minute=0, second=0) + timedelta(hours=1)}"


# --- columns that follow ----------------------------------------------------------------------------------------------


def following(profile: TableProfile, scheme: Scheme, spread: Sequence[PartitionSpread]) -> list[Following]:
    """Return the columns whose file statistics would prune files under a scheme, the best first."""
    rows = max(1, sum(partition.row_count for partition in spread))
    columns = []
    for column in profile.columns:
        if column.name == scheme.column or len(column.sample) < _WINDOWS or column.distinct_count < 2:
            continue
        extremes = [
            (partition.row_count / rows, _encode(column, low), _encode(column, high))
            for partition in spread
            for low, high in [partition.extremes.get(column.name, ("", ""))]
            if column.name in partition.extremes
        ]
        windows = list(_windows(column))
        if not windows:
            continue
        read = [sum(share for share, low, high in extremes if overlapping(ranges, low, high)) for ranges in windows]
        average = sum(read) / len(read)
        if average <= _FOLLOWS:
            columns.append(Following(column.name, average))
    return sorted(columns, key=lambda follower: (follower.read_share, follower.column))


def _encode(column: ColumnProfile, text: str) -> bytes:
    return column.value_type.encode(column.value_type.parse(text))


def _windows(column: ColumnProfile) -> Iterator[Ranges]:
    """Yield typical ranges of a column, with about equal row counts."""
    cuts = sorted({column.sample[number * len(column.sample) // _WINDOWS][0] for number in range(_WINDOWS)})
    for low, high in zip(cuts, [*cuts[1:], b"\xff"], strict=True):
        yield window(low, high)
