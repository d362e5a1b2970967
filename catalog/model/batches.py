"""Requests and results for many partitions at once, in which each member fails by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from catalog.model import Partition

PartitionKey: TypeAlias = "Mapping[str, str | None] | Sequence[str | None]"
"""A partition: all keys → values, or the values in the order of the keys."""


@dataclass(frozen=True)
class PartitionUpdate:
    """A change of one partition; None keeps the current value.

    Attributes:
        partition: The partition.
        location: The new folder of its files; this makes counts unknown that the update does not have.
        format: The new format of its files; the table's format removes the partition's own.
        properties: Properties to set, or to remove (None).
        row_count, file_count, size_bytes: What its files have; as the caller knows it, no file is read.
    """

    partition: PartitionKey
    location: str | None = None
    format: str | None = None
    properties: Mapping[str, str | None] | None = None
    row_count: int | None = None
    file_count: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class PartitionFailure:
    """A member of a batch that failed.

    Attributes:
        partition: As in the request.
        error: The name of the error's class, such as `PartitionNotFoundError`.
        reason: The error's message.
    """

    partition: PartitionKey
    error: str
    reason: str


@dataclass(frozen=True)
class PartitionBatch:
    """The partitions that a batch has found, in the order of the request, and its failures."""

    partitions: Sequence[Partition]
    failures: Sequence[PartitionFailure] = ()


@dataclass(frozen=True)
class BatchChange:
    """The number of partitions that a batch has changed or dropped, and its failures."""

    changed: int
    failures: Sequence[PartitionFailure] = ()
