"""Comparison of what a manifest list says of a manifest with the manifest's entries.

Readers skip whole manifests by the summaries of partition fields and by the file counts in the list. Files that these
do not describe are lost to filters.

Source: https://iceberg.apache.org/spec/#manifest-lists.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyiceberg.conversions import from_bytes
from pyiceberg.types import DoubleType, FloatType, IcebergType, IntegerType, LongType, PrimitiveType, StructType

_SHORT_BYTES = 4
"""The length of an int and of a float."""


class FieldSummary(NamedTuple):
    """The values of a partition field in all files of a manifest, as the manifest list describes them."""

    contains_null: bool | None
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


class ManifestSummary(NamedTuple):
    """The description of a manifest in a manifest list.

    Attributes:
        file_counts, row_counts: Those of added and of existing entries, which are the live ones; None if not given.
        fields: One for each partition field; empty if not given.
    """

    path: str
    file_counts: tuple[int | None, int | None]
    row_counts: tuple[int | None, int | None]
    fields: Sequence[FieldSummary]


class WrongSummary(NamedTuple):
    """A part of a manifest list that does not describe a manifest.

    Attributes:
        path: The file that it hides; of a count, the manifest.
        key: The name of the partition field; None for a count.
        fact: What is wrong, such as `lower bound`.
        declared, actual: The value in the list, and that of the entries.
    """

    path: str
    key: str | None
    fact: str
    declared: str
    actual: str

    def __str__(self) -> str:
        """Return the difference as a clause."""
        of = "" if self.key is None else f"column {self.key}: "
        return f"{of}{self.fact} in the manifest list {self.declared} for {self.actual} in the rows of {self.path}"


class SummaryCheck:
    """The comparison of one manifest, to which the live files of its entries are added one by one."""

    def __init__(self, summary: ManifestSummary, partition: StructType | None) -> None:
        """Set the description of the manifest.

        Args:
            partition: The type of partition records; None if they are not to be compared.
        """
        self._path = summary.path
        self._declared = {"file count": summary.file_counts, "row count": summary.row_counts}
        self._actual = dict.fromkeys(self._declared, 0)
        fields = () if partition is None else partition.fields
        self._keys = [
            _Key(
                position,
                field.name,
                described,
                _value(field.field_type, described.lower_bound),
                _value(field.field_type, described.upper_bound),
            )
            for position, (field, described) in enumerate(zip(fields, summary.fields, strict=False))
        ]

    def add(self, path: str, row_count: int, partition: Sequence[Any]) -> Iterator[WrongSummary]:
        """Count a file; yield the summaries that hide it.

        Args:
            partition: Its partition record; it may be empty if no records are compared.
        """
        self._actual["file count"] += 1
        self._actual["row count"] += row_count
        for key in self._keys:
            wrong = key.difference(partition[key.position])
            if wrong is not None:
                yield WrongSummary(path, key.name, *wrong)

    def counts(self) -> Iterator[WrongSummary]:
        """Yield the counts that differ, after all files were added."""
        for fact, (added, existing) in self._declared.items():
            if added is not None and existing is not None and added + existing != self._actual[fact]:
                yield WrongSummary(self._path, None, fact, str(added + existing), str(self._actual[fact]))


class _Key(NamedTuple):
    position: int
    name: str
    summary: FieldSummary
    low: Any
    high: Any

    def difference(self, value: Any) -> tuple[str, str, str] | None:
        """Return the fact that hides a value, as it is declared, and the value."""
        if value is None:
            return ("contains null", "False", "null") if self.summary.contains_null is False else None
        if value != value:
            return ("contains NaN", "False", "NaN") if self.summary.contains_nan is False else None
        if self.low is None or value < self.low:
            return "lower bound", str(self.low), str(value)
        if self.high is None or value > self.high:
            return "upper bound", str(self.high), str(value)
        return None


def _value(kind: IcebergType, bound: bytes | None) -> Any:
    """Return the value of a bound; None if it cannot be read, which describes no value.

    One that was written before its column became wider has the former type's length.
    """
    if bound is None:
        return None
    is_short = len(bound) == _SHORT_BYTES
    if is_short and isinstance(kind, LongType):
        kind = IntegerType()
    elif is_short and isinstance(kind, DoubleType):
        kind = FloatType()
    assert isinstance(kind, PrimitiveType)
    try:
        return from_bytes(kind, bound)
    except (struct.error, ValueError):
        return None
