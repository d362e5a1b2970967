"""HASH: a row's partition is the CRC-32 of its value's canonical text, modulo the number of partitions.

The canonical text is UTF-8 of: an integer in decimals; a date as yyyy-MM-dd; a timestamp's microseconds since 1970 UTC;
a decimal's unscaled whole number; a char without trailing blanks; a string as it is; true or false. A null is in
partition 0. CRC-32 is that of zlib, Spark, Hive and MySQL, so every engine and machine finds the same partition.
Floating numbers have no text that all of them agree on, and are refused.
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
"""With more digits Spark rounds when it takes a decimal apart (its arithmetic has 34)."""


def canonical_text(value_type: KeyType, value: KeyValue) -> str:
    """Return the text that is hashed."""
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
    """Partitions 0 … count - 1 by a hash of the value."""

    type: ClassVar[SchemeType] = SchemeType.HASH

    count: int = 1

    def __post_init__(self) -> None:
        """Check the number and the type.

        Raises:
            InvalidSchemeError: The number is none, too great, or the type cannot be hashed.
        """
        if not 1 <= self.count <= MAXIMUM_PARTITIONS:
            raise InvalidSchemeError(
                f"a table has 1 to {MAXIMUM_PARTITIONS:,} hash partitions, and {self.count} is asked for"
            )
        if isinstance(self.value_type, DecimalType) and self.value_type.precision > _MAXIMUM_PRECISION:
            raise InvalidSchemeError(
                f"partition column {self.column} is of type {self.column_type}; hashed decimals have at most "
                f"{_MAXIMUM_PRECISION} digits"
            )
        if isinstance(self.value_type, FloatingType):
            raise InvalidSchemeError(
                f"partition column {self.column} is of type {self.column_type}, which is not hashed: not all engines "
                "write a floating number in the same way; use decimal, or ranges"
            )

    @property
    def ids(self) -> tuple[int, ...]:
        """0 … count - 1."""
        return tuple(range(self.count))

    def lines(self) -> list[str]:
        """Return one line for all partitions."""
        return [f"{self.column} = HASH_NUMBER({self.count})"]

    def text_of(self, partition_id: int) -> str:
        """Return a partition in words."""
        return f"hash({self.column}) % {self.count} = {partition_id}"

    def partition_of(self, value: KeyValue | None) -> int:
        """Return the partition of a value."""
        if value is None:
            return 0
        return zlib.crc32(canonical_text(self.value_type, value).encode("utf-8", "surrogatepass")) % self.count

    def partitions_in(self, ranges: Ranges) -> set[int]:
        """Return the partitions of single values; all of them for anything else."""
        if not all(each.is_point for each in ranges):
            return set(self.ids)
        return {
            self.partition_of(None if each.low < LOWEST else self.value_type.decode(each.low, 0)[0]) for each in ranges
        }

    def add(self, items: Sequence[str]) -> Change:
        """Refuse: hashed values have no partitions of their own."""
        raise self._unsupported("ADD PARTITION")

    def split(self, partition_id: int, items: Sequence[str]) -> Change:
        """Refuse."""
        raise self._unsupported("SPLIT PARTITION")

    def drop(self, partition_ids: Sequence[int], *, with_data: bool) -> Change:
        """Refuse."""
        raise self._unsupported("DROP PARTITION")

    def merge(self, partition_ids: Sequence[int]) -> Change:
        """Refuse."""
        raise self._unsupported("MERGE PARTITION")

    def _unsupported(self, what: str) -> UnsupportedChangeError:
        return UnsupportedChangeError(
            f"{what} is not for hash partitions, and {self.column} is hashed into {self.count}; change their number: "
            "ALTER TABLE … SET PARTITION_NUM n"
        )

    def set_count(self, count: int) -> Change:
        """Return the change; where the new number divides the old one, each partition moves as a whole."""
        scheme = replace(self, count=count)
        step = gcd(self.count, count)
        targets = {each: tuple(range(each % step, count, step)) for each in self.ids}
        # The least common multiple decides which remainders can come together.
        return Change(scheme, {} if count == self.count else targets)

    def properties(self) -> dict[str, str]:
        """Return type and number."""
        return {"PARTITION_TYPE": "HASH", "PARTITION_NUM": str(self.count)}

    def _fields(self) -> dict[str, Any]:
        return {"count": self.count}
