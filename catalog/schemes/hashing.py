"""HASH: a row's partition is the CRC-32 of its value's canonical string, modulo the number of partitions.

The canonical string is the UTF-8 encoding of: an integer in decimal; a date as yyyy-MM-dd; a timestamp's microseconds
since 1970 UTC; a decimal's unscaled integer; a char without trailing blanks; a string as is; true or false. Null is in
partition 0. CRC-32 is that of zlib, Spark, Hive and MySQL, so all engines and machines compute the same partition.
Floating-point numbers have no string on which all of them agree, and are refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, ClassVar

from catalog.errors import InvalidSchemeError, UnsupportedChangeError
from catalog.schemes.model import LOWEST, MAXIMUM_PARTITIONS, Change, Scheme, SchemeType
from catalog.types.key_types import DateType, DecimalType, FloatingType, KeyType, KeyValue, StringType
from catalog.types.ranges import Ranges

_MAXIMUM_PRECISION = 33
"""With more digits, Spark rounds when it computes the unscaled integer (its arithmetic has 34 digits)."""


def canonical_text(value_type: KeyType, value: KeyValue) -> str:
    """Return the string that is hashed."""
    if isinstance(value_type, DecimalType):
        return str(value_type.unscaled(value))
    if isinstance(value_type, DateType):
        return value_type.format(value).strip("'")
    if value_type.name == "boolean":
        return "true" if value else "false"
    if isinstance(value_type, StringType):
        return value_type.text_of(value)
    return str(value)


@dataclass(frozen=True)
class HashScheme(Scheme):
    """Partitions 0 … count - 1, by a hash of the value."""

    type: ClassVar[SchemeType] = SchemeType.HASH

    count: int = 1

    def __post_init__(self) -> None:
        """Check the number of partitions and the column type.

        Raises:
            InvalidSchemeError: The number is out of range, or the type cannot be hashed.
        """
        if not 1 <= self.count <= MAXIMUM_PARTITIONS:
            raise InvalidSchemeError(f"the number of hash partitions is {self.count}; use 1 to {MAXIMUM_PARTITIONS:,}")
        if isinstance(self.value_type, DecimalType) and self.value_type.precision > _MAXIMUM_PRECISION:
            raise InvalidSchemeError(
                f"partition column {self.column} is of type {self.column_type}; hashed decimals have at most "
                f"{_MAXIMUM_PRECISION} digits"
            )
        if isinstance(self.value_type, FloatingType):
            raise InvalidSchemeError(
                f"partition column {self.column} is of type {self.column_type}, which cannot be hashed: engines format "
                "floating-point numbers differently; use decimal, or ranges"
            )

    @property
    def ids(self) -> tuple[int, ...]:
        """The partition ids 0 … count - 1."""
        return tuple(range(self.count))

    def lines(self) -> list[str]:
        """Return one line for all partitions."""
        return [f"{self.column} = HASH_NUMBER({self.count})"]

    def text_of(self, partition_id: int) -> str:
        """Return the condition of a partition's rows."""
        return f"hash({self.column}) % {self.count} = {partition_id}"

    def partition_of(self, value: KeyValue | None) -> int:
        """Return the partition of a value."""
        if value is None:
            return 0
        return zlib.crc32(canonical_text(self.value_type, value).encode("utf-8", "surrogatepass")) % self.count

    def partitions_in(self, ranges: Ranges) -> set[int]:
        """Return the partitions of single values; all partitions for any other range."""
        if not all(key_range.is_point for key_range in ranges):
            return set(self.ids)
        return {
            self.partition_of(None if key_range.low < LOWEST else self.value_type.decode(key_range.low, 0)[0])
            for key_range in ranges
        }

    def add(self, items: Sequence[str]) -> Change:
        """Refuse the change: hash partitions cannot be added one by one."""
        raise self._unsupported("ADD PARTITION")

    def split(self, partition_id: int, items: Sequence[str]) -> Change:
        """Refuse the change."""
        raise self._unsupported("SPLIT PARTITION")

    def drop(self, partition_ids: Sequence[int], *, with_data: bool) -> Change:
        """Refuse the change."""
        raise self._unsupported("DROP PARTITION")

    def merge(self, partition_ids: Sequence[int]) -> Change:
        """Refuse the change."""
        raise self._unsupported("MERGE PARTITION")

    def _unsupported(self, what: str) -> UnsupportedChangeError:
        return UnsupportedChangeError(
            f"{what} does not apply to hash partitions, and {self.column} is hashed into {self.count}; to change their "
            "number, use ALTER TABLE … SET PARTITION_NUM n"
        )

    def set_count(self, count: int) -> Change:
        """Return the change to another number of partitions; if it divides the old one, partitions move as a whole."""
        scheme = replace(self, count=count)
        step = gcd(self.count, count)
        targets = {partition_id: tuple(range(partition_id % step, count, step)) for partition_id in self.ids}
        # A value's old and new partition ids are equal modulo the greatest common divisor of the two numbers.
        return Change(scheme, {} if count == self.count else targets)

    def properties(self) -> dict[str, str]:
        """Return the type and the number of partitions."""
        return {"PARTITION_TYPE": "HASH", "PARTITION_NUM": str(self.count)}

    def _fields(self) -> dict[str, Any]:
        return {"count": self.count}
