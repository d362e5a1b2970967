"""Facts of Parquet files. What depends only on the schemas of file and table is computed once per schema of files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from catalog.files.filesystem import FileInfo
from catalog.iceberg import bounds
from catalog.iceberg.bounds import UNUSABLE, Bounds
from catalog.iceberg.footers.calendars import (
    FIRST_GREGORIAN_DAY,
    FIRST_STANDARD_DAY,
    MICROSECONDS_OF_DAY,
    Calendar,
    calendar_of,
    old_values,
    unknown_values,
)
from catalog.iceberg.footers.columns import FileColumn, Found, Match, match_columns
from catalog.iceberg.footers.facts import FileFacts
from catalog.iceberg.footers.parquet_footers import UNPACK, FileSchema, Footer, FooterParser, reading_footer
from catalog.iceberg.footers.row_groups import Chunk, RowGroup
from catalog.iceberg.footers.thrift import read_varint

_SCHEMAS_KEPT = 64
_JAVA_LIBRARY = b"parquet-mr version"
_TEXT = 0x18
"""The header of a struct's first or next field, if it is a string."""
_UNKNOWN = -math.inf
_BOUNDS_AS_THEY_ARE = (("BOOLEAN", bounds.BOOLEAN), ("INT32", bounds.INT), ("INT64", bounds.LONG))
"""Types whose plain encoding in Parquet equals Iceberg's."""


class _Leaf(NamedTuple):
    """A primitive column.

    Attributes:
        position: Of its chunk in a row group.
        bounds: None when the column has no bounds, or unreliable ones.
        unpack: Decodes a minimum or maximum to a number; None for bytes.
        is_bound: A minimum or maximum is a bound without conversion.
    """

    position: int
    field_id: int
    bounds: Bounds | None
    unpack: Callable[[bytes], tuple[Any, ...]] | None
    is_bound: bool


class _Dated(NamedTuple):
    """A column of dates or timestamps, which some readers convert from an older calendar.

    Attributes:
        unpack: Decodes a minimum to a number; None for a timestamp of 96 bits, which has no minimum.
        recent: The first value that is never converted.
    """

    position: int
    name: str
    is_date: bool
    unpack: Callable[[bytes], tuple[Any, ...]] | None
    recent: int


class _Plan(NamedTuple):
    """The facts to extract from footers of one schema.

    Attributes:
        ordered: The columns of a file that records the order of its minima and maxima.
        unordered: The columns of an old file, in which only the signed order was correct.
        booleans: Position → name of the table's top-level boolean columns; Iceberg reads nested ones value by value.
    """

    ordered: tuple[_Leaf, ...]
    unordered: tuple[_Leaf, ...]
    spellings: tuple[tuple[int, str], ...]
    unknown: tuple[tuple[int, tuple[str, ...]], ...]
    booleans: Mapping[int, str]
    dated: tuple[_Dated, ...]


class ParquetReader:
    """Reader of the facts of the Parquet files of one table."""

    def __init__(self, columns: Sequence[NestedField]) -> None:
        """Prepare for the table's columns without its partition keys."""
        self._columns = columns
        self._footers = FooterParser()
        self._plans: dict[FileSchema, _Plan] = {}
        self._calendars: dict[bytes, Calendar] = {}

    def read(self, file: FileInfo) -> FileFacts:
        """Return the facts of a file that is not empty; raises `UnusableFileError`."""
        return self.facts_of(file.path, self._footers.read(file))

    def facts_of(self, path: str, footer: Footer) -> FileFacts:
        """Return the facts of a file whose footer was read; raises `UnusableFileError`."""
        plan, rows, groups = self._plan(path, footer.schema), footer.row_count, footer.groups
        leaves = plan.ordered if footer.is_ordered else plan.unordered
        if len(groups) == 1:
            facts = _facts_of_one(rows, groups[0], leaves, plan.spellings)
        else:
            facts = _facts_of_many(rows, groups, leaves, plan.spellings)
        if plan.booleans:
            positions = {position for group in groups for position in group.run_lengths} & plan.booleans.keys()
            facts = replace(facts, unvectorized=tuple(plan.booleans[position] for position in sorted(positions)))
        doubtful = [(column, least) for column in plan.dated if (least := _least(groups, column)) < column.recent]
        if doubtful and (undated := _undated(path, doubtful, self._calendar(footer.rest))):
            facts = replace(facts, undated=undated)
        return replace(facts, unknown=plan.unknown) if plan.unknown else facts

    def _calendar(self, rest: bytes) -> Calendar:
        """Return the calendar of a file; cached by the footer after the row groups, equal for one writer and schema."""
        calendar = self._calendars.get(rest)
        if calendar is None:
            if len(self._calendars) >= _SCHEMAS_KEPT:
                self._calendars.clear()
            calendar = calendar_of(lambda key: _metadata(rest, key), _JAVA_LIBRARY in rest)
            self._calendars[rest] = calendar
        return calendar

    def _plan(self, path: str, schema: FileSchema) -> _Plan:
        plan = self._plans.get(schema)
        if plan is None:
            if len(self._plans) >= _SCHEMAS_KEPT:
                self._plans.clear()
            with reading_footer(path):
                plan = self._plans[schema] = _plan_of(self._columns, path, schema.columns)
        return plan


def _undated(path: str, doubtful: Sequence[tuple[_Dated, float]], calendar: Calendar) -> tuple[str, ...]:
    """Return the columns that may have values that other readers convert; raise `UnusableFileError` if some have.

    Args:
        doubtful: Columns with their minima.
    """
    unknown = []
    for column, least in doubtful:
        limit = calendar.first_day if column.is_date else calendar.first_microsecond
        if column.unpack is None:
            if calendar.has_old_96_bits:
                unknown.append(column.name)
        elif limit is not None and least == _UNKNOWN:
            unknown.append(column.name)
        elif limit is not None and least < limit:
            first_day = limit if column.is_date else limit // MICROSECONDS_OF_DAY
            raise old_values(path, column.name, is_date=column.is_date, first_day=first_day)
    if unknown and not calendar.is_of_spark:
        raise unknown_values(path, unknown, is_comparable=False)
    return tuple(unknown)


def _least(groups: Sequence[RowGroup], column: _Dated) -> float:
    """Return a column's minimum over all row groups, or minus infinity if it is unknown."""
    least = math.inf
    for group in groups:
        values, _, nulls, low, _ = group.chunks[column.position]
        if low is not None and column.unpack is not None:
            least = min(least, column.unpack(low)[0])
        elif values != nulls:
            return _UNKNOWN
    return least


def _metadata(rest: bytes, key: str) -> str | None:
    """Return the value of a key of the file's own metadata.

    Args:
        rest: The footer after its row groups.
    """
    encoded = key.encode()
    start = rest.rfind(bytes((_TEXT, len(encoded))) + encoded)
    if start < 0:
        return None
    end = start + 2 + len(encoded)
    if rest[end] != _TEXT:
        return ""
    length, position = read_varint(rest, end + 1)
    return rest[position : position + length].decode("utf-8", "replace")


def _facts_of_one(
    rows: int, group: RowGroup, leaves: Sequence[_Leaf], spellings: tuple[tuple[int, str], ...]
) -> FileFacts:
    """Return the facts of a file with one row group, as most files have."""
    sizes, counts, nulls = {}, {}, {}
    lower_bounds: dict[int, bytes] = {}
    upper_bounds: dict[int, bytes] = {}
    chunks = group.chunks
    for position, field_id, how, unpack, is_bound in leaves:
        count, sizes[field_id], null_count, low, high = chunks[position]
        counts[field_id] = count
        # A writer may have recorded another number than there can be.
        if null_count is None or not 0 <= null_count <= count:
            # Iceberg assumes that bounds without a null count cover all rows: a metadata-only delete would also remove
            # the nulls.
            continue
        nulls[field_id] = null_count
        if how is None or low is None or high is None:
            continue
        if is_bound:
            lower_bounds[field_id], upper_bounds[field_id] = low, high
            continue
        comparable, to_lower, to_upper = how
        try:
            least, greatest = (low, high) if unpack is None else (unpack(low)[0], unpack(high)[0])
            if comparable is not None:
                least, greatest = comparable(least), comparable(greatest)
            lower, upper = to_lower(least), to_upper(greatest)
        except UNUSABLE:
            continue
        lower_bounds[field_id] = lower
        if upper is not None:
            upper_bounds[field_id] = upper
    return FileFacts(rows, sizes, counts, nulls, {}, lower_bounds, upper_bounds, (group.start,), spellings)


def _facts_of_many(
    rows: int, groups: Sequence[RowGroup], leaves: Sequence[_Leaf], spellings: tuple[tuple[int, str], ...]
) -> FileFacts:
    sizes, counts, nulls = {}, {}, {}
    lower_bounds: dict[int, bytes] = {}
    upper_bounds: dict[int, bytes] = {}
    for leaf in leaves if groups else ():
        chunks = [group.chunks[leaf.position] for group in groups]
        values, bytes_, null_counts, _, _ = zip(*chunks, strict=True)
        counts[leaf.field_id], sizes[leaf.field_id] = sum(values), sum(bytes_)
        if any(known is None or not 0 <= known <= count for count, known in zip(values, null_counts, strict=True)):
            continue
        nulls[leaf.field_id] = sum(null_counts)
        try:
            lower, upper = _merged(chunks, leaf)
        except UNUSABLE:
            continue
        if lower is not None:
            lower_bounds[leaf.field_id] = lower
        if upper is not None:
            upper_bounds[leaf.field_id] = upper
    starts = tuple(sorted(group.start for group in groups)) or None
    return FileFacts(rows, sizes, counts, nulls, {}, lower_bounds, upper_bounds, starts, spellings)


def _merged(chunks: Sequence[Chunk], leaf: _Leaf) -> tuple[bytes | None, bytes | None]:
    """Return a column's bounds over all row groups; none if a group with values has no minimum and maximum."""
    pairs = [(low, high) for _, _, _, low, high in chunks if low is not None and high is not None]
    missing = [chunk for chunk in chunks if chunk[3] is None or chunk[4] is None]
    if leaf.bounds is None or not pairs or any(values != nulls for values, _, nulls, _, _ in missing):
        return None, None
    lows, highs = map(list[Any], zip(*pairs, strict=True))
    if leaf.unpack is not None:
        lows, highs = [leaf.unpack(low)[0] for low in lows], [leaf.unpack(high)[0] for high in highs]
    if leaf.bounds.comparable is not None:
        lows, highs = list(map(leaf.bounds.comparable, lows)), list(map(leaf.bounds.comparable, highs))
    return leaf.bounds.lower(min(lows)), leaf.bounds.upper(max(highs))


def _plan_of(columns: Sequence[NestedField], path: str, schema: Any) -> _Plan:
    match = match_columns(columns, file_columns(schema), path)
    ordered, unordered = [], []
    for common in match.found:
        position = common.column.position
        physical = schema.column(position).physical_type
        how = None if common.is_repeated else _bounds_of(schema.column(position), common)
        unpack = UNPACK.get(physical)
        leaf = _Leaf(position, common.field_id, how, unpack, (physical, how) in _BOUNDS_AS_THEY_ARE)
        ordered.append(leaf)
        unordered.append(leaf if unpack is not None else leaf._replace(bounds=None))
    names = {column.field_id: column.name for column in columns if isinstance(column.field_type, BooleanType)}
    booleans = {leaf.position: names[leaf.field_id] for leaf in ordered if leaf.field_id in names}
    dated = tuple(_dated(schema, match))
    return _Plan(tuple(ordered), tuple(unordered), match.spellings, match.unknown, booleans, dated)


def _dated(schema: Any, match: Match) -> Iterator[_Dated]:
    for common in match.found:
        is_date = isinstance(common.type, DateType)
        if is_date or isinstance(common.type, TimestampType | TimestamptzType):
            position = common.column.position
            recent = FIRST_GREGORIAN_DAY if is_date else FIRST_STANDARD_DAY * MICROSECONDS_OF_DAY
            unpack = UNPACK.get(schema.column(position).physical_type)
            yield _Dated(position, common.name, is_date, unpack, recent)


def _bounds_of(leaf: Any, common: Found) -> Bounds | None:
    """Return the conversion of a column's footer values to bounds; its type is compatible with the table's."""
    physical = leaf.physical_type
    match common.type:
        case DecimalType():
            return bounds.DECIMAL if physical in ("INT32", "INT64") else bounds.DECIMAL_OF_BYTES
        case StringType():
            return bounds.TEXT
        case BinaryType():
            return bounds.BINARY
        case FloatType() | DoubleType():
            # A footer does not record NaNs. With bounds and without a NaN count, Iceberg assumes that there are none:
            # filters would skip such rows, and a metadata-only delete would remove them.
            return None
        case LongType():
            return bounds.LONG
    if physical == "BOOLEAN":
        return bounds.BOOLEAN
    if physical == "INT32":
        return bounds.INT
    if physical == "INT64":
        # A timestamp, in microseconds.
        return bounds.LONG
    # INT96 has no order.
    return None


def file_columns(schema: Any) -> list[FileColumn]:
    """Return a file's columns as a tree, whose leaves are numbered as in the footer.

    Args:
        schema: As PyArrow reads it.
    """
    leaves = iter(range(len(schema)))
    return [_file_column(field, field.name, schema, leaves) for field in schema.to_arrow_schema()]


def _file_column(field: pyarrow.Field, name: str, schema: Any, leaves: Iterator[int]) -> FileColumn:
    types, arrow, field_id = pyarrow.types, field.type, _field_id(field)
    if isinstance(arrow, pyarrow.BaseExtensionType):
        arrow = arrow.storage_type
    if types.is_struct(arrow):
        parts = tuple(_file_column(part, part.name, schema, leaves) for part in arrow)
        return FileColumn(name, "a struct", "struct", -1, parts, field_id=field_id)
    if types.is_map(arrow):
        key = _file_column(arrow.key_field, "key", schema, leaves)
        value = _file_column(arrow.item_field, "value", schema, leaves)
        return FileColumn(name, "a map", "map", -1, (key, value), field_id=field_id)
    if types.is_nested(arrow) and hasattr(arrow, "value_type"):
        element = _file_column(arrow.value_field, "element", schema, leaves)
        return FileColumn(name, "a list", "list", -1, (element,), field_id=field_id)
    position = next(leaves)
    leaf = schema.column(position)
    logical = json.loads(leaf.logical_type.to_json())
    annotation = str(leaf.logical_type)
    return FileColumn(
        name,
        leaf.physical_type if annotation == "None" else f"{leaf.physical_type} ({annotation})",
        _kind(leaf.physical_type, logical),
        position,
        precision=logical.get("precision", 0),
        scale=logical.get("scale", 0),
        field_id=field_id,
    )


def _field_id(field: pyarrow.Field) -> int | None:
    text = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if text is None else int(text)


_PLAIN_KINDS = {
    "BOOLEAN": "boolean",
    "INT32": "int",
    "INT64": "long",
    "INT96": "any timestamp",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BYTE_ARRAY": "binary",
}


def _kind(physical: str, logical: dict[str, Any]) -> str:
    match logical.get("Type"), physical:
        case "None" | "Unknown", _:
            return _PLAIN_KINDS.get(physical, "other")
        case "Int", _ if logical["isSigned"]:
            return _PLAIN_KINDS[physical]
        case "String" | "Enum" | "JSON", "BYTE_ARRAY":
            return "string"
        case "BSON", _:
            return "binary"
        case "Decimal", _:
            return "decimal"
        case "Date", _:
            return "date"
        case "Timestamp", "INT64" if logical["timeUnit"] == "microseconds":
            # Iceberg's Spark readers treat other units as microseconds, at least in dictionaries. Hive's and Spark's
            # readers ignore whether a file's timestamps are marked as UTC.
            return "any timestamp"
    return "other"
