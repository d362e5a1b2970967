"""Errors about partitions and their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from catalog.errors.base import InvalidRequestError


class PartitionValueError(InvalidRequestError):
    """The value of a partition is not of its key's type.

    Attributes:
        key: The partition key.
        value: The value as it was given.
        expected_type: The key's type as Hive writes it.
    """

    def __init__(self, key: str, value: str, expected_type: str, problem: str) -> None:
        """Name key, value and type; `problem` says what is wrong with the value."""
        self.key = key
        self.value = value
        self.expected_type = expected_type
        super().__init__(
            f"partition key {key} of type {expected_type} has the value {value[:100]!r} in a partition: {problem}. "
            "Rename or drop the partition, or make the key a string"
        )


class PartitionProblem(StrEnum):
    """Why a partition does not fit an index; the spelling of Glue's backfill error codes.

    Source: AWS Glue API, `BackfillError.Code`.
    """

    ENCRYPTED = "ENCRYPTED_PARTITION_ERROR"
    INVALID_TYPE = "INVALID_PARTITION_TYPE_DATA_ERROR"
    MISSING_VALUE = "MISSING_PARTITION_VALUE_ERROR"
    UNSUPPORTED_CHARACTER = "UNSUPPORTED_PARTITION_CHARACTER_ERROR"


@dataclass(frozen=True)
class RefusedPartition:
    """One partition that a table's indexes do not admit.

    Attributes:
        partition: Its name in the form `k=v/k2=v2`.
        key: The indexed key whose value does not fit; None when the whole partition does not (`ENCRYPTED`).
        value: The value as it was given; None when it is missing.
        expected_type: The key's type, for instance `int` or `char(3)`; None when `key` is.
        code: What is wrong.
        index: The index that needs the key; None when the rows of a load would be read as null.
    """

    partition: str
    key: str | None
    value: str | None
    expected_type: str | None
    code: PartitionProblem
    index: str | None

    def __str__(self) -> str:
        """Say what is wrong in one line."""
        if self.code is PartitionProblem.ENCRYPTED:
            return (
                f"partition {self.partition!r}: its property has_encrypted_data is true, and partition index "
                f"{self.index!r} takes no encrypted partitions ({self.code})"
            )
        wrong = "has no value" if self.code is PartitionProblem.MISSING_VALUE else f"has the value {self.value!r}"
        because = "the key's type" if self.index is None else f"because partition index {self.index!r} is on it"
        return (
            f"partition {self.partition!r}: key {self.key!r} {wrong}, expected {self.expected_type} {because} "
            f"({self.code})"
        )


class InvalidPartitionError(InvalidRequestError):
    """Partitions cannot be added as they are given.

    Attributes:
        table: The table, `database.name`.
        refused: One entry for each partition that an index does not admit; empty when the request as a whole is wrong.
    """

    def __init__(
        self,
        table: str,
        refused: Sequence[RefusedPartition] = (),
        *,
        count: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Build the message from what was refused, of which there may be `count` in all, or from `reason`."""
        self.table = table
        self.refused = tuple(refused)
        count = len(self.refused) if count is None else count
        if reason is None:
            shown = "; ".join(str(problem) for problem in self.refused[:10])
            more = f"; and {count - 10:,} more" if count > 10 else ""
            reason = (
                f"{count:,} partition(s) refused: {shown}{more}. "
                "Nothing was added. Correct the values, or ask for the valid ones only"
            )
        super().__init__(f"table {table}: {reason}")


class InvalidPartitionSpecError(InvalidRequestError):
    """A partition is named by keys that its table does not have, or by one key twice."""


class PartialPartitionSpecError(InvalidPartitionSpecError):
    """One partition is meant, and a partition key has no value."""


class InvalidRowsError(InvalidRequestError):
    """Rows to append do not have the columns of the table, or not values of their types."""
