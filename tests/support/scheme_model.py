"""A model of partition schemes, independent of Calve's code: lists of partitions, searched one by one.

A value is a Python value (`tests.support.scheme_values`), None is null. A written value is a string and its value.
"""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from tests.support.scheme_values import Value, order, plain
from tests.support.strategies import days_in_month

Written: TypeAlias = tuple[str, Any]


@dataclass(frozen=True)
class Model(ABC):
    """The expected behaviour of a scheme."""

    column: str

    @property
    @abstractmethod
    def ids(self) -> list[int]:
        """The partitions in logical order."""

    @abstractmethod
    def of(self, value: Value | None) -> int:
        """Return the partition of a value."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the output of SHOW PARTITIONS."""


@dataclass(frozen=True)
class HashModel(Model):
    """Partitions by hash; trailing blanks of a char are not hashed."""

    count: int
    is_char: bool = False

    @property
    def ids(self) -> list[int]:
        return list(range(self.count))

    def of(self, value: Value | None) -> int:
        return 0 if value is None else zlib.crc32(self._hashed(value).encode()) % self.count

    def lines(self) -> list[str]:
        return [f"{self.column} = HASH_NUMBER({self.count})"]

    def _hashed(self, value: Value) -> str:
        match value:
            case Decimal():
                return str(int("".join(map(str, value.as_tuple().digits))) * (-1 if value < 0 else 1))
            case datetime():
                gone = value - datetime(1970, 1, 1)
                return str((gone.days * 86_400 + gone.seconds) * 1_000_000 + gone.microseconds)
        return plain(value).rstrip(" ") if self.is_char else plain(value)


@dataclass(frozen=True)
class RangeModel(Model):
    """Partitions by upper bounds, each `(id, text, value)`."""

    bounds: tuple[tuple[int, str, Any], ...]
    used: int

    @property
    def ids(self) -> list[int]:
        return [0, *(each for each, _, _ in self.bounds)]

    def of(self, value: Value | None) -> int:
        if value is not None:
            for partition_id, _, upper in self.bounds:
                if order(value) < order(upper):
                    return partition_id
        return 0

    def lines(self) -> list[str]:
        found, lower = [f"0, {self.column} = DEFAULT"], ""
        for partition_id, text, _ in self.bounds:
            found.append(f"{partition_id}, {lower}{self.column} < {text}")
            lower = f"{text} <= "
        return found

    def _put(self, first: int, end: int, bounds: Sequence[Written]) -> RangeModel:
        new = [(self.used + number, text, value) for number, (text, value) in enumerate(bounds, 1)]
        return replace(self, bounds=(*self.bounds[:first], *new, *self.bounds[end:]), used=self.used + len(new))

    def add(self, bounds: Sequence[Written]) -> RangeModel:
        return self._put(len(self.bounds), len(self.bounds), bounds)

    def split(self, partition_id: int, bounds: Sequence[Written]) -> RangeModel:
        at = self.ids.index(partition_id) - 1
        return self._put(at, at + 1, bounds)

    def drop(self, partition_ids: Sequence[int]) -> RangeModel:
        return replace(self, bounds=tuple(each for each in self.bounds if each[0] not in partition_ids))

    def merge(self, partition_ids: Sequence[int]) -> RangeModel:
        places = sorted(self.ids.index(each) - 1 for each in partition_ids)
        _, text, value = self.bounds[places[-1]]
        return self._put(places[0], places[-1] + 1, [(text, value)])


@dataclass(frozen=True)
class IntervalModel(RangeModel):
    """Ranges that are added automatically, at multiples of a unit after the anchor: the last bound of a statement.

    A unit is `month`, or a width: a number, or a time.
    """

    number: int
    unit: Literal["month"] | int | timedelta
    anchor: Written

    def _put(self, first: int, end: int, bounds: Sequence[Written]) -> RangeModel:
        return self._anchored(super()._put(first, end, bounds))

    def drop(self, partition_ids: Sequence[int]) -> RangeModel:
        return self._anchored(super().drop(partition_ids))

    def _anchored(self, changed: Any) -> IntervalModel:
        found: IntervalModel = changed
        last = found.bounds[-1][1:]
        return found if self.bounds and last[0] == self.bounds[-1][1] else replace(found, anchor=last)

    def extended(self, value: Any) -> IntervalModel:
        """Return the model with ranges up to a value."""
        model, steps = self, 0
        while model.bounds[-1][2] <= value:
            steps += 1
            upper = self._upper(steps)
            if upper > model.bounds[-1][2]:
                text = str(upper).removesuffix(" 00:00:00")
                new = (model.used + 1, text.replace("-", "/") if "/" in self.anchor[0] else text, upper)
                model = replace(model, bounds=(*model.bounds, new), used=model.used + 1)
        return model

    def _upper(self, steps: int) -> Any:
        start, count = self.anchor[1], steps * self.number
        if self.unit == "month":
            months = start.month - 1 + count
            year, month = start.year + months // 12, months % 12 + 1
            return replace(start, year=year, month=month, day=min(start.day, days_in_month(year, month)))
        return start + count * self.unit


@dataclass(frozen=True)
class ListModel(Model):
    """Partitions by groups of values, each `(id, written values)`."""

    groups: tuple[tuple[int, tuple[Written, ...]], ...]
    used: int

    @property
    def ids(self) -> list[int]:
        return [0, *(each for each, _ in self.groups)]

    def of(self, value: Value | None) -> int:
        if value is not None:
            for partition_id, group in self.groups:
                if any(order(each) == order(value) for _, each in group):
                    return partition_id
        return 0

    def lines(self) -> list[str]:
        return [
            f"0, {self.column} = DEFAULT",
            *(
                f"{each}, {self.column} = {', '.join(self._listed(text) for text, _ in group)}"
                for each, group in self.groups
            ),
        ]

    @staticmethod
    def _listed(text: str) -> str:
        if re.fullmatch(r"[^,'\s]([^,']*[^,'\s])?", text):
            return text
        return f"""'{text.replace("'", "''")}'"""

    def group(self, partition_id: int) -> tuple[Written, ...]:
        return dict(self.groups)[partition_id]

    def _numbered(self, groups: Sequence[Sequence[Written]]) -> list[tuple[int, tuple[Written, ...]]]:
        return [(self.used + number, tuple(group)) for number, group in enumerate(groups, 1)]

    def add(self, groups: Sequence[Sequence[Written]]) -> ListModel:
        return replace(self, groups=(*self.groups, *self._numbered(groups)), used=self.used + len(groups))

    def split(self, partition_id: int, groups: Sequence[Sequence[Written]]) -> ListModel:
        at = self.ids.index(partition_id) - 1
        new = [*self.groups[:at], *self._numbered(groups), *self.groups[at + 1 :]]
        return replace(self, groups=tuple(new), used=self.used + len(groups))

    def drop(self, partition_ids: Sequence[int]) -> ListModel:
        return replace(self, groups=tuple(each for each in self.groups if each[0] not in partition_ids))

    def merge(self, partition_ids: Sequence[int]) -> ListModel:
        first = min(self.ids.index(each) - 1 for each in partition_ids)
        merged = tuple(written for each, group in self.groups if each in partition_ids for written in group)
        kept = [each for each in self.groups if each[0] not in partition_ids]
        kept.insert(first, (self.used + 1, merged))
        return replace(self, groups=tuple(kept), used=self.used + 1)
