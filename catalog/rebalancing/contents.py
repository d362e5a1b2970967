"""Contents of partitions in the order of their values, from file statistics.

The rows of a file lie between the minimum and the maximum of its partition column. Files that overlap form one *cell*:
a partition can be cut at the beginning of a cell without reading its rows. A cell of a single value cannot be cut. If
the cells are too coarse, the values must be counted (`ValueCount`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from catalog.datafiles.files import DataFile, Total
from catalog.errors import SchemeValueError
from catalog.indexes.keys import after_prefix
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import DEFAULT_PARTITION, HIGHEST, LOWEST, Scheme
from catalog.schemes.ranges import RangeScheme
from catalog.types.key_types import DateType, StringType


@dataclass(frozen=True)
class ValueCount:
    """Number of rows with values between two bounds, both inclusive and strings; a single value if they are equal."""

    least: str
    greatest: str
    row_count: int


@dataclass(frozen=True)
class Cell:
    """Adjacent rows of one partition.

    Attributes:
        text: The minimum, or for lists the value, in the spelling of a bound or a group.
        is_single: The cell has a single value, so it cannot be cut.
    """

    text: str
    size_bytes: int
    is_single: bool


@dataclass(frozen=True)
class Content:
    """The contents of a partition.

    Attributes:
        total: The total, with the rows whose value is null.
        cells: The cells without these rows, ascending; for lists in the order of the group.
        is_counted: The cells come from counting values, so no finer cells are available.
    """

    partition_id: int
    total: Total
    cells: tuple[Cell, ...]
    is_counted: bool = False

    @property
    def size_bytes(self) -> int:
        """The bytes of all cells."""
        return sum(cell.size_bytes for cell in self.cells)


@dataclass
class _Piece:
    low: bytes
    high: bytes
    is_single: bool
    row_count: int
    size_bytes: int


def contents_of(
    scheme: Scheme, files: Iterable[DataFile], counts: Mapping[int, Sequence[ValueCount]] | None = None
) -> list[Content]:
    """Return the contents of all partitions, also empty ones, in logical order.

    Args:
        counts: Value counts of some partitions; rare values may be missing.
    """
    totals: dict[int, Total] = {}
    pieces: dict[int, list[_Piece]] = {}
    for file in files:
        number = file.partition_id
        totals[number] = totals.get(number, Total()) + Total(1, file.row_count, file.size_bytes)
        if (piece := _piece_of(scheme, file)) is not None:
            pieces.setdefault(number, []).append(piece)
    counts = counts or {}
    contents = []
    for number in scheme.ids:
        own = pieces.get(number, [])
        if number in counts:
            own = _counted(scheme, counts[number], own)
        cells = _cells(scheme, number, _joined(own))
        contents.append(Content(number, totals.get(number, Total()), tuple(cells), number in counts))
    return contents


def _piece_of(scheme: Scheme, file: DataFile) -> _Piece | None:
    """Return the non-null rows of a file as a piece; None if there are none."""
    known = file.statistics.get(scheme.column)
    if known is None:
        return _Piece(LOWEST, HIGHEST, False, file.row_count, file.size_bytes)
    if known.low is None or known.high is None:
        return None
    nulls = min(known.null_count or 0, file.row_count)
    size = file.size_bytes * (file.row_count - nulls) // max(1, file.row_count)
    return _Piece(known.low, known.high, known.ranges[-1].is_point, file.row_count - nulls, size)


def _counted(scheme: Scheme, counts: Sequence[ValueCount], file_pieces: Sequence[_Piece]) -> list[_Piece]:
    """Return the pieces of counted values, with bytes in proportion to their rows."""
    size_bytes = sum(piece.size_bytes for piece in file_pieces)
    rows = max(sum(count.row_count for count in counts), sum(piece.row_count for piece in file_pieces))
    pieces, before = [], 0
    for count in counts:
        low = scheme.encoded(count.least)
        high = after_prefix(scheme.encoded(count.greatest))
        # Differences of cumulative sizes, so that rounding errors do not change the total.
        until = before + count.row_count
        size = size_bytes * until // max(1, rows) - size_bytes * before // max(1, rows)
        pieces.append(_Piece(low, high, count.least == count.greatest, count.row_count, size))
        before = until
    return pieces


def _joined(pieces: Iterable[_Piece]) -> list[_Piece]:
    """Return the pieces, with overlapping ones joined."""
    joined: list[_Piece] = []
    for piece in sorted(pieces, key=lambda unjoined: (unjoined.low, unjoined.high)):
        last = joined[-1] if joined else None
        if last is None or piece.low >= last.high:
            joined.append(replace(piece))
            continue
        last.is_single = last.is_single and piece.is_single and last.low == piece.low
        last.high = max(last.high, piece.high)
        last.size_bytes += piece.size_bytes
    return joined


def _cells(scheme: Scheme, partition_id: int, pieces: Sequence[_Piece]) -> list[Cell]:
    if isinstance(scheme, ListScheme) and partition_id != DEFAULT_PARTITION:
        return _cells_of_group(scheme, partition_id, pieces)
    cells: list[Cell] = []
    for piece in pieces:
        text = bound_text(scheme, piece.low)
        if text is None and cells and isinstance(scheme, RangeScheme):
            # No string represents this bound, so the partition cannot be cut here.
            cells[-1] = Cell(cells[-1].text, cells[-1].size_bytes + piece.size_bytes, False)
        else:
            cells.append(Cell(text or "", piece.size_bytes, piece.is_single and text is not None))
    return cells


def _cells_of_group(scheme: ListScheme, partition_id: int, pieces: Sequence[_Piece]) -> list[Cell]:
    """Return a cell for each value of a group; a single cell if some rows may have one of several values."""
    texts = dict(scheme.groups)[partition_id]
    encoded = [scheme.encoded(text) for text in texts]
    ordered = sorted(encoded)
    sizes = dict.fromkeys(encoded, 0)
    for piece in pieces:
        first, end = bisect_left(ordered, piece.low), bisect_left(ordered, piece.high)
        if end - first != 1:
            return [Cell(texts[0], sum(own.size_bytes for own in pieces), len(texts) == 1)]
        sizes[ordered[first]] += piece.size_bytes
    return [Cell(text, sizes[value], True) for text, value in zip(texts, encoded, strict=True)]


def bound_text(scheme: Scheme, encoded: bytes) -> str | None:
    """Return a value as a string in a bound or a group; None if no string represents it."""
    value_type = scheme.value_type
    try:
        value = value_type.decode(encoded, 0)[0]
        text = (
            value_type.text_of(value)
            if isinstance(value_type, StringType)
            else _plain(scheme, value_type.format(value))
        )
        is_same = bool(text) and text == text.strip() and scheme.encoded(text) == encoded
    except (SchemeValueError, ValueError, IndexError, OverflowError):
        # Statistics have only a prefix of a long string.
        return None
    return text if is_same else None


def _plain(scheme: Scheme, literal: str) -> str:
    text = literal.strip("'")
    if isinstance(scheme.value_type, DateType):
        has_slashes = isinstance(scheme, RangeScheme) and any("/" in bound for _, bound in scheme.bounds)
        return text.replace("-", "/") if has_slashes else text
    return text.removesuffix(" 00:00:00")
