"""Values at which a range can be split, with the share of its bytes below each, from file statistics.

At the beginning of a cell (`catalog.rebalancing.contents`) a split reads no rows. Further values lie evenly between the
bounds, where the type of the column has a distance; bytes below them are estimated as if the rows of a cell were spread
evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from catalog.errors import SchemeValueError
from catalog.rebalancing.contents import Cell, Content, bound_text
from catalog.schemes.model import DEFAULT_PARTITION
from catalog.schemes.ranges import RangeScheme
from catalog.types.key_types import DateType, DecimalType, IntegerType, KeyType, TimestampType

_SECOND = 1_000_000
_FIRST_DAY = date.min.toordinal()


@dataclass(frozen=True)
class SplitPoint:
    """A value at which a range can be split.

    Attributes:
        text: The value, in the spelling of a bound.
        bytes_below: About how many bytes of the partition lie below it.
        is_free: No file has rows on both sides, so a split there reads none.
    """

    text: str
    bytes_below: int
    is_free: bool


@dataclass(frozen=True)
class SplitPoints:
    """The values at which a range can be split, ascending.

    Attributes:
        lower, upper: The bounds of the range; None if it has none there.
        row_count, size_bytes: Its contents.
    """

    points: tuple[SplitPoint, ...]
    lower: str | None
    upper: str | None
    row_count: int
    size_bytes: int

    @property
    def middle(self) -> SplitPoint | None:
        """The point that divides the bytes best, if possible one at which no row is read; None without points."""
        if not self.points:
            return None
        free = [point for point in self.points if point.is_free and self._distance(point) <= self.size_bytes / 10]
        return min(free or self.points, key=self._distance)

    def _distance(self, point: SplitPoint) -> float:
        return abs(point.bytes_below - self.size_bytes / 2)


def split_points(scheme: RangeScheme, content: Content, limit: int) -> SplitPoints:
    """Return the values at which a range can be split, or above the last range that ADD can divide.

    Args:
        limit: The number of points of each kind.
    """
    ids, position = scheme.ids, scheme.ids.index(content.partition_id)
    bounds = [text for _, text in scheme.bounds]
    if content.partition_id == DEFAULT_PARTITION:
        lower, upper = bounds[-1] if bounds else None, None
    else:
        lower, upper = bounds[position - 2] if position > 1 else None, bounds[position - 1]
    assert len(ids) == len(bounds) + 1
    cells = [cell for cell in content.cells if cell.text and _is_above(scheme, cell.text, lower)]
    measure = _Measure(scheme, cells, upper)
    texts = [cell.text for cell in _sample(cells[1:] if lower is None or upper is None else cells, limit)]
    texts = [text for text in texts if lower is None or scheme.encoded(text) > scheme.encoded(lower)]
    free = {scheme.encoded(text) for text in texts}
    start = lower if lower is not None else cells[0].text if cells else None
    if start is not None and upper is not None:
        texts += _between(scheme, start, upper, limit)
    by_value = {scheme.encoded(text): text for text in reversed(texts)}
    points = tuple(SplitPoint(text, measure.below(text), value in free) for value, text in sorted(by_value.items()))
    return SplitPoints(points, lower, upper, content.total.row_count, sum(cell.size_bytes for cell in cells))


def _is_above(scheme: RangeScheme, text: str, lower: str | None) -> bool:
    return lower is None or scheme.encoded(text) >= scheme.encoded(lower)


def _sample(cells: Sequence[Cell], limit: int) -> Sequence[Cell]:
    step = -(-len(cells) // limit) or 1
    return cells[::step]


class _Measure:
    """The bytes below a value, from the cells of a range."""

    def __init__(self, scheme: RangeScheme, cells: Sequence[Cell], upper: str | None) -> None:
        self._scheme = scheme
        self._cells = cells
        self._starts = [scheme.encoded(cell.text) for cell in cells]
        self._upper = upper
        self._sums = [0]
        for cell in cells:
            self._sums.append(self._sums[-1] + cell.size_bytes)

    def below(self, text: str) -> int:
        """Return about how many bytes lie below a value."""
        value = self._scheme.encoded(text)
        position = bisect_right(self._starts, value) - 1
        if position < 0:
            return 0
        if self._starts[position] == value:
            return self._sums[position]
        cell = self._cells[position]
        return self._sums[position] + int(cell.size_bytes * self._share(position, text))

    def _share(self, position: int, text: str) -> float:
        """Return which part of a cell lies below a value inside it."""
        if self._cells[position].is_single:
            return 1.0
        end = self._cells[position + 1].text if position + 1 < len(self._cells) else self._upper
        line = _Line.of(self._scheme.value_type)
        if line is None or end is None:
            return 0.5
        low, high = line.place(self._scheme, self._cells[position].text), line.place(self._scheme, end)
        return min(1.0, max(0.0, (line.place(self._scheme, text) - low) / max(1, high - low)))


@dataclass(frozen=True)
class _Line:
    """The places of a type's values on a line of whole numbers.

    Attributes:
        to_place, to_value: Typed value → place, and back.
        unit: The distance of values that people write.
    """

    to_place: Callable[[int], int]
    to_value: Callable[[int], int]
    unit: int = 1

    @classmethod
    def of(cls, value_type: KeyType) -> _Line | None:
        """Return the line of a type; None for one without distances, such as string."""
        if isinstance(value_type, DateType):
            return cls(_day_of, _date_of)
        if isinstance(value_type, TimestampType):
            return cls(int, int, _SECOND)
        if isinstance(value_type, IntegerType):
            return cls(int, int)
        if isinstance(value_type, DecimalType):
            return cls(value_type.unscaled, value_type.scaled)
        return None

    def place(self, scheme: RangeScheme, text: str) -> int:
        """Return the place of a value."""
        return self.to_place(int(scheme.typed(text)))


def _day_of(value: int) -> int:
    # Python's calendar has no year 0.
    return _FIRST_DAY if value >> 9 == 0 else date(value >> 9, value >> 5 & 15, value & 31).toordinal()


def _date_of(place: int) -> int:
    day = date.min + timedelta(place - _FIRST_DAY)
    return day.year << 9 | day.month << 5 | day.day


def _between(scheme: RangeScheme, lower: str, upper: str, limit: int) -> list[str]:
    """Return evenly spread values between two bounds, without these."""
    line = _Line.of(scheme.value_type)
    if line is None:
        return []
    try:
        low, high = line.place(scheme, lower), line.place(scheme, upper)
    except SchemeValueError:
        return []
    step = max(1, -(-(high - low) // (limit + 1)))
    step = -(-step // line.unit) * line.unit
    values = (line.to_value(place) for place in range(low + step, high, step))
    texts = (bound_text(scheme, scheme.value_type.encode(value)) for value in values)
    return [text for text in texts if text is not None]
