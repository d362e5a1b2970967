"""Comparison of what a manifest list says of a manifest with the manifest's entries.

Readers skip whole manifests by the summaries of partition fields and by the file counts in the list. Files that these
do not describe are lost to filters.

Source: https://iceberg.apache.org/spec/#manifest-lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyiceberg.conversions import from_bytes
from pyiceberg.types import DoubleType, FloatType, IcebergType, IntegerType, LongType, PrimitiveType, StructType

_SHORT_BYTES = 4
"""The length of an int and of a float."""


class FieldSummary(NamedTuple):
    """What a manifest list says of a partition field in all files of a manifest."""

    contains_null: bool | None
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


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
        """Return the difference as text."""
        of = "" if self.key is None else f"partition field {self.key}: "
        return f"{self.path}: {of}{self.fact} in the manifest list is {self.declared}, not {self.actual}"


class SummaryCheck:
    """The comparison of one manifest, to which the live files of its entries are added one by one."""

    def __init__(
        self,
        path: str,
        file_count: int | None,
        row_count: int | None,
        summaries: Sequence[FieldSummary] | None,
        partition: StructType | None,
    ) -> None:
        """Set what the list says of the manifest at a path.

        Args:
            file_count, row_count: Of its live entries; None if the list does not say.
            summaries: One for each partition field; None if the list has none.
            partition: The type of partition records; None if they are not to be compared.
        """
        self._path = path
        self._declared = {"file count": file_count, "row count": row_count}
        self._actual = dict.fromkeys(self._declared, 0)
        fields = () if partition is None else partition.fields
        self._keys = [
            _Key(
                position,
                field.name,
                summary,
                _value(field.field_type, summary.lower_bound),
                _value(field.field_type, summary.upper_bound),
            )
            for position, (field, summary) in enumerate(zip(fields, summaries or (), strict=False))
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
        for fact, declared in self._declared.items():
            if declared is not None and declared != self._actual[fact]:
                yield WrongSummary(self._path, None, fact, str(declared), str(self._actual[fact]))


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
    """Return the value of a bound; one that was written before its column became wider has the former type's length."""
    if bound is None:
        return None
    is_short = len(bound) == _SHORT_BYTES
    if is_short and isinstance(kind, LongType):
        kind = IntegerType()
    elif is_short and isinstance(kind, DoubleType):
        kind = FloatType()
    assert isinstance(kind, PrimitiveType)
    return from_bytes(kind, bound)
