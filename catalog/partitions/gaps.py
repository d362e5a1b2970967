"""Partitions by day, and the days that lack some.

A table has days if a partition key is a date, or a string or an integer that is named as one is and written as
2024-05-01 or 20240501; or if it has the integer keys year, month and day. Its other keys distinguish several series of
days, such as one per country. A series lacks a day between its own first and last one if the table's other days let one
expect it: tables of months, and tables without Sundays, do not lack the days that they never have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, collate, func, not_, or_, select

from catalog.errors import InvalidRequestError
from catalog.indexes.definitions import list_indexes
from catalog.indexes.keys import decode_value, is_cut, split_key
from catalog.indexes.skipping import prefix_span
from catalog.model import IndexState, Table
from catalog.model.partition_names import escape, unpack_values
from catalog.partitions.browsing import NO_VALUE, Browsing, PartitionGroup, PartitionSums
from catalog.partitions.conditions import is_among, piece
from catalog.partitions.queries import Queries
from catalog.storage.partition_rows import IN_ORDER, partitions_after
from catalog.storage.texts import Text
from catalog.storage.values import ValueEncoder
from catalog.types.key_types import DateType, IntegerType, KeyType, StringType
from catalog.types.literals import quoted_name

_PARTS = ("year", "month", "day")
_NAMES = re.compile(r"ds|dt|day|date|(.*_)(ds|dt|day|date)")
_WRITTEN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8}")
_SAMPLE = 100
_FAR = timedelta(days=3_653)
_FEW = 3
"""Fewer days that are ten years away from all others are placeholders, such as 9999-12-31."""

MAXIMUM_DAYS = 40_000
MAXIMUM_SERIES = 5_000
MAXIMUM_MISSING = 100_000
"""The maximum number of partitions in the range in which missing ones are listed."""


@dataclass(frozen=True)
class Day:
    """The partitions of one day.

    Attributes:
        missing: The number of partitions that are expected and do not exist; None if there are too many series to tell.
    """

    at: date
    sums: PartitionSums
    failed: int
    missing: int | None


@dataclass(frozen=True)
class Calendar:
    """A table's partitions by day.

    Attributes:
        keys: The keys that have the days: one, or year, month and day.
        series_keys: The other keys.
        days: Days with partitions, and days that lack some; ascending.
        series: The number of series; None if there are more than `MAXIMUM_SERIES`.
        undated: The sums of partitions whose values are no days, such as null.
    """

    keys: tuple[str, ...]
    series_keys: tuple[str, ...]
    days: Sequence[Day]
    series: int | None
    undated: PartitionSums


@dataclass(frozen=True)
class MissingPartitions:
    """The partitions that a table lacks in a range of days.

    Attributes:
        partitions: Key → value of each, by day.
        days: The days that lack a partition.
    """

    partitions: Sequence[Mapping[str, str | None]]
    days: Sequence[date]


def day_keys(table: Table) -> tuple[str, ...]:
    """Return the partition keys that have the days of a table; none if it has no days."""
    typed = list(zip(table.key_names, table.key_types, strict=True))
    for name, key_type in typed:
        if isinstance(key_type, DateType):
            return (name,)
    for name, key_type in typed:
        if isinstance(key_type, StringType) and _NAMES.fullmatch(name):
            return (name,)
    integers = {name for name, key_type in typed if isinstance(key_type, IntegerType)}
    if integers.issuperset(_PARTS):
        return _PARTS
    return next(((name,) for name in table.key_names if name in integers - {"day"} and _NAMES.fullmatch(name)), ())


def parse_day(text: str | None) -> date | None:
    """Return the day that is written as 2024-05-01 or 20240501; None for other strings."""
    if text is None or not _WRITTEN.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class _Series:
    """The first and the last day of the partitions with the same other values, whatever the spelling of these.

    Attributes:
        values: The other values as the catalog stores them, in one of their spellings.
        group: The same values as `ValueEncoder.group` returns them.
    """

    values: tuple[str, ...]
    group: bytes
    first: date
    last: date


class _Days:
    """The SQL expressions of a table's days and series."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self.connection = connection
        self.is_postgresql = connection.dialect.name == "postgresql"
        self.table = table
        self.keys = day_keys(table)
        self.others = tuple(name for name in table.key_names if name not in self.keys)
        self._positions = [table.key_names.index(key) for key in self.keys]
        self._other_positions = [table.key_names.index(name) for name in self.others]
        self.series_pieces = list(map(piece, self._other_positions))
        self._encoder = ValueEncoder(table)

    @property
    def text(self) -> ColumnElement[Any]:
        """The day as text that sorts as days do."""
        if len(self._positions) == 1:
            return piece(self._positions[0])
        year, month, day = map(piece, self._positions)
        return self._padded(year, 4).op("||")(self._padded(month, 2)).op("||")(self._padded(day, 2))

    def _padded(self, part: ColumnElement[Any], width: int) -> ColumnElement[Any]:
        """Return an integer of `width` digits; other strings are kept, so that they make no day."""
        digits = func.ltrim(part, "0", type_=Text)
        if self.is_postgresql:
            return func.lpad(digits, func.greatest(width, func.length(digits)), "0", type_=Text)
        return func.substr("0" * width, func.length(digits) + 1, type_=Text).op("||")(digits)

    def sorted(self, text: ColumnElement[Any]) -> ColumnElement[Any]:
        return collate(text, "C") if self.is_postgresql else text

    def group(self, packed: Sequence[str]) -> bytes:
        """Return the values of a series, given as the catalog stores them: equal for two spellings of them."""
        return self._encoder.group(self._other_positions, unpack_values("/".join(packed)) if packed else ())

    @property
    def is_dated(self) -> ColumnElement[bool]:
        return not_(or_(*(piece(position).in_(NO_VALUE) for position in self._positions)))

    def series(self, chosen: Sequence[ColumnElement[bool]], undated: Sequence[str]) -> list[_Series] | None:
        """Return the series of some partitions; None if there are too many.

        Args:
            undated: The strings that are no days.
        """
        labelled = [part.label(f"piece_{number}") for number, part in enumerate(self.series_pieces)]
        values = select(*labelled, self.text.label("day"), self.is_dated.label("is_dated")).where(*chosen)
        # With a limit, SQLite computes each value once.
        listed = (values if self.is_postgresql else values.limit(-1)).subquery()
        day, pieces = self.sorted(listed.c.day), [listed.c[part.name] for part in labelled]
        query = select(*pieces, func.min(day), func.max(day)).where(listed.c.is_dated)
        if undated:
            query = query.where(not_(is_among(self.connection, listed.c.day, undated)))
        # Without an order, PostgreSQL expects to need only the first of many groups, and sorts all partitions on disk.
        grouped = query.group_by(*pieces).order_by(func.count().desc()).limit(MAXIMUM_SERIES + 1)
        rows = self.connection.execute(grouped).all()
        if len(rows) > MAXIMUM_SERIES:
            return None
        found: dict[bytes, _Series] = {}
        for row in rows:
            written, first, last = tuple(row[:-2]), parse_day(row[-2]), parse_day(row[-1])
            if first and last:
                group = self.group(written)
                other = found.setdefault(group, _Series(written, group, first, last))
                found[group] = replace(other, first=min(first, other.first), last=max(last, other.last))
        return list(found.values())

    def indexed_series(self) -> list[_Series] | None:
        """Return the series of all partitions, read from an index with one look-up for each; None if none serves.

        An index has typed values, which only of strings and dates say how they are written.
        """
        is_written = all(type(self._type_of(name)) is StringType for name in self.others)
        if len(self.keys) > 1 or not is_written or not isinstance(self._type_of(self.keys[0]), DateType):
            return None
        count, queries = len(self.others), Queries(self.is_postgresql)
        for index in list_indexes(self.connection, self.table.id):
            before = index.keys[:count]
            if index.state is IndexState.ACTIVE and {*before} == {*self.others} and index.keys[count:][:1] == self.keys:
                break
        else:
            return None
        prefixes = [b""]
        for name in before:
            query = queries.distinct_values(index.id, list(map(prefix_span, prefixes)), self._type_of(name)).limited(
                MAXIMUM_SERIES + 1
            )
            prefixes = [bytes(prefix) for (prefix,) in self.connection.exec_driver_sql(*query)]
            if not 0 < len(prefixes) <= MAXIMUM_SERIES:
                return None
        types = [self._type_of(name) for name in (*before, *self.keys)]
        series = []
        for _, *ends in self.connection.exec_driver_sql(*queries.ends(index.id, prefixes)):
            first, last = (None if key is None else bytes(key) for key in ends)
            if first is None or last is None:
                continue
            if is_cut(first) or is_cut(last):
                return None
            *texts, first_day = map(decode_value, types, split_key(types, first))
            last_day = decode_value(types[-1], split_key(types, last)[-1])
            written = {
                name: NO_VALUE[0] if text is None else escape(str(text))
                for name, text in zip(before, texts, strict=True)
            }
            days = [parse_day(types[-1].format(day).strip("'")) for day in (first_day, last_day) if day is not None]
            if len(days) == 2 and days[0] and days[1]:
                values = tuple(written[name] for name in self.others)
                series.append(_Series(values, self.group(values), days[0], days[1]))
        return series

    def _type_of(self, name: str) -> KeyType:
        return self.table.key_types[self.table.key_names.index(name)]


def day_of(table: Table, values: Sequence[str | None]) -> date | None:
    """Return the day of a partition; None if its values are no day."""
    texts = [values[table.key_names.index(key)] for key in day_keys(table)]
    if len(texts) == 1:
        return parse_day(texts[0])
    try:
        return date(*(int(text or "") for text in texts)) if texts else None
    except ValueError:
        return None


def day_range(browsing: Browsing, table: Table, first: str, last: str) -> str:
    """Return the filter expression of the partitions from one day to another, both inclusive.

    Args:
        first, last: As for `Browsing.missing`.

    Raises:
        InvalidRequestError: A day is invalid, or the table has no days.
    """
    low, high = _required_day(first), _required_day(last)
    keys = _required_keys(table)
    if len(keys) == len(_PARTS):
        year, month, day = map(quoted_name, keys)
        number = f"{year} {{0}} {{1.year}} or ({year} = {{1.year}} and ({month} {{0}} {{1.month}} or "
        number += f"({month} = {{1.month}} and {day} {{0}}= {{1.day}})))"
        return f"({number.format('>', low)}) and ({number.format('<', high)})"
    [key] = keys
    position = table.key_names.index(key)
    is_number = isinstance(table.key_types[position], IntegerType)
    pattern = "%Y-%m-%d" if not is_number and _is_dashed(browsing, table, position) else "%Y%m%d"
    texts = (f"{day:{pattern}}" if is_number else f"'{day:{pattern}}'" for day in (low, high))
    return f"{quoted_name(key)} between {next(texts)} and {next(texts)}"


def _is_dashed(browsing: Browsing, table: Table, position: int) -> bool:
    """Return whether a key's days are written as 2024-05-01, as the table's first partitions are."""
    query = select(piece(position)).where(partitions_after(table.id)).order_by(*IN_ORDER).limit(_SAMPLE)
    with browsing.storage.read() as connection:
        texts = connection.scalars(query).all()
    return all("-" in text for text in texts if parse_day(text))


def _required_keys(table: Table) -> tuple[str, ...]:
    if not (keys := day_keys(table)):
        raise InvalidRequestError(f"table {table.full_name} has no partition key with days")
    return keys


def read_calendar(browsing: Browsing, name: str, expression: str | None) -> Calendar | None:
    """Return a table's partitions by day; see `Browsing.calendar`."""
    with browsing.storage.read() as connection:
        table = browsing.definitions.get_hive_table(name, connection)
        if not day_keys(table):
            return None
        calendar, _, _ = _read(browsing, connection, table, browsing.chosen(connection, table, expression), expression)
        return calendar


def _read(
    browsing: Browsing,
    connection: Connection,
    table: Table,
    chosen: Sequence[ColumnElement[bool]],
    expression: str | None,
) -> tuple[Calendar, list[_Series] | None, Mapping[date, list[str]]]:
    """Return a calendar, its series, and the strings of each day."""
    days = _Days(connection, table)
    groups = browsing.grouped(connection, chosen, [days.text], MAXIMUM_DAYS)
    if groups.is_cut:
        raise InvalidRequestError(
            f"table {table.full_name} has more than {MAXIMUM_DAYS:,} values of {', '.join(days.keys)}; filter them"
        )
    found: dict[date, PartitionGroup] = {}
    texts: dict[date, list[str]] = {}
    undated, unread = PartitionSums(), []
    for group in groups.groups:
        [text] = group.values
        at = parse_day(text)
        if at is None or text is None:
            undated = _added(undated, group.sums)
            unread += [] if text is None else [escape(text)]
            continue
        texts.setdefault(at, []).append(escape(text))
        before = found.get(at)
        found[at] = group if before is None else _merged(before, group)
    placeholders = [text for at in _placeholders(sorted(found)) for text in texts[at]]
    series = days.indexed_series() if expression is None and not unread and not placeholders else None
    if series is None:
        series = days.series(chosen, [*unread, *placeholders])
    expected = _expected(sorted(found), series)
    respelled = [text for spellings in texts.values() if len(spellings) > 1 for text in spellings]
    # Two partitions of a series on a day that is written in two ways are one of those that are expected.
    present = Counter(at for at, _ in _present(days, chosen, respelled)) if respelled else {}
    listed = []
    for at in sorted({*found, *expected}):
        group = found.get(at) or PartitionGroup((), PartitionSums())
        missing = max(0, expected.get(at, 0) - present.get(at, group.sums.partitions))
        is_known = series is not None or not group.sums.partitions
        listed.append(Day(at, group.sums, group.failed, missing if is_known else None))
    count = None if series is None else len(series)
    return Calendar(days.keys, days.others, listed, count, undated), series, texts


def _added(first: PartitionSums, second: PartitionSums) -> PartitionSums:
    newest = [at for at in (first.newest_at_ms, second.newest_at_ms) if at is not None]
    return PartitionSums(
        first.partitions + second.partitions,
        first.quarantined + second.quarantined,
        first.files + second.files,
        first.rows + second.rows,
        first.size_bytes + second.size_bytes,
        max(newest, default=None),
    )


def _merged(first: PartitionGroup, second: PartitionGroup) -> PartitionGroup:
    return replace(first, sums=_added(first.sums, second.sums), failed=first.failed + second.failed)


def expected_days(found: Sequence[date]) -> list[date]:
    """Return the days between the first and the last that a table with these days should have.

    Args:
        found: Ascending.
    """
    return [day for period in _periods(found) for day in _expected_in(period)]


def _periods(found: Sequence[date]) -> list[list[date]]:
    """Return ascending days, divided where there is none for ten years."""
    periods: list[list[date]] = []
    for day in found:
        if periods and day - periods[-1][-1] <= _FAR:
            periods[-1].append(day)
        else:
            periods.append([day])
    return periods


def _placeholders(found: Sequence[date]) -> list[date]:
    """Return those of ascending days that are few, and far from all others."""
    periods = _periods(found)
    longest = max(periods, key=len, default=None)
    return [day for period in periods if period is not longest and len(period) < _FEW for day in period]


def _expected_in(found: Sequence[date]) -> list[date]:
    """Return the days that a period should have; only its own ones if they are spread over more than a century."""
    if len(found) < 2 or (found[-1] - found[0]).days > MAXIMUM_DAYS:
        return list(found)
    first, last = found[0], found[-1]
    days = [first + timedelta(number) for number in range((last - first).days + 1)]
    if len(found) > 2 and all(day.day == 1 for day in found):
        return [day for day in days if day.day == 1]
    if len(days) < 28:
        return days
    weekdays = {day.weekday() for day in found}
    return [day for day in days if day.weekday() in weekdays]


def _expected(found: Sequence[date], series: Iterable[_Series] | None) -> dict[date, int]:
    """Return the number of partitions that each expected day should have; at least 1 if the series are unknown."""
    days = expected_days(found)
    if series is None:
        return dict.fromkeys(days, 1)
    begins: dict[date, int] = {}
    ends: dict[date, int] = {}
    for line in series:
        begins[line.first] = begins.get(line.first, 0) + 1
        ends[line.last] = ends.get(line.last, 0) + 1
    counts, open_series = {}, 0
    for day in sorted({*days, *begins, *ends}):
        open_series += begins.get(day, 0)
        counts[day] = open_series
        open_series -= ends.get(day, 0)
    kept = set(days)
    return {day: count for day, count in counts.items() if day in kept and count}


def find_missing(browsing: Browsing, name: str, first: str, last: str, expression: str | None) -> MissingPartitions:
    """Return the partitions that a table lacks in a range of days; see `Browsing.missing`."""
    from_day, to_day = (_required_day(text) for text in (first, last))
    with browsing.storage.read() as connection:
        table = browsing.definitions.get_hive_table(name, connection)
        _required_keys(table)
        days = _Days(connection, table)
        chosen = browsing.chosen(connection, table, expression)
        calendar, series, texts = _read(browsing, connection, table, chosen, expression)
        lacking = [day for day in calendar.days if day.missing and from_day <= day.at <= to_day]
        if series is None:
            return MissingPartitions([_values(days, day.at, (), texts) for day in lacking], [day.at for day in lacking])
        _refuse_many(lacking, len(series))
        present = _present(days, chosen, [text for day in lacking for text in texts.get(day.at, ())])
    partitions = [
        _values(days, day.at, line.values, texts)
        for day in lacking
        for line in series
        if line.first <= day.at <= line.last and (day.at, line.group) not in present
    ]
    return MissingPartitions(partitions, [day.at for day in lacking])


def _required_day(text: str) -> date:
    if (day := parse_day(text)) is None:
        raise InvalidRequestError(f"{text!r} is no day; write it as 2024-05-01")
    return day


def _refuse_many(days: Sequence[Day], series: int) -> None:
    count = sum(day.sums.partitions + (day.missing or 0) for day in days)
    if max(count, len(days) * series // 10) > MAXIMUM_MISSING:
        raise InvalidRequestError(
            f"the range has {len(days):,} days that lack partitions, with {count:,} partitions; at most "
            f"{MAXIMUM_MISSING:,} are listed, so pick fewer days"
        )


def _present(days: _Days, chosen: Sequence[ColumnElement[bool]], texts: Sequence[str]) -> set[tuple[date, bytes]]:
    """Return the day and the other values (`_Series.group`) of the partitions that exist on some days.

    Args:
        texts: The days, as the catalog stores them.
    """
    query = select(days.text, *days.series_pieces).where(*chosen, is_among(days.connection, days.text, texts))
    return {
        (day, days.group(values))
        for text, *values in days.connection.execute(query)
        if (day := parse_day(text)) is not None
    }


def _values(
    days: _Days, at: date, values: Sequence[str], texts: Mapping[date, Sequence[str]]
) -> Mapping[str, str | None]:
    """Return the values of a partition; of a string, the day is written as the table's other days are."""
    if len(days.keys) == 3:
        own: dict[str, str | None] = dict(zip(days.keys, (str(at.year), str(at.month), str(at.day)), strict=True))
    else:
        is_dashed = any("-" in text for known in texts.values() for text in known)
        own = {days.keys[0]: at.isoformat() if is_dashed else f"{at:%Y%m%d}"}
    given = unpack_values("/".join(values)) if values else ()
    own |= dict(zip(days.others, given, strict=False))
    return {name: own[name] for name in days.table.key_names if name in own}
