"""Partition schemes as values: which partition a value belongs to, and how that may change. No row moves here.

A scheme places every row by the value of one column. Values are texts as the user wrote them, and compare as the
column's type does; a change returns a new scheme. Partition ids are never reused and never renumbered, and their order
is logical: what a split makes stands where the old partition stood.

Source: Apache CarbonData's partition tables (docs/partition-guide.md of 1.3), where partition 0 is the default of
ranges and lists, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Self

from catalog.errors import (
    DefaultPartitionError,
    InvalidSchemeError,
    LimitExceededError,
    PartitionNotFoundError,
    PartitionsNotNeighboursError,
    SchemeValueError,
    UnsupportedChangeError,
)
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import NULL_BYTES, KeyType, KeyValue, KeyValueError
from catalog.types.ranges import KeyRange, Ranges

DEFAULT_PARTITION = 0
"""The partition of ranges and lists for all values that no other partition takes, and for nulls."""

MAXIMUM_PARTITIONS = 10_000
NULL_RANGE = KeyRange(NULL_BYTES, b"\x01", is_point=True)
LOWEST, HIGHEST = b"\x01", b"\xff"
"""No value's bytes are below, or as great."""


class SchemeType(StrEnum):
    """How a table's rows are placed; VALUE tables, one partition for each value as in Hive, have no `Scheme`."""

    VALUE = "VALUE"
    HASH = "HASH"
    RANGE = "RANGE"
    RANGE_INTERVAL = "RANGE_INTERVAL"
    LIST = "LIST"


@dataclass(frozen=True)
class Change:
    """A new scheme, and whose rows it concerns.

    Attributes:
        scheme: The scheme afterwards.
        targets: Partition of the old scheme → partitions of the new one that its rows may belong to. Partitions that
            are not named keep their rows.
        deleted: Partitions whose rows go away.
    """

    scheme: Scheme
    targets: Mapping[int, tuple[int, ...]]
    deleted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scheme(ABC):
    """How the rows of a table are placed by the value of one column.

    Attributes:
        column: Name of the partition column, lower case.
        column_type: Its type as Hive writes it.
        sort_columns: The columns that the rows of each data file are sorted by.
    """

    type: ClassVar[SchemeType]

    column: str
    column_type: str
    sort_columns: tuple[str, ...] = ()

    @cached_property
    def value_type(self) -> KeyType:
        """The type that values compare by.

        Raises:
            InvalidSchemeError: Values of the column's type do not compare.
        """
        found = parse_column_type(self.column_type)
        if found is None:
            raise InvalidSchemeError(
                f"partition column {self.column} is of type {self.column_type}, whose values do not compare; use "
                "string, char, varchar, an integer type, decimal, float, double, boolean, date or timestamp"
            )
        return found

    def typed(self, text: str) -> KeyValue:
        """Return the value that a text stands for.

        Raises:
            SchemeValueError: It is not of the column's type.
        """
        try:
            return self.value_type.parse(text)
        except KeyValueError as error:
            raise SchemeValueError(f"partition column {self.column} is of type {self.column_type}: {error}") from None

    @property
    @abstractmethod
    def ids(self) -> tuple[int, ...]:
        """The partition ids in logical order."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return what SHOW PARTITIONS prints."""

    @abstractmethod
    def text_of(self, partition_id: int) -> str:
        """Return a partition in words, for instance `2014/01/01 <= logdate < 2015/01/01`."""

    @abstractmethod
    def partition_of(self, value: KeyValue | None) -> int:
        """Return the partition of a typed value; None is null."""

    @abstractmethod
    def partitions_in(self, ranges: Ranges) -> set[int]:
        """Return the partitions that may hold values whose bytes lie in the ranges (`catalog.types.key_types`)."""

    @abstractmethod
    def add(self, items: Sequence[str]) -> Change:
        """Return the change by new partitions, taken out of the default one.

        Args:
            items: The upper bounds of new ranges, or new groups of values.

        Raises:
            InvalidSchemeError: The items do not fit; subclasses say why.
        """

    @abstractmethod
    def split(self, partition_id: int, items: Sequence[str]) -> Change:
        """Return the change by which one partition becomes several at its place.

        Args:
            items: The upper bounds of the new ranges, of which the last is the old one's; or the new groups, which
                are together exactly the old one.

        Raises:
            PartitionNotFoundError: There is no such partition.
            InvalidSchemeError: The items do not fit; subclasses say why.
        """

    @abstractmethod
    def drop(self, partition_ids: Sequence[int], *, with_data: bool) -> Change:
        """Return the change by which partitions go, with their rows or without.

        Rows that stay go to the next range, of the last range and of lists to the default partition.

        Raises:
            PartitionNotFoundError: There is no such partition.
            InvalidSchemeError: They cannot be dropped; subclasses say why.
        """

    @abstractmethod
    def merge(self, partition_ids: Sequence[int]) -> Change:
        """Return the change by which several partitions become one, at the place of the first.

        Raises:
            PartitionNotFoundError: There is no such partition.
            InvalidSchemeError: They cannot be merged; subclasses say why.
        """

    def set_count(self, count: int) -> Change:
        """Return the change to another number of partitions, which only hashed tables know.

        Raises:
            InvalidSchemeError: The number cannot be used, or the rows are not hashed.
        """
        raise UnsupportedChangeError(
            f"the partitions of {self.column} are of type {self.type}, and SET PARTITION_NUM is for HASH; use ADD, "
            "SPLIT, MERGE or DROP PARTITION"
        )

    def check_exists(self, partition_ids: Iterable[int]) -> None:
        """Make sure that partitions exist.

        Raises:
            PartitionNotFoundError: One does not.
        """
        known = set(self.ids)
        for partition_id in partition_ids:
            if partition_id not in known:
                raise PartitionNotFoundError(
                    f"there is no partition {partition_id} of {self.column}; SHOW PARTITIONS lists those there are"
                )

    def check_size(self) -> Self:
        """Return the scheme, if it has not too many partitions.

        Raises:
            LimitExceededError: It has.
        """
        if len(self.ids) > MAXIMUM_PARTITIONS:
            raise LimitExceededError(
                f"{len(self.ids):,} partitions of {self.column} are more than {MAXIMUM_PARTITIONS:,}; use wider ones"
            )
        return self

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """Return the TBLPROPERTIES that make an equal scheme, but for partition ids and sort columns."""

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """Return the fields of the subclass for `as_json`."""

    def as_json(self) -> dict[str, Any]:
        """Return the scheme as plain values; `scheme_from_json` reads them."""
        return {
            "type": str(self.type),
            "column": self.column,
            "column_type": self.column_type,
            "sort_columns": list(self.sort_columns),
            **self._fields(),
        }


@dataclass(frozen=True)
class NumberedScheme(Scheme):
    """A scheme whose partitions come and go one by one, with a default partition; `next_id` was never used."""

    next_id: int = 1

    def _check_changeable(self, partition_ids: Sequence[int], what: str) -> None:
        if not partition_ids:
            raise InvalidSchemeError(f"no partition of {self.column} is named to be {what}; name at least one")
        self.check_exists(partition_ids)
        if DEFAULT_PARTITION in partition_ids:
            raise DefaultPartitionError(
                f"partition 0 of {self.column} is the default one, for the values that no other partition takes, and "
                f"cannot be {what}; to take values out of it, use ADD PARTITION"
            )
        if twice := {each for each in partition_ids if list(partition_ids).count(each) > 1}:
            raise InvalidSchemeError(f"partition {min(twice)} is named twice; name each partition once")

    def _new_ids(self, count: int) -> range:
        return range(self.next_id, self.next_id + count)

    def _check_count(self, what: str, count: int, least: int) -> None:
        if count < least:
            raise InvalidSchemeError(f"{what} takes at least {least} partitions, and {count} is given")


def neighbours(ids: Sequence[int], chosen: Sequence[int], column: str) -> Sequence[int]:
    """Return the chosen ids in their logical order.

    Raises:
        PartitionsNotNeighboursError: Others stand between them.
    """
    positions = sorted(ids.index(each) for each in chosen)
    if positions[-1] - positions[0] >= len(positions):
        between = next(ids[each] for each in range(positions[0], positions[-1]) if each not in positions)
        raise PartitionsNotNeighboursError(
            f"partition {between} of {column} stands between those to be merged; merge neighbouring ranges"
        )
    return [ids[each] for each in positions]
