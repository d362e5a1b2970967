"""The base class of the types of partition keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from catalog.errors import PartitionProblem

KeyValue = int | str
"""A typed, non-null value of a partition key."""

NULL_BYTES = b"\x00"
TEXT_END = b"\x01"
SIGN_BIT = 1 << 63


class KeyValueError(ValueError):
    """A string is not a value of a key's type.

    Attributes:
        problem: Glue's error code for the reason.
    """

    def __init__(self, problem: PartitionProblem, message: str) -> None:
        """Keep the code with the message."""
        self.problem = problem
        super().__init__(message)


def unfit(message: str) -> KeyValueError:
    """Return the error for a string that is not a value of the type."""
    return KeyValueError(PartitionProblem.INVALID_TYPE, message)


class KeyType(ABC):
    """The type of a partition key."""

    name: str
    width: ClassVar[int | None] = None
    """Width in bytes of each value in an index key; None when a terminator ends it."""
    spelling: ClassVar[str | None] = None
    """Regular expression, also of Java, that each string which `parse` reads matches; slashes in dates as hyphens.

    What reads strings in another way, as Spark's cast does, refuses those that do not match. None if all strings do.
    """

    def __str__(self) -> str:
        """Return the type as Hive writes it."""
        return self.name

    @abstractmethod
    def parse(self, text: str) -> KeyValue:
        """Return the typed value of a partition's string value.

        Raises:
            KeyValueError: The string is not a value of this type.
        """

    def parse_literal(self, text: str) -> KeyValue:
        """Return the typed value of a literal in an expression; the syntax is more lenient than for stored values.

        Raises:
            KeyValueError: The literal cannot be of this type.
        """
        return self.parse(text)

    def parse_bound(self, text: str) -> tuple[KeyValue | None, bool]:
        """Return the greatest typed value that is not greater than a literal, and whether it equals the literal.

        The value is None if all values of the type are greater.

        Raises:
            KeyValueError: The literal cannot be of this type.
        """
        return self.parse_literal(text), True

    def comparable(self, text: str) -> KeyValue | None:
        """Return the typed value of a stored string; None when it is invalid, as values of unindexed keys may be."""
        try:
            return self.parse(text)
        except KeyValueError:
            return None

    def format(self, value: KeyValue) -> str:
        """Return a typed value as a literal of the filter language."""
        return str(value)

    @abstractmethod
    def encode(self, value: KeyValue) -> bytes:
        """Return the value's bytes in an index key."""

    @abstractmethod
    def decode(self, key: bytes, start: int) -> tuple[KeyValue, int]:
        """Return the value that starts at `start`, and the position after it."""
