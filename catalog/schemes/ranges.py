"""RANGE and RANGE_INTERVAL: each partition has the values below its bound that no earlier one has."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, ClassVar

from catalog.errors import (
    BoundOutsideRangeError,
    BoundsNotAscendingError,
    InvalidSchemeError,
    LimitExceededError,
)
from catalog.schemes.intervals import Interval, parse_interval
from catalog.schemes.model import (
    DEFAULT_PARTITION,
    LOWEST,
    MAXIMUM_PARTITIONS,
    Change,
    NumberedScheme,
    SchemeType,
    neighbours,
)
from catalog.schemes.texts import bound_texts, format_group
from catalog.types.key_types import DateType, KeyValue, KeyValueError
from catalog.types.ranges import Ranges

Bound = tuple[int, str]
"""A partition's id, and the bound below which its values are."""


@dataclass(frozen=True)
class RangeScheme(NumberedScheme):
    """Ranges by their upper bounds; what is at or above the last bound is in partition 0, and so are nulls."""

    type: ClassVar[SchemeType] = SchemeType.RANGE

    bounds: tuple[Bound, ...] = ()

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The default partition, then the ranges in order."""
        return (DEFAULT_PARTITION, *(partition_id for partition_id, _ in self.bounds))

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {partition_id: position for position, (partition_id, _) in enumerate(self.bounds)}

    @cached_property
    def encoded_bounds(self) -> list[bytes]:
        """The bounds' bytes, ascending."""
        return [self.value_type.encode(self.typed(text)) for _, text in self.bounds]

    def check(self, place: str) -> None:
        """Make sure that the bounds ascend; `place` is named where they do not. There may be none.

        Raises:
            BoundsNotAscendingError, SchemeValueError, LimitExceededError: They do not, or are no bounds.
        """
        for (low, high), ((_, lower), (_, upper)) in zip(
            pairwise(self.encoded_bounds), pairwise(self.bounds), strict=True
        ):
            if low >= high:
                raise BoundsNotAscendingError(place, lower, upper)
        self.check_size()

    def lines(self) -> list[str]:
        """Return a line for each partition, the default first."""
        return [f"{each}, {self.text_of(each)}" for each in self.ids]

    def text_of(self, partition_id: int) -> str:
        """Return a partition in words."""
        if partition_id == DEFAULT_PARTITION:
            return f"{self.column} = DEFAULT"
        position = self._position(partition_id)
        upper = f"{self.column} < {self.bounds[position][1]}"
        return upper if position == 0 else f"{self.bounds[position - 1][1]} <= {upper}"

    def _position(self, partition_id: int) -> int:
        return self._positions[partition_id]

    def _id_at(self, position: int) -> int:
        return self.bounds[position][0] if position < len(self.bounds) else DEFAULT_PARTITION

    def partition_of(self, value: KeyValue | None) -> int:
        """Return the partition of a value."""
        if value is None:
            return DEFAULT_PARTITION
        return self._id_at(bisect_right(self.encoded_bounds, self.value_type.encode(value)))

    def partitions_in(self, ranges: Ranges) -> set[int]:
        """Return the partitions that overlap the ranges."""
        found: set[int] = set()
        for each in ranges:
            if each.low < LOWEST:
                found.add(DEFAULT_PARTITION)
            low = max(each.low, LOWEST)
            if low < each.high:
                first, last = bisect_right(self.encoded_bounds, low), bisect_left(self.encoded_bounds, each.high)
                found.update(self._id_at(position) for position in range(first, last + 1))
        return found

    def _rebuilt(self, bounds: Sequence[Bound], place: str, *, used: int) -> RangeScheme:
        scheme = replace(self, bounds=tuple(bounds), next_id=self.next_id + used)
        if bounds:
            scheme.check(place)
        return scheme

    def add(self, items: Sequence[str]) -> Change:
        """Return the change by ranges above the last one."""
        self._check_count("ADD PARTITION", len(items), 1)
        items = bound_texts(items, "ADD PARTITION")
        new = list(zip(self._new_ids(len(items)), items, strict=True))
        scheme = self._rebuilt([*self.bounds, *new], "ADD PARTITION", used=len(new))
        return Change(scheme, {DEFAULT_PARTITION: (DEFAULT_PARTITION, *(each for each, _ in new))})

    def split(self, partition_id: int, items: Sequence[str]) -> Change:
        """Return the change by which a range becomes several."""
        self._check_changeable([partition_id], "split")
        self._check_count("SPLIT PARTITION", len(items), 2)
        items = bound_texts(items, "SPLIT PARTITION")
        position = self._position(partition_id)
        upper = self.bounds[position][1]
        if self.typed(items[-1]) != self.typed(upper):
            raise BoundOutsideRangeError(
                f"partition {partition_id} is {self.text_of(partition_id)}; the last bound of its parts is "
                f"{items[-1]}, and has to be {upper}"
            )
        if position > 0 and self.value_type.encode(self.typed(items[0])) <= self.encoded_bounds[position - 1]:
            raise BoundOutsideRangeError(
                f"partition {partition_id} is {self.text_of(partition_id)}; bound {items[0]} does not lie inside"
            )
        for lower, higher in pairwise(items):
            if self.value_type.encode(self.typed(lower)) >= self.value_type.encode(self.typed(higher)):
                raise BoundsNotAscendingError("SPLIT PARTITION", lower, higher)
        new = list(zip(self._new_ids(len(items)), items, strict=True))
        bounds = [*self.bounds[:position], *new, *self.bounds[position + 1 :]]
        scheme = self._rebuilt(bounds, "SPLIT PARTITION", used=len(new))
        return Change(scheme, {partition_id: tuple(each for each, _ in new)})

    def drop(self, partition_ids: Sequence[int], *, with_data: bool) -> Change:
        """Return the change by which bounds go; the ranges above them, or the default partition, begin lower."""
        self._check_changeable(partition_ids, "dropped")
        gone = set(partition_ids)
        bounds = [bound for bound in self.bounds if bound[0] not in gone]
        scheme = self._rebuilt(bounds, "DROP PARTITION", used=0)
        if with_data:
            return Change(scheme, {}, tuple(sorted(gone)))
        targets: dict[int, tuple[int, ...]] = {}
        target = DEFAULT_PARTITION
        for partition_id, _ in reversed(self.bounds):
            if partition_id in gone:
                targets[partition_id] = (target,)
            else:
                target = partition_id
        return Change(scheme, targets)

    def merge(self, partition_ids: Sequence[int]) -> Change:
        """Return the change by which neighbouring ranges become one."""
        self._check_changeable(partition_ids, "merged; drop the last range to add it to the default partition")
        self._check_count("MERGE PARTITION", len(partition_ids), 2)
        merged = neighbours(self.ids, partition_ids, self.column)
        [new_id] = self._new_ids(1)
        last = self._position(merged[-1])
        first = self._position(merged[0])
        bounds = [*self.bounds[:first], (new_id, self.bounds[last][1]), *self.bounds[last + 1 :]]
        scheme = self._rebuilt(bounds, "MERGE PARTITION", used=1)
        return Change(scheme, dict.fromkeys(merged, (new_id,)))

    def properties(self) -> dict[str, str]:
        """Return type and bounds."""
        bounds = ", ".join(format_group([text]) for _, text in self.bounds)
        return {"PARTITION_TYPE": str(self.type), "RANGE_INFO": bounds}

    def _fields(self) -> dict[str, Any]:
        return {"next_id": self.next_id, "bounds": [list(bound) for bound in self.bounds]}


@dataclass(frozen=True)
class IntervalScheme(RangeScheme):
    """Ranges, the further ones of one width, which come by themselves when rows beyond the last bound are loaded.

    Attributes:
        interval: Their width, for instance `1 month`.
        anchor: The bound that they are counted from.
    """

    type: ClassVar[SchemeType] = SchemeType.RANGE_INTERVAL

    interval: str = ""
    anchor: str = ""

    @cached_property
    def width(self) -> Interval:
        """The width.

        Raises:
            SchemeValueError: It cannot be read, or is not one for values of this type.
        """
        return parse_interval(self.interval, self.value_type)

    def check(self, place: str) -> None:
        """Make sure that the bounds ascend, the interval can be read, and the bounds that follow can be counted."""
        super().check(place)
        if self.value_type.encode(self.typed(self.anchor)) > self.encoded_bounds[-1]:
            raise InvalidSchemeError(
                f"INTERVAL_START is {self.anchor}, above the last bound {self.bounds[-1][1]}; leave it out to count "
                "from that"
            )
        next(self.width.bounds_after(self.typed(self.anchor), self.value_type), None)

    def _rebuilt(self, bounds: Sequence[Bound], place: str, *, used: int) -> RangeScheme:
        if not bounds:
            raise InvalidSchemeError(
                f"{place}: the ranges of {self.column} that come by themselves are counted from a bound; leave one"
            )
        # Counted on from the last bound, unless that is still one of those counted from the anchor.
        anchor = self.anchor if self.bounds[-1][1] == bounds[-1][1] else bounds[-1][1]
        scheme = replace(self, bounds=tuple(bounds), next_id=self.next_id + used, anchor=anchor)
        scheme.check(place)
        return scheme

    def extended_to(self, value: KeyValue) -> IntervalScheme:
        """Return the scheme with ranges up to a value, by the interval; itself if it has one for it.

        A value so great that no bound of the column's type is above it, stays in the default partition.

        Raises:
            LimitExceededError: That would be too many partitions.
        """
        encoded = self.value_type.encode(value)
        if encoded < self.encoded_bounds[-1]:
            return self
        new: list[Bound] = []
        for bound, text in self._following():
            if len(self.ids) + len(new) >= MAXIMUM_PARTITIONS:
                raise LimitExceededError(
                    f"{self.column} has the value {self.value_type.format(value)}, for which {self.interval} after "
                    f"{self.bounds[-1][1]} would make more than {MAXIMUM_PARTITIONS:,} partitions; correct the value, "
                    "or add wider partitions first: ALTER TABLE … ADD PARTITION"
                )
            new.append((self.next_id + len(new), text))
            if self.value_type.encode(bound) > encoded:
                break
        return replace(self, bounds=(*self.bounds, *new), next_id=self.next_id + len(new))

    def reach(self, limit: int) -> KeyValue:
        """Return the bound below which values have ranges when so many are added, as far as there can be as many."""
        room = max(0, min(limit, MAXIMUM_PARTITIONS - len(self.ids)))
        last = deque(islice(self._following(), room), maxlen=1)
        return last[0][0] if last else self.typed(self.bounds[-1][1])

    def _following(self) -> Iterator[tuple[KeyValue, str]]:
        """Yield the bounds that come after the last one, by the interval, with their texts."""
        for bound in self.width.bounds_after(self.typed(self.anchor), self.value_type):
            if self.value_type.encode(bound) <= self.encoded_bounds[-1]:
                continue
            text = self._text(bound)
            if text is None:
                return
            yield bound, text

    def _text(self, bound: KeyValue) -> str | None:
        """Return a bound in the spelling of the anchor; None when it is no value of the column's type."""
        text = self.value_type.format(bound).strip("'")
        try:
            self.value_type.parse(text)
        except KeyValueError:
            return None
        if not isinstance(self.value_type, DateType):
            text = text.removesuffix(" 00:00:00")
        return text.replace("-", "/") if "/" in self.anchor else text

    def properties(self) -> dict[str, str]:
        """Return type, bounds and interval, and where the interval is counted from unless that is the last bound."""
        start = {} if self.anchor == self.bounds[-1][1] else {"INTERVAL_START": self.anchor}
        return {**super().properties(), "INTERVAL": self.interval, **start}

    def _fields(self) -> dict[str, Any]:
        return {**super()._fields(), "interval": self.interval, "anchor": self.anchor}
