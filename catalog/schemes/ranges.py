"""RANGE and RANGE_INTERVAL: each partition holds the values below its bound and at or above the previous one."""

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
"""A partition's id and its upper bound, exclusive."""


@dataclass(frozen=True)
class RangeScheme(NumberedScheme):
    """Ranges by their upper bounds; values at or above the last bound, and nulls, are in partition 0."""

    type: ClassVar[SchemeType] = SchemeType.RANGE

    bounds: tuple[Bound, ...] = ()

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The default partition's id, then those of the ranges in order."""
        return (DEFAULT_PARTITION, *(partition_id for partition_id, _ in self.bounds))

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {partition_id: position for position, (partition_id, _) in enumerate(self.bounds)}

    @cached_property
    def encoded_bounds(self) -> list[bytes]:
        """The encoded bounds, ascending."""
        return [self.encoded(text) for _, text in self.bounds]

    def check(self, place: str) -> None:
        """Check that the bounds, of which there may be none, ascend.

        Args:
            place: The clause that has the bounds, for the message.

        Raises:
            BoundsNotAscendingError: They do not ascend.
            SchemeValueError: A bound is not of the column's type.
            LimitExceededError: There are too many partitions.
        """
        for (low, high), ((_, lower), (_, upper)) in zip(
            pairwise(self.encoded_bounds), pairwise(self.bounds), strict=True
        ):
            if low >= high:
                raise BoundsNotAscendingError(place, lower, upper)
        self.check_size()

    def text_of(self, partition_id: int) -> str:
        """Return the condition of a partition's rows."""
        if partition_id == DEFAULT_PARTITION:
            return f"{self.column} = DEFAULT"
        position = self._positions[partition_id]
        upper = f"{self.column} < {self.bounds[position][1]}"
        return upper if position == 0 else f"{self.bounds[position - 1][1]} <= {upper}"

    def _id_at(self, position: int) -> int:
        return self.bounds[position][0] if position < len(self.bounds) else DEFAULT_PARTITION

    def partition_of(self, value: KeyValue | None) -> int:
        """Return the partition of a value."""
        if value is None:
            return DEFAULT_PARTITION
        return self._id_at(bisect_right(self.encoded_bounds, self.value_type.encode(value)))

    def partitions_in(self, ranges: Ranges) -> set[int]:
        """Return the partitions that overlap the ranges."""
        partitions: set[int] = set()
        for key_range in ranges:
            if key_range.low < LOWEST:
                partitions.add(DEFAULT_PARTITION)
            low = max(key_range.low, LOWEST)
            if low < key_range.high:
                first, last = bisect_right(self.encoded_bounds, low), bisect_left(self.encoded_bounds, key_range.high)
                partitions.update(self._id_at(position) for position in range(first, last + 1))
        return partitions

    def _rebuilt(self, bounds: Sequence[Bound], place: str, *, used: int) -> RangeScheme:
        scheme = replace(self, bounds=tuple(bounds), next_id=self.next_id + used)
        if bounds:
            scheme.check(place)
        return scheme

    def add(self, items: Sequence[str]) -> Change:
        """Return the change that adds ranges above the last one."""
        self._check_count("ADD PARTITION", len(items), 1)
        items = bound_texts(items, "ADD PARTITION")
        new = list(zip(self._new_ids(len(items)), items, strict=True))
        scheme = self._rebuilt([*self.bounds, *new], "ADD PARTITION", used=len(new))
        return Change(scheme, {DEFAULT_PARTITION: (DEFAULT_PARTITION, *(partition_id for partition_id, _ in new))})

    def split(self, partition_id: int, items: Sequence[str]) -> Change:
        """Return the change that splits a range into several."""
        self._check_changeable([partition_id], "split")
        self._check_count("SPLIT PARTITION", len(items), 2)
        items = bound_texts(items, "SPLIT PARTITION")
        position = self._positions[partition_id]
        upper = self.bounds[position][1]
        if self.typed(items[-1]) != self.typed(upper):
            raise BoundOutsideRangeError(
                f"partition {partition_id} is {self.text_of(partition_id)}; the last bound of its parts is "
                f"{items[-1]}, but must be {upper}"
            )
        if position > 0 and self.encoded(items[0]) <= self.encoded_bounds[position - 1]:
            raise BoundOutsideRangeError(
                f"partition {partition_id} is {self.text_of(partition_id)}; bound {items[0]} is outside it"
            )
        for lower, higher in pairwise(items):
            if self.encoded(lower) >= self.encoded(higher):
                raise BoundsNotAscendingError("SPLIT PARTITION", lower, higher)
        new = list(zip(self._new_ids(len(items)), items, strict=True))
        bounds = [*self.bounds[:position], *new, *self.bounds[position + 1 :]]
        scheme = self._rebuilt(bounds, "SPLIT PARTITION", used=len(new))
        return Change(scheme, {partition_id: tuple(new_id for new_id, _ in new)})

    def drop(self, partition_ids: Sequence[int], *, with_data: bool) -> Change:
        """Return the change that removes bounds, which extends the next ranges, or the default partition, downwards."""
        self._check_changeable(partition_ids, "dropped")
        dropped = set(partition_ids)
        bounds = [bound for bound in self.bounds if bound[0] not in dropped]
        scheme = self._rebuilt(bounds, "DROP PARTITION", used=0)
        if with_data:
            return Change(scheme, {}, tuple(sorted(dropped)))
        targets: dict[int, tuple[int, ...]] = {}
        target = DEFAULT_PARTITION
        for partition_id, _ in reversed(self.bounds):
            if partition_id in dropped:
                targets[partition_id] = (target,)
            else:
                target = partition_id
        return Change(scheme, targets)

    def merge(self, partition_ids: Sequence[int]) -> Change:
        """Return the change that merges adjacent ranges."""
        self._check_changeable(partition_ids, "merged; drop the last range to add it to the default partition")
        self._check_count("MERGE PARTITION", len(partition_ids), 2)
        merged = neighbours(self.ids, partition_ids, self.column)
        [new_id] = self._new_ids(1)
        last = self._positions[merged[-1]]
        first = self._positions[merged[0]]
        bounds = [*self.bounds[:first], (new_id, self.bounds[last][1]), *self.bounds[last + 1 :]]
        scheme = self._rebuilt(bounds, "MERGE PARTITION", used=1)
        return Change(scheme, dict.fromkeys(merged, (new_id,)))

    def properties(self) -> dict[str, str]:
        """Return the type and the bounds."""
        bounds = ", ".join(format_group([text]) for _, text in self.bounds)
        return {"PARTITION_TYPE": str(self.type), "RANGE_INFO": bounds}

    def _fields(self) -> dict[str, Any]:
        return {"next_id": self.next_id, "bounds": [list(bound) for bound in self.bounds]}


@dataclass(frozen=True)
class IntervalScheme(RangeScheme):
    """Ranges, followed by ranges of one width that are added when rows beyond the last bound are loaded.

    Attributes:
        interval: Their width, for instance `1 month`.
        anchor: The bound from which they are counted.
    """

    type: ClassVar[SchemeType] = SchemeType.RANGE_INTERVAL

    interval: str = ""
    anchor: str = ""

    @cached_property
    def width(self) -> Interval:
        """The width of added ranges.

        Raises:
            SchemeValueError: It cannot be parsed, or is not one for values of this type.
        """
        return parse_interval(self.interval, self.value_type)

    def check(self, place: str) -> None:
        """Check that the bounds ascend, that the interval can be parsed, and that further bounds can be computed."""
        super().check(place)
        if self.encoded(self.anchor) > self.encoded_bounds[-1]:
            raise InvalidSchemeError(
                f"INTERVAL_START is {self.anchor}, above the last bound {self.bounds[-1][1]}; omit it to count from "
                "the last bound"
            )
        next(self.width.bounds_after(self.typed(self.anchor), self.value_type), None)

    def _rebuilt(self, bounds: Sequence[Bound], place: str, *, used: int) -> RangeScheme:
        if not bounds:
            raise InvalidSchemeError(
                f"{place}: the automatic ranges of {self.column} are counted from a bound; leave one"
            )
        # Count from the new last bound, unless the last bound, which was counted from the anchor, is unchanged.
        anchor = self.anchor if self.bounds[-1][1] == bounds[-1][1] else bounds[-1][1]
        scheme = replace(self, bounds=tuple(bounds), next_id=self.next_id + used, anchor=anchor)
        scheme.check(place)
        return scheme

    def extended_to(self, value: KeyValue) -> IntervalScheme:
        """Return the scheme with ranges added up to a value; the scheme itself if the value has a range already.

        A value above all bounds of the column's type stays in the default partition.

        Raises:
            LimitExceededError: There would be too many partitions.
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
        """Return the last bound after `limit` ranges are added, or as many as the table and the type allow."""
        room = max(0, min(limit, MAXIMUM_PARTITIONS - len(self.ids)))
        last = deque(islice(self._following(), room), maxlen=1)
        return last[0][0] if last else self.typed(self.bounds[-1][1])

    def _following(self) -> Iterator[tuple[KeyValue, str]]:
        """Yield the bounds after the last one, by the interval, with their strings."""
        for bound in self.width.bounds_after(self.typed(self.anchor), self.value_type):
            if self.value_type.encode(bound) <= self.encoded_bounds[-1]:
                continue
            text = self._text(bound)
            if text is None:
                return
            yield bound, text

    def _text(self, bound: KeyValue) -> str | None:
        """Return a bound in the format of the anchor; None when it is not a value of the column's type."""
        text = self.value_type.format(bound).strip("'")
        try:
            self.value_type.parse(text)
        except KeyValueError:
            return None
        if not isinstance(self.value_type, DateType):
            text = text.removesuffix(" 00:00:00")
        return text.replace("-", "/") if "/" in self.anchor else text

    def properties(self) -> dict[str, str]:
        """Return type, bounds and interval, and the anchor unless it is the last bound."""
        start = {} if self.anchor == self.bounds[-1][1] else {"INTERVAL_START": self.anchor}
        return {**super().properties(), "INTERVAL": self.interval, **start}

    def _fields(self) -> dict[str, Any]:
        return {**super()._fields(), "interval": self.interval, "anchor": self.anchor}
