"""Partition schemes as values: the partition of each value, and changes of the scheme. No rows are moved here.

A scheme places every row by the value of one column. Values are strings as the user wrote them, and compare as the
column's type does; a change returns a new scheme. Partition ids are never reused and never renumbered. Their order is
logical: the parts of a split take the position of the old partition.

Source: Apache CarbonData's partition tables (docs/partition-guide.md of 1.3), where partition 0 is also the default of
ranges and lists.
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
"""The partition of ranges and lists for nulls and for all values outside the other partitions."""

UNPLACED = -1
"""Stands for the partition of files that other engines wrote, and whose rows may belong to several partitions."""

MAXIMUM_PARTITIONS = 10_000
NULL_RANGE = KeyRange(NULL_BYTES, b"\x01", is_point=True)
LOWEST, HIGHEST = b"\x01", b"\xff"
"""Bounds of all encoded values: lower inclusive, upper exclusive."""


class SchemeType(StrEnum):
    """The kinds of row placement; VALUE tables, with one partition per value as in Hive, have no `Scheme`."""

    VALUE = "VALUE"
    HASH = "HASH"
    RANGE = "RANGE"
    RANGE_INTERVAL = "RANGE_INTERVAL"
    LIST = "LIST"


@dataclass(frozen=True)
class Change:
    """A new scheme and the partitions whose rows it affects.

    Attributes:
        scheme: The scheme afterwards.
        targets: Partition of the old scheme → partitions of the new one that its rows may belong to. Partitions that
            are not listed keep their rows.
        deleted: Partitions whose rows are deleted.
    """

    scheme: Scheme
    targets: Mapping[int, tuple[int, ...]]
    deleted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scheme(ABC):
    """The placement of a table's rows by the value of one column.

    Attributes:
        column: Name of the partition column, lower case.
        column_type: Its type as Hive writes it.
        sort_columns: The columns by which the rows of each data file are sorted.
    """

    type: ClassVar[SchemeType]

    column: str
    column_type: str
    sort_columns: tuple[str, ...] = ()

    @cached_property
    def value_type(self) -> KeyType:
        """The type by which values compare.

        Raises:
            InvalidSchemeError: Values of the column's type are not comparable.
        """
        value_type = parse_column_type(self.column_type)
        if value_type is None:
            raise InvalidSchemeError(
                f"partition column {self.column} is of type {self.column_type}, whose values are not comparable; use "
                "string, char, varchar, an integer type, decimal, float, double, boolean, date or timestamp"
            )
        return value_type

    def typed(self, text: str) -> KeyValue:
        """Return the typed value of a string.

        Raises:
            SchemeValueError: It is not of the column's type.
        """
        try:
            return self.value_type.parse(text)
        except KeyValueError as error:
            raise SchemeValueError(f"partition column {self.column} is of type {self.column_type}: {error}") from None

    def encoded(self, text: str) -> bytes:
        """Return the encoded value of a string.

        Raises:
            SchemeValueError: It is not of the column's type.
        """
        return self.value_type.encode(self.typed(text))

    @property
    @abstractmethod
    def ids(self) -> tuple[int, ...]:
        """The partition ids in logical order."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the lines that SHOW PARTITIONS prints."""

    @abstractmethod
    def text_of(self, partition_id: int) -> str:
        """Return the condition of a partition's rows, for instance `2014/01/01 <= logdate < 2015/01/01`."""

    @abstractmethod
    def partition_of(self, value: KeyValue | None) -> int:
        """Return the partition of a typed value; None is null."""

    @abstractmethod
    def partitions_in(self, ranges: Ranges) -> set[int]:
        """Return the partitions that may hold values whose bytes are in the ranges (`catalog.types.key_types`)."""

    @abstractmethod
    def add(self, items: Sequence[str]) -> Change:
        """Return the change that adds partitions, whose rows come from the default partition.

        Args:
            items: The upper bounds of new ranges, or new groups of values.

        Raises:
            InvalidSchemeError: The items are invalid; subclasses give the reason.
        """

    @abstractmethod
    def split(self, partition_id: int, items: Sequence[str]) -> Change:
        """Return the change that splits one partition into several, at its position.

        Args:
            items: The upper bounds of the new ranges, of which the last is that of the old range; or the new groups,
                which together equal the old group.

        Raises:
            PartitionNotFoundError: There is no such partition.
            InvalidSchemeError: The items are invalid; subclasses give the reason.
        """

    @abstractmethod
    def drop(self, partition_ids: Sequence[int], *, with_data: bool) -> Change:
        """Return the change that removes partitions, with or without their rows.

        Kept rows move to the next range; those of the last range and of lists move to the default partition.

        Raises:
            PartitionNotFoundError: There is no such partition.
            InvalidSchemeError: The partitions cannot be dropped; subclasses give the reason.
        """

    @abstractmethod
    def merge(self, partition_ids: Sequence[int]) -> Change:
        """Return the change that merges several partitions into one, at the position of the first.

        Raises:
            PartitionNotFoundError: There is no such partition.
            InvalidSchemeError: The partitions cannot be merged; subclasses give the reason.
        """

    def set_count(self, count: int) -> Change:
        """Return the change to another number of partitions; only hash schemes support it.

        Raises:
            InvalidSchemeError: The number is out of range, or the scheme is not HASH.
        """
        raise UnsupportedChangeError(
            f"the partitions of {self.column} are of type {self.type}, and SET PARTITION_NUM is for HASH; use ADD, "
            "SPLIT, MERGE or DROP PARTITION"
        )

    def check_exists(self, partition_ids: Iterable[int]) -> None:
        """Check that all partitions exist.

        Raises:
            PartitionNotFoundError: One does not.
        """
        known = set(self.ids)
        for partition_id in partition_ids:
            if partition_id not in known:
                raise PartitionNotFoundError(
                    f"there is no partition {partition_id} of {self.column}; SHOW PARTITIONS lists the existing ones"
                )

    def check_size(self) -> Self:
        """Return the scheme, after checking its number of partitions.

        Raises:
            LimitExceededError: There are too many.
        """
        if len(self.ids) > MAXIMUM_PARTITIONS:
            raise LimitExceededError(
                f"{len(self.ids):,} partitions of {self.column} are more than {MAXIMUM_PARTITIONS:,}; use wider ones"
            )
        return self

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """Return the TBLPROPERTIES that create an equal scheme, except for partition ids and sort columns."""

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """Return the fields of the subclass for `as_json`."""

    def as_json(self) -> dict[str, Any]:
        """Return the scheme as JSON values; `scheme_from_json` is the inverse."""
        return {
            "type": str(self.type),
            "column": self.column,
            "column_type": self.column_type,
            "sort_columns": list(self.sort_columns),
            **self._fields(),
        }


@dataclass(frozen=True)
class NumberedScheme(Scheme):
    """A scheme with a default partition whose other partitions are added and removed; `next_id` is unused so far."""

    next_id: int = 1

    def lines(self) -> list[str]:
        """Return a line for each partition, the default first."""
        return [f"{partition_id}, {self.text_of(partition_id)}" for partition_id in self.ids]

    def _check_changeable(self, partition_ids: Sequence[int], what: str) -> None:
        if not partition_ids:
            raise InvalidSchemeError(f"no partition of {self.column} is given to be {what}; name at least one")
        self.check_exists(partition_ids)
        if DEFAULT_PARTITION in partition_ids:
            raise DefaultPartitionError(
                f"partition 0 of {self.column} is the default partition, for values outside all others, and cannot be "
                f"{what}; to take values out of it, use ADD PARTITION"
            )
        if repeated := {number for number in partition_ids if list(partition_ids).count(number) > 1}:
            raise InvalidSchemeError(f"partition {min(repeated)} is named twice; name each partition once")

    def _new_ids(self, count: int) -> range:
        return range(self.next_id, self.next_id + count)

    def _check_count(self, what: str, count: int, least: int) -> None:
        if count < least:
            raise InvalidSchemeError(f"{what} needs at least {least} partition(s), not {count}")


def neighbours(ids: Sequence[int], chosen: Sequence[int], column: str) -> Sequence[int]:
    """Return the chosen ids in their logical order.

    Raises:
        PartitionsNotNeighboursError: There are other partitions between them.
    """
    positions = sorted(ids.index(partition_id) for partition_id in chosen)
    if positions[-1] - positions[0] >= len(positions):
        between = next(ids[place] for place in range(positions[0], positions[-1]) if place not in positions)
        raise PartitionsNotNeighboursError(
            f"partition {between} of {column} lies between the partitions to merge; merge adjacent ranges"
        )
    return [ids[position] for position in positions]
