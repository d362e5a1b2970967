"""Facts of Parquet files.

PyArrow parses the footer. What depends on the schema alone is worked out once for each schema: files of one table mostly
begin their footers with the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
from pyiceberg.types import BinaryType, DecimalType, DoubleType, FloatType, LongType, NestedField, StringType

from catalog.errors import FileProblem, UnusableFileError
from catalog.files import FileInfo
from catalog.iceberg import bounds
from catalog.iceberg.bounds import UNUSABLE, Bounds
from catalog.iceberg.columns import FileColumn, Found, match_columns
from catalog.iceberg.facts import FileFacts
from catalog.iceberg.tails import read_range, read_tail
from catalog.iceberg.thrift import schema_end

_MAGIC, _ENCRYPTED_MAGIC = b"PAR1", b"PARE"
_ENDING = 8
"""Bytes behind the footer: its length and the magic."""
_SCHEMAS_KEPT = 64
_SIGNED_PHYSICAL_TYPES = ("BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE")
_TIMESTAMP_BOUNDS = {
    "milliseconds": bounds.MILLISECONDS,
    "microseconds": bounds.LONG,
    "nanoseconds": bounds.NANOSECONDS,
}


class _Leaf(NamedTuple):
    """A column with values.

    Attributes:
        position: Of its chunk in a row group.
        bounds: None where the column has none, or none that can be relied on.
    """

    position: int
    field_id: int
    bounds: Bounds | None


class _Plan(NamedTuple):
    """What to take from the footers of a schema.

    Attributes:
        start: The bytes that a footer of this schema begins with.
        ordered: The columns of a file that says by which order it has found minima and maxima.
        unordered: Those of a file of old, in which only the signed order was right.
        orders: What a footer says in which every column has its type's own order (`column_orders`).
    """

    start: bytes
    ordered: tuple[_Leaf, ...]
    unordered: tuple[_Leaf, ...]
    spellings: tuple[tuple[int, str], ...]
    orders: bytes


class ParquetReader:
    """Reads the facts of the Parquet files of one table."""

    def __init__(self, columns: Sequence[NestedField]) -> None:
        """Take the table's columns, without its partition keys."""
        self._columns = columns
        self._plans: list[_Plan] = []

    def read(self, file: FileInfo) -> FileFacts:
        """Return the facts of a file that is not empty; raises `UnusableFileError`."""
        footer = self._footer(file)
        try:
            # A footer and its ending are all of a file that PyArrow looks at.
            metadata = pyarrow.parquet.read_metadata(pyarrow.BufferReader(footer))
        except (pyarrow.ArrowException, OSError) as error:
            text = f"its Parquet footer cannot be read: {str(error).strip()}; write the file again"
            raise UnusableFileError(file.path, FileProblem.DAMAGED, text) from None
        plan = self._plan(file.path, footer, metadata)
        leaves = plan.ordered if plan.orders in footer[-len(plan.orders) - 64 :] else plan.unordered
        if metadata.num_row_groups == 1:
            return _facts_of_one(metadata, leaves, plan.spellings)
        return _facts_of_many(metadata, leaves, plan.spellings)

    def _footer(self, file: FileInfo) -> bytes:
        """Return a file's bytes from the footer on, with the ending."""
        tail = read_tail(file)
        if tail[-4:] != _MAGIC or len(tail) < _ENDING + len(_MAGIC):
            raise _no_parquet(file, tail)
        length = int.from_bytes(tail[-8:-4], "little") + _ENDING
        if length > file.size_bytes - len(_MAGIC) or length == _ENDING:
            text = f"its Parquet footer would have {length - _ENDING} bytes, of {file.size_bytes}; write the file again"
            raise UnusableFileError(file.path, FileProblem.DAMAGED, text)
        if length > len(tail):
            tail = read_tail(file, length)
        return tail[-length:]

    def _plan(self, path: str, footer: bytes, metadata: Any) -> _Plan:
        for plan in self._plans:
            if footer.startswith(plan.start):
                return plan
        plan = _plan_of(self._columns, path, metadata, _beginning(footer))
        self._plans = [plan, *self._plans[: _SCHEMAS_KEPT - 1]]
        return plan


def _beginning(footer: bytes) -> bytes:
    try:
        return footer[: schema_end(footer)]
    except (ValueError, IndexError):
        # A plan of its own for a footer of unusual order, which PyArrow could read all the same.
        return footer


def _no_parquet(file: FileInfo, tail: bytes) -> UnusableFileError:
    if tail[-4:] == _ENCRYPTED_MAGIC:
        text = "it is an encrypted Parquet file, whose footer only its owner can read; write it again without encryption"
        return UnusableFileError(file.path, FileProblem.FOREIGN, text)
    if read_range(file, 0, len(_MAGIC)) == _MAGIC:
        return UnusableFileError(
            file.path, FileProblem.DAMAGED, "it begins as a Parquet file and does not end as one; write the file again"
        )
    return UnusableFileError(
        file.path, FileProblem.FOREIGN, "it is no Parquet file; move it away, or skip such files"
    )


def _facts_of_one(metadata: Any, leaves: Sequence[_Leaf], spellings: tuple[tuple[int, str], ...]) -> FileFacts:
    """Return the facts of a file with one row group, as most have."""
    sizes, values, nulls = {}, {}, {}
    lower_bounds: dict[int, bytes] = {}
    upper_bounds: dict[int, bytes] = {}
    group = metadata.row_group(0)
    chunk_at = group.column
    for position, field_id, how in leaves:
        chunk = chunk_at(position)
        sizes[field_id] = chunk.total_compressed_size
        values[field_id] = chunk.num_values
        known = chunk.statistics
        if known is None:
            continue
        if known.has_null_count:
            nulls[field_id] = known.null_count
        if how is None or not known.has_min_max:
            continue
        comparable, to_lower, to_upper = how
        low, high = known.min_raw, known.max_raw
        try:
            if comparable is not None:
                low, high = comparable(low), comparable(high)
            lower, upper = to_lower(low), to_upper(high)
        except UNUSABLE:
            continue
        lower_bounds[field_id] = lower
        if upper is not None:
            upper_bounds[field_id] = upper
    return FileFacts(
        metadata.num_rows, sizes, values, nulls, {}, lower_bounds, upper_bounds, (_start(group),), spellings
    )


def _facts_of_many(metadata: Any, leaves: Sequence[_Leaf], spellings: tuple[tuple[int, str], ...]) -> FileFacts:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes, values, nulls = {}, {}, {}
    lower_bounds: dict[int, bytes] = {}
    upper_bounds: dict[int, bytes] = {}
    for position, field_id, how in leaves if groups else ():
        chunks = [group.column(position) for group in groups]
        statistics = [chunk.statistics for chunk in chunks]
        sizes[field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        values[field_id] = sum(chunk.num_values for chunk in chunks)
        if all(known is not None and known.has_null_count for known in statistics):
            nulls[field_id] = sum(known.null_count for known in statistics)
        if how is None:
            continue
        try:
            lower, upper = _merged(chunks, statistics, how)
        except UNUSABLE:
            continue
        if lower is not None:
            lower_bounds[field_id] = lower
        if upper is not None:
            upper_bounds[field_id] = upper
    starts = tuple(sorted(map(_start, groups))) or None
    return FileFacts(metadata.num_rows, sizes, values, nulls, {}, lower_bounds, upper_bounds, starts, spellings)


def _merged(chunks: Sequence[Any], statistics: Sequence[Any], how: Bounds) -> tuple[bytes | None, bytes | None]:
    """Return a column's bounds over all row groups: none when one with values has no minimum and maximum."""
    lows, highs = [], []
    for chunk, known in zip(chunks, statistics, strict=True):
        if known is not None and known.has_min_max:
            lows.append(known.min_raw if how.comparable is None else how.comparable(known.min_raw))
            highs.append(known.max_raw if how.comparable is None else how.comparable(known.max_raw))
        elif known is None or not known.has_null_count or known.null_count != chunk.num_values:
            return None, None
    return (how.lower(min(lows)), how.upper(max(highs))) if lows else (None, None)


def _start(group: Any) -> int:
    """Return where a row group begins in the file."""
    first = group.column(0)
    data = first.data_page_offset
    if first.has_dictionary_page:
        dictionary = first.dictionary_page_offset
        # Some writers say 0 where there is none.
        return int(dictionary if 0 < dictionary < data else data)
    return int(data)


def _plan_of(columns: Sequence[NestedField], path: str, metadata: Any, start: bytes) -> _Plan:
    schema = metadata.schema
    match = match_columns(columns, _file_columns(schema), path)
    ordered, unordered = [], []
    for found in match.found:
        leaf = schema.column(found.column.position)
        how = None if found.is_repeated else _bounds_of(leaf, found)
        ordered.append(_Leaf(found.column.position, found.field_id, how))
        is_signed = leaf.physical_type in _SIGNED_PHYSICAL_TYPES
        unordered.append(_Leaf(found.column.position, found.field_id, how if is_signed else None))
    count = len(schema)
    # A list (0x19) of so many unions (0xc), each with its first field (0x1c) set to nothing.
    header = bytes((0x19, count << 4 | 0xC)) if count < 15 else b"\x19\xfc" + _varint(count)
    return _Plan(start, tuple(ordered), tuple(unordered), match.spellings, header + b"\x1c\x00\x00" * count)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _bounds_of(leaf: Any, found: Found) -> Bounds | None:
    """Return how the footer's values of a column become bounds; its type fits the table's."""
    physical = leaf.physical_type
    match found.type:
        case DecimalType():
            return bounds.DECIMAL if physical in ("INT32", "INT64") else bounds.DECIMAL_OF_BYTES
        case StringType():
            return bounds.TEXT
        case BinaryType():
            return bounds.BINARY
        case FloatType():
            return bounds.FLOAT
        case DoubleType():
            return bounds.DOUBLE
        case LongType():
            return bounds.LONG
    if physical == "BOOLEAN":
        return bounds.BOOLEAN
    if physical == "INT32":
        return bounds.INT
    if physical == "INT64":
        return _TIMESTAMP_BOUNDS[json.loads(leaf.logical_type.to_json())["timeUnit"]]
    # INT96 has no order.
    return None


def _file_columns(schema: Any) -> list[FileColumn]:
    """Return a file's columns as a tree, whose ends are numbered as in the footer."""
    leaves = iter(range(len(schema)))
    return [_file_column(field.name, field.type, schema, leaves) for field in schema.to_arrow_schema()]


def _file_column(name: str, arrow: Any, schema: Any, leaves: Iterator[int]) -> FileColumn:
    types = pyarrow.types
    if isinstance(arrow, pyarrow.BaseExtensionType):
        arrow = arrow.storage_type
    if types.is_struct(arrow):
        parts = tuple(_file_column(field.name, field.type, schema, leaves) for field in arrow)
        return FileColumn(name, "a struct", "struct", -1, parts)
    if types.is_map(arrow):
        key = _file_column("key", arrow.key_type, schema, leaves)
        return FileColumn(name, "a map", "map", -1, (key, _file_column("value", arrow.item_type, schema, leaves)))
    if types.is_nested(arrow) and hasattr(arrow, "value_type"):
        return FileColumn(name, "a list", "list", -1, (_file_column("element", arrow.value_type, schema, leaves),))
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
    )


_PLAIN_KINDS = {
    "BOOLEAN": "boolean",
    "INT32": "int",
    "INT64": "long",
    "INT96": "any timestamp",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BYTE_ARRAY": "bytes",
    "FIXED_LEN_BYTE_ARRAY": "binary",
}
_SMALL_UNSIGNED_BITS = 16


def _kind(physical: str, logical: dict[str, Any]) -> str:
    match logical.get("Type"), physical:
        case "None" | "Unknown", _:
            return _PLAIN_KINDS[physical]
        case "Int", _ if logical["isSigned"] or logical["bitWidth"] <= _SMALL_UNSIGNED_BITS:
            return _PLAIN_KINDS[physical]
        case "String" | "Enum" | "JSON", "BYTE_ARRAY":
            return "string"
        case "BSON", _:
            return "binary"
        case "Decimal", _:
            return "decimal"
        case "Date", _:
            return "date"
        case "Timestamp", "INT64":
            # Hive's reader, as Spark's, does not care whether a file's timestamps say that they are in UTC.
            return "any timestamp"
    return "other"
