"""Errors about partitions and their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from catalog.errors.base import InvalidRequestError, first_of


class PartitionValueError(InvalidRequestError):
    """A partition value is not of its key's type.

    Attributes:
        key: The partition key.
        value: The value as given.
        expected_type: The key's type as Hive writes it.
    """

    def __init__(self, key: str, value: str, expected_type: str, problem: str) -> None:
        """Build the message; `problem` says what is wrong with the value."""
        self.key = key
        self.value = value
        self.expected_type = expected_type
        super().__init__(
            f"partition key {key} of type {expected_type} has the value {value[:100]!r} in a partition: {problem}. "
            "Rename or drop the partition, or make the key a string"
        )


class PartitionProblem(StrEnum):
    """Reasons why an index refuses a partition, named like Glue's backfill error codes.

    Source: AWS Glue API, `BackfillError.Code`.
    """

    ENCRYPTED = "ENCRYPTED_PARTITION_ERROR"
    INVALID_TYPE = "INVALID_PARTITION_TYPE_DATA_ERROR"
    MISSING_VALUE = "MISSING_PARTITION_VALUE_ERROR"
    UNSUPPORTED_CHARACTER = "UNSUPPORTED_PARTITION_CHARACTER_ERROR"


@dataclass(frozen=True)
class RefusedPartition:
    """A partition that an index of its table refuses.

    Attributes:
        partition: Its name in the form `k=v/k2=v2`.
        key: The indexed key whose value is refused; None when the whole partition is (`ENCRYPTED`).
        value: The value as given; None when it is missing.
        expected_type: The key's type, for instance `int` or `char(3)`; None when `key` is.
        code: The reason.
        index: The index that refuses it; None when the rows of a load would be read as null.
        place: The file, and the line, of a row of a load with the value; None if it is unknown.
    """

    partition: str
    key: str | None
    value: str | None
    expected_type: str | None
    code: PartitionProblem
    index: str | None
    place: str | None = None

    def __str__(self) -> str:
        """Return the reason as one line."""
        if self.code is PartitionProblem.ENCRYPTED:
            return (
                f"partition {self.partition!r}: its property has_encrypted_data is true, and partition index "
                f"{self.index!r} does not accept encrypted partitions ({self.code})"
            )
        wrong = "has no value" if self.code is PartitionProblem.MISSING_VALUE else f"has the value {self.value!r}"
        because = ", the key's type" if self.index is None else f" because partition index {self.index!r} is on it"
        where = f" in {self.place}" if self.place else ""
        return (
            f"partition {self.partition!r}: key {self.key!r} {wrong}{where}, expected {self.expected_type}{because} "
            f"({self.code})"
        )


class InvalidPartitionError(InvalidRequestError):
    """Partitions cannot be added as given.

    Attributes:
        table: The table, `database.name`.
        refused: One entry per partition that an index refuses; empty when the request as a whole is wrong.
    """

    def __init__(
        self,
        table: str,
        refused: Sequence[RefusedPartition] = (),
        *,
        count: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Build the message from `reason`, or from the refused partitions and their total number `count`."""
        self.table = table
        self.refused = tuple(refused)
        count = len(self.refused) if count is None else count
        if reason is None:
            reason = (
                f"{count:,} partition(s) refused: {first_of(self.refused, 10, count=count, separator='; ')}. "
                "Nothing was added. Correct the values, or ask for the valid ones only"
            )
        super().__init__(f"table {table}: {reason}")


class InvalidPartitionSpecError(InvalidRequestError):
    """A partition specification has an unknown key, or one key twice."""


class PartialPartitionSpecError(InvalidPartitionSpecError):
    """A partition specification lacks the value of a key where a single partition is expected."""


class InvalidRowsError(InvalidRequestError):
    """Rows to append do not match the table's columns or their types."""


class AmbiguousMergeError(InvalidRequestError):
    """Several rows of the source of a MERGE match one row of the table.

    Attributes:
        table: The table, `database.name`.
        row: The beginning of the row; None if it is not known.
        count: The number of rows of the source that match it; None if it is not known.
    """

    def __init__(self, table: str, row: str | None = None, count: int | None = None) -> None:
        """Build the message."""
        self.table, self.row, self.count = table, row, count
        many, which = "several" if count is None else f"{count:,}", "a row" if row is None else f"the row {row}"
        super().__init__(
            f"{many} rows of the source match {which} of table {table}, so what it becomes is open; nothing was "
            "changed. Let at most one row match, for instance by a GROUP BY in the source"
        )
