"""Facts of ORC files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from catalog.errors import FileProblem, UnusableFileError
from catalog.files.filesystem import FileInfo
from catalog.iceberg import bounds
from catalog.iceberg.bounds import UNUSABLE
from catalog.iceberg.footers.calendars import FIRST_GREGORIAN_DAY, old_values
from catalog.iceberg.footers.columns import FileColumn, Found, Match, match_columns
from catalog.iceberg.footers.facts import FileFacts
from catalog.iceberg.footers.orc_messages import MISSING_TEXT, OrcTail, ShortTailError, parse_tail, parse_type
from catalog.iceberg.footers.tails import read_range, read_tail

_MAGIC = b"ORC"
_NAMES = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "timestamp", "array"),
    *("map", "struct", "uniontype", "decimal", "date", "varchar", "char", "timestamp with local time zone"),
)
"""Hive's names of ORC's type kinds, by number."""
_KINDS = {
    **{"tinyint": "small int", "smallint": "small int", "bigint": "long", "varchar": "string"},
    **{"array": "list", "timestamp with local time zone": "timestamptz", "uniontype": "other"},
}
_STRUCT = 12
_FIELD_ID = "iceberg.id"
"""The type attribute in which Iceberg's writers store the field id."""

_JAVA, _CPP, _PRESTO, _TRINO = 0, 1, 2, 4
_JAVA_RIGHT_MAXIMA, _JAVA_UTC_TIMESTAMPS, _JAVA_RIGHT_SHORT_DECIMALS = 1, 6, 7
"""Versions of ORC's Java writer: HIVE-8732, ORC-135, ORC-517. Source: `OrcFile.WriterVersion`."""
_SHORT_DECIMAL_DIGITS = 18
_MILLISECONDS_OF_DAY = 86_400_000
_SCHEMAS_KEPT = 64

_Pair = tuple[bytes, bytes | None]
_BoundsOf = Callable[[Any], _Pair | None]
"""Converts a message `ColumnStatistics` to bounds; returns None, or raises an error of `UNUSABLE`, for none."""


class _Leaf(NamedTuple):
    """A primitive column.

    Attributes:
        position: Its number in the type tree.
        bounds: None when the column has no bounds, or unreliable ones.
        is_floating: A sum in its statistics that is a number proves that it has no NaN.
    """

    position: int
    field_id: int
    bounds: _BoundsOf | None
    is_repeated: bool
    is_floating: bool


class _Dated(NamedTuple):
    """A column of dates or timestamps, which some readers convert from an older calendar."""

    position: int
    name: str
    is_date: bool


class _Plan(NamedTuple):
    """The facts to extract from footers of one schema and writer."""

    leaves: tuple[_Leaf, ...]
    spellings: tuple[tuple[int, str], ...]
    unknown: tuple[tuple[int, tuple[str, ...]], ...]
    dated: tuple[_Dated, ...]


class OrcReader:
    """Reader of the facts of the ORC files of one table."""

    def __init__(self, columns: Sequence[NestedField]) -> None:
        """Prepare for the table's columns without its partition keys."""
        self._columns = columns
        self._plans: dict[tuple[bytes, int, int], _Plan] = {}

    def read(self, file: FileInfo) -> FileFacts:
        """Return the facts of a file that is not empty; raises `UnusableFileError`."""
        tail = self._tail(file)
        footer = tail.footer
        key = (b"".join(footer.types), footer.writer, tail.writer_version)
        plan = self._plans.get(key)
        if plan is None:
            plan = _plan_of(self._columns, file.path, tail)
            if len(self._plans) >= _SCHEMAS_KEPT:
                self._plans.clear()
            self._plans[key] = plan
        facts = _facts(footer, plan)
        if plan.dated and (undated := _undated(file.path, footer, plan.dated)):
            return replace(facts, undated=undated)
        return facts

    def _tail(self, file: FileInfo) -> OrcTail:
        tail = read_tail(file)
        if not tail[:-1].endswith(_MAGIC):
            raise _no_orc(file)
        try:
            try:
                return parse_tail(tail, file.size_bytes)
            except ShortTailError as short:
                return parse_tail(read_tail(file, short.length), file.size_bytes)
        except ValueError as error:
            text = f"its ORC footer cannot be read: {error}; write the file again"
            raise UnusableFileError(file.path, FileProblem.DAMAGED, text) from None


def _undated(path: str, footer: Any, dated: Sequence[_Dated]) -> tuple[str, ...]:
    """Return the columns that may have values that other readers convert; raise `UnusableFileError` if some have.

    The footer's calendar does not matter: ORC's Java library converts values to the older calendar, Spark converts them
    back, and Iceberg's reader for Spark does not.
    """
    if len(footer.statistics) != len(footer.types):
        return tuple(column.name for column in dated) if footer.numberOfRows else ()
    unknown = []
    for column in dated:
        known = footer.statistics[column.position]
        day = _first_day(known, column.is_date)
        if day is None:
            if known.numberOfValues:
                unknown.append(column.name)
        elif day < FIRST_GREGORIAN_DAY:
            raise old_values(path, column.name, is_date=column.is_date, first_day=FIRST_GREGORIAN_DAY)
    return tuple(unknown)


def _first_day(known: Any, is_date: bool) -> int | None:
    """Return the day of a column's minimum; None when it is unknown."""
    if is_date:
        day, last = known.date.minimum, known.date.maximum
        return int(day) if day <= last else None
    moments = known.timestamp
    if moments.minimumUtc <= moments.maximumUtc:
        return int(moments.minimumUtc) // _MILLISECONDS_OF_DAY
    # In local time of the writer's time zone.
    return int(moments.minimum) // _MILLISECONDS_OF_DAY - 1 if moments.minimum <= moments.maximum else None


def _no_orc(file: FileInfo) -> UnusableFileError:
    if read_range(file, 0, len(_MAGIC)) == _MAGIC:
        text = "it starts like an ORC file but does not end like one; write the file again"
        return UnusableFileError(file.path, FileProblem.DAMAGED, text)
    return UnusableFileError(file.path, FileProblem.FOREIGN, "it is not an ORC file; move it away, or skip such files")


def _facts(footer: Any, plan: _Plan) -> FileFacts:
    rows = footer.numberOfRows
    sizes, values, nulls, nans = {}, {}, {}, {}
    lower_bounds: dict[int, bytes] = {}
    upper_bounds: dict[int, bytes] = {}
    # Statistics are optional.
    statistics = list(footer.statistics)
    leaves = plan.leaves if len(statistics) == len(footer.types) else ()
    for position, field_id, bounds_of, is_repeated, is_floating in leaves:
        known = statistics[position]
        size = known.bytesOnDisk
        if size:
            sizes[field_id] = size
        count = known.numberOfValues
        if is_repeated:
            if not known.hasNull:
                values[field_id], nulls[field_id] = count, 0
            continue
        values[field_id] = rows
        # A writer may have recorded another number than there can be.
        nulls[field_id] = max(rows - count, 0)
        if is_floating and known.floating.sum == known.floating.sum:
            nans[field_id] = 0
        if bounds_of is None or not count:
            continue
        try:
            pair = bounds_of(known)
        except UNUSABLE:
            continue
        if pair is not None:
            lower_bounds[field_id] = pair[0]
            if pair[1] is not None:
                upper_bounds[field_id] = pair[1]
    offsets = tuple(sorted(stripe.offset for stripe in footer.stripes)) or None
    names = plan.spellings, plan.unknown
    return FileFacts(rows, sizes, values, nulls, nans, lower_bounds, upper_bounds, offsets, *names)


def _plan_of(columns: Sequence[NestedField], path: str, tail: OrcTail) -> _Plan:
    try:
        types = [parse_type(encoded) for encoded in tail.footer.types]
        parts = [part for own in types for part in own.subtypes]
        if len(set(parts)) < len(parts):
            # Walked as a tree, they would be visited again and again.
            raise ValueError("one of its types is part of two others")
        root = _file_column("", types, 0)
    except (ValueError, IndexError, RecursionError) as error:
        text = f"its ORC footer cannot be read: {error}; write the file again"
        raise UnusableFileError(path, FileProblem.DAMAGED, text) from None
    if root.kind != "struct":
        text = f"its rows are of type {root.type} and have no columns; write the file again"
        raise UnusableFileError(path, FileProblem.INCOMPATIBLE_COLUMN, text)
    match = _match(columns, root.parts, path)
    leaves = []
    for common in match.found:
        is_floating = common.column.kind in ("float", "double") and tail.footer.writer in (_JAVA, _CPP)
        how = None if common.is_repeated else _bounds_of(common, tail)
        leaves.append(_Leaf(common.column.position, common.field_id, how, common.is_repeated, is_floating))
    dated = tuple(
        _Dated(common.column.position, common.name, isinstance(common.type, DateType))
        for common in match.found
        if isinstance(common.type, DateType | TimestampType | TimestamptzType)
    )
    return _Plan(tuple(leaves), match.spellings, match.unknown, dated)


_POSITIONAL = re.compile("_col([0-9]+)")


def _match(columns: Sequence[NestedField], parts: tuple[FileColumn, ...], path: str) -> Match:
    """Match columns by name; for files of Hive before 2.0, which have no column names, by position."""
    if not parts or not all(_POSITIONAL.fullmatch(part.name) for part in parts):
        return match_columns(columns, parts, path)
    named = [replace(part, name=column.name) for column, part in zip(columns, parts, strict=False)]
    match = match_columns(columns, (*named, *parts[len(named) :]), path)
    unnamed = tuple((column.field_id, part.name) for column, part in zip(columns, parts, strict=False))
    return Match(match.found, unnamed + match.spellings, match.unknown)


def _file_column(name: str, types: Sequence[Any], position: int) -> FileColumn:
    if not types:
        raise ValueError("it has no types")
    own = types[position]
    type_name = _NAMES[own.kind] if own.kind < len(_NAMES) else "of an unknown type"
    names: Sequence[str] = ("element",) if type_name == "array" else ("key", "value")
    if own.kind == _STRUCT:
        names = [name.decode() for name in own.fieldNames]
    if any(part <= position for part in own.subtypes):
        raise ValueError("its types are recursive")
    parts: tuple[FileColumn, ...] = ()
    if type_name in ("array", "map", "struct"):
        parts = tuple(_file_column(part, types, number) for part, number in zip(names, own.subtypes, strict=True))
    if type_name == "decimal":
        type_name, kind = f"decimal({own.precision},{own.scale})", "decimal"
    else:
        kind = _KINDS.get(type_name, type_name)
    field_id = next((int(entry.value) for entry in own.attributes if entry.key == _FIELD_ID), None)
    return FileColumn(name, type_name, kind, position, parts, own.precision, own.scale, field_id)


def _bounds_of(common: Found, tail: OrcTail) -> _BoundsOf | None:
    """Return the conversion of a column's statistics to bounds; its type is compatible with the table's."""
    if tail.footer.writer == _JAVA and tail.writer_version < _java_version_needed(common):
        return None
    match common.type:
        case IntegerType():
            return lambda known: _whole(known.whole, bounds.INT.lower)
        case LongType():
            return lambda known: _whole(known.whole, bounds.LONG.lower)
        case BooleanType():
            return _boolean
        case StringType():
            return _text
        case FloatType() | DoubleType():
            how = bounds.FLOAT if isinstance(common.type, FloatType) else bounds.DOUBLE
            # These writers omit the minimum if there is a NaN, and never write a sum.
            needs_sum = tail.footer.writer not in (_PRESTO, _TRINO)
            return lambda known: _floating(known.floating, how, needs_sum)
        case DateType():
            return lambda known: _whole(known.date, bounds.INT.lower)
        case TimestampType() | TimestamptzType():
            return lambda known: _timestamp(known.timestamp)
        case DecimalType(scale=scale):
            return lambda known: _decimal(known.decimal, scale)
    return None


def _java_version_needed(common: Found) -> int:
    """Return the first version of ORC's Java writer whose minima and maxima of a column are correct."""
    match common.type:
        case TimestampType() | TimestamptzType():
            return _JAVA_UTC_TIMESTAMPS
        case DecimalType() if common.column.precision <= _SHORT_DECIMAL_DIGITS:
            return _JAVA_RIGHT_SHORT_DECIMALS
    return _JAVA_RIGHT_MAXIMA


def _whole(known: Any, pack: Callable[[int], bytes]) -> _Pair | None:
    low, high = known.minimum, known.maximum
    return (pack(low), pack(high)) if low <= high else None


def _boolean(known: Any) -> _Pair | None:
    if len(known.bucket.count) != 1:
        return None
    count = known.bucket.count[0]
    return bounds.BOOLEAN.lower(count == known.numberOfValues), bounds.BOOLEAN.lower(count > 0)


def _text(known: Any) -> _Pair | None:
    text = known.text
    low, high = text.minimum, text.maximum
    # The writer truncates long values.
    low = text.lowerBound if low == MISSING_TEXT else low
    high = text.upperBound if high == MISSING_TEXT else high
    return bounds.checked_text(low), bounds.checked_text(high)


def _floating(known: Any, how: bounds.Bounds, needs_sum: bool) -> _Pair | None:
    """Return bounds unless there may be a NaN, which falsifies merged statistics and shows only in the sum."""
    low, high = known.minimum, known.maximum
    if (needs_sum and known.sum != known.sum) or not low <= high:
        return None
    return how.lower(low), how.upper(high)


def _timestamp(known: Any) -> _Pair | None:
    """Return bounds of local times or of instants; both are counted as if in UTC."""
    low, high = known.minimumUtc, known.maximumUtc
    if low > high:
        return None
    # The fraction of a millisecond is stored separately, plus one.
    low = low * 1000 + (known.minimumNanos - 1) // 1000
    high = high * 1000 + (known.maximumNanos - 1) // 1000
    return bounds.LONG.lower(low), bounds.LONG.lower(high)


def _decimal(known: Any, scale: int) -> _Pair | None:
    low, high = bounds.unscaled(known.minimum, scale), bounds.unscaled(known.maximum, scale)
    return bounds.decimal_bytes(low), bounds.decimal_bytes(high)
